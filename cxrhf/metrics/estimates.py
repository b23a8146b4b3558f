"""Labels, scores, weights and patients -> metrics with their intervals, for one label or a mean over many.

What the `evaluate` modules return. Labels may be one column or many; NaN marks a missing label, whose row is left out
for that label only. All labels and metrics of one call share their draws of patients, so differences are paired. The
mean over labels is over those with a defined value, and says how many they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cxrhf.metrics.calibration import (
    ace_of,
    balanced_brier,
    brier,
    brier_negative,
    brier_positive,
    brier_skill_score,
    expected_calibration_error,
)
from cxrhf.metrics.catalogue import METRICS, find_metric
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
    undefined,
)
from cxrhf.metrics.draws import Draws, draw
from cxrhf.metrics.intervals import Difference, Interval, UnitCount, count_units, difference_interval, interval
from cxrhf.metrics.matching import match_weights
from cxrhf.metrics.operating import OperatingPoint, sensitivity_at_specificity
from cxrhf.metrics.ranking import Ranked, auroc, average_precision, rank_rows
from cxrhf.metrics.resample import bootstrap, bootstrap_many
from cxrhf.metrics.sums import SUM_METRICS, row_sums, value_of
from cxrhf.metrics.weighting import LEAST_SHARE, att_weights, effective_sample_size, ipw_weights

# Patients with a positive (or negative) row below which no interval can be believed.
FEW = 10
ROUNDING = 1e-12

Progress = Callable[[int], None]


def _operating_point(
    y: Floats, p: Floats, weight: Floats, specificity: float = 0.95, rule: str = "conservative"
) -> OperatingPoint:
    return sensitivity_at_specificity(y, p, specificity, weight, rule)


class CalibrationError(NamedTuple):
    """The error with the sorted rows it was read from, for what else is asked of them."""

    value: float
    ranked: Ranked


def _calibration_error(y: Floats, p: Floats, weight: Floats, bins: int = 10, method: str = "exact") -> CalibrationError:
    ranked = rank_rows(y, p, weight)
    return CalibrationError(ace_of(ranked, bins, method), ranked)


# Name in the catalogue -> the metric function (y, p, weight, options) -> its value, or a record with it; matching is
# apart, it takes no weight.
_POINT: dict[str, Callable[..., Any]] = {
    "auroc": auroc,
    "average_precision": average_precision,
    "brier": brier,
    "brier_positive": brier_positive,
    "brier_negative": brier_negative,
    "balanced_brier": balanced_brier,
    "brier_skill_score": brier_skill_score,
    "adaptive_calibration_error": _calibration_error,
    "expected_calibration_error": expected_calibration_error,
    "sensitivity_at_specificity": _operating_point,
}
# Options of the metric functions beyond the one the engine knows, with the value the engine computes.
_ENGINE = {"rule": "conservative", "method": "exact"}
_VARIANT = {"sensitivity_at_specificity": "rule", "adaptive_calibration_error": "method"}


class Label(NamedTuple):
    """The labelled rows of one column; `at` are their places."""

    at: NDArray[np.intp]
    y: Floats
    p: Floats
    weight: Floats
    pretest: Floats


@dataclass(frozen=True, slots=True)
class Labels:
    """Checked matrices (rows x labels); `single` when the caller gave one column."""

    y: Floats
    p: Floats
    weight: Floats | None
    pretest: Floats | None
    single: bool

    def each(self) -> Iterator[Label]:
        """Label after label, without the rows whose label is missing."""
        for k in range(self.y.shape[1]):
            at = np.flatnonzero(~np.isnan(self.y[:, k]))
            weight = np.ones(len(at)) if self.weight is None else self.column(self.weight, k)[at]
            pretest = np.full(len(at), np.nan) if self.pretest is None else self.pretest[at, k]
            yield Label(at, self.y[at, k], self.p[at, k], weight, pretest)

    @staticmethod
    def column(values: Floats, k: int) -> Floats:
        """Column k, or the only one."""
        return values if values.ndim == 1 else values[:, k]


def labels_of(
    y: ArrayLike,
    p: ArrayLike,
    weight: ArrayLike | None = None,
    pretest: ArrayLike | None = None,
    *,
    probability: bool = False,
) -> Labels:
    """The door: shapes and ranges, names as the caller of an `evaluate` module knows them."""
    labels = as_labels(y, "references", masked=True)
    single = labels.ndim == 1
    missing = np.isnan(labels)
    scores = _beside(p, missing, "predictions")
    scores = as_probabilities(scores, "predictions", masked=True) if probability else scores
    weights = None
    if weight is not None:
        raw = np.asarray(weight, dtype=np.float64)
        weights = as_weights(weight, len(labels), "sample_weight") if raw.ndim != 2 else _beside(raw, missing, "weight")
    q = None
    if pretest is not None:
        raw = np.asarray(pretest, dtype=object)
        wide = np.broadcast_to(raw[:, None], labels.shape) if raw.ndim == 1 and not single else pretest
        q = as_probabilities(_beside(wide, missing, "context"), "context", masked=True)
    if single:
        labels, scores = labels[:, None], scores[:, None]
        weights = weights[:, 0] if weights is not None and weights.ndim == 2 else weights
        q = None if q is None else q.reshape(-1, 1)
    return Labels(labels, scores, weights, q, single)


def _beside(values: ArrayLike, missing: NDArray[np.bool_], name: str) -> Floats:
    """Finite numbers of the labels' shape; what stands beside a missing label is never looked at and may be missing."""
    raw = np.asarray(values)
    if raw.shape != missing.shape:
        raise InputError(f"references has shape {missing.shape} but {name} has shape {raw.shape}; they must be equal")
    if missing.any():
        raw = np.where(missing, 0.0, raw)
    return as_scores(raw, name, masked=True)


