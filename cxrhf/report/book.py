"""RESULT rows -> books to look numbers up in, one per dataset and model; runs of one model stand together.

Of generated reports one per dataset, model and decoding strategy.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from cxrhf.report.figures.ink import Line, Mark
from cxrhf.report.numbers import format_number, is_finite

MACRO = "macro"
ALL = "all"
# Findings that a page shows one by one: PadChest's 174 labels fit, and a page of thousands opens in no browser.
MOST = 200
# Audits whose books stand apart: context models are no image models; networks whose vectors are looked at need no
# predictions, and their findings are characteristics (`sex=F`). `split` is what `cxrhf probe` writes. Generated reports
# have no findings but strategies; `decoding` is the same strategies against each other.
PRETEST, ENCODING, SPLIT, REPORTS, DECODING = "pretest", "encoding", "split", "reports", "decoding"
_APART = (PRETEST, ENCODING, SPLIT, REPORTS, DECODING)
_RUN = re.compile(r"^(?P<model>.*) \(seed (?P<seed>.*)\)$", re.DOTALL)


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
        return f"{format_number(self.low)} to {format_number(self.high)}" if is_finite(self.low, self.high) else ""

    def with_interval(self, level: str = "") -> str:
        """`0.858 (95% CI 0.840 to 0.876)`; the level is said where it is given."""
        return f"{format_number(self.value)} ({level}{self.span})" if self.span else format_number(self.value)


EMPTY = Cell()
Key = tuple[str, str, str, str, str]


@dataclass(frozen=True, slots=True)
class Book:
    """All numbers of one model on one dataset, by audit, finding, metric, slice and versus."""

    dataset: str
    model: str
    findings: list[str] = field(default_factory=list)
    cells: dict[Key, Cell] = field(default_factory=dict)
    strategy: str = ""  # of generated reports: how they were decoded; "reference" = the references themselves
    # How context is held equal in the headline: by weights (ATT), else by pairs, else "" (not at all).
    way: str = ""
    hidden: Sequence[str] = ()  # findings that the page leaves to results.parquet

    def get(self, audit: str, finding: str, metric: str, versus: str = "", slice: str = ALL) -> Cell:
        """A number, or an empty cell."""
        return self.cells.get((audit, finding, metric, slice, versus), EMPTY)

    def held(self, finding: str, metric: str, versus: str = "") -> Cell:
        """A number with context controlled: of the audit `reweighted`, else of `matched`, which may be there alone."""
        found = self.get("reweighted", finding, metric, versus)
        return found if found is not EMPTY else self.get("matched", finding, metric, versus)

    def remains(self, finding: str) -> Cell:
        """The AUROC with context held equal."""
        return self.held(finding, self.way) if self.way else EMPTY

    def drop(self, finding: str) -> Cell:
        """Overall less that."""
        return self.held(finding, "auroc_drop", self.way) if self.way else EMPTY

    def overall(self, finding: str) -> Cell:
        """The AUROC of every image: of those with a context where there is one, so that drops add up."""
        found = self.held(finding, "auroc")
        return found if is_finite(found.value) else self.get("overview", finding, "auroc")

    def has(self, *audits: str) -> bool:
        """Whether any of these audits left rows."""
        return any(key[0] in audits for key in self.cells)

    def keys(self, audit: str) -> list[Key]:
        """All keys of an audit, in the order of the rows."""
        return [key for key in self.cells if key[0] == audit]

    def slices(self, audit: str) -> list[str]:
        """The parts of the sample that an audit has numbers of, in the order of the rows."""
        return list(dict.fromkeys(key[3] for key in self.keys(audit) if key[3] != ALL and not key[4]))

    def everyone(self) -> list[str]:
        """Findings, and their mean where there are several."""
        return [*self.findings, *([MACRO] if len(self.findings) > 1 else [])]


@dataclass(frozen=True, slots=True)
class Subject:
    """What the page speaks of: a model on a dataset. Of several runs, the first in detail and the mean of all."""

    book: Book
    mean: Book | None = None
    runs: tuple[Book, ...] = ()

    @property
    def model(self) -> str:
        """Its name, without a seed."""
        return self.mean.model if self.mean else self.book.model

    def name(self, several_datasets: bool) -> str:
        """Its name, with the dataset where there are several."""
        name = self.model or "Model"
        return f"{name} on {self.book.dataset}" if several_datasets and self.book.dataset else name


def _number(value: Any) -> float:
    return math.nan if value is None else float(value)


def open_books(rows: Sequence[Mapping[str, Any]], *, apart: str = "") -> list[Book]:
    """One book per dataset and model, in the order of the rows; `apart`: of PRETEST, ENCODING or REPORTS.

    Without the audit encoding, which takes them over, rows of `cxrhf probe` are read as its own. Books of REPORTS, one
    for each strategy too, hold the rows of DECODING with them.
    """
    books: dict[tuple[str, str, str], Book] = {}
    findings: dict[tuple[str, str, str], dict[str, None]] = {}
    own = (REPORTS, DECODING) if apart == REPORTS else (apart,)
    wanted = [row for row in rows if (row["audit"] in own if apart else row["audit"] not in _APART)]
    if apart == ENCODING and not wanted:
        wanted = [row for row in rows if row["audit"] == SPLIT]
    for row in wanted:
        name = (row["dataset"] or "", row["model"] or "", row.get("strategy") or "")
        book = books.setdefault(name, Book(*name[:2], strategy=name[2]))
        finding = row["finding"] or MACRO
        if finding != MACRO:
            findings.setdefault(name, {})[finding] = None
        probed = row["audit"] == SPLIT
        metric = f"split_{row['metric']}" if probed else row["metric"]
        book.cells[ENCODING if probed else row["audit"], finding, metric, row["slice"], row["versus"] or ""] = Cell(
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
    return [
        replace(book, findings=list(findings.get(name, ())), way=_way(book, findings.get(name, ())))
        for name, book in books.items()
    ]


def _way(book: Book, findings: Iterable[str]) -> str:
    ways = ("auroc_att", "matched_auroc")
    return next((way for way in ways if any(is_finite(book.held(finding, way).value) for finding in findings)), "")


def shown_findings(books: Sequence[Book], most: int = MOST) -> set[str] | None:
    """The findings a page shows: those with most images of their scarcer class. None = all of them."""
    supply: dict[str, int] = {finding: 0 for book in books for finding in book.findings}
    if len(supply) <= most:
        return None
    for book in books:
        for (_, finding, _, part, _), cell in book.cells.items():
            if part == ALL and finding in supply:
                supply[finding] = max(supply[finding], min(cell.n_pos, cell.n - cell.n_pos))
    return set(sorted(supply, key=lambda finding: -supply[finding])[:most])


def without_hidden(book: Book, shown: set[str] | None) -> Book:
    """The book with the numbers of the shown findings and of means alone."""
    if shown is None:
        return book
    kept, hidden = ([each for each in book.findings if (each in shown) is inside] for inside in (True, False))
    cells = {key: cell for key, cell in book.cells.items() if key[1] in shown or key[1] == MACRO}
    return replace(book, findings=kept, cells=cells, hidden=hidden)


def subjects(books: Sequence[Book]) -> list[Subject]:
    """Runs of one model (`net (seed 3)`) stand under the mean of all (`net`); every other book stands alone."""
    by_name = {(book.dataset, book.model): book for book in books}
    runs: dict[tuple[str, str], list[Book]] = {}
    for book in books:
        found = _RUN.match(book.model)
        if found and (book.dataset, found["model"]) in by_name:
            runs.setdefault((book.dataset, found["model"]), []).append(book)
    inside = {(book.dataset, book.model) for several in runs.values() for book in several}
    out, done = list[Subject](), set[tuple[str, str]]()
    for book in books:
        name = (book.dataset, book.model)
        if name in inside:
            found = _RUN.match(book.model)
            assert found is not None
            name = (book.dataset, found["model"])
        if name in done:
            continue
        done.add(name)
        several = runs.get(name)
        out.append(Subject(several[0], by_name[name], tuple(several)) if several else Subject(book))
    return out


def seed_of(model: str) -> str:
    """`net (seed 3)` -> `seed 3`."""
    found = _RUN.match(model)
    return f"seed {found['seed']}" if found else model


_AUDITS = ("overview", "imbalance", "reweighted", "matched", "context", "subgroups")


def find(book: Book, finding: str, metric: str) -> Cell:
    """A number of the whole sample from whichever audit has it."""
    for audit in _AUDITS:
        cell = book.get(audit, finding, metric)
        if cell is not EMPTY:
            return cell
    return EMPTY


Lines = Mapping[tuple[str, str, str, str], Line]


def open_lines(curves: Iterable[Mapping[str, Any]]) -> Lines:
    """CURVE rows -> lines by model, finding, kind and slice; those of decoding strategies stand elsewhere."""
    points: dict[tuple[str, str, str, str], list[tuple[float, ...]]] = {}
    for row in curves:
        if row.get("strategy"):
            continue
        key = (row["model"] or "", row["finding"] or "", row["kind"], row["slice"])
        points.setdefault(key, []).append(tuple(_number(row[name]) for name in ("x", "y", "low", "high")))
    return {key: Line(*(list(column) for column in zip(*rows, strict=True))) for key, rows in points.items()}


def line_of(lines: Lines, book: Book, finding: str, kind: str, slice: str = ALL) -> Line | None:
    """A curve of a book; with several datasets CURVE names the model with its dataset."""
    keys = ((name, finding, kind, slice) for name in spellings(book))
    return next((lines[key] for key in keys if key in lines), None)


def spellings(book: Book) -> tuple[str, str]:
    """How tables without a column for the dataset may name a book's model."""
    return book.model, f"{book.model} on {book.dataset}"
