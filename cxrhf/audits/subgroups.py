"""PREDICTION -> RESULT: AUROC, TPR, FPR and Youden's J by sex, race, age, view and their pairs, at one threshold.

The threshold is the one in use if it is given. Otherwise it has an FPR of 0.20 over the validation split or, without
one, over all evaluated images; it is then set again in every resample. Every metric is reported twice: as observed, and
(`_balanced`) in a population in which every group has the same weight, prevalence and, within each label, ages
(metrics/balancing.py; the weights, and a threshold that was set here, are computed again in every resample). Groups by
age, and tables without ages, are balanced for prevalence only, which changes the threshold but no AUROC. Sex is not
balanced.

If the table has races, every other grouping is also evaluated in the population in which the races have the same
weight, prevalence of the finding and ages, at the one threshold of that population (`_balanced_by_race`). If it also
has labels of No Finding and Pleural Effusion, these two are evaluated in ENCODING's population for all groups
(`_balanced_by_race_and_disease`): one for both findings, of the images with both labels, in which the races have the
same weight, the same shares of its three disease groups and, within each of them, the same ages. In both populations,
groups keep their own prevalence and ages, and gaps have intervals only.

Precision, NPV, average precision and calibration depend on prevalence. They are reported once, as observed, for the
groups of one attribute, from resamples in which the prevalence varies. They have no gaps.

A gap is the highest group minus the lowest. The pair is selected because it is far apart, so its interval and p value
are corrected for all pairs it was selected from. Gaps in AUROC, TPR and FPR between groups of one attribute are tested;
J and crossed groups have intervals only. A group with fewer than 10 patients with, or without, the finding is shown but
excluded from gaps and from the balanced population. A group that has less than half of the population's ages is also
excluded from the latter. A gap that remains after balancing is not yet a bias.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cxrhf.audits.rows import (
    INTERVAL_SOURCE,
    MACRO,
    AuditPart,
    IntervalSource,
    Row,
    RowMaker,
    macro_counts,
    small_p_value,
)
from cxrhf.audits.sample import DISEASES, Counts, Finding, Groups, Sample, bins_of, disease_of, groupings, missing
from cxrhf.metrics.balancing import AGE_BINS, DISEASE_GROUPS, Balancing, balancing_weights
from cxrhf.metrics.calibration import NO_INTERVAL, expected_ece
from cxrhf.metrics.checks import Floats, undefined
from cxrhf.metrics.estimates import FEW, mean_over
from cxrhf.metrics.grouped import (
    Grouped,
    Grouping,
    GroupNumbers,
    Integers,
    PrevalenceNumbers,
    RankedFindings,
    drawn_groups,
    drawn_prevalence,
    drawn_starts,
    rank_findings,
    sample_groups,
    sample_prevalence,
    sample_starts,
    threshold_of,
)
from cxrhf.metrics.intervals import UnitCount, capped, count_units, difference_interval
from cxrhf.metrics.operating import threshold_at_fpr

FPR = 0.2
# Share of the population's ages that a group must have to be balanced.
COVERED = 0.5
TESTED = frozenset({"auroc", "tpr", "fpr"})
NOTHING_TESTED = frozenset[str]()
# The classes that are balanced: of a finding, and of the disease groups.
LABELS = ("without the finding", "with the finding")
DISEASED = tuple(f"with {name}" for name in DISEASE_GROUPS)
BY_RACE, BY_RACE_AND_DISEASE = "_balanced_by_race", "_balanced_by_race_and_disease"
NO_RACES = "not balanced by race: no two races can be balanced"
GIVEN_THRESHOLD = "threshold given"
FROM_VALIDATION = f"threshold at FPR {FPR} of the validation split"


class _GroupedFinding(NamedTuple):
    """The groups of one finding, as they are and balanced, with the weights that balance them."""

    as_is: Members
    balanced: Members
    balancing: Balancing


class _Races(NamedTuple):
    """A population in which the races are balanced: its suffix and method, how it is made, and the weights of each
    finding's rows, for the findings (by place) that are evaluated in it."""

    suffix: str
    weighting: str
    grouping: Grouping
    studied: Mapping[int, _GroupedFinding]


