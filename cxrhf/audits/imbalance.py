"""PREDICTION -> RESULT, CURVE: what rare findings do to the numbers (IMBALANCE), and what another prevalence would.

AUROC stands beside average precision and its chance level, the prevalence; Brier beside Brier+ and Brier-, one for
each class, and their sum, balanced Brier (0 to 2, not a proper score: it rewards forecasts other than the true risk).
`pav_decomposition` splits Brier into what recalibration would remove and what it would leave; it is fitted to the rows
it is measured on, and has no interval: those made by resampling held the truth in 68 to 89% of simulations. The
operating point is the threshold with the largest F1 in the validation split, applied as >=; without such a split it is
chosen on the evaluated rows, which is optimistic and said in every row. Intervals hold the threshold fixed. The rows of
`prevalence=...` and the curves are made in `cxrhf.audits.imbalance`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit

from cxrhf.audits.rows import MACRO, OPTIMISTIC, AuditPart, Row, RowMaker, macro_counts
from cxrhf.audits.sample import Counts, Finding, Sample, bootstrap_findings
from cxrhf.metrics import calibration, ranking
from cxrhf.metrics.checks import undefined
from cxrhf.metrics.estimates import Mean, MeanOver, findings_in_mean, is_common, mean_note, mean_over
from cxrhf.metrics.intervals import UnitCount, capped, count_units, interval
from cxrhf.metrics.operating import max_f1_threshold
from cxrhf.metrics.prevalence import (
    Walk,
    bootstrap_walk,
    brier_at_prevalence,
    net_benefit_at_prevalence,
    npv_at_prevalence,
    precision_at_prevalence,
    threshold_for_risk,
    walk,
)
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
SAMPLE_METRICS = (*RANKING, "prevalence", *PROBABILITY, *PAV, "net_benefit")
# At the max-F1 threshold.
RATES = ("tpr", "specificity", "precision", "npv", "f1", "mcc")
# Findings whose replicates along the grid are held at once.
FINDINGS_PER_PASS = 100
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


def imbalance(sample: Sample) -> AuditPart:
    """Numbers of one model that prevalence moves, beside those it does not, here and at other prevalences."""
    findings = sample.findings()
    sample.progress(f"{sample.model}: imbalance, {len(findings)} finding{'s' * (len(findings) != 1)}")
    thresholds = [choose_threshold(sample, finding) for finding in findings]
    values, replicates = [_values(finding) for finding in findings], _replicates(sample, findings)
    make = RowMaker("imbalance", sample)
    studies, along = list[ImbalanceFinding](), AlongPrevalence(make)
    parts = [slice(start, start + FINDINGS_PER_PASS) for start in range(0, len(findings), FINDINGS_PER_PASS)]
    tick = sample.ticking(f"{sample.model}: imbalance, other prevalences", 2 * len(parts))
    for part in parts:
        here, there = _walk_findings(
            sample, part, findings[part], thresholds[part], values[part], replicates[part], tick
        )
        for k, (finding, at) in enumerate(zip(findings[part], thresholds[part], strict=True)):
            behind = units_behind(finding, at.value)
            numbers = values[part.start + k], replicates[part.start + k]
            studies.append(ImbalanceFinding(finding, at, finding.prevalence, *numbers, behind))
            along.add(studies[-1], here, there, k)
    macro = Macro(make, studies)
    rows = _set_directions([row for study in studies for row in _finding_rows(make, study)] + _macro_rows(macro))
    moved, curves = along.finish(macro)
    return AuditPart(rows + moved, curves, [*threshold_notes(sample, studies), *_score_notes(sample, findings)])


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
        made = bootstrap_findings(sample, chosen, {name: {} for name in absent}, text="imbalance, resamples")
        for k, own in zip(places, made, strict=True):
            found[k] |= own
    return found


def _walk_findings(
    sample: Sample,
    part: slice,
    findings: Sequence[Finding],
    chosen: Sequence[MaxF1Threshold],
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


def _finding_rows(make: RowMaker, study: ImbalanceFinding) -> list[Row]:
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
    for name in SAMPLE_METRICS:
        if name in values:
            how = f"risk threshold {RISK:g}" if name == "net_benefit" else None
            note = notes.get(name) if np.isfinite(values[name]) else None
            options = {"known": _catalogue_name(name), "how": how, "note": note}
            rows.append(make.of(name, finding, values[name], replicates.get(name), **options))
    at = study.threshold
    rows.append(
        make.of("max_f1_threshold", finding, at.value, how=at.how, note=None if np.isnan(at.value) else at.note)
    )
    for name in RATES:
        value = values.get(name, np.nan)
        note = study.why(name) if np.isnan(value) else at.note
        behind = study.units_of(name)
        options = {"known": _catalogue_name(name), "how": at.at, "note": note}
        rows.append(make.of(name, finding, value, replicates.get(name, _NOTHING), units=behind, **options))
    return rows


def _catalogue_name(name: str) -> str | None:
    """The entry of the catalogue with a number's range and kind of interval, where its name is another."""
    return "tpr" if name == "specificity" else None  # of the other class


