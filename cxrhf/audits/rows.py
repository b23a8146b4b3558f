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

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cxrhf.audits.sample import Counts, Finding, Sample, bootstrap_findings
from cxrhf.metrics import operating
from cxrhf.metrics.catalogue import METRICS
from cxrhf.metrics.checks import undefined
from cxrhf.metrics.estimates import drop_rounding, findings_in_mean, mean_note, mean_over
from cxrhf.metrics.intervals import Difference, Interval, UnitCount, count_units, difference_interval, interval

Floats = NDArray[np.float64]


Row = dict[str, Any]
MACRO = "macro"
INTERVAL_SOURCE = "kept"


class AuditPart(NamedTuple):
    """What one audit of one sample found: RESULT rows, CURVE rows, and what a reader must be told.

    Audits of representations also place images: POINT rows (maps) and SLICE rows.
    """

    rows: list[Row]
    curves: list[Row]
    notes: list[str]
    points: Sequence[Row] = ()
    slices: Sequence[Row] = ()


@dataclass(frozen=True, slots=True)
class GatheredParts:
    """What several audits found together."""

    rows: list[Row] = field(default_factory=list)
    curves: list[Row] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    points: list[Row] = field(default_factory=list)
    slices: list[Row] = field(default_factory=list)

    def add(self, part: AuditPart, where: str = "") -> None:
        """One part more; `where` is put behind its notes."""
        self.rows.extend(part.rows)
        self.curves.extend(part.curves)
        self.notes.extend(note + where for note in part.notes)
        self.points.extend(part.points)
        self.slices.extend(part.slices)

    def part(self) -> AuditPart:
        """All of it as one part."""
        return AuditPart(self.rows, self.curves, self.notes, self.points, self.slices)


class IntervalSource(NamedTuple):
    """What a row's interval was made from."""

    replicates: Floats
    counts: Counts
    units: UnitCount
    known: str
    weighting: str | None
    picked: int = 1  # out of so many differences, the p value corrected for it


class AuditedSample(NamedTuple):
    """A sample and what its audits gave."""

    sample: Sample
    rows: list[Row]


def to_result_rows(rows: Iterable[Row]) -> list[Row]:
    """The rows as RESULT has them."""
    return [{name: value for name, value in row.items() if name != INTERVAL_SOURCE} for row in rows]


def small_p_value(found: Difference, value: float, replicates: Floats, units: UnitCount) -> float:
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
                p_value = small_p_value(found, value, replicates, behind) if tested else None
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
            row[INTERVAL_SOURCE] = IntervalSource(replicates, counts, behind, name, weighting)
        return row

    def of(self, metric: str, finding: Finding, value: float, replicates: Floats | None = None, **options: Any) -> Row:
        """A row of one finding; an undefined value says why."""
        if np.isnan(value) and not options.get("note"):
            base = options.get("known") or metric
            reason = undefined(base, finding.y, finding.weight) or undefined("auroc", finding.y, finding.weight)
            _, colon, why = (reason or "").partition(":")
            options["note"] = f"{metric} is undefined{colon}{why or f' on these {finding.counts.n} rows'}"
        return self.row(metric, finding.name, finding.counts, value, replicates, **options)


def macro_counts(sample: Sample, findings: Sequence[Finding]) -> Counts:
    """What a macro number rests on: images with any label, with any positive, and their patients."""
    hit = np.full(len(sample.data.patients), np.nan)
    for finding in findings:
        hit[finding.at] = np.fmax(hit[finding.at], finding.y == 1)
    at = np.flatnonzero(~np.isnan(hit))
    units = count_units(hit[at], sample.data.patients[at])
    return Counts(len(at), int(hit[at].sum()), units.total, units)


# Numbers of findings with their replicates -> RESULT rows: the numbers, drops between them, means over findings.


class FindingNumber(NamedTuple):
    """One number of one finding; `known` is the metric of the catalogue whose range and direction it has."""

    value: float
    replicates: Floats | None
    units: UnitCount
    known: str
    weighting: str | None = None
    how: str | None = None
    note: str | None = None


# IPW weights are heavy: in simulations without any drop 10% of its p values were below .05. Intervals only.
UNTESTED = ("auroc_ipw",)


def _drop(full: FindingNumber, rest: FindingNumber) -> FindingNumber:
    replicates = None
    if full.replicates is not None and rest.replicates is not None:
        replicates = drop_rounding(full.replicates - rest.replicates)
    return rest._replace(value=float(drop_rounding(full.value - rest.value)), replicates=replicates, how=None)


