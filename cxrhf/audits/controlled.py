"""PREDICTION with pre-test probabilities -> what the audits that hold context equal share.

Which rows they look at, the numbers of the sample as it is, the threshold common to all weightings, what a weighted
calibration error is by chance alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cxrhf.audits.overview import Overlap, overlap_of
from cxrhf.audits.rows import (
    SENSITIVITY_AT_SPECIFICITY,
    SPECIFICITY,
    AuditPart,
    FindingNumber,
    Row,
    RowMaker,
    number_rows,
    options_of,
    record_rows,
)
from cxrhf.audits.sample import Finding, Sample, bootstrap_findings, column_matrix, label_matrix
from cxrhf.metrics.calibration import adaptive_calibration_error, brier_skill_score
from cxrhf.metrics.grouped import Grouping, GroupNumbers, drawn_groups, drawn_starts, rank_findings
from cxrhf.metrics.intervals import count_units
from cxrhf.metrics.matching import PairSummary, match_weights, pair_summary, pairs_of
from cxrhf.metrics.operating import OperatingPoint, rates_at, sensitivity_at_specificity
from cxrhf.metrics.ranking import auroc, rank_rows
from cxrhf.metrics.reliability import calibration_line
from cxrhf.metrics.resample import bootstrap_many
from cxrhf.metrics.weighting import LEAST_ROWS, Balance, balance, rescale_to_prevalence

Floats = NDArray[np.float64]


STANDARD = ("auroc", SENSITIVITY_AT_SPECIFICITY)
ERROR_NOTE = "above 0 even for a calibrated model; compare with expected_ace_{}"
BINS = 10  # of the adaptive calibration error
NOISE = "from the spread of residuals over patients"


class PretestFinding(NamedTuple):
    """One finding: its rows with a pre-test probability `q`; `whole`: every labelled row has one."""

    finding: Finding
    q: Floats
    whole: bool

    @property
    def prevalence(self) -> float:
        """Share of positives among these rows, kept off 0 and 1, where no weight is defined."""
        return float(np.clip(self.finding.prevalence, 1e-6, 1 - 1e-6))


class Threshold(NamedTuple):
    """A threshold, whether it stays the same in every replicate, and where it is from."""

    value: float
    fixed: bool
    how: str


def pretest_findings(sample: Sample, notes: list[str]) -> list[PretestFinding]:
    """The findings with pre-test probabilities; what is missing is said once, whichever audit asks first."""
    data = sample.data
    if data.pretest is None:
        notes.append(
            f"{sample.model}: no pretest column, so how much of the AUROC goes with context is unknown. Add the "
            "probability of each finding before the image and pass --pretest COLUMN, or pass "
            "--pretest from:age,sex,view,prior_labels to fit one to the table"
        )
        return []
    found, without = [], []
    for k, name in enumerate(data.findings):
        finding = sample.finding(k, needs_pretest=True)
        lost = int((~np.isnan(data.y[:, k])).sum()) - finding.counts.n
        if finding.counts.n == 0:
            without.append(name)
            continue
        if lost:
            notes.append(
                f"{sample.model}: {name}: {lost:,} labelled rows without pretest are excluded where context is held "
                "equal"
            )
        assert finding.pretest is not None
        found.append(PretestFinding(finding, finding.pretest, lost == 0))
    if without:
        notes.append(
            f"{sample.model}: no pretest value for {', '.join(without)}, so context is not held equal for them"
        )
    return found


def standard_numbers(
    sample: Sample, found: Sequence[PretestFinding]
) -> tuple[list[dict[str, FindingNumber]], list[OperatingPoint]]:
    """Numbers of the sample as it is, and its operating points; replicates that another audit has are taken."""
    points = [
        sensitivity_at_specificity(study.finding.y, study.finding.p, SPECIFICITY, study.finding.weight)
        for study in found
    ]
    lacking = [study for study in found if not _has_replicates(sample, study)]
    made = bootstrap_findings(
        sample, [study.finding for study in lacking], {name: options_of(name) for name in STANDARD}
    )
    fresh = {study.finding.name: each for study, each in zip(lacking, made, strict=True)}
    out: list[dict[str, FindingNumber]] = []
    for study, point in zip(found, points, strict=True):
        finding = study.finding
        if study.whole:
            sample.memory.update({(name, finding.name): each for name, each in fresh.get(finding.name, {}).items()})
        replicates = fresh.get(finding.name) or {name: sample.memory[name, finding.name] for name in STANDARD}
        values = auroc(finding.y, finding.p, finding.weight), point.sensitivity
        out.append(
            {
                name: FindingNumber(value, replicates[name], finding.counts.units, name)
                for name, value in zip(STANDARD, values, strict=True)
            }
        )
    return out, points


def _has_replicates(sample: Sample, study: PretestFinding) -> bool:
    return study.whole and all((name, study.finding.name) in sample.memory for name in STANDARD)


def common_threshold(sample: Sample, study: PretestFinding, point: OperatingPoint) -> Threshold:
    """The threshold that all weightings share: that of the validation rows, if there are any, else the sample's own."""
    tuning = sample.tuning_like(study.finding)
    if tuning is not None:
        chosen = sensitivity_at_specificity(tuning.y, tuning.p, SPECIFICITY, tuning.weight).threshold
        if not np.isnan(chosen):
            return Threshold(chosen, True, f"threshold {chosen:.4g} from the validation rows, held fixed")
    how = f"threshold {point.threshold:.4g} of the unweighted sample, reset in each resample"
    return Threshold(point.threshold, False, how)


