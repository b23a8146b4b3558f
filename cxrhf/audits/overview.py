"""PREDICTION -> RESULT, CURVE: every metric per finding and macro, ROC, PR and reliability curves, and a verdict.

Ranking metrics for every finding; probability metrics only where the scores are probabilities (0 to 1), said otherwise.
The operating point is the lowest threshold that keeps the asked specificity on these rows; precision, NPV and MCC are
given at it. J and F1, with sensitivity and specificity there, are given at the thresholds that are best on these very
rows, hence optimistic. The intervals of all rates at a threshold hold it fixed. `adaptive_calibration_error` must be
read beside `expected_ace`, what a calibrated model would show.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cxrhf.audits.rows import (
    MACRO,
    RATES,
    SENSITIVITY_AT_SPECIFICITY,
    AuditPart,
    Points,
    Row,
    RowMaker,
    catalogue_name,
    macro_counts,
    options_of,
    points_of,
    rate_note,
    rate_replicates,
    set_direction,
    threshold_rows,
)
from cxrhf.audits.sample import Counts, Finding, Sample, bootstrap_findings
from cxrhf.metrics import calibration, ranking
from cxrhf.metrics.bands import pr_band, roc_band
from cxrhf.metrics.estimates import FEW, findings_in_mean, mean_note, mean_over
from cxrhf.metrics.ranking import auroc
from cxrhf.metrics.reliability import calibration_line, reliability_table
from cxrhf.metrics.resample import Option
from cxrhf.metrics.weighting import (
    LEAST_ROWS,
    LEAST_SHARE,
    Balance,
    EffectiveSize,
    att_weights,
    balance,
    effective_sample_size,
    ipw_weights,
)

Floats = NDArray[np.float64]


# Patients with a positive (negative) row below which intervals are wide.
SOME = 50
# Ranking metrics that need the rows again in every replicate, in the order of the table.
_RANKING = ("auroc", "average_precision", "auprc_trapezoid", SENSITIVITY_AT_SPECIFICITY)
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
_BRIER: Mapping[str, Callable[..., float]] = {
    "brier": calibration.brier,
    "brier_positive": calibration.brier_positive,
    "brier_negative": calibration.brier_negative,
    "balanced_brier": calibration.balanced_brier,
    "expected_calibration_error": calibration.expected_calibration_error,
    _ERROR: calibration.adaptive_calibration_error,
}
_NOTES = {
    "balanced_brier": "sum of both classes, 0 to 2; not a proper score, so do not rank calibration by it",
    _ERROR: "above 0 even for a calibrated model; compare with expected_ace",
}


class _Point(NamedTuple):
    values: dict[str, float]
    points: Points
    expected_ace: float


def overview(sample: Sample) -> AuditPart:
    """All metrics of one model."""
    findings = sample.findings()
    sample.progress(f"{sample.model}: overview, point estimates of {len(findings)} findings")
    points = [_point(sample, finding) for finding in findings]
    sample.progress(
        f"{sample.model}: overview, {sample.draws.n_resamples:,} resamples of {sample.draws.n_units:,} patients"
    )
    replicates = _replicates(sample, findings, points)
    sample.progress(f"{sample.model}: overview, intervals")
    make = RowMaker("overview", sample)
    rows: list[Row] = []
    for finding, point, own in zip(findings, points, replicates, strict=True):
        rows += _finding_rows(make, finding, point, own)
    rows += _macro_rows(make, findings, points, replicates)
    sample.progress(f"{sample.model}: overview, curves")
    curves = [row for finding in findings for row in curves_of(sample, finding)]
    for finding, own in zip(findings, replicates, strict=True):
        sample.memory.update({(name, finding.name): values for name, values in own.items() if name not in RATES})
    return AuditPart(rows, curves, [*_notes(sample, findings), *_reversed_score_notes(sample, rows)])


def _point(sample: Sample, finding: Finding) -> _Point:
    y, p, weight = finding.y, finding.p, finding.weight
    points = points_of(finding)
    values = {
        "auroc": ranking.auroc(y, p, weight),
        "average_precision": ranking.average_precision(y, p, weight),
        "auprc_trapezoid": ranking.auprc_trapezoid(y, p, weight),
        SENSITIVITY_AT_SPECIFICITY: points.asked.sensitivity,
        "prevalence": finding.prevalence,
    }
    values |= points.values
    expected = np.nan
    if finding.is_probability:
        values |= {name: function(y, p, weight) for name, function in _BRIER.items()}
        prevalence = sample.settings.training_prevalence(finding.name)
        values["brier_skill_score"] = calibration.brier_skill_score(y, p, weight, prevalence)
        line = calibration_line(y, p, weight)
        values["calibration_slope"], values["calibration_intercept"] = line.slope, line.intercept
        values["calibration_in_the_large"] = line.in_the_large
        if weight.sum() > 0:
            expected = calibration.expected_ace(p, weight, seed=sample.settings.seed)
    return _Point(values, points, expected)


def _replicates(sample: Sample, findings: Sequence[Finding], points: Sequence[_Point]) -> list[dict[str, Floats]]:
    """Every metric of every finding on the same draws."""
    ranking_options = {name: options_of(name) for name in (*_RANKING, "prevalence")}
    out = bootstrap_findings(sample, findings, ranking_options, text="overview, ranking metrics")
    inside = [k for k, finding in enumerate(findings) if finding.is_probability]
    chosen = [findings[k] for k in inside]
    trained = [sample.settings.training_prevalence(finding.name) for finding in chosen]
    options: dict[str, dict[str, Option]] = {name: {} for name in (*PROBABILITY, _ERROR)}
    options["brier_skill_score"] = {"prevalence": [np.nan if each is None else each for each in trained]}
    for k, own in zip(
        inside, bootstrap_findings(sample, chosen, options, text="overview, probability metrics"), strict=True
    ):
        out[k] |= own
    rates = rate_replicates(sample, findings, [point.points for point in points], "overview, rates")
    return [each | own for each, own in zip(out, rates, strict=True)]


def _finding_rows(make: RowMaker, finding: Finding, point: _Point, replicates: Mapping[str, Floats]) -> list[Row]:
    rows = []
    order = [*_RANKING[:3], "prevalence", *PROBABILITY, _ERROR, SENSITIVITY_AT_SPECIFICITY, *RATES]
    prevalence = make.sample.settings.training_prevalence(finding.name)
    for name in [each for each in order if each in point.values]:
        value = point.values[name]
        note = _NOTES.get(name) or rate_note(name, point.points)
        note = note if np.isfinite(value) else None
        how = None
        if name == "brier_skill_score" and prevalence is not None:
            how = f"against the training prevalence {prevalence:g}"
        rows.append(
            set_direction(
                make.of(name, finding, value, replicates.get(name), note=note, how=how, known=catalogue_name(name))
            )
        )
    rows += threshold_rows(make, finding, point.points)
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
        return f"no {side}: ranking is undefined", 0.0
    patients = f"{supply:,} patient{'s' * (supply != 1)} with {side[:-1]} images"
    if supply < FEW:
        return f"too few {side}: {patients}; do not quote these numbers", float(supply)
    if supply < SOME:
        return f"few {side}: {patients}; read the interval rather than the number", float(supply)
    if doubt := poor_overlap_reason(finding):
        return f"{doubt}; numbers with context held equal are uncertain, other numbers use {patients}", float(supply)
    return f"enough data: {patients}", float(supply)


def _macro_rows(
    make: RowMaker,
    findings: Sequence[Finding],
    points: Sequence[_Point],
    replicates: Sequence[Mapping[str, Floats]],
) -> list[Row]:
    sample = make.sample
    rows = []
    names = dict.fromkeys(name for point in points for name in point.values)
    counted: dict[tuple[int, ...], Counts] = {}  # most metrics are defined for the same findings
    units = [finding.counts.units for finding in findings]
    for name in names:
        values = [point.values.get(name, np.nan) for point in points]
        kept = findings_in_mean(values, units)
        chosen = tuple(kept or range(len(findings)))
        if chosen not in counted:
            counted[chosen] = macro_counts(sample, [findings[k] for k in chosen])
        counts = counted[chosen]
        if not kept:
            rows.append(make.row(name, MACRO, counts, np.nan, note=f"{name} is undefined for every finding"))
            continue
        note = mean_note([finding.name for finding in findings], values, kept)
        value = float(np.mean([values[k] for k in kept]))
        mean = mean_over([replicates[k][name] for k in kept], [units[k] for k in kept])
        row = make.row(
            name, MACRO, counts, value, mean.replicates, units=mean.units, note=note, known=catalogue_name(name)
        )
        rows.append(set_direction(row))
    expected = [point.expected_ace for point in points]
    if kept := findings_in_mean(expected, units):
        counts = macro_counts(sample, [findings[k] for k in kept])
        note = mean_note([finding.name for finding in findings], expected, kept)
        value = float(np.mean([expected[k] for k in kept]))
        rows.append(make.row("expected_ace", MACRO, counts, value, note=note))
    return rows


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
        # The audits with context held equal say themselves where there is poor overlap.
        if not sentence.startswith(("enough", "poor overlap")):
            notes.append(f"{sample.model}: {finding.name}: {sentence}")
    if sample.data.weight is not None:
        notes.append(f"{sample.model}: every metric uses the weight column; counts are rows")
    if len(sample.data.patient_ids) == len(sample.data.image_ids):
        notes.append(f"{sample.model}: every image is a separate patient, so intervals treat images as independent")
    return notes


def _reversed_score_notes(sample: Sample, rows: Sequence[Row]) -> list[str]:
    """Scores that rank the wrong way round: what to look at, said once where all findings are so."""
    judged = [row for row in rows if row["metric"] == "auroc" and row["finding"] != MACRO]
    judged = [row for row in judged if np.isfinite(np.nan if row["ci_high"] is None else row["ci_high"])]
    found = [row for row in judged if row["ci_high"] < 0.5]
    check = "check whether higher scores mean disease and whether scores and labels belong together"
    if len(found) > 1 and len(found) == len(judged):
        values = [row["value"] for row in found]
        return [
            f"{sample.model}: scores seem to be the wrong way round for all {len(found)} findings (AUROC "
            f"{min(values):.3f} to {max(values):.3f}, all intervals below 0.5): {check}"
        ]
    return [
        f"{sample.model}: {row['finding']}: scores seem to be the wrong way round (AUROC {row['value']:.3f}, interval "
        f"{row['ci_low']:.3f} to {row['ci_high']:.3f}, below 0.5): {check}"
        for row in found
    ]


# One finding of one model -> CURVE: ROC and PR on a grid with bands, and reliability bins.

# Resamples behind the bands of a curve: a picture needs no more.
BAND = 400


def curves_of(sample: Sample, finding: Finding) -> list[Row]:
    """The curves of a finding, with bands from the first resamples. None without both classes."""
    y, p, weight = finding.y, finding.p, finding.weight
    if np.isnan(auroc(y, p, weight)):
        return []
    drawn = replace(sample.draws, unit=sample.draws.unit[finding.at], n_resamples=min(BAND, sample.draws.n_resamples))
    level = sample.settings.level
    found: dict[str, Sequence[Floats]] = {
        "roc": roc_band(y, p, weight, draws=drawn, level=level),
        "pr": pr_band(y, p, weight, draws=drawn, level=level),
    }
    if finding.is_probability:
        found["reliability"] = reliability_table(y, p, weight, level=level, clusters=finding.patients)[:4]
    head = {"model": sample.curve_model, "finding": finding.name, "slice": "all"}
    return [
        {**head, "kind": kind, "x": x, "y": up, "low": low, "high": high}
        for kind, columns in found.items()
        for x, up, low, high in zip(*(column.tolist() for column in columns), strict=True)
    ]


# Labels and pre-test probabilities -> whether context can be held equal at all: the one rule, in plain words.
#
# Weights that make the context of the classes alike can do so only where both classes are. They do not where the
# classes hardly share a range of q, or where a few rows must stand for all others; then the number rests on those
# few.

# Warn when positives and negatives share less than this of their distributions of q. Two classes wide apart, each with
# one value of q, keep all their effective rows: the sizes alone would not show it.
LEAST_OVERLAP = 0.2


class Overlap(NamedTuple):
    """Weights of each kind (the weight column included), what they leave, balance before them, and what is doubtful."""

    weights: dict[str, Floats]
    sizes: dict[str, EffectiveSize]
    before: Balance
    doubts: list[str]


def overlap_of(finding: Finding, q: Floats, prevalence: float = 0.5) -> Overlap:
    """`prevalence` sets the classes' share in the IPW weights; nothing said here depends on it."""
    y, weight = finding.y, finding.weight
    weights = {"att": weight * att_weights(y, q), "ipw": weight * ipw_weights(y, q, prevalence)}
    sizes = {name: effective_sample_size(each, y) for name, each in weights.items()}
    before = balance(y, q, weight)
    return Overlap(weights, sizes, before, _doubts(finding, sizes, before))


