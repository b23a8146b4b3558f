"""RESULT rows of the audit "decoding" -> strategies compared on the same images, a table a model."""

from __future__ import annotations

from collections.abc import Sequence

from cxrhf.report.blocks import CHANCE, Block, Column, Entry, Table, folded
from cxrhf.report.book import DECODING, MACRO, Book, Cell
from cxrhf.report.numbers import chance, known
from cxrhf.report.sections.reports_rows import GROUPS, metric_of
from cxrhf.report.sections.reports_shelf import Writer
from cxrhf.report.sections.reports_table import shown

_ORDER = [metric.name for _, metrics in GROUPS for metric in metrics]


def decoding(models: Sequence[Writer]) -> list[Block]:
    """That of the first model open, the others folded."""
    blocks = list[Block]()
    for model in models:
        table = _table(model, f": {model.model}" if len(models) > 1 else "")
        if table is not None:
            fold = folded(table) if blocks else None
            blocks.append(fold or table)
    return blocks


def baseline(models: Sequence[Writer]) -> str:
    """The strategy that the others are compared with, "" where none are."""
    return next((each[3] for model in models for each in model.differences()), "")


def _table(model: Writer, whose: str) -> Table | None:
    keys = model.differences()
    if not keys:
        return None
    keys.sort(key=lambda key: (key[1] != "all", _ORDER.index(key[0]) if key[0] in _ORDER else len(_ORDER)))
    against = baseline([model])
    books = [book for book in model.strategies if book.has(DECODING)]
    rows = []
    for metric, part, versus, _ in keys:
        found = metric_of(metric)
        cells = [_cell(book, metric, part, versus) for book in books]
        made = []
        for cell in cells:
            entry = shown(cell, found)
            if known(cell.value, cell.p_value):
                entry = entry._replace(tail=f"p\u00a0{chance(cell.p_value)}", strong=cell.p_value < CHANCE)
            made.append(entry)
        where = "all" if part == "all" else part.replace("=", " ")
        rows.append([Entry(found.title), Entry(where, words=True), *made])
    columns = [Column("Number"), Column("Of", "The whole sample, or words associated with this group", words=True)]
    columns += [Column(f"{book.strategy} minus {against}") for book in books]
    about = (
        "Each strategy minus the baseline strategy, on the same images and the same resamples of patients. WAE has no "
        "direction: a difference shows that displacement differs, not which strategy is better."
    )
    return Table(f"Strategies minus {against}{whose}", columns, rows, about=about, by_finding=False)


def _cell(book: Book, metric: str, part: str, versus: str) -> Cell:
    return book.get(DECODING, MACRO, metric, versus, part)
