"""A value with its bootstrap replicates -> an interval that covers, also with few positive patients, and its name.

Percentile intervals require many patients: with 10 positive patients, a nominal 95% interval for AUROC covers about
85%. Below `MANY` effective patients, the interval is therefore computed on the log-odds scale of the metric's range,
from the standard deviation of the replicates. Which form covers was measured for each family (docs/coverage.md):

* within classes (AUROC, Brier+, rates at a fixed threshold): `logit-t`, Student's t with the effective number of
  patients of the smaller class;
* sensitivity at a specificity: `logit-normal`; its replicates already include the noise of the threshold;
* metrics that depend on the prevalence (Brier, precision): `logit-normal` with half of the small-sample correction,
  because about half of their variance is within the positives;
* calibration errors: resampling adds noise, and noise adds error, so the replicates are biased upwards and are shifted
  back by the bias: `centred percentile`. The same holds for the two parts of the Brier score from isotonic
  recalibration, which fits a resample better than the sample;
* a value on the edge of its range (except for calibration errors, whose replicates leave it), or replicates that do not
  vary: `wilson` with the effective number of patients;
* means of squared errors and of probabilities, always: at least to where one more patient with the worst (or best)
  error would move them: `..., one more patient`. If a model rarely misses, a sample without a miss has almost no
  spread, and its interval would exclude the effect of a single missed patient (with 1% misses and 20 patients, the 95%
  interval covered 30%). From about 25 patients on it changes nothing if errors have a usual spread (0.1).

Known gap: an AUROC near 1 depends on a few positives with low scores, and the interval of a sample without any of them
is too narrow: at an AUROC of 0.976 and 17 to 82 positive patients, the 95% interval covered 90% to 93%.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit, logit, ndtri, stdtr, stdtrit

from cxrhf.metrics.catalogue import METRICS
from cxrhf.metrics.checks import (
    Floats,
    InputError,
    as_clusters,
    as_fraction,
    as_labels,
    as_weights,
    one_of,
    same_length,
    wilson,
)
from cxrhf.metrics.draws import BLOCK, Draws

# Effective patients from which on percentile and logit-t intervals agree.
MANY = 200.0
METHODS = ("auto", "percentile", "logit-t", "logit-normal", "centred percentile", "t", "wilson")
_OWN_THRESHOLD = frozenset({"sensitivity_at_specificity", "youden", "max_f1", "matched_sensitivity"})
_NOISE_FLOOR = frozenset(
    {
        "adaptive_calibration_error",
        "expected_calibration_error",
        "pav_calibration",
        "pav_refinement",
    }
)


class UnitCount(NamedTuple):
    """Numbers of patients with a positive, with a negative and in total, and their effective numbers.

    In the effective numbers, a patient with many images counts for more than one image but less than many patients."""

    positive: int
    negative: int
    total: int
    effective_positive: float
    effective_negative: float
    effective_total: float


class Interval(NamedTuple):
    """An interval with its `method`; `n_undefined` counts replicates without one of the classes."""

    low: float
    high: float
    method: str
    n_undefined: int


class Difference(NamedTuple):
    """Interval of a difference, with the two-sided p value for no difference."""

    low: float
    high: float
    p_value: float
    method: str
    n_undefined: int


def count_units(y: ArrayLike, clusters: ArrayLike | None = None, weight: ArrayLike | None = None) -> UnitCount:
    """Count patients with and without a positive label; rows with NaN labels are excluded.

    With `weight`, the effective numbers (Kish) decrease the more the weight is concentrated on few patients.
    """
    labels = as_labels(y, masked=True)
    if labels.ndim != 1:
        raise InputError(f"y: expected a 1-D array of one label, got shape {labels.shape}")
    unit = patient_numbers(clusters, len(labels))
    same_length(y=labels, clusters=unit)
    mass = as_weights(weight, len(labels))
    positive, negative, total = (_patients(unit, mass, side) for side in (labels == 1, labels == 0, ~np.isnan(labels)))
    return UnitCount(
        positive=positive[0],
        negative=negative[0],
        total=total[0],
        effective_positive=positive[1],
        effective_negative=negative[1],
        effective_total=total[1],
    )


def capped(units: UnitCount) -> UnitCount:
    """Counts of patients that make an interval come from the spread of the replicates, not from their order.

    Rates near 0 or 1 depend on a handful of errors, however many patients there are: with 5 false alarms among 4,000
    negatives, a percentile interval covered 89%. Below MANY, the interval is on the log-odds scale: 97%.
    """
    most = MANY - 1
    return units._replace(
        effective_positive=min(units.effective_positive, most),
        effective_negative=min(units.effective_negative, most),
        effective_total=min(units.effective_total, most),
    )


def patient_numbers(clusters: ArrayLike | None, n: int) -> NDArray[np.int64]:
    """Patients as whole numbers from 0, not all of which need be there: for those who only count or sum over them."""
    raw = np.arange(n) if clusters is None else as_clusters(clusters)
    small = raw.dtype.kind in "iu" and len(raw) > 0 and raw.min() >= 0 and raw.max() < 4 * len(raw)
    return np.asarray(raw if small else np.unique(raw, return_inverse=True)[1].reshape(-1), dtype=np.int64)


def _patients(unit: np.ndarray, mass: Floats, rows: np.ndarray) -> tuple[int, float]:
    images = np.bincount(unit[rows], mass[rows])
    square = float((images**2).sum())
    return int((np.bincount(unit[rows]) > 0).sum()), float(images.sum() ** 2 / square) if square > 0 else 0.0


# Means over patients of something between 0 and 1, and what is made of them.
_MEANS = frozenset(
    {"brier", "brier_positive", "brier_negative", "balanced_brier", "brier_skill_score", "observed_minus_predicted"}
)
# Metrics that rest on one class, or on all rows, whatever the size of the other class.
_SIDE = {
    "tpr": "positive",
    "brier_positive": "positive",
    "fpr": "negative",
    "brier_negative": "negative",
    "prevalence": "total",
}


def _patients_of_metric(metric: str | None, units: UnitCount | None) -> tuple[int, float]:
    """Patients, and effective patients, of the class the metric rests on: the smaller one unless it looks at one."""
    if units is None:
        return 2, np.inf
    if metric in _SIDE:
        side = _SIDE[metric]
        return getattr(units, side), getattr(units, f"effective_{side}")
    if metric in METRICS and not METRICS[metric].conditional:
        return units.total, min(units.effective_positive, units.effective_negative)
    return min(units.positive, units.negative), min(units.effective_positive, units.effective_negative)


def _choose(metric: str | None, few: float, bounds: tuple[float, float]) -> str:
    if metric in _NOISE_FLOOR:
        return "centred percentile"
    if few >= MANY:
        return "percentile"
    if not all(np.isfinite(bounds)):
        return "t"
    if metric in _OWN_THRESHOLD or (metric in METRICS and not METRICS[metric].conditional):
        return "logit-normal"
    return "logit-t"


def interval(
    point: float,
    replicates: ArrayLike,
    *,
    level: float = 0.95,
    method: str = "auto",
    units: UnitCount | None = None,
    bounds: tuple[float, float] | None = None,
    metric: str | None = None,
) -> Interval:
    """Interval of a value from its bootstrap replicates.

    The automatic method depends on `metric` (a name in METRICS) and `units` (from `count_units`); without units, many
    patients are assumed. NaN if the value is NaN or more than half of the replicates are undefined.

    >>> interval(0.5, [0.4, 0.5, 0.6], method="percentile").high
    0.595
    """
    as_fraction(level, "level")
    one_of(method, "method", METHODS)
    if bounds is None:
        bounds = METRICS[metric].bounds if metric in METRICS else (0.0, 1.0)
    values, n_undefined, n_all = _defined_replicates(replicates)
    if np.isnan(point):
        return Interval(np.nan, np.nan, "undefined", n_undefined)
    if len(values) < max(2, n_all / 2):
        return Interval(np.nan, np.nan, f"undefined in {n_undefined} of {n_all} replicates", n_undefined)
    patients, few = _patients_of_metric(metric, units)
    conditional = metric is None or metric not in METRICS or METRICS[metric].conditional
    if patients < 2:
        return Interval(np.nan, np.nan, _too_few_patients_reason(patients), n_undefined)
    if method == "auto":
        method = _choose(metric, few, bounds)
    tail = (1 - level) / 2
    spread = float(values.std())
    edge = np.isfinite(bounds).all() and (point <= bounds[0] or point >= bounds[1] or spread == 0)
    if method in ("logit-t", "logit-normal", "wilson") and not np.isfinite(bounds).all():
        method = "t"
    if edge and np.isfinite(few) and (method != "centred percentile" or spread == 0):
        method = "wilson"
    if method == "percentile":
        low, high = np.quantile(values, [tail, 1 - tail])
    elif method == "centred percentile":
        low, high = np.clip(np.quantile(values, [tail, 1 - tail]) - (values.mean() - point), *bounds)
    elif method == "wilson":
        low, high = _wilson_limits(point, spread, few, level, bounds)
    else:
        spread, quantile = _widen_spread(spread, few, method, conditional, metric, tail)
        if method == "t":
            low, high = np.clip((point - quantile * spread, point + quantile * spread), *bounds)
        else:
            low, high = _on_logit_scale(point, spread * quantile, bounds)
    if units is not None and metric in _MEANS:
        best, worst = _one_more(point, metric, units)
        if best < low or worst > high:
            low, high, method = min(low, best), max(high, worst), f"{method}, one more patient"
    return Interval(float(low), float(high), method, n_undefined)


def _too_few_patients_reason(patients: int) -> str:
    """The spread between patients cannot be seen in fewer than two."""
    return f"undefined: only {patients} patient{'' if patients == 1 else 's'} to estimate the spread from"


def _one_more(point: float, metric: str, units: UnitCount) -> tuple[float, float]:
    """Where one more patient, with the best or the worst error there is, would move a mean of errors."""
    positive, negative = units.effective_positive, units.effective_negative
    if metric == "brier_skill_score":
        share = positive / max(positive + negative, 1.0)
        reference = share * (1 - share)
        if reference == 0:
            return point, point
        low, high = _one_more((1 - point) * reference, "brier", units)
        return 1 - high / reference, 1 - low / reference
    if metric == "balanced_brier":  # the sum of two means, of which the scarcer class moves more
        least = min(positive, negative)
        return point - min(point, 1.0) / (least + 1), point + min(2 - point, 1.0) / (least + 1)
    n = {"brier_positive": positive, "brier_negative": negative}.get(metric, units.effective_total)
    if metric == "observed_minus_predicted":  # -1 to 1
        return point - (1 + point) / (n + 1), point + (1 - point) / (n + 1)
    return point - point / (n + 1), point + (1 - point) / (n + 1)


def _defined_replicates(replicates: ArrayLike) -> tuple[Floats, int, int]:
    values = np.asarray(replicates, dtype=np.float64)
    if values.ndim != 1:
        raise InputError(f"replicates: expected a 1-D array of one value, got shape {values.shape}")
    kept = values[~np.isnan(values)]
    return kept, len(values) - len(kept), len(values)


def _widen_spread(
    spread: float, few: float, method: str, conditional: bool, metric: str | None, tail: float
) -> tuple[float, float]:
    """Standard deviation corrected for few patients, and the quantile to multiply it by."""
    if not np.isfinite(few):
        return spread, float(ndtri(1 - tail))
    freedom = max(few - 1, 1.0)
    if method in ("t", "logit-t"):
        return spread * float(np.sqrt(1 + 1 / freedom)), float(stdtrit(freedom, 1 - tail))
    share = 0.0 if metric in _OWN_THRESHOLD else (1.0 if conditional else 0.5)
    return spread * float(np.sqrt(1 + share / freedom)), float(ndtri(1 - tail))


def _on_logit_scale(point: float, half: float, bounds: tuple[float, float]) -> tuple[float, float]:
    low, high = bounds
    share = (point - low) / (high - low)
    if not 0 < share < 1:
        return point, point
    step = half / ((high - low) * share * (1 - share))
    centre = logit(share)
    return low + (high - low) * float(expit(centre - step)), low + (high - low) * float(expit(centre + step))


def _wilson_limits(
    point: float, spread: float, patients: float, level: float, bounds: tuple[float, float]
) -> tuple[float, float]:
    """Wilson's interval on the metric's range, with the number of patients that the spread implies (or there are)."""
    low, high = bounds
    share = float(np.clip((point - low) / (high - low), 0, 1))
    variance = share * (1 - share)
    scaled = spread / (high - low)
    n = variance / scaled**2 if scaled > 0 and variance > 0 else max(patients, 1.0)
    below, above = wilson(share, n, float(ndtri(0.5 + level / 2)))
    return low + (high - low) * below, low + (high - low) * above


def difference_interval(
    point: float,
    replicates: ArrayLike,
    *,
    level: float = 0.95,
    method: str = "auto",
    units: UnitCount | None = None,
    bounds: tuple[float, float] = (-1.0, 1.0),
    metric: str | None = None,
) -> Difference:
    """Interval and p value of a paired difference from its replicates, each a difference within one resample.

    Uses Student's t with the effective patients of the smaller class if these are fewer than 200, and percentiles
    otherwise. The p value is consistent with the interval: it is below 1 - level if the interval excludes 0.
    """
    as_fraction(level, "level")
    one_of(method, "method", ("auto", "percentile", "t"))
    values, n_undefined, n_all = _defined_replicates(replicates)
    if np.isnan(point) or len(values) < max(2, n_all / 2):
        reason = "undefined" if np.isnan(point) else f"undefined in {n_undefined} of {n_all} replicates"
        return Difference(np.nan, np.nan, np.nan, reason, n_undefined)
    patients, few = _patients_of_metric(metric, units)
    if patients < 2:
        return Difference(np.nan, np.nan, np.nan, _too_few_patients_reason(patients), n_undefined)
    if method == "auto":
        method = "percentile" if few >= MANY else "t"
    tail = (1 - level) / 2
    if method == "percentile":
        low, high = np.quantile(values, [tail, 1 - tail])
        return Difference(float(low), float(high), bootstrap_p(values), method, n_undefined)
    freedom = max(few - 1, 1.0) if np.isfinite(few) else 1e9
    spread = float(values.std()) * float(np.sqrt(1 + 1 / freedom))
    half = float(stdtrit(freedom, 1 - tail)) * spread
    p_value = float(2 * stdtr(freedom, -abs(point) / spread)) if spread > 0 else (1.0 if point == 0 else 0.0)
    low, high = np.clip((point - half, point + half), *bounds)
    return Difference(float(low), float(high), p_value, method, n_undefined)


def bootstrap_p(replicates: ArrayLike) -> float:
    """Two-sided p value of "no difference": twice the smaller share of replicates on one side of 0, plus one each."""
    values, _, _ = _defined_replicates(replicates)
    if len(values) == 0:
        return float("nan")
    below, above = int((values <= 0).sum()), int((values >= 0).sum())
    return float(min(1.0, 2 * (min(below, above) + 1) / (len(values) + 1)))


# Many p values, or many values with shared replicates -> the same, corrected for having looked at many.
#
# A NaN p value (a test that could not be made) stays NaN and does not count as a test.


class Bands(NamedTuple):
    """Simultaneous limits, which contain all values at the stated level; `critical` replaces 1.96."""

    low: Floats
    high: Floats
    p_value: Floats
    critical: float


def _adjust(p: ArrayLike, rule: Callable[[Floats], Floats]) -> Floats:
    values = np.asarray(p, dtype=np.float64)
    bad = (values < 0) | (values > 1)
    if bad.any():
        where = int(np.argmax(bad.ravel()))
        raise InputError(f"p[{where}]: expected a p value from 0 to 1 or NaN, got {values.ravel()[where]!r}")
    result = np.full(values.shape, np.nan)
    tested = ~np.isnan(values)
    if tested.any():
        result[tested] = np.minimum(rule(values[tested]), 1.0)
    return result


def bonferroni(p: ArrayLike) -> Floats:
    """p values times the number of tests, at most 1; controls the family-wise error rate.

    >>> bonferroni([0.01, 0.2]).tolist()
    [0.02, 0.4]
    """
    return _adjust(p, lambda values: values * len(values))


def holm(p: ArrayLike) -> Floats:
    """p values by Holm's step-down method: the same guarantee as Bonferroni, and never larger."""

    def rule(values: Floats) -> Floats:
        order = np.argsort(values, kind="stable")
        steps = np.maximum.accumulate(values[order] * (len(values) - np.arange(len(values))))
        return _back(steps, order)

    return _adjust(p, rule)