class _Work(NamedTuple):
    """What all groupings share: findings by score, where their called rows begin, and how the threshold came about."""

    make: RowMaker
    findings: Sequence[Finding]
    ranked: RankedFindings
    starts: Integers
    drawn_starts: Integers
    prevalence_starts: Integers  # of draws that let the prevalence vary
    how: Sequence[str]
    tick: Callable[[int], None]

    def measured(self, grouping: Grouping) -> tuple[Grouped, Grouped]:
        """The numbers of the sample and of the replicates."""
        sample = self.make.sample
        drawn = drawn_groups(self.ranked, grouping, self.drawn_starts, sample.draws, sample.workers, self.tick)
        return sample_groups(self.ranked, grouping, self.starts), drawn

    def prevalence_rows(self, groups: Groups, members: Sequence[Members]) -> list[Row]:
        """What depends on the prevalence: precision, NPV, average precision, calibration."""
        sample, grouping = self.make.sample, Grouping(groups.group, len(groups.slices))
        kinds = np.array([each.is_probability for each in self.findings])
        point = sample_prevalence(self.ranked, grouping, self.starts, kinds)
        starts = self.prevalence_starts
        drawn = drawn_prevalence(self.ranked, grouping, starts, kinds, sample.draws, sample.workers, self.tick)
        return prevalence_rows(self.make, groups, members, self.how, point, drawn)


def subgroups(sample: Sample) -> AuditPart:
    """All groups of one model."""
    said: list[str] = []
    found = groupings(sample.data, said)
    if absent := missing(sample.data):
        flags = ", ".join(f"--{name} COLUMN" for name in absent)
        said.append(f"no groups by {', '.join(absent)}: the table has no such column (name it with {flags})")
    rows: list[Row] = []
    if found:
        bins = bins_of(sample.data)
        if bins is None:
            said.append(
                "groups are balanced for prevalence only, because there are no ages (name the column with --age COLUMN)"
            )
        elif unknown := int((bins < 0).sum()):
            said.append(f"{unknown:,} images without an age are excluded from age balancing")
        sample.progress(f"{sample.model}: subgroups, {len(found)} groupings, {sample.draws.n_resamples:,} resamples")
        rounds = len(found) + sum(not groups.crossed for groups in found)
        work = _work(sample, rounds, said)
        rows += _everybody_rows(work)
        races = next((_races(work, groups, bins, said) for groups in found if groups.name == "race"), [])
        for groups in found:
            rows += _group_rows(work, groups, None if groups.by_age else bins, races, said)
    return AuditPart(rows, [], [f"{sample.model}: {each}" for each in said])


def _work(sample: Sample, rounds: int, said: list[str]) -> _Work:
    """All findings by score, with the thresholds that were given, or else those of the validation split, if any."""
    data, findings, given = sample.data, sample.findings(), sample.settings.thresholds()
    if unknown := sorted(set(given) - {"", *data.findings}):
        said.append(f"a threshold is given for {', '.join(unknown)}, but the table has no such finding")
    thresholds, how = [], []
    for finding in findings:
        if finding.name in given or "" in given:
            thresholds.append(given.get(finding.name, given.get("", np.nan)))
            how.append(GIVEN_THRESHOLD)
            continue
        tuning = sample.tuning_like(finding)
        at = np.nan if tuning is None else threshold_at_fpr(tuning.y, tuning.p, FPR, tuning.weight)
        if tuning is not None and np.isnan(at):
            why = "no negatives in the validation split, so the threshold is set on the evaluated images"
            said.append(f"{finding.name}: {why}")
        thresholds.append(at)
        how.append(f"threshold at FPR {FPR}, set in each resample" if np.isnan(at) else FROM_VALIDATION)
    weight = None if data.weight is None else np.nan_to_num(data.weight, nan=1.0)
    ranked = rank_findings(data.y, data.p, weight, sample.draws.unit, threshold=thresholds, fpr=FPR)
    tick = sample.ticking(f"{sample.model}: subgroups, resamples", rounds + 3)
    return _Work(
        RowMaker("subgroups", sample),
        findings,
        ranked,
        sample_starts(ranked),
        drawn_starts(ranked, sample.draws, sample.workers, tick),
        drawn_starts(ranked, sample.draws, sample.workers, tick, conditional=False),
        how,
        tick,
    )


