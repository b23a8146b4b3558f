"""RESULT, CURVE, POINT, GALLERY and WORD rows with run.json -> the parts of a page, before any markup is written."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from cxrhf.report.blocks import Block, Figure, Fold, Multiples, Section
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
from cxrhf.report.sections.compare import compare
from cxrhf.report.sections.context import context
from cxrhf.report.sections.controlled import controlled
from cxrhf.report.sections.datasets import datasets
from cxrhf.report.sections.encoding import encoding
from cxrhf.report.sections.features import features
from cxrhf.report.sections.imbalance import imbalance
from cxrhf.report.sections.opening import opening
from cxrhf.report.sections.overview import overview
from cxrhf.report.sections.pretest import pretest
from cxrhf.report.sections.provenance import Facts, mapping, size_of
from cxrhf.report.sections.reports import reports
from cxrhf.report.sections.runs import runs
from cxrhf.report.sections.shortcut import shortcut
from cxrhf.report.sections.slices import slices
from cxrhf.report.sections.subgroups import subgroups
from cxrhf.report.sections.view import Rows, View, correction_of, sources_of

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
            yield from _inside(section.blocks)
        for chapter in self.chapters:
            for section in [chapter.opening, *chapter.sections]:
                yield from _inside(section.blocks)


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
        for block in _inside(section.blocks):
            if isinstance(block, (Figure, Multiples)) and block.file:
                yield block.file, block


def _inside(blocks: Sequence[Block]) -> Iterator[Block]:
    for block in blocks:
        yield block
        if isinstance(block, Fold):
            yield from _inside(block.blocks)