def benjamini_hochberg(p: ArrayLike) -> Floats:
    """p values adjusted to control the false discovery rate of independent or positively dependent tests.

    >>> benjamini_hochberg([0.01, 0.04, 0.03]).round(6).tolist()
    [0.03, 0.04, 0.04]
    """
    return _adjust(p, lambda values: _step_up(values, 1.0))


def benjamini_yekutieli(p: ArrayLike) -> Floats:
    """p values adjusted to control the false discovery rate under any dependence.

    These are Benjamini-Hochberg values times 1 + 1/2 + ... + 1/m.
    """
    return _adjust(p, lambda values: _step_up(values, float((1 / np.arange(1, len(values) + 1)).sum())))


def _step_up(values: Floats, factor: float) -> Floats:
    order = np.argsort(values, kind="stable")
    m = len(values)
    steps = values[order] * (m * factor) / np.arange(1, m + 1)
    return _back(np.minimum.accumulate(steps[::-1])[::-1], order)


def _back(steps: Floats, order: np.ndarray) -> Floats:
    result = np.empty(len(steps))
    result[order] = steps
    return result


def max_t(point: ArrayLike, replicates: ArrayLike, level: float = 0.95, null: float = 0.0) -> Bands:
    """Simultaneous limits from common replicates (n_resamples, values), by the largest standardised deviation.

    Accounts for the correlation between findings, so limits are narrower than with Bonferroni. `p_value` is the
    adjusted p value of the hypothesis that a value equals `null`. If a value is undefined in a replicate, the other
    values of that replicate are used.
    """
    as_fraction(level, "level")
    values = np.asarray(point, dtype=np.float64)
    draws = np.asarray(replicates, dtype=np.float64)
    if draws.ndim != 2 or values.shape != draws.shape[1:]:
        raise InputError(
            f"replicates and point: expected shapes (n_resamples, k) and (k,), got {draws.shape} and {values.shape}"
        )
    nothing = np.full(values.shape, np.nan)
    usable = ~np.isnan(values) & ((~np.isnan(draws)).sum(axis=0) >= 2)
    if not usable.any():
        return Bands(nothing, nothing.copy(), nothing.copy(), float("nan"))
    kept = draws[:, usable]
    spread = np.nanstd(kept, axis=0)
    moving = spread > 0
    safe = np.where(moving, spread, 1.0)
    deviation = np.where(moving, np.abs(kept - np.nanmean(kept, axis=0)) / safe, 0.0)
    largest = np.max(np.nan_to_num(deviation, nan=0.0), axis=1)
    critical = float(np.quantile(largest, level))
    low, high, p_value = nothing, nothing.copy(), nothing.copy()
    low[usable] = values[usable] - critical * spread
    high[usable] = values[usable] + critical * spread
    distance = np.where(moving, np.abs(values[usable] - null) / safe, np.where(values[usable] == null, 0.0, np.inf))
    p_value[usable] = (1 + (largest[None, :] >= distance[:, None]).sum(axis=1)) / (len(largest) + 1)
    return Bands(low, high, p_value, critical)


