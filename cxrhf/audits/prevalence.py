"""Numbers within the classes -> what they become at other prevalences: RESULT rows of `prevalence=...`, and CURVE.

The question: the same model, with the same scores among positives and among negatives, where the finding is rarer or
more frequent. AUROC, sensitivity, specificity and balanced Brier do not move. Precision, NPV (at the max-F1
threshold), average precision and Brier (both of p as the model gives it) move as the classes are weighted. Net
benefit, at a risk of RISK, uses p corrected to the new prevalence, from the training prevalence when it is given, else
from that of the evaluated rows. Known gap: average precision at a prevalence far below the sample's hangs on the few
negatives with the highest scores and comes out too high (30 positives and 1,000 negatives carried to 1%: .15 for .12,
and a 95% interval covered 87%); such rows say so.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit

from cxrhf.audits.imbalance_study import Macro, Study
from cxrhf.audits.rows import Row, RowMaker
from cxrhf.audits.sample import Sample
from cxrhf.metrics.estimates import Mean, MeanOver, is_common
from cxrhf.metrics.intervals import interval
from cxrhf.metrics.prevalence import (
    Walk,
    brier_at_prevalence,
    net_benefit_at_prevalence,
    npv_at_prevalence,
    precision_at_prevalence,
    threshold_for_risk,
)

Floats = NDArray[np.float64]

GRID = (0.005, 0.01, 0.02, 0.03, 0.05, 0.07, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5)
SLICES = (0.01, 0.05, 0.1, 0.3, 0.5)
# Act at this risk: nine false alarms weigh as much as one finding found.
RISK = 0.1
# How many times rarer than in the sample average precision is still trusted.
RARER = 3
KINDS = {
    "average_precision": "ap_by_prevalence",
    "precision": "ppv_by_prevalence",
    "npv": "npv_by_prevalence",
    "brier": "brier_by_prevalence",
    "net_benefit": "net_benefit_by_prevalence",
}
_RATES: Mapping[str, Callable[..., Floats]] = {"precision": precision_at_prevalence, "npv": npv_at_prevalence}


class _Limits(NamedTuple):
    """Of the log odds of precision (or NPV) where both classes are equally frequent."""

    low: float
    high: float
    method: str


_NO_LIMITS = _Limits(np.nan, np.nan, "")


class _Moved(NamedTuple):
    """One finding along its grid: {metric: values (grid,)}, {metric: replicates (n_resamples, grid)}."""

    study: Study
    source: float
    values: dict[str, Floats]
    drawn: dict[str, Floats]
    limits: dict[str, _Limits]


def grid_of(prevalence: float) -> Floats:
    """The prevalences of a finding, its own the last of them."""
    return np.array([*GRID, prevalence])


def source_of(sample: Sample, finding: str, prevalence: float) -> float:
    """The prevalence that the probabilities are taken to be made for."""
    given = sample.settings.training_prevalence(finding)
    return prevalence if given is None else given


def net_benefit_thresholds(source: float, prevalence: float) -> Floats:
    """The p that is a risk of RISK once corrected, for each prevalence of the grid; infinite without both classes."""
    if not 0 < prevalence < 1:
        return np.full(len(GRID) + 1, np.inf)
    return np.array([threshold_for_risk(RISK, source, target) for target in grid_of(prevalence)])


class Along:
    """RESULT rows of the prevalences of SLICES, and curves over GRID with the finding's own prevalence.

    Findings are added one after the other: the replicates of thousands along the grid would take gigabytes.
    """

    def __init__(self, make: RowMaker) -> None:
        self.make = make
        self.rows: list[Row] = []
        self.curves: list[Row] = []
        self.values: dict[str, list[Floats | None]] = {name: [] for name in KINDS}  # of each finding, (grid,)
        self.means: dict[tuple[str, int, bool], MeanOver] = {}  # of common findings, and of rare ones

    def add(self, study: Study, here: Walk, drawn: Walk, k: int) -> None:
        """`here` and `drawn` hold, at place k, the sums at the max-F1 threshold and at the thresholds of net benefit,
        and average precision at the prevalences."""
        make, moved, own = self.make, _move(self.make.sample, study, here, drawn, k), study.prevalence
        grid = grid_of(own)
        by_place = [_rows_at(make, moved, g, float(pi)) for g, pi in enumerate(grid)]
        self.rows += _chosen(by_place)
        if 0 < own < 1:
            order = [g for g in np.argsort(grid, kind="stable") if g < len(GRID) or own not in GRID]
            self.curves += _curves(make.sample, [by_place[g] for g in order], [float(grid[g]) for g in order])
            self.curves += _flat(make, study)
        for name in KINDS:
            values = moved.values.get(name)
            self.values[name].append(values)
            if values is None:
                continue
            for g in np.flatnonzero(np.isfinite(values[: len(GRID)])).tolist():
                mean = self.means.setdefault((name, g, is_common(study.finding.counts.units)), MeanOver())
                mean.add(moved.drawn[name][:, g], study.units_of(name))

    def finish(self, macro: Macro) -> tuple[list[Row], list[Row]]:
        """All rows and curves, the means over findings last."""
        means = [self._means_at(macro, g, pi) for g, pi in enumerate(GRID)]
        return self.rows + _chosen(means), self.curves + _curves(self.make.sample, means, GRID)

    def _mean(self, name: str, g: int) -> Mean | list[Floats | None]:
        found = self.means.get((name, g, True)) or self.means.get((name, g, False))
        return [] if found is None else found.mean()

    def _means_at(self, macro: Macro, g: int, pi: float) -> list[Row]:
        """The means over findings at one prevalence."""
        return [
            macro.row(
                name,
                [np.nan if each is None else each[g] for each in values],
                self._mean(name, g),
                slice=f"prevalence={pi:g}",
                how=f"risk threshold {RISK:g}, p corrected for the prevalence" if name == "net_benefit" else None,
                optimistic=name in _RATES,
            )
            for name, values in self.values.items()
            if any(each is not None for each in values)
        ]


def _chosen(by_place: Sequence[Sequence[Row]]) -> list[Row]:
    """The rows of the short list of prevalences, metric after metric."""
    kept = [rows for pi, rows in zip(GRID, by_place, strict=False) if pi in SLICES]
    return [row for same in zip(*kept, strict=True) for row in same]


def _move(sample: Sample, study: Study, here: Walk, drawn: Walk, k: int) -> _Moved:
    grid = grid_of(study.prevalence)
    source = source_of(sample, study.finding.name, study.prevalence)
    names = [name for name in KINDS if study.finding.is_probability or name not in ("brier", "net_benefit")]
    if not 0 < study.prevalence < 1:
        undefined = np.full((len(drawn.sums), len(grid)), np.nan)
        return _Moved(study, source, dict.fromkeys(names, undefined[0]), dict.fromkeys(names, undefined), {})

    def follow(numbers: Mapping[str, Any], sums: Floats, average_precision: Floats) -> dict[str, Floats]:
        found = {"average_precision": average_precision}
        found |= {name: function(numbers["tpr"], numbers["fpr"], grid) for name, function in _RATES.items()}
        if study.finding.is_probability:
            found["brier"] = brier_at_prevalence(numbers["brier_positive"], numbers["brier_negative"], grid)
            with np.errstate(invalid="ignore"):  # a replicate may lack a class
                tpr, fpr = sums[..., 2] / sums[..., 0], sums[..., 3] / sums[..., 1]
            found["net_benefit"] = net_benefit_at_prevalence(tpr, fpr, grid, RISK)
        return found

    replicates = {name: values[:, None] for name, values in study.drawn.items()}
    return _Moved(
        study,
        source,
        follow(study.values, here.sums[k, 1:], here.average_precision[k]),
        follow(replicates, drawn.sums[:, k, 1:], drawn.average_precision[:, k]),
        {name: _limits(study, name, sample.settings.level) for name in _RATES},
    )


def _rows_at(make: RowMaker, moved: _Moved, g: int, pi: float) -> list[Row]:
    """The rows of one finding at one prevalence."""
    study, level = moved.study, make.sample.settings.level
    rows = []
    for name, values in moved.values.items():
        value, how = float(values[g]), _how(name, study, moved.source)
        note = _note(name, study, pi) if np.isfinite(value) else None
        at = f"prevalence={pi:g}"
        if name not in _RATES:
            rows.append(make.of(name, study.finding, value, moved.drawn[name][:, g], slice=at, how=how, note=note))
            continue
        limits = moved.limits.get(name, _NO_LIMITS)
        how = "; ".join(each for each in (limits.method and f"{level:.4g} {limits.method}", how) if each)
        note = note if np.isfinite(value) else study.why(name)
        row = make.of(name, study.finding, value, slice=at, how=how or None, note=note)
        shift = logit(pi if name == "precision" else 1 - pi)
        low, high = expit(shift + limits.low), expit(shift + limits.high)
        row["ci_low"], row["ci_high"] = (float(low), float(high)) if np.isfinite(value) else (np.nan, np.nan)
        rows.append(row)
    return rows


def _how(name: str, study: Study, source: float) -> str | None:
    if name in _RATES:
        return study.threshold.at
    if name == "net_benefit":
        known = 0 < source < 1
        return f"risk threshold {RISK:g}" + (f", p corrected from prevalence {source:.4g}" if known else "")
    return "classes weighted to the prevalence, p as output by the model"


def _note(name: str, study: Study, pi: float) -> str | None:
    if name == "average_precision":
        rare = (
            "; far below the prevalence of this sample, so it tends to be too high"
            if pi * RARER < study.prevalence
            else ""
        )
        return f"chance level is {pi:g}{rare}"
    if name == "net_benefit":
        everybody = float(net_benefit_at_prevalence(1, 1, pi, RISK))
        return f"treating all: {everybody:.4g}, treating none: 0"
    if name == "brier":
        return f"always predicting the prevalence reaches {pi * (1 - pi):.4g}"
    return study.threshold.note


def _limits(study: Study, name: str, level: float) -> _Limits:
    """At another prevalence the log odds of precision and NPV shift by a constant, so their limits do, and one interval
    serves for all: made where the value is a half, far from the ends of its range.

    NPV is the precision of calling negatives. When no call is wrong (or none right) replicates say nothing, but the
    limits of both rates do.
    """
    hits, alarms = (study.values["tpr"], study.drawn["tpr"]), (study.values["fpr"], study.drawn["fpr"])
    units = study.units_of("tpr"), study.units_of("specificity")
    if name == "npv":
        hits, alarms = (1 - alarms[0], 1 - alarms[1]), (1 - hits[0], 1 - hits[1])
        units = units[1], units[0]
    if hits[0] > 0 and alarms[0] > 0:
        half = alarms[0] / (hits[0] + alarms[0])
        replicates = precision_at_prevalence(hits[1], alarms[1], half)
        found = interval(0.5, replicates, level=level, units=units[0])
        here = logit(0.5) - logit(half)
        return _Limits(logit(found.low) + here, logit(found.high) + here, f"{found.method}, patients resampled")
    found, other = (
        interval(value, replicates, level=level, units=side, metric="tpr")  # of either class, see units_behind
        for (value, replicates), side in zip((hits, alarms), units, strict=True)
    )
    with np.errstate(divide="ignore"):
        low = np.log(found.low) - np.log(other.high) if hits[0] > 0 else -np.inf
        high = np.log(found.high) - np.log(other.low) if alarms[0] > 0 else np.inf
    return _Limits(float(low), float(high), "from the limits of tpr and specificity")


def _curves(sample: Sample, by_place: Sequence[Sequence[Row]], grid: Sequence[float]) -> list[Row]:
    """CURVE rows with the limits of the RESULT rows; undefined points are left out."""
    return [
        _point(sample, row["finding"], KINDS[row["metric"]], pi, row["value"], row["ci_low"], row["ci_high"])
        for same in zip(*by_place, strict=True)
        for pi, row in zip(grid, same, strict=True)
        if np.isfinite(row["value"])
    ]


def _flat(make: RowMaker, study: Study) -> list[Row]:
    """Balanced Brier does not move: a level line."""
    value = study.values.get("balanced_brier", np.nan)
    if not np.isfinite(value):
        return []
    row = make.of("balanced_brier", study.finding, value, study.drawn["balanced_brier"])
    limits = row["value"], row["ci_low"], row["ci_high"]
    kind = "balanced_brier_by_prevalence"
    return [_point(make.sample, study.finding.name, kind, pi, *limits) for pi in sorted({*GRID, study.prevalence})]


def _point(sample: Sample, finding: str, kind: str, x: float, y: float, low: float, high: float) -> Row:
    head = {"model": sample.curve_model, "finding": finding, "kind": kind, "slice": "all"}
    return {**head, "x": float(x), "y": y, "low": low, "high": high}
