"""Labels, scores and draws -> ROC and precision-recall curves with bands.

Bands are vertical: at each false positive rate (or recall) of a grid the sensitivity (or precision) of every
replicate. `simultaneous` widens them (max-T) until the whole curve lies inside at the stated level.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from cxrhf.metrics.checks import Floats, as_fraction, as_scores, binary_input, same_length
from cxrhf.metrics.compiled import compiled
from cxrhf.metrics.draws import Draws, draw_counts, run_in_blocks, stream_key
from cxrhf.metrics.intervals import max_t
from cxrhf.metrics.operating import TOLERANCE
from cxrhf.metrics.ranking import rank_rows

# Rows times resamples below which starting threads takes longer than the work.
_SMALL = 1_000_000


class Band(NamedTuple):
    """A curve on a grid with its confidence limits, as in the CURVE table."""

    x: Floats
    y: Floats
    low: Floats
    high: Floats


@compiled
def _curve_sorted(y: Any, p: Any, w: Any, grid: Any, precision: bool, out: Any) -> None:
    """Sensitivity at false positive rates (the largest not exceeding each), or precision at recalls (the first
    threshold from above that reaches each); grid ascending."""
    positives = (w * y).sum()
    negatives = w.sum() - positives
    for g in range(grid.shape[0]):
        out[g] = np.nan
    if positives <= 0 or (negatives <= 0 and not precision):
        return
    hits = 0.0
    alarms = 0.0
    best = 0.0
    g = 0
    for k in range(y.shape[0]):
        i = y.shape[0] - 1 - k
        hits += w[i] * y[i]
        alarms += w[i] * (1 - y[i])
        if i > 0 and p[i - 1] == p[i]:
            continue
        if precision:
            while g < grid.shape[0] and hits / positives >= grid[g] - TOLERANCE and hits > 0:
                out[g] = hits / (hits + alarms)
                g += 1
        else:
            while g < grid.shape[0] and alarms / negatives > grid[g] + TOLERANCE:
                out[g] = best
                g += 1
            best = hits / positives
    if not precision:
        while g < grid.shape[0]:
            out[g] = best
            g += 1


@compiled
def _curve_block(
    key: Any,
    first: int,
    members: Any,
    edges: Any,
    y: Any,
    p: Any,
    weight: Any,
    unit: Any,
    grid: Any,
    precision: bool,
    out: Any,
) -> None:
    counts = np.empty((members.shape[0], 1), dtype=np.uint8)
    w = np.empty(y.shape[0])
    for r in range(out.shape[0]):
        counts[:] = 0
        draw_counts(key, first + r, members, edges, counts)
        for i in range(y.shape[0]):
            w[i] = weight[i] * counts[unit[i], 0]
        _curve_sorted(y, p, w, grid, precision, out[r])


def _band(
    y: ArrayLike,
    p: ArrayLike,
    weight: ArrayLike | None,
    draws: Draws,
    grid: Floats,
    precision: bool,
    level: float,
    simultaneous: bool,
) -> Band:
    labels, scores, weights = binary_input(y, p, weight)
    same_length(y=labels, draws=draws.unit)
    as_fraction(level, "level")
    ranked = rank_rows(labels, scores, weights)
    point = np.empty(len(grid))
    _curve_sorted(ranked.y, ranked.p, ranked.weight, grid, precision, point)
    members, edges = draws.plan(not precision)
    unit, key = draws.unit[ranked.order], stream_key(draws.seed)
    out = np.empty((draws.n_resamples, len(grid)))

    def work(start: int, stop: int) -> None:
        _curve_block(
            key, start, members, edges, ranked.y, ranked.p, ranked.weight, unit, grid, precision, out[start:stop]
        )

    small = len(labels) * draws.n_resamples < _SMALL
    run_in_blocks(work, draws.n_resamples, 1 if small else None, None)
    if simultaneous:
        bands = max_t(point, out, level)
        return Band(grid, point, np.clip(bands.low, 0, 1), np.clip(bands.high, 0, 1))
    tail = (1 - level) / 2
    low, high = np.full(len(grid), np.nan), np.full(len(grid), np.nan)
    seen = (~np.isnan(out)).any(axis=0)
    if seen.any():
        # numpy goes column by column where there may be NaN: 20 times slower, with the same result.
        quantile = np.quantile if np.isfinite(out[:, seen]).all() else np.nanquantile
        low[seen], high[seen] = quantile(out[:, seen], [tail, 1 - tail], axis=0)
    return Band(grid, point, low, high)


def roc_band(
    y: ArrayLike,
    p: ArrayLike,
    weight: ArrayLike | None = None,
    *,
    draws: Draws,
    grid: ArrayLike | None = None,
    level: float = 0.95,
    simultaneous: bool = False,
) -> Band:
    """Sensitivity at false positive rates 0, 0.01, ..., 1 with its confidence band. NaN if a class is missing."""
    rates = np.linspace(0, 1, 101) if grid is None else np.sort(as_scores(grid, "grid"))
    return _band(y, p, weight, draws, rates, False, level, simultaneous)


def pr_band(
    y: ArrayLike,
    p: ArrayLike,
    weight: ArrayLike | None = None,
    *,
    draws: Draws,
    grid: ArrayLike | None = None,
    level: float = 0.95,
    simultaneous: bool = False,
) -> Band:
    """Precision at recalls 0.01, 0.02, ..., 1 with its confidence band. NaN without positives."""
    recalls = np.linspace(0.01, 1, 100) if grid is None else np.sort(as_scores(grid, "grid"))
    return _band(y, p, weight, draws, recalls, True, level, simultaneous)
