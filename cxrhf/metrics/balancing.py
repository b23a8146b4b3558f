"""Groups, labels and ages -> weights that give all groups the same size, prevalence and distribution of ages.

ENCODING resamples the test set so that every group has the population's prevalence and, within each class, its ages. A
gap that remains does not come from prevalence or age. Duplicated rows are no new data: intervals that count them are at
least 3.7 times too narrow for the smallest group. Here the same target is reached by weights

    w = (1/R) P(d) P(a | d) / P(r, d, a)

for group r of R, class d and age bin a. The class is a finding's label, or one of the paper's three disease groups
(`disease_groups`). If a group has no rows of a class and age bin, its other ages of that class take over the weight;
`Balancing.share` reports how much of the target's ages it covers. Sex is not balanced. The paper's literal resampling
is not offered.
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
# ENCODING's disease groups, in the order of their codes.
DISEASE_GROUPS = ("No Finding", "Pleural Effusion", "Other")


class Balancing(NamedTuple):
    """`weight` of each row, 0 if it has no group, class or bin; `covered` (groups, classes, bins): whether a group has
    such rows; `target` (classes, bins): P(a | d) of the population. Labels are two classes, negatives first."""

    weight: Floats
    covered: NDArray[np.bool_]
    target: Floats

    @property
    def share(self) -> Floats:
        """Share of the target's ages that each group covers in each class: 1 = all, NaN = no such rows."""
        return np.where(self.covered.any(axis=2), (self.covered * self.target).sum(axis=2), np.nan)


def age_bins(age: ArrayLike) -> NDArray[np.int64]:
    """Index of each age in AGE_BINS; -1 for unknown ages.

    >>> age_bins([18, 20, 20.5, 90, float("nan")]).tolist()
    [0, 0, 1, 7, -1]
    """
    years = np.asarray(age, dtype=np.float64)
    return np.where(np.isnan(years), -1, np.searchsorted(AGE_EDGES, years, side="left")).astype(np.int64)


def disease_groups(no_finding: ArrayLike, pleural_effusion: ArrayLike) -> Floats:
    """Index of each image in DISEASE_GROUPS: Pleural Effusion overrides No Finding, and the rest is Other.

    NaN if one of the labels is missing, so that both findings are evaluated on the same images.

    >>> disease_groups([1, 0, 1, 0, float("nan")], [0, 1, 1, 0, 1]).tolist()
    [0.0, 1.0, 1.0, 2.0, nan]
    """
    healthy, effusion = (np.asarray(each, dtype=np.float64) for each in (no_finding, pleural_effusion))
    same_length(no_finding=healthy, pleural_effusion=effusion)
    group = np.where(effusion == 1, 1.0, np.where(healthy == 1, 0.0, 2.0))
    return np.where(np.isnan(healthy) | np.isnan(effusion), np.nan, group)


def cells_of(
    y: Floats, group: NDArray[Any], age_bin: NDArray[Any], n_bins: int, n_classes: int = 2
) -> NDArray[np.int32]:
    """Place of each row in the cells (group, class, age bin), listed in this order; -1 outside of all."""
    known = (group >= 0) & (age_bin >= 0) & ~np.isnan(y)
    code = np.where(known, y, 0).astype(np.int64)
    return np.where(known, (group * n_classes + code) * n_bins + age_bin, -1).astype(np.int32)


def balancing_weights(
    y: ArrayLike,
    group: ArrayLike,
    age_bin: ArrayLike | None = None,
    weight: ArrayLike | None = None,
    *,
    n_groups: int | None = None,
    n_bins: int | None = None,
    n_classes: int | None = None,
) -> Balancing:
    """Compute weights that give every group the population's share of each class and, within each class, its ages.

    `y` is the class of each row: a label or an index in DISEASE_GROUPS, NaN = unknown. `group` and `age_bin` are
    indices from 0, -1 = unknown. Without `age_bin`, only the classes are balanced. `weight` is the initial weight of
    each row. The result sums to the total weight of the rows that have a group, class and bin. Pass `n_groups`,
    `n_bins` and `n_classes` if the highest ones may have no rows.

    >>> balancing_weights([0, 0, 0, 1, 0, 1], [0, 0, 0, 0, 1, 1]).weight.round(4).tolist()
    [0.6667, 0.6667, 0.6667, 1.0, 2.0, 1.0]
    """
    labels, groups = np.asarray(y, dtype=np.float64), np.asarray(group, dtype=np.int64)
    bins = np.zeros(len(labels), dtype=np.int64) if age_bin is None else np.asarray(age_bin, dtype=np.int64)
    mass = np.ones(len(labels)) if weight is None else np.asarray(weight, dtype=np.float64)
    same_length(y=labels, group=groups, age_bin=bins, weight=mass)
    n_groups = int(groups.max(initial=-1)) + 1 if n_groups is None else n_groups
    n_bins = int(bins.max(initial=0)) + 1 if n_bins is None else n_bins
    n_classes = max(int(np.nan_to_num(labels).max(initial=0)) + 1, 2) if n_classes is None else n_classes
    cell = cells_of(labels, groups, bins, n_bins, n_classes)
    inside = cell >= 0
    observed = np.bincount(cell[inside], mass[inside], n_groups * n_classes * n_bins).astype(np.float64)
    scale = np.empty((len(observed), 1))
    cell_scales(observed[:, None], n_classes, n_bins, scale)
    rows = np.zeros(len(labels))
    rows[inside] = mass[inside] * scale[cell[inside], 0]
    by_cell = observed.reshape(n_groups, n_classes, n_bins)
    target = by_cell.sum(axis=0)
    total = target.sum(axis=1, keepdims=True)
    return Balancing(rows, by_cell > 0, np.divide(target, total, out=np.zeros_like(target), where=total > 0))