def reweighted(rows: Labels, weighting: str = "att") -> Labels:
    """The same rows, weighted so that context cannot tell the classes apart ("att" or "ipw", times given weights)."""
    one_of(weighting, "weighting", ("att", "ipw"))
    weight = np.zeros(rows.y.shape)
    for k, label in enumerate(rows.each()):
        if weighting == "att":
            factor = att_weights(label.y, label.pretest)
        else:  # AUROC does not depend on the prevalence: it only scales each class
            factor = ipw_weights(label.y, label.pretest, float(np.clip(label.y.mean(), 1e-6, 1 - 1e-6)))
        weight[label.at, k] = label.weight * factor
    return replace(rows, weight=weight)


def thin_classes(name: str, rows: Labels, label_names: Sequence[str] | None = None) -> dict[str, str]:
    """`name`_warning, when weighting leaves too little of a class to believe the number; else nothing."""
    said = []
    for key, label in zip(label_keys(label_names, rows.y.shape[1]), rows.each(), strict=True):
        size = effective_sample_size(label.weight, label.y)
        for side, effective, there in (
            ("positives", size.positive, int((label.y == 1).sum())),
            ("negatives", size.negative, int((label.y == 0).sum())),
        ):
            if there and effective < LEAST_SHARE * there:
                counted = f"{there:,} {side} count like {effective:,.1f} after weighting"
                said.append(counted if rows.single else f"{key}: {counted}")
    return {f"{name}_warning": "; ".join(said)} if said else {}


@dataclass(frozen=True, slots=True)
class Study:
    """One metric of every label: values, replicates on shared draws (none: no interval), the patients behind them.

    `details` of each label: the operating point of a sensitivity, the shares of a matching, the sorted rows of a
    calibration error, else the value again.
    """

    metric: str
    values: Floats
    replicates: Floats | None
    units: tuple[UnitCount, ...]
    reasons: tuple[str | None, ...]
    single: bool
    details: tuple[Any, ...] = ()
    difference: bool = False

    def minus(self, other: Study) -> Study:
        """This metric less another on the same draws; what is only rounding is 0."""
        replicates = None
        if self.replicates is not None and other.replicates is not None:
            replicates = _settled(self.replicates - other.replicates)
        reasons = tuple(a or b for a, b in zip(self.reasons, other.reasons, strict=True))
        values = _settled(self.values - other.values)
        return Study(self.metric, values, replicates, other.units, reasons, self.single, difference=True)


def _settled(difference: Floats) -> Floats:
    """Rounding would pass for a tiny but certain difference."""
    return np.where(np.abs(difference) < ROUNDING, 0.0, difference)


