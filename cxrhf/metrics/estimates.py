"""Labels, scores, weights and patients -> metrics of every label, with replicates on shared draws of patients.

What the `evaluate` modules are made of. All labels and metrics of one call share their draws, so differences are
paired. The mean over labels is over those with a defined value.
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
    as_label_weights,
    as_labels,
    as_pretest,
    as_probabilities,
    as_scores,
    one_of,
    same_length,
    undefined,
    where_labelled,
)
from cxrhf.metrics.draws import Draws, draw
from cxrhf.metrics.intervals import Difference, Interval, UnitCount, count_units, difference_interval, interval
from cxrhf.metrics.matching import match_weights
from cxrhf.metrics.operating import OperatingPoint, sensitivity_at_specificity
from cxrhf.metrics.ranking import Ranked, auroc, average_precision, rank_rows
from cxrhf.metrics.resample import bootstrap, bootstrap_many
from cxrhf.metrics.sums import SUM_METRICS, total_sums, value_of
from cxrhf.metrics.weighting import LEAST_SHARE, att_weights, effective_sample_size, ipw_weights

Progress = Callable[[int], None]


# Patients with a positive (or negative) row below which no interval can be believed.
FEW = 10
ROUNDING = 1e-12


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


@dataclass(frozen=True, slots=True)
class Study:
    """A metric of every label: values, replicates on common resamples (None without intervals), numbers of patients.

    `details` holds for each label the operating point of a sensitivity, the shares of a matching, the sorted rows of a
    calibration error, and otherwise the value again.
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
        """This metric minus another on the same resamples; differences within rounding are 0."""
        replicates = None
        if self.replicates is not None and other.replicates is not None:
            replicates = drop_rounding(self.replicates - other.replicates)
        reasons = tuple(a or b for a, b in zip(self.reasons, other.reasons, strict=True))
        values = drop_rounding(self.values - other.values)
        return Study(self.metric, values, replicates, other.units, reasons, self.single, difference=True)


def drop_rounding(difference: ArrayLike) -> Floats:
    """Rounding would pass for a tiny but certain difference."""
    values = np.asarray(difference, dtype=np.float64)
    return np.where(np.abs(values) < ROUNDING, 0.0, values)


def study(
    metrics: Mapping[str, Mapping[str, Any]] | Sequence[str],
    rows: Labels,
    *,
    clusters: ArrayLike | None = None,
    n_resamples: int | None = None,
    seed: int = 0,
    progress: Callable[[int], Progress] | None = None,
) -> dict[str, Study]:
    """Compute metrics for every label and, with `n_resamples`, their bootstrap replicates on common resamples.

    Patients are given as `clusters`. An option is one value for all labels or a list with one value per label.
    `progress(total)` returns a function that is called with numbers of finished replicates, `total` in total.
    """
    asked = dict(metrics) if isinstance(metrics, Mapping) else {name: {} for name in metrics}
    n_labels = rows.y.shape[1]
    options = {name: options_by_label(given, n_labels) for name, given in asked.items()}
    for name in asked:
        find_metric(name)
        if name != "matched_auroc" and name not in _POINT:
            raise InputError(f"metric: expected {', '.join(_POINT)} or matched_auroc, got {name!r}")
        known = [each for each in (METRICS[name].option, _VARIANT.get(name)) if each]
        for key in asked[name]:
            if key not in known:
                raise InputError(f"options of {name}: expected {', '.join(known) or 'none'}, got {key!r}")
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


def _value(name: str, label: Label, options: Mapping[str, Any], sums: dict[Any, Floats]) -> tuple[Any, Floats]:
    """The metric (or what it is read from), and the weight with which each row counts in it.

    Metrics of the same sums over rows share them.
    """
    if name in SUM_METRICS and not options:
        columns = SUM_METRICS[name][0]
        if columns not in sums:
            sums[columns] = total_sums(name, label.y, label.p, label.weight, METRICS[name].default)
        return float(value_of(name, sums[columns], METRICS[name].default)), label.weight
    if name == "matched_auroc":
        shares = match_weights(label.y, label.pretest, options.get("caliper"))
        return shares, shares
    return _POINT[name](label.y, label.p, weight=label.weight, **options), label.weight


def _number(name: str, label: Label, detail: Any) -> float:
    if name == "matched_auroc":
        return auroc(label.y, label.p, detail)
    return _point_value(detail)


def _point_value(detail: Any) -> float:
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
    slow = {name for name in asked if any(_needs_other_variant(name, each) for each in options[name])}
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


def _needs_other_variant(name: str, options: Mapping[str, Any]) -> bool:
    """Whether an option asks for a variant that the compiled engine does not compute."""
    other = {key: value for key, value in options.items() if key != METRICS[name].option}
    for key, value in other.items():
        if key == "method" and value != _ENGINE[key]:
            raise InputError(
                f"n_resamples requires method='exact', got method={value!r}, which counts rows, and a resampled row "
                "may count twice"
            )
    return any(value != _ENGINE[key] for key, value in other.items())


