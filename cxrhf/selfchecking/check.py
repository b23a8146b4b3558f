"""What was planted and what an audit found of it -> one verdict, with the tolerance it rests on."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

# An estimate may lie so many standard errors off: an honest one does so once in some 16,000 times.
ERRORS = 4.0
# The same seed gives the same draws, but a new version of numpy may draw others: chance must not fail a good install.
CHANCE = 0.001
# A closed form that involves no chance.
EXACT = 1e-9
# How far the width of a bootstrapped interval may be from the one that theory gives.
WIDTH = 0.25


@dataclass(frozen=True, slots=True)
class Check:
    """One number or statement: what must come out, how far it may be off (None: not at all), what did come out."""

    name: str
    expected: float | str
    found: float | str
    ok: bool
    tolerance: float | None = None


def near(name: str, expected: float, found: float, error: float) -> Check:
    """A number that chance moves by `error`, its standard error."""
    return _within(name, expected, found, ERRORS * error)


def exact(name: str, expected: float, found: float) -> Check:
    """A number that has nothing of chance."""
    return _within(name, expected, found, EXACT * max(1.0, abs(expected)))


def learned(name: str, expected: float, found: float, error: float, lost: float) -> Check:
    """A number that a fitted model reaches: at most what is planted, less by what few patients may cost it."""
    tolerance = ERRORS * error
    ok = expected - lost - tolerance <= found <= expected + tolerance
    return Check(name, float(expected), float(found), bool(ok), float(tolerance + lost))


def _within(name: str, expected: float, found: float, tolerance: float) -> Check:
    """Plain numbers, not numpy's: they go into JSON. NaN is within nothing."""
    return Check(name, float(expected), float(found), bool(abs(found - expected) <= tolerance), float(tolerance))


def same(name: str, expected: str, found: str) -> Check:
    """Words that must be these."""
    return Check(name, expected, found, found == expected)


def wide(name: str, row: Mapping[str, Any], error: float) -> Check:
    """The width of a 95% interval beside that of the normal law."""
    expected = 2 * 1.959964 * error
    return _within(name, expected, row["ci_high"] - row["ci_low"], WIDTH * expected)


def seen(name: str, row: Mapping[str, Any]) -> Check:
    """A difference that is there: its corrected p value is small."""
    p_value = _p_value(row)
    return Check(name, f"p < {CHANCE:g}", f"p = {p_value:.2g}", p_value < CHANCE)


def unseen(name: str, row: Mapping[str, Any]) -> Check:
    """A difference that is not there: its corrected p value is what chance gives."""
    p_value = _p_value(row)
    return Check(name, f"p >= {CHANCE:g}", f"p = {p_value:.2g}", p_value >= CHANCE)


def _p_value(row: Mapping[str, Any]) -> float:
    return math.nan if row["p_value"] is None else float(row["p_value"])


class Rows:
    """RESULT rows by what they are of; `found(metric, slice=..., versus=...)` is the one row."""

    def __init__(self, rows: Sequence[Mapping[str, Any]]) -> None:
        self.rows = rows

    def __call__(self, metric: str, **where: Any) -> Mapping[str, Any]:
        wanted = {"slice": "all", "versus": None, **where, "metric": metric}
        found = [row for row in self.rows if all(row[name] == value for name, value in wanted.items())]
        if len(found) != 1:
            said = ", ".join(f"{name}={value}" for name, value in wanted.items())
            raise LookupError(f"{len(found)} rows of {said}")
        return found[0]

    def value(self, metric: str, **where: Any) -> float:
        """The number of the one row."""
        return float(self(metric, **where)["value"])

    def those(self, **where: Any) -> list[Mapping[str, Any]]:
        """All rows with these values."""
        return [row for row in self.rows if all(row[name] == value for name, value in where.items())]