def global_rates(
    sample: Sample,
    found: Sequence[PretestFinding],
    thresholds: Sequence[Threshold],
    weights: Sequence[Sequence[Floats]],
) -> list[GroupNumbers]:
    """Rates of every finding at its common threshold in every replicate, once for each of the `weights`.

    A threshold of the sample moves with it: held fixed, the intervals of the sensitivity covered 79% instead of 95%.
    """
    findings = [study.finding for study in found]
    y, p = label_matrix(sample, findings), column_matrix(sample, findings, [finding.p for finding in findings])
    weight = column_matrix(sample, findings, [finding.weight for finding in findings], 0.0)
    given = [each.value if each.fixed else np.nan for each in thresholds]
    ranked = rank_findings(y, p, weight, sample.draws.unit, threshold=given, fpr=1 - SPECIFICITY, rule="conservative")
    starts = drawn_starts(ranked, sample.draws, sample.workers)
    everybody = Grouping(np.zeros(len(y), dtype=np.int64), 1)
    out = []
    for each in weights:
        own = column_matrix(sample, findings, each, 0.0)
        weighted = ranked._replace(weight=own[ranked.origin, ranked.finding])
        out.append(drawn_groups(weighted, everybody, starts, sample.draws, sample.workers).original)
    return out


def calibration_noise(y: Floats, p: Floats, weight: Floats, patients: NDArray[np.int64]) -> float:
    """What the adaptive calibration error of these rows is by chance alone: E|N(0, s)| of each bin, added up.

    s is the spread over patients of the bin's weighted residuals around their mean. Weights that depend on the label
    rule out the simulation behind `expected_ace`, which deals labels to rows whatever their weight: on planted data
    with weights it gave .6 to 1.7 times the error of a calibrated model, this .9 to 1.1. NaN when empty.
    """
    total = weight.sum()
    if not total > 0:
        return float("nan")
    ranked = rank_rows(y, p, weight)
    run = np.cumsum(np.r_[True, ranked.last[:-1]]) - 1
    mass = np.bincount(run, ranked.weight)
    end = np.cumsum(mass) / total * BINS
    begin = end - mass / total * BINS
    unit = np.unique(patients, return_inverse=True)[1].reshape(-1)[ranked.order]
    residual = ranked.y - ranked.p
    noise = 0.0
    for k in range(BINS):
        inside = np.clip(np.minimum(end, k + 1) - np.maximum(begin, k), 0, None) * (total / BINS)
        share = np.divide(inside, mass, out=np.zeros(len(mass)), where=mass > 0)[run]
        there = np.flatnonzero(share)
        part = ranked.weight[there] * share[there]
        around = residual[there] - part @ residual[there] / part.sum()
        noise += float(np.sqrt((np.bincount(unit[there], part * around) ** 2).sum() * 2 / np.pi))
    return float(noise / total)