def number_rows(
    make: RowMaker,
    findings: Sequence[Finding],
    numbers: Sequence[Mapping[str, FindingNumber]],
    controlled: Sequence[str],
) -> list[Row]:
    """Rows of every number, of the drops from `auroc` to the `controlled` AUROCs, and of their means over findings.

    Means of AUROCs are over the findings for which all of them are defined, so that they can be compared.
    """
    rows: list[Row] = []
    drops = [{name: _drop(each["auroc"], each[name]) for name in controlled} for each in numbers]
    for finding, each in zip(findings, numbers, strict=True):
        rows += [_row(make, finding, name, number) for name, number in each.items()]
    for name in controlled:
        for finding, each in zip(findings, drops, strict=True):
            rows.append(_row(make, finding, "auroc_drop", each[name], versus=name))
    counted: dict[tuple[int, ...], Counts] = {}
    names = list(dict.fromkeys(name for each in numbers for name in each))
    alike = [name for name in names if name in controlled or name.startswith("auroc")]
    for name in names:
        asked = alike if name in alike else [name]
        rows += _mean(make, findings, numbers, name, asked, counted)
    for name in controlled:
        rows += _mean(make, findings, drops, name, list(controlled), counted, versus=name)
    return rows


def _row(make: RowMaker, finding: Finding, metric: str, number: FindingNumber, versus: str | None = None) -> Row:
    row = make.of(
        metric,
        finding,
        number.value,
        number.replicates,
        known=number.known,
        weighting=number.weighting,
        versus=versus,
        tested=versus not in UNTESTED,
        units=number.units,
        how=number.how,
        note=number.note if np.isfinite(number.value) else None,
    )
    return set_direction(row)


def _mean(
    make: RowMaker,
    findings: Sequence[Finding],
    numbers: Sequence[Mapping[str, FindingNumber]],
    name: str,
    asked: Sequence[str],
    counted: dict[tuple[int, ...], Counts],
    versus: str | None = None,
) -> list[Row]:
    """The mean over the findings for which all the `asked` numbers are defined; `counted`: data behind some of them."""
    defined = [all(n in each and np.isfinite(each[n].value) for n in asked) for each in numbers]
    values = [each[name].value if there else np.nan for there, each in zip(defined, numbers, strict=True)]
    inside = findings_in_mean(values, [finding.counts.units for finding in findings])
    if not inside:
        return []
    chosen = [numbers[k][name] for k in inside]
    if tuple(inside) not in counted:
        counted[tuple(inside)] = macro_counts(make.sample, [findings[k] for k in inside])
    drawn = [each.replicates for each in chosen if each.replicates is not None]
    mean = mean_over(drawn, [each.units for each in chosen]) if len(drawn) == len(chosen) else None
    row = make.row(
        "auroc_drop" if versus else name,
        MACRO,
        counted[tuple(inside)],
        float(np.mean([each.value for each in chosen])),
        mean.replicates if mean else None,
        known=chosen[0].known,
        weighting=chosen[0].weighting,
        versus=versus,
        tested=versus not in UNTESTED and len(inside) > 1,  # of one finding there is nothing more to test
        units=mean.units if mean else None,
        note=mean_note([finding.name for finding in findings], values, inside, len(make.sample.data.findings)),
    )
    return [set_direction(row)]


def record_rows(
    make: RowMaker, finding: Finding, record: str, fields: Mapping[str, float], weighting: str | None = None
) -> list[Row]:
    """One row a field: descriptions, neither good nor bad in themselves."""
    rows = [
        make.of(f"{record}.{name}", finding, value, known="auroc", weighting=weighting)
        for name, value in fields.items()
    ]
    return [row | {"higher_is_better": None} for row in rows]


# Scores and labels of a finding -> operating points, and the rates reached there with their replicates.
#
# Three thresholds: the lowest that keeps the asked specificity, the one with the largest J and the one with the
# largest F1. All are chosen on the rows they are applied to; replicates of the rates hold them fixed.

SPECIFICITY = 0.95
SENSITIVITY_AT_SPECIFICITY = "sensitivity_at_specificity"
# Below so many negatives the conservative threshold keeps noticeably less specificity than asked on new patients.
ENOUGH_NEGATIVES = 400
OPTIMISTIC = "threshold chosen on these rows: optimistic"


class Rate(NamedTuple):
    """A rate at one of the thresholds: its name in the catalogue; a specificity is 1 - that."""

    threshold: str
    name: str
    complement: bool = False

    def of(self, value: Floats) -> Floats:
        return 1 - value if self.complement else value


# Another audit's thresholds are others, so these numbers are no audit's but the overview's.
RATES = {
    "precision": Rate(SENSITIVITY_AT_SPECIFICITY, "precision"),
    "npv": Rate(SENSITIVITY_AT_SPECIFICITY, "npv"),
    "mcc": Rate(SENSITIVITY_AT_SPECIFICITY, "mcc"),
    "j": Rate("youden_threshold", "j"),
    "youden_threshold.sensitivity": Rate("youden_threshold", "tpr"),
    "youden_threshold.specificity": Rate("youden_threshold", "fpr", True),
    "f1": Rate("max_f1_threshold", "f1"),
    "max_f1_threshold.sensitivity": Rate("max_f1_threshold", "tpr"),
    "max_f1_threshold.specificity": Rate("max_f1_threshold", "fpr", True),
}


