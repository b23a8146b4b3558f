"""Sorted rows and draws -> where the called rows begin in every replicate when the false positive rate is given.

The same places as `fpr_sorted` finds, LANES replicates at a time. Side by side they walk down from the highest score in
chunks of rows until all of them have passed the rate; only then each one looks for its own point, from a chunk before
the one where it passed. Should the point lie still further up (a long straight piece of the curve), it starts again
from the top.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from cxrhf.metrics.compiled import compiled
from cxrhf.metrics.operating import TOLERANCE

CHUNK = 64
UNSEEN = -2


@compiled
def called_from(
    y: Any,
    p: Any,
    weight: Any,
    unit: Any,
    cell: Any,
    drawn: Any,
    factor: Any,
    positives: float,
    negatives: float,
    fpr: float,
    rule: int,
    begin: int,
    hits: float,
    alarms: float,
) -> int:
    """`fpr_sorted` from row `begin` downwards, above which lie `hits` and `alarms`.

    UNSEEN when a point above `begin` could be as near as all below. -1 without negatives.
    """
    n = y.shape[0]
    if negatives <= 0:
        return -1
    per_negative = 1 / negatives
    per_positive = 1 / positives if positives > 0 else 0.0
    corners = rule == 0 and positives > 0
    best, gap = n, fpr
    points, run, rise = 0, 0.0, 0.0
    rate, share = alarms * per_negative, hits * per_positive
    if begin < n:  # points above may be as near as this one, the step to it is not known
        best, gap, points = UNSEEN, fpr - rate - TOLERANCE, 2
    known = begin == n
    place = begin
    mass = 0.0
    for back in range(begin):
        i = begin - 1 - back
        if cell[i] >= 0:
            w = weight[i] * drawn[unit[i]] * factor[cell[i]]
            mass += w
            hits += w * y[i]
            alarms += w * (1 - y[i])
        if (i > 0 and p[i - 1] == p[i]) or mass <= 0:
            continue
        mass = 0.0
        reached = alarms * per_negative
        if rule == 2:
            if reached > fpr + TOLERANCE:
                return best
            best = i
            continue
        recalled = hits * per_positive
        turned = points > 1 and (abs(reached - rate - run) > TOLERANCE or abs(recalled - share - rise) > TOLERANCE)
        if corners and known and turned and abs(rate - fpr) < gap - TOLERANCE:
            best, gap = place, abs(rate - fpr)
        if (not corners or points == 0) and abs(reached - fpr) < gap - TOLERANCE:
            best, gap = i, abs(reached - fpr)
        if reached - fpr > gap:
            return best
        points, place, run, rise, rate, share = points + 1, i, reached - rate, recalled - share, reached, recalled
        known = True
    if rule != 2 and abs(rate - fpr) < gap - TOLERANCE:
        best = place
    return best


@compiled(fastmath={"contract"})
def starts_lanes(
    y: Any,
    p: Any,
    weight: Any,
    unit: Any,
    cell: Any,
    counts: Any,
    by_lane: Any,
    totals: Any,
    scale: Any,
    fpr: float,
    rule: int,
    start: Any,
) -> None:
    """Fill start (lanes,). Row i counts weight[i] * counts[unit[i], lane] * scale[cell[i], lane] times; cell -1: never.

    `by_lane` are the counts with a row for each lane; totals (2, lanes): positives and negatives.
    """
    n = y.shape[0]
    lanes = counts.shape[1]
    marks = np.full(3, n)  # where this chunk and the two before it end, and what lies above
    sums = np.zeros((3, 2, lanes))
    waiting = lanes
    start[:] = UNSEEN
    chunk = 0
    i = n
    while waiting > 0:
        chunk += 1
        now = chunk % 3
        for lane in range(lanes):
            sums[now, 0, lane] = sums[(chunk - 1) % 3, 0, lane]
            sums[now, 1, lane] = sums[(chunk - 1) % 3, 1, lane]
        stop = i
        while i > 0 and (stop - i < CHUNK or p[i - 1] == p[i]):
            i -= 1
            if cell[i] < 0:
                continue
            w = weight[i]
            row = counts[unit[i]]
            times = scale[cell[i]]
            own = sums[now, 0 if y[i] == 1 else 1]
            for lane in range(lanes):
                own[lane] += w * row[lane] * times[lane]
        marks[now] = i
        at = max(chunk - 2, 0) % 3
        for lane in range(lanes):
            if start[lane] != UNSEEN or (i > 0 and sums[now, 1, lane] <= fpr * totals[1, lane]):
                continue
            waiting -= 1
            begin, hits, alarms = marks[at], sums[at, 0, lane], sums[at, 1, lane]
            while start[lane] == UNSEEN:
                start[lane] = called_from(
                    y,
                    p,
                    weight,
                    unit,
                    cell,
                    by_lane[lane],
                    scale[:, lane],
                    totals[0, lane],
                    totals[1, lane],
                    fpr,
                    rule,
                    begin,
                    hits,
                    alarms,
                )
                begin, hits, alarms = n, 0.0, 0.0
