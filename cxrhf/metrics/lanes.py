"""Sorted rows and the counts of many replicates -> ranking metrics and calibration error of all of them at once.

Every kernel walks once along the rows of one label, sorted by score, and carries one replicate in each lane; row i
counts `weight[i] * counts[unit[i], lane]` times in it. `last` marks the last row of each run of equal scores. Lanes
never meet, so a replicate does not depend on its neighbours. What each kernel gives is defined by its slow twin for
one sample: `pr_area_sorted`, `conservative_sorted`, `best_sorted`, `ace_exact_sorted`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cxrhf.metrics.checks import Floats
from cxrhf.metrics.compiled import compiled
from cxrhf.metrics.operating import TOLERANCE
from cxrhf.metrics.reliability import line_from, log_odds

# Rows of a stretch: the calibration error looks for its edges stretch by stretch, then row by row.
STRETCH = 64


@compiled
def class_lanes(positive: Any, weight: Any, unit: Any, counts: Any, totals: Any) -> None:
    """Weight of negatives, totals[0], and of positives, totals[1], in every lane."""
    totals[:] = 0.0
    for i in range(positive.shape[0]):
        w = weight[i]
        row = counts[unit[i]]
        own = totals[1 if positive[i] else 0]
        for lane in range(row.shape[0]):
            own[lane] += w * row[lane]


@compiled
def sum_lanes(sums: Any, counts: Any, out: Any) -> None:
    """out[k, lane]: sums[u, k] times counts[u, lane], added in the order of the units whatever else is computed."""
    columns, lanes = out.shape
    times = np.empty(lanes)
    for k in range(columns):
        for lane in range(lanes):
            out[k, lane] = 0.0
    for u in range(sums.shape[0]):
        for lane in range(lanes):
            times[lane] = counts[u, lane]
        for k in range(columns):
            each = sums[u, k]
            if each != 0.0:  # many patients have no positive row, or none in a bin
                own = out[k]
                for lane in range(lanes):
                    own[lane] += each * times[lane]


@compiled
def _add_run(positive: Any, weight: Any, last: Any, unit: Any, counts: Any, i: int, tied: Any) -> int:
    """Weight of both classes in the run of equal scores that ends at row i; returns the row before the run."""
    tied[:] = 0.0
    while True:
        w = weight[i]
        row = counts[unit[i]]
        own = tied[1 if positive[i] else 0]
        for lane in range(row.shape[0]):
            own[lane] += w * row[lane]
        i -= 1
        if i < 0 or last[i]:
            return i


@compiled(error_model="numpy")
def pr_lanes(positive: Any, weight: Any, last: Any, unit: Any, counts: Any, out: Any) -> None:
    """Areas under the precision-recall curve: by steps, out[0], and by trapezoids, out[1].

    Precision is needed only where the recall moves, hence no division at a negative.
    """
    lanes = counts.shape[1]
    hits, called, tied = np.zeros(lanes), np.zeros(lanes), np.empty((2, lanes))
    steps, lines = out[0], out[1]
    steps[:] = 0.0
    lines[:] = 0.0
    i = positive.shape[0] - 1
    while i >= 0:
        w = weight[i]
        row = counts[unit[i]]
        if i > 0 and not last[i - 1]:
            i = _add_run(positive, weight, last, unit, counts, i, tied)
            for lane in range(lanes):
                c = tied[1, lane]
                before = hits[lane] / called[lane] if called[lane] > 0 else 1.0
                hits[lane] += c
                called[lane] += c + tied[0, lane]
                now = hits[lane] / called[lane] if called[lane] > 0 else 1.0
                steps[lane] += c * now
                lines[lane] += c * (0.5 * (before + now))
            continue
        if positive[i]:
            for lane in range(lanes):
                c = w * row[lane]
                before = hits[lane] / called[lane] if called[lane] > 0 else 1.0
                hits[lane] += c
                called[lane] += c
                now = hits[lane] / called[lane] if called[lane] > 0 else 1.0
                steps[lane] += c * now
                lines[lane] += c * (0.5 * (before + now))
        else:
            for lane in range(lanes):
                called[lane] += w * row[lane]
        i -= 1
    for lane in range(lanes):
        defined = hits[lane] > 0 and hits[lane] < called[lane]
        steps[lane] = steps[lane] / hits[lane] if defined else np.nan
        lines[lane] = lines[lane] / hits[lane] if defined else np.nan


@compiled(error_model="numpy")
def sensitivity_lanes(
    positive: Any, weight: Any, last: Any, unit: Any, counts: Any, totals: Any, allowed: float, out: Any
) -> None:
    """Sensitivity at the lowest threshold whose false positive rate is at most `allowed`.

    False alarms only grow on the way down, so a run of scores counts while they are within the limit after it.
    """
    lanes = counts.shape[1]
    alarms, limit, tied = np.zeros(lanes), np.empty(lanes), np.empty((2, lanes))
    for lane in range(lanes):
        out[lane] = 0.0
        limit[lane] = (allowed + TOLERANCE) * totals[0, lane]
    i = positive.shape[0] - 1
    steps = 0
    while i >= 0:
        steps += 1
        if steps % STRETCH == 0:
            over = 0
            for lane in range(lanes):
                over += alarms[lane] > limit[lane]
            if over == lanes:
                break
        w = weight[i]
        row = counts[unit[i]]
        if i > 0 and not last[i - 1]:
            i = _add_run(positive, weight, last, unit, counts, i, tied)
            for lane in range(lanes):
                alarms[lane] += tied[0, lane]
                out[lane] += tied[1, lane] if alarms[lane] <= limit[lane] else 0.0
            continue
        if positive[i]:
            for lane in range(lanes):
                out[lane] += w * row[lane] if alarms[lane] <= limit[lane] else 0.0
        else:
            for lane in range(lanes):
                alarms[lane] += w * row[lane]
        i -= 1
    for lane in range(lanes):
        defined = totals[0, lane] > 0 and totals[1, lane] > 0
        out[lane] = min(out[lane] / totals[1, lane], 1.0) if defined else np.nan


@compiled(error_model="numpy")
def best_lanes(
    positive: Any, weight: Any, last: Any, unit: Any, counts: Any, totals: Any, youden: bool, out: Any
) -> None:
    """The largest Youden's J, or the largest F1: either is reached where a run with positives ends."""
    lanes = counts.shape[1]
    hits, alarms, tied = np.zeros(lanes), np.zeros(lanes), np.empty((2, lanes))
    # J = 0 is always reached, where everything is called positive.
    out[:] = 0.0
    negatives, positives = totals[0], totals[1]
    i = positive.shape[0] - 1
    while i >= 0:
        w = weight[i]
        row = counts[unit[i]]
        if i > 0 and not last[i - 1]:
            i = _add_run(positive, weight, last, unit, counts, i, tied)
            for lane in range(lanes):
                hits[lane] += tied[1, lane]
                alarms[lane] += tied[0, lane]
        elif positive[i]:
            for lane in range(lanes):
                hits[lane] += w * row[lane]
            i -= 1
        else:
            for lane in range(lanes):
                alarms[lane] += w * row[lane]
            i -= 1
            continue
        if youden:
            for lane in range(lanes):
                value = hits[lane] / positives[lane] - alarms[lane] / negatives[lane]
                out[lane] = value if value > out[lane] else out[lane]
        else:
            for lane in range(lanes):
                value = 2 * hits[lane] / (hits[lane] + alarms[lane] + positives[lane])
                out[lane] = value if value > out[lane] else out[lane]
    for lane in range(lanes):
        if positives[lane] <= 0 or (youden and negatives[lane] <= 0):
            out[lane] = np.nan