# PREDICTION -> RESULT: what a model's numbers are on positives and negatives paired by their context.
#
# Needs the pre-test probability q of every row, what is known before the image is seen. Every member of the smaller
# class gets a partner of the other with minimal total difference of q; the matching is redone in every replicate, for
# drawing from one matched set would leave out its uncertainty. It asks what `auroc_att` of the reweighted audit asks,
# with two gaps of its own: where negatives of high q run out the partners differ, and a patient's own images are
# often the nearest; both are said. For calibration the classes are scaled back to their share in the sample,
# probabilities stay untouched, and no interval is given. The weight column is not used, not for the numbers before
# matching either: a row is matched or not (one of weight 0 is no row).

CONTROLLED = ("matched_auroc",)
WEIGHTING = "matched 1:1"
# Warn above this share of pairs with one patient on both sides, and above this standardised difference of q left.
SAME_PATIENT = 0.1
GAP = 0.1


class _MatchedFinding(NamedTuple):
    """One finding and what its pairs are like."""

    finding: Finding
    pairs: PairSummary
    after: Balance


def matched(sample: Sample) -> AuditPart:
    """Standard and matched numbers of one model, the drop, and what the pairs are like."""
    notes: list[str] = []
    weighted = sample.data.weight is not None
    if weighted:  # a drop from a weighted to an unweighted number would be one between populations
        sample = replace(sample, data=replace(sample.data, weight=None), memory={})
    found = pretest_findings(sample, notes)
    if not found:
        return AuditPart([], [], notes)
    if weighted:
        notes.append(
            f"{sample.model}: the matched audit ignores the weight column, also in its AUROC before matching, "
            "because a row is either matched or not"
        )
    numbers, _ = standard_numbers(sample, found)
    shares = [match_weights(study.finding.y, study.q) for study in found]
    replicates = _replicates(sample, found)
    for k, (study, weight, each) in enumerate(zip(found, shares, numbers, strict=True)):
        own = {name: drawn[:, k] for name, drawn in replicates.items()}
        each.update(_numbers(sample, study, weight, own))
    make = RowMaker("matched", sample)
    rows = number_rows(make, [study.finding for study in found], numbers, CONTROLLED)
    described = [_describe_pairs(study, weight) for study, weight in zip(found, shares, strict=True)]
    for one in described:
        rows += _diagnostic_rows(make, one)
    return AuditPart(rows, [], [*notes, *_notes(sample, described)])


def _replicates(sample: Sample, found: Sequence[PretestFinding]) -> dict[str, Floats]:
    """AUROC and sensitivity of all findings, the matching redone in every replicate, once for both."""
    findings = [study.finding for study in found]
    sample.progress(f"{sample.model}: matched, {sample.draws.n_resamples:,} resamples, matching redone in each")
    return bootstrap_many(
        {"matched_auroc": {}, "matched_sensitivity": {"specificity": SPECIFICITY}},
        label_matrix(sample, findings),
        column_matrix(sample, findings, [finding.p for finding in findings]),
        pretest=column_matrix(sample, findings, [study.q for study in found]),
        draws=sample.draws,
        workers=sample.workers,
        progress=sample.ticking(f"{sample.model}: matched, matching redone", 1),
    )


