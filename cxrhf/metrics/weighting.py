"""Labels and pre-test probabilities -> weights that take the context out, and what those weights cost.

IPW and ATT answer different questions. IPW asks for the whole population with context made independent of the
label; ATT asks for negatives whose context looks like that of the positives, the question matching answers too.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cxrhf.metrics.checks import (
    Floats,
    InputError,
    as_fraction,
    as_labels,
    as_probabilities,
    as_scores,
    as_weights,
    one_of,
    same_length,
)

# Below these the weighted numbers rest on too few rows to be believed (methods: warn).
LEAST_SHARE = 0.3
LEAST_ROWS = 100


class EffectiveSize(NamedTuple):
    """Kish's effective number of rows, in total and per class; the total alone hides the collapse of a class."""

    total: float
    positive: float
    negative: float


class Balance(NamedTuple):
    """Similarity of the pre-test probabilities of positives and negatives (after weighting)."""

    mean_positive: float
    mean_negative: float
    standardised_difference: float
    ks: float
    overlap: float


class QuantileGroups(NamedTuple):
    """Masks of the rows with low, medium and high pre-test probability; `shares` is the achieved shares."""

    bottom: NDArray[np.bool_]
    middle: NDArray[np.bool_]
    top: NDArray[np.bool_]
    shares: tuple[float, float, float]


def _context_input(y: ArrayLike, pretest: ArrayLike, clip: float) -> tuple[Floats, Floats]:
    labels = as_labels(y)
    q = as_probabilities(pretest, "pretest")
    same_length(y=labels, pretest=q)
    if not 0 < clip < 0.5:
        raise InputError(
            f"clip: expected a number above 0 (probabilities 0 and 1 have no finite weight) and below 0.5, got {clip!r}"
        )
    return labels, np.clip(q, clip, 1 - clip)


def ipw_weights(y: ArrayLike, pretest: ArrayLike, prevalence: float, clip: float = 0.001) -> Floats:
    """Inverse probability weights P(Y=y) / P(Y=y | context), scaled to sum to the number of rows (CONTEXT eq. 1).

    `prevalence` is that of the training set. Calibration error and Brier skill depend on it; AUROC, sensitivity and
    specificity do not. Pre-test probabilities are clipped to [clip, 1 - clip].

    >>> ipw_weights([1, 0], [0.2, 0.2], prevalence=0.2).tolist()
    [1.0, 1.0]
    """
    labels, q = _context_input(y, pretest, clip)
    marginal = as_fraction(prevalence, "prevalence")
    weight = np.where(labels == 1, marginal / q, (1 - marginal) / (1 - q))
    return np.asarray(weight * (len(weight) / weight.sum()) if len(weight) else weight, dtype=np.float64)


def att_weights(y: ArrayLike, pretest: ArrayLike, clip: float = 0.001) -> Floats:
    """ATT weights: 1 for positives and q/(1-q) for negatives, so that negatives get the context of the positives.

    >>> att_weights([1, 0, 0], [0.9, 0.5, 0.2]).tolist()
    [1.0, 1.0, 0.25]
    """
    labels, q = _context_input(y, pretest, clip)
    return np.asarray(np.where(labels == 1, 1.0, q / (1 - q)), dtype=np.float64)


def _kish(weight: Floats) -> float:
    square = float((weight**2).sum())
    return float(weight.sum() ** 2 / square) if square > 0 else 0.0


def effective_sample_size(weight: ArrayLike, y: ArrayLike | None = None) -> EffectiveSize:
    """Kish's effective sample size, (sum w)^2 / sum w^2; with `y` also per class (otherwise NaN)."""
    weights = as_weights(weight, np.size(weight))
    if y is None:
        return EffectiveSize(_kish(weights), np.nan, np.nan)
    labels = as_labels(y)
    same_length(weight=weights, y=labels)
    return EffectiveSize(_kish(weights), _kish(weights[labels == 1]), _kish(weights[labels == 0]))


def rescale_to_prevalence(y: ArrayLike, weight: ArrayLike, prevalence: float) -> Floats:
    """Scale the weights of the classes to a weighted prevalence of `prevalence`, without changing their total.

    Use it for calibration error and Brier skill on a matched (50%) or ATT-weighted set, so that values are comparable
    with those of the original set. Probabilities stay unchanged.
    """
    labels = as_labels(y)
    weights = as_weights(weight, len(labels))
    target = as_fraction(prevalence, "prevalence")
    total, hits = weights.sum(), weights[labels == 1].sum()
    if not 0 < hits < total:
        return np.full(len(labels), np.nan)
    return np.asarray(
        weights * np.where(labels == 1, target * total / hits, (1 - target) * total / (total - hits)), dtype=np.float64
    )


