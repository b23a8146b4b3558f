"""Sorted rows and the counts of many replicates -> ranking metrics and calibration error of all of them at once.

Every kernel walks once along the rows of one label, sorted by score, and carries one replicate in each lane; row i
counts `weight[i] * counts[unit[i], lane]` times in it. `last` marks the last row of each run of equal scores. Lanes
never meet, so a replicate does not depend on its neighbours. What each kernel gives is defined by its slow twin for
one sample: `pr_area_sorted`, `conservative_sorted`, `best_sorted`, `ace_exact_sorted`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from cxrhf.metrics.compiled import compiled
from cxrhf.metrics.operating import TOLERANCE

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