def _numbers(
    sample: Sample, study: PretestFinding, weight: Floats, drawn: dict[str, Floats]
) -> dict[str, FindingNumber]:
    finding = study.finding
    y, p, units = finding.y, finding.p, count_units(finding.y, finding.patients, weight)
    point = sensitivity_at_specificity(y, p, SPECIFICITY, weight)
    how = f"threshold {point.threshold:.4g} set on the matched rows, reset in each resample"
    out = {
        "matched_auroc": FindingNumber(auroc(y, p, weight), drawn["matched_auroc"], units, "matched_auroc", WEIGHTING),
        "sensitivity_at_specificity_matched": FindingNumber(
            point.sensitivity, drawn["matched_sensitivity"], units, "matched_sensitivity", WEIGHTING, how
        ),
    }
    if not finding.is_probability:
        return out
    prevalence = float(y.mean())
    error = noise = skill = np.nan
    trained = sample.settings.training_prevalence(finding.name)
    if 0 < prevalence < 1:
        back = rescale_to_prevalence(y, weight, prevalence)
        error, noise = adaptive_calibration_error(y, p, back), calibration_noise(y, p, back, finding.patients)
        skill = brier_skill_score(y, p, back, trained)
    share = f"classes weighted to prevalence {prevalence:.4g}; no interval"
    against = "" if trained is None else f"; against the training prevalence {trained:g}"
    known, said = "adaptive_calibration_error", ERROR_NOTE.format("matched")
    out[f"{known}_matched"] = FindingNumber(error, None, units, known, WEIGHTING, share, said)
    out["expected_ace_matched"] = FindingNumber(noise, None, units, "expected_ace", WEIGHTING, NOISE)
    known = "brier_skill_score"
    out[f"{known}_matched"] = FindingNumber(skill, None, units, known, WEIGHTING, share + against)
    return out


def _describe_pairs(study: PretestFinding, weight: Floats) -> _MatchedFinding:
    y, q = study.finding.y, study.q
    pairs = pair_summary(pairs_of(y, q, weight), y, q, study.finding.patients)
    return _MatchedFinding(study.finding, pairs, balance(y, q, weight))


def _diagnostic_rows(make: RowMaker, described: _MatchedFinding) -> list[Row]:
    finding, pairs, after = described
    rows = record_rows(make, finding, "balance_matched", after._asdict(), WEIGHTING)
    rows += record_rows(make, finding, "pair_summary", pairs._asdict(), WEIGHTING)
    sentence = _verdict(pairs, after)
    verdict = make.of("verdict", finding, pairs.mean_difference, known="auroc", weighting=WEIGHTING, note=sentence)
    return [*rows, verdict | {"higher_is_better": None}]


def _verdict(pairs: PairSummary, after: Balance) -> str:
    """What makes the matched numbers of one finding doubtful, in plain words."""
    if pairs.n_pairs == 0:
        return "undefined: a class is missing"
    said = []
    if pairs.n_pairs < LEAST_ROWS:
        said.append(f"few pairs: {pairs.n_pairs:,}, at least {LEAST_ROWS} are needed")
    if pairs.same_patient_share > SAME_PATIENT:
        said.append(f"{pairs.same_patient_share:.0%} of the pairs have the same patient on both sides")
    if abs(after.standardised_difference) > GAP:
        scarce = "negatives" if after.standardised_difference > 0 else "positives"
        said.append(
            f"the pairs differ: mean pre-test probability {after.mean_positive:.2f} in positives, "
            f"{after.mean_negative:.2f} in negatives, because too few {scarce} have the same context"
        )
    return "; ".join(said) or "the pairs are alike"


def _notes(sample: Sample, described: Sequence[_MatchedFinding]) -> list[str]:
    """The same doubt of many findings is one note."""
    few = [f"{each.finding.name} ({each.pairs.n_pairs:,})" for each in described if 0 < each.pairs.n_pairs < LEAST_ROWS]
    same = [
        f"{each.finding.name} ({each.pairs.same_patient_share:.0%})"
        for each in described
        if each.pairs.same_patient_share > SAME_PATIENT
    ]
    apart = [each.finding.name for each in described if abs(each.after.standardised_difference) > GAP]
    notes = []
    if few:
        notes.append(f"{sample.model}: few matched pairs (at least {LEAST_ROWS} are needed): {', '.join(few)}")
    if same:
        notes.append(
            f"{sample.model}: many matched pairs are two images of the same patient, so matched_auroc ranks images "
            f"within patients; prefer auroc_att: {', '.join(same)}"
        )
    if apart:
        notes.append(
            f"{sample.model}: matched pairs still differ in pre-test probability, so some context remains in "
            f"matched_auroc: {', '.join(apart)}"
        )
    return notes


