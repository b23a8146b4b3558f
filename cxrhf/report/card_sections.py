"""A page of one model's rows -> the parts of its card that hold numbers: the page's tables and words, as Markdown."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from cxrhf.report.blocks import (
    Block,
    Column,
    Entry,
    Figure,
    Fold,
    Grid,
    Section,
    Table,
    Text,
    count_entry,
    difference,
    entry,
    finding_name,
    finding_table,
    name_entry,
    percent_entry,
    words_entry,
)
from cxrhf.report.book import MACRO, Book, Cell
from cxrhf.report.card_facts import GROUPS, confirmed_traits, is_open, worst_slices
from cxrhf.report.lines import printable
from cxrhf.report.numbers import is_finite, join_names
from cxrhf.report.page import Page
from cxrhf.report.sections.slices import Cut, cuts, trait_words
from cxrhf.report.sections.subgroups import gap_table, gaps_of, group, grouping
from cxrhf.report.sections.view import corrected, correction_of

GAPS = 12  # rows of the table of gaps
# Pictures of a card -> what somebody who does not see them is told.
PICTURES = {
    "waterfall": "AUROC overall, from context alone, and with context held equal, by finding",
    "tradeoff": "Words lost and words added, by decoding strategy",
    "pretest": "AUROC and calibration of prior notes alone, by finding",
}
_RANKED = (("AUROC", "auroc"), ("AUROC, balanced", "auroc_balanced"), ("Sensitivity", "tpr"),
           ("False positive rate", "fpr"))  # fmt: skip


def number_lines(page: Page, facts: Mapping[str, Any], pictures: Sequence[str]) -> list[str]:
    """Everything the card says of the model's numbers. `pictures`: names of the figures that there are."""
    lines, several, rule = list[str](), len(page.chapters) > 1, correction_of(facts["run"])
    for at, (chapter, subject) in enumerate(zip(page.chapters, page.subjects, strict=True)):
        own = {section.ident.partition("-")[2]: section for section in (*chapter.sections, chapter.opening)}
        heads = f" on {subject.book.dataset}" if several else ""
        about = "" if subject.book.way else "AUROC by finding"
        picture = _picture(pictures, f"waterfall-{at + 1}" if several else "waterfall", about)
        lines += _results(own, subject.book, heads, picture, rule)
        lines += _groups(own.get("subgroups"), subject.book, heads, rule)
        lines += _slices(own.get("slices"), subject.book, heads)
        lines += _section_lines(own.get("shortcut"), f"Shortcuts{heads}")
    apart = [*page.shared, *(page.chapters[0].sections if len(page.chapters) == 1 else [])]
    for section in apart:
        if section.ident.startswith("encoding"):
            lines += _section_lines(section, "What its embeddings encode about patients")
        elif section.ident.startswith("pretest"):
            lines += [
                f"### {escape_markdown(section.title)}",
                "",
                *paragraphs(section.lead),
                *_picture(pictures, "pretest"),
            ]
            lines += [line for table in _tables(section) for line in table_lines(table)]
            lines += paragraphs(block.words for block in section.blocks if isinstance(block, Text))
        elif section.ident.startswith("reports"):
            lines += _reports(section, facts, pictures)
    return lines


def too_few_sentences(page: Page) -> list[str]:
    """Which findings have too few patients to be judged, for the card's limits."""
    found = (section for chapter in page.chapters for section in chapter.sections)
    return [words for section in found if section.ident.endswith("-overview") for words in section.lead]


def _picture(pictures: Sequence[str], name: str, about: str = "") -> list[str]:
    told = about or PICTURES[name.partition("-")[0]]
    return [f"![{told}](figures/{name}.png)", ""] if name in pictures else []


def _tables(section: Section) -> list[Table]:
    """Tables that stand open."""
    return [block for block in section.blocks if isinstance(block, Table)]


def _all_tables(blocks: Sequence[Block]) -> Iterator[Table]:
    for block in blocks:
        if isinstance(block, Table):
            yield block
        elif isinstance(block, Fold):
            yield from _all_tables(block.blocks)


def _results(own: Mapping[str, Section], book: Book, heads: str, picture: Sequence[str], rule: str) -> list[str]:
    headline = own["headline"]
    lines = [*([f"### Findings{escape_markdown(heads)}", ""] if heads else []), *paragraphs(headline.lead), *picture]
    lines += paragraphs(block.caption for block in headline.blocks if isinstance(block, Figure)) if picture else []
    lines += paragraphs(block.words for block in headline.blocks if isinstance(block, Text))  # that context is missing
    lines += table_lines(_results_table(book, rule))
    if "runs" in own:
        lines += [*paragraphs(own["runs"].lead[:1]), *(line for t in _tables(own["runs"]) for line in table_lines(t))]
    more = [*_tables(headline), *(_tables(own["overview"]) if "overview" in own else [])]
    for table in more:
        lines += fold_lines(table.caption, table_lines(replace(table, caption="")))
    return lines