@compiled
def stretches(last: Any, edges: Any) -> int:
    """Cut rows into stretches of whole runs, of at most STRETCH rows unless one run is longer; returns their number.

    A run longer than that has a stretch of its own. `edges` has room for the rows and one more.
    """
    n = last.shape[0]
    found = 0
    edges[0] = 0
    begin = 0  # of the run
    for i in range(n):
        if last[i]:
            if i + 1 - edges[found] > STRETCH and begin > edges[found]:
                found += 1
                edges[found] = begin
            begin = i + 1
    if n > 0:
        found += 1
        edges[found] = n
    return found


@compiled(error_model="numpy")
def _part(
    target: float,
    s: int,
    lane: int,
    y: Any,
    p: Any,
    weight: Any,
    last: Any,
    unit: Any,
    counts: Any,
    edges: Any,
    filled: Any,
    gap: Any,
) -> float:
    """The signed difference inside stretch s of one lane up to the weight `target`; a run of equal scores is even."""
    start, whole = filled[s, lane], gap[s + 1, lane] - gap[s, lane]
    if edges[s + 1] - edges[s] > STRETCH:  # one long run
        mass = filled[s + 1, lane] - start
        return whole * min((target - start) / mass, 1.0) if mass > 0 else 0.0
    moved, run_mass, run_gap = 0.0, 0.0, 0.0
    for i in range(edges[s], edges[s + 1]):
        c = weight[i] * counts[unit[i], lane]
        run_mass += c
        run_gap += c * (p[i] - y[i])
        if last[i]:
            if run_mass > 0 and start + run_mass >= target:
                return moved + run_gap * ((target - start) / run_mass)
            start += run_mass
            moved += run_gap
            run_mass, run_gap = 0.0, 0.0
    return whole


