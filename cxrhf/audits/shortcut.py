"""PREDICTION, ATTRIBUTE -> RESULT, CURVE: does a model rank better in one sex because of what lies in the pictures?

SLICES found that a pneumothorax model leans on chest drains, and that men and women without pneumothorax have drains
unequally often: the gap in AUROC between the sexes went away once drains were equally frequent. Here that question is
asked of every finding and every attribute with values 1 and 0, on the images whose attribute is known: AUROC by sex as
attributes lie (`auroc`), and with weights that give both sexes the same share of the attribute within each class
(`auroc_equalised`, metrics/balancing.py; weights made anew in every resample). Natural less equalised gap is what the
attribute explains. Why the model leans on it is shown by confidence and Brier score by sex, label and attribute.

Without names in `shortcuts`, an attribute is looked at where at least 10 patients of each sex are in each of the four
cells of label and attribute. Named ones are shown in any case; a gap that rests on fewer patients is not tested.

Known gaps. An attribute that explains a gap need not be a shortcut: sicker patients get drains, and are easier to see.
Where neither the shares differ by sex nor scores by attribute, the p value of what is explained is too large (a product
of two things that are 0). Groups are those by sex; two values at most.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cxrhf.audits.compare import run_head, run_rows
from cxrhf.audits.rows import INTERVAL_SOURCE, AuditedSample, AuditPart, Row, RowMaker, to_result_rows
from cxrhf.audits.sample import Finding, Floats, Sample, patients_in
from cxrhf.errors import ConfigError, did_you_mean
from cxrhf.metrics.balancing import cells_of, equalising_scales, equalising_weights
from cxrhf.metrics.estimates import FEW, drop_rounding
from cxrhf.metrics.intervals import UnitCount, count_units
from cxrhf.metrics.subgroup_blocks import CellRows, Tally, cells_auroc, drawn_tallies, rank_cells, sample_tally
from cxrhf.tables.checks import PredictionArrays

Integers = NDArray[np.int64]


class _Sexes(NamedTuple):
    """The two that are compared, as slices name them, and the place of each image's, -1 = neither."""

    names: tuple[str, str]
    code: Integers


def shortcut(sample: Sample) -> AuditPart:
    """All attributes of one model."""
    said: list[str] = []
    marks = _marks(sample, said)
    sexes = _sexes(sample.data, said) if marks else None
    rows, curves = list[Row](), list[Row]()
    if sexes is not None:
        chosen = _choose_marked(sample, marks, sexes, said)
        names = ", ".join(chosen) or "no attribute"
        sample.progress(f"{sample.model}: shortcut ({names}), {sample.draws.n_resamples:,} resamples")
        tick = sample.ticking(f"{sample.model}: shortcut, resamples", len(chosen))
        make = RowMaker("shortcut", sample)
        for several in chosen.values():
            ranked = [_rank_marked(marked, sample) for marked in several]
            tallies = drawn_tallies(ranked, sample.draws, sample.workers, tick)
            for marked, own, drawn in zip(several, ranked, tallies, strict=True):
                rows += shortcut_rows(make, marked, sample_tally(own), drawn)
                curves += confidence_curves(sample.curve_model, marked)
    return AuditPart(rows, curves, [f"{sample.model}: {each}" for each in said])


def _rank_marked(marked: MarkedFinding, sample: Sample) -> CellRows:
    own = marked.finding
    return rank_cells(own.y, own.p, own.weight, sample.draws.unit[own.at], marked.sex, marked.mark, 2)


def _marks(sample: Sample, said: list[str]) -> dict[str, Integers]:
    """Attributes to ask about: 1, 0, or -1 where it is not known, of each image."""
    known = sample.beside.attributes
    asked = tuple(dict.fromkeys(sample.settings.shortcuts))
    found: dict[str, Integers] = {}
    for name in asked or known:
        if name not in known:
            if not sample.several_datasets:  # another dataset may have it
                raise ConfigError(
                    "shortcuts" if known else f'shortcuts: no image with a prediction has the attribute "{name}"',
                    got=name if known else None,
                    allowed=f"an attribute of the images ({', '.join(known)})" if known else None,
                    next_step=did_you_mean(name, known),
                )
            said.append(f"shortcut: no image of this dataset has the attribute {name}")
            continue
        values = set(known[name].tolist()) - {""}
        if values <= {"0", "1"}:
            found[name] = np.select([known[name] == "1", known[name] == "0"], [1, 0], -1).astype(np.int64)
        elif asked:
            said.append(
                f"shortcut: {name} is excluded: it has values other than 1 and 0 (make one attribute of each value)"
            )
    if not found and not asked:
        why = "no attribute has only the values 1 and 0" if known else "no image has an attribute"
        said.append(f"shortcut: not run, {why}")
    return found