def _results_table(book: Book, rule: str) -> Table:
    """The main numbers of every finding side by side."""
    rows: dict[str, list[Entry]] = {}
    for finding in book.everyone():
        overall = book.overall(finding)
        rows[finding] = [
            *(count_entry(n) if finding != MACRO else Entry("") for n in (overall.n, overall.n_pos)),
            entry(overall),
            entry(book.held(finding, "auroc_context")),
            entry(book.remains(finding)),
            difference(book.drop(finding)),
            entry(book.get("overview", finding, "sensitivity_at_specificity")),
            entry(book.get("overview", finding, "calibration_slope")),
        ]
    columns = [
        Column("Images", "Images with a label"),
        Column("Positive", "Images with the finding"),
        Column("AUROC", "Of all images; 0.5 = coin toss, 1 = perfect"),
        Column("Context alone", "The pre-test probability as the score, without the image"),
        Column("Context equal", "Positives against negatives with the same patient context"),
        Column("Drop", f"AUROC minus AUROC with context equal, on the same resamples; p of no drop, {corrected(rule)}"),
        Column("Sensitivity", "At 95% specificity on these images"),
        Column("Slope", "Calibration slope: 1 = calibrated, below 1 = too extreme"),
    ]
    return finding_table(book, "By finding", columns, rows)


def _groups(section: Section | None, book: Book, heads: str, rule: str) -> list[str]:
    """Gaps between groups, those beyond chance and the largest first; then every group."""
    if section is None:
        return []
    gaps = gaps_of(book)
    pairs = list(dict.fromkeys((finding, kind) for finding, kind, metric in gaps if metric in GROUPS))

    def order(pair: tuple[str, str]) -> tuple[float, float]:
        cells = [gaps[(*pair, metric)][2] for metric in GROUPS if (*pair, metric) in gaps]
        chances = [cell.p_value for cell in cells if is_finite(cell.p_value)]
        first = gaps[(*pair, "auroc")][2].value if (*pair, "auroc") in gaps else 0.0
        return min(chances, default=1.0), -first if is_finite(first) else 0.0

    top = sorted(pairs, key=order)[:GAPS]
    kept = {key: gap for key, gap in gaps.items() if key[:2] in top}
    caption = "Gaps between subgroups, highest minus lowest" + (
        f": the first {len(top)} of {len(pairs)} by p value and size" if len(top) < len(pairs) else ""
    )
    table = gap_table(book, kept, list(dict.fromkeys(kind for _, kind in top)), caption, rule)
    lines = [f"### Subgroups{escape_markdown(heads)}", "", *paragraphs(section.lead)]
    if table is not None:
        place = {(finding_name(finding), kind): at for at, (finding, kind) in enumerate(top)}
        rows = sorted(table.rows, key=lambda row: place[row[0].text, row[1].text])
        lines += table_lines(replace(table, rows=rows))
    lines += table_lines(_every_group(book))
    return lines + paragraphs(
        block.words for block in section.blocks if isinstance(block, Text) and "threshold" in block.words
    )


def _every_group(book: Book) -> Table:
    finding = MACRO if len(book.findings) > 1 else next(iter(book.findings), MACRO)
    rows = []
    for part in book.slices("subgroups"):
        cells = [book.get("subgroups", finding, metric, slice=part) for _, metric in _RANKED]
        if "=" in part and any(is_finite(cell.value) for cell in cells):
            size = next((cell.n for cell in cells if cell.n), 0)
            rows.append([Entry(f"{grouping(part)}: {group(part)}"), count_entry(size), *map(_of_findings, cells)])
    columns = [Column("Subgroup"), Column("Images"), *(Column(title) for title, _ in _RANKED)]
    about = (
        "Each mean covers the findings with enough patients in every subgroup, so the findings differ between means."
    )
    title = f"All subgroups: {finding_name(finding).lower()}"
    return Table(title, columns, rows, about=about if finding == MACRO else "", by_finding=False)


def _of_findings(cell: Cell) -> Entry:
    """A mean, with how many of the findings it is over where some are missing."""
    made, part = entry(cell), cell.note.partition(";")[0]
    few = part.removeprefix("mean of ") if part.startswith("mean of ") and " of " in part[8:] else ""
    return made._replace(below=f"{made.below}\n{few}".strip()) if few and is_finite(cell.value) else made


