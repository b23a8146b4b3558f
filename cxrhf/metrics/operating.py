"""Labels and scores -> operating points: thresholds, and the rates a threshold reaches.

Everywhere `score >= threshold` is called positive. An infinite threshold calls nothing positive.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cxrhf.metrics.checks import Floats, InputError, as_fraction, binary_input, one_of
from cxrhf.metrics.compiled import compiled
from cxrhf.metrics.ranking import RocCurve, rank_rows, roc_curve
from cxrhf.metrics.sums import sum_metric, total_sums, value_of

# Rates are ratios of sums; this much rounding must not push a point over its limit.
TOLERANCE = 1e-12

SPECIFICITY_RULES = ("conservative", "plus_one", "nearest", "nearest_first", "interp")
FPR_RULES = ("nearest", "nearest_all", "conservative")


class OperatingPoint(NamedTuple):
    """A threshold with the sensitivity and the specificity it reaches on the sample."""

    threshold: float
    sensitivity: float
    specificity: float


class Rates(NamedTuple):
    """Rates at one threshold; each is NaN if its denominator is empty."""

    tpr: float
    fpr: float
    precision: float
    npv: float
    f1: float
    mcc: float
    j: float


@compiled
def conservative_sorted(y: Any, p: Any, w: Any, allowed: float, extra: float) -> Any:
    """(threshold, sensitivity, specificity) at the lowest threshold whose false positive rate is at most `allowed`.

    `extra` is counted as one more false alarm of that many mean negative weights: 0 for the plain rule.
    """
    negatives = 0.0
    positives = 0.0
    n_negative = 0
    for i in range(y.shape[0]):
        if y[i] == 1:
            positives += w[i]
        else:
            negatives += w[i]
            n_negative += w[i] > 0
    if positives <= 0 or negatives <= 0:
        return (np.nan, np.nan, np.nan)
    more = extra * negatives / n_negative
    threshold = np.inf
    best_hits = 0.0
    best_alarms = 0.0
    hits = 0.0
    alarms = 0.0
    for k in range(y.shape[0]):
        i = y.shape[0] - 1 - k
        if y[i] == 1:
            hits += w[i]
        else:
            alarms += w[i]
        if i == 0 or p[i - 1] != p[i]:
            if (alarms + more) / (negatives + more) > allowed + TOLERANCE:
                break
            if hits > best_hits or alarms > best_alarms:  # a score without weight is no threshold of this sample
                threshold = p[i]
                best_hits = hits
                best_alarms = alarms
    return (threshold, best_hits / positives, 1 - best_alarms / negatives)


def _corners(curve: RocCurve) -> NDArray[np.int64]:
    """Points where the ROC curve turns, with the first and the last: what public code keeps by default."""
    if len(curve.fpr) <= 3:
        return np.arange(len(curve.fpr))
    turns = (np.abs(np.diff(curve.fpr[1:], 2)) > TOLERANCE) | (np.abs(np.diff(curve.tpr[1:], 2)) > TOLERANCE)
    return np.flatnonzero(np.r_[True, True, turns, True])


def _nearest(curve: RocCurve, fpr: float, among: NDArray[np.int64]) -> int:
    return int(among[np.argmin(np.abs(curve.fpr[among] - fpr))])


def sensitivity_at_specificity(
    y: ArrayLike,
    p: ArrayLike,
    specificity: float = 0.95,
    weight: ArrayLike | None = None,
    rule: str = "conservative",
) -> OperatingPoint:
    """Sensitivity at a given specificity, with the threshold and the specificity reached; higher is better.

    rule "conservative" (default): the lowest threshold whose empirical false positive rate is at most 1 - specificity,
    which gives the largest sensitivity. Its expected false positive rate on new negatives is
    (floor(0.05 n) + 1)/(n + 1) for a specificity of 0.95, so with fewer than about 400 negatives also consider
    "plus_one", which keeps (false positives + 1)/(n + 1) within the limit. "nearest": the ROC point nearest to the
    requested rate. "nearest_first": the first of the nearest corners of the ROC curve (the public code of CONTEXT).
    "interp": sensitivity interpolated between neighbouring points, with the conservative threshold. NaN without
    positives or without negatives.

    >>> sensitivity_at_specificity([0, 0, 0, 0, 1, 1], [0.1, 0.2, 0.3, 0.6, 0.5, 0.9], specificity=0.75)
    OperatingPoint(threshold=0.5, sensitivity=1.0, specificity=0.75)
    """
    labels, scores, weights = binary_input(y, p, weight)
    allowed = 1 - as_fraction(specificity, "specificity")
    one_of(rule, "rule", SPECIFICITY_RULES)
    if rule in ("nearest", "nearest_first"):
        curve = roc_curve(labels, scores, weights)
        if np.isnan(curve.fpr[-1]) or np.isnan(curve.tpr[-1]):
            return OperatingPoint(np.nan, np.nan, np.nan)
        at = _nearest(curve, allowed, np.arange(len(curve.fpr)) if rule == "nearest" else _corners(curve))
        return OperatingPoint(float(curve.threshold[at]), float(curve.tpr[at]), float(1 - curve.fpr[at]))
    ranked = rank_rows(labels, scores, weights)
    extra = 1.0 if rule == "plus_one" else 0.0
    point = OperatingPoint(*conservative_sorted(ranked.y, ranked.p, ranked.weight, allowed, extra))
    if rule != "interp" or np.isnan(point.sensitivity):
        return point
    curve = roc_curve(labels, scores, weights)
    beyond = int(np.argmax(curve.fpr > allowed + TOLERANCE))
    low, high = curve.fpr[beyond - 1], curve.fpr[beyond]
    share = (allowed - low) / (high - low)
    tpr = curve.tpr[beyond - 1] + share * (curve.tpr[beyond] - curve.tpr[beyond - 1])
    return OperatingPoint(point.threshold, float(tpr), 1 - allowed)


@compiled
def fpr_sorted(y: Any, p: Any, w: Any, fpr: float, rule: int) -> int:
    """Where the rows called positive begin (rows by ascending score) when the false positive rate is to be `fpr`.

    The number of rows when nothing is called, -1 without negatives. `rule` is a place in FPR_RULES. A score without
    weight is no point of the curve. The walk goes down from the highest score; a point is a corner when the step to it
    and the step from it differ, so the point before is judged when the next one is known.
    """
    n = y.shape[0]
    positives = 0.0
    negatives = 0.0
    for i in range(n):  # products instead of a branch: labels come in no order that a processor could guess
        positives += w[i] * y[i]
        negatives += w[i] * (1 - y[i])
    if negatives <= 0:
        return -1
    per_negative = 1 / negatives
    per_positive = 1 / positives if positives > 0 else 0.0
    corners = rule == 0 and positives > 0  # without positives there is no curve that could turn
    best, gap = n, fpr
    hits, alarms, mass = 0.0, 0.0, 0.0
    points, place = 0, n  # points so far, and where the last of them begins
    rate, share, run, rise = 0.0, 0.0, 0.0, 0.0  # its false and true positive rate, and the step to it
    for k in range(n):
        i = n - 1 - k
        mass += w[i]
        hits += w[i] * y[i]
        alarms += w[i] * (1 - y[i])
        if (i > 0 and p[i - 1] == p[i]) or mass <= 0:
            continue
        mass = 0.0
        reached = alarms * per_negative
        if rule == 2:
            if reached > fpr + TOLERANCE:
                break
            best = i
            continue
        recalled = hits * per_positive
        turned = points > 1 and (abs(reached - rate - run) > TOLERANCE or abs(recalled - share - rise) > TOLERANCE)
        if corners and turned and abs(rate - fpr) < gap - TOLERANCE:
            best, gap = place, abs(rate - fpr)
        if (not corners or points == 0) and abs(reached - fpr) < gap - TOLERANCE:
            best, gap = i, abs(reached - fpr)
        if reached - fpr > gap:  # from here on the rate only moves away
            return best
        points, place, run, rise, rate, share = points + 1, i, reached - rate, recalled - share, reached, recalled
    if rule != 2 and abs(rate - fpr) < gap - TOLERANCE:  # the last point is kept though nothing turns there
        best = place
    return best


def threshold_at_fpr(
    y: ArrayLike, p: ArrayLike, fpr: float = 0.2, weight: ArrayLike | None = None, rule: str = "nearest"
) -> float:
    """Threshold whose false positive rate is nearest to `fpr` (ENCODING uses 0.2). NaN without negatives.

    rule "nearest" (default): the nearest corner of the ROC curve, as in the public code of ENCODING. "nearest_all": the
    nearest of all points. "conservative": the lowest threshold that does not exceed `fpr`. Of equally near points, up
    to rounding, the one with the highest threshold is chosen. At a threshold of infinity, no row is predicted positive.

    >>> threshold_at_fpr([0, 0, 0, 0, 0, 1, 1], [0.1, 0.2, 0.3, 0.4, 0.7, 0.6, 0.9])
    0.7
    """
    as_fraction(fpr, "fpr")
    one_of(rule, "rule", FPR_RULES)
    ranked = rank_rows(*binary_input(y, p, weight))
    start = fpr_sorted(ranked.y, ranked.p, ranked.weight, float(fpr), FPR_RULES.index(rule))
    if start < 0:
        return float("nan")
    return float(ranked.p[start]) if start < len(ranked.p) else float("inf")


@compiled
def best_sorted(y: Any, p: Any, w: Any, youden: bool) -> Any:
    """(threshold, value) of the largest Youden's J (first from above) or F1 (lowest threshold that reaches it)."""
    positives = (w * y).sum()
    negatives = w.sum() - positives
    if positives <= 0 or (youden and negatives <= 0):
        return (np.nan, np.nan)
    best = -1.0
    threshold = np.inf
    hits = 0.0
    alarms = 0.0
    for k in range(y.shape[0]):
        i = y.shape[0] - 1 - k
        if y[i] == 1:
            hits += w[i]
        else:
            alarms += w[i]
        if i == 0 or p[i - 1] != p[i]:
            if youden:
                value = hits / positives - alarms / negatives
                better = value > best + TOLERANCE
            else:
                value = 2 * hits / (hits + alarms + positives)
                better = value >= best
            if better:
                best = value
                threshold = p[i]
    return (threshold, best)


