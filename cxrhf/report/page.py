"""RESULT, CURVE, POINT, GALLERY and WORD rows with run.json -> the parts of a page, before any markup is written."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from markupsafe import Markup, escape

from cxrhf.report.blocks import Block, Entry, Figure, Fold, Grid, Multiples, Section, Table, finding_name
from cxrhf.report.book import (
    ENCODING,
    MACRO,
    PRETEST,
    REPORTS,
    Book,
    Subject,
    open_books,
    open_lines,
    shown_findings,
    subjects,
    without_hidden,
)
from cxrhf.report.sections.compare import compare, datasets, runs
from cxrhf.report.sections.context import context, controlled
from cxrhf.report.sections.encoding import encoding
from cxrhf.report.sections.features import features
from cxrhf.report.sections.imbalance import imbalance
from cxrhf.report.sections.overview import controlled_table, opening, overview, short_table
from cxrhf.report.sections.pretest import pretest
from cxrhf.report.sections.provenance import Facts, mapping, size_of
from cxrhf.report.sections.reports import reports
from cxrhf.report.sections.shortcut import shortcut
from cxrhf.report.sections.slices import slices
from cxrhf.report.sections.subgroups import subgroups
from cxrhf.report.sections.view import Rows, View, correction_of, sources_of
from cxrhf.report.sheet import Group, sheet

_PREDICTIONS = (runs, overview, context, controlled, imbalance, subgroups)
_REPRESENTATIONS = (features, slices, shortcut)


@dataclass(frozen=True, slots=True)
class Chapter:
    """All the page says of one subject; `opening` is the first of its sections when it is the only one."""

    ident: str
    name: str
    facts: Facts
    opening: Section
    sections: list[Section]


@dataclass(frozen=True, slots=True)
class Page:
    """Chapters, what concerns several of them, and whose numbers they are."""

    books: list[Book]
    subjects: list[Subject]
    chapters: list[Chapter]
    shared: list[Section]
    pretest: list[Book]  # of context models
    encoding: list[Book]  # of networks whose vectors were read
    reports: list[Book]  # of generated reports, one a strategy

    def blocks(self) -> Iterator[Block]:
        """Every block of the page, folded ones too."""
        for section in self.shared:
            yield from _nested_blocks(section.blocks)
        for chapter in self.chapters:
            for section in [chapter.opening, *chapter.sections]:
                yield from _nested_blocks(section.blocks)


def level_of(record: Mapping[str, Any]) -> str:
    """The level of the intervals, as people write it."""
    given = mapping(record.get("config")).get("level")
    return f"{100 * (given if isinstance(given, (int, float)) and given else 0.95):.4g}%"


def make_page(
    results: Rows,
    curves: Rows,
    record: Mapping[str, Any],
    points: Rows = (),
    gallery: Rows = (),
    words: Rows = (),
) -> Page:
    """Everything the page shows of the numbers; single patients and images only where the record says they may be."""
    books = open_books(results)
    texts, networks, written = (open_books(results, apart=each) for each in (PRETEST, ENCODING, REPORTS))
    if shown := shown_findings([*books, *texts]):
        kept = {*shown, MACRO}
        books, texts = ([without_hidden(book, shown) for book in several] for several in (books, texts))
        curves = [row for row in curves if (row["finding"] or MACRO) in kept]
    found, lines, level = subjects(books), open_lines(curves), level_of(record)
    from_notes, encoded = pretest(texts, lines, level), encoding(networks, level)
    told = reports(written, curves, words, record, level)
    may_show, because = record.get("may_show") is True, str(record.get("shown_because") or "")
    several = len(found) > 1
    several_datasets = len({subject.book.dataset for subject in found}) > 1
    chapters, compared = list[Chapter](), list[Section]()
    for at, subject in enumerate(found):
        view = View(subject, lines, level, f"m{at}", tuple(found), points, gallery, may_show, because,
                    correction_of(record), sources_of(record))  # fmt: skip
        first = opening(view)
        made, seen = (
            [section for build in several_audits if (section := build(view))]
            for several_audits in (_PREDICTIONS, _REPRESENTATIONS)
        )
        if pair := compare(view):
            where = f" on {subject.book.dataset}" if several_datasets else ""
            compared.append(replace(pair, title=pair.title + where, short=pair.short + where))
        name = subject.name(several_datasets)
        if several:
            first, made = replace(first, title=name, short=name), [*made, *seen]
        else:
            made = [first, *made, *encoded, *seen, *compared, *told, *from_notes]
        chapters.append(Chapter(view.ident, name, size_of(subject), first, made))
    across = datasets(found)
    shared = [*compared, *([across] if across else [])] if several else []
    shared += [*encoded, *told, *from_notes] if len(found) != 1 else []
    return Page(books, found, chapters, shared, texts, networks, written)


def pictures(sections: Sequence[Section]) -> Iterator[tuple[str, Figure | Multiples]]:
    """The figures that are also written to files, by file name, in the order of the page."""
    for section in sections:
        for block in _nested_blocks(section.blocks):
            if isinstance(block, (Figure, Multiples)) and block.file:
                yield block.file, block


def _nested_blocks(blocks: Sequence[Block]) -> Iterator[Block]:
    for block in blocks:
        yield block
        if isinstance(block, Fold):
            yield from _nested_blocks(block.blocks)


# RESULT rows -> a short piece of HTML for a notebook: headline, waterfall, short table. No script, no style sheet.

_CELL = "padding:3px 9px;text-align:right;border-top:1px solid #8884;white-space:nowrap"
_MODELS = 4  # shown; the page has all


def summary_html(results: Rows, record: Mapping[str, Any]) -> str:
    """What `cxrhf.audit(...)` shows of itself in a notebook."""
    books = open_books(results)
    shown = shown_findings(books)
    found = subjects([without_hidden(book, shown) for book in books])
    if not found:
        return _pretest_summary(results, level_of(record)) or _of_reports(results, record) or "<p>No results.</p>"
    datasets = len({subject.book.dataset for subject in found}) > 1
    names = [subject.name(datasets) if len(found) > 1 else "" for subject in found]
    how = level_of(record), correction_of(record), sources_of(record)
    parts = [_subject_summary(subject, *how, name) for subject, name in zip(found[:_MODELS], names, strict=False)]
    if len(found) > _MODELS:
        parts.append(Markup("<p>{} more models are in .html() and .save(folder).</p>").format(len(found) - _MODELS))
    return str(Markup('<div style="max-width:980px">{}</div>').format(Markup("").join(parts)))


def _pretest_summary(results: Rows, level: str) -> str:
    """The same of context models, where there is nothing else."""
    parts: list[Markup] = []
    for section in pretest(open_books(results, apart=PRETEST), {}, level):
        parts += [Markup("<p>{}</p>").format(words) for words in section.lead]
        table = next((block for block in section.blocks if isinstance(block, Table)), None)
        if table is not None:
            rows = [*table.rows, *([table.mean] if table.mean else [])]
            parts.append(_table([column.title for column in table.columns], rows))
    return str(Markup('<div style="max-width:980px">{}</div>').format(Markup("").join(parts))) if parts else ""


def _of_reports(results: Rows, record: Mapping[str, Any]) -> str:
    """The same of generated reports: what is said of them, and the table of strategies."""
    parts: list[Markup] = []
    for section in reports(open_books(results, apart=REPORTS), (), (), record, level_of(record)):
        parts += [Markup("<p>{}</p>").format(words) for words in section.lead]
        for grid in (block for block in section.blocks if isinstance(block, Grid)):
            rows = [row for _, group in grid.groups for row in group]
            parts.append(_table([column.title for column in grid.columns], rows))
    return str(Markup('<div style="max-width:980px">{}</div>').format(Markup("").join(parts))) if parts else ""


def _subject_summary(subject: Subject, level: str, correction: str, sources: tuple[str, ...], name: str) -> Markup:
    view = View(subject, {}, level, "s", correction=correction, sources=sources)
    section = opening(view)
    parts = [Markup('<p style="font-weight:600;margin:14px 0 2px">{}</p>').format(name)] if name else []
    parts += [Markup("<p>{}</p>").format(words) for words in section.lead]
    figure = next((block for block in section.blocks if isinstance(block, Figure)), None)
    if figure is not None and view.book.findings:
        picture = sheet("AUROC", [Group("", figure.panels, figure.legend)])
        data = base64.b64encode(picture.encode()).decode()
        about = "; ".join(_finding_text(finding, view) for finding in view.book.findings)
        parts.append(
            Markup('<img style="max-width:100%;background:#fff" alt="{}" src="data:image/svg+xml;base64,{}">').format(
                about, data
            )
        )
    table = controlled_table(view)
    table = table if table.rows else short_table(view)
    rows = [*table.rows, *([table.mean] if table.mean else [])]
    if rows:
        parts.append(_table([column.title for column in table.columns], rows))
    return Markup("").join(parts)


def _finding_text(finding: str, view: View) -> str:
    return f"{finding_name(finding)}: AUROC {view.book.overall(finding).with_interval()}"


def _table(titles: Sequence[str], rows: Sequence[Sequence[Entry]]) -> Markup:
    top = _CELL.replace("nowrap", "normal")
    head = Markup("").join(Markup('<th style="{}">{}</th>').format(top, title) for title in titles)
    body = []
    for row in rows:
        cells = [Markup('<th style="{};text-align:left">{}</th>').format(_CELL, row[0].text)]
        for entry in row[1:]:
            below = f"<br><small>{escape(entry.below)}</small>" if entry.below else ""
            tail = f"<br><small>{escape(entry.tail)}</small>" if entry.tail else ""
            cells.append(Markup('<td style="{}">{}{}{}</td>').format(_CELL, entry.text, Markup(below), Markup(tail)))
        body.append(Markup("<tr>{}</tr>").format(Markup("").join(cells)))
    style = "border-collapse:collapse;font-size:90%;font-variant-numeric:tabular-nums"
    return Markup(
        '<div style="overflow-x:auto"><table style="{}"><thead><tr>{}</tr></thead><tbody>{}</tbody></table></div>'
    ).format(style, head, Markup("").join(body))
