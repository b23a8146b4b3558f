"""Labels and probabilities -> how far the probabilities can be believed: Brier scores, calibration errors, reliability.

Two names mislead and are spelled out: `balanced_brier` is the *sum* of the two class-wise Brier scores (0 to 2,
IMBALANCE) and not a proper score, so it must never rank calibration; `adaptive_calibration_error` uses bins of
equal weight, and its expectation is above 0 for a perfectly calibrated model and grows as the sample shrinks, so
read it beside `expected_ace` and never compare raw values between groups of different size.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import ArrayLike
from scipy.special import expit, logit

from cxrhf.metrics.checks import (
    Floats,
    InputError,
    as_count,
    as_fraction,
    as_probabilities,
    as_weights,
    binary_input,
    one_of,
)
from cxrhf.metrics.ranking import rank_rows
from cxrhf.metrics.streams import advanced, mixed, stream_key, stream_start, uniform

# Probabilities of exactly 0 or 1 have no log odds; the calibration line moves them in by this much.
LOGIT_CLIP = 1e-9


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


@njit(cache=True, nogil=True)
def brier_sorted(y: Any, p: Any, w: Any, side: int) -> float:
    """Weighted mean squared error; side -1 takes all rows, 0 negatives, 1 positives."""
    total = 0.0
    mass = 0.0
    for i in range(y.shape[0]):
        if side == -1 or y[i] == side:
            total += w[i] * (p[i] - y[i]) ** 2
            mass += w[i]
    return total / mass if mass > 0 else np.nan


def brier(y: ArrayLike, p: ArrayLike, weight: ArrayLike | None = None) -> float:
    """Mean squared error of the probability; 0 to 1, lower is better. NaN on an empty sample.

    >>> round(brier([1, 0, 0], [0.8, 0.3, 0.1]), 6)
    0.046667
    """
    return float(brier_sorted(*binary_input(y, p, weight, probability=True), -1))


def brier_positive(y: ArrayLike, p: ArrayLike, weight: ArrayLike | None = None) -> float:
    """Brier score among positives (IMBALANCE's Brier+); NaN without positives."""
    return float(brier_sorted(*binary_input(y, p, weight, probability=True), 1))


def brier_negative(y: ArrayLike, p: ArrayLike, weight: ArrayLike | None = None) -> float:
    """Brier score among negatives (IMBALANCE's Brier-); NaN without negatives."""
    return float(brier_sorted(*binary_input(y, p, weight, probability=True), 0))


def balanced_brier(y: ArrayLike, p: ArrayLike, weight: ArrayLike | None = None) -> float:
    """Brier+ plus Brier-: a sum, 0 to 2, lower is better. Not a proper score; NaN without either class.

    >>> balanced_brier([1, 0, 0, 0], [0, 0, 0, 0])
    1.0
    """
    labels, scores, weights = binary_input(y, p, weight, probability=True)
    return float(brier_sorted(labels, scores, weights, 1) + brier_sorted(labels, scores, weights, 0))


@njit(cache=True, nogil=True)
def brier_skill_sorted(y: Any, p: Any, w: Any, prevalence: float) -> float:
    """1 - Brier / Brier of a constant forecast; a NaN prevalence means that of the weighted sample."""
    mass = w.sum()
    if mass <= 0:
        return np.nan
    constant = prevalence
    if np.isnan(prevalence):
        constant = (w * y).sum() / mass
    error = 0.0
    reference = 0.0
    for i in range(y.shape[0]):
        error += w[i] * (p[i] - y[i]) ** 2
        reference += w[i] * (constant - y[i]) ** 2
    return 1 - error / reference if reference > 0 else np.nan


def brier_skill_score(
    y: ArrayLike, p: ArrayLike, weight: ArrayLike | None = None, prevalence: float | None = None
) -> float:
    """Share of the Brier score of a constant forecast that the model removes; at most 1, 0 = no skill.

    The constant is the (weighted) prevalence of the evaluated sample. With `prevalence` (CONTEXT eq. 23-24: that of
    the training set) a constant forecast can earn skill. NaN with one class only.

    >>> brier_skill_score([1, 0, 0, 0], [0.25, 0.25, 0.25, 0.25])
    0.0
    >>> brier_skill_score([1, 0], [1, 0])
    1.0
    """
    labels, scores, weights = binary_input(y, p, weight, probability=True)
    constant = np.nan if prevalence is None else as_fraction(prevalence, "prevalence")
    return float(brier_skill_sorted(labels, scores, weights, constant))


@njit(cache=True, nogil=True)
def ace_exact_sorted(y: Any, p: Any, w: Any, bins: int) -> float:
    """Equal-weight bins; equal scores pooled to their mean label, mass across an edge split between both bins."""
    total = w.sum()
    if total <= 0:
        return np.nan
    n = y.shape[0]
    error = 0.0
    inside = 0.0  # signed difference collected in the open bin
    filled = 0.0  # weight used up so far
    edge = 1
    i = 0
    while i < n:
        j = i
        mass = 0.0
        gap = 0.0
        while j < n and p[j] == p[i]:
            mass += w[j]
            gap += w[j] * (p[j] - y[j])
            j += 1
        left = mass
        while mass > 0 and edge < bins and filled + left >= edge * total / bins:
            part = edge * total / bins - filled
            error += abs(inside + gap * (part / mass))
            inside = 0.0
            filled += part
            left -= part
            edge += 1
        if mass > 0 and left > 0:
            inside += gap * (left / mass)
            filled += left
        i = j
    return (error + abs(inside)) / total


@njit(cache=True, nogil=True)
def ace_rows_sorted(y: Any, p: Any, w: Any, bins: int, by_weight: bool) -> float:
    """Whole rows per bin, in sorted order: numpy.array_split's sizes, or the bin in which a row's weight ends.

    Every bin that holds weight counts the same, as in the public code.
    """
    total = w.sum()
    n = y.shape[0]
    if total <= 0:
        return np.nan
    gap = np.zeros(bins)
    mass = np.zeros(bins)
    filled = 0.0
    larger = n % bins
    size = n // bins
    for i in range(n):
        if by_weight:
            filled += w[i]
            place = max(0, min(int(np.ceil(filled / total * bins - 1e-9)) - 1, bins - 1))
        elif i < larger * (size + 1):
            place = i // (size + 1)
        else:
            place = larger + (i - larger * (size + 1)) // size
        gap[place] += w[i] * (p[i] - y[i])
        mass[place] += w[i]
    error = 0.0
    used = 0
    for k in range(bins):
        if mass[k] > 0:
            error += abs(gap[k]) / mass[k]
            used += 1
    return error / used


def adaptive_calibration_error(
    y: ArrayLike, p: ArrayLike, weight: ArrayLike | None = None, bins: int = 10, method: str = "exact"
) -> float:
    """Mean |mean probability - mean label| over bins of equal weight; 0 to 1, lower is better. NaN when empty.

    `exact` (default): bins of exactly equal weight; rows with one score are pooled and split across an edge, so the
    value does not depend on row order. `array_split` (CONTEXT's public code): equal numbers of rows, ties in the
    order given. `whole_rows`: a row goes to the bin in which its cumulative weight ends.

    >>> round(adaptive_calibration_error([0, 0, 1, 1], [0.1, 0.2, 0.7, 0.8], bins=2), 6)
    0.2
    """
    labels, scores, weights = binary_input(y, p, weight, probability=True)
    as_count(bins, "bins")
    one_of(method, "method", ("exact", "array_split", "whole_rows"))
    ranked = rank_rows(labels, scores, weights)
    if method == "exact":
        return float(ace_exact_sorted(ranked.y, ranked.p, ranked.weight, bins))
    return float(ace_rows_sorted(ranked.y, ranked.p, ranked.weight, bins, method == "whole_rows"))


@njit(cache=True, nogil=True)
def _simulated_ace(p: Any, w: Any, bins: int, method: int, n_simulations: int, key: Any) -> float:
    y = np.empty(p.shape[0])
    total = 0.0
    for replicate in range(n_simulations):
        state = stream_start(key, replicate)
        for i in range(p.shape[0]):
            state = advanced(state)
            y[i] = 1.0 if uniform(mixed(state)) < p[i] else 0.0
        if method == 0:
            total += ace_exact_sorted(y, p, w, bins)
        else:
            total += ace_rows_sorted(y, p, w, bins, method == 2)
    return total / n_simulations


def expected_ace(
    p: ArrayLike,
    weight: ArrayLike | None = None,
    bins: int = 10,
    method: str = "exact",
    n_simulations: int = 200,
    seed: int = 0,
) -> float:
    """What `adaptive_calibration_error` would average if these probabilities were perfectly calibrated.

    By simulation of y ~ Bernoulli(p). A measured error near this value is no evidence of miscalibration.
    """
    scores = as_probabilities(p)
    weights = as_weights(weight, len(scores))
    code = ("exact", "array_split", "whole_rows").index(
        one_of(method, "method", ("exact", "array_split", "whole_rows"))
    )
    as_count(n_simulations, "n_simulations")
    ranked = rank_rows(scores, scores, weights)
    return float(_simulated_ace(ranked.p, ranked.weight, as_count(bins, "bins"), code, n_simulations, stream_key(seed)))


@njit(cache=True, nogil=True)
def ece_sorted(y: Any, p: Any, w: Any, bins: int) -> float:
    """Equal-width bins."""
    total = w.sum()
    if total <= 0:
        return np.nan
    gap = np.zeros(bins)
    for i in range(y.shape[0]):
        gap[min(int(p[i] * bins), bins - 1)] += w[i] * (p[i] - y[i])
    return np.abs(gap).sum() / total


def expected_calibration_error(
    y: ArrayLike, p: ArrayLike, weight: ArrayLike | None = None, bins: int = 10
) -> float:
    """The usual ECE: weighted mean |mean probability - mean label| over bins of equal width [k/K, (k+1)/K).

    >>> round(expected_calibration_error([0, 0, 1, 1], [0.1, 0.2, 0.7, 0.8], bins=2), 6)
    0.2
    """
    return float(ece_sorted(*binary_input(y, p, weight, probability=True), as_count(bins, "bins")))


@njit(cache=True, nogil=True)
def calibration_line_sorted(y: Any, p: Any, w: Any, fit_slope: bool) -> Any:
    """(intercept, slope) of the weighted logistic regression of y on logit(p), by Newton steps.

    A step that does not shrink the gradient is taken back by half (the likelihood is concave, so a short enough
    step always does). NaN when a class is missing or the classes are separated: then there is no maximum.
    """
    nothing = (np.nan, np.nan)
    mass = w.sum()
    hits = (w * y).sum()
    if mass <= 0 or hits <= 0 or hits >= mass:
        return nothing
    x = np.empty(p.shape[0])
    for i in range(p.shape[0]):
        q = min(max(p[i], LOGIT_CLIP), 1 - LOGIT_CLIP)
        x[i] = np.log(q / (1 - q))
    a = 0.0
    b = 1.0
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
            if det <= 1e-12 * haa * hbb or abs(b) > 1e3:
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
        if abs(step_a) < 1e-10 * (1 + abs(a)) and abs(step_b) < 1e-10 * (1 + abs(b)):
            return (a, b)
    return nothing


def calibration_line(y: ArrayLike, p: ArrayLike, weight: ArrayLike | None = None) -> CalibrationLine:
    """Slope and intercept of logit P(y) = intercept + slope * logit p, and the intercept at slope 1.

    A slope under 1 means probabilities too extreme, `in_the_large` above 0 means too low on average. Probabilities
    of 0 and 1 are moved in by 1e-9. NaN with one class, with constant p, or when p separates the classes.
    """
    labels, scores, weights = binary_input(y, p, weight, probability=True)
    intercept, slope = calibration_line_sorted(labels, scores, weights, True)
    in_the_large, _ = calibration_line_sorted(labels, scores, weights, False)
    return CalibrationLine(float(slope), float(intercept), float(in_the_large))


def pav_decomposition(y: ArrayLike, p: ArrayLike, weight: ArrayLike | None = None) -> BrierParts:
    """Brier score split by isotonic recalibration: what recalibration would remove, and what it would leave.

    `calibration` = Brier - Brier after recalibration (>= 0), `refinement` = Brier after recalibration (the
    discrimination loss of IMBALANCE), `discrimination` = uncertainty - refinement. In-sample, hence optimistic in
    small samples. NaN when empty.
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


def correct_prevalence(p: ArrayLike, source: float, target: float) -> Floats:
    """Probabilities of a model from a population of prevalence `source`, for one of prevalence `target`.

    Bayes' rule with unchanged likelihoods: the log odds shift by logit(target) - logit(source).

    >>> correct_prevalence([0.5], source=0.5, target=0.1).round(6).tolist()
    [0.1]
    """
    shift = logit(as_fraction(target, "target")) - logit(as_fraction(source, "source"))
    with np.errstate(divide="ignore"):
        return np.asarray(expit(logit(as_probabilities(p)) + shift), dtype=np.float64)


def require_probabilities(p: Floats, what: str) -> None:
    """For callers with scores of any range: a probability metric says clearly why it will not run."""
    if len(p) and (p.min() < 0 or p.max() > 1):
        raise InputError(f"{what} needs probabilities; the scores run from {p.min():.4g} to {p.max():.4g}")