def _slices(section: Section | None, book: Book, heads: str) -> list[str]:
    """What held-out patients confirm, and the worst slice of each class."""
    if section is None:
        return []
    found = cuts(book)
    stands = [
        [name_entry(cut.finding), words_entry(_cut_words(cut)), words_entry(trait_words(trait)), difference(trait.gap)]
        for cut, _, trait in confirmed_traits(found)
    ]
    columns = [
        Column("Finding"), Column("Images", "Class, and the slice discovery method", True),
        Column("Over-represented in a slice", "Share in the slice and in the rest of the class, odds ratio", True),
        Column("Error with it", "Mean squared error of these images with the attribute minus without it"),
    ]  # fmt: skip
    said = [] if stands else ["Nothing was confirmed on held-out patients; treat the slices below as hypotheses."]
    lines = [f"### Slices{escape_markdown(heads)}", "", *paragraphs(said)]
    lines += table_lines(Table("Confirmed on held-out patients, the largest gap in error first", columns, stands))
    ends = []
    for cut, part in worst_slices(found):
        told = [trait_words(trait) for trait in part.frequent[:1]] or ["nothing stands out"]
        result = "confirmed" if any(trait.stands for trait in part.frequent[:1]) else ""
        counted = count_entry(part.brier.n, f"{part.brier.n_patients:,} patients" if part.brier.n_patients else "")
        ends.append([name_entry(cut.finding), words_entry(_cut_words(cut)), entry(part.brier), counted,
                     percent_entry(part.share.value), words_entry(told[0]), words_entry(result)])  # fmt: skip
    columns = [
        *columns[:2], Column("Brier", "Mean squared error of this class in the slice, on held-out patients"),
        Column("Images in slice"), Column("Share", "Of the class"), columns[2]._replace(title="Most over-represented"),
        Column("Result", "Whether held-out patients confirm it", True),
    ]  # fmt: skip
    lines += table_lines(Table("Worst slices", columns, ends))
    return lines + paragraphs([next((block.words for block in section.blocks if isinstance(block, Text)), "")])


def _cut_words(cut: Cut) -> str:
    return f"{'with' if cut.side == 'positive' else 'without'} it, {cut.method}"


def _section_lines(section: Section | None, title: str) -> list[str]:
    """A section's sentences and its open tables; its last words say how to read it."""
    if section is None:
        return []
    lines = [f"### {escape_markdown(title)}", "", *paragraphs(section.lead)]
    lines += [
        line for table in _all_tables(section.blocks) if table.caption in _OPEN_TABLES for line in table_lines(table)
    ]
    return lines + paragraphs(block.words for block in section.blocks if isinstance(block, Text))


_OPEN_TABLES = ("AUROC for patient characteristics", "Gaps in AUROC between groups")


def _reports(section: Section, facts: Mapping[str, Any], pictures: Sequence[str]) -> list[str]:
    """Strategies side by side, words that were lost and added, likeness by group."""
    if section.ident.endswith("-words"):
        return []
    lines = [f"### {escape_markdown(section.title)}", "", *paragraphs(section.lead)]
    if section.ident.endswith("-groups"):
        tables = [table for table in _all_tables(section.blocks) if "by patient group" in table.caption]
        return [*lines, *(line for table in tables for line in table_lines(table))]
    lines += _picture(pictures, "tradeoff")
    lines += [line for block in section.blocks if isinstance(block, Grid) for line in grid_lines(block)]
    lines += paragraphs(block.words for block in section.blocks if isinstance(block, Text))
    kinds = ("erased", "new", "flipped")
    rows = [
        [words_entry(strategy), *(words_entry(", ".join(words.get(kind) or ["–"])) for kind in kinds)]
        for strategy, words in facts["words"].items()
        if any(words.values())
    ]
    if not is_open(facts):
        return [*lines, "Words are not listed here: they come from reports that are not public.", ""]
    columns = [Column("Strategy"), *(Column(kind.capitalize(), "", True) for kind in kinds)]
    about = "Most displaced first, at most twelve; words of fewer than five patients are not listed."
    named = "Words associated with one of two groups of patients, by category"
    return lines + table_lines(Table(named, columns, rows, about=about, by_finding=False))


# Blocks of a page -> Markdown that the Hub and code hosts show: tables, grids, sentences. Everything is escaped.