# Values of rows and a plan of draws -> replicates of their means, each row counting as often as its patient.


def mean_replicates(values: ArrayLike, draws: Draws) -> Floats:
    """Means of each column (rows x columns) in every replicate, shape (replicates, columns); NaN values are left out.

    Columns are drawn together, so differences between them are paired. A replicate without a value is NaN.
    """
    x = np.asarray(values, dtype=np.float64)
    if x.ndim != 2 or len(x) != len(draws.unit):
        raise InputError(f"values: expected {len(draws.unit)} rows and one column per mean, got shape {x.shape}")
    there = ~np.isnan(x)
    sums, sizes = np.zeros((draws.n_units, x.shape[1])), np.zeros((draws.n_units, x.shape[1]))
    np.add.at(sums, draws.unit, np.where(there, x, 0.0))
    np.add.at(sizes, draws.unit, there.astype(np.float64))
    out = np.empty((draws.n_resamples, x.shape[1]))
    for start in range(0, draws.n_resamples, BLOCK):
        stop = min(start + BLOCK, draws.n_resamples)
        times = draws.counts(start, stop, conditional=False).astype(np.float64).T
        total, n = times @ sums, times @ sizes
        out[start:stop] = np.divide(total, n, out=np.full(total.shape, np.nan), where=n > 0)
    return out


def count_patients(values: ArrayLike, draws: Draws) -> UnitCount:
    """Patients with a value, and their effective number, in the form that intervals take; there are no classes."""
    there = ~np.isnan(np.asarray(values, dtype=np.float64))
    rows = np.bincount(draws.unit[there], minlength=draws.n_units).astype(np.float64)
    n, square = int((rows > 0).sum()), float((rows**2).sum())
    effective = float(rows.sum() ** 2 / square) if square else 0.0
    return UnitCount(n, n, n, effective, effective, effective)
