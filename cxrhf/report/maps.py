"""POINT rows of one model -> what its maps show: single patients, or cells of a grid with how many lie in them.

Single patients go into a page only where the data may be shown. Otherwise a map is a grid: cells with fewer than LEAST
patients are left out, and a cell holds counts by the values of one attribute at a time, never of two together.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from cxrhf.report.figures.ink import CONTEXT, FIFTH, FOURTH, OVERALL, REMAINS, SIXTH

LEAST = 5  # patients in a cell
FINEST, COARSE = 32, 12  # cells a side at most: of a map to move about in, of a picture
STEPS = 1000  # places are integers from 0 to this
_BINS = 24  # of a distribution
_COLOURS = (OVERALL, REMAINS, FOURTH, FIFTH, SIXTH)
COLOURED = ("disease", "sex", "race", "age")


class Attribute(NamedTuple):
    """What colours a map: its values in the order of the legend, their marks, and the value of each patient."""

    name: str
    values: tuple[str, ...]
    kinds: tuple[str, ...]
    codes: Sequence[int]


class Spread(NamedTuple):
    """One map: the place of each patient, 0..STEPS both ways; -1 where it has none."""

    name: str
    x: Sequence[int]
    y: Sequence[int]


class Grid(NamedTuple):
    """One map as cells: their places (row by row from the lower left) and, by attribute, counts by value."""

    name: str
    side: int
    cells: Sequence[int]
    counts: Sequence[Sequence[Sequence[int]]]  # attribute, cell, value

    @property
    def totals(self) -> list[int]:
        """Patients of each cell."""
        return [sum(row) for row in self.counts[0]]


class Places(NamedTuple):
    """The patients of one model's maps, in an order that says nothing.

    Where only cells may be shown: `grids` for the map to move about in, `coarse` for pictures.
    """

    n: int
    attributes: list[Attribute]
    spreads: list[Spread]
    grids: list[Grid]
    coarse: list[Grid]


def places(rows: Iterable[Mapping[str, Any]], *, single: bool, most: int = 5000) -> Places | None:
    """The maps of one model from its POINT rows; `single`: patients may be shown one by one, at most so many."""
    known: dict[str, Mapping[str, Any]] = {}
    found: dict[str, dict[str, tuple[float, float]]] = {}
    for row in rows:
        if math.isfinite(row["x"]) and math.isfinite(row["y"]):
            known.setdefault(row["image_id"], row)
            found.setdefault(row["map"], {})[row["image_id"]] = (row["x"], row["y"])
    if not known:
        return None
    # By place and then shuffled: an order made from ids could be undone by whoever has the list of them.
    ids = sorted(known, key=lambda each: (known[each]["x"], known[each]["y"]))
    random.Random(0).shuffle(ids)
    ids = ids[:most] if single else ids
    made = (_attribute(name, [known[each][name] for each in ids], 1 if single else LEAST) for name in COLOURED)
    attributes = [each for each in made if each is not None]
    alone = Attribute("patients", ("all",), (OVERALL,), [0] * len(ids))
    spreads = [_spread(name, [where.get(each) for each in ids], single) for name, where in found.items()]
    used = attributes or [alone]
    grids = [[] if single else [_grid(used, spread, side) for spread in spreads] for side in (FINEST, COARSE)]
    return Places(len(ids), used, spreads, *grids)


def _attribute(name: str, given: Sequence[str | None], least: int) -> Attribute | None:
    """Values from the most frequent on (ages in their order); rare ones and those beyond the colours stand together."""
    counts = Counter(value for value in given if value is not None)
    frequent = sorted((-count, value) for value, count in counts.items() if count >= least)
    kept = [value for _, value in frequent[: len(_COLOURS)]]
    if not kept:
        return None
    if name in ("age", "sex"):
        kept.sort()
    place = {value: at for at, value in enumerate(kept)}
    rest = ["other"] if len(counts) > len(kept) else []
    rest += ["not known"] if None in given else []
    values = (*kept, *([" or ".join(rest)] if rest else []))
    kinds = (*_COLOURS[: len(kept)], *([CONTEXT] if rest else []))
    return Attribute(name, values, kinds, [len(kept) if each is None else place.get(each, len(kept)) for each in given])


def _spread(name: str, where: Sequence[tuple[float, float] | None], single: bool) -> Spread:
    columns = []
    for axis in (0, 1):
        values = [each[axis] for each in where if each is not None]
        low, high = _ends(sorted(values), single)
        span = high - low or 1.0
        columns.append(
            [-1 if each is None else round(min(max((each[axis] - low) / span, 0), 1) * STEPS) for each in where]
        )
    return Spread(name, *columns)


def _ends(values: Sequence[float], single: bool) -> tuple[float, float]:
    """The range shown. A grid is not stretched for one patient far away: half a percent a side stands at the edge."""
    if not values:
        return 0.0, 1.0
    cut = 0 if single else int(0.005 * len(values))
    return values[cut], values[len(values) - 1 - cut]


def _grid(attributes: Sequence[Attribute], spread: Spread, finest: int) -> Grid:
    """Cells about as fine as the number of patients allows."""
    there = [k for k, place in enumerate(spread.x) if place >= 0]
    side = max(4, min(finest, math.isqrt(len(there) // 8)))
    members: dict[int, list[int]] = {}
    for k in there:
        column, row = (min(side - 1, at * side // (STEPS + 1)) for at in (spread.x[k], spread.y[k]))
        members.setdefault(row * side + column, []).append(k)
    cells = sorted(cell for cell, inside in members.items() if len(inside) >= LEAST)
    counts = []
    for attribute in attributes:
        table = []
        for cell in cells:
            counted = Counter(attribute.codes[k] for k in members[cell])
            table.append([counted[value] for value in range(len(attribute.values))])
        counts.append(table)
    return Grid(spread.name, side, cells, counts)


def distribution(where: Iterable[tuple[float, float]], bins: int = _BINS) -> list[float]:
    """Places (0..1) with weights -> a smoothed share of each bin; of a group, so that groups of any size compare."""
    counts = [0.0] * bins
    for value, weight in where:
        counts[min(int(value * bins), bins - 1)] += weight
    total = sum(counts)
    if not total:
        return counts
    for _ in range(2):
        padded = [counts[0], *counts, counts[-1]]
        counts = [(padded[k] + 2 * padded[k + 1] + padded[k + 2]) / 4 for k in range(bins)]
    return [bins * value / sum(counts) for value in counts]