def max_f1_threshold(y: ArrayLike, p: ArrayLike, weight: ArrayLike | None = None) -> float:
    """Threshold with the largest F1; the lowest of ties. Choose it on a tuning set. NaN without positives."""
    ranked = rank_rows(*binary_input(y, p, weight))
    return float(best_sorted(ranked.y, ranked.p, ranked.weight, False)[0])


def youden_threshold(y: ArrayLike, p: ArrayLike, weight: ArrayLike | None = None) -> float:
    """Threshold with the largest Youden's J = TPR - FPR; the highest of ties. NaN if a class is missing."""
    ranked = rank_rows(*binary_input(y, p, weight))
    return float(best_sorted(ranked.y, ranked.p, ranked.weight, True)[0])


def _as_threshold(threshold: float) -> float:
    if isinstance(threshold, (bool, str)) or np.isnan(threshold):
        raise InputError(f"threshold: expected a number (infinity for no predicted positives), got {threshold!r}")
    return float(threshold)


def rates_at(y: ArrayLike, p: ArrayLike, threshold: float, weight: ArrayLike | None = None) -> Rates:
    """TPR, FPR, precision, NPV, F1, MCC and Youden's J, where rows with `p >= threshold` are predicted positive.

    >>> rates_at([0, 0, 1, 1], [0.1, 0.6, 0.6, 0.9], 0.6)[:3]
    (1.0, 0.5, 0.6666666666666666)
    """
    labels, scores, weights = binary_input(y, p, weight)
    at = _as_threshold(threshold)
    sums = total_sums("tpr", labels, scores, weights, at)
    return Rates(*(float(value_of(name, sums, at)) for name in Rates._fields))


def net_benefit(y: ArrayLike, p: ArrayLike, threshold: float, weight: ArrayLike | None = None) -> float:
    """Net benefit of treating at a risk of `threshold` (decision curve analysis); at most the prevalence.

    True positives minus false positives, weighted by the odds of the threshold, per row. Higher is better. `p` must be
    probabilities. NaN for an empty sample.
    """
    labels, scores, weights = binary_input(y, p, weight, probability=True)
    return sum_metric("net_benefit", labels, scores, weights, as_fraction(threshold, "threshold"))


def false_positive_rate_to_expect(n_negative: int, specificity: float = 0.95) -> float:
    """The expected false positive rate on new negatives of the conservative threshold from `n_negative` of them."""
    if n_negative < 1:
        return float("nan")
    allowed = 1 - as_fraction(specificity, "specificity")
    return float((np.floor(allowed * n_negative + TOLERANCE) + 1) / (n_negative + 1))


def roc_at(curve: RocCurve, fpr: Floats) -> Floats:
    """Sensitivity of a ROC curve at given false positive rates (the upper end of a vertical step)."""
    place = np.searchsorted(curve.fpr, np.asarray(fpr) + TOLERANCE, side="right") - 1
    return np.asarray(curve.tpr[place], dtype=np.float64)