def _everybody_rows(work: _Work) -> list[Row]:
    """The threshold of each finding, and the rates of everybody there."""
    n, k = len(work.make.sample.data.patients), len(work.findings)
    point, drawn = work.measured(Grouping(np.zeros(n, dtype=np.int64), 1))
    groups = Groups("all", ("all",), np.zeros(n, dtype=np.int64))
    members = [Members(f, [f], [f.counts.units], np.ones(1, dtype=np.bool_), [None]) for f in work.findings]
    version = Version(
        groups, "", None, NUMBERS[1:], members, work.how, [NOTHING_TESTED] * k, point.original, drawn.original
    )
    rows = [
        _threshold(
            work,
            k,
            "threshold" if work.how[k] == GIVEN_THRESHOLD else "threshold_at_fpr",
            "all",
            threshold_of(work.ranked, k, int(start)),
        )
        for k, start in enumerate(work.starts)
    ]
    return rows + [_without_fpr_interval(work, row) for row in version_rows(work.make, version)]


def _without_fpr_interval(work: _Work, row: Row) -> Row:
    """The FPR of everybody, where the threshold is set on everybody, says nothing: resamples meet it too."""
    asked = [
        at < 0
        for at, each in zip(work.ranked.fixed, work.findings, strict=True)
        if row["finding"] in (each.name, MACRO)
    ]
    if row["metric"] != "fpr" or not any(asked) or np.isnan(row["value"]):
        return row
    note = f"as near to {FPR} as the scores allow; no interval"
    row = {name: value for name, value in row.items() if name != INTERVAL_SOURCE}
    return row | {
        "ci_low": None,
        "ci_high": None,
        "method": f"{work.make.sample.weighting}; {row['method'].rpartition('; ')[2]}",
        "note": f"{row['note']}; {note}" if row["finding"] == MACRO else note,
    }


def _races(work: _Work, groups: Groups, bins: Integers | None, said: list[str]) -> list[_Races]:
    """The populations in which two races or more can be balanced: for each finding by itself, and ENCODING's."""
    everything = range(len(work.findings))
    found = [_balanced_races(work, groups, bins, BY_RACE, "prevalence", everything)]
    disease = disease_of(work.make.sample.data)
    if disease is not None:
        both = [k for k in everything if work.findings[k].name in DISEASES]
        joint = _balanced_races(work, groups, bins, BY_RACE_AND_DISEASE, "disease groups", both, disease)
        found.append(joint)
        what = f"balanced by race over {', '.join(DISEASE_GROUPS)}"
        if unlabelled := int(np.isnan(disease).sum()):
            said.append(f"{what}: {unlabelled:,} images without labels of both findings are excluded")
        notes = zip(groups.slices, joint.studied[both[0]].balanced.notes, strict=True)
        said += [f"{what}: {name}: {note}" for name, note in notes if note]
    return [each for each in found if each.grouping.part is not None and each.grouping.part.any()]


def _balanced_races(
    work: _Work,
    groups: Groups,
    bins: Integers | None,
    suffix: str,
    what: str,
    findings: Sequence[int],
    disease: Floats | None = None,
) -> _Races:
    studied = {k: _group_finding(work.findings[k], groups, bins, disease) for k in findings}
    part = np.zeros((len(work.findings), len(groups.slices)), dtype=np.bool_)
    for k, each in studied.items():
        part[k] = each.balanced.able
    grouping = Grouping(groups.group, len(groups.slices), bins, _bins(bins), part, disease)
    return _Races(suffix, _weighting(work, f"races balanced for {what}", bins), grouping, studied)


