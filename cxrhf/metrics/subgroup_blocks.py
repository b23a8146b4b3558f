"""Sorted rows, groups and counts of drawn patients -> the numbers of all groups: the compiled inside.

Rows are those of one finding by score. Several replicates (lanes) go through the rows side by side, and all groups of a
grouping in the same pass: each group keeps the weight of its negatives below the current score. Row i belongs to
patient unit[i] and counts weight[i] times as often as that patient was drawn, counts[unit[i], lane].
"""

from __future__ import annotations

from typing import Any

import numpy as np

from cxrhf.metrics.compiled import compiled

SMALLEST = 1e-300


@compiled
def cell_masses(weight: Any, unit: Any, cell: Any, counts: Any, mass: Any) -> None:
    """Add the weight of the rows of each cell (-1 = none) to the zeros of mass (cells, lanes)."""
    for i in range(cell.shape[0]):
        if cell[i] >= 0:
            own = mass[cell[i]]
            row = counts[unit[i]]
            for lane in range(counts.shape[1]):
                own[lane] += weight[i] * row[lane]


@compiled
def _lanes_by_start(start: Any) -> Any:
    """Lanes by where their called rows begin."""
    lanes = start.shape[0]
    by_start = np.empty(lanes, dtype=np.int64)
    for lane in range(lanes):
        k = lane
        while k > 0 and start[by_start[k - 1]] > start[lane]:
            by_start[k] = by_start[k - 1]
            k -= 1
        by_start[k] = lane
    return by_start


@compiled(fastmath={"contract"})
def groups_lanes(
    positive: Any,
    weight: Any,
    last: Any,
    unit: Any,
    group: Any,
    cell: Any,
    counts: Any,
    scale: Any,
    start: Any,
    out: Any,
) -> None:
    """AUROC, TPR and FPR of every group and lane; out is (3, groups, lanes).

    Row i of group[i] (-1 = none) counts weight[i] * counts[unit[i], lane] * scale[cell[i], lane] times; rows from
    start[lane] on are called positive. `below` and `above` are the weights of negatives and positives so far. In a run
    of equal scores every positive beats half of its group's negatives there: half of their weight goes below before
    the positives are looked at, the other half after.
    """
    lanes = counts.shape[1]
    groups = out.shape[1]
    by_start = _lanes_by_start(start)
    below, above, area = np.zeros((groups, lanes)), np.zeros((groups, lanes)), np.zeros((groups, lanes))
    missed = np.empty((2, groups, lanes))
    passed = 0
    n = positive.shape[0]
    i = 0
    while i < n or passed < lanes:
        while passed < lanes and (start[by_start[passed]] <= i or i >= n):
            lane = by_start[passed]
            for g in range(groups):
                missed[0, g, lane] = above[g, lane]
                missed[1, g, lane] = below[g, lane]
            passed += 1
        if i >= n:
            break
        stop = i + 1
        while not last[stop - 1]:
            stop += 1
        tied = stop - i > 1
        for turn in range(3 if tied else 1):
            for j in range(i, stop):
                g = group[j]
                if g < 0 or (tied and positive[j] != (turn == 1)):
                    continue
                w = weight[j]
                row = counts[unit[j]]
                times = scale[cell[j]]
                negatives = below[g]
                if positive[j]:
                    positives = above[g]
                    own = area[g]
                    for lane in range(lanes):
                        c = w * row[lane] * times[lane]
                        own[lane] += c * negatives[lane]
                        positives[lane] += c
                else:
                    if tied:
                        w *= 0.5
                    for lane in range(lanes):
                        negatives[lane] += w * row[lane] * times[lane]
        i = stop
    for g in range(groups):
        for lane in range(lanes):
            pairs = above[g, lane] * below[g, lane]
            # Rounding of weighted sums must not lift a perfect ranking above 1.
            out[0, g, lane] = min(area[g, lane] / pairs, 1.0) if pairs > 0 else np.nan
            called = start[lane] >= 0
            hit, alarm = above[g, lane], below[g, lane]
            out[1, g, lane] = (hit - missed[0, g, lane]) / hit if called and hit > 0 else np.nan
            out[2, g, lane] = (alarm - missed[1, g, lane]) / alarm if called and alarm > 0 else np.nan


