"""Labels, scores, weights and patients -> metrics of every label, with replicates on shared draws of patients.

What the `evaluate` modules are made of. All labels and metrics of one call share their draws, so differences are
paired. The mean over labels is over those with a defined value.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

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
from cxrhf.metrics.checks import Floats, InputError, same_length, undefined
from cxrhf.metrics.draws import Draws, draw
from cxrhf.metrics.intervals import UnitCount, count_units
from cxrhf.metrics.labels import Label, Labels, options_by_label
from cxrhf.metrics.matching import match_weights
from cxrhf.metrics.operating import OperatingPoint, sensitivity_at_specificity
from cxrhf.metrics.ranking import Ranked, auroc, average_precision, rank_rows
from cxrhf.metrics.resample import bootstrap, bootstrap_many
from cxrhf.metrics.sums import SUM_METRICS, total_sums, value_of

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
            replicates = settled(self.replicates - other.replicates)
        reasons = tuple(a or b for a, b in zip(self.reasons, other.reasons, strict=True))
        values = settled(self.values - other.values)
        return Study(self.metric, values, replicates, other.units, reasons, self.single, difference=True)


def settled(difference: ArrayLike) -> Floats:
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
                f"n_resamples requires method='exact', got method={value!r}, which counts rows, and a resampled row "
                "may count twice"
            )
    return any(value != _ENGINE[key] for key, value in other.items())


def _engine_option(name: str, options: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in options.items() if key == METRICS[name].option}


def _weighted(name: str, options: Mapping[str, Any]) -> Callable[[Floats, Floats, Floats], float]:
    def value(y: Floats, p: Floats, weight: Floats) -> float:
        return _read(_POINT[name](y, p, weight=weight, **options))

    return value


def in_mean(values: Sequence[float], units: Sequence[UnitCount]) -> list[int]:
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