def _group_rows(
    work: _Work, groups: Groups, bins: Integers | None, races: Sequence[_Races], said: list[str]
) -> list[Row]:
    """One grouping as it is, balanced, and in the populations balanced by race."""
    studied = [_group_finding(finding, groups, bins) for finding in work.findings]
    part = np.stack([each.balanced.able for each in studied])
    if groups.name == "race":  # balanced by race for each finding is what `_balanced` is
        races = [each for each in races if each.suffix != BY_RACE]
    within = tuple(each.grouping for each in races)
    point, drawn = work.measured(Grouping(groups.group, len(groups.slices), bins, _bins(bins), part, within=within))
    tested = [NOTHING_TESTED if groups.crossed else TESTED] * len(studied)
    members = [each.as_is for each in studied]
    as_is = Version(groups, "", None, NUMBERS, members, work.how, tested, point.original, drawn.original)
    rows = version_rows(work.make, as_is)
    rows += [] if groups.crossed else work.prevalence_rows(groups, members)
    if point.balanced is not None and drawn.balanced is not None:
        # Balanced for prevalence only, a group ranks as before, and with a fixed threshold nothing changes: one test.
        changed = [
            TESTED if bins is not None else NOTHING_TESTED if at >= 0 else TESTED - {"auroc"}
            for at in work.ranked.fixed
        ]
        tested = [each & own for each, own in zip(tested, changed, strict=True)]
        weighting = _weighting(work, "balanced for prevalence", bins)
        balanced = as_is._replace(
            suffix="_balanced",
            weighting=weighting,
            members=[each.balanced for each in studied],
            tested=tested,
            point=point.balanced,
            drawn=drawn.balanced,
        )
        rows += version_rows(work.make, balanced)
    for race, numbers, replicates in zip(races, point.within, drawn.within, strict=True):
        own = list(race.studied)
        rows += version_rows(
            work.make,
            Version(
                groups,
                race.suffix,
                race.weighting,
                NUMBERS,
                [_race_balanced_members(work.findings[k], groups, race.studied[k]) for k in own]
                if groups.name != "race"
                else [race.studied[k].balanced for k in own],
                [work.how[k] for k in own],
                [NOTHING_TESTED] * len(own),
                GroupNumbers(*(each[own] for each in numbers)),
                GroupNumbers(*(each[:, own] for each in replicates)),
            ),
            mean=race.suffix == BY_RACE,
        )
        if groups.name == "race":
            rows += _balanced_thresholds(work, groups, race.studied, race.suffix)
    rows += _balanced_thresholds(work, groups, dict(enumerate(studied)), "_balanced")
    said += _doubts(groups, studied)
    return rows


def _balanced_thresholds(work: _Work, groups: Groups, studied: Mapping[int, _GroupedFinding], suffix: str) -> list[Row]:
    """The threshold of a balanced population, where it is set there."""
    return [
        _threshold(
            work,
            k,
            f"threshold_at_fpr{suffix}",
            groups.name,
            threshold_at_fpr(each.as_is.finding.y, each.as_is.finding.p, FPR, each.balancing.weight),
        )
        for k, each in studied.items()
        if work.ranked.fixed[k] < 0 and each.balanced.able.any()
    ]


def _weighting(work: _Work, what: str, bins: Integers | None) -> str:
    what += " only" if bins is None else " and age"
    return what if work.make.sample.data.weight is None else f"{what}, weight column"


def _race_balanced_members(finding: Finding, groups: Groups, race: _GroupedFinding) -> Members:
    """Who of a finding is in which group of a population balanced by race."""
    code, weight = groups.group[finding.at], race.balancing.weight
    parts, units, notes = [], [], []
    for g in range(len(groups.slices)):
        inside = (code == g) & (weight > 0)
        parts.append(finding.only(inside))
        units.append(count_units(finding.y[inside], finding.patients[inside], weight[inside]))
        few = _few(finding.y[inside], finding.patients[inside])
        notes.append(f"{few}: not in gaps" if few and race.balanced.able.any() else few and NO_RACES)
    return Members(finding, parts, units, np.array([note is None for note in notes]), notes)


