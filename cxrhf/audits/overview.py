"""PREDICTION -> RESULT, CURVE: every metric per finding and macro, ROC, PR and reliability curves, and a verdict.

Ranking metrics for every finding; probability metrics only where the scores are probabilities (0 to 1), said otherwise.
The operating point is the lowest threshold that keeps the asked specificity on these rows; precision and NPV are given
at it. J and F1 are given at the thresholds that are best on these very rows, hence optimistic; their intervals hold the
threshold fixed. `adaptive_calibration_error` must be read beside `expected_ace`, what a calibrated model would show.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cxrhf.audits.rows import MACRO, Row, RowMaker, everything
from cxrhf.audits.sample import Finding, Sample
from cxrhf.metrics import calibration, operating, ranking
from cxrhf.metrics.bands import pr_band, roc_band
from cxrhf.metrics.estimates import FEW, mean_over
from cxrhf.metrics.reliability import calibration_line, reliability_table
from cxrhf.metrics.resample import bootstrap_many

Floats = NDArray[np.float64]

SPECIFICITY = 0.95
# Patients with a positive (negative) row below which intervals are wide.
SOME = 50
# Ranking metrics that need the rows again in every replicate, in the order of the table.
_RANKING = ("auroc", "average_precision", "auprc_trapezoid", "sensitivity_at_specificity")
_ERROR = "adaptive_calibration_error"
PROBABILITY = (
    "brier",
    "brier_positive",
    "brier_negative",
    "balanced_brier",
    "brier_skill_score",
    "expected_calibration_error",
    "calibration_slope",
    "calibration_intercept",
    "calibration_in_the_large",
)
# Resamples behind the bands of a curve: a picture needs no more.
BAND = 400

_BRIER: Mapping[str, Callable[..., float]] = {
    "brier": calibration.brier,
    "brier_positive": calibration.brier_positive,
    "brier_negative": calibration.brier_negative,
    "balanced_brier": calibration.balanced_brier,
    "expected_calibration_error": calibration.expected_calibration_error,
    _ERROR: calibration.adaptive_calibration_error,
}
_NOTES = {
    "balanced_brier": "a sum of both classes, 0 to 2; not a proper score, never rank calibration by it",
    _ERROR: "above 0 even when calibrated: compare with expected_ace",
    "j": "threshold chosen on these rows: optimistic",
    "f1": "threshold chosen on these rows: optimistic",
}


class OverviewOutput(NamedTuple):
    """RESULT rows, CURVE rows, and what a reader must be told."""

    rows: list[Row]
    curves: list[Row]
    notes: list[str]


class _Point(NamedTuple):
    values: dict[str, float]
    operating: operating.OperatingPoint
    thresholds: dict[str, float]
    expected_ace: float


def overview(sample: Sample) -> OverviewOutput:
    """All metrics of one model."""
    findings = [sample.finding(k) for k in range(len(sample.data.findings))]
    sample.progress(f"{sample.model}: overview, point estimates of {len(findings)} findings")
    points = [_point(sample, finding) for finding in findings]
    sample.progress(
        f"{sample.model}: overview, {sample.draws.n_resamples:,} resamples of {sample.draws.n_units:,} patients"
    )
    replicates = _replicates(sample, findings, points)
    make = RowMaker("overview", sample)
    rows: list[Row] = []
    for finding, point, drawn in zip(findings, points, replicates, strict=True):
        rows += _finding_rows(make, finding, point, drawn)
    rows += _macro_rows(make, sample, findings, points, replicates)
    sample.progress(f"{sample.model}: overview, curves")
    curves = [row for finding in findings for row in _curves(sample, finding)]
    return OverviewOutput(rows, curves, _notes(sample, findings))


def _point(sample: Sample, finding: Finding) -> _Point:
    y, p, weight = finding.y, finding.p, finding.weight
    at = operating.sensitivity_at_specificity(y, p, SPECIFICITY, weight)
    best_j, best_f1 = operating.youden_threshold(y, p, weight), operating.max_f1_threshold(y, p, weight)
    total = weight.sum()
    values = {
        "auroc": ranking.auroc(y, p, weight),
        "average_precision": ranking.average_precision(y, p, weight),
        "auprc_trapezoid": ranking.auprc_trapezoid(y, p, weight),
        "sensitivity_at_specificity": at.sensitivity,
        "prevalence": float((weight * y).sum() / total) if total > 0 else np.nan,
    }
    thresholds = {"precision": at.threshold, "npv": at.threshold, "j": best_j, "f1": best_f1}
    thresholds = {name: value for name, value in thresholds.items() if not np.isnan(value)}
    for name in ("precision", "npv", "j", "f1"):
        rates = operating.rates_at(y, p, thresholds[name], weight) if name in thresholds else None
        values[name] = np.nan if rates is None else getattr(rates, name)
    expected = np.nan
    if finding.is_probability:
        values |= {name: function(y, p, weight) for name, function in _BRIER.items()}
        prevalence = sample.settings.training_prevalence(finding.name)
        values["brier_skill_score"] = calibration.brier_skill_score(y, p, weight, prevalence)
        line = calibration_line(y, p, weight)
        values["calibration_slope"], values["calibration_intercept"] = line.slope, line.intercept
        values["calibration_in_the_large"] = line.in_the_large
        if total > 0:
            expected = calibration.expected_ace(p, weight, seed=sample.settings.seed)
    return _Point(values, at, thresholds, expected)


def _replicates(sample: Sample, findings: Sequence[Finding], points: Sequence[_Point]) -> list[dict[str, Floats]]:
    """Every metric of every finding on the same draws."""
    everywhere = list(range(len(findings)))
    probabilities = [k for k in everywhere if findings[k].is_probability]
    drawn: list[dict[str, Floats]] = [{} for _ in findings]
    groups = [_same_weight(sample, each) for each in (everywhere, probabilities)]
    tick = sample.ticking(f"{sample.model}: overview, resamples", sum(map(len, groups)))

    def add(metrics: Mapping[str, Mapping[str, float]], columns: list[int], weight: Floats | None) -> None:
        found = bootstrap_many(
            metrics,
            sample.data.y[:, columns],
            sample.data.p[:, columns],
            weight,
            draws=sample.draws,
            workers=sample.workers,
            progress=tick if "auroc" in metrics or _ERROR in metrics else None,
        )
        for name, values in found.items():
            for place, k in enumerate(columns):
                drawn[k][name] = values[:, place]

    ranking_options: dict[str, dict[str, float]] = {name: {} for name in (*_RANKING, "prevalence")} | {
        "sensitivity_at_specificity": {"specificity": SPECIFICITY}
    }
    for columns, weight in groups[0]:
        add(ranking_options, columns, weight)
        # Thresholds are each finding's own, so are the rates there.
        for k in columns:
            add({name: {"threshold": value} for name, value in points[k].thresholds.items()}, [k], weight)
    for columns, weight in groups[1]:
        add({name: {} for name in (*PROBABILITY, _ERROR) if name != "brier_skill_score"}, columns, weight)
        for k in columns:
            prevalence = sample.settings.training_prevalence(findings[k].name)
            add({"brier_skill_score": {} if prevalence is None else {"prevalence": prevalence}}, [k], weight)
    return drawn


def _same_weight(sample: Sample, columns: Sequence[int]) -> list[tuple[list[int], Floats | None]]:
    """Findings whose rows are weighted alike go through the engine together."""
    given = sample.data.weight
    if given is None or not columns:
        return [(list(columns), None)] if columns else []
    filled = np.where(np.isnan(given), -np.inf, given)
    of_image = filled.max(axis=1)
    if np.all(np.isnan(given) | (given == of_image[:, None])):
        return [(list(columns), np.maximum(of_image, 0.0))]
    return [([k], np.nan_to_num(given[:, k], nan=1.0)) for k in columns]


def _finding_rows(make: RowMaker, finding: Finding, point: _Point, drawn: Mapping[str, Floats]) -> list[Row]:
    rows = []
    order = [*_RANKING[:3], "prevalence", *PROBABILITY, _ERROR, *_RANKING[3:], "precision", "npv", "j", "f1"]
    for name in order:
        if name not in point.values:
            continue
        note = _NOTES.get(name)
        if name in ("precision", "npv") and name in point.thresholds:
            note = f"at the threshold {point.operating.threshold:.6g} of sensitivity_at_specificity"
        value = point.values[name]
        how = None
        prevalence = make.sample.settings.training_prevalence(finding.name)
        if name == "brier_skill_score" and prevalence is not None:
            how = f"against the training prevalence {prevalence:g}"
        note = note if np.isfinite(value) else None
        rows.append(make.of(name, finding, value, drawn.get(name), note=note, how=how))
    at, asked = point.operating, f"specificity {SPECIFICITY} asked"
    rows.append(make.of("sensitivity_at_specificity.threshold", finding, at.threshold, how=asked))
    rows.append(make.of("sensitivity_at_specificity.specificity", finding, at.specificity, how=asked))
    rows.append(make.of("youden_threshold", finding, point.thresholds.get("j", np.nan), known="youden"))
    rows.append(make.of("max_f1_threshold", finding, point.thresholds.get("f1", np.nan), known="max_f1"))
    if finding.is_probability:
        rows.append(make.of("expected_ace", finding, point.expected_ace, how="200 simulations of y ~ Bernoulli(p)"))
    sentence, supply = verdict(finding)
    rows.append(make.of("verdict", finding, supply, note=sentence))
    return rows


def verdict(finding: Finding) -> tuple[str, float]:
    """Whether the data can carry a number, in plain words, and the patients on the scarcer side."""
    positive, negative = finding.counts.units.positive, finding.counts.units.negative
    side, supply = ("positives", positive) if positive <= negative else ("negatives", negative)
    if supply == 0:
        return f"no {side}: nothing can be said about ranking", 0.0
    patients = f"{supply:,} patient{'s' * (supply != 1)} with {side}"
    if supply < FEW:
        return f"too few {side}: {patients}; do not quote these numbers", float(supply)
    if supply < SOME:
        return f"few {side}: {patients}; read the interval, not the number", float(supply)
    return f"enough data: {patients}", float(supply)


def _macro_rows(
    make: RowMaker,
    sample: Sample,
    findings: Sequence[Finding],
    points: Sequence[_Point],
    replicates: Sequence[Mapping[str, Floats]],
) -> list[Row]:
    rows = []
    names = dict.fromkeys(name for point in points for name in point.values)
    for name in names:
        defined = [k for k, point in enumerate(points) if np.isfinite(point.values.get(name, np.nan))]
        if not defined:
            counts = everything(sample, findings)
            rows.append(make.row(name, MACRO, counts, np.nan, note=f"{name} is undefined for every finding"))
            continue
        counts = everything(sample, [findings[k] for k in defined])
        note = f"mean of {len(defined)} of {len(findings)} findings"
        value = float(np.mean([points[k].values[name] for k in defined]))
        drawn = mean_over([replicates[k][name] for k in defined], [findings[k].counts.units for k in defined])
        rows.append(make.row(name, MACRO, counts, value, drawn.replicates, units=drawn.units, note=note))
    expected = [point.expected_ace for point in points if np.isfinite(point.expected_ace)]
    if expected:
        counts = everything(sample, [f for f in findings if f.is_probability])
        note = f"mean of {len(expected)} of {len(findings)} findings"
        rows.append(make.row("expected_ace", MACRO, counts, float(np.mean(expected)), note=note))
    return rows


def _curves(sample: Sample, finding: Finding) -> list[Row]:
    """ROC and PR on a grid with bands from the first resamples, and the reliability bins. None without both classes."""
    y, p, weight = finding.y, finding.p, finding.weight
    if np.isnan(ranking.auroc(y, p, weight)):
        return []
    drawn = replace(sample.draws, unit=sample.draws.unit[finding.at], n_resamples=min(BAND, sample.draws.n_resamples))
    level = sample.settings.level
    found: dict[str, Sequence[Floats]] = {
        "roc": roc_band(y, p, weight, draws=drawn, level=level),
        "pr": pr_band(y, p, weight, draws=drawn, level=level),
    }
    if finding.is_probability:
        patients = sample.data.patients[finding.at]
        found["reliability"] = reliability_table(y, p, weight, level=level, clusters=patients)[:4]
    head = {"model": sample.curve_model, "finding": finding.name, "slice": "all"}
    return [
        {**head, "kind": kind, "x": x, "y": up, "low": low, "high": high}
        for kind, columns in found.items()
        for x, up, low, high in zip(*(column.tolist() for column in columns), strict=True)
    ]


def _notes(sample: Sample, findings: Sequence[Finding]) -> list[str]:
    notes = []
    ranked = [f.name for f in findings if not f.is_probability]
    if ranked:
        notes.append(
            f"{sample.model}: {', '.join(ranked)}: scores are not probabilities (outside 0 to 1, or logits): "
            "ranking metrics only, no Brier scores or calibration"
        )
    for finding in findings:
        sentence, _ = verdict(finding)
        if not sentence.startswith("enough"):
            notes.append(f"{sample.model}: {finding.name}: {sentence}")
    if sample.data.weight is not None:
        notes.append(f"{sample.model}: every number is weighted by the weight column; counts are rows")
    if len(sample.data.patient_ids) == len(sample.data.image_ids):
        notes.append(f"{sample.model}: every image is a patient of its own; intervals are as for independent images")
    return notes
