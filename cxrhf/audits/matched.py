"""PREDICTION -> RESULT: how much ranking is left when the patient's context cannot tell the classes apart.

Needs the pre-test probability q of every row, what is known before the image is seen. Beside the standard AUROC stand
the AUROC of q alone (`auroc_context`) and three ways to hold context equal, on the same draws of patients:
`auroc_att` (headline) weights the negatives to the context of the positives; `matched_auroc` pairs 1:1 with minimal
total difference of q, redone in every replicate, which asks the same question but keeps a gap where negatives of high q
run out; `auroc_ipw` weights both classes to the context of the whole population, another question. Drops are paired. q
is taken as given: its own uncertainty is not in the intervals.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cxrhf.audits.rows import MACRO, Row, RowMaker, everything
from cxrhf.audits.sample import Finding, Sample
from cxrhf.metrics.estimates import mean_over
from cxrhf.metrics.intervals import UnitCount, count_units
from cxrhf.metrics.matching import PairSummary, match_pairs, match_weights, pair_summary
from cxrhf.metrics.multiplicity import bonferroni
from cxrhf.metrics.ranking import auroc
from cxrhf.metrics.reliability import calibration_line
from cxrhf.metrics.resample import bootstrap
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

AUROCS = ("auroc", "auroc_context", "auroc_att", "auroc_ipw", "matched_auroc")
CONTROLLED = ("auroc_att", "auroc_ipw", "matched_auroc")
WEIGHTING = {"auroc_att": "att", "auroc_ipw": "ipw", "matched_auroc": "matched 1:1"}
# Warn above this share of pairs with one patient on both sides, and outside this range of q's calibration slope.
SAME_PATIENT = 0.1
SLOPES = (0.8, 1.25)
ROUNDING = 1e-12


class MatchedOutput(NamedTuple):
    """RESULT rows and what a reader must be told."""

    rows: list[Row]
    notes: list[str]


class _Study(NamedTuple):
    """One finding: {AUROC: weight of its rows} (the weight column included), patients behind them, values."""

    finding: Finding
    q: Floats
    weights: dict[str, Floats]
    units: dict[str, UnitCount]
    values: dict[str, float]


def matched(sample: Sample) -> MatchedOutput:
    """Standard, context-only and context-controlled AUROC of one model, drops, and the diagnostics behind them."""
    notes: list[str] = []
    studies = _studies(sample, notes)
    if not studies:
        return MatchedOutput([], notes)
    replicates = _replicates(sample, studies)
    make = RowMaker("matched", sample)
    rows: list[Row] = []
    for study, drawn in zip(studies, replicates, strict=True):
        for name in AUROCS:
            options = {"weighting": _weighting(sample, name), "units": study.units[name]}
            rows += [make.of(name, study.finding, study.values[name], drawn[name], known="auroc", **options)]
    rows += _drop_rows(make, sample, studies, replicates)
    rows += _macro_rows(make, sample, studies, replicates)
    for study, drawn in zip(studies, replicates, strict=True):
        rows += _diagnostic_rows(make, study, drawn, notes)
    return MatchedOutput(rows, notes)


def _weighting(sample: Sample, name: str) -> str | None:
    """How RESULT.method names the rows of one AUROC."""
    if name not in WEIGHTING:
        return None
    with_column = sample.data.weight is not None and name != "matched_auroc"
    return WEIGHTING[name] + (" x weight column" if with_column else "")


def _studies(sample: Sample, notes: list[str]) -> list[_Study]:
    data = sample.data
    if data.pretest is None:
        notes.append(
            f"{sample.model}: no pretest column: how much of the AUROC is patient context cannot be said. Add the "
            "probability of each finding before the image is seen and run with --pretest COLUMN"
        )
        return []
    studies, without = [], []
    for k, name in enumerate(data.findings):
        finding = sample.finding(k, needs_pretest=True)
        lost = int((~np.isnan(data.y[:, k])).sum()) - finding.counts.n
        if finding.counts.n == 0:
            without.append(name)
            continue
        if lost:
            notes.append(f"{sample.model}: {name}: {lost:,} labelled rows without pretest are left out of this audit")
        studies.append(_study(sample, finding))
    if without:
        notes.append(f"{sample.model}: no pretest value for {', '.join(without)}: not in this audit")
    if data.weight is not None and studies:
        notes.append(f"{sample.model}: matched_auroc does not use the weight column: a row is matched or not")
    return studies


def _study(sample: Sample, finding: Finding) -> _Study:
    y, p, weight = finding.y, finding.p, finding.weight
    q = finding.pretest
    assert q is not None
    prevalence = sample.settings.training_prevalence(finding.name)
    if prevalence is None:
        prevalence = float(np.clip((weight * y).sum() / max(weight.sum(), 1e-300), 1e-6, 1 - 1e-6))
    weights = {
        "auroc": weight,
        "auroc_context": weight,
        "auroc_att": weight * att_weights(y, q),
        "auroc_ipw": weight * ipw_weights(y, q, prevalence),
        "matched_auroc": match_weights(y, q),
    }
    patients = sample.data.patients[finding.at]
    units = {name: count_units(y, patients, each) for name, each in weights.items()}
    values = {name: auroc(y, q if name == "auroc_context" else p, each) for name, each in weights.items()}
    return _Study(finding, q, weights, units, values)


def _replicates(sample: Sample, studies: Sequence[_Study]) -> list[dict[str, Floats]]:
    """Every AUROC of every finding on the same draws; q enters as fixed weights, the matching is redone."""
    n, size = len(sample.data.image_ids), sample.draws.n_resamples
    y, p, q = (np.full((n, len(studies)), np.nan) for _ in range(3))
    for k, study in enumerate(studies):
        at = study.finding.at
        y[at, k], p[at, k], q[at, k] = study.finding.y, study.finding.p, study.q
    out: list[dict[str, Floats]] = [{} for _ in studies]
    say = sample.progress
    say(f"{sample.model}: matched, {size:,} resamples with weights")
    for k, (study, drawn) in enumerate(zip(studies, out, strict=True)):
        for name in AUROCS[:-1]:
            score = q if name == "auroc_context" else p
            weight = np.zeros(n)
            weight[study.finding.at] = study.weights[name]
            drawn[name] = bootstrap("auroc", y[:, k], score[:, k], weight, draws=sample.draws, workers=sample.workers)
    say(f"{sample.model}: matched, {size:,} resamples with the matching redone")
    redone = bootstrap(
        "matched_auroc",
        y,
        p,
        pretest=q,
        draws=sample.draws,
        workers=sample.workers,
        progress=sample.ticking(f"{sample.model}: matched, matching redone", 1),
    )
    for k, (study, drawn) in enumerate(zip(studies, out, strict=True)):
        drawn["matched_auroc"] = redone[:, k]
        weight = np.zeros(n)
        weight[study.finding.at] = study.finding.weight
        drawn["calibration_slope"] = bootstrap(
            "calibration_slope", y[:, k], q[:, k], weight, draws=sample.draws, workers=sample.workers
        )
    return out


def fall(standard: Floats | float, controlled: Floats | float) -> Floats:
    """Their difference, with what is only rounding set to 0: it would pass for a tiny but certain drop."""
    difference = np.asarray(standard, dtype=np.float64) - controlled
    return np.where(np.abs(difference) < ROUNDING, 0.0, difference)


def _drop_rows(
    make: RowMaker, sample: Sample, studies: Sequence[_Study], replicates: Sequence[dict[str, Floats]]
) -> list[Row]:
    """auroc - controlled auroc, paired; p values corrected over the findings of each comparison."""
    rows = []
    for name in CONTROLLED:
        made = [
            make.of(
                "auroc_drop",
                study.finding,
                float(fall(study.values["auroc"], study.values[name])),
                fall(drawn["auroc"], drawn[name]),
                known="auroc",
                versus=name,
                weighting=_weighting(sample, name),
                units=study.units[name],
            )
            for study, drawn in zip(studies, replicates, strict=True)
        ]
        corrected = bonferroni([np.nan if row["p_value"] is None else row["p_value"] for row in made])
        family = int(np.isfinite(corrected).sum())
        for row, p_value in zip(made, corrected, strict=True):
            row["p_value"] = float(p_value)
            row["method"] += f"; p corrected for {family} finding{'s' * (family != 1)} (Bonferroni)"
        rows += made
    return rows


def _macro_rows(
    make: RowMaker, sample: Sample, studies: Sequence[_Study], replicates: Sequence[dict[str, Floats]]
) -> list[Row]:
    """Means over the findings for which all five AUROCs are defined, so that they can be compared."""
    defined = [k for k, study in enumerate(studies) if all(np.isfinite(study.values[name]) for name in AUROCS)]
    if not defined:
        return []
    counts = everything(sample, [studies[k].finding for k in defined])
    note = f"mean of {len(defined)} of {len(sample.data.findings)} findings"
    values = {name: float(np.mean([studies[k].values[name] for k in defined])) for name in AUROCS}

    def add(metric: str, name: str, value: float, drawn: Sequence[Floats], versus: str | None = None) -> None:
        mean = mean_over(drawn, [studies[k].units[name] for k in defined])
        options: dict[str, Any] = {"weighting": _weighting(sample, name), "units": mean.units, "note": note}
        rows.append(make.row(metric, MACRO, counts, value, mean.replicates, known="auroc", versus=versus, **options))

    rows: list[Row] = []
    for name in AUROCS:
        add(name, name, values[name], [replicates[k][name] for k in defined])
    for name in CONTROLLED:
        falls = [fall(replicates[k]["auroc"], replicates[k][name]) for k in defined]
        add("auroc_drop", name, float(fall(values["auroc"], values[name])), falls, versus=name)
    return rows


def _diagnostic_rows(make: RowMaker, study: _Study, drawn: dict[str, Floats], notes: list[str]) -> list[Row]:
    finding, y, q = study.finding, study.finding.y, study.q
    rows: list[Row] = []

    def add(record: str, fields: dict[str, float], weighting: str | None = None) -> None:
        for name, value in fields.items():
            rows.append(make.of(f"{record}.{name}", finding, value, known="auroc", weighting=weighting))

    sizes = {name: effective_sample_size(study.weights[f"auroc_{name}"], y) for name in ("att", "ipw")}
    for name, size in sizes.items():
        add(f"effective_sample_size_{name}", size._asdict(), _weighting(make.sample, f"auroc_{name}"))
    before = balance(y, q, finding.weight)
    add("balance", before._asdict())
    for name, suffix in zip(CONTROLLED, ("_att", "_ipw", "_matched"), strict=True):
        found = balance(y, q, study.weights[name])
        add(f"balance{suffix}", found._asdict(), _weighting(make.sample, name))
    pairs = pair_summary(match_pairs(y, q), y, q, make.sample.data.patients[finding.at])
    add("pair_summary", pairs._asdict(), WEIGHTING["matched_auroc"])
    slope = make.of(
        "pretest_calibration_slope",
        finding,
        calibration_line(y, q, finding.weight).slope,
        drawn["calibration_slope"],
        known="calibration_slope",
    )
    said = [] if np.isnan(before.overlap) else warnings(finding, sizes, pairs, slope)
    notes += [f"{make.sample.model}: {finding.name}: {sentence}" for sentence in said]
    verdict = make.of("verdict", finding, before.overlap, known="auroc", note=_verdict(before, said))
    # These are descriptions, neither good nor bad in themselves.
    return [row | {"higher_is_better": None} for row in (*rows, slope, verdict)]


def warnings(finding: Finding, sizes: dict[str, EffectiveSize], pairs: PairSummary, slope: Row) -> list[str]:
    """What makes the controlled numbers of one finding doubtful, in plain words."""
    said = []
    for name, size in sizes.items():
        for side, effective, there in (
            ("positives", size.positive, finding.counts.n_pos),
            ("negatives", size.negative, finding.counts.n - finding.counts.n_pos),
        ):
            share = effective / there if there else 1.0
            if share < LEAST_SHARE or (there and effective < LEAST_ROWS):
                what = "poor overlap" if share < LEAST_SHARE else f"few {side}"
                counted = f"{there:,} {side} count like {effective:,.0f} ({share:.0%}) after weighting"
                if share > 0.99:
                    counted = f"{there:,} images, {LEAST_ROWS} are wanted"
                said.append(f"{what} ({name.upper()}): {counted}")
    if pairs.same_patient_share > SAME_PATIENT:
        said.append(
            f"{pairs.same_patient_share:.0%} of the matched pairs have the same patient on both sides: matched_auroc "
            "then says how images of one patient are ranked; prefer auroc_att"
        )
    value, low, high = slope["value"], slope["ci_low"], slope["ci_high"]
    if not SLOPES[0] <= value <= SLOPES[1] and (low > 1 or high < 1):
        said.append(
            f"the pre-test probability is not calibrated here (slope {value:.2f}, should be 1): weighting by it takes "
            f"out too {'much' if value < 1 else 'little'} context"
        )
    return said


def _verdict(before: Balance, said: Sequence[str]) -> str:
    if np.isnan(before.overlap):
        return "undefined: a class is missing"
    headline = [sentence for sentence in said if "(ATT)" in sentence]
    return headline[0] if headline else "enough overlap" + (", with reservations" if said else "")