def _threshold(work: _Work, k: int, metric: str, where: str, value: float) -> Row:
    row = work.make.of(metric, work.findings[k], value, known="fpr", slice=where, how=work.how[k])
    return row | {"higher_is_better": None}


def _group_finding(
    finding: Finding, groups: Groups, bins: Integers | None, disease: Floats | None = None
) -> _GroupedFinding:
    """Who of a finding is in which group, and what the groups weigh when they are balanced for the finding's label, or
    for the `disease` group of each image."""
    code, n_groups = groups.group[finding.at], len(groups.slices)
    parts = [finding.only(code == g) for g in range(n_groups)]
    few = [_few(part.y, part.patients) for part in parts]
    able = np.array([each is None for each in few])
    outside = [None if each is None else f"{each}: not in gaps" for each in few]
    as_is = Members(finding, parts, [part.counts.units for part in parts], able, outside)

    own = np.zeros(len(code), dtype=np.int64) if bins is None else bins[finding.at]
    label, classes = (finding.y, LABELS) if disease is None else (disease[finding.at], DISEASED)
    if (own < 0).any() or disease is not None:
        there = [(code == g) & (own >= 0) & ~np.isnan(label) for g in range(n_groups)]
        parts = [finding.only(inside) for inside in there]
        few = [_few(label[inside], finding.patients[inside], classes) for inside in there]
    notes = [None if each is None else f"not balanced: {each}" for each in few]
    part = np.array([each is None for each in few])

    def balanced() -> Balancing:
        inside = np.where((code >= 0) & part[code], code, -1)
        options = {"n_groups": n_groups, "n_bins": _bins(bins), "n_classes": len(classes)}
        return balancing_weights(label, inside, own, finding.weight, **options)

    balancing = balanced()
    share = balancing.share.min(axis=1)
    for g in np.flatnonzero(part & (share < COVERED)).tolist():
        part[g], notes[g] = False, f"not balanced: this group has {share[g]:.0%} of the population's ages"
    if part.sum() == 1:
        notes[int(np.argmax(part))] = "not balanced: no other group can be balanced"
        part[:] = False
    balancing = balanced()
    units = []
    for g in range(n_groups):
        inside = (code == g) & (balancing.weight > 0)
        units.append(count_units(finding.y[inside], finding.patients[inside], balancing.weight[inside]))
        notes[g] = _lacking(balancing, g, classes) if part[g] else notes[g]
    return _GroupedFinding(as_is, Members(finding, parts, units, part, notes), balancing)


def _bins(bins: Integers | None) -> int:
    return 1 if bins is None else len(AGE_BINS)


def _few(label: Floats, patients: Integers, classes: Sequence[str] = LABELS) -> str | None:
    """What makes a group too small, if anything."""
    counts = [int((np.bincount(patients[label == k]) > 0).sum()) for k in range(len(classes))]
    if min(counts) >= FEW:
        return None
    return f"too few patients ({', '.join(f'{n:,} {name}' for n, name in zip(counts, classes, strict=True))})"


def _lacking(balancing: Balancing, group: int, classes: Sequence[str]) -> str | None:
    """Ages that a balanced group does not have."""
    said = []
    for k, name in enumerate(classes):
        empty = ~balancing.covered[group, k] & (balancing.target[k] > 0)
        if empty.any():
            ages = ", ".join(AGE_BINS[a] for a in np.flatnonzero(empty))
            said.append(f"ages {ages} {name} ({balancing.target[k][empty].sum():.1%} of the target)")
    return f"no patients of {' nor '.join(said)}: its other ages weigh more" if said else None