def _set_directions(rows: list[Row]) -> list[Row]:
    """The parts of the split have a direction of their own."""
    for row in rows:
        if row["metric"].startswith("pav_decomposition."):
            row["higher_is_better"] = _BETTER[row["metric"].removeprefix("pav_decomposition.")]
    return rows


def _macro_rows(macro: Macro) -> list[Row]:
    studies = macro.studies
    names = [
        name for name in (*SAMPLE_METRICS, *RATES) if name in RATES or any(name in study.values for study in studies)
    ]
    return [
        macro.row(
            name,
            [study.values.get(name, np.nan) for study in studies],
            [study.drawn.get(name) for study in studies],
            known=_catalogue_name(name),
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


# One model's finding -> its study: the max-F1 threshold, numbers and replicates by name, and whom they rest on.


class MaxF1Threshold(NamedTuple):
    """`how` it was chosen, for RESULT.method; `absent` = why the validation split did not give it, where it did not."""

    value: float
    how: str
    absent: str | None = None

    @property
    def note(self) -> str | None:
        """What every number at this threshold must say."""
        return OPTIMISTIC if self.absent else None

    @property
    def at(self) -> str | None:
        """The threshold as RESULT.method names it."""
        where = "these rows" if self.absent else "the validation split"
        return None if np.isnan(self.value) else f"at the max-F1 threshold {self.value:.6g} of {where}, held fixed"


@dataclass(frozen=True, slots=True)
class ImbalanceFinding:
    """One finding, its operating point, its prevalence here, and its numbers here by name."""

    finding: Finding
    threshold: MaxF1Threshold
    prevalence: float
    values: dict[str, float]
    drawn: dict[str, Floats]
    units: dict[str, UnitCount]

    def units_of(self, name: str) -> UnitCount:
        """The patients behind a number: all, unless it rests on some."""
        return self.units.get(name, self.finding.counts.units)

    def why(self, name: str) -> str:
        """Why a rate at the threshold is undefined."""
        finding, at = self.finding, self.threshold.value
        needs = "max_f1_threshold" if np.isnan(at) else {"specificity": "fpr"}.get(name, name)
        if reason := undefined(needs, finding.y, finding.weight):
            return f"{name} is undefined{reason.partition('is undefined')[2]}"
        side = "negative" if (finding.p >= at).all() else "positive"
        return f"{name} is undefined: no row is predicted {side} at the threshold {at:.6g}"


def choose_threshold(sample: Sample, finding: Finding) -> MaxF1Threshold:
    """The threshold with the largest F1 in the validation split; without one, on the evaluated rows."""
    tuning = sample.tuning_of(finding.name)
    if sample.tuning is None:
        absent = "there is no validation split"
    elif tuning is None:
        absent = "the validation split has no labels for it"
    elif sample.settings.threshold_from == "sample":
        absent = "--threshold-from sample was passed"
    elif sample.tuning_like(finding) is None:
        absent = "its scores in the validation split are of another kind"
    elif np.isnan(value := max_f1_threshold(tuning.y, tuning.p, tuning.weight)):
        absent = "the validation split has no positives for it"
    else:
        positives = int((tuning.y == 1).sum())
        return MaxF1Threshold(value, f"chosen on {len(tuning.y):,} validation rows ({positives:,} positive)")
    return MaxF1Threshold(max_f1_threshold(finding.y, finding.p, finding.weight), "chosen on these rows", absent)


def threshold_notes(sample: Sample, studies: Sequence[ImbalanceFinding]) -> list[str]:
    """One sentence for each reason why thresholds are optimistic."""
    found: dict[str, list[str]] = {}
    for study in studies:
        if study.threshold.absent and not np.isnan(study.threshold.value):
            found.setdefault(study.threshold.absent, []).append(study.finding.name)
    notes = []
    for absent, names in found.items():
        of = f"{', '.join(names)}: " if sample.tuning is not None else ""
        notes.append(
            f"{sample.model}: {of}{absent}, so the max-F1 threshold is chosen on the evaluated rows and "
            "metrics at it are optimistic. To choose it on other rows, add a split column with validate and "
            "test rows"
        )
    return notes


def units_behind(finding: Finding, threshold: float) -> dict[str, UnitCount]:
    """Whom the rates at a threshold rest on: precision on those called positive, NPV on the others."""
    units, called = finding.counts.units, finding.p >= threshold
    # Specificity is the true rate of the other class: its patients stand where those of the positives do.
    other = units._replace(positive=units.negative, effective_positive=units.effective_negative)
    return {
        "tpr": capped(units),
        "specificity": capped(other),
        "precision": capped(_units_of_rows(finding, called)),
        "npv": capped(_units_of_rows(finding, ~called)),
    }


def _units_of_rows(finding: Finding, rows: NDArray[np.bool_]) -> UnitCount:
    """The patients of some rows, whichever their label."""
    there = count_units(finding.y[rows], finding.patients[rows], finding.weight[rows])
    few = there.effective_total
    return UnitCount(there.total, there.total, there.total, few, few, few)


@dataclass(frozen=True, slots=True)
class Macro:
    """Makes the rows of means over findings."""

    make: RowMaker
    studies: Sequence[ImbalanceFinding]
    seen: dict[tuple[str, ...], Counts] = field(default_factory=dict)

    def row(
        self,
        name: str,
        values: Sequence[float],
        drawn: Sequence[Floats | None] | Mean,
        *,
        slice: str = "all",
        known: str | None = None,
        how: str | None = None,
        optimistic: bool = False,
    ) -> Row:
        """The mean of what is defined, one value for each study; `drawn`: replicates of each, or of the mean itself."""
        defined = findings_in_mean(values, [study.finding.counts.units for study in self.studies])
        chosen = [self.studies[k] for k in defined] or self.studies
        names = tuple(study.finding.name for study in chosen)
        if names not in self.seen:  # counting images and patients is slow
            self.seen[names] = macro_counts(self.make.sample, [study.finding for study in chosen])
        counts = self.seen[names]
        if not defined:
            note = f"{name} is undefined for every finding"
            return self.make.row(name, MACRO, counts, np.nan, slice=slice, known=known, how=how, note=note)
        note = mean_note([study.finding.name for study in self.studies], values, defined)
        if optimistic and any(study.threshold.absent for study in chosen):
            note += f"; {OPTIMISTIC}"
        value = float(np.mean([values[k] for k in defined]))
        if isinstance(drawn, Mean):
            mean = drawn
        else:
            replicates = [each for k in defined if (each := drawn[k]) is not None]
            if len(replicates) < len(defined):
                return self.make.row(name, MACRO, counts, value, slice=slice, known=known, how=how, note=note)
            mean = mean_over(replicates, [study.units_of(name) for study in chosen])
        return self.make.row(
            name, MACRO, counts, value, mean.replicates, units=mean.units, slice=slice, known=known, how=how, note=note
        )


# Numbers within the classes -> what they become at other prevalences: RESULT rows of `prevalence=...`, and CURVE.
#
# The question: the same model, with the same scores among positives and among negatives, where the finding is rarer
# or more frequent. AUROC, sensitivity, specificity and balanced Brier do not move. Precision, NPV (at the max-F1
# threshold), average precision and Brier (both of p as the model gives it) move as the classes are weighted. Net
# benefit, at a risk of RISK, uses p corrected to the new prevalence, from the training prevalence when it is given,
# else from that of the evaluated rows. Known gap: average precision at a prevalence far below the sample's hangs on
# the few negatives with the highest scores and comes out too high (30 positives and 1,000 negatives carried to 1%:
# .15 for .12, and a 95% interval covered 87%); such rows say so.

GRID = (0.005, 0.01, 0.02, 0.03, 0.05, 0.07, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5)
SLICES = (0.01, 0.05, 0.1, 0.3, 0.5)
# Act at this risk: nine false alarms weigh as much as one finding found.
RISK = 0.1
# How many times rarer than in the sample average precision is still trusted.
RARE_FACTOR = 3
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


class _PrevalenceValues(NamedTuple):
    """One finding along its grid: {metric: values (grid,)}, {metric: replicates (n_resamples, grid)}."""

    study: ImbalanceFinding
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


class AlongPrevalence:
    """RESULT rows of the prevalences of SLICES, and curves over GRID with the finding's own prevalence.

    Findings are added one after the other: the replicates of thousands along the grid would take gigabytes.
    """

    def __init__(self, make: RowMaker) -> None:
        self.make = make
        self.rows: list[Row] = []
        self.curves: list[Row] = []
        self.values: dict[str, list[Floats | None]] = {name: [] for name in KINDS}  # of each finding, (grid,)
        self.means: dict[tuple[str, int, bool], MeanOver] = {}  # of common findings, and of rare ones

    def add(self, study: ImbalanceFinding, here: Walk, drawn: Walk, k: int) -> None:
        """`here` and `drawn` hold, at place k, the sums at the max-F1 threshold and at the thresholds of net benefit,
        and average precision at the prevalences."""
        make, moved, own = (
            self.make,
            _values_along_prevalence(self.make.sample, study, here, drawn, k),
            study.prevalence,
        )
        grid = grid_of(own)
        by_place = [_rows_at(make, moved, g, float(pi)) for g, pi in enumerate(grid)]
        self.rows += _rows_by_metric(by_place)
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
        return self.rows + _rows_by_metric(means), self.curves + _curves(self.make.sample, means, GRID)

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


def _rows_by_metric(by_place: Sequence[Sequence[Row]]) -> list[Row]:
    """The rows of the short list of prevalences, metric after metric."""
    kept = [rows for pi, rows in zip(GRID, by_place, strict=False) if pi in SLICES]
    return [row for same in zip(*kept, strict=True) for row in same]


def _values_along_prevalence(
    sample: Sample, study: ImbalanceFinding, here: Walk, drawn: Walk, k: int
) -> _PrevalenceValues:
    grid = grid_of(study.prevalence)
    source = source_of(sample, study.finding.name, study.prevalence)
    names = [name for name in KINDS if study.finding.is_probability or name not in ("brier", "net_benefit")]
    if not 0 < study.prevalence < 1:
        undefined = np.full((len(drawn.sums), len(grid)), np.nan)
        return _PrevalenceValues(study, source, dict.fromkeys(names, undefined[0]), dict.fromkeys(names, undefined), {})

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
    return _PrevalenceValues(
        study,
        source,
        follow(study.values, here.sums[k, 1:], here.average_precision[k]),
        follow(replicates, drawn.sums[:, k, 1:], drawn.average_precision[:, k]),
        {name: _limits(study, name, sample.settings.level) for name in _RATES},
    )


def _rows_at(make: RowMaker, moved: _PrevalenceValues, g: int, pi: float) -> list[Row]:
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


def _how(name: str, study: ImbalanceFinding, source: float) -> str | None:
    if name in _RATES:
        return study.threshold.at
    if name == "net_benefit":
        known = 0 < source < 1
        return f"risk threshold {RISK:g}" + (f", p corrected from prevalence {source:.4g}" if known else "")
    return "classes weighted to the prevalence, p as output by the model"


def _note(name: str, study: ImbalanceFinding, pi: float) -> str | None:
    if name == "average_precision":
        rare = (
            "; far below the prevalence of this sample, so it tends to be too high"
            if pi * RARE_FACTOR < study.prevalence
            else ""
        )
        return f"chance level is {pi:g}{rare}"
    if name == "net_benefit":
        everybody = float(net_benefit_at_prevalence(1, 1, pi, RISK))
        return f"treating all: {everybody:.4g}, treating none: 0"
    if name == "brier":
        return f"always predicting the prevalence reaches {pi * (1 - pi):.4g}"
    return study.threshold.note


def _limits(study: ImbalanceFinding, name: str, level: float) -> _Limits:
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


def _flat(make: RowMaker, study: ImbalanceFinding) -> list[Row]:
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
