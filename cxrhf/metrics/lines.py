"""Sorted rows and the counts of many replicates -> the calibration line of all of them, without a pass per step.

A Newton step needs sums over rows of smooth functions of the log odds x. Rows are therefore gathered in narrow cells
of x, and each cell's weight is moved onto a few Chebyshev points such that polynomials up to degree POINTS - 1 keep
their sums. That takes one pass over the rows of a label; every step after it looks at some hundred points instead of
all rows. Within a cell the log odds of the fit move by at most REACH, so what is lost is of the order 1e-10 of the
weight. A replicate whose slope is too steep for its cells, or whose steps do not settle, is fitted on its rows.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cxrhf.metrics.checks import Floats
from cxrhf.metrics.compiled import compiled
from cxrhf.metrics.reliability import line_from, log_odds

POINTS = 8
# How far the fitted log odds move across a cell: as planned from the whole sample, and at most.
PLANNED, REACH = 0.6, 1.0

# Chebyshev points on [-1, 1], and the matrix from sums of Chebyshev polynomials to weights of the points.
_ANGLE = np.pi * (np.arange(POINTS) + 0.5) / POINTS
_PLACE = np.cos(_ANGLE)
_SPREAD = np.cos(np.outer(_ANGLE, np.arange(POINTS))) * np.where(np.arange(POINTS) == 0, 1.0, 2.0) / POINTS


class LineCells(NamedTuple):
    """The cells of one label: cell c holds rows[c]:rows[c + 1] of its rows and points[c]:points[c + 1] of `at`.

    `odds` are the rows' log odds, `whole` the whole sample's intercept, slope and calibration in the large, where every
    replicate starts.
    """

    odds: Floats
    rows: NDArray[np.int64]
    points: NDArray[np.int64]
    at: Floats
    width: float
    whole: tuple[float, float, float]


def cut_cells(y: Floats, p: Floats, weight: Floats) -> LineCells:
    """Cells of the rows of one label, sorted by p."""
    odds = np.empty(len(p))
    log_odds(p, odds)
    intercept, slope = line_from(y, odds, weight, True, 0.0, 1.0)
    large = line_from(y, odds, weight, False, 0.0, 1.0)[0]
    if np.isnan(intercept):  # a start is still needed
        intercept, slope = 0.0, 1.0
    width = PLANNED / max(abs(slope), 1.0)  # in the large, the slope is 1
    rows, points = [0], [0]
    at = [np.zeros(0)]
    while rows[-1] < len(odds):
        begin = rows[-1]
        end = int(np.searchsorted(odds, odds[begin] + width, side="right"))
        low, high = odds[begin], odds[end - 1]
        # A cell with few rows needs no points but its rows.
        at.append(odds[begin:end] if end - begin <= POINTS else (low + high) / 2 + (high - low) / 2 * _PLACE)
        rows.append(end)
        points.append(points[-1] + len(at[-1]))
    whole = (float(intercept), float(slope), 0.0 if np.isnan(large) else float(large))
    return LineCells(odds, np.array(rows), np.array(points), np.concatenate(at), width, whole)


@compiled(fastmath={"contract"})
def _gather(weight: Any, odds: Any, unit: Any, counts: Any, rows: Any, points: Any, out: Any) -> None:
    """Weight of every point in every lane, out[lane, point], from the rows of its cell."""
    lanes = counts.shape[1]
    basis, times, sums = np.empty(POINTS), np.empty(lanes), np.empty((POINTS, lanes))
    for cell in range(rows.shape[0] - 1):
        a, b, first = rows[cell], rows[cell + 1], points[cell]
        if b - a <= POINTS:
            for i in range(a, b):
                row = counts[unit[i]]
                for lane in range(lanes):
                    out[lane, first + i - a] = weight[i] * row[lane]
            continue
        middle = 0.5 * (odds[a] + odds[b - 1])
        half = 0.5 * (odds[b - 1] - odds[a])
        sums[:] = 0.0
        for i in range(a, b):
            t = (odds[i] - middle) / half if half > 0 else 0.0
            basis[0] = 1.0
            basis[1] = t
            for k in range(2, POINTS):
                basis[k] = 2 * t * basis[k - 1] - basis[k - 2]
            w = weight[i]
            row = counts[unit[i]]
            for lane in range(lanes):
                times[lane] = w * row[lane]
            for k in range(POINTS):
                own = sums[k]
                value = basis[k]
                for lane in range(lanes):
                    own[lane] += value * times[lane]
        for j in range(POINTS):
            for lane in range(lanes):
                total = 0.0
                for k in range(POINTS):
                    total += _SPREAD[j, k] * sums[k, lane]
                out[lane, first + j] = total


@compiled
def _steps(at: Any, mass: Any, hits: float, moved: float, fit_slope: bool, a: float, b: float) -> Any:
    """(intercept, slope, settled) by Newton steps from (a, b); `hits`, `moved`: sums of w y and w y x."""
    for _ in range(12):
        ga, gb = hits, moved
        haa, hab, hbb = 0.0, 0.0, 0.0
        for j in range(at.shape[0]):
            x = at[j]
            m = 1 / (1 + np.exp(-(a + b * x)))
            wm = mass[j] * m
            v = wm * (1 - m)
            ga -= wm
            gb -= wm * x
            haa += v
            hab += v * x
            hbb += v * x * x
        if fit_slope:
            det = haa * hbb - hab * hab
            if not det > 1e-9 * haa * hbb:
                return (a, b, False)
            step_a, step_b = (hbb * ga - hab * gb) / det, (haa * gb - hab * ga) / det
        else:
            if not haa > 1e-300:
                return (a, b, False)
            step_a, step_b = ga / haa, 0.0
        a += step_a
        b += step_b
        if not (abs(step_a) < 10 and abs(step_b) < 10):  # too far for a step to mean something
            return (a, b, False)
        if abs(step_a) < 1e-6 * (1 + abs(a)) and abs(step_b) < 1e-6 * (1 + abs(b)):
            return (a, b, True)
    return (a, b, False)


@compiled
def _ends(positive: Any, weight: Any, odds: Any, unit: Any, counts: Any, out: Any) -> None:
    """Lowest and highest log odds of negatives, out[0] and out[1], of positives, out[2] and out[3], in each lane."""
    n, lanes = positive.shape[0], counts.shape[1]
    for side in range(2):
        for way in range(2):
            own = out[2 * side + way]
            for lane in range(lanes):
                own[lane] = np.nan
            left = lanes
            for k in range(n):
                i = k if way == 0 else n - 1 - k
                if left == 0:
                    break
                if positive[i] == (side == 1) and weight[i] > 0:
                    row = counts[unit[i]]
                    for lane in range(lanes):
                        if row[lane] > 0 and np.isnan(own[lane]):
                            own[lane] = odds[i]
                            left -= 1


@compiled
def _fit(
    positive: Any,
    weight: Any,
    unit: Any,
    counts: Any,
    odds: Any,
    at: Any,
    mass: Any,
    ends: Any,
    whole: Any,
    steepest: float,
    out: Any,
    rough: Any,
) -> None:
    """The line of every lane from its points; `rough` marks lanes that must be fitted on their rows instead."""
    lanes = counts.shape[1]
    hits, moved = np.zeros(lanes), np.zeros(lanes)
    for i in range(positive.shape[0]):
        if positive[i]:
            w, wx = weight[i], weight[i] * odds[i]
            row = counts[unit[i]]
            for lane in range(lanes):
                hits[lane] += w * row[lane]
                moved[lane] += wx * row[lane]
    for lane in range(lanes):
        rough[lane] = False
        a, b, large = np.nan, np.nan, np.nan
        if not (np.isnan(ends[0, lane]) or np.isnan(ends[2, lane])):
            large, _, settled = _steps(at, mass[lane], hits[lane], moved[lane], False, whole[2], 1.0)
            rough[lane] = not settled
            if ends[1, lane] > ends[2, lane] and ends[3, lane] > ends[0, lane]:  # x does not separate the classes
                a, b, settled = _steps(at, mass[lane], hits[lane], moved[lane], True, whole[0], whole[1])
                rough[lane] = rough[lane] or not settled or abs(b) > steepest
        out[0, lane], out[1, lane], out[2, lane] = a, b, large


def line_lanes(
    y: Floats,
    positive: NDArray[np.bool_],
    weight: Floats,
    unit: NDArray[np.int32],
    counts: NDArray[Any],
    cells: LineCells,
    out: Floats,
) -> None:
    """Intercept, out[0], slope, out[1], and calibration in the large, out[2], of one label in every lane.

    NaN when a class is missing, and for the first two also when x separates the classes: what `line_from` gives on the
    rows of each replicate.
    """
    lanes = counts.shape[1]
    ends, mass, rough = np.empty((4, lanes)), np.empty((lanes, len(cells.at))), np.empty(lanes, dtype=np.bool_)
    _ends(positive, weight, cells.odds, unit, counts, ends)
    _gather(weight, cells.odds, unit, counts, cells.rows, cells.points, mass)
    steepest = REACH / cells.width
    _fit(positive, weight, unit, counts, cells.odds, cells.at, mass, ends, cells.whole, steepest, out, rough)
    for lane in np.flatnonzero(rough):
        drawn = weight * counts[unit, lane]
        out[:2, lane] = line_from(y, cells.odds, drawn, True, cells.whole[0], cells.whole[1])
        out[2, lane] = line_from(y, cells.odds, drawn, False, cells.whole[2], 1.0)[0]