# PREDICTION -> RESULT: what a model's numbers are once weights have made the context of both classes alike.
#
# Needs the pre-test probability q of every row, what is known before the image is seen. Beside the standard AUROC
# stand that of q alone (`auroc_context`) and two ways to hold context equal, on the same draws of patients. `_att`
# (headline) weights the negatives to the context of the positives: how well is a positive told from a negative with
# the same history? `_ipw` weights both classes to the context of everybody, another question. Sensitivity at 95%
# specificity is given at a threshold set on the weighted rows, and at one common threshold (`sensitivity_global`,
# `specificity_global`). For calibration the ATT classes are scaled back to their share in the sample and IPW has the
# training prevalence; probabilities stay untouched. Drops are paired. q is taken as given: its own uncertainty is not
# in the intervals.
#
# Known gap: with some 100 to 500 positives heavy weights leave 95% intervals of drops and of the ATT sensitivity at
# 88 to 92% in simulations. The IPW drop is therefore not tested.

KINDS = ("att", "ipw")
REWEIGHTED = ("auroc_att", "auroc_ipw")
# Warn outside this range of q's calibration slope, when the interval leaves out 1.
SLOPES = (0.8, 1.25)
_ERROR, _SKILL, _SLOPE = "adaptive_calibration_error", "brier_skill_score", "calibration_slope"


class _Case(NamedTuple):
    """One finding and its weights; `calibrating` are those for calibration."""

    study: PretestFinding
    overlap: Overlap
    calibrating: dict[str, Floats]
    shares: dict[str, float]  # the prevalence that those have
    threshold: Threshold


def reweighted(sample: Sample) -> AuditPart:
    """Standard, context-only, ATT and IPW numbers of one model, drops, and the diagnostics behind them."""
    notes: list[str] = []
    found = pretest_findings(sample, notes)
    if not found:
        return AuditPart([], [], notes)
    sample.progress(f"{sample.model}: reweighted, {sample.draws.n_resamples:,} resamples with weights")
    numbers, points = standard_numbers(sample, found)
    cases = [_case(sample, study, point) for study, point in zip(found, points, strict=True)]
    _add_context(sample, found, numbers)
    for kind in KINDS:
        _add_ranking(sample, cases, numbers, kind)
    _add_global(sample, cases, numbers)
    for kind in KINDS:
        _add_calibration(sample, cases, numbers, kind)
    make = RowMaker("reweighted", sample)
    rows = number_rows(make, [study.finding for study in found], numbers, REWEIGHTED)
    slopes = bootstrap_findings(
        sample, [each.finding for each in found], {_SLOPE: {}}, scores=[each.q for each in found]
    )
    for case, slope in zip(cases, slopes, strict=True):
        rows += _weighting_rows(make, case, slope[_SLOPE], notes)
    return AuditPart(rows, [], notes)


def weighting_of(sample: Sample, kind: str) -> str:
    """How RESULT.method names the weights."""
    return kind + (" x weight column" if sample.data.weight is not None else "")


def _case(sample: Sample, study: PretestFinding, point: OperatingPoint) -> _Case:
    # Equation 1 weighs by the prevalence in training, which a context run knows.
    trained = sample.settings.training_prevalence(study.finding.name) or sample.beside.prevalence.get(
        study.finding.name
    )
    shares = {"att": study.prevalence, "ipw": study.prevalence if trained is None else trained}
    overlap = overlap_of(study.finding, study.q, shares["ipw"])
    att = np.nan_to_num(rescale_to_prevalence(study.finding.y, overlap.weights["att"], shares["att"]))
    calibrating = {"att": att, "ipw": overlap.weights["ipw"]}
    return _Case(study, overlap, calibrating, shares, common_threshold(sample, study, point))


