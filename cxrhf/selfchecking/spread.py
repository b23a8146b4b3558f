"""Labels, scores and weights -> standard errors, written out from the textbook: nothing of what is checked is used.

The standard error of an AUROC comes from placements (DeLong): a positive's is the share of negatives below it, a
negative's the share of positives above. What a row adds to the error is its placement less the mean, over the number of
its class; the squares of these sum to the variance.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def auroc_parts(y: NDArray[np.int64], score: Floats, weight: Floats | None = None) -> Floats:
    """What each row adds to the error of the (weighted) AUROC; ties count half."""
    weight = np.ones(len(y)) if weight is None else weight
    parts = np.zeros(len(y))
    for label in (0, 1):
        own, other = y == label, y != label
        order = np.argsort(score[other])
        below = np.r_[0.0, np.cumsum(weight[other][order])] / weight[other].sum()
        ends = [below[np.searchsorted(score[other][order], score[own], side)] for side in ("left", "right")]
        placed = (ends[0] + ends[1]) / 2
        parts[own] = weight[own] * (placed - np.average(placed, weights=weight[own])) / weight[own].sum()
    return np.where(y == 1, parts, -parts)


def error(parts: Floats, patients: NDArray[np.int64] | None = None) -> float:
    """The standard error that the parts sum to; rows of one patient are not independent."""
    return float(np.sqrt(((parts if patients is None else np.bincount(patients, parts)) ** 2).sum()))


def auroc_error(y: NDArray[np.int64], score: Floats, weight: Floats | None = None) -> float:
    """The standard error of the (weighted) AUROC."""
    return error(auroc_parts(y, score, weight))


def mean_error(values: Floats) -> float:
    """The standard error of a mean."""
    return float(np.std(values) / np.sqrt(len(values)))


def share_error(share: float, n: float) -> float:
    """The standard error of a share of `n`, or of as many as weights leave."""
    return float(np.sqrt(share * (1 - share) / n))


def counting(weight: Floats) -> float:
    """How many rows weighted ones count like (Kish)."""
    return float(weight.sum() ** 2 / (weight**2).sum())


def rate_error(rate: float, n: float, fixed: float, n_fixed: float, slope: float) -> float:
    """The standard error of a rate at a threshold that fixes another class's rate.

    `slope`: how much the rate changes when the fixed one does, the ratio of the two densities at the threshold.
    """
    return float(np.hypot(share_error(rate, n), slope * share_error(fixed, n_fixed)))
