"""PREDICTION -> RESULT: how well a model does for patients whose chart promised little, and for those it promised much.

Within strata of pre-test probability and of mention in earlier notes, each with its interval: AUROC;
sensitivity at 95% specificity with the threshold set inside the stratum (local) and, as a clinic would use it, with one
threshold for all (global, with the specificity it gives there); calibration, skill and prevalence. Then lowest less
highest stratum, and not mentioned less mentioned, on the same draws.

The strata are those of the sample and stay the same in every resample. A global threshold from a validation split is
held fixed; else it is set on all rows of the finding and anew in every resample. Calibration errors of groups of
different size or prevalence cannot be compared: only what exceeds `expected_ace` is (`ace_excess`). Skill and
calibration differ between strata even for a score that ignores the chart, because the prevalence does: their
differences have intervals but no p value.

Known gap: `expected_ace` takes rows as independent; many alike images of one patient raise the error beyond it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from cxrhf.audits.rows import (
    ENOUGH_NEGATIVES,
    MACRO,
    SENSITIVITY_AT_SPECIFICITY,
    SPECIFICITY,
    AuditPart,
    Row,
    RowMaker,
    macro_counts,
    set_direction,
)
from cxrhf.audits.sample import Counts, Finding, Floats, Sample
from cxrhf.metrics.calibration import adaptive_calibration_error, brier_skill_score, expected_ace
from cxrhf.metrics.checks import undefined
from cxrhf.metrics.estimates import ROUNDING, drop_rounding, findings_in_mean, mean_note, mean_over
from cxrhf.metrics.grouped import Grouping, drawn_groups, drawn_starts, rank_findings
from cxrhf.metrics.intervals import UnitCount, capped
from cxrhf.metrics.operating import OperatingPoint, rates_at, sensitivity_at_specificity, threshold_at_fpr
from cxrhf.metrics.ranking import auroc
from cxrhf.metrics.resample import bootstrap_many
from cxrhf.metrics.weighting import quantile_groups

# Rows of a finding -> strata of what was known before the image, and the numbers of each, with replicates.
#
# By pre-test probability: the lowest quarter, the middle half and the highest quarter by mid-rank, each finding by
# its own; equal values stay together, so the shares reached may differ. By mention: whether an earlier note names the
# finding; images of patients without any earlier note are in neither group.

LOCAL_SENSITIVITY = SENSITIVITY_AT_SPECIFICITY  # its threshold is set inside the stratum
ERROR = "adaptive_calibration_error"

# The groups of each division with the shares they should have, and the two that are compared, the lower first.
GROUPS: dict[str, dict[str, float | None]] = {
    "pretest": {"bottom": 0.25, "middle": 0.5, "top": 0.25},
    "mention": {"no": None, "yes": None},
}
COMPARED = {"pretest": ("pretest=bottom", "pretest=top"), "mention": ("mention=no", "mention=yes")}
# A share this far off deserves a word.
SHARE_OFF = 0.05
_MISSING = {
    "pretest": (
        "no pre-test probability, so patients of low and high risk are not shown separately. Name a "
        "column with --pretest COLUMN, fit one with --pretest from:age,sex,view,prior_labels, or give the "
        "notes with --notes NOTES"
    ),
    "mention": (
        "no column states whether a prior note mentions the finding, so patients with and without a mention are not "
        "compared. Give the notes with --notes NOTES, or name a column with --mention COLUMN"
    ),
}
_WITHOUT = {
    "pretest": "no pre-test probability",
    "mention": "no row states whether a prior note mentions it",
}
_LEFT_OUT = {"pretest": "rows without a pre-test probability", "mention": "images without a prior note"}


class Stratum(NamedTuple):
    """The rows of one group (none: an empty one), the share of the division's rows they are, and what to say of it."""

    slice: str
    finding: Finding
    share: float
    note: str | None


