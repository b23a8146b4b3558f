"""PREDICTION -> RESULT: what a model's numbers are once weights have made the context of both classes alike.

Needs the pre-test probability q of every row, what is known before the image is seen. Beside the standard AUROC stand
that of q alone (`auroc_context`) and two ways to hold context equal, on the same draws of patients. `_att` (headline)
weights the negatives to the context of the positives: how well is a positive told from a negative with the same
history? `_ipw` weights both classes to the context of everybody, another question. Sensitivity at 95% specificity is
given at a threshold set on the weighted rows, and at one common threshold (`sensitivity_global`, `specificity_global`).
For calibration the ATT classes are scaled back to their share in the sample and IPW has the training prevalence;
probabilities stay untouched. Drops are paired. q is taken as given: its own uncertainty is not in the intervals.

Known gap: with some 100 to 500 positives heavy weights leave 95% intervals of drops and of the ATT sensitivity at 88 to
92% in simulations. The IPW drop is therefore not tested.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cxrhf.audits.columns import drawn
from cxrhf.audits.controlled import (
    ERROR_NOTE,
    NOISE,
    Study,
    Threshold,
    calibration_noise,
    common_threshold,
    global_rates,
    standard,
    studies,
)
from cxrhf.audits.measured import Measured, number_rows, record_rows
from cxrhf.audits.overlap import Overlap, overlap_of
from cxrhf.audits.rates import AT, SPECIFICITY, options_of
from cxrhf.audits.rows import Part, Row, RowMaker
from cxrhf.audits.sample import Sample
from cxrhf.metrics.calibration import adaptive_calibration_error, brier_skill_score
from cxrhf.metrics.intervals import count_units
from cxrhf.metrics.operating import OperatingPoint, rates_at, sensitivity_at_specificity
from cxrhf.metrics.ranking import auroc
from cxrhf.metrics.reliability import calibration_line
from cxrhf.metrics.weighting import balance, rescale_to_prevalence

Floats = NDArray[np.float64]

KINDS = ("att", "ipw")
CONTROLLED = ("auroc_att", "auroc_ipw")
# Warn outside this range of q's calibration slope, when the interval leaves out 1.
SLOPES = (0.8, 1.25)
_ERROR, _SKILL, _SLOPE = "adaptive_calibration_error", "brier_skill_score", "calibration_slope"


class _Case(NamedTuple):
    """One finding and its weights; `calibrating` are those for calibration."""

    study: Study
    overlap: Overlap
    calibrating: dict[str, Floats]
    shares: dict[str, float]  # the prevalence that those have
    threshold: Threshold


def reweighted(sample: Sample) -> Part:
    """Standard, context-only, ATT and IPW numbers of one model, drops, and the diagnostics behind them."""
    notes: list[str] = []
    found = studies(sample, notes)
    if not found:
        return Part([], [], notes)
    sample.progress(f"{sample.model}: reweighted, {sample.draws.n_resamples:,} resamples with weights")
    numbers, points = standard(sample, found)
    cases = [_case(sample, study, point) for study, point in zip(found, points, strict=True)]
    _add_context(sample, found, numbers)
    for kind in KINDS:
        _add_ranking(sample, cases, numbers, kind)
    _add_global(sample, cases, numbers)
    for kind in KINDS:
        _add_calibration(sample, cases, numbers, kind)
    make = RowMaker("reweighted", sample)
    rows = number_rows(make, [study.finding for study in found], numbers, CONTROLLED)
    slopes = drawn(sample, [each.finding for each in found], {_SLOPE: {}}, scores=[each.q for each in found])
    for case, slope in zip(cases, slopes, strict=True):
        rows += _diagnostic_rows(make, case, slope[_SLOPE], notes)
    return Part(rows, [], notes)


def weighting_of(sample: Sample, kind: str) -> str:
    """How RESULT.method names the weights."""
    return kind + (" x weight column" if sample.data.weight is not None else "")


def _case(sample: Sample, study: Study, point: OperatingPoint) -> _Case:
    # Equation 1 weighs by the prevalence in training, which a context run knows.
    trained = sample.settings.training_prevalence(study.finding.name) or sample.beside.prevalence.get(
        study.finding.name
    )
    shares = {"att": study.prevalence, "ipw": study.prevalence if trained is None else trained}
    overlap = overlap_of(study.finding, study.q, shares["ipw"])
    att = np.nan_to_num(rescale_to_prevalence(study.finding.y, overlap.weights["att"], shares["att"]))
    calibrating = {"att": att, "ipw": overlap.weights["ipw"]}
    return _Case(study, overlap, calibrating, shares, common_threshold(sample, study, point))


def _add_context(sample: Sample, found: Sequence[Study], numbers: Sequence[dict[str, Measured]]) -> None:
    """AUROC of the pre-test probability alone."""
    replicates = drawn(sample, [study.finding for study in found], {"auroc": {}}, scores=[study.q for study in found])
    for study, each, own in zip(found, numbers, replicates, strict=True):
        value = auroc(study.finding.y, study.q, study.finding.weight)
        each["auroc_context"] = Measured(value, own["auroc"], study.finding.counts.units, "auroc")


def _add_ranking(sample: Sample, cases: Sequence[_Case], numbers: Sequence[dict[str, Measured]], kind: str) -> None:
    """AUROC, and sensitivity at a threshold set on the weighted rows."""
    findings, weights = [case.study.finding for case in cases], [case.overlap.weights[kind] for case in cases]
    replicates = drawn(sample, findings, {"auroc": {}, AT: options_of(AT)}, weights)
    name = weighting_of(sample, kind)
    for finding, weight, each, own in zip(findings, weights, numbers, replicates, strict=True):
        y, p, units = finding.y, finding.p, count_units(finding.y, finding.patients, weight)
        each[f"auroc_{kind}"] = Measured(auroc(y, p, weight), own["auroc"], units, "auroc", name)
        point = sensitivity_at_specificity(y, p, SPECIFICITY, weight)
        how = f"threshold {point.threshold:.4g} set on the weighted rows, reset in each resample"
        each[f"{AT}_{kind}"] = Measured(point.sensitivity, own[AT], units, AT, name, how)


def _add_global(sample: Sample, cases: Sequence[_Case], numbers: Sequence[dict[str, Measured]]) -> None:
    """Sensitivity and specificity at the threshold that all weightings share."""
    weights = [[case.overlap.weights[kind] for case in cases] for kind in KINDS]
    found = global_rates(sample, [case.study for case in cases], [case.threshold for case in cases], weights)
    for kind, rates in zip(KINDS, found, strict=True):
        name = weighting_of(sample, kind)
        for k, (case, each) in enumerate(zip(cases, numbers, strict=True)):
            finding, weight, at = case.study.finding, case.overlap.weights[kind], case.threshold
            tpr = fpr = np.nan
            if not np.isnan(at.value):
                tpr, fpr = rates_at(finding.y, finding.p, at.value, weight)[:2]
            units = count_units(finding.y, finding.patients, weight)
            each[f"sensitivity_global_{kind}"] = Measured(tpr, rates.tpr[:, k, 0], units, "tpr", name, at.how)
            each[f"specificity_global_{kind}"] = Measured(1 - fpr, 1 - rates.fpr[:, k, 0], units, "fpr", name, at.how)


def _add_calibration(sample: Sample, cases: Sequence[_Case], numbers: Sequence[dict[str, Measured]], kind: str) -> None:
    """Calibration error with what chance alone gives, and Brier skill; of probabilities only."""
    inside = [k for k, case in enumerate(cases) if case.study.finding.is_probability]
    findings, weights = [cases[k].study.finding for k in inside], [cases[k].calibrating[kind] for k in inside]
    trained = [sample.settings.training_prevalence(finding.name) for finding in findings]
    options = {_ERROR: {}, _SKILL: {"prevalence": [np.nan if each is None else each for each in trained]}}
    replicates = drawn(sample, findings, options, weights)
    name = weighting_of(sample, kind)
    for k, weight, constant, own in zip(inside, weights, trained, replicates, strict=True):
        finding, each = cases[k].study.finding, numbers[k]
        y, p, units = finding.y, finding.p, count_units(finding.y, finding.patients, weight)
        error = noise = skill = np.nan
        if np.isfinite(each[f"auroc_{kind}"].value):
            error, noise = adaptive_calibration_error(y, p, weight), calibration_noise(y, p, weight, finding.patients)
            skill = brier_skill_score(y, p, weight, constant)
        how = f"classes weighted to prevalence {cases[k].shares[kind]:.4g}"
        note = ERROR_NOTE.format(kind)
        each[f"{_ERROR}_{kind}"] = Measured(error, own[_ERROR], units, _ERROR, name, how, note)
        each[f"expected_ace_{kind}"] = Measured(noise, None, units, "expected_ace", name, NOISE)
        if constant is not None:
            how += f", against the training prevalence {constant:g}"
        each[f"{_SKILL}_{kind}"] = Measured(skill, own[_SKILL], units, _SKILL, name, how)


def _diagnostic_rows(make: RowMaker, case: _Case, replicates: Floats, notes: list[str]) -> list[Row]:
    finding, q, overlap = case.study.finding, case.study.q, case.overlap
    rows: list[Row] = []
    for kind in KINDS:
        size = overlap.sizes[kind]._asdict()
        rows += record_rows(make, finding, f"effective_sample_size_{kind}", size, weighting_of(make.sample, kind))
    rows += record_rows(make, finding, "balance", overlap.before._asdict())
    for kind in KINDS:
        after = balance(finding.y, q, overlap.weights[kind])._asdict()
        rows += record_rows(make, finding, f"balance_{kind}", after, weighting_of(make.sample, kind))
    line = calibration_line(finding.y, q, finding.weight)
    slope = make.of("pretest_calibration_slope", finding, line.slope, replicates, known=_SLOPE)
    said = [*overlap.doubts, *_slope_doubt(slope)]
    notes += [f"{make.sample.model}: {finding.name}: {sentence}" for sentence in said]
    sentence = _verdict(overlap, said)
    verdict = make.of("verdict", finding, overlap.before.overlap, known="auroc", note=sentence)
    return [*rows, *(row | {"higher_is_better": None} for row in (slope, verdict))]


def _slope_doubt(slope: Row) -> list[str]:
    value, low, high = slope["value"], slope["ci_low"], slope["ci_high"]
    if SLOPES[0] <= value <= SLOPES[1] or not (low > 1 or high < 1):
        return []
    if value <= 0:
        return [f"the pre-test probability does not rise with the finding here (slope {value:.2f}, should be 1)"]
    return [
        f"the pre-test probability is not calibrated here (slope {value:.2f}, should be 1): weighting by it removes "
        f"too {'much' if value < 1 else 'little'} context"
    ]


def _verdict(overlap: Overlap, said: Sequence[str]) -> str:
    """What stands in the way of the headline (ATT), else whether anything else does."""
    if np.isnan(overlap.before.overlap):
        return "undefined: a class is missing"
    headline = [sentence for sentence in overlap.doubts if "(IPW)" not in sentence]
    return headline[0] if headline else "enough overlap" + (", with reservations" if said else "")
