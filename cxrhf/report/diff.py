"""RESULT rows of two runs -> what changed: each number beside its counterpart, and whether that is more than noise.

A difference is the second run's number less the first's. Its interval is put together from the two runs' own (Zou and
Donner's square-and-add), which holds where the runs have different patients. Where they share patients it is too wide:
what is beyond noise then stands, but much that is within may be real, and only a paired comparison (`cxrhf audit A B
--only overview,compare`) can tell. Either way it is no test: nothing is corrected for the many rows that are looked at.

Models and datasets are matched by name; where one of either run is left over, these two are matched, which is said.
Gaps between groups are turned round where the other run has them the other way. Slices that a method numbers (`mixture:
positive:1`) are of each run alone and are not compared, nor are the seconds that something took.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from cxrhf.report.book import ALL, Cell
from cxrhf.report.numbers import known

Row = Mapping[str, Any]
Names = Mapping[str, str]
KEY = ("audit", "metric", "dataset", "model", "strategy", "finding", "slice", "versus")
SAME, WITHIN, BEYOND, PLAIN, UNDEFINED = "same", "within noise", "beyond noise", "no interval", "undefined in one"
_NUMBERED = re.compile(r"\w+:\w+:\d+")
_TIMES = ("seconds",)
_NONE: Names = {}
_SEED = re.compile(r" \(seed .*\)$", re.DOTALL)


class Change(NamedTuple):
    """A number in both runs. `model` and `dataset` are the first run's; `size` is the change over its noise."""

    audit: str
    metric: str
    dataset: str
    model: str
    strategy: str
    finding: str
    slice: str
    versus: str
    first: Cell
    second: Cell
    difference: Cell
    verdict: str
    size: float


@dataclass(frozen=True, slots=True)
class Diff:
    """All that two runs have in common and apart; changes are sorted, the largest beside their noise first."""

    changes: list[Change]
    only_first: list[Row]
    only_second: list[Row]
    models: dict[str, str]  # of the first run -> of the second, where they have other names
    datasets: dict[str, str]
    left_out: int  # rows of either run that cannot be compared


def diff_rows(first: Iterable[Row], second: Iterable[Row]) -> Diff:
    """Compare the RESULT rows of two runs."""
    one, two = list(first), list(second)
    left, right = ([row for row in rows if not _alone(row)] for rows in (one, two))
    models, datasets = _pairs(_models(left), _models(right)), _pairs(_datasets(left), _datasets(right))
    waiting = {_key(row): row for row in right}
    changes, only_first = [], []
    for row in left:
        key = _key(row, models, datasets)
        match = waiting.pop(key, None)
        if match is None and (turned := waiting.pop(_turned_key(key), None)) is not None:
            match = _turned(turned)
        if match is None:
            only_first.append(row)
        else:
            changes.append(_change(row, match))
    order = {kind: at for at, kind in enumerate((BEYOND, WITHIN, UNDEFINED, PLAIN, SAME))}
    # Rows that come to the same keep the order of the audits.
    changes.sort(key=lambda each: (order[each.verdict], -each.size))
    lost = len(one) + len(two) - len(left) - len(right)
    return Diff(changes, only_first, list(waiting.values()), models, datasets, lost)


def _alone(row: Row) -> bool:
    return row["metric"] in _TIMES or bool(_NUMBERED.match(row["slice"] or ""))


def _key(row: Row, models: Names = _NONE, datasets: Names = _NONE) -> tuple[str, ...]:
    """What a row is of, under the names of the second run."""
    audit, metric, dataset, model, strategy, finding, part, versus = (str(row.get(name) or "") for name in KEY)
    if versus.startswith("model="):
        versus = "model=" + _renamed(versus.removeprefix("model="), models)
    return audit, metric, datasets.get(dataset, dataset), _renamed(model, models), strategy, finding, part, versus


def _renamed(model: str, pairs: Names) -> str:
    base = _SEED.sub("", model)
    return pairs[base] + model[len(base) :] if base in pairs else model


def _turned_key(key: tuple[str, ...]) -> tuple[str, ...]:
    """The same gap, the other group first."""
    *rest, part, versus = key
    return (*rest, versus, part) if "=" in versus and "=" in part else key


def _turned(row: Row) -> Row:
    ends = {"ci_low": row["ci_high"], "ci_high": row["ci_low"]}
    low, high = (None if ends[name] is None else -ends[name] for name in ("ci_low", "ci_high"))
    value = None if row["value"] is None else -row["value"]
    return {**row, "value": value, "ci_low": low, "ci_high": high, "slice": row["versus"], "versus": row["slice"]}


def _models(rows: Sequence[Row]) -> list[str]:
    """Models without their training seeds."""
    return list(dict.fromkeys(_SEED.sub("", row["model"]) for row in rows if row["model"]))


def _datasets(rows: Sequence[Row]) -> list[str]:
    return list(dict.fromkeys(row["dataset"] for row in rows if row["dataset"]))


def _pairs(first: Sequence[str], second: Sequence[str]) -> dict[str, str]:
    """The two that are left when names that are in both are taken away."""
    left = [each for each in first if each not in second]
    right = [each for each in second if each not in first]
    return {left[0]: right[0]} if len(left) == len(right) == 1 else {}


def _change(first: Row, second: Row) -> Change:
    one, two = _cell(first), _cell(second)
    verdict, difference, size = _compared(one, two)
    audit, metric, dataset, model, strategy, finding, part, versus = _key(first)
    return Change(audit, metric, dataset, model, strategy, finding, part, versus, one, two, difference, verdict, size)


def _cell(row: Row) -> Cell:
    value, low, high = (math.nan if row[name] is None else float(row[name]) for name in ("value", "ci_low", "ci_high"))
    n, n_pos, n_patients = (int(row.get(name) or 0) for name in ("n", "n_pos", "n_patients"))
    return Cell(value, low, high, n=n, n_pos=n_pos, n_patients=n_patients, note=str(row.get("note") or ""))


def _compared(one: Cell, two: Cell) -> tuple[str, Cell, float]:
    """Verdict, difference with its interval, and its size: 1 where the interval just reaches 0."""
    if not known(one.value) and not known(two.value):
        return SAME, Cell(), 0.0
    if not known(one.value, two.value):
        return UNDEFINED, Cell(), 0.0
    change = two.value - one.value
    spans = known(one.low, one.high, two.low, two.high)
    low = change - math.hypot(two.value - two.low, one.high - one.value) if spans else math.nan
    high = change + math.hypot(two.high - two.value, one.value - one.low) if spans else math.nan
    difference = Cell(change, low, high)
    if change == 0 and (one.low, one.high) == (two.low, two.high):
        return SAME, difference, 0.0
    if not spans:
        if change == 0:
            return SAME, difference, 0.0
        return PLAIN, difference, abs(change) / max(abs(one.value), abs(two.value))
    noise = change - low if change > 0 else high - change
    size = abs(change) / noise if noise > 0 else math.inf if change else 0.0
    return BEYOND if size > 1 else WITHIN, difference, size


def same_counts(diff: Diff) -> bool | None:
    """Whether all numbers of the whole sample rest on as many images, positives and patients; None if there is none."""
    whole = [each for each in diff.changes if each.slice == ALL and each.first.n and each.second.n]
    counts = [tuple((cell.n, cell.n_pos, cell.n_patients) for cell in (each.first, each.second)) for each in whole]
    return all(one == two for one, two in counts) if counts else None