@compiled
def cell_scales(mass: Any, n_classes: int, n_bins: int, scale: Any) -> None:
    """What rows of each cell are multiplied by; mass and scale are (cells, lanes), a lane for each replicate."""
    lanes = mass.shape[1]
    n_groups = mass.shape[0] // (n_classes * n_bins) if n_bins > 0 else 0
    target = np.empty((n_bins, lanes))
    total, there, present = np.empty(lanes), np.zeros(lanes), np.empty(lanes)
    for g in range(n_groups):
        present[:] = 0.0
        for c in range(g * n_classes * n_bins, (g + 1) * n_classes * n_bins):
            for lane in range(lanes):
                present[lane] += mass[c, lane]
        for lane in range(lanes):
            there[lane] += present[lane] > 0
    for d in range(n_classes):
        target[:] = 0.0
        total[:] = 0.0
        for g in range(n_groups):
            for a in range(n_bins):
                own = mass[(g * n_classes + d) * n_bins + a]
                for lane in range(lanes):
                    target[a, lane] += own[lane]
                    total[lane] += own[lane]
        for g in range(n_groups):
            first = (g * n_classes + d) * n_bins
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


# Labels, groups and a mark in some pictures -> weights after which every group has the mark equally often (SLICES).
#
# SLICES compares AUROC by sex on a test set in which men and women have chest drains equally often: what is left of
# the gap there does not come from who has a drain. Here no row is drawn or dropped; the same is reached by weights
#
#     w = P*(a | d) / P(a | r, d)    with P*(a | d) the plain mean over the groups r of P(a | r, d)
#
# for label d and mark a (1 or 0). Within each label every group then has the mark's mean share; how many rows of each
# label a group has stays as it is. Where nobody of a group and label has the mark, or nobody lacks it, no weight can
# reach the target: the weights of that label are NaN in all groups.


def equalising_scales(mass: Floats) -> Floats:
    """What rows of each cell are multiplied by. Both are (..., groups, 2 labels, 2 values of the mark), 0 before 1.

    >>> equalising_scales(np.array([[[8.0, 2.0], [5.0, 5.0]], [[6.0, 4.0], [5.0, 5.0]]])).round(4).tolist()
    [[[0.875, 1.5], [1.0, 1.0]], [[1.1667, 0.75], [1.0, 1.0]]]
    """
    total = mass.sum(axis=-1, keepdims=True)
    share = np.divide(mass, total, out=np.zeros_like(mass), where=total > 0)
    target = share.mean(axis=-3, keepdims=True)
    there = (mass > 0).all(axis=(-3, -1), keepdims=True)
    return np.divide(target, share, out=np.full_like(mass, np.nan), where=np.broadcast_to(there, mass.shape))


def equalising_weights(y: ArrayLike, group: ArrayLike, mark: ArrayLike, weight: ArrayLike | None = None) -> Floats:
    """The weight of each row; 0 where label, group or mark is not known, NaN where the target cannot be reached.

    `group` and `mark`: places from 0, -1 = not known; marks are 1 and 0. `weight` counts rows.

    >>> equalising_weights([0, 0, 0, 0, 0, 0, 1], [0, 0, 0, 1, 1, -1, 1], [1, 0, 0, 1, 0, 1, 1]).round(4).tolist()
    [1.25, 0.875, 0.875, 0.8333, 1.1667, 0.0, nan]
    """
    labels, groups = np.asarray(y, dtype=np.float64), np.asarray(group, dtype=np.int64)
    marks = np.asarray(mark, dtype=np.int64)
    rows = np.ones(len(labels)) if weight is None else np.asarray(weight, dtype=np.float64)
    same_length(y=labels, group=groups, mark=marks, weight=rows)
    cell = cells_of(labels, groups, marks, 2)
    scale = equalising_scales(cell_sums(cell, rows, int(groups.max(initial=-1)) + 1)).reshape(-1)
    out = np.zeros(len(labels))
    out[cell >= 0] = rows[cell >= 0] * scale[cell[cell >= 0]]
    return out


def cell_sums(cell: NDArray[np.int32], weight: Floats, n_groups: int) -> Floats:
    """Weight of the rows of each cell (of `cells_of`, -1 = none), (groups, 2 labels, 2 values of the mark)."""
    inside = cell >= 0
    return np.bincount(cell[inside], weight[inside], n_groups * 4).astype(np.float64).reshape(n_groups, 2, 2)
