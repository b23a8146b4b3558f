"""PREDICTION -> RESULT: what a model's numbers are on positives and negatives paired by their context.

Needs the pre-test probability q of every row, what is known before the image is seen. Every member of the smaller class
gets a partner of the other with minimal total difference of q; the matching is redone in every replicate, for drawing
from one matched set would leave out its uncertainty. It asks what `auroc_att` of the reweighted audit asks, with two
gaps of its own: where negatives of high q run out the partners differ, and a patient's own images are often the
nearest; both are said. For calibration the classes are scaled back to their share in the sample, probabilities stay
untouched, and no interval is given. The weight column is not used, not for the numbers before matching either: a row is
matched or not (one of weight 0 is no row).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cxrhf.audits.columns import columns, labels_of
from cxrhf.audits.controlled import (
    ERROR_NOTE,
    NOISE,
    Study,
    calibration_noise,
    standard,
    studies,
)
from cxrhf.audits.measured import Measured, number_rows, record_rows
from cxrhf.audits.rates import SPECIFICITY
from cxrhf.audits.rows import Part, Row, RowMaker
from cxrhf.audits.sample import Finding, Sample
from cxrhf.metrics.calibration import adaptive_calibration_error, brier_skill_score
from cxrhf.metrics.intervals import count_units
from cxrhf.metrics.matching import PairSummary, match_weights, pair_summary, pairs_of
from cxrhf.metrics.operating import sensitivity_at_specificity
from cxrhf.metrics.ranking import auroc
from cxrhf.metrics.resample import bootstrap_many
from cxrhf.metrics.weighting import LEAST_ROWS, Balance, balance, rescale_to_prevalence

Floats = NDArray[np.float64]

CONTROLLED = ("matched_auroc",)
WEIGHTING = "matched 1:1"
# Warn above this share of pairs with one patient on both sides, and above this standardised difference of q left.
SAME_PATIENT = 0.1
GAP = 0.1


class _Described(NamedTuple):
    """One finding and what its pairs are like."""

    finding: Finding
    pairs: PairSummary
    after: Balance


def matched(sample: Sample) -> Part:
    """Standard and matched numbers of one model, the drop, and what the pairs are like."""
    notes: list[str] = []
    weighted = sample.data.weight is not None
    if weighted:  # a drop from a weighted to an unweighted number would be one between populations
        sample = replace(sample, data=replace(sample.data, weight=None), memory={})
    found = studies(sample, notes)
    if not found:
        return Part([], [], notes)
    if weighted:
        notes.append(
            f"{sample.model}: the matched audit ignores the weight column, also in its AUROC before matching, "
            "because a row is either matched or not"
        )
    numbers, _ = standard(sample, found)
    shares = [match_weights(study.finding.y, study.q) for study in found]
    replicates = _replicates(sample, found)
    for k, (study, weight, each) in enumerate(zip(found, shares, numbers, strict=True)):
        own = {name: drawn[:, k] for name, drawn in replicates.items()}
        each.update(_numbers(sample, study, weight, own))
    make = RowMaker("matched", sample)
    rows = number_rows(make, [study.finding for study in found], numbers, CONTROLLED)
    described = [_described(study, weight) for study, weight in zip(found, shares, strict=True)]
    for one in described:
        rows += _diagnostic_rows(make, one)
    return Part(rows, [], [*notes, *_notes(sample, described)])


def _replicates(sample: Sample, found: Sequence[Study]) -> dict[str, Floats]:
    """AUROC and sensitivity of all findings, the matching redone in every replicate, once for both."""
    findings = [study.finding for study in found]
    sample.progress(f"{sample.model}: matched, {sample.draws.n_resamples:,} resamples, matching redone in each")
    return bootstrap_many(
        {"matched_auroc": {}, "matched_sensitivity": {"specificity": SPECIFICITY}},
        labels_of(sample, findings),
        columns(sample, findings, [finding.p for finding in findings]),
        pretest=columns(sample, findings, [study.q for study in found]),
        draws=sample.draws,
        workers=sample.workers,
        progress=sample.ticking(f"{sample.model}: matched, matching redone", 1),
    )


def _numbers(sample: Sample, study: Study, weight: Floats, drawn: dict[str, Floats]) -> dict[str, Measured]:
    finding = study.finding
    y, p, units = finding.y, finding.p, count_units(finding.y, finding.patients, weight)
    point = sensitivity_at_specificity(y, p, SPECIFICITY, weight)
    how = f"threshold {point.threshold:.4g} set on the matched rows, reset in each resample"
    out = {
        "matched_auroc": Measured(auroc(y, p, weight), drawn["matched_auroc"], units, "matched_auroc", WEIGHTING),
        "sensitivity_at_specificity_matched": Measured(
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
    out[f"{known}_matched"] = Measured(error, None, units, known, WEIGHTING, share, said)
    out["expected_ace_matched"] = Measured(noise, None, units, "expected_ace", WEIGHTING, NOISE)
    known = "brier_skill_score"
    out[f"{known}_matched"] = Measured(skill, None, units, known, WEIGHTING, share + against)
    return out


def _described(study: Study, weight: Floats) -> _Described:
    y, q = study.finding.y, study.q
    pairs = pair_summary(pairs_of(y, q, weight), y, q, study.finding.patients)
    return _Described(study.finding, pairs, balance(y, q, weight))


def _diagnostic_rows(make: RowMaker, described: _Described) -> list[Row]:
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


def _notes(sample: Sample, described: Sequence[_Described]) -> list[str]:
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
