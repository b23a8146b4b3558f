"""What every section is made from: a subject's numbers and curves, and how they are to be named."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cxrhf.report.book import Book, Cell, Lines, Subject, line_of, spellings
from cxrhf.report.figures.ink import Line
from cxrhf.report.sections.provenance import mapping

ASKED = " asked"
Rows = Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class View:
    """One subject, as a section sees it. `ident` starts every id of its part of the page."""

    subject: Subject
    lines: Lines
    level: str  # of the intervals, "95%"
    ident: str
    others: tuple[Subject, ...] = ()  # all subjects of the page
    points: Rows = ()  # POINT rows of the page
    gallery: Rows = ()  # GALLERY rows of the page
    may_show: bool = False  # single patients and their images
    because: str = ""  # why they may, or may not, as the record says it
    correction: str = "bonferroni"  # of p values, as `--correction` names it
    sources: tuple[str, ...] = ()  # of a pre-test probability that was fitted, as people name them

    @property
    def first(self) -> bool:
        """Whether it is the first of the page; of the others the longest tables are in results.parquet alone."""
        return not self.others or self.others[0] is self.subject

    @property
    def book(self) -> Book:
        """The numbers shown in detail."""
        return self.subject.book

    @property
    def corrected(self) -> str:
        """How far p values are corrected, in words that end a sentence."""
        return corrected(self.correction)

    def line(self, finding: str, kind: str, slice: str = "all") -> Line | None:
        """A curve."""
        return line_of(self.lines, self.book, finding, kind, slice)

    def own(self, rows: Rows) -> Rows:
        """Those of some rows that are of this model."""
        return [row for row in rows if row["model"] in spellings(self.book)]

    def get(self, audit: str, finding: str, metric: str, versus: str = "", slice: str = "all") -> Cell:
        """A number."""
        return self.book.get(audit, finding, metric, versus, slice)


def correction_of(record: Mapping[str, Any]) -> str:
    """The rule by which p values were corrected for their number, with ASKED where some were asked for beforehand."""
    config = mapping(record.get("config"))
    # Records without `primary` are of a time when what was asked for was corrected together with everything else.
    asked = "primary" in config and (config["primary"] or config.get("shortcuts"))
    return f"{config.get('correction') or 'bonferroni'}{ASKED if asked else ''}"


def sources_of(record: Mapping[str, Any]) -> tuple[str, ...]:
    """What the pre-test probability was fitted to; empty where a column gave it."""
    fitted = mapping(record.get("fitted"))
    if sources := mapping(fitted.get("pretest")).get("sources"):
        return tuple("earlier labels" if each == "prior_labels" else str(each) for each in sources)
    return ("prior notes",) if {"context", "notes"} & set(fitted) else ()


def corrected(rule: str, scope: bool = False) -> str:
    """`after correction`, or that there was none; `scope`: also for what."""
    name = rule.removesuffix(ASKED)
    if name == "none":
        return "without correction"
    within = " within its audit" if name in ("bh", "by") else " for all tests on this page"
    if name != rule:
        within = " within each family (primary, or exploratory)"
    return f"after correction{within if scope else ''}"


def bars(level: str) -> str:
    """The caption that every dot plot needs."""
    return (
        f"Bars are {level} intervals; an arrowhead marks one that continues beyond the axis. A missing mark means "
        "that the number is undefined, most often because one class is missing."
    )
