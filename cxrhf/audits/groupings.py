"""Sex, race, age and view of a sample -> groupings: which image is in which group, one by one and crossed in pairs.

Values are taken as they stand in the table, compared as text, in the order of the alphabet. Ages are put into bands. An
image without a value is in no group of that grouping.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from cxrhf.audits.sample import patients_in
from cxrhf.metrics.balancing import age_bins, disease_groups
from cxrhf.schema import PredictionArrays
from cxrhf.tables.ages import AGE_BANDS, age_band

Integers = NDArray[np.int64]

ATTRIBUTES = ("sex", "race", "age", "view")
# The two findings that ENCODING evaluates; in its disease groups the second overrides the first.
DISEASES = ("no_finding", "pleural_effusion")
# Values of one attribute, and crossings of two, that are audited: those with most patients.
MOST, MOST_CROSSED = 12, 30
# Patients, with and without the finding together, below which a value or a crossing is left out: such numbers say
# nothing of a group and too much of its few patients.
LEAST, LEAST_CROSSED = 10, 20


class People(Protocol):
    """What is known of the people in the images, one entry an image: `groups` as text, "" = not known."""

    @property
    def patients(self) -> Integers: ...
    @property
    def age(self) -> NDArray[np.float64] | None: ...
    @property
    def groups(self) -> Mapping[str, NDArray[np.str_]]: ...


@dataclass(frozen=True, slots=True)
class Groups:
    """`group` of each image: a place in `slices` (the names as RESULT has them), -1 = none."""

    name: str
    slices: tuple[str, ...]
    group: Integers

    @property
    def crossed(self) -> bool:
        return " & " in self.name

    @property
    def by_age(self) -> bool:
        return "age" in self.name.split(" & ")


def bins_of(data: PredictionArrays) -> Integers | None:
    """The bin of each age for balancing, -1 = unknown; None without ages."""
    return None if data.age is None or np.isnan(data.age).all() else age_bins(data.age)


def disease_of(data: PredictionArrays) -> NDArray[np.float64] | None:
    """The disease group of each image (`disease_groups`); None without labels of both findings."""
    if any(name not in data.findings for name in DISEASES):
        return None
    return disease_groups(*(data.y[:, data.findings.index(name)] for name in DISEASES))


def groupings(data: People, notes: list[str], attributes: Sequence[str] = ATTRIBUTES) -> list[Groups]:
    """The attributes that the table has, then their pairs; what is left out is said in `notes`."""
    single = [found for name in attributes if (found := _single(data, name, notes)) is not None]
    crossed = [found for pair in combinations(single, 2) if (found := _crossed(data, *pair, notes)) is not None]
    return [*single, *crossed]


def missing(data: PredictionArrays) -> list[str]:
    """The attributes that the table does not have."""
    return [name for name in ATTRIBUTES if (data.age is None if name == "age" else name not in data.groups)]


def _single(data: People, name: str, notes: list[str]) -> Groups | None:
    if name == "age" and data.age is not None:
        code = age_band(data.age)
        values: Sequence[str] = AGE_BANDS
    elif name in data.groups:
        text = data.groups[name].astype(str)
        values = sorted(set(text.tolist()) - {""})
        place = {value: k for k, value in enumerate(values)}
        code = np.array([place.get(each, -1) for each in text.tolist()], dtype=np.int64)
    else:
        return None
    unknown, n = int((code < 0).sum()), len(code)
    if unknown:
        notes.append(f"{name}: {unknown:,} of {n:,} images have no {name} and are in no group")
    patients = patients_in(code, data.patients, len(values))
    kept = _largest(patients, MOST, least=LEAST)
    there = int((patients > 0).sum())
    if there > len(kept):
        left = int((code >= 0).sum() - np.isin(code, kept).sum())
        why = f"fewer than {LEAST} patients" if len(kept) < MOST else f"only the {MOST} with most patients are audited"
        images = f"{left:,} image{'s' * (left != 1)}"
        notes.append(f"{name}: {there - len(kept)} of {there} values ({images}) are in no group: {why}")
    if len(kept) < 2:
        if kept:
            notes.append(f"{name}: only one value, {values[kept[0]]}, so there is nothing to compare")
        return None
    return _kept(name, [f"{name}={value}" for value in values], code, kept)


def _crossed(data: People, one: Groups, other: Groups, notes: list[str]) -> Groups | None:
    name, width = f"{one.name} & {other.name}", len(other.slices)
    code = np.where((one.group >= 0) & (other.group >= 0), one.group * width + other.group, -1)
    slices = [f"{a} & {b}" for a in one.slices for b in other.slices]
    patients = patients_in(code, data.patients, len(slices))
    kept = _largest(patients, MOST_CROSSED, least=LEAST_CROSSED)
    there = int((patients > 0).sum())
    if there > len(kept):
        why = f"fewer than {LEAST_CROSSED} patients" if len(kept) < MOST_CROSSED else "fewer patients than the others"
        notes.append(f"{name}: {there - len(kept)} of {there} groups are excluded: {why}")
    return _kept(name, slices, code, kept) if len(kept) > 1 else None


def _largest(patients: Integers, most: int, least: int) -> list[int]:
    """The groups with most patients, in their own order; of equals the first."""
    order = np.argsort(-patients, kind="stable")[:most]
    return sorted(int(k) for k in order if patients[k] >= least)


def _kept(name: str, slices: Sequence[str], code: Integers, kept: Sequence[int]) -> Groups:
    place = np.full(len(slices) + 1, -1, dtype=np.int64)  # the last is where -1 points to
    place[list(kept)] = np.arange(len(kept))
    return Groups(name, tuple(slices[k] for k in kept), place[code])
