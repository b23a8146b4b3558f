"""PREDICTION with pre-test probabilities -> what the audits that hold context equal share.

Which rows they look at, the numbers of the sample as it is, the threshold common to all weightings, what a weighted
calibration error is by chance alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cxrhf.audits.columns import columns, drawn, labels_of
from cxrhf.audits.measured import Measured
from cxrhf.audits.rates import AT, SPECIFICITY, options_of
from cxrhf.audits.sample import Finding, Sample
from cxrhf.metrics.grouped import Grouping, GroupNumbers, drawn_groups, drawn_starts, rank_findings
from cxrhf.metrics.operating import OperatingPoint, sensitivity_at_specificity
from cxrhf.metrics.ranking import auroc, rank_rows

Floats = NDArray[np.float64]

STANDARD = ("auroc", AT)
ERROR_NOTE = "above 0 even for a calibrated model; compare with expected_ace_{}"
BINS = 10  # of the adaptive calibration error
NOISE = "from the spread of residuals over patients"


class Study(NamedTuple):
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


def studies(sample: Sample, notes: list[str]) -> list[Study]:
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
        found.append(Study(finding, finding.pretest, lost == 0))
    if without:
        notes.append(
            f"{sample.model}: no pretest value for {', '.join(without)}, so context is not held equal for them"
        )
    return found


def standard(sample: Sample, found: Sequence[Study]) -> tuple[list[dict[str, Measured]], list[OperatingPoint]]:
    """Numbers of the sample as it is, and its operating points; replicates that another audit has are taken."""
    points = [
        sensitivity_at_specificity(study.finding.y, study.finding.p, SPECIFICITY, study.finding.weight)
        for study in found
    ]
    lacking = [study for study in found if not _remembered(sample, study)]
    made = drawn(sample, [study.finding for study in lacking], {name: options_of(name) for name in STANDARD})
    fresh = {study.finding.name: each for study, each in zip(lacking, made, strict=True)}
    out: list[dict[str, Measured]] = []
    for study, point in zip(found, points, strict=True):
        finding = study.finding
        if study.whole:
            sample.memory.update({(name, finding.name): each for name, each in fresh.get(finding.name, {}).items()})
        replicates = fresh.get(finding.name) or {name: sample.memory[name, finding.name] for name in STANDARD}
        values = auroc(finding.y, finding.p, finding.weight), point.sensitivity
        out.append(
            {
                name: Measured(value, replicates[name], finding.counts.units, name)
                for name, value in zip(STANDARD, values, strict=True)
            }
        )
    return out, points


def _remembered(sample: Sample, study: Study) -> bool:
    return study.whole and all((name, study.finding.name) in sample.memory for name in STANDARD)


def common_threshold(sample: Sample, study: Study, point: OperatingPoint) -> Threshold:
    """The threshold that all weightings share: that of the validation rows, if there are any, else the sample's own."""
    tuning = sample.tuning_like(study.finding)
    if tuning is not None:
        chosen = sensitivity_at_specificity(tuning.y, tuning.p, SPECIFICITY, tuning.weight).threshold
        if not np.isnan(chosen):
            return Threshold(chosen, True, f"threshold {chosen:.4g} from the validation rows, held fixed")
    how = f"threshold {point.threshold:.4g} of the unweighted sample, reset in each resample"
    return Threshold(point.threshold, False, how)


def global_rates(
    sample: Sample, found: Sequence[Study], thresholds: Sequence[Threshold], weights: Sequence[Sequence[Floats]]
) -> list[GroupNumbers]:
    """Rates of every finding at its common threshold in every replicate, once for each of the `weights`.

    A threshold of the sample moves with it: held fixed, the intervals of the sensitivity covered 79% instead of 95%.
    """
    findings = [study.finding for study in found]
    y, p = labels_of(sample, findings), columns(sample, findings, [finding.p for finding in findings])
    weight = columns(sample, findings, [finding.weight for finding in findings], 0.0)
    given = [each.value if each.fixed else np.nan for each in thresholds]
    ranked = rank_findings(y, p, weight, sample.draws.unit, threshold=given, fpr=1 - SPECIFICITY, rule="conservative")
    starts = drawn_starts(ranked, sample.draws, sample.workers)
    everybody = Grouping(np.zeros(len(y), dtype=np.int64), 1)
    out = []
    for each in weights:
        own = columns(sample, findings, each, 0.0)
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
