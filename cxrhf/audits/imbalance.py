"""PREDICTION -> RESULT, CURVE: what rare findings do to the numbers (IMBALANCE), and what another prevalence would.

AUROC stands beside average precision and its chance level, the prevalence; Brier beside Brier+ and Brier-, one for
each class, and their sum, balanced Brier (0 to 2, not a proper score: it rewards forecasts other than the true risk).
`pav_decomposition` splits Brier into what recalibration would remove and what it would leave; it is fitted to the rows
it is measured on, and has no interval: those made by resampling held the truth in 68 to 89% of simulations. The
operating point is the threshold with the largest F1 in the validation split, applied as >=; without such a split it is
chosen on the evaluated rows, which is optimistic and said in every row. Intervals hold the threshold fixed. The rows of
`prevalence=...` and the curves are made in `cxrhf.audits.prevalence`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from cxrhf.audits.columns import drawn
from cxrhf.audits.imbalance_study import (
    Macro,
    Study,
    Threshold,
    choose_threshold,
    threshold_notes,
    units_behind,
)
from cxrhf.audits.prevalence import RISK, Along, grid_of, net_benefit_thresholds, source_of
from cxrhf.audits.rows import Part, Row, RowMaker
from cxrhf.audits.sample import Finding, Sample
from cxrhf.metrics import calibration, ranking
from cxrhf.metrics.prevalence import Walk, bootstrap_walk, net_benefit_at_prevalence, walk
from cxrhf.metrics.reliability import pav_decomposition
from cxrhf.metrics.sums import value_of

Floats = NDArray[np.float64]

RANKING: Mapping[str, Callable[..., float]] = {
    "auroc": ranking.auroc,
    "average_precision": ranking.average_precision,
    "auprc_trapezoid": ranking.auprc_trapezoid,
}
PROBABILITY: Mapping[str, Callable[..., float]] = {
    "brier": calibration.brier,
    "brier_positive": calibration.brier_positive,
    "brier_negative": calibration.brier_negative,
    "balanced_brier": calibration.balanced_brier,
}
# Parts of the split, and whether more is better.
_BETTER = {"calibration": False, "refinement": False, "discrimination": True, "uncertainty": None}
PAV = tuple(f"pav_decomposition.{part}" for part in _BETTER)
HERE = (*RANKING, "prevalence", *PROBABILITY, *PAV, "net_benefit")
# At the max-F1 threshold.
RATES = ("tpr", "specificity", "precision", "npv", "f1", "mcc")
# Findings whose replicates along the grid are held at once.
TOGETHER = 100
# Replicates of what is undefined.
_NOTHING = np.empty(0)
_NOTES = {
    "brier_positive": "positives only",
    "brier_negative": "negatives only",
    "balanced_brier": "sum of both classes, 0 to 2; not a proper score, so do not rank calibration by it",
    "pav_decomposition.calibration": "what isotonic recalibration would remove; above 0 even for a calibrated model",
    "pav_decomposition.refinement": "what would remain; fitted to these rows, so optimistic",
    "pav_decomposition.discrimination": "uncertainty minus refinement",
}


def imbalance(sample: Sample) -> Part:
    """Numbers of one model that prevalence moves, beside those it does not, here and at other prevalences."""
    findings = sample.findings()
    sample.progress(f"{sample.model}: imbalance, {len(findings)} finding{'s' * (len(findings) != 1)}")
    thresholds = [choose_threshold(sample, finding) for finding in findings]
    values, replicates = [_values(finding) for finding in findings], _replicates(sample, findings)
    make = RowMaker("imbalance", sample)
    studies, along = list[Study](), Along(make)
    parts = [slice(start, start + TOGETHER) for start in range(0, len(findings), TOGETHER)]
    tick = sample.ticking(f"{sample.model}: imbalance, other prevalences", 2 * len(parts))
    for part in parts:
        here, there = _walked(sample, part, findings[part], thresholds[part], values[part], replicates[part], tick)
        for k, (finding, at) in enumerate(zip(findings[part], thresholds[part], strict=True)):
            behind = units_behind(finding, at.value)
            numbers = values[part.start + k], replicates[part.start + k]
            studies.append(Study(finding, at, finding.prevalence, *numbers, behind))
            along.add(studies[-1], here, there, k)
    macro = Macro(make, studies)
    rows = _directed([row for study in studies for row in _finding_rows(make, study)] + _macro_rows(macro))
    moved, curves = along.finish(macro)
    return Part(rows + moved, curves, [*threshold_notes(sample, studies), *_score_notes(sample, findings)])


def _values(finding: Finding) -> dict[str, float]:
    y, p, weight = finding.y, finding.p, finding.weight
    values = {name: function(y, p, weight) for name, function in RANKING.items()}
    values["prevalence"] = finding.prevalence
    if finding.is_probability:
        values |= {name: function(y, p, weight) for name, function in PROBABILITY.items()}
        parts = pav_decomposition(y, p, weight)
        values |= {name: getattr(parts, name.removeprefix("pav_decomposition.")) for name in PAV}
    return values


def _replicates(sample: Sample, findings: Sequence[Finding]) -> list[dict[str, Floats]]:
    """Replicates of the same numbers: those the overview has, the rest computed."""
    found: list[dict[str, Floats]] = []
    missing: dict[tuple[str, ...], list[int]] = {}
    for k, finding in enumerate(findings):
        names = [*RANKING, "prevalence", *(PROBABILITY if finding.is_probability else ())]
        found.append({name: known for name in names if (known := sample.memory.get((name, finding.name))) is not None})
        if absent := tuple(name for name in names if name not in found[k]):
            missing.setdefault(absent, []).append(k)
    for absent, places in missing.items():
        chosen = [findings[k] for k in places]
        made = drawn(sample, chosen, {name: {} for name in absent}, text="imbalance, resamples")
        for k, own in zip(places, made, strict=True):
            found[k] |= own
    return found


def _walked(
    sample: Sample,
    part: slice,
    findings: Sequence[Finding],
    chosen: Sequence[Threshold],
    values: Sequence[dict[str, float]],
    replicates: Sequence[dict[str, Floats]],
    tick: Callable[[int], None],
) -> tuple[Walk, Walk]:
    """What passes down the scores give along prevalence, value and replicates, of a part of the sample's findings.

    Rates here are put in with the other values and replicates. Rates within the classes are drawn with the positive
    patients held fixed, those that hang on the prevalence not.
    """
    data = sample.data
    y, p = data.y[:, part], data.p[:, part]
    weight = np.ones(y.shape) if data.weight is None else np.nan_to_num(data.weight[:, part], nan=1.0)
    at = np.array([np.inf if np.isnan(each.value) else each.value for each in chosen])
    own = [finding.prevalence for finding in findings]
    risks = [
        net_benefit_thresholds(source_of(sample, finding.name, prevalence), prevalence)
        for finding, prevalence in zip(findings, own, strict=True)
    ]
    moved, grids = np.c_[at, np.stack(risks)], np.stack([grid_of(prevalence) for prevalence in own])
    fixed, no_grids = np.c_[at, np.full(len(at), RISK)], np.empty((len(at), 0))
    rows = y, p, weight
    draws, workers = sample.draws, sample.workers
    within = walk(*rows, moved, grids)
    within_drawn = bootstrap_walk(*rows, moved, grids, draws=draws, workers=workers, progress=tick)
    here = walk(*rows, fixed, no_grids)
    here_drawn = bootstrap_walk(*rows, fixed, no_grids, draws=draws, conditional=False, workers=workers, progress=tick)
    for k, finding in enumerate(findings):
        sources = dict.fromkeys(("tpr", "fpr"), (within.sums[k, 0], within_drawn.sums[:, k, 0], at[k]))
        sources |= dict.fromkeys(("precision", "npv", "f1", "mcc"), (here.sums[k, 0], here_drawn.sums[:, k, 0], at[k]))
        if np.isnan(chosen[k].value):
            sources = {}
        if finding.is_probability:
            sources["net_benefit"] = here.sums[k, 1], here_drawn.sums[:, k, 1], RISK
        for name, (sums, sums_drawn, option) in sources.items():
            values[k][name] = float(value_of(name, sums, option))
            replicates[k][name] = value_of(name, sums_drawn, option)
        if "fpr" in sources:
            values[k]["specificity"] = 1 - values[k]["fpr"]
            replicates[k]["specificity"] = 1 - replicates[k]["fpr"]
    return within, within_drawn


def _finding_rows(make: RowMaker, study: Study) -> list[Row]:
    finding, values, replicates, own = study.finding, study.values, study.drawn, study.prevalence
    notes = dict(_NOTES)
    if 0 < own < 1:
        everybody = float(net_benefit_at_prevalence(1, 1, own, RISK))
        notes |= {
            "auroc": "chance level is 0.5 at any prevalence",
            "average_precision": f"chance level is the prevalence, {own:.4g}",
            "auprc_trapezoid": f"chance level is the prevalence, {own:.4g}; optimistic between points",
            "brier": f"always predicting the prevalence reaches {own * (1 - own):.4g}",
            "net_benefit": f"p as output by the model; treating all: {everybody:.4g}, treating none: 0",
        }
    rows = []
    for name in HERE:
        if name in values:
            how = f"risk threshold {RISK:g}" if name == "net_benefit" else None
            note = notes.get(name) if np.isfinite(values[name]) else None
            options = {"known": _known(name), "how": how, "note": note}
            rows.append(make.of(name, finding, values[name], replicates.get(name), **options))
    at = study.threshold
    rows.append(
        make.of("max_f1_threshold", finding, at.value, how=at.how, note=None if np.isnan(at.value) else at.note)
    )
    for name in RATES:
        value = values.get(name, np.nan)
        note = study.why(name) if np.isnan(value) else at.note
        behind = study.units_of(name)
        options = {"known": _known(name), "how": at.at, "note": note}
        rows.append(make.of(name, finding, value, replicates.get(name, _NOTHING), units=behind, **options))
    return rows


def _known(name: str) -> str | None:
    """The entry of the catalogue with a number's range and kind of interval, where its name is another."""
    return "tpr" if name == "specificity" else None  # of the other class


def _directed(rows: list[Row]) -> list[Row]:
    """The parts of the split have a direction of their own."""
    for row in rows:
        if row["metric"].startswith("pav_decomposition."):
            row["higher_is_better"] = _BETTER[row["metric"].removeprefix("pav_decomposition.")]
    return rows


def _macro_rows(macro: Macro) -> list[Row]:
    studies = macro.studies
    names = [name for name in (*HERE, *RATES) if name in RATES or any(name in study.values for study in studies)]
    return [
        macro.row(
            name,
            [study.values.get(name, np.nan) for study in studies],
            [study.drawn.get(name) for study in studies],
            known=_known(name),
            how=f"risk threshold {RISK:g}" if name == "net_benefit" else None,
            optimistic=name in RATES,
        )
        for name in names
    ]


def _score_notes(sample: Sample, findings: Sequence[Finding]) -> list[str]:
    names = [finding.name for finding in findings if not finding.is_probability]
    if not names:
        return []
    return [
        f"{sample.model}: {', '.join(names)}: scores are not probabilities, so the imbalance audit reports ranking and "
        "rates at the max-F1 threshold, but no Brier scores, decomposition or net benefit"
    ]
