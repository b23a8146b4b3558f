"""Sorted rows, groups and counts of drawn patients -> AUROC, TPR and FPR of all groups: the compiled inside.

Rows are those of one finding by score. Several replicates (lanes) go through the rows side by side, and all groups of a
grouping in the same pass: each group keeps the weight of its negatives below the current score. Row i belongs to
patient unit[i] and counts weight[i] times as often as that patient was drawn, counts[unit[i], lane].
"""

from __future__ import annotations

from typing import Any

import numpy as np

from cxrhf.metrics.compiled import compiled


@compiled
def cell_masses(weight: Any, unit: Any, cell: Any, counts: Any, mass: Any) -> None:
    """Add the weight of the rows of each cell (-1 = none) to the zeros of mass (cells, lanes)."""
    for i in range(cell.shape[0]):
        if cell[i] >= 0:
            own = mass[cell[i]]
            row = counts[unit[i]]
            for lane in range(counts.shape[1]):
                own[lane] += weight[i] * row[lane]


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
    by_start = np.empty(lanes, dtype=np.int64)
    below, above, area = np.zeros((groups, lanes)), np.zeros((groups, lanes)), np.zeros((groups, lanes))
    missed = np.empty((2, groups, lanes))
    for lane in range(lanes):  # lanes by where their called rows begin
        k = lane
        while k > 0 and start[by_start[k - 1]] > start[lane]:
            by_start[k] = by_start[k - 1]
            k -= 1
        by_start[k] = lane
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
