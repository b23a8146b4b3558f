"""Labels and probabilities -> how far the probabilities can be believed: Brier scores, calibration errors.

Two names mislead and are spelled out: `balanced_brier` is the *sum* of the two class-wise Brier scores (0 to 2,
IMBALANCE) and not a proper score, so it must never rank calibration; `adaptive_calibration_error` uses bins of
equal weight, and its expectation is above 0 for a perfectly calibrated model and grows as the sample shrinks, so
read it beside `expected_ace` and never compare raw values between groups of different size.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import expit, logit

from cxrhf.metrics.checks import Floats, as_count, as_fraction, as_probabilities, as_weights, binary_input, one_of
from cxrhf.metrics.compiled import compiled
from cxrhf.metrics.draws import advanced, mixed, stream_key, stream_start, uniform
from cxrhf.metrics.ranking import Ranked, rank_rows
from cxrhf.metrics.sums import equal_width_bins, sum_metric

METHODS = ("exact", "array_split", "whole_rows")
# Why a group's calibration error has no interval (docs/coverage.md has the measurements).
NO_INTERVAL = "no interval: in few rows the error lies above the truth, by more than resampling can tell"


def brier(y: ArrayLike, p: ArrayLike, weight: ArrayLike | None = None) -> float:
    """Mean squared error of the probability; 0 to 1, lower is better. NaN for an empty sample.

    >>> round(brier([1, 0, 0], [0.8, 0.3, 0.1]), 6)
    0.046667
    """
    return sum_metric("brier", *binary_input(y, p, weight, probability=True))


def brier_positive(y: ArrayLike, p: ArrayLike, weight: ArrayLike | None = None) -> float:
    """Brier score of the positives (Brier+ of IMBALANCE); 0 to 1, lower is better. NaN without positives."""
    return sum_metric("brier_positive", *binary_input(y, p, weight, probability=True))


def brier_negative(y: ArrayLike, p: ArrayLike, weight: ArrayLike | None = None) -> float:
    """Brier score of the negatives (Brier- of IMBALANCE); 0 to 1, lower is better. NaN without negatives."""
    return sum_metric("brier_negative", *binary_input(y, p, weight, probability=True))


def balanced_brier(y: ArrayLike, p: ArrayLike, weight: ArrayLike | None = None) -> float:
    """Sum of the Brier scores of positives and negatives (Brier+ plus Brier-); 0 to 2, lower is better.

    Not a proper scoring rule. NaN without positives or without negatives.

    >>> balanced_brier([1, 0, 0, 0], [0, 0, 0, 0])
    1.0
    """
    return sum_metric("balanced_brier", *binary_input(y, p, weight, probability=True))


def brier_skill_score(
    y: ArrayLike, p: ArrayLike, weight: ArrayLike | None = None, prevalence: float | None = None
) -> float:
    """Relative reduction of the Brier score compared with a constant forecast; at most 1, and 0 means no skill.

    By default, the constant is the (weighted) prevalence of the evaluated sample. With `prevalence` (of the training
    set in CONTEXT, eq. 23-24), another constant forecast can have positive skill. NaN with a single class.

    >>> brier_skill_score([1, 0, 0, 0], [0.25, 0.25, 0.25, 0.25])
    0.0
    >>> brier_skill_score([1, 0], [1, 0])
    1.0
    """
    labels, scores, weights = binary_input(y, p, weight, probability=True)
    constant = np.nan if prevalence is None else as_fraction(prevalence, "prevalence")
    return sum_metric("brier_skill_score", labels, scores, weights, constant)


@compiled
def ace_exact_sorted(y: Any, p: Any, w: Any, bins: int) -> float:
    """Equal-weight bins; equal scores pooled to their mean label, mass across an edge split between both bins.

    Rows without weight, a third of each bootstrap replicate, go the common way: a branch on them could not be guessed.
    """
    total = w.sum()
    if total <= 0:
        return np.nan
    n = y.shape[0]
    error = 0.0
    inside = 0.0  # signed difference collected in the open bin
    filled = 0.0  # weight used up so far
    edge = 1
    limit = total / bins if bins > 1 else np.inf  # where the open bin ends
    i = 0
    while i < n:
        mass = w[i]
        gap = w[i] * (p[i] - y[i])
        j = i + 1
        while j < n and p[j] == p[i]:
            mass += w[j]
            gap += w[j] * (p[j] - y[j])
            j += 1
        i = j
        if filled + mass < limit or mass <= 0:
            inside += gap
            filled += mass
            continue
        left = mass
        while filled + left >= limit:
            part = limit - filled
            error += abs(inside + gap * (part / mass))
            inside = 0.0
            filled += part
            left -= part
            edge += 1
            limit = edge * total / bins if edge < bins else np.inf
        if left > 0:
            inside += gap * (left / mass)
            filled += left
    return (error + abs(inside)) / total


@compiled
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
    """Mean of |mean probability - mean label| over bins of equal weight; 0 to 1, lower is better.

    method "exact" (default): bins have exactly equal weight. Rows with equal scores are pooled and may be split
    between two bins, so the value does not depend on row order. "array_split" (the public code of CONTEXT): bins have
    equal numbers of rows, with ties in the given order. "whole_rows": each row belongs to the bin in which its
    cumulative weight ends. NaN for an empty sample.

    >>> round(adaptive_calibration_error([0, 0, 1, 1], [0.1, 0.2, 0.7, 0.8], bins=2), 6)
    0.2
    """
    return ace_of(rank_rows(*binary_input(y, p, weight, probability=True)), bins, method)


def ace_of(ranked: Ranked, bins: int, method: str) -> float:
    """`adaptive_calibration_error` of sorted rows."""
    as_count(bins, "bins")
    one_of(method, "method", METHODS)
    if method == "exact":
        return float(ace_exact_sorted(ranked.y, ranked.p, ranked.weight, bins))
    return float(ace_rows_sorted(ranked.y, ranked.p, ranked.weight, bins, method == "whole_rows"))


@compiled
def _equal_weight_cells(p: Any, w: Any, bins: int, start: Any, share: Any) -> int:
    """Cut sorted rows into cells that lie in one bin, or hold one score that lies across edges; returns their number.

    `start[c]` is a cell's first row, `share[c, k]` the part of its mass in bin k: the bins of `ace_exact_sorted`, which
    depend on scores and weights only.
    """
    total = w.sum()
    cells = 0
    filled = 0.0
    edge = 1
    open_bin = -1  # the bin of the cell that still takes rows
    i = 0
    n = p.shape[0]
    while i < n:
        j = i
        mass = 0.0
        while j < n and p[j] == p[i]:
            mass += w[j]
            j += 1
        if edge < bins and filled + mass >= edge * total / bins:
            start[cells] = i
            share[cells, :] = 0.0
            left = mass
            while edge < bins and filled + left >= edge * total / bins:
                part = edge * total / bins - filled
                share[cells, edge - 1] += part / mass
                filled += part
                left -= part
                edge += 1
            if left > 0:
                share[cells, edge - 1] += left / mass
                filled += left
            cells += 1
            open_bin = -1
        else:
            if open_bin != edge - 1:
                open_bin = edge - 1
                start[cells] = i
                share[cells, :] = 0.0
                share[cells, open_bin] = 1.0
                cells += 1
            filled += mass
        i = j
    start[cells] = n
    return cells


@compiled
def _simulated_ace_exact(p: Any, w: Any, bins: int, n_simulations: int, key: Any) -> float:
    if w.sum() <= 0:
        return np.nan
    start = np.empty(2 * bins + 2, dtype=np.int64)
    share = np.empty((2 * bins + 1, bins))
    cells = _equal_weight_cells(p, w, bins, start, share)
    return _simulated_error(p, w, start, share, cells, n_simulations, key)


@compiled
def _simulated_error(p: Any, w: Any, start: Any, share: Any, cells: int, n_simulations: int, key: Any) -> float:
    """Mean error over simulations: rows start[c] to start[c + 1] are cell c, bin k has share[c, k] of it."""
    total = w.sum()
    n, bins = p.shape[0], share.shape[1]
    promised = np.zeros(cells)
    limit = np.empty(n, dtype=np.uint64)
    for c in range(cells):
        for i in range(start[c], start[c + 1]):
            promised[c] += w[i] * p[i]
    for i in range(n):  # `uniform(bits) < p` as a comparison of whole numbers
        limit[i] = np.uint64(np.ceil(p[i] * 9007199254740992.0))
    gap = np.empty(bins)
    even = w.min() == w.max()
    error = 0.0
    for replicate in range(n_simulations):
        state = stream_start(key, replicate)
        gap[:] = 0.0
        for c in range(cells):
            came = 0.0
            if even:  # counting whole numbers is some ten times faster than adding weights
                hits = 0
                for i in range(start[c], start[c + 1]):
                    state = advanced(state)
                    hits += (mixed(state) >> np.uint64(11)) < limit[i]
                came = w[0] * hits
            else:
                for i in range(start[c], start[c + 1]):
                    state = advanced(state)
                    came += w[i] if (mixed(state) >> np.uint64(11)) < limit[i] else 0.0
            for k in range(bins):
                gap[k] += share[c, k] * (promised[c] - came)
        for k in range(bins):
            error += abs(gap[k])
    return error / total / n_simulations


@compiled
def _simulated_ace_rows(p: Any, w: Any, bins: int, by_weight: bool, n_simulations: int, key: Any) -> float:
    y = np.empty(p.shape[0])
    total = 0.0
    for replicate in range(n_simulations):
        state = stream_start(key, replicate)
        for i in range(p.shape[0]):
            state = advanced(state)
            y[i] = 1.0 if uniform(mixed(state)) < p[i] else 0.0
        total += ace_rows_sorted(y, p, w, bins, by_weight)
    return total / n_simulations


def expected_ace(
    p: ArrayLike,
    weight: ArrayLike | None = None,
    bins: int = 10,
    method: str = "exact",
    n_simulations: int = 200,
    seed: int = 0,
) -> float:
    """Expected `adaptive_calibration_error` of these probabilities if they were perfectly calibrated.

    Estimated by simulating y ~ Bernoulli(p). A measured error near this value is no evidence of miscalibration.
    NaN for an empty sample.
    """
    scores = as_probabilities(p)
    weights = as_weights(weight, len(scores))
    return expected_ace_of(rank_rows(scores, scores, weights), bins, method, n_simulations, seed)


def expected_ace_of(ranked: Ranked, bins: int, method: str, n_simulations: int, seed: int) -> float:
    """`expected_ace` of sorted rows."""
    as_count(bins, "bins")
    as_count(n_simulations, "n_simulations")
    one_of(method, "method", METHODS)
    if method == "exact":
        return float(_simulated_ace_exact(ranked.p, ranked.weight, bins, n_simulations, stream_key(seed)))
    by_weight = method == "whole_rows"
    return float(_simulated_ace_rows(ranked.p, ranked.weight, bins, by_weight, n_simulations, stream_key(seed)))


def expected_ece(
    p: ArrayLike, weight: ArrayLike | None = None, bins: int = 10, n_simulations: int = 200, seed: int = 0
) -> float:
    """What `expected_calibration_error` would average if these probabilities were perfectly calibrated.

    By simulation of y ~ Bernoulli(p), as `expected_ace`. NaN when empty.
    """
    scores = as_probabilities(p)
    ranked = rank_rows(scores, scores, as_weights(weight, len(scores)))
    if len(ranked.p) == 0:
        return float("nan")
    start = np.searchsorted(equal_width_bins(ranked.p, as_count(bins, "bins")), np.arange(bins + 1))
    times, key = as_count(n_simulations, "n_simulations"), stream_key(seed)
    return float(_simulated_error(ranked.p, ranked.weight, start, np.eye(bins), bins, times, key))


def observed_minus_predicted(y: ArrayLike, p: ArrayLike, weight: ArrayLike | None = None) -> float:
    """Mean label less mean probability, -1 to 1: calibration in the large on the scale of shares. NaN when empty.

    >>> round(observed_minus_predicted([0, 0, 1], [0.2, 0.2, 0.3]), 6)
    0.1
    """
    return sum_metric("observed_minus_predicted", *binary_input(y, p, weight, probability=True))


def expected_calibration_error(y: ArrayLike, p: ArrayLike, weight: ArrayLike | None = None, bins: int = 10) -> float:
    """Expected calibration error: weighted mean of |mean probability - mean label| over bins of equal width.

    Bins are [k/K, (k+1)/K); 0 to 1, lower is better. NaN for an empty sample.

    >>> round(expected_calibration_error([0, 0, 1, 1], [0.1, 0.2, 0.7, 0.8], bins=2), 6)
    0.2
    """
    checked = binary_input(y, p, weight, probability=True)
    return sum_metric("expected_calibration_error", *checked, as_count(bins, "bins"))


def correct_prevalence(p: ArrayLike, source: float, target: float) -> Floats:
    """Adjust probabilities from a population with prevalence `source` to one with prevalence `target`.

    Applies Bayes' rule with unchanged likelihoods: the log odds shift by logit(target) - logit(source).

    >>> correct_prevalence([0.5], source=0.5, target=0.1).round(6).tolist()
    [0.1]
    """
    shift = logit(as_fraction(target, "target")) - logit(as_fraction(source, "source"))
    with np.errstate(divide="ignore"):
        return np.asarray(expit(logit(as_probabilities(p)) + shift), dtype=np.float64)
