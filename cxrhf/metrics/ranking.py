"""Labels and scores -> how well the scores rank: AUROC, average precision, ROC and precision-recall curves.

One kernel computes AUROC for several count vectors at once; the point estimate is the case where all
counts are 1. The bootstrap (resample.py) hands it drawn counts instead of copying rows, so both are one number.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cxrhf.metrics.checks import Floats, as_clusters, as_labels, as_scores, binary_input, same_length
from cxrhf.metrics.compiled import compiled


class Ranked(NamedTuple):
    """Rows by ascending score; `last` marks the last row of each run of equal scores."""

    order: NDArray[np.int64]
    y: Floats
    p: Floats
    weight: Floats
    last: NDArray[np.bool_]


class RocCurve(NamedTuple):
    """Points from (0, 0) to (1, 1), one per distinct score; rows with `score >= threshold` are predicted positive."""

    fpr: Floats
    tpr: Floats
    threshold: Floats


class PrCurve(NamedTuple):
    """Points from recall 0 (precision 1 by convention) to recall 1, one per distinct score."""

    recall: Floats
    precision: Floats
    threshold: Floats


class Estimate(NamedTuple):
    """A value with its standard error."""

    value: float
    se: float


def rank_rows(y: Floats, p: Floats, weight: Floats) -> Ranked:
    """Sort checked rows once for every kernel that follows; a row of weight 0 is no row."""
    kept = np.flatnonzero(weight > 0)
    order = kept[np.argsort(p[kept], kind="stable")]
    sorted_p = p[order]
    last = np.ones(len(order), dtype=np.bool_)
    last[:-1] = sorted_p[1:] != sorted_p[:-1]
    return Ranked(order, y[order], sorted_p, weight[order], last)


@compiled(fastmath={"contract"})
def auroc_lanes(
    positive: Any, weight: Any, last: Any, unit: Any, counts: Any, below: Any, area: Any, tied: Any, out: Any
) -> None:
    """AUROC of several count vectors over rows sorted by score; row i counts `weight[i] * counts[unit[i], lane]` times.

    `below`, `area` and `tied` are work space, `out` the result, all with one place per lane, passed in so that
    nothing is allocated in the hot loop. Ties count half: within a run of equal scores each positive beats the
    negatives below and half of the run's own.
    """
    lanes = counts.shape[1]
    for lane in range(lanes):
        below[lane] = 0.0
        area[lane] = 0.0
        out[lane] = 0.0
    i = 0
    n = positive.shape[0]
    while i < n:
        if last[i]:  # a score that occurs once: the common case, no run to collect
            w = weight[i]
            row = counts[unit[i]]
            if positive[i]:
                for lane in range(lanes):
                    c = w * row[lane]
                    area[lane] += c * below[lane]
                    out[lane] += c
            else:
                for lane in range(lanes):
                    below[lane] += w * row[lane]
            i += 1
            continue
        for lane in range(lanes):
            tied[0, lane] = 0.0
            tied[1, lane] = 0.0
        while True:
            w = weight[i]
            row = counts[unit[i]]
            side = 1 if positive[i] else 0
            for lane in range(lanes):
                tied[side, lane] += w * row[lane]
            i += 1
            if last[i - 1]:
                break
        for lane in range(lanes):
            area[lane] += tied[1, lane] * (below[lane] + 0.5 * tied[0, lane])
            below[lane] += tied[0, lane]
            out[lane] += tied[1, lane]
    for lane in range(lanes):
        pairs = out[lane] * below[lane]
        # Rounding of weighted sums must not lift a perfect ranking above 1.
        out[lane] = min(area[lane] / pairs, 1.0) if pairs > 0 else np.nan


def auroc_of(ranked: Ranked) -> float:
    """AUROC of sorted rows, each counted once."""
    out = np.empty(1)
    once = np.ones((1, 1), dtype=np.uint8)
    unit = np.zeros(len(ranked.y), dtype=np.int32)
    below, area, tied = np.empty(1), np.empty(1), np.empty((2, 1))
    auroc_lanes(ranked.y == 1, ranked.weight, ranked.last, unit, once, below, area, tied, out)
    return float(out[0])


def auroc(y: ArrayLike, p: ArrayLike, weight: ArrayLike | None = None) -> float:
    """Area under the ROC curve: the probability that a positive scores above a negative; 0 to 1, higher is better.

    Ties count half. Weights multiply pairs, as in scikit-learn. NaN without positives or without negatives.

    >>> auroc([0, 0, 1, 1], [0.1, 0.4, 0.35, 0.8])
    0.75
    >>> auroc([0, 1, 1], [0.5, 0.5, 0.9], weight=[1, 1, 3])
    0.875
    >>> auroc([1, 1], [0.2, 0.3])
    nan
    """
    return auroc_of(rank_rows(*binary_input(y, p, weight)))


@compiled
def pr_area_sorted(y: Any, p: Any, w: Any, trapezoid: bool) -> float:
    """Area under the precision-recall curve over distinct scores, from the highest: by steps, or by straight lines
    that start at recall 0, precision 1."""
    positives = 0.0
    for i in range(y.shape[0]):
        positives += w[i] * y[i]
    if positives <= 0.0 or positives >= w.sum():
        return np.nan
    hits = 0.0
    called = 0.0
    recalled = 0.0
    before = 1.0
    area = 0.0
    for k in range(y.shape[0]):
        i = y.shape[0] - 1 - k
        hits += w[i] * y[i]
        called += w[i]
        if (i == 0 or p[i - 1] != p[i]) and called > 0:
            precision = hits / called
            area += (hits - recalled) * ((before + precision) / 2 if trapezoid else precision)
            recalled = hits
            before = precision
    return area / positives


def average_precision(y: ArrayLike, p: ArrayLike, weight: ArrayLike | None = None) -> float:
    """Average precision: the step-wise area under the precision-recall curve; 0 to 1, higher is better.

    Same definition as in scikit-learn. The value expected by chance is the prevalence. NaN without positives or
    without negatives.

    >>> round(average_precision([0, 0, 1, 1], [0.1, 0.4, 0.35, 0.8]), 6)
    0.833333
    """
    ranked = rank_rows(*binary_input(y, p, weight))
    return float(pr_area_sorted(ranked.y, ranked.p, ranked.weight, False))


def auprc_trapezoid(y: ArrayLike, p: ArrayLike, weight: ArrayLike | None = None) -> float:
    """Area under the precision-recall curve by the trapezoidal rule, 0 to 1; higher is better.

    This is IMBALANCE's AUC-PR. Linear interpolation between points is optimistic; prefer `average_precision`.
    NaN without positives or without negatives.

    >>> round(auprc_trapezoid([0, 0, 1, 1], [0.1, 0.4, 0.35, 0.8]), 6)
    0.791667
    """
    ranked = rank_rows(*binary_input(y, p, weight))
    return float(pr_area_sorted(ranked.y, ranked.p, ranked.weight, True))


def _cumulative(ranked: Ranked) -> tuple[Floats, Floats, Floats]:
    """Weight of negatives and positives at or above each distinct score, from the highest score down."""
    first = np.r_[True, ranked.last[:-1]]  # the run is complete, seen from above, at its first row
    keep = first[::-1]
    false_alarms = np.cumsum((ranked.weight * (1 - ranked.y))[::-1])[keep]
    hits = np.cumsum((ranked.weight * ranked.y)[::-1])[keep]
    return false_alarms, hits, ranked.p[::-1][keep]


def roc_curve(y: ArrayLike, p: ArrayLike, weight: ArrayLike | None = None) -> RocCurve:
    """All points of the ROC curve, without dropping collinear ones. The first threshold is infinity.

    The rate of a class that is missing is NaN.

    >>> curve = roc_curve([0, 0, 1, 1], [0.1, 0.4, 0.35, 0.8])
    >>> curve.fpr.tolist(), curve.tpr.tolist()
    ([0.0, 0.0, 0.5, 0.5, 1.0], [0.0, 0.5, 0.5, 1.0, 1.0])
    """
    ranked = rank_rows(*binary_input(y, p, weight))
    if len(ranked.y) == 0:
        return RocCurve(np.array([np.nan]), np.array([np.nan]), np.array([np.inf]))
    false_alarms, hits, threshold = _cumulative(ranked)
    negatives, positives = false_alarms[-1], hits[-1]
    fpr = np.r_[0.0, false_alarms] / negatives if negatives > 0 else np.full(len(hits) + 1, np.nan)
    tpr = np.r_[0.0, hits] / positives if positives > 0 else np.full(len(hits) + 1, np.nan)
    return RocCurve(fpr, tpr, np.r_[np.inf, threshold])


def pr_curve(y: ArrayLike, p: ArrayLike, weight: ArrayLike | None = None) -> PrCurve:
    """All points of the precision-recall curve, from recall 0 upwards. Recall is NaN without positives.

    >>> pr_curve([0, 0, 1, 1], [0.1, 0.4, 0.35, 0.8]).precision.round(3).tolist()
    [1.0, 1.0, 0.5, 0.667, 0.5]
    """
    ranked = rank_rows(*binary_input(y, p, weight))
    if len(ranked.y) == 0:
        return PrCurve(np.array([np.nan]), np.array([np.nan]), np.array([np.inf]))
    false_alarms, hits, threshold = _cumulative(ranked)
    called = false_alarms + hits
    keep = called > 0  # scores that carry no weight yet have no precision
    false_alarms, hits, threshold, called = false_alarms[keep], hits[keep], threshold[keep], called[keep]
    positives = hits[-1] if len(hits) else 0.0
    recall = np.r_[0.0, hits] / positives if positives > 0 else np.full(len(hits) + 1, np.nan)
    return PrCurve(recall, np.r_[1.0, hits / called], np.r_[np.inf, threshold])


def _placements(y: Floats, p: Floats) -> Floats:
    """For a positive the share of negatives it beats, for a negative the share of positives that beat it."""
    from scipy.stats import rankdata

    positive = y == 1
    n_pos, n_neg = int(positive.sum()), int((~positive).sum())
    midrank = rankdata(p)
    placement = np.empty(len(p))
    placement[positive] = (midrank[positive] - rankdata(p[positive])) / n_neg
    placement[~positive] = 1 - (midrank[~positive] - rankdata(p[~positive])) / n_pos
    return placement


def delong(y: ArrayLike, p: ArrayLike, p_other: ArrayLike | None = None, clusters: ArrayLike | None = None) -> Estimate:
    """AUROC with its analytic standard error, or with `p_other` the difference between two models' AUROCs.

    Use it to cross-check the bootstrap. The variance is DeLong's for independent rows and Obuchowski's if `clusters`
    (patients) have several rows. Takes no weights. NaN with fewer than two clusters in a class.
    """
    labels, scores = as_labels(y), as_scores(p)
    same_length(y=labels, p=scores)
    positive = labels == 1
    n_pos, n_neg = int(positive.sum()), int((~positive).sum())
    if n_pos == 0 or n_neg == 0:
        return Estimate(np.nan, np.nan)
    placement = _placements(labels, scores)
    if p_other is not None:
        other = as_scores(p_other, "p_other")
        same_length(y=labels, p_other=other)
        placement = placement - _placements(labels, other)
    value = float(placement[positive].mean())
    if clusters is None:
        code = np.arange(len(labels))
    else:
        raw = as_clusters(clusters)
        same_length(y=labels, clusters=raw)
        code = np.unique(raw, return_inverse=True)[1]
    n_clusters = int(code.max()) + 1
    deviation = placement - value
    sums_pos = np.bincount(code, np.where(positive, deviation, 0.0), n_clusters)
    sums_neg = np.bincount(code, np.where(positive, 0.0, deviation), n_clusters)
    with_pos = len(np.unique(code[positive]))
    with_neg = len(np.unique(code[~positive]))
    if with_pos < 2 or with_neg < 2:
        return Estimate(value, np.nan)
    variance = (
        with_pos / (with_pos - 1) * (sums_pos**2).sum() / n_pos**2
        + with_neg / (with_neg - 1) * (sums_neg**2).sum() / n_neg**2
        + 2 * n_clusters / (n_clusters - 1) * (sums_pos * sums_neg).sum() / (n_pos * n_neg)
    )
    return Estimate(value, float(np.sqrt(max(variance, 0.0))))
