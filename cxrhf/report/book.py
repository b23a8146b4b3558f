"""RESULT rows -> a book to look numbers up in, one per dataset and model, and numbers as people write them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from cxrhf.report.figures import Mark, known, number

MACRO = "macro"


class Cell(NamedTuple):
    """One reported number; NaN and "" where a row has nothing."""

    value: float = math.nan
    low: float = math.nan
    high: float = math.nan
    p_value: float = math.nan
    n: int = 0
    n_pos: int = 0
    n_patients: int = 0
    method: str = ""
    note: str = ""

    @property
    def mark(self) -> Mark:
        """As the pictures take it."""
        return Mark(self.value, self.low, self.high)

    @property
    def span(self) -> str:
        """`0.840 to 0.876`, or nothing."""
        return f"{number(self.low)} to {number(self.high)}" if known(self.low, self.high) else ""

    def with_interval(self, level: str = "") -> str:
        """`0.858 (95% CI 0.840 to 0.876)`; the level is said where it is given."""
        return f"{number(self.value)} ({level}{self.span})" if self.span else number(self.value)


@dataclass(frozen=True, slots=True)
class Book:
    """All whole-sample numbers of one model on one dataset."""

    dataset: str
    model: str
    findings: list[str] = field(default_factory=list)
    cells: dict[tuple[str, str, str, str], Cell] = field(default_factory=dict)

    def get(self, audit: str, finding: str, metric: str, versus: str = "") -> Cell:
        """A number, or an empty cell."""
        return self.cells.get((audit, finding, metric, versus), Cell())

    def has(self, audit: str) -> bool:
        """Whether an audit left any rows."""
        return any(key[0] == audit for key in self.cells)


def _number(value: Any) -> float:
    return math.nan if value is None else float(value)


def open_books(rows: Sequence[Mapping[str, Any]]) -> list[Book]:
    """One book per dataset and model, in the order of the rows; findings in theirs."""
    books: dict[tuple[str, str], Book] = {}
    for row in rows:
        if row["slice"] != "all":
            continue
        key = (row["dataset"] or "", row["model"] or "")
        book = books.setdefault(key, Book(*key))
        finding = row["finding"] or MACRO
        if finding != MACRO and finding not in book.findings:
            book.findings.append(finding)
        book.cells[row["audit"], finding, row["metric"], row["versus"] or ""] = Cell(
            value=_number(row["value"]),
            low=_number(row["ci_low"]),
            high=_number(row["ci_high"]),
            p_value=_number(row["p_value"]),
            n=int(row["n"] or 0),
            n_pos=int(row["n_pos"] or 0),
            n_patients=int(row["n_patients"] or 0),
            method=row["method"] or "",
            note=row["note"] or "",
        )
    return list(books.values())
