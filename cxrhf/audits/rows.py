"""One model's predictions and a bootstrap plan -> RESULT rows: the one place where a number gets its name and interval.

How rows are keyed. `metric` is the name of the function that gives the number. A record's field follows a dot
(`sensitivity_at_specificity.threshold`). A suffix says whose population it is measured on: none = the sample as it is,
`_att` = negatives weighted to the context of the positives, `_ipw` = both classes weighted to the context of everybody,
`_matched` = 1:1 matched pairs (the function itself is called `matched_auroc`); `auroc_context` scores with the pre-test
probability alone; `_balanced` = groups weighted to one prevalence and age; `_balanced_by_race` = everybody, weighted so
that the races have one share, prevalence and age; `_balanced_by_race_and_disease` = the same with one share of each of
ENCODING's disease groups; `_equalised` = an attribute as frequent in both sexes. `slice` is "all" or the part of the
sample, as `pretest=bottom`, `mention=yes`, `sex=F & race=Black`. `versus` is filled only where the number is a
difference: metric `auroc_drop` with versus `auroc_att` is auroc - auroc_att, metric `auroc` of slice `sex=F` with
versus `sex=M` is the first less the second. `finding` is a finding or "macro", the unweighted mean over findings with a
defined value. `method` says weighting, then interval. A `verdict` row carries its sentence in `note` and the number it
rests on in `value`. Null interval = none is computed; NaN = undefined, with the reason in `note`.

While the audits run, a row also carries `KEPT`, its replicates, for what is computed from rows (correction of p values
by max-T, comparison of models); `plain` takes it off.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from cxrhf.audits.sample import Counts, Finding, Floats, Sample
from cxrhf.metrics.catalogue import METRICS
from cxrhf.metrics.checks import undefined
from cxrhf.metrics.intervals import Difference, Interval, UnitCount, count_units, difference_interval, interval

Row = dict[str, Any]
MACRO = "macro"
KEPT = "kept"


class Part(NamedTuple):
    """What one audit of one sample found: RESULT rows, CURVE rows, and what a reader must be told.

    Audits of representations also place images: POINT rows (maps) and SLICE rows.
    """

    rows: list[Row]
    curves: list[Row]
    notes: list[str]
    points: Sequence[Row] = ()
    slices: Sequence[Row] = ()


@dataclass(frozen=True, slots=True)
class Gathered:
    """What several audits found together."""

    rows: list[Row] = field(default_factory=list)
    curves: list[Row] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    points: list[Row] = field(default_factory=list)
    slices: list[Row] = field(default_factory=list)

    def add(self, part: Part, where: str = "") -> None:
        """One part more; `where` is put behind its notes."""
        self.rows.extend(part.rows)
        self.curves.extend(part.curves)
        self.notes.extend(note + where for note in part.notes)
        self.points.extend(part.points)
        self.slices.extend(part.slices)

    def part(self) -> Part:
        """All of it as one part."""
        return Part(self.rows, self.curves, self.notes, self.points, self.slices)


class Kept(NamedTuple):
    """What a row's interval was made from."""

    replicates: Floats
    counts: Counts
    units: UnitCount
    known: str
    weighting: str | None
    picked: int = 1  # out of so many differences, the p value corrected for it


class Audited(NamedTuple):
    """A sample and what its audits gave."""

    sample: Sample
    rows: list[Row]


def plain(rows: Iterable[Row]) -> list[Row]:
    """The rows as RESULT has them."""
    return [{name: value for name, value in row.items() if name != KEPT} for row in rows]


def beyond_resamples(found: Difference, value: float, replicates: Floats, units: UnitCount) -> float:
    """The p value; when no replicate reaches 0 it is only known to be small, and the replicates' spread says how small.

    Otherwise few resamples times many findings would hide every drop, however large.
    """
    floor = 2 / (len(replicates) - found.n_undefined + 1)
    if found.method != "percentile" or found.p_value > floor * (1 + 1e-9):
        return found.p_value
    return min(floor, difference_interval(value, replicates, method="t", units=units).p_value)


@dataclass(frozen=True, slots=True)
class RowMaker:
    """Makes the RESULT rows of one audit of one sample."""

    audit: str
    sample: Sample

    def row(
        self,
        metric: str,
        finding: str | None,
        counts: Counts,
        value: float,
        replicates: Floats | None = None,
        *,
        known: str | None = None,
        weighting: str | None = None,
        slice: str = "all",
        versus: str | None = None,
        tested: bool = True,
        units: UnitCount | None = None,
        how: str | None = None,
        note: str | None = None,
    ) -> Row:
        """One row. `known` names the catalogue entry with the metric's range and direction, when the name differs.

        `units`: the patients behind the interval, where weights leave fewer of them than `counts` says. A difference
        (`versus`) gets a p value, as yet not corrected for the number of tests, unless it is not to be `tested`.
        """
        name = known or metric
        entry = METRICS.get(name)
        level = self.sample.settings.level
        low = high = p_value = None
        method = weighting or self.sample.weighting
        behind = units or counts.units
        if replicates is not None and np.isnan(value):
            low = high = np.nan
        elif replicates is not None:
            found: Interval | Difference
            if versus is not None:
                low_end, high_end = entry.bounds if entry else (0.0, 1.0)
                span = (low_end - high_end, high_end - low_end)
                found = difference_interval(value, replicates, level=level, units=behind, metric=name, bounds=span)
                p_value = beyond_resamples(found, value, replicates, behind) if tested else None
            else:
                found = interval(value, replicates, level=level, units=behind, metric=name)
            low, high = found.low, found.high
            method += f"; {level:.4g} {found.method}, patients resampled"
            if found.n_undefined:
                lost = f"{found.n_undefined} of {len(replicates)} resamples lack a class"
                note = f"{note}; {lost}" if note else lost
        row: Row = {
            "audit": self.audit,
            "metric": metric,
            "dataset": self.sample.dataset,
            "model": self.sample.model,
            "finding": finding,
            "slice": slice,
            "versus": versus,
            "value": float(value),
            "ci_low": low,
            "ci_high": high,
            "p_value": p_value,
            "n": counts.n,
            "n_pos": counts.n_pos,
            "n_patients": counts.n_patients,
            "method": f"{method}; {how}" if how else method,
            "seed": self.sample.settings.seed,
            "higher_is_better": entry.higher_is_better if entry and versus is None else None,
            "note": note,
        }
        if replicates is not None and self.sample.keep and not np.isnan(value):
            row[KEPT] = Kept(replicates, counts, behind, name, weighting)
        return row

    def of(self, metric: str, finding: Finding, value: float, replicates: Floats | None = None, **options: Any) -> Row:
        """A row of one finding; an undefined value says why."""
        if np.isnan(value) and not options.get("note"):
            base = options.get("known") or metric
            reason = undefined(base, finding.y, finding.weight) or undefined("auroc", finding.y, finding.weight)
            _, colon, why = (reason or "").partition(":")
            options["note"] = f"{metric} is undefined{colon}{why or f' on these {finding.counts.n} rows'}"
        return self.row(metric, finding.name, finding.counts, value, replicates, **options)


def everything(sample: Sample, findings: Sequence[Finding]) -> Counts:
    """What a macro number rests on: images with any label, with any positive, and their patients."""
    hit = np.full(len(sample.data.patients), np.nan)
    for finding in findings:
        hit[finding.at] = np.fmax(hit[finding.at], finding.y == 1)
    at = np.flatnonzero(~np.isnan(hit))
    units = count_units(hit[at], sample.data.patients[at])
    return Counts(len(at), int(hit[at].sum()), units.total, units)
