"""Rows of a finding -> strata of what was known before the image, and the numbers of each, with replicates.

By pre-test probability: the lowest quarter, the middle half and the highest quarter by mid-rank, each finding by its
own; equal values stay together, so the shares reached may differ. By mention: whether an earlier note names the
finding; images of patients without any earlier note are in neither group.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from cxrhf.audits.rates import AT, SPECIFICITY
from cxrhf.audits.sample import Finding, Floats, Sample
from cxrhf.metrics.calibration import adaptive_calibration_error, brier_skill_score, expected_ace
from cxrhf.metrics.grouped import Grouping, drawn_groups, drawn_starts, rank_findings
from cxrhf.metrics.intervals import UnitCount
from cxrhf.metrics.operating import OperatingPoint, rates_at, sensitivity_at_specificity, threshold_at_fpr
from cxrhf.metrics.ranking import auroc
from cxrhf.metrics.resample import bootstrap_many
from cxrhf.metrics.weighting import quantile_groups

LOCAL = AT  # its threshold is set inside the stratum
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
        parts[key] = Stratum(key, finding.only(mask), share, _said(by, name, share, wanted, int(mask.sum())))
    one, two = (inside[key] for key in COMPARED[by])
    return Strata(by, finding, parts, finding.only(one | two), int((~there).sum()))


def _said(by: str, name: str, share: float, wanted: float | None, n: int) -> str | None:
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


class Common(NamedTuple):
    """The one threshold for all groups of a finding; `fixed` when it comes from other rows."""

    value: float
    fixed: bool
    how: str


def common_threshold(sample: Sample, finding: Finding, fpr: float) -> Common:
    """The lowest threshold with at most this false positive rate: in the validation split, else among all rows."""
    tuning = sample.tuning_like(finding)
    if tuning is not None:
        value = threshold_at_fpr(tuning.y, tuning.p, fpr, tuning.weight, "conservative")
        if not np.isnan(value):
            return Common(value, True, f"one threshold for all, {value:.6g}, from {len(tuning.y):,} validation rows")
    value = threshold_at_fpr(finding.y, finding.p, fpr, finding.weight, "conservative")
    return Common(value, False, f"one threshold for all, {value:.6g}, set on all rows and reset in every resample")


class Cell(NamedTuple):
    """The numbers of one finding in one stratum, with their replicates where they have any."""

    stratum: Stratum
    point: OperatingPoint
    values: dict[str, float]
    drawn: dict[str, Floats]


class Study(NamedTuple):
    """One finding divided one way."""

    strata: Strata
    threshold: Common
    cells: dict[str, Cell]


def studies_of(sample: Sample, finding: Finding, ways: Sequence[Strata], tick: Callable[[int], None]) -> list[Study]:
    """All numbers of one finding, divided each way."""
    threshold = common_threshold(sample, finding, 1 - SPECIFICITY)
    drawn = _replicates(sample, finding, ways, threshold, tick)
    return [
        Study(way, threshold, {name: _cell(sample, part, threshold, drawn[name]) for name, part in way.parts.items()})
        for way in ways
    ]


def _cell(sample: Sample, stratum: Stratum, threshold: Common, drawn: dict[str, Floats]) -> Cell:
    finding = stratum.finding
    y, p, weight = finding.y, finding.p, finding.weight
    point = sensitivity_at_specificity(y, p, SPECIFICITY, weight)
    values = {
        "share": stratum.share,
        "auroc": auroc(y, p, weight),
        LOCAL: point.sensitivity,
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
    sample: Sample, finding: Finding, ways: Sequence[Strata], threshold: Common, tick: Callable[[int], None]
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
    asked: dict[str, dict[str, float]] = {LOCAL: {"specificity": SPECIFICITY}, "prevalence": {}}
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