def _doubts(groups: Groups, studied: Sequence[_GroupedFinding]) -> list[str]:
    """What could not be compared or balanced, once for a grouping."""
    if groups.crossed:
        return []
    alone = [each.as_is.finding.name for each in studied if each.as_is.able.sum() < 2]
    apart = [each.as_is.finding.name for each in studied if each.as_is.able.sum() > 1 > each.balanced.able.sum()]
    said = []
    if alone:
        said.append(
            f"{groups.name}: no gaps for {', '.join(alone)}: fewer than two groups have {FEW} patients with and {FEW} "
            "without the finding"
        )
    if apart:
        said.append(f"{groups.name}: not balanced for {', '.join(apart)}: too few patients with an age in common")
    lacking = sum(any(note for note, ok in zip(s.balanced.notes, s.balanced.able, strict=True) if ok) for s in studied)
    if lacking:
        said.append(
            f"{groups.name}: in {lacking} of {len(studied)} findings, a group has no patients of some ages and is "
            "balanced over its other ages (see the notes of its rows)"
        )
    return said


# Metrics of groups with their replicates -> RESULT rows: each group, the gap between highest and lowest, the means.
#
# Metrics that depend on prevalence have rows of groups only. Their gaps would be gaps in prevalence, and a
# calibration error grows as a group shrinks. For the same reason that error has no interval; the mean label minus the
# mean probability has one.

NUMBERS = ("auroc", "tpr", "fpr", "j")
ERROR, DIFFERENCE, CHANCE = "expected_calibration_error", "observed_minus_predicted", "expected_ece"
AT_THRESHOLD = ("precision", "npv")
_PROBABILITY = (ERROR, DIFFERENCE)
_NOTES = {
    "average_precision": "chance level is the prevalence: do not compare between groups without it",
    ERROR: f"above 0 even for a calibrated model, more so in few rows; compare with {CHANCE}; {NO_INTERVAL}",
}
_BOUNDS = {"j": (-2.0, 2.0)}
# Resamples that must lie beyond each end of a percentile interval; with fewer the spread is used.
_TAIL = 5


class Members(NamedTuple):
    """The groups of one finding: their rows, the patients behind intervals, who takes part in gaps, what to say."""

    finding: Finding
    parts: Sequence[Finding]
    units: Sequence[UnitCount]
    able: NDArray[np.bool_]
    notes: Sequence[str | None]


class Version(NamedTuple):
    """A grouping as it is (suffix "") or balanced: members, thresholds (`how`) and tested gaps finding by finding."""

    groups: Groups
    suffix: str
    weighting: str | None
    numbers: Sequence[str]
    members: Sequence[Members]
    how: Sequence[str]
    tested: Sequence[frozenset[str]]
    point: GroupNumbers
    drawn: GroupNumbers


class _Line(NamedTuple):
    """A finding or the mean of several: values (groups,) and replicates (n_resamples, groups) of each number."""

    finding: str
    units: Sequence[UnitCount]
    able: NDArray[np.bool_]
    how: str
    tested: frozenset[str]
    values: dict[str, Floats]
    drawn: dict[str, Floats]
    parts: Sequence[Sequence[Finding]]  # for each group


def version_rows(make: RowMaker, version: Version, *, mean: bool = True) -> list[Row]:
    """All rows of one version of a grouping, with the `mean` over its findings unless that is of no interest."""
    rows: list[Row] = []
    for k, members in enumerate(version.members):
        line = _finding_line(version, k)
        for g, part in enumerate(members.parts):
            if version.suffix and version.groups.crossed and not members.able[g]:
                continue
            for name in version.numbers:
                value = float(line.values[name][g])
                note = members.notes[g] if np.isfinite(value) or version.suffix else None
                rows.append(
                    make.of(
                        name + version.suffix,
                        part,
                        value,
                        line.drawn[name][:, g],
                        known=name,
                        weighting=version.weighting,
                        units=members.units[g],
                        slice=version.groups.slices[g],
                        how=None if name == "auroc" else line.how,
                        note=note,
                    )
                )
        rows += _gap_rows(make, version, line)
    rows += _macro_rows(make, version) if mean else []
    if version.groups.crossed:  # too many to be kept for the comparison of models
        for row in rows:
            row.pop(INTERVAL_SOURCE, None)
    return rows