def _engine_option(name: str, options: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in options.items() if key == METRICS[name].option}


def _weighted(name: str, options: Mapping[str, Any]) -> Callable[[Floats, Floats, Floats], float]:
    def value(y: Floats, p: Floats, weight: Floats) -> float:
        return _point_value(_POINT[name](y, p, weight=weight, **options))

    return value


def findings_in_mean(values: Sequence[float], units: Sequence[UnitCount]) -> list[int]:
    """Which findings a mean is of: those with a value and FEW patients of either class; of none as many, all with one.

    A finding with three positives cannot be resampled, and its interval would be that of the mean: .094 to .858 where
    the other thirteen have .39 to .50.
    """
    defined = [k for k, value in enumerate(values) if np.isfinite(value)]
    return [k for k in defined if is_common(units[k])] or defined


def is_common(units: UnitCount) -> bool:
    """Whether both classes have the patients that a mean over findings asks for."""
    return min(units.effective_positive, units.effective_negative) >= FEW


def mean_note(names: Sequence[str], values: Sequence[float], kept: Sequence[int], among: int | None = None) -> str:
    """What a mean is of, and which findings are left out although they have a value. `among`: of how many, if of more.

    >>> mean_note(["edema", "hernia", "mass"], [0.8, 0.9, float("nan")], [0])
    'mean of 1 of 3 findings; excluded for fewer than 10 patients of a class: hernia'
    """
    rare = [names[k] for k, value in enumerate(values) if np.isfinite(value) and k not in kept]
    more = f" and {len(rare) - 10:,} more" if len(rare) > 10 else ""
    out = f"; excluded for fewer than {FEW} patients of a class: {', '.join(rare[:10])}{more}" if rare else ""
    return f"mean of {len(kept)} of {among or len(names)} findings{out}"


class Mean(NamedTuple):
    """Replicates of a mean over findings, and the numbers of patients for its interval."""

    replicates: Floats
    units: UnitCount


def mean_over(replicates: Sequence[Floats], units: Sequence[UnitCount]) -> Mean:
    """Mean over findings in each replicate. NaN if any finding is undefined, so the set of findings never changes.

    The effective number of patients is Satterthwaite's: a rare finding counts by its share of the variance. If all
    findings have fewer than FEW patients, the replicates do not estimate that variance, and the rarest finding decides.
    """
    gathered = MeanOver()
    for drawn, behind in zip(replicates, units, strict=True):
        gathered.add(drawn, behind)
    return gathered.mean()


class MeanOver:
    """The same, one finding after the other, so that the replicates of thousands need not be held at once."""

    def __init__(self) -> None:
        self.total: Floats | None = None
        self.variance: list[float] = []
        self.units: list[UnitCount] = []

    def add(self, replicates: Floats, units: UnitCount) -> None:
        """One finding more."""
        self.total = replicates.astype(np.float64) if self.total is None else np.add(self.total, replicates, self.total)
        whole = not np.isnan(replicates).any()
        there = whole or np.isfinite(replicates).any()
        self.variance.append(float((np.var if whole else np.nanvar)(replicates)) if there else 0.0)
        self.units.append(units)

    def mean(self) -> Mean:
        """The mean of what was added."""
        assert self.total is not None
        return Mean(self.total / len(self.units), _units_of_mean(np.array(self.variance), self.units))


def _units_of_mean(variance: Floats, units: Sequence[UnitCount]) -> UnitCount:
    def effective(patients: Sequence[float]) -> float:
        if max(patients) < FEW:
            return float(min(patients))
        freedom = np.maximum(np.asarray(patients) - 1, 1)
        total = float((variance**2 / freedom).sum())
        return float(variance.sum() ** 2 / total) + 1 if total > 0 else float(min(patients))

    return UnitCount(
        min(u.positive for u in units),
        min(u.negative for u in units),
        min(u.total for u in units),
        effective([u.effective_positive for u in units]),
        effective([u.effective_negative for u in units]),
        effective([u.effective_total for u in units]),
    )


# Studies of one label or many -> the keys of a result: values, means over labels, intervals, reasons.


