"""POINT rows and RESULT rows of the audit "features" -> maps of a network's vectors, and how far groups part in it."""

from __future__ import annotations

from typing import Any

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
from cxrhf.report.maps import LEAST, Places, places
from cxrhf.report.numbers import known, listed, number, percent
from cxrhf.report.sections.map_pictures import axes_of, map_title, still
from cxrhf.report.sections.subgroups import group
from cxrhf.report.sections.view import View

_MOST, _MOST_OTHERS = 5000, 1500  # patients on the map of the page's first model, of the others
_DRAWN = 400  # patients in one panel of the picture


def features(view: View) -> Section | None:
    """The section, or None without the audit and without places."""
    tests = _tests(view)
    most = _MOST if view.first else _MOST_OTHERS
    found = places(view.own(view.points), single=view.may_show, most=most)
    if not tests and found is None:
        return None
    blocks: list[Block] = []
    if found is not None:
        blocks += [_map(view, found), Fold("All maps, coloured by each attribute", _side_by_side(view, found))]
    table = _table(view, tests)
    blocks += [table] if table else []
    return Section(f"{view.ident}-features", "Maps of the embeddings", "Maps", _lead(view, tests), blocks)


Pair = tuple[str, str]
Tests = dict[str, dict[Pair, Cell]]  # `ks.pca_1` -> the two groups -> the statistic


def _tests(view: View) -> Tests:
    """Two-sample statistics by mode and pair of groups."""
    found: Tests = {}
    for key in view.book.keys("features"):
        if key[2].startswith("ks.") and key[4]:
            found.setdefault(key[2], {})[key[3], key[4]] = view.book.cells[key]
    return found


def _lead(view: View, tests: Tests) -> list[str]:
    """Where each pair of groups differs most."""
    said = []
    for pair in dict.fromkeys(pair for row in tests.values() for pair in row):
        cells = {name: row[pair] for name, row in tests.items() if pair in row and known(row[pair].value)}
        if not cells:
            continue
        clear = sum(cell.p_value < CHANCE for cell in cells.values())
        most = max(cells, key=lambda name: cells[name].value)
        where = f"KS {number(cells[most].value)} on {_mode(view, most, short=True)}"
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
    return f"{mode} ({percent(share)} of the variance)" if known(share) and not short else mode


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
        f"({listed(sizes)}): with thousands, an invisible difference is significant, so read the statistic."
    )
    about += f" {modes:.0f} modes explain 99% of the variance." if known(modes) else ""
    return Table("Separation of groups along each direction", columns, rows, about=about, by_finding=False)


def _map(view: View, found: Places) -> Map:
    ident = f"{view.ident}-map"
    return Map(
        ident, f"{_whom(view, found)} Margins: the distribution of each group, scaled to the "
        "same size.",
        [map_title(spread.name) for spread in found.spreads],
        [Legend(each.name, tuple(zip(each.kinds, each.values, strict=True))) for each in found.attributes],
        as_json(_data(view, found)), still(view, found, 0, 0, f"{ident}-still", _DRAWN), bool(found.grids), found.n,
    )  # fmt: skip


def _whom(view: View, found: Places) -> str:
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


def _data(view: View, found: Places) -> dict[str, Any]:
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


def _side_by_side(view: View, found: Places) -> list[Block]:
    """Small pictures, a row of maps for each attribute; also written to figures/."""
    out: list[Block] = []
    for k, attribute in enumerate(found.attributes):
        panels = [
            (map_title(spread.name), still(view, found, m, k, f"{view.ident}-cloud-{m}-{k}", _DRAWN))
            for m, spread in enumerate(found.spreads)
        ]
        legend = tuple(zip(attribute.kinds, attribute.values, strict=True))
        out.append(Figure(f"By {attribute.name}", panels, legend, file="features", size="small"))
    if view.may_show and found.n > _DRAWN:
        out.append(
            Text(
                f"Each figure shows at most {_DRAWN} patients, chosen at random; the distributions include all.",
                "muted",
            )
        )
    return out