@compiled(fastmath={"contract"})
def prevalence_lanes(
    positive: Any,
    weight: Any,
    last: Any,
    unit: Any,
    group: Any,
    excess: Any,
    bin_of: Any,
    counts: Any,
    start: Any,
    out: Any,
) -> None:
    """What depends on the prevalence, of every group and lane; out is (6, groups, lanes).

    In this order: prevalence, average precision, precision and NPV where rows from start[lane] on are called positive,
    expected calibration error, mean label less mean score. `excess` is score less label, `bin_of` the bin of the score,
    which falls as the rows are walked from the highest score down. Undefined is NaN, as in the metric functions.
    """
    n, lanes, groups = positive.shape[0], counts.shape[1], out.shape[1]
    hits, alarms, area = np.zeros((groups, lanes)), np.zeros((groups, lanes)), np.zeros((groups, lanes))
    gap, error, signed = np.zeros((groups, lanes)), np.zeros((groups, lanes)), np.zeros((groups, lanes))
    gained, called = np.zeros((groups, lanes)), np.zeros((2, groups, lanes))
    by_start = _lanes_by_start(start)
    waiting = lanes - 1
    while waiting >= 0 and start[by_start[waiting]] >= n:  # nothing is called
        waiting -= 1
    stop = n
    while stop > 0:
        i = stop - 1
        while i > 0 and not last[i - 1]:
            i -= 1
        tied = stop - i > 1
        if stop < n and bin_of[i] != bin_of[stop]:
            _close_bins(gap, error, signed)
        for j in range(i, stop):
            g = group[j]
            if g < 0:
                continue
            w, beyond, row = weight[j], weight[j] * excess[j], counts[unit[j]]
            own_gap = gap[g]
            for lane in range(lanes):
                own_gap[lane] += beyond * row[lane]
            if not positive[j]:
                own_alarms = alarms[g]
                for lane in range(lanes):
                    own_alarms[lane] += w * row[lane]
                continue
            own_hits = hits[g]
            for lane in range(lanes):
                own_hits[lane] += w * row[lane]
            if tied:  # of equal scores the precision is known only when all of them are in
                own_gained = gained[g]
                for lane in range(lanes):
                    own_gained[lane] += w * row[lane]
                continue
            own_area, own_alarms = area[g], alarms[g]
            for lane in range(lanes):
                above = max(own_hits[lane] + own_alarms[lane], SMALLEST)  # 0 / 0 must be 0 here, without a branch
                own_area[lane] += w * row[lane] * own_hits[lane] / above
        if tied:
            for g in range(groups):
                for lane in range(lanes):
                    if gained[g, lane] > 0:
                        area[g, lane] += gained[g, lane] * hits[g, lane] / (hits[g, lane] + alarms[g, lane])
                        gained[g, lane] = 0.0
        while waiting >= 0 and start[by_start[waiting]] >= i:
            lane = by_start[waiting]
            for g in range(groups):
                called[0, g, lane], called[1, g, lane] = hits[g, lane], alarms[g, lane]
            waiting -= 1
        stop = i
    _close_bins(gap, error, signed)
    for g in range(groups):
        for lane in range(lanes):
            ill, well = hits[g, lane], alarms[g, lane]
            total = ill + well
            out[:, g, lane] = np.nan
            if total <= 0:
                continue
            out[0, g, lane] = ill / total
            if ill > 0 and well > 0:
                out[1, g, lane] = min(area[g, lane] / ill, 1.0)
            true, false = called[0, g, lane], called[1, g, lane]
            if start[lane] >= 0:
                if true + false > 0:
                    out[2, g, lane] = true / (true + false)
                # What rounding leaves of equal sums is nothing.
                missed = ill - true if ill - true > 1e-12 * ill else 0.0
                cleared = well - false if well - false > 1e-12 * well else 0.0
                if missed + cleared > 0:
                    out[3, g, lane] = cleared / (missed + cleared)
            out[4, g, lane] = error[g, lane] / total
            out[5, g, lane] = -signed[g, lane] / total


@compiled
def _close_bins(gap: Any, error: Any, signed: Any) -> None:
    """Add what a bin holds to the error of each group and lane, and empty it."""
    for g in range(gap.shape[0]):
        for lane in range(gap.shape[1]):
            error[g, lane] += abs(gap[g, lane])
            signed[g, lane] += gap[g, lane]
            gap[g, lane] = 0.0
