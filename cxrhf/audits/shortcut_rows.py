"""Cells (sex, label, attribute) of one finding, with replicates -> RESULT and CURVE rows of the shortcut audit."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cxrhf.audits.rows import KEPT, Row, RowMaker
from cxrhf.audits.sample import Finding, Floats
from cxrhf.metrics.equalising import equalising_scales, equalising_weights
from cxrhf.metrics.estimates import FEW, settled
from cxrhf.metrics.intervals import UnitCount, count_units
from cxrhf.metrics.pairs import Tally, cells_auroc

# Quantile levels of the confidence curves; from FEW patients on, or the ends would show single ones.
LEVELS = (0.0, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 1.0)
EVERYBODY, EACH = (0, 1), ((0,), (1,))


@dataclass(frozen=True, slots=True, eq=False)
class Marked:
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


def shortcut_rows(make: RowMaker, marked: Marked, point: Tally, drawn: Tally) -> list[Row]:
    """All rows of one finding and attribute; only those that are tested keep their replicates."""
    rows = [*_share_rows(make, marked, point, drawn), *_auroc_rows(make, marked, point, drawn)]
    if marked.finding.is_probability:
        rows += _cell_rows(make, marked, point, drawn)
    return [row if row["p_value"] is not None else _without_replicates(row) for row in rows]


def _without_replicates(row: Row) -> Row:
    return {name: value for name, value in row.items() if name != KEPT}


def _ratio(top: Floats, bottom: Floats) -> Floats:
    return np.divide(top, bottom, out=np.full(np.shape(top), np.nan), where=bottom > 0)


def _share_rows(make: RowMaker, marked: Marked, point: Tally, drawn: Tally) -> list[Row]:
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
                known=_side("rate", label),
                slice=f"{sex} & label={label} & {marked.name}=1",
                note=f"{hits:,} of {part.counts.n:,} images",
            )
            rows.append(row | {"higher_is_better": None})
    return rows


def _share(tally: Tally, s: int, label: int) -> Floats:
    return _ratio(tally.mass[:, s, label, 1], tally.mass[:, s, label].sum(axis=1))


def _side(what: str, label: int) -> str:
    """The metric of the catalogue that, as this one, rests on the patients of one class."""
    return {"rate": ("fpr", "tpr"), "score": ("brier_negative", "brier_positive")}[what][label]


def _cell_rows(make: RowMaker, marked: Marked, point: Tally, drawn: Tally) -> list[Row]:
    """Confidence and Brier score of every cell."""
    rows = []
    for s, label, value, name, part in marked.cells():
        own = int(marked.patients[s, label, value])
        note = None if own >= FEW else f"only {own} patient{'s' * (own != 1)}" if own else "no patient in this cell"
        mass, masses = point.mass[:, s, label, value], drawn.mass[:, s, label, value]
        options: dict[str, Any] = {"known": _side("score", label), "slice": name, "note": note}
        for metric, sums in (("confidence", (point.said, drawn.said)), ("brier", (point.squared, drawn.squared))):
            found, replicates = (each[:, s, label, value] for each in sums)
            how = "mean probability" if metric == "confidence" else "mean squared error of one class"
            row = make.of(metric, part, float(_ratio(found, mass)[0]), _ratio(replicates, masses), how=how, **options)
            rows.append(row | {"higher_is_better": None} if metric == "confidence" else row)
    return rows


def _auroc_rows(make: RowMaker, marked: Marked, point: Tally, drawn: Tally) -> list[Row]:
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
        float(settled(gap.value - left.value)),
        settled(gap.replicates - left.replicates),
        UnitCount._make(map(min, gap.units, left.units)),
    )
    weighting = f"gap as observed minus gap with {marked.name} equalised within each label{column}"
    version = equalised._replace(metric="auroc_gap_explained", weighting=weighting)
    return [*rows, *more, _gap_row(make, marked, version, explained)]


def _version_rows(
    make: RowMaker, marked: Marked, version: _Version, point: Tally, drawn: Tally
) -> tuple[list[Row], _Gap]:
    """Everybody, each sex, and the first sex less the second."""
    rows, values, replicates, units = list[Row](), list[float](), list[Floats](), list[UnitCount]()
    for groups, where in zip((EVERYBODY, *EACH), marked.slices, strict=True):
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
        float(settled(values[1] - values[2])),
        settled(replicates[1] - replicates[2]),
        UnitCount._make(map(min, units[1], units[2])),
    )
    return [*rows, _gap_row(make, marked, version, gap)], gap


def _gap_row(make: RowMaker, marked: Marked, version: _Version, gap: _Gap) -> Row:
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


def confidence_curves(model: str, marked: Marked) -> list[Row]:
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
