"""Metrics of groups with their replicates -> RESULT rows: each group, the gap between highest and lowest, the means.

Metrics that depend on prevalence have rows of groups only. Their gaps would be gaps in prevalence, and a calibration
error grows as a group shrinks. For the same reason that error has no interval; the mean label minus the mean
probability has one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cxrhf.audits.groupings import Groups
from cxrhf.audits.rows import KEPT, MACRO, Kept, Row, RowMaker, beyond_resamples, everything
from cxrhf.audits.sample import Counts, Finding
from cxrhf.metrics.calibration import NO_INTERVAL, expected_ece
from cxrhf.metrics.checks import Floats, undefined
from cxrhf.metrics.estimates import mean_over
from cxrhf.metrics.grouped import GroupNumbers, PrevalenceNumbers
from cxrhf.metrics.intervals import UnitCount, capped, difference_interval

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
        line = _of_finding(version, k)
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
            row.pop(KEPT, None)
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
                if row.get(KEPT) is not None:
                    del row[KEPT]  # no audit compares models by them
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


def _of_finding(version: Version, k: int) -> _Line:
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
            counted[pair] = everything(make.sample, [*line.parts[high], *line.parts[low]])
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
        _picked(make, row, name, replicates, units, pairs, name in line.tested)
        if make.sample.keep:
            row[KEPT] = Kept(replicates, counted[pair], units, name, version.weighting, pairs)
        rows.append(row)
    return rows


def _picked(
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
        row["p_value"] = float(np.minimum(1.0, beyond_resamples(found, row["value"], replicates, units) * pairs))
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
        counts = everything(make.sample, parts[g])
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
