"""A page of one model's rows -> the parts of its card that hold numbers: the page's tables and words, as Markdown."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
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
from cxrhf.report.card_facts import is_open
from cxrhf.report.card_markdown import escaped, folded, grid_lines, paragraphs, table_lines
from cxrhf.report.card_rows import GROUPS, confirmed, worst
from cxrhf.report.numbers import known
from cxrhf.report.page import Page
from cxrhf.report.sections.slice_shelf import Cut, cuts, trait_words
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
        lines += _told(own.get("shortcut"), f"Shortcuts{heads}")
    apart = [*page.shared, *(page.chapters[0].sections if len(page.chapters) == 1 else [])]
    for section in apart:
        if section.ident.startswith("encoding"):
            lines += _told(section, "What its embeddings encode about patients")
        elif section.ident.startswith("pretest"):
            lines += [f"### {escaped(section.title)}", "", *paragraphs(section.lead), *_picture(pictures, "pretest")]
            lines += [line for table in _tables(section) for line in table_lines(table)]
            lines += paragraphs(block.words for block in section.blocks if isinstance(block, Text))
        elif section.ident.startswith("reports"):
            lines += _reports(section, facts, pictures)
    return lines


def doubts(page: Page) -> list[str]:
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
    lines = [*([f"### Findings{escaped(heads)}", ""] if heads else []), *paragraphs(headline.lead), *picture]
    lines += paragraphs(block.caption for block in headline.blocks if isinstance(block, Figure)) if picture else []
    lines += paragraphs(block.words for block in headline.blocks if isinstance(block, Text))  # that context is missing
    lines += table_lines(_results_table(book, rule))
    if "runs" in own:
        lines += [*paragraphs(own["runs"].lead[:1]), *(line for t in _tables(own["runs"]) for line in table_lines(t))]
    more = [*_tables(headline), *(_tables(own["overview"]) if "overview" in own else [])]
    for table in more:
        lines += folded(table.caption, table_lines(replace(table, caption="")))
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
        chances = [cell.p_value for cell in cells if known(cell.p_value)]
        first = gaps[(*pair, "auroc")][2].value if (*pair, "auroc") in gaps else 0.0
        return min(chances, default=1.0), -first if known(first) else 0.0

    top = sorted(pairs, key=order)[:GAPS]
    kept = {key: gap for key, gap in gaps.items() if key[:2] in top}
    caption = "Gaps between subgroups, highest minus lowest" + (
        f": the first {len(top)} of {len(pairs)} by p value and size" if len(top) < len(pairs) else ""
    )
    table = gap_table(book, kept, list(dict.fromkeys(kind for _, kind in top)), caption, rule)
    lines = [f"### Subgroups{escaped(heads)}", "", *paragraphs(section.lead)]
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
        if "=" in part and any(known(cell.value) for cell in cells):
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
    return made._replace(below=f"{made.below}\n{few}".strip()) if few and known(cell.value) else made


def _slices(section: Section | None, book: Book, heads: str) -> list[str]:
    """What held-out patients confirm, and the worst slice of each class."""
    if section is None:
        return []
    found = cuts(book)
    stands = [
        [name_entry(cut.finding), words_entry(_whose(cut)), words_entry(trait_words(trait)), difference(trait.gap)]
        for cut, _, trait in confirmed(found)
    ]
    columns = [
        Column("Finding"), Column("Images", "Class, and the slice discovery method", True),
        Column("Over-represented in a slice", "Share in the slice and in the rest of the class, odds ratio", True),
        Column("Error with it", "Mean squared error of these images with the attribute minus without it"),
    ]  # fmt: skip
    said = [] if stands else ["Nothing was confirmed on held-out patients; treat the slices below as hypotheses."]
    lines = [f"### Slices{escaped(heads)}", "", *paragraphs(said)]
    lines += table_lines(Table("Confirmed on held-out patients, the largest gap in error first", columns, stands))
    ends = []
    for cut, part in worst(found):
        told = [trait_words(trait) for trait in part.frequent[:1]] or ["nothing stands out"]
        result = "confirmed" if any(trait.stands for trait in part.frequent[:1]) else ""
        counted = count_entry(part.brier.n, f"{part.brier.n_patients:,} patients" if part.brier.n_patients else "")
        ends.append([name_entry(cut.finding), words_entry(_whose(cut)), entry(part.brier), counted,
                     percent_entry(part.share.value), words_entry(told[0]), words_entry(result)])  # fmt: skip
    columns = [
        *columns[:2], Column("Brier", "Mean squared error of this class in the slice, on held-out patients"),
        Column("Images in slice"), Column("Share", "Of the class"), columns[2]._replace(title="Most over-represented"),
        Column("Result", "Whether held-out patients confirm it", True),
    ]  # fmt: skip
    lines += table_lines(Table("Worst slices", columns, ends))
    return lines + paragraphs([next((block.words for block in section.blocks if isinstance(block, Text)), "")])


def _whose(cut: Cut) -> str:
    return f"{'with' if cut.side == 'positive' else 'without'} it, {cut.method}"


def _told(section: Section | None, title: str) -> list[str]:
    """A section's sentences and its open tables; its last words say how to read it."""
    if section is None:
        return []
    lines = [f"### {escaped(title)}", "", *paragraphs(section.lead)]
    lines += [line for table in _all_tables(section.blocks) if table.caption in _TOLD for line in table_lines(table)]
    return lines + paragraphs(block.words for block in section.blocks if isinstance(block, Text))


_TOLD = ("AUROC for patient characteristics", "Gaps in AUROC between groups")


def _reports(section: Section, facts: Mapping[str, Any], pictures: Sequence[str]) -> list[str]:
    """Strategies side by side, words that were lost and added, likeness by group."""
    if section.ident.endswith("-words"):
        return []
    lines = [f"### {escaped(section.title)}", "", *paragraphs(section.lead)]
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
