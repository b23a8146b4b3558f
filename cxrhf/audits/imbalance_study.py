"""One model's finding -> its study: the max-F1 threshold, numbers and replicates by name, and whom they rest on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cxrhf.audits.rates import OPTIMISTIC
from cxrhf.audits.rows import MACRO, Row, RowMaker, everything
from cxrhf.audits.sample import Counts, Finding, Floats, Sample
from cxrhf.metrics.checks import undefined
from cxrhf.metrics.estimates import Mean, in_mean, mean_note, mean_over
from cxrhf.metrics.intervals import UnitCount, capped, count_units
from cxrhf.metrics.operating import max_f1_threshold


class Threshold(NamedTuple):
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
class Study:
    """One finding, its operating point, its prevalence here, and its numbers here by name."""

    finding: Finding
    threshold: Threshold
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


def choose_threshold(sample: Sample, finding: Finding) -> Threshold:
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
        return Threshold(value, f"chosen on {len(tuning.y):,} validation rows ({positives:,} positive)")
    return Threshold(max_f1_threshold(finding.y, finding.p, finding.weight), "chosen on these rows", absent)


def threshold_notes(sample: Sample, studies: Sequence[Study]) -> list[str]:
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
        "precision": capped(_of(finding, called)),
        "npv": capped(_of(finding, ~called)),
    }


def _of(finding: Finding, rows: NDArray[np.bool_]) -> UnitCount:
    """The patients of some rows, whichever their label."""
    there = count_units(finding.y[rows], finding.patients[rows], finding.weight[rows])
    few = there.effective_total
    return UnitCount(there.total, there.total, there.total, few, few, few)


@dataclass(frozen=True, slots=True)
class Macro:
    """Makes the rows of means over findings."""

    make: RowMaker
    studies: Sequence[Study]
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
        defined = in_mean(values, [study.finding.counts.units for study in self.studies])
        chosen = [self.studies[k] for k in defined] or self.studies
        names = tuple(study.finding.name for study in chosen)
        if names not in self.seen:  # counting images and patients is slow
            self.seen[names] = everything(self.make.sample, [study.finding for study in chosen])
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