def prevalence_rows(
    make: RowMaker,
    groups: Groups,
    members: Sequence[Members],
    how: Sequence[str],
    point: PrevalenceNumbers,
    drawn: PrevalenceNumbers,
) -> list[Row]:
    """Prevalence, average precision, precision, NPV and calibration of every group."""
    rows = []
    for k, each in enumerate(members):
        names = [name for name in point._fields if each.finding.is_probability or name not in _PROBABILITY]
        for g, part in enumerate(each.parts):
            for name in names:
                value, replicates = float(getattr(point, name)[k, g]), getattr(drawn, name)[:, k, g]
                row = _prevalence_row(make, name, part, value, replicates, each.units[g], groups.slices[g], how[k])
                if row.get(INTERVAL_SOURCE) is not None:
                    del row[INTERVAL_SOURCE]  # no audit compares models by them
                rows.append(row)
            if each.finding.is_probability and part.counts.n:
                chance = expected_ece(part.p, part.weight, seed=make.sample.settings.seed)
                by = "200 simulations of y ~ Bernoulli(p)"
                rows.append(make.of(CHANCE, part, chance, slice=groups.slices[g], how=by))
    return rows


def _prevalence_row(
    make: RowMaker, name: str, part: Finding, value: float, replicates: Floats, units: UnitCount, where: str, how: str
) -> Row:
    note = _NOTES.get(name) if np.isfinite(value) else None
    if np.isnan(value) and name in AT_THRESHOLD and undefined("prevalence", part.y, part.weight) is None:
        note = (
            f"{name} is undefined: no image of this group is predicted "
            f"{'positive' if name == 'precision' else 'negative'}"
        )
    at = name in AT_THRESHOLD
    return make.of(
        name,
        part,
        value,
        None if name == ERROR else replicates,
        units=capped(units) if at else units,
        slice=where,
        how=how if at else None,
        note=note,
    )


def _finding_line(version: Version, k: int) -> _Line:
    members = version.members[k]
    return _Line(
        members.finding.name,
        members.units,
        members.able,
        version.how[k],
        version.tested[k],
        {name: getattr(version.point, name)[k] for name in NUMBERS},
        {name: getattr(version.drawn, name)[:, k] for name in NUMBERS},
        [[part] for part in members.parts],
    )


def _gap_rows(make: RowMaker, version: Version, line: _Line, note: str | None = None) -> list[Row]:
    """Highest minus lowest group of each number; none where fewer than two groups take part."""
    rows: list[Row] = []
    counted: dict[tuple[int, int], Counts] = {}
    for name in version.numbers:
        values = line.values[name]
        able = np.flatnonzero(line.able & np.isfinite(values))
        if len(able) < 2:
            continue
        high = int(able[np.argmax(values[able])])
        low = int(able[::-1][np.argmin(values[able][::-1])])  # from behind: equal groups still make a pair of two
        pair = (min(high, low), max(high, low))
        if pair not in counted:
            counted[pair] = macro_counts(make.sample, [*line.parts[high], *line.parts[low]])
        units = UnitCount._make(map(min, line.units[high], line.units[low]))
        row = make.row(
            name + version.suffix,
            line.finding,
            counted[pair],
            float(values[high] - values[low]),
            known=name,
            weighting=version.weighting,
            slice=version.groups.slices[high],
            versus=version.groups.slices[low],
            how=None if name == "auroc" else line.how,
            note=note,
        )
        replicates = line.drawn[name][:, high] - line.drawn[name][:, low]
        pairs = len(able) * (len(able) - 1) // 2
        _set_picked_interval(make, row, name, replicates, units, pairs, name in line.tested)
        if make.sample.keep:
            row[INTERVAL_SOURCE] = IntervalSource(replicates, counted[pair], units, name, version.weighting, pairs)
        rows.append(row)
    return rows


