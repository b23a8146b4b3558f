"""Many p values, or many values with shared replicates -> the same, corrected for having looked at many.

A NaN p value (a test that could not be made) stays NaN and does not count as a test.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from cxrhf.metrics.checks import Floats, InputError, as_fraction


class Bands(NamedTuple):
    """Simultaneous limits, which contain all values at the stated level; `critical` replaces 1.96."""

    low: Floats
    high: Floats
    p_value: Floats
    critical: float


def _adjusted(p: ArrayLike, rule: Callable[[Floats], Floats]) -> Floats:
    values = np.asarray(p, dtype=np.float64)
    bad = (values < 0) | (values > 1)
    if bad.any():
        where = int(np.argmax(bad.ravel()))
        raise InputError(f"p[{where}]: expected a p value from 0 to 1 or NaN, got {values.ravel()[where]!r}")
    result = np.full(values.shape, np.nan)
    tested = ~np.isnan(values)
    if tested.any():
        result[tested] = np.minimum(rule(values[tested]), 1.0)
    return result


def bonferroni(p: ArrayLike) -> Floats:
    """p values times the number of tests, at most 1; controls the family-wise error rate.

    >>> bonferroni([0.01, 0.2]).tolist()
    [0.02, 0.4]
    """
    return _adjusted(p, lambda values: values * len(values))


def holm(p: ArrayLike) -> Floats:
    """p values by Holm's step-down method: the same guarantee as Bonferroni, and never larger."""

    def rule(values: Floats) -> Floats:
        order = np.argsort(values, kind="stable")
        steps = np.maximum.accumulate(values[order] * (len(values) - np.arange(len(values))))
        return _back(steps, order)

    return _adjusted(p, rule)


def benjamini_hochberg(p: ArrayLike) -> Floats:
    """p values adjusted to control the false discovery rate of independent or positively dependent tests.

    >>> benjamini_hochberg([0.01, 0.04, 0.03]).round(6).tolist()
    [0.03, 0.04, 0.04]
    """
    return _adjusted(p, lambda values: _step_up(values, 1.0))


def benjamini_yekutieli(p: ArrayLike) -> Floats:
    """p values adjusted to control the false discovery rate under any dependence.

    These are Benjamini-Hochberg values times 1 + 1/2 + ... + 1/m.
    """
    return _adjusted(p, lambda values: _step_up(values, float((1 / np.arange(1, len(values) + 1)).sum())))


def _step_up(values: Floats, factor: float) -> Floats:
    order = np.argsort(values, kind="stable")
    m = len(values)
    steps = values[order] * (m * factor) / np.arange(1, m + 1)
    return _back(np.minimum.accumulate(steps[::-1])[::-1], order)


def _back(steps: Floats, order: np.ndarray) -> Floats:
    result = np.empty(len(steps))
    result[order] = steps
    return result


def max_t(point: ArrayLike, replicates: ArrayLike, level: float = 0.95, null: float = 0.0) -> Bands:
    """Simultaneous limits from common replicates (n_resamples, values), by the largest standardised deviation.

    Accounts for the correlation between findings, so limits are narrower than with Bonferroni. `p_value` is the
    adjusted p value of the hypothesis that a value equals `null`. If a value is undefined in a replicate, the other
    values of that replicate are used.
    """
    as_fraction(level, "level")
    values = np.asarray(point, dtype=np.float64)
    draws = np.asarray(replicates, dtype=np.float64)
    if draws.ndim != 2 or values.shape != draws.shape[1:]:
        raise InputError(
            f"replicates and point: expected shapes (n_resamples, k) and (k,), got {draws.shape} and {values.shape}"
        )
    nothing = np.full(values.shape, np.nan)
    usable = ~np.isnan(values) & ((~np.isnan(draws)).sum(axis=0) >= 2)
    if not usable.any():
        return Bands(nothing, nothing.copy(), nothing.copy(), float("nan"))
    kept = draws[:, usable]
    spread = np.nanstd(kept, axis=0)
    moving = spread > 0
    safe = np.where(moving, spread, 1.0)
    deviation = np.where(moving, np.abs(kept - np.nanmean(kept, axis=0)) / safe, 0.0)
    largest = np.max(np.nan_to_num(deviation, nan=0.0), axis=1)
    critical = float(np.quantile(largest, level))
    low, high, p_value = nothing, nothing.copy(), nothing.copy()
    low[usable] = values[usable] - critical * spread
    high[usable] = values[usable] + critical * spread
    distance = np.where(moving, np.abs(values[usable] - null) / safe, np.where(values[usable] == null, 0.0, np.inf))
    p_value[usable] = (1 + (largest[None, :] >= distance[:, None]).sum(axis=1)) / (len(largest) + 1)
    return Bands(low, high, p_value, critical)
