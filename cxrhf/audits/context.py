"""PREDICTION -> RESULT: how well a model does for patients whose chart promised little, and for those it promised much.

Within strata of pre-test probability and of mention in earlier notes (strata.py), each with its interval: AUROC;
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

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from cxrhf.audits.rates import ENOUGH_NEGATIVES, SPECIFICITY, directed
from cxrhf.audits.rows import MACRO, Part, Row, RowMaker, everything
from cxrhf.audits.sample import Counts, Finding, Floats, Sample
from cxrhf.audits.strata import (
    COMPARED,
    ERROR,
    GROUPS,
    LOCAL,
    Cell,
    Study,
    divide,
    strata_notes,
    studies_of,
)
from cxrhf.metrics.checks import undefined
from cxrhf.metrics.estimates import ROUNDING, in_mean, mean_note, mean_over, settled
from cxrhf.metrics.intervals import UnitCount, capped
from cxrhf.metrics.operating import sensitivity_at_specificity

RANKING = ("auroc", LOCAL, "sensitivity_global", "specificity_global", "prevalence")
PROBABILITY = (ERROR, "expected_ace", "brier_skill_score")
DIFFERENCES = ("auroc", LOCAL, "sensitivity_global", "specificity_global", "brier_skill_score", "ace_excess")
# Where a number's range, direction and the class it rests on are those of another name.
_KNOWN = {"sensitivity_global": "tpr", "specificity_global": "fpr", "ace_excess": ERROR}
_NOTES = {ERROR: "above 0 even for a calibrated model, more so in few rows; compare with expected_ace"}
# A test of these would call every model that ignores the chart significant: shown with intervals, not tested.
_UNEQUAL = "also depends on prevalence, even if the score ignores context; not tested"
_DIFFERENCE_NOTES = {
    "brier_skill_score": f"skill {_UNEQUAL}",
    "ace_excess": f"calibration error minus expected_ace; it {_UNEQUAL}",
}


def context(sample: Sample) -> Part:
    """Numbers within strata of what was known before the image, and their differences."""
    findings = sample.findings()
    divided = {by: [strata for each in findings if (strata := divide(each, by)) is not None] for by in GROUPS}
    notes = [note for by, found in divided.items() for note in strata_notes(sample, by, found)]
    rounds = sum(map(len, divided.values()))
    if not rounds:
        return Part([], [], notes)
    sample.progress(f"{sample.model}: context, {sample.draws.n_resamples:,} resamples of {len(findings)} findings")
    tick = sample.ticking(f"{sample.model}: context", rounds)
    studies: dict[str, list[Study]] = {by: [] for by in GROUPS}
    for finding in findings:
        ways = [each for found in divided.values() for each in found if each.whole is finding]
        if ways:
            for study in studies_of(sample, finding, ways, tick):
                studies[study.strata.by].append(study)
    make = RowMaker("context", sample)
    rows: list[Row] = []
    for by, found in studies.items():
        if found:
            rows += [row for study in found for cell in study.cells.values() for row in _cell_rows(make, study, cell)]
            rows += _macro_rows(make, found)
            rows += [_difference_row(make, study, name) for study in found for name in _compared(study)]
            rows += _macro_differences(make, by, found)
    shown = {study.strata.whole.name for found in studies.values() for study in found}
    if ranked := [each.name for each in findings if each.name in shown and not each.is_probability]:
        notes.append(
            f"{sample.model}: context: {', '.join(ranked)}: scores are not probabilities, so calibration is "
            "not computed"
        )
    return Part(rows, [], notes)


def _how(study: Study, name: str) -> str | None:
    if name == LOCAL:
        return f"threshold set in this stratum for specificity {SPECIFICITY}"
    if name in ("sensitivity_global", "specificity_global"):
        return study.threshold.how
    if name == "expected_ace":
        return "200 simulations of y ~ Bernoulli(p)"
    return "against the stratum's own prevalence" if name == "brier_skill_score" else None


def _behind(name: str, units: UnitCount) -> UnitCount:
    """The patients behind an interval, capped for rates and for calibration errors, whose replicates lie above."""
    return capped(units) if name in _KNOWN else units


def _cell_rows(make: RowMaker, study: Study, cell: Cell) -> list[Row]:
    stratum, finding, point = cell.stratum, cell.stratum.finding, cell.point
    rows: list[Row] = []

    def add(metric: str, value: float, note: str | None = None, **options: Any) -> None:
        if np.isnan(value):
            note = stratum.note if finding.counts.n == 0 else None  # else the row itself knows why
        rows.append(directed(make.of(metric, finding, value, slice=stratum.slice, note=note, **options)))

    for metric in (each for each in ("share", *RANKING, *PROBABILITY) if each in cell.values):
        add(
            metric,
            cell.values[metric],
            stratum.note if metric == "share" else _NOTES.get(metric),
            replicates=cell.drawn.get(metric),
            known=_KNOWN.get(metric),
            units=_behind(metric, finding.counts.units),
            how=_how(study, metric),
        )
    silent = (
        "no threshold reaches the specificity: no image is predicted positive" if np.isinf(point.threshold) else None
    )
    add(f"{LOCAL}.threshold", point.threshold, silent)
    add(f"{LOCAL}.specificity", point.specificity)
    negatives = finding.counts.n - finding.counts.n_pos
    if negatives < ENOUGH_NEGATIVES and not np.isnan(point.sensitivity):
        careful = sensitivity_at_specificity(finding.y, finding.p, SPECIFICITY, finding.weight, "plus_one")
        note = f"{negatives} negatives: counts one more false positive, to keep the specificity on new patients"
        add(f"{LOCAL}.plus_one", careful.sensitivity, note, known=LOCAL, how="rule plus_one")
    return rows


class _Item(NamedTuple):
    """One finding's part in a mean over findings."""

    finding: Finding
    value: float
    drawn: Floats | None
    units: UnitCount


