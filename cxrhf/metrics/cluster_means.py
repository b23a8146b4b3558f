"""Values of rows in two groups, patients -> the difference of their means, its interval and one-sided p values.

The spread is that between patients: sums of influences over each patient's rows, so a patient in both groups, or with
many rows, counts as one. Student's t with the patients of the smaller group less one.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import stdtr, stdtrit

from cxrhf.metrics.checks import as_fraction, same_length
from cxrhf.metrics.intervals import patient_numbers


class MeanGap(NamedTuple):
    """Mean with less mean without; `p_more`: of "not larger with", `p_less`: of "not smaller with"."""

    value: float
    low: float
    high: float
    p_more: float
    p_less: float
    patients_with: int
    patients_without: int


def mean_gap(values: ArrayLike, has: ArrayLike, clusters: ArrayLike | None = None, *, level: float = 0.95) -> MeanGap:
    """How much larger the mean is with the attribute; NaN where a group has nobody, no interval with fewer than two.

    >>> mean_gap([1.0, 2.0, 3.0, 4.0], [1, 1, 0, 0]).value
    -2.0
    """
    as_fraction(level, "level")
    x, there = np.asarray(values, dtype=np.float64), np.asarray(has, dtype=bool)
    unit = patient_numbers(clusters, len(x))
    same_length(values=x, has=there, clusters=unit)
    nan = float("nan")
    counts = [int((np.bincount(unit[side]) > 0).sum()) for side in (there, ~there)]
    if not there.any() or there.all():
        return MeanGap(nan, nan, nan, nan, nan, *counts)
    means = x[there].mean(), x[~there].mean()
    gap = float(means[0] - means[1])
    if min(counts) < 2:
        return MeanGap(gap, nan, nan, nan, nan, *counts)
    pull = np.where(there, (x - means[0]) / there.sum(), -(x - means[1]) / (~there).sum())
    # Each group's own small-sample factor, as Welch's test has it.
    n = int(unit.max()) + 1
    with_it, without = (np.bincount(unit, np.where(side, pull, 0.0), n) for side in (there, ~there))
    factor = [count / (count - 1) for count in counts]
    variance = factor[0] * (with_it**2).sum() + factor[1] * (without**2).sum() + 2 * (with_it * without).sum()
    spread, freedom = float(np.sqrt(max(variance, 0.0))), min(counts) - 1
    if spread == 0:
        sure = (float(gap <= 0), float(gap >= 0))
        return MeanGap(gap, gap, gap, *sure, *counts)
    half = float(stdtrit(freedom, 0.5 + level / 2)) * spread
    p_more, p_less = (float(stdtr(freedom, sign * gap / spread)) for sign in (-1, 1))
    return MeanGap(gap, gap - half, gap + half, p_more, p_less, *counts)