def balance(y: ArrayLike, pretest: ArrayLike, weight: ArrayLike | None = None) -> Balance:
    """Compare pre-test probabilities of the classes: means, standardised difference, KS distance, overlap.

    The standardised difference is divided by the root mean of the two unweighted class variances, so values before and
    after weighting have the same scale. It is infinite if neither class varies and their values differ. Overlap is
    1 - total variation over 20 cells of equal pooled (unweighted) size: 1 for equal distributions, 0 for disjoint ones.
    NaN if a class is missing.
    """
    labels = as_labels(y)
    q = as_scores(pretest, "pretest")
    same_length(y=labels, pretest=q)
    weights = as_weights(weight, len(labels))
    positive = labels == 1
    if weights[positive].sum() == 0 or weights[~positive].sum() == 0:
        return Balance(np.nan, np.nan, np.nan, np.nan, np.nan)
    share_pos = np.where(positive, weights, 0) / weights[positive].sum()
    share_neg = np.where(positive, 0, weights) / weights[~positive].sum()
    mean_pos, mean_neg = float(share_pos @ q), float(share_neg @ q)
    constant = np.ptp(q[positive]) == 0 and np.ptp(q[~positive]) == 0  # whose variance may be rounding, not 0
    if constant:
        apart = float(q[positive][0] - q[~positive][0])
        standardised = float(np.copysign(np.inf, apart)) if apart else 0.0
    else:
        standardised = float((mean_pos - mean_neg) / np.sqrt((q[positive].var() + q[~positive].var()) / 2))
    values, place = np.unique(q, return_inverse=True)
    gap = np.cumsum(np.bincount(place, share_pos - share_neg))
    pooled_rank = (np.cumsum(np.bincount(place)) - np.bincount(place) / 2) / len(q)
    cell = np.minimum((pooled_rank * 20).astype(int), 19)[place]
    moved = np.abs(np.bincount(cell, share_pos - share_neg, 20)).sum() / 2
    return Balance(
        mean_pos,
        mean_neg,
        standardised,
        float(np.abs(gap).max()) if len(values) > 1 else 0.0,
        float(1 - moved),
    )


def quantile_groups(
    pretest: ArrayLike,
    cuts: tuple[float, float] = (0.25, 0.75),
    rule: str = "midrank",
    weight: ArrayLike | None = None,
) -> QuantileGroups:
    """Split rows into strata of low, medium and high pre-test probability: 25%, 50% and 25% by default.

    rule "midrank" (default): by the share of the sample below a row, with ties counted half, so equal values stay
    together and the strata are symmetric. With `weight`, a row of weight 2 counts as two rows. "inclusive" (the code
    of CONTEXT, unweighted): values up to the lower quantile and from the upper quantile, so the strata overlap if the
    two quantiles are equal.
    """
    q = as_scores(pretest, "pretest")
    one_of(rule, "rule", ("midrank", "inclusive"))
    low, high = (as_fraction(c, "cuts") for c in cuts)
    if low > high:
        raise InputError(f"cuts: expected two ascending fractions, got {cuts!r}")
    if rule == "inclusive" and weight is not None:
        raise InputError("rule: expected 'midrank' with weight, got 'inclusive'")
    mass = as_weights(weight, len(q))
    if mass.sum() == 0:
        none = np.zeros(len(q), dtype=np.bool_)
        return QuantileGroups(none, none, none, (np.nan, np.nan, np.nan))
    if rule == "midrank":
        _, value = np.unique(q, return_inverse=True)
        at_value = np.bincount(value, mass)
        place = ((np.cumsum(at_value) - at_value / 2) / mass.sum())[value]
        bottom, top = place < low, place > high
    else:
        bottom, top = q <= np.quantile(q, low), q >= np.quantile(q, high)
    middle = ~bottom & ~top
    low_share, middle_share, high_share = (float(mass[group].sum() / mass.sum()) for group in (bottom, middle, top))
    return QuantileGroups(bottom, middle, top, (low_share, middle_share, high_share))
