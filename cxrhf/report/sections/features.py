"""POINT rows and RESULT rows of the audit "features" -> maps of a network's vectors, and how far groups part in it."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from markupsafe import Markup

from cxrhf.report.blocks import (
    CHANCE,
    Block,
    Column,
    Entry,
    Figure,
    Fold,
    Legend,
    Map,
    Section,
    Table,
    Text,
    as_json,
    difference,
    finding_name,
)
from cxrhf.report.book import MACRO, Cell
from cxrhf.report.figures import Group, Square, cloud
from cxrhf.report.figures.ink import CONTEXT, FIFTH, FOURTH, OVERALL, REMAINS, SIXTH
from cxrhf.report.numbers import format_number, format_percent, is_finite, join_names, shorten
from cxrhf.report.sections.subgroups import group
from cxrhf.report.sections.view import View

_MOST, _MOST_OTHERS = 5000, 1500  # patients on the map of the page's first model, of the others
_MOST_DOTS = 400  # patients in one panel of the picture


def features(view: View) -> Section | None:
    """The section, or None without the audit and without places."""
    tests = _tests(view)
    most = _MOST if view.first else _MOST_OTHERS
    found = map_patients(view.own(view.points), single=view.may_show, most=most)
    if not tests and found is None:
        return None
    blocks: list[Block] = []
    if found is not None:
        blocks += [_map(view, found), Fold("All maps, coloured by each attribute", _side_by_side(view, found))]
    table = _table(view, tests)
    blocks += [table] if table else []
    return Section(f"{view.ident}-features", "Maps of the embeddings", "Maps", _summary(view, tests), blocks)


Pair = tuple[str, str]
Tests = dict[str, dict[Pair, Cell]]  # `ks.pca_1` -> the two groups -> the statistic


def _tests(view: View) -> Tests:
    """Two-sample statistics by mode and pair of groups."""
    found: Tests = {}
    for key in view.book.keys("features"):
        if key[2].startswith("ks.") and key[4]:
            found.setdefault(key[2], {})[key[3], key[4]] = view.book.cells[key]
    return found


def _summary(view: View, tests: Tests) -> list[str]:
    """Where each pair of groups differs most."""
    said = []
    for pair in dict.fromkeys(pair for row in tests.values() for pair in row):
        cells = {name: row[pair] for name, row in tests.items() if pair in row and is_finite(row[pair].value)}
        if not cells:
            continue
        clear = sum(cell.p_value < CHANCE for cell in cells.values())
        most = max(cells, key=lambda name: cells[name].value)
        where = f"KS {format_number(cells[most].value)} on {_mode(view, most, short=True)}"
        said.append(f"{_pair(pair)} ({where}; {clear} of {len(cells)} significant)")
    if not said:
        return []
    return [
        f"Largest separation along one direction of the embeddings or one output: {', '.join(said)}.",
        "Check any direction that separates both the disease and a group: along it, a shift towards the group is a "
        "shift towards the disease. Groups that separate only along other directions differ in the embeddings, but "
        "not along the disease.",
    ]


def _pair(pair: Pair) -> str:
    return f"{group(pair[0])} and {group(pair[1])}"


def _mode(view: View, metric: str, short: bool = False) -> str:
    """`ks.pca_1` -> `PCA mode 1 (31.0% of the variance)`."""
    name = metric.removeprefix("ks.")
    if name.startswith("logit_"):
        return f"the output for {finding_name(name[6:])}" if short else f"Output for {finding_name(name[6:])} (logit)"
    mode = f"PCA mode {name.removeprefix('pca_')}"
    share = view.get("features", MACRO, f"explained_variance.{name}").value
    return f"{mode} ({format_percent(share)} of the variance)" if is_finite(share) and not short else mode


def _table(view: View, tests: Tests) -> Table | None:
    pairs = list(dict.fromkeys(pair for row in tests.values() for pair in row))
    rows = []
    for name, row in tests.items():
        cells = [row.get(pair) for pair in pairs]
        rows.append([Entry(_mode(view, name)), *(difference(cell) if cell else Entry("–") for cell in cells)])
    if not rows:
        return None
    columns = [Column("Direction"), *(Column(_pair(pair)) for pair in pairs)]
    sizes = [f"{_pair(pair)} {max(row[pair].n for row in tests.values() if pair in row):,}" for pair in pairs]
    modes = view.get("features", MACRO, "n_components").value
    about = (
        "Kolmogorov-Smirnov statistic (0 = same distribution, 1 = fully separated) and its p value after "
        f"Benjamini-Yekutieli correction over this table; bold below 0.05. p depends on the number of images "
        f"({join_names(sizes)}): with thousands, an invisible difference is significant, so read the statistic."
    )
    about += f" {modes:.0f} modes explain 99% of the variance." if is_finite(modes) else ""
    return Table("Separation of groups along each direction", columns, rows, about=about, by_finding=False)


def _map(view: View, found: MapPatients) -> Map:
    ident = f"{view.ident}-map"
    return Map(
        ident,
        f"{_shown_patients_sentence(view, found)} Margins: the distribution of each group, scaled to the same size.",
        [map_title(spread.name) for spread in found.spreads],
        [Legend(each.name, tuple(zip(each.kinds, each.values, strict=True))) for each in found.attributes],
        as_json(_data(view, found)),
        static_map(view, found, 0, 0, f"{ident}-still", _MOST_DOTS),
        bool(found.grids),
        found.n,
    )


def _shown_patients_sentence(view: View, found: MapPatients) -> str:
    """Whom the map shows, and why so."""
    if not found.grids:
        total = len({row["image_id"] for row in view.own(view.points)})
        part = f"a random sample of {found.n:,} of {total:,} patients" if total > found.n else f"{found.n:,} patients"
        why = f"these data may be shown ({view.because})" if view.because else "these data may be shown"
        return f"Each mark is a patient ({part}, one image each), because {why}. The map has no ids."
    why = view.because or "--may-show was not passed"
    return (
        f"Each square is a cell of the map with at least {LEAST} patients; its size shows how many. Cells with fewer "
        f"are excluded, and outliers are counted at the edge. This page does not show single patients: {why}."
    )


def _data(view: View, found: MapPatients) -> dict[str, Any]:
    """Columns of numbers, for the page's script."""
    shared: dict[str, Any] = {"n": found.n, "least": LEAST, "grid": bool(found.grids)}
    attributes: list[dict[str, Any]] = [
        {"name": each.name, "values": each.values, "kinds": each.kinds} for each in found.attributes
    ]
    heads: list[dict[str, Any]] = [
        {"name": map_title(each.name), "axes": axes_of(view, each.name)} for each in found.spreads
    ]
    if not found.grids:
        attributes = [{**head, "of": each.codes} for head, each in zip(attributes, found.attributes, strict=True)]
        maps = [{**head, "x": each.x, "y": each.y} for head, each in zip(heads, found.spreads, strict=True)]
    else:
        maps = [
            {**head, "side": grid.side, "cells": grid.cells, "of": grid.counts}
            for head, grid in zip(heads, found.grids, strict=True)
        ]
    return {**shared, "attributes": attributes, "maps": maps}