class Strata(NamedTuple):
    """One finding divided one way. `whole` are all its labelled rows, `pair` those of the two groups compared."""

    by: str
    whole: Finding
    parts: dict[str, Stratum]
    pair: Finding
    left_out: int

    @property
    def units(self) -> UnitCount:
        """The patients a difference rests on: those of the scarcer of the two groups."""
        one, two = (self.parts[name].finding.counts.units for name in COMPARED[self.by])
        return UnitCount._make(map(min, one, two))


def divide(finding: Finding, by: str) -> Strata | None:
    """The strata of one finding; None where no row has what they are made from."""
    known = finding.pretest if by == "pretest" else finding.mention
    if known is None or np.isnan(known).all():
        return None
    there = ~np.isnan(known)
    inside = {}
    if by == "pretest":
        groups = quantile_groups(known[there], weight=finding.weight[there])
        for name, mask in zip(GROUPS[by], groups[:3], strict=True):
            inside[f"pretest={name}"] = there.copy()
            inside[f"pretest={name}"][there] = mask
    else:
        inside = {"mention=no": known == 0, "mention=yes": known == 1}
    total = float(finding.weight[there].sum())
    parts = {}
    for (name, wanted), (key, mask) in zip(GROUPS[by].items(), inside.items(), strict=True):
        share = float(finding.weight[mask].sum()) / total if total > 0 else np.nan
        parts[key] = Stratum(key, finding.only(mask), share, _stratum_note(by, name, share, wanted, int(mask.sum())))
    one, two = (inside[key] for key in COMPARED[by])
    return Strata(by, finding, parts, finding.only(one | two), int((~there).sum()))


def _stratum_note(by: str, name: str, share: float, wanted: float | None, n: int) -> str | None:
    if n == 0:
        why = (
            "too many equal pre-test probabilities, which stay together"
            if by == "pretest"
            else "every image is in the other stratum"
        )
        return f"no rows in {by}={name}: {why}"
    if wanted is not None and abs(share - wanted) > SHARE_OFF:
        return f"{share:.0%} of the rows instead of {wanted:.0%}: equal pre-test probabilities stay together"
    return None


def strata_notes(sample: Sample, by: str, found: Sequence[Strata]) -> list[str]:
    """What is missing, left out or empty, one sentence each."""
    head = f"{sample.model}: context"
    if not found:
        return [f"{head}: {_MISSING[by]}"]
    names = {each.whole.name for each in found}
    notes = []
    if without := [name for name in sample.data.findings if name not in names]:
        notes.append(f"{head}: {', '.join(without)}: {_WITHOUT[by]}; not shown by {by}")
    if lost := [f"{each.whole.name} {each.left_out:,}" for each in found if each.left_out]:
        notes.append(f"{head}: {_LEFT_OUT[by]} are in no stratum by {by}: {', '.join(lost)}")
    for name in found[0].parts:
        if empty := [each for each in found if each.parts[name].finding.counts.n == 0]:
            whose = ", ".join(each.whole.name for each in empty)
            notes.append(f"{head}: {whose}: {empty[0].parts[name].note}")
    return notes


class StrataThreshold(NamedTuple):
    """The one threshold for all groups of a finding; `fixed` when it comes from other rows."""

    value: float
    fixed: bool
    how: str


def strata_threshold(sample: Sample, finding: Finding, fpr: float) -> StrataThreshold:
    """The lowest threshold with at most this false positive rate: in the validation split, else among all rows."""
    tuning = sample.tuning_like(finding)
    if tuning is not None:
        value = threshold_at_fpr(tuning.y, tuning.p, fpr, tuning.weight, "conservative")
        if not np.isnan(value):
            return StrataThreshold(
                value, True, f"one threshold for all, {value:.6g}, from {len(tuning.y):,} validation rows"
            )
    value = threshold_at_fpr(finding.y, finding.p, fpr, finding.weight, "conservative")
    return StrataThreshold(
        value, False, f"one threshold for all, {value:.6g}, set on all rows and reset in every resample"
    )


class Cell(NamedTuple):
    """The numbers of one finding in one stratum, with their replicates where they have any."""

    stratum: Stratum
    point: OperatingPoint
    values: dict[str, float]
    drawn: dict[str, Floats]