def _macro_rows(make: RowMaker, studies: Sequence[Study]) -> list[Row]:
    """Means over the findings that have the number in the stratum."""
    rows = []
    for name in studies[0].cells:
        known: dict[tuple[str, ...], Counts] = {}
        for metric in ("share", *RANKING, *PROBABILITY):
            items = []
            for cell in (study.cells[name] for study in studies):
                if metric in cell.values:
                    finding = cell.stratum.finding
                    units = _behind(metric, finding.counts.units)
                    items.append(_Item(finding, cell.values[metric], cell.drawn.get(metric), units))
            if items:
                rows.append(directed(_mean(make, metric, items, known, slice=name)))
    return rows


def _macro_differences(make: RowMaker, by: str, studies: Sequence[Study]) -> list[Row]:
    """Means over the findings whose difference is defined; of one finding there is nothing more to test."""
    first, second = COMPARED[by]
    rows = []
    known: dict[tuple[str, ...], Counts] = {}
    for metric in DIFFERENCES:
        items = []
        for study in (study for study in studies if metric in _compared(study)):
            value, drawn = _difference(study, metric)
            items.append(_Item(study.strata.pair, value, drawn, _behind(metric, study.strata.units)))
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
    kept = in_mean(values, [item.units for item in items])
    defined = [items[k] for k in kept]
    behind = [item.finding for item in defined or items]
    key = tuple(finding.name for finding in behind)
    if key not in known:
        known[key] = everything(make.sample, behind)
    options["known"] = _KNOWN.get(metric)
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


def _compared(study: Study) -> list[str]:
    """The numbers whose difference is given: those of probabilities only where there are any."""
    ranked = not study.strata.whole.is_probability
    return [name for name in DIFFERENCES if not (ranked and name in ("brier_skill_score", "ace_excess"))]


def _difference(study: Study, metric: str) -> tuple[float, Floats | None]:
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
        drawn = _widened(one, metric) - _widened(two, metric)
    else:
        drawn = one.drawn[metric] - two.drawn[metric]
    return float(settled(value)), settled(drawn)


def _widened(cell: Cell, metric: str) -> Floats:
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


def _difference_row(make: RowMaker, study: Study, metric: str) -> Row:
    first, second = COMPARED[study.strata.by]
    value, drawn = _difference(study, metric)
    note = _DIFFERENCE_NOTES.get(metric) if not np.isnan(value) else _absent(study, metric)
    options: dict[str, Any] = {"slice": first, "versus": second, "known": _KNOWN.get(metric), "note": note}
    units = _behind(metric, study.strata.units)
    how = study.threshold.how if metric in ("sensitivity_global", "specificity_global") else None
    options["tested"] = metric not in _DIFFERENCE_NOTES
    return make.of(metric, study.strata.pair, value, drawn, units=units, how=how, **options)


def _absent(study: Study, metric: str) -> str:
    """Why there is no difference."""
    for name in COMPARED[study.strata.by]:
        finding, note = study.cells[name].stratum.finding, study.cells[name].stratum.note
        known = _KNOWN.get(metric, metric)
        reason = undefined(known, finding.y, finding.weight) or undefined("auroc", finding.y, finding.weight)
        if finding.counts.n == 0 and note:
            return f"{metric} cannot be compared: {note}"
        if reason:
            return f"{metric} cannot be compared: {reason.partition(': ')[2]} of {name}"
    return f"{metric} cannot be compared: it is undefined in a stratum"