def study(
    metrics: Mapping[str, Mapping[str, Any]] | Sequence[str],
    rows: Labels,
    *,
    clusters: ArrayLike | None = None,
    n_resamples: int | None = None,
    seed: int = 0,
    progress: Callable[[int], Progress] | None = None,
) -> dict[str, Study]:
    """Metrics of every label; with `n_resamples` also their replicates, patients (`clusters`) drawn once for all.

    Options may be one value for all labels or a list with one a label. `progress(total)` gives a function that is told
    of finished replicates, `total` in all.
    """
    asked = dict(metrics) if isinstance(metrics, Mapping) else {name: {} for name in metrics}
    n_labels = rows.y.shape[1]
    options = {name: options_by_label(given, n_labels) for name, given in asked.items()}
    for name in asked:
        find_metric(name)
        if name != "matched_auroc" and name not in _POINT:
            raise InputError(f"metric is {name!r}, allowed: {', '.join((*_POINT, 'matched_auroc'))}")
        known = [each for each in (METRICS[name].option, _VARIANT.get(name)) if each]
        for key in asked[name]:
            if key not in known:
                raise InputError(f"{name} takes no option {key!r}, allowed: {', '.join(known) or 'none'}")
    values = {name: np.empty(n_labels) for name in asked}
    units: dict[str, list[UnitCount]] = {name: [] for name in asked}
    reasons: dict[str, list[str | None]] = {name: [] for name in asked}
    details: dict[str, list[Any]] = {name: [] for name in asked}
    patients = None if clusters is None else np.asarray(clusters)
    if patients is not None:
        same_length(references=rows.y, clusters=patients)
    for k, label in enumerate(rows.each()):
        owners = None if patients is None else patients[label.at]
        sums: dict[Any, Floats] = {}
        for name in asked:
            detail, used = _value(name, label, options[name][k], sums)
            value = _number(name, label, detail)
            values[name][k] = value
            details[name].append(detail)
            reasons[name].append(_reason(name, label, used) if np.isnan(value) else None)
            if n_resamples:
                units[name].append(count_units(label.y, owners, used))
    drawn: dict[str, Floats] = {}
    if n_resamples:
        y = rows.y[:, 0] if rows.single else rows.y
        draws = draw(patients, y=y, n_resamples=n_resamples, seed=seed)
        drawn = _replicates(rows, asked, options, draws, progress)
    return {
        name: Study(
            name,
            values[name],
            drawn.get(name),
            tuple(units[name]),
            tuple(reasons[name]),
            rows.single,
            tuple(details[name]),
        )
        for name in asked
    }


def options_by_label(given: Mapping[str, Any], n_labels: int) -> list[dict[str, Any]]:
    """Options of each label, those that are None left out."""
    for name, value in given.items():
        if isinstance(value, (list, tuple, np.ndarray)) and len(value) != n_labels:
            raise InputError(f"{name} has {len(value)} values, allowed: one, or one for each of {n_labels} labels")
    return [
        {
            name: value[k] if isinstance(value, (list, tuple, np.ndarray)) else value
            for name, value in given.items()
            if value is not None
        }
        for k in range(n_labels)
    ]


def _value(name: str, label: Label, options: Mapping[str, Any], sums: dict[Any, Floats]) -> tuple[Any, Floats]:
    """The metric (or what it is read from), and the weight with which each row counts in it.

    Metrics of the same sums over rows share them.
    """
    if name in SUM_METRICS and not options:
        columns = SUM_METRICS[name][0]
        if columns not in sums:
            sums[columns] = row_sums(name, label.y, label.p, label.weight, METRICS[name].default).sum(axis=0)
        return float(value_of(name, sums[columns], METRICS[name].default)), label.weight
    if name == "matched_auroc":
        shares = match_weights(label.y, label.pretest, options.get("caliper"))
        return shares, shares
    return _POINT[name](label.y, label.p, weight=label.weight, **options), label.weight


def _number(name: str, label: Label, detail: Any) -> float:
    if name == "matched_auroc":
        return auroc(label.y, label.p, detail)
    return _read(detail)


def _read(detail: Any) -> float:
    if isinstance(detail, OperatingPoint):
        return detail.sensitivity
    return float(detail.value if isinstance(detail, CalibrationError) else detail)