def _side_by_side(view: View, found: MapPatients) -> list[Block]:
    """Small pictures, a row of maps for each attribute; also written to figures/."""
    out: list[Block] = []
    for k, attribute in enumerate(found.attributes):
        panels = [
            (map_title(spread.name), static_map(view, found, m, k, f"{view.ident}-cloud-{m}-{k}", _MOST_DOTS))
            for m, spread in enumerate(found.spreads)
        ]
        legend = tuple(zip(attribute.kinds, attribute.values, strict=True))
        out.append(Figure(f"By {attribute.name}", panels, legend, file="features", size="small"))
    if view.may_show and found.n > _MOST_DOTS:
        out.append(
            Text(
                f"Each figure shows at most {_MOST_DOTS} patients, chosen at random; the distributions include all.",
                "muted",
            )
        )
    return out


# Places of patients -> one map as a picture that stands still, and how its axes are named.

_TITLES = {"t-sne": "t-SNE", "logits": "Outputs (logits)"}


def map_title(name: str) -> str:
    """`pca 1-2` -> `PCA, modes 1 and 2`."""
    if name.startswith("pca "):
        return f"PCA, modes {name[4:].replace('-', ' and ')}"
    return _TITLES.get(name, name)


def axes_of(view: View, name: str) -> tuple[str, str]:
    """What runs across and up."""
    if name.startswith("pca "):
        modes = (*name[4:].split("-"), "", "")[:2]
        return _mode_title(view, modes[0]), _mode_title(view, modes[1])
    if name == "logits":
        keys = dict.fromkeys(key[2] for key in view.book.keys("features") if key[2].startswith("ks.logit_"))
        found = [f"output for {finding_name(key.removeprefix('ks.logit_'))}" for key in keys]
        if len(found) == 2:
            return found[0], found[1]
    title = map_title(name)
    return f"{title} 1", f"{title} 2"


def _mode_title(view: View, mode: str) -> str:
    share = view.get("features", MACRO, f"explained_variance.pca_{mode}").value
    return f"mode {mode} ({format_percent(share, 0)} of the variance)" if is_finite(share) else f"mode {mode}"


