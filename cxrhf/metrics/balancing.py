"""Groups, labels and ages -> weights that give all groups one size, one prevalence and one distribution of ages.

ENCODING resamples the test set so that every group has the population's prevalence and, within each class, its ages: a
gap that is left does not come from who is ill or old in which group. Drawing rows more than once makes no data: its
intervals are at least 3.7 times too narrow for the smallest group. Here the same target is reached by weights

    w = (1/R) P(d) P(a | d) / P(r, d, a)

for group r of R, label d and age bin a. Where a group has nobody of a label and age bin, its other ages of that label
take over that weight; how much of the target's ages it covers is given. Sex is not balanced. The paper's literal
resampling is not offered.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cxrhf.metrics.checks import Floats, same_length
from cxrhf.metrics.compiled import compiled

# ENCODING's bins: up to 20, over 20 and up to 30, ..., over 80.
AGE_EDGES = np.arange(20.0, 81.0, 10.0)
AGE_BINS = ("<=20", *(f"{int(low) + 1}-{int(low) + 10}" for low in AGE_EDGES[:-1]), ">80")


class Balancing(NamedTuple):
    """Weights that balance groups.

    `weight` of each row is 0 without a group, label or bin. `covered` (groups, 2, bins) marks the ages that a group
    has, and `target` (2, bins) is P(a | d) of the population, both by label with negatives first."""

    weight: Floats
    covered: NDArray[np.bool_]
    target: Floats

    @property
    def share(self) -> Floats:
        """Share of the target's ages that each group covers, for negatives and positives; NaN without such rows."""
        return np.where(self.covered.any(axis=2), (self.covered * self.target).sum(axis=2), np.nan)


def age_bins(age: ArrayLike) -> NDArray[np.int64]:
    """Index of each age in AGE_BINS; -1 for unknown ages.

    >>> age_bins([18, 20, 20.5, 90, float("nan")]).tolist()
    [0, 0, 1, 7, -1]
    """
    years = np.asarray(age, dtype=np.float64)
    return np.where(np.isnan(years), -1, np.searchsorted(AGE_EDGES, years, side="left")).astype(np.int64)


def cells_of(y: Floats, group: NDArray[Any], age_bin: NDArray[Any], n_bins: int) -> NDArray[np.int32]:
    """Place of each row in the cells (group, label, age bin), listed in this order; -1 outside of all."""
    known = (group >= 0) & (age_bin >= 0) & ~np.isnan(y)
    return np.where(known, (group * 2 + (y == 1)) * n_bins + age_bin, -1).astype(np.int32)


def balancing_weights(
    y: ArrayLike,
    group: ArrayLike,
    age_bin: ArrayLike | None = None,
    weight: ArrayLike | None = None,
    *,
    n_groups: int | None = None,
    n_bins: int | None = None,
) -> Balancing:
    """Weights that give every group the population's prevalence and, within each label, its age distribution.

    `group` and `age_bin` are indices from 0, with -1 for unknown; without `age_bin`, only the prevalence is balanced.
    `weight` counts rows. The weights sum to the number (or weight) of rows in a known group and bin. Pass `n_groups`
    and `n_bins` if the last ones may be missing from the rows.

    >>> balancing_weights([0, 0, 0, 1, 0, 1], [0, 0, 0, 0, 1, 1]).weight.round(4).tolist()
    [0.6667, 0.6667, 0.6667, 1.0, 2.0, 1.0]
    """
    labels, groups = np.asarray(y, dtype=np.float64), np.asarray(group, dtype=np.int64)
    bins = np.zeros(len(labels), dtype=np.int64) if age_bin is None else np.asarray(age_bin, dtype=np.int64)
    mass = np.ones(len(labels)) if weight is None else np.asarray(weight, dtype=np.float64)
    same_length(y=labels, group=groups, age_bin=bins, weight=mass)
    n_groups = int(groups.max(initial=-1)) + 1 if n_groups is None else n_groups
    n_bins = int(bins.max(initial=0)) + 1 if n_bins is None else n_bins
    cell = cells_of(labels, groups, bins, n_bins)
    inside = cell >= 0
    observed = np.bincount(cell[inside], mass[inside], n_groups * 2 * n_bins).astype(np.float64)
    scale = np.empty((len(observed), 1))
    cell_scales(observed[:, None], n_bins, scale)
    rows = np.zeros(len(labels))
    rows[inside] = mass[inside] * scale[cell[inside], 0]
    by_cell = observed.reshape(n_groups, 2, n_bins)
    target = by_cell.sum(axis=0)
    total = target.sum(axis=1, keepdims=True)
    return Balancing(rows, by_cell > 0, np.divide(target, total, out=np.zeros_like(target), where=total > 0))


@compiled
def cell_scales(mass: Any, n_bins: int, scale: Any) -> None:
    """What rows of each cell are multiplied by; mass and scale are (cells, lanes), a lane for each replicate."""
    lanes = mass.shape[1]
    n_groups = mass.shape[0] // (2 * n_bins) if n_bins > 0 else 0
    target = np.empty((n_bins, lanes))
    total, there, present = np.empty(lanes), np.zeros(lanes), np.empty(lanes)
    for g in range(n_groups):
        present[:] = 0.0
        for c in range(g * 2 * n_bins, (g + 1) * 2 * n_bins):
            for lane in range(lanes):
                present[lane] += mass[c, lane]
        for lane in range(lanes):
            there[lane] += present[lane] > 0
    for d in range(2):
        target[:] = 0.0
        total[:] = 0.0
        for g in range(n_groups):
            for a in range(n_bins):
                own = mass[(g * 2 + d) * n_bins + a]
                for lane in range(lanes):
                    target[a, lane] += own[lane]
                    total[lane] += own[lane]
        for g in range(n_groups):
            first = (g * 2 + d) * n_bins
            present[:] = 0.0
            for a in range(n_bins):
                for lane in range(lanes):
                    if mass[first + a, lane] > 0:
                        present[lane] += target[a, lane]
            for a in range(n_bins):
                for lane in range(lanes):
                    own_mass = mass[first + a, lane]
                    # total / present: ages that the group lacks hand their weight on to those it has.
                    scale[first + a, lane] = (
                        target[a, lane] / (there[lane] * own_mass) * (total[lane] / present[lane])
                        if own_mass > 0
                        else 0.0
                    )
