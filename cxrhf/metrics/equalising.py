"""Labels, groups and a mark in some pictures -> weights after which every group has the mark equally often (SLICES).

SLICES compares AUROC by sex on a test set in which men and women have chest drains equally often: what is left of the
gap there does not come from who has a drain. Here no row is drawn or dropped; the same is reached by weights

    w = P*(a | d) / P(a | r, d)    with P*(a | d) the plain mean over the groups r of P(a | r, d)

for label d and mark a (1 or 0). Within each label every group then has the mark's mean share; how many rows of each
label a group has stays as it is. Where nobody of a group and label has the mark, or nobody lacks it, no weight can
reach the target: the weights of that label are NaN in all groups.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cxrhf.metrics.balancing import cells_of
from cxrhf.metrics.checks import Floats, same_length


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