class StratifiedFinding(NamedTuple):
    """One finding divided one way."""

    strata: Strata
    threshold: StrataThreshold
    cells: dict[str, Cell]


def stratify_finding(
    sample: Sample, finding: Finding, ways: Sequence[Strata], tick: Callable[[int], None]
) -> list[StratifiedFinding]:
    """All numbers of one finding, divided each way."""
    threshold = strata_threshold(sample, finding, 1 - SPECIFICITY)
    drawn = _replicates(sample, finding, ways, threshold, tick)
    return [
        StratifiedFinding(
            way, threshold, {name: _cell(sample, part, threshold, drawn[name]) for name, part in way.parts.items()}
        )
        for way in ways
    ]


def _cell(sample: Sample, stratum: Stratum, threshold: StrataThreshold, drawn: dict[str, Floats]) -> Cell:
    finding = stratum.finding
    y, p, weight = finding.y, finding.p, finding.weight
    point = sensitivity_at_specificity(y, p, SPECIFICITY, weight)
    values = {
        "share": stratum.share,
        "auroc": auroc(y, p, weight),
        LOCAL_SENSITIVITY: point.sensitivity,
        "sensitivity_global": np.nan,
        "specificity_global": np.nan,
        "prevalence": finding.prevalence,
    }
    if not np.isnan(threshold.value):
        rates = rates_at(y, p, threshold.value, weight)
        values |= {"sensitivity_global": rates.tpr, "specificity_global": 1 - rates.fpr}
    if finding.is_probability:
        values[ERROR] = adaptive_calibration_error(y, p, weight)
        values["expected_ace"] = expected_ace(p, weight, seed=sample.settings.seed)
        values["brier_skill_score"] = brier_skill_score(y, p, weight)  # against the stratum's own prevalence
    return Cell(stratum, point, values, drawn)


def _replicates(
    sample: Sample, finding: Finding, ways: Sequence[Strata], threshold: StrataThreshold, tick: Callable[[int], None]
) -> dict[str, dict[str, Floats]]:
    """{stratum: {number: replicates}}, all on the same draws; a stratum without rows has none."""
    parts = {name: part.finding for way in ways for name, part in way.parts.items()}
    there = [name for name, part in parts.items() if part.counts.n]
    n = len(sample.data.image_ids)
    y, p, weight = np.full(n, np.nan), np.zeros(n), np.ones(n)
    y[finding.at], p[finding.at], weight[finding.at] = finding.y, finding.p, finding.weight
    apart = np.full((n, len(there)), np.nan)
    for column, name in enumerate(there):
        apart[parts[name].at, column] = parts[name].y
    asked: dict[str, dict[str, float]] = {LOCAL_SENSITIVITY: {"specificity": SPECIFICITY}, "prevalence": {}}
    if finding.is_probability:
        asked |= {ERROR: {}, "brier_skill_score": {}}
    options: dict[str, Any] = {"draws": sample.draws, "workers": sample.workers}
    found = bootstrap_many(asked, apart, np.broadcast_to(p[:, None], apart.shape), weight, **options)
    drawn: dict[str, dict[str, Floats]] = {name: {} for name in parts}
    for column, name in enumerate(there):
        drawn[name] = {metric: values[:, column] for metric, values in found.items()}
    ranked = rank_findings(
        y[:, None],
        p[:, None],
        weight,
        sample.draws.unit,
        threshold=[threshold.value] if threshold.fixed else None,
        fpr=1 - SPECIFICITY,
        rule="conservative",
    )
    starts = drawn_starts(ranked, **options)
    for way in ways:
        group = np.full(n, -1, dtype=np.int64)
        for place, part in enumerate(way.parts.values()):
            group[part.finding.at] = place
        numbers = drawn_groups(ranked, Grouping(group, len(way.parts)), starts, **options, progress=tick).original
        for place, name in enumerate(way.parts):
            if name in there:
                drawn[name] |= {
                    "auroc": numbers.auroc[:, 0, place],
                    "sensitivity_global": numbers.tpr[:, 0, place],
                    "specificity_global": 1 - numbers.fpr[:, 0, place],
                }
    return drawn