def flat(name: str, found: Study, *, level: float = 0.95, label_names: Sequence[str] | None = None) -> dict[str, Any]:
    """Convert a study to a flat dict: `name` and, with replicates, `name`_ci_low, _ci_high and _ci_method.

    With several labels, `name` is their mean and `name`_per_label holds each value (a list, or a dict with
    `label_names`). `name`_note gives the reason if a value is undefined, and is absent otherwise.
    """
    as_fraction(level, "level")
    n_labels = len(found.values)
    if found.single:
        return _entry(name, float(found.values[0]), found, 0, level, found.reasons[0])
    defined = [k for k in range(n_labels) if np.isfinite(found.values[k])]
    names = label_keys(label_names, n_labels)
    out: dict[str, Any] = {name: float(np.mean(found.values[defined])) if defined else float("nan")}
    if found.replicates is not None:
        low = high = float("nan")
        method = "undefined"
        if defined:
            mean = mean_over([found.replicates[:, k] for k in defined], [found.units[k] for k in defined])
            low, high, method = _limits_and_method(out[name], mean.replicates, mean.units, found, level)
        out |= {f"{name}_ci_low": low, f"{name}_ci_high": high, f"{name}_ci_method": method}
    each = [_entry("x", float(v), found, k, level, None) for k, v in enumerate(found.values)]
    for key in each[0]:
        out[f"{name}_per_label{key[1:]}"] = by_label([entry[key] for entry in each], label_names)
    if len(defined) < n_labels:
        lacking = "; ".join(f"{names[k]}: {found.reasons[k]}" for k in range(n_labels) if k not in defined)
        out[f"{name}_note"] = f"mean of {len(defined)} of {n_labels} labels; undefined for {lacking}"
    return out


def description_as_keys(
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


def _entry(name: str, value: float, found: Study, k: int, level: float, reason: str | None) -> dict[str, Any]:
    out: dict[str, Any] = {name: value}
    if found.replicates is not None:
        low, high, method = _limits_and_method(value, found.replicates[:, k], found.units[k], found, level)
        out |= {f"{name}_ci_low": low, f"{name}_ci_high": high, f"{name}_ci_method": method}
    if reason:
        out[f"{name}_note"] = f"undefined: {reason}"
    return out


def _limits_and_method(
    value: float, replicates: Floats, units: UnitCount, found: Study, level: float
) -> tuple[float, float, str]:
    ends: Interval | Difference
    if found.difference:
        ends = difference_interval(value, replicates, level=level, units=units, metric=found.metric)
    else:
        ends = interval(value, replicates, level=level, units=units, metric=found.metric)
    return float(ends.low), float(ends.high), ends.method


# Labels, scores, weights and pre-test probabilities of one finding or many -> checked matrices, label by label.
#
# One column or many; NaN marks a missing label, whose row is left out for that label only.


class Label(NamedTuple):
    """The labelled rows of one column; `at` are their places."""

    at: NDArray[np.intp]
    y: Floats
    p: Floats
    weight: Floats
    pretest: Floats


@dataclass(frozen=True, slots=True)
class Labels:
    """Checked matrices (rows x labels); `single` if the input had one column."""

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
    """Check the shapes and ranges of all inputs; errors use the argument names of the `evaluate` modules."""
    labels = as_labels(y, "references", masked=True)
    single = labels.ndim == 1
    missing = np.isnan(labels)
    scores = where_labelled(p, missing, "predictions", "references")
    scores = (as_probabilities if probability else as_scores)(scores, "predictions", masked=True)
    weights = None if weight is None else as_label_weights(weight, missing, "sample_weight", "references")
    q = None if pretest is None else as_pretest(pretest, missing, "context", "references")
    if single:
        labels, scores, q = labels[:, None], scores[:, None], None if q is None else q[:, None]
    return Labels(labels, scores, weights, q, single)


def reweight_labels(rows: Labels, weighting: str = "att") -> Labels:
    """The same rows, weighted so that context cannot tell the classes apart ("att" or "ipw", times given weights)."""
    one_of(weighting, "weighting", ("att", "ipw"))
    weight = np.zeros(rows.y.shape)
    for k, label in enumerate(rows.each()):
        if weighting == "att":
            factor = att_weights(label.y, label.pretest)
        else:  # AUROC does not depend on the prevalence: it only scales each class
            factor = ipw_weights(label.y, label.pretest, 0.5)
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


def options_by_label(given: Mapping[str, Any], n_labels: int) -> list[dict[str, Any]]:
    """Options of each label, those that are None left out."""
    for name, value in given.items():
        if isinstance(value, (list, tuple, np.ndarray)) and len(value) != n_labels:
            raise InputError(f"{name}: expected one value or one for each of {n_labels} labels, got {len(value)}")
    return [
        {
            name: value[k] if isinstance(value, (list, tuple, np.ndarray)) else value
            for name, value in given.items()
            if value is not None
        }
        for k in range(n_labels)
    ]


def by_label(values: Sequence[Any], label_names: Sequence[str] | None) -> list[Any] | dict[str, Any]:
    """One value a label: a list in the order of the columns, or a dict when the labels have names."""
    return list(values) if label_names is None else dict(zip(label_keys(label_names, len(values)), values, strict=True))


def label_keys(label_names: Sequence[str] | None, n_labels: int) -> list[str]:
    """The given names, checked, or "label 0", "label 1", ..."""
    if label_names is None:
        return [f"label {k}" for k in range(n_labels)]
    names = [str(each) for each in label_names]
    if len(names) != n_labels or len(set(names)) != n_labels:
        raise InputError(
            f"label_names: expected {n_labels} distinct names, got {len(names)} ({len(set(names))} distinct)"
        )
    return names
