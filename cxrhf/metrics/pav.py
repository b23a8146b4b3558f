"""Sorted rows -> the Brier score after isotonic recalibration (pool adjacent violators), in linear time.

Recalibration gives every pool of neighbouring scores its mean label m, so a pool of weight w keeps w m (1 - m) of the
Brier score: the pools' weights and hits are all that is needed, never the recalibrated values. Where negatives follow
positives they end up in one pool whatever the counts; such rows are gathered once into groups, and a replicate only
pools groups.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from cxrhf.metrics.compiled import compiled

# Lanes whose sums are taken out together: a cache line of them.
LANES_AT_ONCE = 8


@compiled(error_model="numpy")
def kept_by_pools(hits: Any, misses: Any) -> float:
    """Sum of w m (1 - m) over the pools of groups in ascending order of their scores; both arrays are overwritten."""
    top = -1
    for k in range(hits.shape[0]):
        h, m = hits[k], misses[k]
        if h + m <= 0:
            continue
        # The odds of the pool before are at least as high: not ascending, so they are one pool.
        while top >= 0 and hits[top] * m >= h * misses[top]:
            h += hits[top]
            m += misses[top]
            top -= 1
        top += 1
        hits[top], misses[top] = h, m
    kept = 0.0
    for k in range(top + 1):
        kept += hits[k] * misses[k] / (hits[k] + misses[k])
    return kept


@compiled
def pav_groups(positive: Any, last: Any, group: Any) -> int:
    """Number rows by group: runs of equal scores that share a pool in every replicate; returns how many there are.

    A run joins the group before it when it holds no positive (its mean is 0, never above) or the group no negative.
    """
    n = positive.shape[0]
    found = -1
    pure = False  # the group before has no negative
    i = 0
    while i < n:
        j = i
        any_positive, any_negative = False, False
        while True:
            any_positive = any_positive or positive[j]
            any_negative = any_negative or not positive[j]
            j += 1
            if last[j - 1]:
                break
        if found < 0 or (any_positive and not pure):
            found += 1
            pure = True
        pure = pure and not any_negative
        for k in range(i, j):
            group[k] = found
        i = j
    return found + 1


@compiled(error_model="numpy")
def pav_sorted(y: Any, p: Any, w: Any) -> Any:
    """(calibration, refinement) of rows sorted by score: what recalibration removes of the Brier score, and leaves."""
    n = y.shape[0]
    hits, misses = np.zeros(n), np.zeros(n)
    total, score = 0.0, 0.0
    k = -1
    for i in range(n):
        if i == 0 or p[i] != p[i - 1]:
            k += 1
        hits[k] += w[i] * y[i]
        misses[k] += w[i] * (1 - y[i])
        total += w[i]
        score += w[i] * (p[i] - y[i]) ** 2
    if total <= 0:
        return (np.nan, np.nan)
    kept = kept_by_pools(hits[: k + 1], misses[: k + 1])
    return ((score - kept) / total, kept / total)


@compiled(error_model="numpy")
def pav_lanes(
    y: Any, p: Any, positive: Any, weight: Any, unit: Any, counts: Any, group: Any, sums: Any, out: Any
) -> None:
    """Calibration, out[0], and refinement, out[1], of one label in every lane.

    `group` is that of `pav_groups`, `sums` work space of (2, groups, lanes).
    """
    lanes = counts.shape[1]
    groups = sums.shape[1]
    score = np.zeros(lanes)
    sums[:] = 0.0
    for i in range(y.shape[0]):
        w = weight[i]
        squared = w * (p[i] - y[i]) ** 2
        row = counts[unit[i]]
        own = sums[0 if positive[i] else 1, group[i]]
        for lane in range(lanes):
            own[lane] += w * row[lane]
            score[lane] += squared * row[lane]
    hits, misses = np.empty((LANES_AT_ONCE, groups)), np.empty((LANES_AT_ONCE, groups))
    for start in range(0, lanes, LANES_AT_ONCE):
        here = min(LANES_AT_ONCE, lanes - start)
        for k in range(groups):
            for j in range(here):
                hits[j, k] = sums[0, k, start + j]
                misses[j, k] = sums[1, k, start + j]
        for j in range(here):
            lane = start + j
            total = 0.0
            for k in range(groups):
                total += hits[j, k] + misses[j, k]
            kept = kept_by_pools(hits[j], misses[j])
            out[0, lane] = (score[lane] - kept) / total if total > 0 else np.nan
            out[1, lane] = kept / total if total > 0 else np.nan