# The main part.

RANKING = ("auroc", LOCAL_SENSITIVITY, "sensitivity_global", "specificity_global", "prevalence")
PROBABILITY = (ERROR, "expected_ace", "brier_skill_score")
DIFFERENCES = (
    "auroc",
    LOCAL_SENSITIVITY,
    "sensitivity_global",
    "specificity_global",
    "brier_skill_score",
    "ace_excess",
)
# Where a number's range, direction and the class it rests on are those of another name.
_CATALOGUE_NAMES = {"sensitivity_global": "tpr", "specificity_global": "fpr", "ace_excess": ERROR}
_NOTES = {ERROR: "above 0 even for a calibrated model, more so in few rows; compare with expected_ace"}
# A test of these would call every model that ignores the chart significant: shown with intervals, not tested.
_UNEQUAL = "also depends on prevalence, even if the score ignores context; not tested"
_DIFFERENCE_NOTES = {
    "brier_skill_score": f"skill {_UNEQUAL}",
    "ace_excess": f"calibration error minus expected_ace; it {_UNEQUAL}",
}


def context(sample: Sample) -> AuditPart:
    """Numbers within strata of what was known before the image, and their differences."""
    findings = sample.findings()
    divided = {by: [strata for each in findings if (strata := divide(each, by)) is not None] for by in GROUPS}
    notes = [note for by, found in divided.items() for note in strata_notes(sample, by, found)]
    rounds = sum(map(len, divided.values()))
    if not rounds:
        return AuditPart([], [], notes)
    sample.progress(f"{sample.model}: context, {sample.draws.n_resamples:,} resamples of {len(findings)} findings")
    tick = sample.ticking(f"{sample.model}: context", rounds)
    studies: dict[str, list[StratifiedFinding]] = {by: [] for by in GROUPS}
    for finding in findings:
        ways = [each for found in divided.values() for each in found if each.whole is finding]
        if ways:
            for study in stratify_finding(sample, finding, ways, tick):
                studies[study.strata.by].append(study)
    make = RowMaker("context", sample)
    rows: list[Row] = []
    for by, found in studies.items():
        if found:
            rows += [row for study in found for cell in study.cells.values() for row in _cell_rows(make, study, cell)]
            rows += _macro_rows(make, found)
            rows += [_difference_row(make, study, name) for study in found for name in _compared_metrics(study)]
            rows += _macro_differences(make, by, found)
    shown = {study.strata.whole.name for found in studies.values() for study in found}
    if ranked := [each.name for each in findings if each.name in shown and not each.is_probability]:
        notes.append(
            f"{sample.model}: context: {', '.join(ranked)}: scores are not probabilities, so calibration is "
            "not computed"
        )
    return AuditPart(rows, [], notes)


def _how(study: StratifiedFinding, name: str) -> str | None:
    if name == LOCAL_SENSITIVITY:
        return f"threshold set in this stratum for specificity {SPECIFICITY}"
    if name in ("sensitivity_global", "specificity_global"):
        return study.threshold.how
    if name == "expected_ace":
        return "200 simulations of y ~ Bernoulli(p)"
    return "against the stratum's own prevalence" if name == "brier_skill_score" else None


def _interval_units(name: str, units: UnitCount) -> UnitCount:
    """The patients behind an interval, capped for rates and for calibration errors, whose replicates lie above."""
    return capped(units) if name in _CATALOGUE_NAMES else units