def _sexes(data: PredictionArrays, said: list[str]) -> _Sexes | None:
    """The two sexes with most patients, in the order of the alphabet."""
    text = data.groups["sex"].astype(str) if "sex" in data.groups else np.zeros(0, dtype=str)
    values = sorted(set(text.tolist()) - {""})
    if not values:
        said.append("shortcut: not run, the table has no sex (name the column with --sex COLUMN)")
        return None
    if len(values) < 2:
        said.append(f"shortcut: not run, there is only one sex, {values[0]}")
        return None
    patients = [len(np.unique(data.patients[text == value])) for value in values]
    one, two = sorted(np.argsort(-np.array(patients), kind="stable")[:2].tolist())
    code = np.select([text == values[one], text == values[two]], [0, 1], -1).astype(np.int64)
    if outside := int((code < 0).sum()):
        said.append(f"shortcut: {outside:,} images are neither of sex {values[one]} nor {values[two]} and are excluded")
    return _Sexes((f"sex={values[one]}", f"sex={values[two]}"), code)


def _choose_marked(
    sample: Sample, marks: Mapping[str, Integers], sexes: _Sexes, said: list[str]
) -> dict[str, list[MarkedFinding]]:
    """What is looked at, attribute by attribute; what is not is said once."""
    findings = sample.findings()
    asked, least = bool(sample.settings.shortcuts), 1 if sample.settings.shortcuts else FEW
    chosen: dict[str, list[MarkedFinding]] = {}
    left: list[str] = []
    for name, mark in marks.items():
        several = [_mark_finding(finding, name, mark, sexes) for finding in findings]
        kept = [m for m in several if (m.patients.sum() if asked else m.patients.min()) >= least]
        if kept:
            chosen[name] = kept
            known = int((mark >= 0).sum())
            if known < len(mark):
                said.append(f"shortcut: {name} is known for {known:,} of {len(mark):,} images; the audit uses those")
        if lost := [m.finding.name for m in several if m not in kept]:
            left.append(f"{name} for {', '.join(lost) if kept else 'all findings'}")
    if left:
        why = "no patient with label and attribute" if asked else f"fewer than {FEW} patients of a sex, label and value"
        said.append(f"shortcut: excluded ({why}): {'; '.join(left)}")
    return chosen


def _mark_finding(finding: Finding, name: str, mark: Integers, sexes: _Sexes) -> MarkedFinding:
    """The rows of a finding whose attribute and sex are known."""
    inside = (mark[finding.at] >= 0) & (sexes.code[finding.at] >= 0)
    own = finding.only(inside)
    sex, marks = sexes.code[own.at], mark[own.at]
    cell = cells_of(own.y, sex, marks, 2).astype(np.int64)
    return MarkedFinding(own, name, sexes.names, sex, marks, patients_in(cell, own.patients, 8).reshape(2, 2, 2))


# Cells (sex, label, attribute) of one finding, with replicates -> RESULT and CURVE rows of the shortcut audit.

# Quantile levels of the confidence curves; from FEW patients on, or the ends would show single ones.
LEVELS = (0.0, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 1.0)
BOTH_GROUPS, EACH_GROUP = (0, 1), ((0,), (1,))