def _reason(name: str, label: Label, used: Floats) -> str:
    said = undefined(name, label.y)
    if said is None and name == "matched_auroc":
        return "no pair within the caliper"
    said = said or undefined(name, label.y, used)
    return said.partition(": ")[2] if said else f"not defined on these {len(label.y)} rows"


def _replicates(
    rows: Labels,
    asked: Mapping[str, Mapping[str, Any]],
    options: Mapping[str, list[dict[str, Any]]],
    draws: Draws,
    progress: Callable[[int], Progress] | None,
) -> dict[str, Floats]:
    """(n_resamples, labels) of each metric; label by label only where weights or options differ between labels."""
    n_labels = rows.y.shape[1]
    slow = {name for name in asked if any(_beyond_engine(name, each) for each in options[name])}
    fast = [name for name in asked if name not in slow]
    alike = (rows.weight is None or rows.weight.ndim == 1) and all(
        each == options[name][0] for name in fast for each in options[name]
    )
    spans = [slice(0, n_labels)] if alike else [slice(k, k + 1) for k in range(n_labels)]
    rounds = len(spans) * bool(fast) + n_labels * len(slow)
    tick = progress(rounds * draws.n_resamples) if progress is not None else None
    out = {name: np.empty((draws.n_resamples, n_labels)) for name in asked}
    for span in spans if fast else []:
        weight = None if rows.weight is None else Labels.column(rows.weight, span.start)
        found = bootstrap_many(
            {name: _engine_option(name, options[name][span.start]) for name in fast},
            rows.y[:, span],
            rows.p[:, span],
            weight,
            draws=draws,
            pretest=None if rows.pretest is None else rows.pretest[:, span],
            progress=tick,
        )
        for name in fast:
            out[name][:, span] = found[name]
    for name in slow:
        for k in range(n_labels):
            weight = None if rows.weight is None else Labels.column(rows.weight, k)
            function = _weighted(name, options[name][k])
            out[name][:, k] = bootstrap(function, rows.y[:, k], rows.p[:, k], weight, draws=draws, progress=tick)
    return out


def _beyond_engine(name: str, options: Mapping[str, Any]) -> bool:
    """Whether an option asks for a variant that the compiled engine does not compute."""
    other = {key: value for key, value in options.items() if key != METRICS[name].option}
    for key, value in other.items():
        if key == "method" and value != _ENGINE[key]:
            raise InputError(
                f"n_resamples is given with method={value!r}, allowed: intervals for method='exact' only, because "
                f"{value!r} counts rows and a drawn row may count twice"
            )
    return any(value != _ENGINE[key] for key, value in other.items())


def _engine_option(name: str, options: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in options.items() if key == METRICS[name].option}


def _weighted(name: str, options: Mapping[str, Any]) -> Callable[[Floats, Floats, Floats], float]:
    def value(y: Floats, p: Floats, weight: Floats) -> float:
        return _read(_POINT[name](y, p, weight=weight, **options))

    return value


class Mean(NamedTuple):
    """Replicates of a mean over findings, and the patients its interval rests on."""

    replicates: Floats
    units: UnitCount


def mean_over(replicates: Sequence[Floats], units: Sequence[UnitCount]) -> Mean:
    """The mean over findings in each replicate; undefined where any of them is, so that the set never changes.

    The effective patients are Satterthwaite's: a rare finding matters as much as its share of the variance. Below FEW
    patients the replicates do not know that variance, so the scarcest finding then decides for all.
    """
    drawn = np.stack(list(replicates))
    variance = np.array([np.nanvar(r) if np.isfinite(r).any() else 0.0 for r in drawn])

    def effective(patients: Sequence[float]) -> float:
        if min(patients) < FEW:
            return float(min(patients))
        freedom = np.asarray(patients) - 1
        total = float((variance**2 / freedom).sum())
        return float(variance.sum() ** 2 / total) + 1 if total > 0 else float(min(patients))

    shown = UnitCount(
        min(u.positive for u in units),
        min(u.negative for u in units),
        min(u.total for u in units),
        effective([u.effective_positive for u in units]),
        effective([u.effective_negative for u in units]),
        effective([u.effective_total for u in units]),
    )
    return Mean(drawn.mean(axis=0), shown)