def _cell_rows(make: RowMaker, study: StratifiedFinding, cell: Cell) -> list[Row]:
    stratum, finding, point = cell.stratum, cell.stratum.finding, cell.point
    rows: list[Row] = []

    def add(metric: str, value: float, note: str | None = None, **options: Any) -> None:
        if np.isnan(value):
            note = stratum.note if finding.counts.n == 0 else None  # else the row itself knows why
        rows.append(set_direction(make.of(metric, finding, value, slice=stratum.slice, note=note, **options)))

    for metric in (each for each in ("share", *RANKING, *PROBABILITY) if each in cell.values):
        add(
            metric,
            cell.values[metric],
            stratum.note if metric == "share" else _NOTES.get(metric),
            replicates=cell.drawn.get(metric),
            known=_CATALOGUE_NAMES.get(metric),
            units=_interval_units(metric, finding.counts.units),
            how=_how(study, metric),
        )
    silent = (
        "no threshold reaches the specificity: no image is predicted positive" if np.isinf(point.threshold) else None
    )
    add(f"{LOCAL_SENSITIVITY}.threshold", point.threshold, silent)
    add(f"{LOCAL_SENSITIVITY}.specificity", point.specificity)
    negatives = finding.counts.n - finding.counts.n_pos
    if negatives < ENOUGH_NEGATIVES and not np.isnan(point.sensitivity):
        careful = sensitivity_at_specificity(finding.y, finding.p, SPECIFICITY, finding.weight, "plus_one")
        note = f"{negatives} negatives: counts one more false positive, to keep the specificity on new patients"
        add(f"{LOCAL_SENSITIVITY}.plus_one", careful.sensitivity, note, known=LOCAL_SENSITIVITY, how="rule plus_one")
    return rows


class _Item(NamedTuple):
    """One finding's part in a mean over findings."""

    finding: Finding
    value: float
    drawn: Floats | None
    units: UnitCount


def _macro_rows(make: RowMaker, studies: Sequence[StratifiedFinding]) -> list[Row]:
    """Means over the findings that have the number in the stratum."""
    rows = []
    for name in studies[0].cells:
        known: dict[tuple[str, ...], Counts] = {}
        for metric in ("share", *RANKING, *PROBABILITY):
            items = []
            for cell in (study.cells[name] for study in studies):
                if metric in cell.values:
                    finding = cell.stratum.finding
                    units = _interval_units(metric, finding.counts.units)
                    items.append(_Item(finding, cell.values[metric], cell.drawn.get(metric), units))
            if items:
                rows.append(set_direction(_mean(make, metric, items, known, slice=name)))
    return rows


def _macro_differences(make: RowMaker, by: str, studies: Sequence[StratifiedFinding]) -> list[Row]:
    """Means over the findings whose difference is defined; of one finding there is nothing more to test."""
    first, second = COMPARED[by]
    rows = []
    known: dict[tuple[str, ...], Counts] = {}
    for metric in DIFFERENCES:
        items = []
        for study in (study for study in studies if metric in _compared_metrics(study)):
            value, drawn = _difference(study, metric)
            items.append(_Item(study.strata.pair, value, drawn, _interval_units(metric, study.strata.units)))
        if items:
            several = sum(not np.isnan(item.value) for item in items) > 1
            rows.append(
                _mean(
                    make,
                    metric,
                    items,
                    known,
                    slice=first,
                    versus=second,
                    tested=several and metric not in _DIFFERENCE_NOTES,
                )
            )
    return rows


def _mean(
    make: RowMaker, metric: str, items: Sequence[_Item], known: dict[tuple[str, ...], Counts], **options: Any
) -> Row:
    """The mean over findings; `known` keeps the counts of sets of findings from one number to the next."""
    values, names = [item.value for item in items], [item.finding.name for item in items]
    kept = findings_in_mean(values, [item.units for item in items])
    defined = [items[k] for k in kept]
    behind = [item.finding for item in defined or items]
    key = tuple(finding.name for finding in behind)
    if key not in known:
        known[key] = macro_counts(make.sample, behind)
    options["known"] = _CATALOGUE_NAMES.get(metric)
    if not defined:
        said = f"{metric} is undefined for every finding"
        return make.row(metric, MACRO, known[key], np.nan, note=said, **options)
    note = mean_note(names, values, kept, len(make.sample.data.findings))
    more = _DIFFERENCE_NOTES.get(metric) if options.get("versus") else None
    replicates = [item.drawn for item in defined if item.drawn is not None]
    if replicates:
        mean = mean_over(replicates, [item.units for item in defined])
        options |= {"replicates": mean.replicates, "units": mean.units}
    value = float(np.mean([item.value for item in defined]))
    return make.row(metric, MACRO, known[key], value, note=f"{note}; {more}" if more else note, **options)