def static_map(view: View, found: MapPatients, which: int, colour: int, ident: str, most: int) -> Markup:
    """One map coloured by one attribute: dots of at most so many patients, or cells."""
    spread, attribute = found.spreads[which], found.attributes[colour]
    across, up = axes_of(view, spread.name)
    title = f"{map_title(spread.name)}, by {attribute.name}"
    grid = found.coarse[which] if found.coarse else None
    groups = _dot_groups(spread, attribute, most) if grid is None else _cell_groups(grid, attribute, colour)
    squares = () if grid is None else _squares(grid, colour)
    what = "Patients" if grid is None else "Numbers of patients in cells"
    about = f"{what} by {attribute.name} ({', '.join(attribute.values)}), and how each is distributed along both axes."
    cell, axes = 1 / grid.side if grid else 0.0, (shorten(across, 34), shorten(up, 34))
    return cloud(groups, squares, cell, axes=axes, ident=ident, title=title, about=about)


def _dot_groups(spread: Spread, attribute: Attribute, most: int) -> list[Group]:
    """Groups of single patients; distributions are of all, dots of the first so many."""
    out = []
    for code, (kind, name) in enumerate(zip(attribute.kinds, attribute.values, strict=True)):
        there = [k for k, own in enumerate(attribute.codes) if own == code and spread.x[k] >= 0]
        where = [(spread.x[k] / STEPS, spread.y[k] / STEPS) for k in there]
        shown = [place for k, place in zip(there, where, strict=True) if k < most]
        out.append(
            Group(kind, name, shown, distribution((x, 1) for x, _ in where), distribution((y, 1) for _, y in where))
        )
    return out


def _cell_groups(grid: Grid, attribute: Attribute, colour: int) -> list[Group]:
    """Groups as counts in cells: their distributions alone."""
    out = []
    for code, (kind, name) in enumerate(zip(attribute.kinds, attribute.values, strict=True)):
        counts = [row[code] for row in grid.counts[colour]]
        pairs = list(zip(grid.cells, counts, strict=True))
        across = distribution([(((cell % grid.side) + 0.5) / grid.side, count) for cell, count in pairs], grid.side)
        up = distribution([(((cell // grid.side) + 0.5) / grid.side, count) for cell, count in pairs], grid.side)
        out.append(Group(kind, name, (), across, up))
    return out


def _squares(grid: Grid, colour: int) -> list[Square]:
    most = max(grid.totals, default=1)
    out = []
    for cell, total, row in zip(grid.cells, grid.totals, grid.counts[colour], strict=True):
        x, y = ((cell % grid.side) + 0.5) / grid.side, ((cell // grid.side) + 0.5) / grid.side
        size = 0.25 + 0.7 * (total / most) ** 0.5
        out.append(Square(x, y, size, [count / total for count in row]))
    return out


# POINT rows of one model -> what its maps show: single patients, or cells of a grid with how many lie in them.
#
# Single patients go into a page only where the data may be shown. Otherwise a map is a grid: cells with fewer than
# LEAST patients are left out, and a cell holds counts by the values of one attribute at a time, never of two
# together.

LEAST = 5  # patients in a cell
FINEST, COARSE = 32, 12  # cells a side at most: of a map to move about in, of a picture
STEPS = 1000  # places are integers from 0 to this
_BINS = 24  # of a distribution
_COLOURS = (OVERALL, REMAINS, FOURTH, FIFTH, SIXTH)
MAP_ATTRIBUTES = ("disease", "sex", "race", "age")


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


class MapPatients(NamedTuple):
    """The patients of one model's maps, in an order that says nothing.

    Where only cells may be shown: `grids` for the map to move about in, `coarse` for pictures.
    """

    n: int
    attributes: list[Attribute]
    spreads: list[Spread]
    grids: list[Grid]
    coarse: list[Grid]


def map_patients(rows: Iterable[Mapping[str, Any]], *, single: bool, most: int = 5000) -> MapPatients | None:
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
    made = (_attribute(name, [known[each][name] for each in ids], 1 if single else LEAST) for name in MAP_ATTRIBUTES)
    attributes = [each for each in made if each is not None]
    alone = Attribute("patients", ("all",), (OVERALL,), [0] * len(ids))
    spreads = [_spread(name, [where.get(each) for each in ids], single) for name, where in found.items()]
    used = attributes or [alone]
    grids = [[] if single else [_grid(used, spread, side) for spread in spreads] for side in (FINEST, COARSE)]
    return MapPatients(len(ids), used, spreads, *grids)


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
        low, high = _shown_range(sorted(values), single)
        span = high - low or 1.0
        columns.append(
            [-1 if each is None else round(min(max((each[axis] - low) / span, 0), 1) * STEPS) for each in where]
        )
    return Spread(name, *columns)


def _shown_range(values: Sequence[float], single: bool) -> tuple[float, float]:
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