@dataclass(frozen=True, slots=True, eq=False)
class MarkedFinding:
    """Rows of a finding with a known attribute and sex; `patients` of each cell, (sex, label, attribute value)."""

    finding: Finding
    name: str
    sexes: tuple[str, str]
    sex: NDArray[np.int64]
    mark: NDArray[np.int64]
    patients: NDArray[np.int64]

    @property
    def slices(self) -> tuple[str, str, str]:
        """Everybody, then each sex."""
        known = f"{self.name} known"
        return known, f"{known} & {self.sexes[0]}", f"{known} & {self.sexes[1]}"

    def cells(self) -> Iterator[tuple[int, int, int, str, Finding]]:
        """Sex, label and value with the cell's name and rows."""
        for s, sex in enumerate(self.sexes):
            for label in (0, 1):
                for value in (0, 1):
                    inside = (self.sex == s) & (self.finding.y == label) & (self.mark == value)
                    yield s, label, value, f"{sex} & label={label} & {self.name}={value}", self.finding.only(inside)

    def few(self) -> str | None:
        """What makes a sex too small to be tested, if anything."""
        for s, sex in enumerate(self.sexes):
            units = self.finding.only(self.sex == s).counts.units
            if min(units.positive, units.negative) < FEW:
                return f"{sex} has {units.positive:,} patients with and {units.negative:,} without the finding"
        return None

    def scarce(self) -> str | None:
        """The smallest cell, if it is too small for a test of what is equalised."""
        at = np.unravel_index(int(self.patients.argmin()), self.patients.shape)
        least = int(self.patients[at])
        if least >= FEW:
            return None
        s, label, value = (int(each) for each in at)
        who = f"{least} patient{'s' * (least != 1)}" if least else "no patient"
        return f"{who} of {self.sexes[s]} & label={label} & {self.name}={value}"


class _Version(NamedTuple):
    """Rows as they are or equalised: what cells are multiplied by (sample, replicates), the weight of each row, and
    why the number is undefined or a gap not tested, if so."""

    metric: str
    scale: tuple[Floats, Floats]
    weight: Floats
    weighting: str | None
    undefined: str | None
    untested: str | None


class _Gap(NamedTuple):
    """First sex less second, and the patients behind it."""

    value: float
    replicates: Floats
    units: UnitCount


def shortcut_rows(make: RowMaker, marked: MarkedFinding, point: Tally, drawn: Tally) -> list[Row]:
    """All rows of one finding and attribute; only those that are tested keep their replicates."""
    rows = [*_share_rows(make, marked, point, drawn), *_auroc_rows(make, marked, point, drawn)]
    if marked.finding.is_probability:
        rows += _cell_rows(make, marked, point, drawn)
    return [row if row["p_value"] is not None else _without_replicates(row) for row in rows]


def _without_replicates(row: Row) -> Row:
    return {name: value for name, value in row.items() if name != INTERVAL_SOURCE}


def _ratio(top: Floats, bottom: Floats) -> Floats:
    return np.divide(top, bottom, out=np.full(np.shape(top), np.nan), where=bottom > 0)


def _share_rows(make: RowMaker, marked: MarkedFinding, point: Tally, drawn: Tally) -> list[Row]:
    """P(attribute | sex, label)."""
    rows = []
    for s, sex in enumerate(marked.sexes):
        for label in (0, 1):
            inside = (marked.sex == s) & (marked.finding.y == label)
            part, hits = marked.finding.only(inside), int(marked.mark[inside].sum())
            row = make.of(
                "share",
                part,
                float(_share(point, s, label)[0]),
                _share(drawn, s, label),
                known=_class_metric("rate", label),
                slice=f"{sex} & label={label} & {marked.name}=1",
                note=f"{hits:,} of {part.counts.n:,} images",
            )
            rows.append(row | {"higher_is_better": None})
    return rows


def _share(tally: Tally, s: int, label: int) -> Floats:
    return _ratio(tally.mass[:, s, label, 1], tally.mass[:, s, label].sum(axis=1))


def _class_metric(what: str, label: int) -> str:
    """The metric of the catalogue that, as this one, rests on the patients of one class."""
    return {"rate": ("fpr", "tpr"), "score": ("brier_negative", "brier_positive")}[what][label]


def _cell_rows(make: RowMaker, marked: MarkedFinding, point: Tally, drawn: Tally) -> list[Row]:
    """Confidence and Brier score of every cell."""
    rows = []
    for s, label, value, name, part in marked.cells():
        own = int(marked.patients[s, label, value])
        note = None if own >= FEW else f"only {own} patient{'s' * (own != 1)}" if own else "no patient in this cell"
        mass, masses = point.mass[:, s, label, value], drawn.mass[:, s, label, value]
        options: dict[str, Any] = {"known": _class_metric("score", label), "slice": name, "note": note}
        for metric, sums in (("confidence", (point.said, drawn.said)), ("brier", (point.squared, drawn.squared))):
            found, replicates = (each[:, s, label, value] for each in sums)
            how = "mean probability" if metric == "confidence" else "mean squared error of one class"
            row = make.of(metric, part, float(_ratio(found, mass)[0]), _ratio(replicates, masses), how=how, **options)
            rows.append(row | {"higher_is_better": None} if metric == "confidence" else row)
    return rows