_SPECIAL = re.compile(r"([\\`*_\[\]|~$#])")
_INTERVAL = re.compile(r"^(\S+) to (\S+)$")  # stays on one line, however narrow its column is


def escape_markdown(words: str) -> str:
    """Words that nobody can take for markup, on one line.

    >>> escape_markdown("a_b <i> | *")
    'a\\\\_b &lt;i&gt; \\\\| \\\\*'
    """
    plain = printable(re.sub(r"[\n\t]", " ", words))
    # A sign before a blank (p < 0.001, sex & age) starts nothing and stays readable.
    plain = re.sub(r"&(?=[#\w])", "&amp;", plain)
    return _SPECIAL.sub(r"\\\1", re.sub(r"<(?!\s)", "&lt;", plain).replace(">", "&gt;"))


def paragraphs(words: Iterable[str]) -> list[str]:
    """Each on its own, with an empty line after it."""
    return [line for each in words if each for line in (escape_markdown(each), "")]


def bullets(words: Iterable[str]) -> list[str]:
    """A list, with an empty line after it; nothing of nothing."""
    made = [f"- {each}" for each in words]
    return [*made, ""] if made else []


def table_lines(table: Table) -> list[str]:
    """A table with its caption above; what its columns mean opens on demand."""
    rows = [*table.rows, *([table.mean] if table.mean else [])]
    if not rows:
        return []
    lines = [f"**{escape_markdown(table.caption)}**", ""] if table.caption else []
    lines += [*_head(table.columns), *(_markdown_row(row) for row in rows), ""]
    return [*lines, *paragraphs([table.about]), *_meanings(table.columns), *_reasons(table.columns, rows)]


def grid_lines(grid: Grid) -> list[str]:
    """The same of rows in groups; a group's title is a row of its own."""
    lines = [f"**{escape_markdown(grid.caption)}**", "", *_head(grid.columns)]
    for title, rows in grid.groups:
        lines.append(f"| **{escape_markdown(title)}** |" + " |" * (len(grid.columns) - 1))
        lines += [_markdown_row(row) for row in rows]
    every = [row for _, rows in grid.groups for row in rows]
    return [*lines, "", *paragraphs([grid.about]), *_meanings(grid.columns), *_reasons(grid.columns, every)]


def fold_lines(summary: str, lines: Sequence[str]) -> list[str]:
    """Lines that open on demand; nothing of nothing."""
    if not lines:
        return []
    return [f"<details><summary>{escape_markdown(summary)}</summary>", "", *lines, "</details>", ""]


def code(language: str, lines: Sequence[str]) -> list[str]:
    """A block of code, with an empty line after it; longer fences where a line could end it."""
    fence = "`" * max([3, *(len(found) + 1 for line in lines for found in re.findall("`+", line))])
    return [f"{fence}{language}", *lines, fence, ""]


def _head(columns: Sequence[Column]) -> list[str]:
    titles = " | ".join(escape_markdown(column.title) for column in columns)
    # Names and words to the left, numbers to the right.
    marks = ["---", *("---" if column.words else "---:" for column in columns[1:])]
    return [f"| {titles} |".replace("|  |", "| |"), f"| {' | '.join(marks)} |"]


def _markdown_row(row: Sequence[Entry]) -> str:
    return f"| {' | '.join(map(_cell, row))} |"


def _cell(entry: Entry) -> str:
    """The number, then its interval and what else stands below, a line each."""
    tail = escape_markdown(entry.tail)
    below = [_INTERVAL.sub("\\1\u00a0to\u00a0\\2", escape_markdown(line)) for line in entry.below.split("\n")]
    lines = [escape_markdown(entry.text), *below, f"**{tail}**" if entry.strong and tail else tail]
    return "<br>".join(line for line in lines if line)


def _meanings(columns: Sequence[Column]) -> list[str]:
    said = [
        f"**{escape_markdown(column.title)}**: {escape_markdown(column.about)}" for column in columns if column.about
    ]
    return fold_lines("What the columns mean", bullets(said))


def _reasons(columns: Sequence[Column], rows: Sequence[Sequence[Entry]]) -> list[str]:
    """Why cells have no number: each reason once, with the cells that it is of."""
    found: dict[str, list[str]] = {}
    for row in rows:
        for column, cell in zip(columns[1:], row[1:], strict=False):
            if cell.text == "–" and cell.hint:
                found.setdefault(cell.hint, []).append(f"{row[0].text} ({column.title})")
    return fold_lines(
        "Why some cells have no number",
        bullets(f"{escape_markdown(join_names(cells))}: {escape_markdown(reason)}" for reason, cells in found.items()),
    )