def _compared_metrics(study: StratifiedFinding) -> list[str]:
    """The numbers whose difference is given: those of probabilities only where there are any."""
    ranked = not study.strata.whole.is_probability
    return [name for name in DIFFERENCES if not (ranked and name in ("brier_skill_score", "ace_excess"))]


def _difference(study: StratifiedFinding, metric: str) -> tuple[float, Floats | None]:
    """First less second group, in the sample and in every replicate; what is only rounding is 0."""
    one, two = (study.cells[name] for name in COMPARED[study.strata.by])
    if metric == "ace_excess":
        value = one.values[ERROR] - one.values["expected_ace"] - (two.values[ERROR] - two.values["expected_ace"])
    else:
        value = one.values[metric] - two.values[metric]
    if np.isnan(value):
        return value, None
    if metric == "ace_excess":
        drawn = one.drawn[ERROR] - two.drawn[ERROR]
        if np.isfinite(drawn).any():
            drawn = drawn + (value - np.nanmean(drawn))  # resampling adds error, and more of it in the smaller group
    elif metric in RANKING:
        drawn = _widen_rate_replicates(one, metric) - _widen_rate_replicates(two, metric)
    else:
        drawn = one.drawn[metric] - two.drawn[metric]
    return float(drop_rounding(value)), drop_rounding(drawn)


def _widen_rate_replicates(cell: Cell, metric: str) -> Floats:
    """The replicates of a rate, with the spread of a sample with one more patient on the right and on the wrong side.

    A handful of positives that happen to be ranked well hardly vary between resamples, and would pass for certainty.
    This is Agresti and Caffo's correction for the difference of two proportions; it vanishes with many patients.
    """
    value, drawn, units = cell.values[metric], cell.drawn[metric], cell.stratum.finding.counts.units
    if np.isnan(drawn).all():
        return drawn
    sides = {"sensitivity_global": units.effective_positive, "specificity_global": units.effective_negative}
    patients = sides.get(metric, min(units.effective_positive, units.effective_negative))
    nearer = (value * patients + 1) / (patients + 2)
    centre, spread = float(np.nanmean(drawn)), float(np.nanstd(drawn))
    least = float(np.sqrt(nearer * (1 - nearer) / (patients + 2)))
    if spread < ROUNDING:
        return drawn + np.where(np.arange(len(drawn)) % 2, least, -least)
    on_edge = value * (1 - value) < ROUNDING
    factor = least / spread if on_edge else np.sqrt(nearer * (1 - nearer) / (value * (1 - value)))
    return centre + (drawn - centre) * max(1.0, float(factor))


def _difference_row(make: RowMaker, study: StratifiedFinding, metric: str) -> Row:
    first, second = COMPARED[study.strata.by]
    value, drawn = _difference(study, metric)
    note = _DIFFERENCE_NOTES.get(metric) if not np.isnan(value) else _missing_difference_reason(study, metric)
    options: dict[str, Any] = {"slice": first, "versus": second, "known": _CATALOGUE_NAMES.get(metric), "note": note}
    units = _interval_units(metric, study.strata.units)
    how = study.threshold.how if metric in ("sensitivity_global", "specificity_global") else None
    options["tested"] = metric not in _DIFFERENCE_NOTES
    return make.of(metric, study.strata.pair, value, drawn, units=units, how=how, **options)


def _missing_difference_reason(study: StratifiedFinding, metric: str) -> str:
    """Why there is no difference."""
    for name in COMPARED[study.strata.by]:
        finding, note = study.cells[name].stratum.finding, study.cells[name].stratum.note
        known = _CATALOGUE_NAMES.get(metric, metric)
        reason = undefined(known, finding.y, finding.weight) or undefined("auroc", finding.y, finding.weight)
        if finding.counts.n == 0 and note:
            return f"{metric} cannot be compared: {note}"
        if reason:
            return f"{metric} cannot be compared: {reason.partition(': ')[2]} of {name}"
    return f"{metric} cannot be compared: it is undefined in a stratum"