def _auroc_rows(make: RowMaker, marked: MarkedFinding, point: Tally, drawn: Tally) -> list[Row]:
    """AUROC of everybody and of each sex, the gap between them, natural and equalised; what is explained."""
    column = "" if make.sample.data.weight is None else ", weight column"
    equal = equalising_weights(marked.finding.y, marked.sex, marked.mark, marked.finding.weight)
    few, scarce = marked.few(), marked.scarce()
    natural = _Version(
        metric="auroc",
        scale=(np.ones_like(point.mass), np.ones_like(drawn.mass)),
        weight=marked.finding.weight,
        weighting=None,
        undefined=None,
        untested=few,
    )
    equalised = _Version(
        metric="auroc_equalised",
        scale=(equalising_scales(point.mass), equalising_scales(drawn.mass)),
        weight=np.nan_to_num(equal),
        weighting=f"{marked.name} equalised between the sexes within each label{column}",
        undefined=f"cannot be equalised, {scarce}" if np.isnan(equal).any() else None,
        untested=few or scarce,
    )
    rows, gap = _version_rows(make, marked, natural, point, drawn)
    more, left = _version_rows(make, marked, equalised, point, drawn)
    explained = _Gap(
        float(drop_rounding(gap.value - left.value)),
        drop_rounding(gap.replicates - left.replicates),
        UnitCount._make(map(min, gap.units, left.units)),
    )
    weighting = f"gap as observed minus gap with {marked.name} equalised within each label{column}"
    version = equalised._replace(metric="auroc_gap_explained", weighting=weighting)
    return [*rows, *more, _gap_row(make, marked, version, explained)]


def _version_rows(
    make: RowMaker, marked: MarkedFinding, version: _Version, point: Tally, drawn: Tally
) -> tuple[list[Row], _Gap]:
    """Everybody, each sex, and the first sex less the second."""
    rows, values, replicates, units = list[Row](), list[float](), list[Floats](), list[UnitCount]()
    for groups, where in zip((BOTH_GROUPS, *EACH_GROUP), marked.slices, strict=True):
        inside = np.isin(marked.sex, groups)
        part = marked.finding.only(inside)
        values.append(float(cells_auroc(point, version.scale[0], groups)[0]))
        replicates.append(cells_auroc(drawn, version.scale[1], groups))
        units.append(count_units(part.y, part.patients, version.weight[inside]))
        rows.append(
            make.of(
                version.metric,
                part,
                values[-1],
                replicates[-1],
                known="auroc",
                weighting=version.weighting,
                units=units[-1],
                slice=where,
                note=version.undefined and f"{version.metric} is undefined: {version.undefined}",
            )
        )
    gap = _Gap(
        float(drop_rounding(values[1] - values[2])),
        drop_rounding(replicates[1] - replicates[2]),
        UnitCount._make(map(min, units[1], units[2])),
    )
    return [*rows, _gap_row(make, marked, version, gap)], gap


def _gap_row(make: RowMaker, marked: MarkedFinding, version: _Version, gap: _Gap) -> Row:
    """NaN says why; too few patients make no test."""
    note = version.untested and f"not tested: {version.untested}"
    if np.isnan(gap.value):
        note = f"{version.metric} is undefined: {version.undefined or version.untested}"
    return make.row(
        version.metric,
        marked.finding.name,
        marked.finding.counts,
        gap.value,
        gap.replicates,
        known="auroc",
        weighting=version.weighting,
        slice=marked.slices[1],
        versus=marked.slices[2],
        tested=version.untested is None,
        units=gap.units,
        note=note,
    )