def _set_picked_interval(
    make: RowMaker, row: Row, name: str, replicates: Floats, units: UnitCount, pairs: int, tested: bool
) -> None:
    """Interval and p value of the pair that was picked out of several: Bonferroni over all of them."""
    level = make.sample.settings.level
    each = 1 - (1 - level) / pairs
    found = difference_interval(
        row["value"],
        replicates,
        level=each,
        method="t" if (1 - each) / 2 * len(replicates) < _TAIL else "auto",
        units=units,
        bounds=_BOUNDS.get(name, (-1.0, 1.0)),
        metric=name,
    )
    row["ci_low"], row["ci_high"] = found.low, found.high
    if tested:
        row["p_value"] = float(np.minimum(1.0, small_p_value(found, row["value"], replicates, units) * pairs))
    picked = f", largest of {pairs} pairs (Bonferroni)" if pairs > 1 else ""
    row["method"] += f"; {level:.4g} {found.method}, patients resampled{picked}"
    if found.n_undefined:
        lost = f"{found.n_undefined} of {len(replicates)} resamples lack a class"
        row["note"] = f"{row['note']}; {lost}" if row["note"] else lost


def _macro_rows(make: RowMaker, version: Version) -> list[Row]:
    """Means over findings: the same findings for all groups, or a gap would be one between findings.

    A group that cannot take part in half of the findings has no mean.
    """
    groups, members = version.groups, version.members
    defined = np.all([np.isfinite(getattr(version.point, name)) for name in NUMBERS], axis=0)
    usable = np.stack([each.able for each in members]) & defined
    some = usable.any(axis=1)
    chosen = usable[some].mean(axis=0) >= 0.5 if some.any() else np.zeros(len(groups.slices), dtype=np.bool_)
    common: list[int] = np.flatnonzero(usable[:, chosen].all(axis=1)).tolist() if chosen.any() else []
    if not common:
        chosen = np.zeros(len(groups.slices), dtype=np.bool_)
    note = f"mean of {len(common)} of {len(members)} findings"
    values: dict[str, Floats] = {name: np.full(len(chosen), np.nan) for name in NUMBERS}
    drawn: dict[str, Floats] = {name: np.full(getattr(version.drawn, name)[:, 0].shape, np.nan) for name in NUMBERS}
    units: list[UnitCount] = []
    parts: list[list[Finding]] = []
    hows = {version.how[k] for k in common}
    how = hows.pop() if len(hows) == 1 else "thresholds of each finding"
    rows: list[Row] = []
    for g, label in enumerate(groups.slices):
        parts.append([each.parts[g] for k, each in enumerate(members) if not chosen[g] or k in common])
        units.append(members[0].units[g])
        if not chosen[g] and groups.crossed:
            continue
        counts = macro_counts(make.sample, parts[g])
        for name in version.numbers:
            own = note if chosen[g] else "too few patients in more than half of the findings: no mean"
            options: dict[str, Any] = {"known": name, "weighting": version.weighting, "slice": label, "note": own}
            if not chosen[g]:
                rows.append(make.row(name + version.suffix, MACRO, counts, np.nan, **options))
                continue
            mean = mean_over(
                [getattr(version.drawn, name)[:, k, g] for k in common], [members[k].units[g] for k in common]
            )
            units[g] = mean.units
            values[name][g] = getattr(version.point, name)[common, g].mean()
            drawn[name][:, g] = mean.replicates
            rows.append(
                make.row(
                    name + version.suffix,
                    MACRO,
                    counts,
                    float(values[name][g]),
                    mean.replicates,
                    units=mean.units,
                    how=None if name == "auroc" else how,
                    **options,
                )
            )
    # The mean of one finding is that finding: no second test.
    tested = frozenset[str]().union(*(version.tested[k] for k in common)) if len(members) > 1 else frozenset[str]()
    line = _Line(MACRO, units, chosen, how, tested, values, drawn, parts)
    return rows + _gap_rows(make, version, line, note)
