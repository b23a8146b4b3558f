"""Labels and probabilities -> where and how they part: reliability table, calibration line, Brier decomposition."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import stdtrit

from cxrhf.metrics.checks import Floats, as_clusters, as_count, as_fraction, binary_input, same_length, wilson
from cxrhf.metrics.compiled import compiled
from cxrhf.metrics.ranking import rank_rows

# Probabilities of exactly 0 or 1 have no log odds; the calibration line moves them in by this much.
LOGIT_CLIP = 1e-9


class Reliability(NamedTuple):
    """One entry per bin of equal weight: mean probability, mean label with its interval, weight."""

    mean_p: Floats
    mean_y: Floats
    low: Floats
    high: Floats
    weight: Floats


class CalibrationLine(NamedTuple):
    """Logistic regression of the label on the log odds. Calibrated: slope 1, intercept 0, in_the_large 0."""

    slope: float
    intercept: float
    in_the_large: float


class BrierParts(NamedTuple):
    """Brier = calibration + refinement; refinement = uncertainty - discrimination."""

    brier: float
    calibration: float
    refinement: float
    discrimination: float
    uncertainty: float


@compiled
def log_odds(p: Any, out: Any) -> None:
    """Log odds of probabilities, moved in from 0 and 1."""
    for i in range(p.shape[0]):
        q = min(max(p[i], LOGIT_CLIP), 1 - LOGIT_CLIP)
        out[i] = np.log(q / (1 - q))


@compiled
def line_from(y: Any, x: Any, w: Any, fit_slope: bool, a: float, b: float) -> Any:
    """(intercept, slope) of the weighted logistic regression of y on x, by Newton steps from (a, b).

    A step that does not shrink the gradient is taken back by half (the likelihood is concave, so a short enough
    step always does). NaN when a class is missing or x separates the classes: then there is no maximum.
    """
    nothing = (np.nan, np.nan)
    low0, high0, low1, high1 = np.inf, -np.inf, np.inf, -np.inf
    for i in range(x.shape[0]):
        if w[i] > 0:
            if y[i] == 1:
                low1, high1 = min(low1, x[i]), max(high1, x[i])
            else:
                low0, high0 = min(low0, x[i]), max(high0, x[i])
    if low0 > high0 or low1 > high1 or (fit_slope and (high0 <= low1 or high1 <= low0)):
        return nothing
    steep = np.inf
    step_a = 0.0
    step_b = 0.0
    for _ in range(100):
        ga = 0.0
        gb = 0.0
        haa = 0.0
        hab = 0.0
        hbb = 0.0
        for i in range(y.shape[0]):
            if w[i] == 0:
                continue
            m = 1 / (1 + np.exp(-(a + b * x[i])))
            r = w[i] * (y[i] - m)
            v = w[i] * m * (1 - m)
            ga += r
            gb += r * x[i]
            haa += v
            hab += v * x[i]
            hbb += v * x[i] * x[i]
        now = np.hypot(ga, gb) if fit_slope else abs(ga)
        if now > steep:
            step_a *= 0.5
            step_b *= 0.5
            a -= step_a
            b -= step_b
            if abs(step_a) < 1e-12 * (1 + abs(a)) and abs(step_b) < 1e-12 * (1 + abs(b)):
                return (a, b)
            continue
        steep = now
        if fit_slope:
            det = haa * hbb - hab * hab
            if det <= 1e-12 * haa * hbb:
                return nothing
            step_a = (hbb * ga - hab * gb) / det
            step_b = (haa * gb - hab * ga) / det
        else:
            if haa <= 1e-300:
                return nothing
            step_a = ga / haa
            step_b = 0.0
        a += step_a
        b += step_b
        if abs(step_a) < 1e-6 * (1 + abs(a)) and abs(step_b) < 1e-6 * (1 + abs(b)):
            return (a, b)  # the error left is the square of that
    return nothing


@compiled
def calibration_line_sorted(y: Any, p: Any, w: Any, fit_slope: bool) -> Any:
    """(intercept, slope) of the label on the log odds of p; order does not matter."""
    x = np.empty(p.shape[0])
    log_odds(p, x)
    return line_from(y, x, w, fit_slope, 0.0, 1.0)


def calibration_line(y: ArrayLike, p: ArrayLike, weight: ArrayLike | None = None) -> CalibrationLine:
    """Slope and intercept of logit P(y) = intercept + slope * logit p, and the intercept at slope 1.

    A slope below 1 means that probabilities are too extreme; `in_the_large` above 0 means that they are too low on
    average. Probabilities of 0 and 1 are clipped by 1e-9. NaN with a single class, with constant p, or if p separates
    the classes.
    """
    labels, scores, weights = binary_input(y, p, weight, probability=True)
    intercept, slope = calibration_line_sorted(labels, scores, weights, True)
    in_the_large, _ = calibration_line_sorted(labels, scores, weights, False)
    return CalibrationLine(float(slope), float(intercept), float(in_the_large))


def pav_decomposition(y: ArrayLike, p: ArrayLike, weight: ArrayLike | None = None) -> BrierParts:
    """Decompose the Brier score by isotonic recalibration (pool adjacent violators).

    `calibration` (>= 0) is the part that recalibration removes, `refinement` is the Brier score after recalibration
    (the discrimination loss of IMBALANCE) and `discrimination` is uncertainty - refinement. Recalibration is fitted on
    the same sample, so the decomposition is optimistic in small samples. NaN for an empty sample.
    """
    from scipy.optimize import isotonic_regression

    labels, scores, weights = binary_input(y, p, weight, probability=True)
    keep = weights > 0
    labels, scores, weights = labels[keep], scores[keep], weights[keep]
    if len(labels) == 0:
        return BrierParts(np.nan, np.nan, np.nan, np.nan, np.nan)
    # Equal scores must get one recalibrated value, so they are pooled first.
    _, place = np.unique(scores, return_inverse=True)
    mass = np.bincount(place, weights)
    mean = np.bincount(place, weights * labels) / mass
    recalibrated = np.asarray(isotonic_regression(mean, weights=mass).x)[place]
    total = weights.sum()
    score = float((weights * (scores - labels) ** 2).sum() / total)
    refinement = float((weights * (recalibrated - labels) ** 2).sum() / total)
    prevalence = float((weights * labels).sum() / total)
    uncertainty = prevalence * (1 - prevalence)
    return BrierParts(score, score - refinement, refinement, uncertainty - refinement, uncertainty)


def reliability_table(
    y: ArrayLike,
    p: ArrayLike,
    weight: ArrayLike | None = None,
    bins: int = 10,
    level: float = 0.95,
    clusters: ArrayLike | None = None,
) -> Reliability:
    """Mean label and mean probability in bins of equal weight, as in the exact adaptive calibration error.

    Rows on the edge of two bins count partly in both. Rows with equal scores share their labels. Intervals are Wilson
    intervals with the effective number of rows, or of patients with `clusters`, which follows from the variance of the
    bin's mean over patients. NaN for an empty sample.
    """
    labels, scores, weights = binary_input(y, p, weight, probability=True)
    as_count(bins, "bins")
    as_fraction(level, "level")
    total = weights.sum()
    if total <= 0:
        nothing = np.full(bins, np.nan)
        return Reliability(nothing, nothing, nothing, nothing, np.zeros(bins))
    raw = np.arange(len(labels)) if clusters is None else as_clusters(clusters)
    same_length(y=labels, clusters=raw)
    unit = np.unique(raw, return_inverse=True)[1].reshape(-1)
    ranked = rank_rows(labels, scores, weights)
    # The span of cumulative weight of each run of equal scores; all its rows lie across it evenly.
    starts = np.flatnonzero(np.r_[True, ranked.last[:-1]])
    mass = np.add.reduceat(ranked.weight, starts)
    end = np.cumsum(mass) / total * bins
    begin = end - mass / total * bins
    run = np.cumsum(np.r_[True, ranked.last[:-1]]) - 1
    edges = np.r_[starts, len(run)]
    columns: list[tuple[float, float, float, float, float]] = []
    for k in range(bins):
        # The runs that reach into this bin, and their rows.
        first = min(int(np.searchsorted(end, k, side="right")), len(starts) - 1)
        past = max(int(np.searchsorted(begin, k + 1, side="left")), first + 1)
        rows = slice(edges[first], edges[past])
        inside = np.clip(np.minimum(end[first:past], k + 1) - np.maximum(begin[first:past], k), 0, None)
        with np.errstate(divide="ignore", invalid="ignore"):
            share = np.where(mass[first:past] > 0, inside * (total / bins) / mass[first:past], 0.0)
        part = ranked.weight[rows] * share[run[rows] - first]
        filled = part.sum()
        mean_y, mean_p = float(part @ ranked.y[rows] / filled), float(part @ ranked.p[rows] / filled)
        own = unit[ranked.order[rows]]
        sums = np.bincount(own, part * (ranked.y[rows] - mean_y)) / filled
        there = int((np.bincount(own, part) > 0).sum())
        variance = float((sums**2).sum()) * there / max(there - 1, 1)
        spread = mean_y * (1 - mean_y)
        n = spread / variance if variance > 0 and spread > 0 else float(there)
        low, high = wilson(mean_y, n, float(stdtrit(max(there - 1, 1), 0.5 + level / 2)))
        columns.append((mean_p, mean_y, low, high, float(filled)))
    return Reliability(*(np.array(column) for column in zip(*columns, strict=True)))


# Sorted rows -> the Brier score after isotonic recalibration (pool adjacent violators), in linear time.
#
# Recalibration gives every pool of neighbouring scores its mean label m, so a pool of weight w keeps w m (1 - m) of
# the Brier score: the pools' weights and hits are all that is needed, never the recalibrated values. Where negatives
# follow positives they end up in one pool whatever the counts; such rows are gathered once into groups, and a
# replicate only pools groups.

# Lanes whose sums are taken out together: a cache line of them.
LANES_AT_ONCE = 8


@compiled(error_model="numpy")
def kept_by_pools(hits: Any, misses: Any) -> float:
    """Sum of w m (1 - m) over the pools of groups in ascending order of their scores; both arrays are overwritten."""
    top = -1
    for k in range(hits.shape[0]):
        h, m = hits[k], misses[k]
        if h + m <= 0:
            continue
        # The odds of the pool before are at least as high: not ascending, so they are one pool.
        while top >= 0 and hits[top] * m >= h * misses[top]:
            h += hits[top]
            m += misses[top]
            top -= 1
        top += 1
        hits[top], misses[top] = h, m
    kept = 0.0
    for k in range(top + 1):
        kept += hits[k] * misses[k] / (hits[k] + misses[k])
    return kept


@compiled
def pav_groups(positive: Any, last: Any, group: Any) -> int:
    """Number rows by group: runs of equal scores that share a pool in every replicate; returns how many there are.

    A run joins the group before it when it holds no positive (its mean is 0, never above) or the group no negative.
    """
    n = positive.shape[0]
    found = -1
    pure = False  # the group before has no negative
    i = 0
    while i < n:
        j = i
        any_positive, any_negative = False, False
        while True:
            any_positive = any_positive or positive[j]
            any_negative = any_negative or not positive[j]
            j += 1
            if last[j - 1]:
                break
        if found < 0 or (any_positive and not pure):
            found += 1
            pure = True
        pure = pure and not any_negative
        for k in range(i, j):
            group[k] = found
        i = j
    return found + 1


@compiled(error_model="numpy")
def pav_sorted(y: Any, p: Any, w: Any) -> Any:
    """(calibration, refinement) of rows sorted by score: what recalibration removes of the Brier score, and leaves."""
    n = y.shape[0]
    hits, misses = np.zeros(n), np.zeros(n)
    total, score = 0.0, 0.0
    k = -1
    for i in range(n):
        if i == 0 or p[i] != p[i - 1]:
            k += 1
        hits[k] += w[i] * y[i]
        misses[k] += w[i] * (1 - y[i])
        total += w[i]
        score += w[i] * (p[i] - y[i]) ** 2
    if total <= 0:
        return (np.nan, np.nan)
    kept = kept_by_pools(hits[: k + 1], misses[: k + 1])
    return ((score - kept) / total, kept / total)


@compiled(error_model="numpy")
def pav_lanes(
    y: Any, p: Any, positive: Any, weight: Any, unit: Any, counts: Any, group: Any, sums: Any, out: Any
) -> None:
    """Calibration, out[0], and refinement, out[1], of one label in every lane.

    `group` is that of `pav_groups`, `sums` work space of (2, groups, lanes).
    """
    lanes = counts.shape[1]
    groups = sums.shape[1]
    score = np.zeros(lanes)
    sums[:] = 0.0
    for i in range(y.shape[0]):
        w = weight[i]
        squared = w * (p[i] - y[i]) ** 2
        row = counts[unit[i]]
        own = sums[0 if positive[i] else 1, group[i]]
        for lane in range(lanes):
            own[lane] += w * row[lane]
            score[lane] += squared * row[lane]
    hits, misses = np.empty((LANES_AT_ONCE, groups)), np.empty((LANES_AT_ONCE, groups))
    for start in range(0, lanes, LANES_AT_ONCE):
        here = min(LANES_AT_ONCE, lanes - start)
        for k in range(groups):
            for j in range(here):
                hits[j, k] = sums[0, k, start + j]
                misses[j, k] = sums[1, k, start + j]
        for j in range(here):
            lane = start + j
            total = 0.0
            for k in range(groups):
                total += hits[j, k] + misses[j, k]
            kept = kept_by_pools(hits[j], misses[j])
            out[0, lane] = (score[lane] - kept) / total if total > 0 else np.nan
            out[1, lane] = kept / total if total > 0 else np.nan