@compiled(error_model="numpy")
def ace_lanes(
    y: Any,
    p: Any,
    weight: Any,
    last: Any,
    unit: Any,
    counts: Any,
    bins: int,
    edges: Any,
    filled: Any,
    gap: Any,
    out: Any,
) -> None:
    """Adaptive calibration error with bins of exactly equal weight.

    The signed difference p - y, summed along the sorted rows, is a function of the weight passed so far; a bin's share
    of the error is how much that function moves between the bin's two edges. `edges` are the stretches, `filled` and
    `gap` work space of (stretches + 1, lanes): both sums up to each stretch.
    """
    lanes = counts.shape[1]
    end = edges.shape[0] - 1
    if end == 0:
        out[:] = np.nan
        return
    for lane in range(lanes):
        filled[0, lane] = 0.0
        gap[0, lane] = 0.0
    for s in range(end):
        mass, signed = filled[s + 1], gap[s + 1]
        for lane in range(lanes):
            mass[lane] = filled[s, lane]
            signed[lane] = gap[s, lane]
        for i in range(edges[s], edges[s + 1]):
            w = weight[i]
            wd = w * (p[i] - y[i])
            row = counts[unit[i]]
            for lane in range(lanes):
                mass[lane] += w * row[lane]
                signed[lane] += wd * row[lane]
    for lane in range(lanes):
        total = filled[end, lane]
        before = 0.0
        error = 0.0
        s = 0
        for edge in range(1, bins):
            target = edge * total / bins
            while s < end - 1 and filled[s + 1, lane] < target:
                s += 1
            at = gap[s, lane] + _part(target, s, lane, y, p, weight, last, unit, counts, edges, filled, gap)
            error += abs(at - before)
            before = at
        error += abs(gap[end, lane] - before)
        out[lane] = error / total if total > 0 else np.nan


# Sorted rows and the counts of many replicates -> the calibration line of all of them, without a pass per step.
#
# A Newton step needs sums over rows of smooth functions of the log odds x. Rows are therefore gathered in narrow
# cells of x, and each cell's weight is moved onto a few Chebyshev points such that polynomials up to degree POINTS -
# 1 keep their sums. That takes one pass over the rows of a label; every step after it looks at some hundred points
# instead of all rows. Within a cell the log odds of the fit move by at most REACH, so what is lost is of the order
# 1e-10 of the weight. A replicate whose slope is too steep for its cells, or whose steps do not settle, is fitted on
# its rows.

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