def confidence_curves(model: str, marked: MarkedFinding) -> list[Row]:
    """Quantiles of the probabilities in every cell."""
    rows: list[Row] = []
    for s, label, value, name, part in marked.cells() if marked.finding.is_probability else ():
        if marked.patients[s, label, value] < FEW:
            continue
        levels = np.quantile(part.p, LEVELS, weights=part.weight, method="inverted_cdf")
        head = {"model": model, "finding": marked.finding.name, "kind": "confidence", "slice": name}
        rows += [
            {**head, "x": x, "y": float(y), "low": None, "high": None} for x, y in zip(LEVELS, levels, strict=True)
        ]
    return rows


# Shortcut audits of several runs (training or split seeds) of one model -> RESULT: mean, spread, and SLICES' test.
#
# Rows carry the model's bare name and no interval: value = mean over runs, `<metric>.sd` = their standard deviation
# (n - 1), which is how far runs differ and no standard error (compare.py says why). The values of the single runs, for
# figures, are the rows of those runs.
#
# With `shortcut_test` mann_whitney also what SLICES did: Mann-Whitney's U test of the runs' AUROCs of one sex against
# those of the other. Its value is U / (n1 n2), the share of pairs of runs in which the first sex has the higher AUROC
# (ties half). It takes runs for independent, but their test sets overlap: with nothing going on, and each test set
# 30% of one pool, 34 of 100 such tests said p < .05, and more where the sets are larger. So its p stands in the note,
# as the paper would print it, and not among the page's p values: it is neither corrected with them nor makes theirs
# larger.

AUDIT = "shortcut"
MEANS = ("auroc", "auroc_equalised", "brier")
TESTED = {"auroc": "mann_whitney", "auroc_equalised": "mann_whitney_equalised"}
_Key = tuple[Any, ...]


def shortcut_runs(runs: Sequence[AuditedSample]) -> AuditPart:
    """Means and spreads over the runs of one model on one dataset; the paper's test where it is asked for."""
    tables = [{_key(row): row for row in run.rows if row["audit"] == AUDIT} for run in runs]
    keys = list(dict.fromkeys(key for table in tables for key in table))
    if len(runs) < 2 or not keys:
        return AuditPart([], [], [])
    sample = runs[0].sample
    rows: list[Row] = []
    for key in keys:
        metric, _, _, versus = key
        if metric in MEANS and versus is None:
            rows += run_rows(sample.name, [table.get(key) for table in tables], AUDIT)
    notes: list[str] = []
    if sample.settings.shortcut_test == "mann_whitney":
        for key in keys:
            if key[0] in TESTED and key[-1] is not None:
                rows.append(_test_row(sample.name, key, tables))
        notes.append(
            f"{sample.name}: Mann-Whitney over {len(runs)} runs is the test of SLICES: test sets of runs overlap, "
            "which it ignores; its type I error is 0.35, not 0.05, and higher with more overlap. Prefer the paired "
            "bootstrap of the single runs instead"
        )
    return AuditPart(rows, [], notes)


def _key(row: Row) -> _Key:
    return tuple(row[name] for name in ("metric", "finding", "slice", "versus"))


def _values(rows: Sequence[Row | None]) -> list[float]:
    """Of the runs in which the number is there and defined."""
    return [float(row["value"]) for row in rows if row is not None and np.isfinite(row["value"])]


def _test_row(name: str, gap: _Key, tables: Sequence[Mapping[_Key, Row]]) -> Row:
    """Mann-Whitney's U of the runs' AUROCs of the two groups of a gap."""
    from scipy.stats import mannwhitneyu

    metric, finding, one, two = gap
    first, second = ([table.get((metric, finding, where, None)) for table in tables] for where in (one, two))
    ours, theirs = _values(first), _values(second)
    row = run_head(name, to_result_rows(table[gap] for table in tables if gap in table), AUDIT)
    row |= {"metric": TESTED[metric], "method": "Mann-Whitney U over runs (SLICES), type I error 0.35"}
    if min(len(ours), len(theirs)) < 2:
        note = f"{TESTED[metric]} is undefined: {metric} is defined in {len(ours)} and {len(theirs)} runs"
        return row | {"value": np.nan, "note": note}
    found = mannwhitneyu(ours, theirs)
    note = (
        f"p = {found.pvalue:.2g} over {len(ours)} and {len(theirs)} runs, not corrected; the splits overlap, so p is "
        "too small: type I error 0.35"
    )
    return row | {"value": float(found.statistic) / (len(ours) * len(theirs)), "note": note}