def _doubts(finding: Finding, sizes: dict[str, EffectiveSize], before: Balance) -> list[str]:
    if np.isnan(before.overlap):
        return []
    said = []
    if before.overlap < LEAST_OVERLAP:
        said.append(
            f"poor overlap: the pre-test probabilities of positives and negatives overlap by only {before.overlap:.0%}"
        )
    for name, size in sizes.items():
        for side, effective, there in (
            ("positives", size.positive, finding.counts.n_pos),
            ("negatives", size.negative, finding.counts.n - finding.counts.n_pos),
        ):
            share = effective / there if there else 1.0
            counted = f"{there:,} {side} count as {effective:,.0f} ({_percent(share)}) after weighting"
            if share < LEAST_SHARE:
                said.append(f"poor overlap ({name.upper()}): {counted}")
            elif there and effective < LEAST_ROWS:
                if share > 0.99:
                    counted = f"{there:,} images, at least {LEAST_ROWS} are needed"
                said.append(f"few {side} ({name.upper()}): {counted}")
    return said


def poor_overlap_reason(finding: Finding) -> str | None:
    """The first reason why context cannot be held equal for a finding; None: it can, or there is no q."""
    if finding.pretest is None:
        return None
    known = finding.only(~np.isnan(finding.pretest))
    if known.counts.n == 0 or known.pretest is None:
        return None
    doubts = overlap_of(known, known.pretest).doubts
    return next((sentence for sentence in doubts if sentence.startswith("poor overlap")), None)


def _percent(share: float) -> str:
    return "under 1%" if share < 0.01 else f"{share:.0%}"