class Points(NamedTuple):
    """The operating point at the asked specificity, the thresholds that are defined, and the rates there."""

    asked: operating.OperatingPoint
    thresholds: dict[str, float]
    values: dict[str, float]


def points_of(finding: Finding) -> Points:
    """Operating points of a finding; a rate is NaN where its threshold is undefined."""
    y, p, weight = finding.y, finding.p, finding.weight
    asked = operating.sensitivity_at_specificity(y, p, SPECIFICITY, weight)
    found = {
        SENSITIVITY_AT_SPECIFICITY: asked.threshold,
        "youden_threshold": operating.youden_threshold(y, p, weight),
        "max_f1_threshold": operating.max_f1_threshold(y, p, weight),
    }
    thresholds = {name: value for name, value in found.items() if not np.isnan(value)}
    reached = {name: operating.rates_at(y, p, value, weight) for name, value in thresholds.items()}
    values = dict.fromkeys(RATES, np.nan)
    for name, rate in RATES.items():
        if rate.threshold in reached:
            values[name] = float(rate.of(getattr(reached[rate.threshold], rate.name)))
    return Points(asked, thresholds, values)


def rate_replicates(
    sample: Sample, findings: Sequence[Finding], points: Sequence[Points], text: str = "resamples"
) -> list[dict[str, Floats]]:
    """Replicates of every finding's rates; `text` says what is going on meanwhile."""
    out: list[dict[str, Floats]] = [{} for _ in findings]
    for at in dict.fromkeys(rate.threshold for rate in RATES.values()):
        own = {name: rate for name, rate in RATES.items() if rate.threshold == at}
        thresholds = [point.thresholds.get(at, np.nan) for point in points]
        found = bootstrap_findings(
            sample, findings, {rate.name: {"threshold": thresholds} for rate in own.values()}, text=text
        )
        for each, values in zip(out, found, strict=True):
            each |= {name: rate.of(values[rate.name]) for name, rate in own.items()}
    return out


def catalogue_name(name: str) -> str:
    """The name in the catalogue."""
    return RATES[name].name if name in RATES else name


def rate_note(name: str, points: Points) -> str | None:
    """Which threshold a rate is given at."""
    if name not in RATES:
        return None
    if RATES[name].threshold == SENSITIVITY_AT_SPECIFICITY:
        return f"at the threshold {points.asked.threshold:.6g} of {SENSITIVITY_AT_SPECIFICITY}"
    return OPTIMISTIC


def set_direction(row: Row) -> Row:
    """A specificity has the range and the patients of a false positive rate but is better when high."""
    return row | {"higher_is_better": True} if row["metric"].split(".")[-1].startswith("specificity") else row


def threshold_rows(make: RowMaker, finding: Finding, points: Points) -> list[Row]:
    """The thresholds; with few negatives also what a safer one leaves of the sensitivity."""
    how = f"specificity {SPECIFICITY} requested"
    rows = [
        make.of(f"{SENSITIVITY_AT_SPECIFICITY}.threshold", finding, points.asked.threshold, how=how),
        set_direction(make.of(f"{SENSITIVITY_AT_SPECIFICITY}.specificity", finding, points.asked.specificity, how=how)),
    ]
    for name, entry in (("youden_threshold", "youden"), ("max_f1_threshold", "max_f1")):
        row = make.of(name, finding, points.thresholds.get(name, np.nan), known=entry)
        rows.append(row | {"higher_is_better": None})
    negatives = finding.counts.n - finding.counts.n_pos
    if 0 < negatives < ENOUGH_NEGATIVES and finding.counts.n_pos > 0:
        safer = operating.sensitivity_at_specificity(finding.y, finding.p, SPECIFICITY, finding.weight, "plus_one")
        expected = operating.false_positive_rate_to_expect(negatives, SPECIFICITY)
        note = (
            f"only {negatives} negatives: at the threshold of {SENSITIVITY_AT_SPECIFICITY} expect {expected:.1%} "
            f"false positives among new ones; this is the sensitivity at {safer.threshold:.6g}, where "
            f"(false positives + 1)/(negatives + 1) is at most {1 - SPECIFICITY:.2g}"
        )
        rows.append(
            make.of(
                f"{SENSITIVITY_AT_SPECIFICITY}.plus_one",
                finding,
                safer.sensitivity,
                known=SENSITIVITY_AT_SPECIFICITY,
                note=note,
            )
        )
    return rows


def options_of(name: str) -> Mapping[str, float]:
    """The engine's option of a metric."""
    return {"specificity": SPECIFICITY} if name == SENSITIVITY_AT_SPECIFICITY else {}