def _add_context(sample: Sample, found: Sequence[PretestFinding], numbers: Sequence[dict[str, FindingNumber]]) -> None:
    """AUROC of the pre-test probability alone."""
    replicates = bootstrap_findings(
        sample, [study.finding for study in found], {"auroc": {}}, scores=[study.q for study in found]
    )
    for study, each, own in zip(found, numbers, replicates, strict=True):
        value = auroc(study.finding.y, study.q, study.finding.weight)
        each["auroc_context"] = FindingNumber(value, own["auroc"], study.finding.counts.units, "auroc")


def _add_ranking(
    sample: Sample, cases: Sequence[_Case], numbers: Sequence[dict[str, FindingNumber]], kind: str
) -> None:
    """AUROC, and sensitivity at a threshold set on the weighted rows."""
    findings, weights = [case.study.finding for case in cases], [case.overlap.weights[kind] for case in cases]
    replicates = bootstrap_findings(
        sample, findings, {"auroc": {}, SENSITIVITY_AT_SPECIFICITY: options_of(SENSITIVITY_AT_SPECIFICITY)}, weights
    )
    name = weighting_of(sample, kind)
    for finding, weight, each, own in zip(findings, weights, numbers, replicates, strict=True):
        y, p, units = finding.y, finding.p, count_units(finding.y, finding.patients, weight)
        each[f"auroc_{kind}"] = FindingNumber(auroc(y, p, weight), own["auroc"], units, "auroc", name)
        point = sensitivity_at_specificity(y, p, SPECIFICITY, weight)
        how = f"threshold {point.threshold:.4g} set on the weighted rows, reset in each resample"
        each[f"{SENSITIVITY_AT_SPECIFICITY}_{kind}"] = FindingNumber(
            point.sensitivity, own[SENSITIVITY_AT_SPECIFICITY], units, SENSITIVITY_AT_SPECIFICITY, name, how
        )


def _add_global(sample: Sample, cases: Sequence[_Case], numbers: Sequence[dict[str, FindingNumber]]) -> None:
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
            each[f"sensitivity_global_{kind}"] = FindingNumber(tpr, rates.tpr[:, k, 0], units, "tpr", name, at.how)
            each[f"specificity_global_{kind}"] = FindingNumber(
                1 - fpr, 1 - rates.fpr[:, k, 0], units, "fpr", name, at.how
            )


def _add_calibration(
    sample: Sample, cases: Sequence[_Case], numbers: Sequence[dict[str, FindingNumber]], kind: str
) -> None:
    """Calibration error with what chance alone gives, and Brier skill; of probabilities only."""
    inside = [k for k, case in enumerate(cases) if case.study.finding.is_probability]
    findings, weights = [cases[k].study.finding for k in inside], [cases[k].calibrating[kind] for k in inside]
    trained = [sample.settings.training_prevalence(finding.name) for finding in findings]
    options = {_ERROR: {}, _SKILL: {"prevalence": [np.nan if each is None else each for each in trained]}}
    replicates = bootstrap_findings(sample, findings, options, weights)
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
        each[f"{_ERROR}_{kind}"] = FindingNumber(error, own[_ERROR], units, _ERROR, name, how, note)
        each[f"expected_ace_{kind}"] = FindingNumber(noise, None, units, "expected_ace", name, NOISE)
        if constant is not None:
            how += f", against the training prevalence {constant:g}"
        each[f"{_SKILL}_{kind}"] = FindingNumber(skill, own[_SKILL], units, _SKILL, name, how)


def _weighting_rows(make: RowMaker, case: _Case, replicates: Floats, notes: list[str]) -> list[Row]:
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
    sentence = _weighting_verdict(overlap, said)
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


def _weighting_verdict(overlap: Overlap, said: Sequence[str]) -> str:
    """What stands in the way of the headline (ATT), else whether anything else does."""
    if np.isnan(overlap.before.overlap):
        return "undefined: a class is missing"
    headline = [sentence for sentence in overlap.doubts if "(IPW)" not in sentence]
    return headline[0] if headline else "enough overlap" + (", with reservations" if said else "")