def flat(name: str, found: Study, *, level: float = 0.95, label_names: Sequence[str] | None = None) -> dict[str, Any]:
    """A study as the keys of a result: `name` and, where there are replicates, `name`_ci_low, _ci_high, _ci_method.

    With several labels `name` is their mean and `name`_per_label holds each (a list, or a dict when `label_names` are
    given). `name`_note is there only when something is undefined, and says why.
    """
    as_fraction(level, "level")
    n_labels = len(found.values)
    if found.single:
        return _entry(name, found.metric, float(found.values[0]), found, 0, level, found.reasons[0])
    defined = [k for k in range(n_labels) if np.isfinite(found.values[k])]
    names = label_keys(label_names, n_labels)
    out: dict[str, Any] = {name: float(np.mean(found.values[defined])) if defined else float("nan")}
    if found.replicates is not None:
        low = high = float("nan")
        method = "undefined"
        if defined:
            mean = mean_over([found.replicates[:, k] for k in defined], [found.units[k] for k in defined])
            low, high, method = _ends(out[name], mean.replicates, mean.units, found, level)
        out |= {f"{name}_ci_low": low, f"{name}_ci_high": high, f"{name}_ci_method": method}
    each = [_entry("x", found.metric, float(v), found, k, level, None) for k, v in enumerate(found.values)]
    for key in each[0]:
        out[f"{name}_per_label{key[1:]}"] = by_label([entry[key] for entry in each], label_names)
    if len(defined) < n_labels:
        lacking = "; ".join(f"{names[k]}: {found.reasons[k]}" for k in range(n_labels) if k not in defined)
        out[f"{name}_note"] = f"mean of {len(defined)} of {n_labels} labels; undefined for {lacking}"
    return out


def by_label(values: Sequence[Any], label_names: Sequence[str] | None) -> list[Any] | dict[str, Any]:
    """One value a label: a list in the order of the columns, or a dict when the labels have names."""
    return list(values) if label_names is None else dict(zip(label_keys(label_names, len(values)), values, strict=True))


def described(
    name: str, values: Sequence[float], rows: Labels, label_names: Sequence[str] | None = None
) -> dict[str, Any]:
    """A plain description of each label (a threshold, a count): `name`, or `name`_per_label where there are several."""
    if rows.single:
        return {name: values[0]}
    return {f"{name}_per_label": by_label(values, label_names)}


def mean_of(
    name: str, values: Sequence[float], rows: Labels, label_names: Sequence[str] | None = None
) -> dict[str, Any]:
    """A number without replicates: `name`, the mean over labels where it is defined, and `name`_per_label."""
    if rows.single:
        return {name: values[0]}
    known = [value for value in values if np.isfinite(value)]
    mean = float(np.mean(known)) if known else float("nan")
    return {name: mean, f"{name}_per_label": by_label(values, label_names)}


def label_keys(label_names: Sequence[str] | None, n_labels: int) -> list[str]:
    """The given names, checked, or "label 0", "label 1", ..."""
    if label_names is None:
        return [f"label {k}" for k in range(n_labels)]
    names = [str(each) for each in label_names]
    if len(names) != n_labels or len(set(names)) != n_labels:
        raise InputError(f"label_names has {len(names)} names ({len(set(names))} different), allowed: {n_labels}")
    return names


def _entry(
    name: str, metric: str, value: float, found: Study, k: int, level: float, reason: str | None
) -> dict[str, Any]:
    out: dict[str, Any] = {name: value}
    if found.replicates is not None:
        low, high, method = _ends(value, found.replicates[:, k], found.units[k], found, level)
        out |= {f"{name}_ci_low": low, f"{name}_ci_high": high, f"{name}_ci_method": method}
    if reason:
        out[f"{name}_note"] = f"undefined: {reason}"
    return out


def _ends(value: float, replicates: Floats, units: UnitCount, found: Study, level: float) -> tuple[float, float, str]:
    ends: Interval | Difference
    if found.difference:
        ends = difference_interval(value, replicates, level=level, units=units, metric=found.metric)
    else:
        ends = interval(value, replicates, level=level, units=units, metric=found.metric)
    return float(ends.low), float(ends.high), ends.method
