"""PREDICTION rows -> their distinct images -> the features a pre-test probability is fitted from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from cxrhf.audits.prior_labels import PriorLabels, prior_labels
from cxrhf.audits.sample import patients_in
from cxrhf.errors import TableError
from cxrhf.tables.columns import PRETEST_SOURCES

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
# Groups of fewer patients are put together.
RARE = 10


@dataclass(frozen=True, slots=True)
class Images:
    """The distinct images of one dataset, sorted by id; n images, k findings sorted by name."""

    findings: tuple[str, ...]
    patients: Integers  # (n,)
    y: Floats  # (n, k), NaN = no label, or models disagree about it
    weight: Floats  # (n, k)
    age: Floats  # (n,), NaN = missing
    groups: dict[str, NDArray[np.str_]]  # sex, view, race: (n,), "" = missing
    study: Integers  # (n,), -1 = none
    time: Floats  # (n,), NaN = unknown
    row_image: Integers  # (rows,) which image a row of the table is about
    row_finding: Integers  # (rows,)
    n_contradictions: int


class Features(NamedTuple):
    """Columns that all findings share, and those of a finding itself."""

    names: tuple[str, ...]
    shared: Floats  # (n, d)
    own: tuple[Floats, ...]  # for each finding (n, 0 or 2)


def gather(table: pa.Table, times: pa.Table | None) -> Images:
    """What the rows of one dataset say about its images. Where they disagree the smallest value stands."""
    image, finding, patient = (_ranked(table[name]) for name in ("image_id", "finding", "patient_id"))
    n, k = len(image.values), len(finding.values)
    cell = image.codes * k + finding.codes
    label = _floats(table["label"])
    positive, negative = (np.bincount(cell[label == value], minlength=n * k) > 0 for value in (1, 0))
    both = positive & negative
    y = np.where(positive, 1.0, np.where(negative, 0.0, np.nan))
    y[both] = np.nan
    weight = np.ones(n * k)
    if table["weight"].null_count < len(table):
        given = np.nan_to_num(_floats(table["weight"]), nan=1.0)
        rows = np.maximum(np.bincount(cell, minlength=n * k), 1)
        weight = np.bincount(cell, given, minlength=n * k) / rows
        weight = weight / weight[weight > 0].mean() if (weight > 0).any() else weight
    age = np.full(n, np.inf)
    np.fmin.at(age, image.codes, _floats(table["age"]))
    time = np.full(n, np.nan)
    if times is not None:
        found = pc.index_in(image.values, value_set=times["image_id"].combine_chunks())
        time = _floats(times["time"].take(found))
    return Images(
        findings=tuple(finding.values.to_pylist()),
        patients=_smallest(patient.codes, image.codes, n),
        y=y.reshape(n, k),
        weight=weight.reshape(n, k),
        age=np.where(np.isinf(age), np.nan, age),
        groups={name: _group(table[name], image.codes, n) for name in ("sex", "view", "race")},
        study=_study(table["study_id"], image.codes, n),
        time=time,
        row_image=image.codes,
        row_finding=finding.codes,
        n_contradictions=int(both.sum()),
    )


class _Ranked(NamedTuple):
    codes: Integers  # -1 = null
    values: pa.Array  # sorted


def _ranked(column: pa.ChunkedArray) -> _Ranked:
    coded = column.combine_chunks().dictionary_encode()
    coded = coded.combine_chunks() if isinstance(coded, pa.ChunkedArray) else coded
    order = pc.sort_indices(coded.dictionary).to_numpy()
    rank = np.full(len(order) + 1, -1, dtype=np.int64)  # the last place is that of nulls
    rank[order] = np.arange(len(order))
    codes = coded.indices.cast(pa.int64()).fill_null(len(order)).to_numpy(zero_copy_only=False)
    return _Ranked(rank[codes], coded.dictionary.take(pa.array(order)))


def _floats(column: pa.ChunkedArray) -> Floats:
    return np.asarray(column.cast(pa.float64()).to_numpy(), dtype=np.float64)


def _smallest(codes: Integers, image: Integers, n: int) -> Integers:
    """The smallest code of each image that is not null; -1 where all are."""
    top = np.iinfo(np.int64).max
    out = np.full(n, top)
    np.minimum.at(out, image, np.where(codes < 0, top, codes))
    return np.where(out == top, -1, out)


def _group(column: pa.ChunkedArray, image: Integers, n: int) -> NDArray[np.str_]:
    ranked = _ranked(column)
    names = np.array([*ranked.values.to_pylist(), ""], dtype=np.str_)
    return names[_smallest(ranked.codes, image, n)]


def _study(column: pa.ChunkedArray, image: Integers, n: int) -> Integers:
    return _smallest(_ranked(column).codes, image, n)


def context_features(images: Images, sources: Sequence[str], said: list[str], where: str = "") -> Features:
    """The columns of the sources; what is the same for all images is left out and said, nothing left is an error."""
    columns: dict[str, Floats] = {}
    own = tuple(np.empty((len(images.patients), 0)) for _ in images.findings)
    for source in sources:
        if source == "age":
            made = _age(images.age)
        elif source == "prior_labels":
            prior = prior_labels(images.y, images.patients, images.time, images.study)
            made = _prior(prior, images)
            if prior.images.any():
                own = tuple(np.column_stack([prior.share[:, k], prior.any[:, k]]) for k in range(len(images.findings)))
        else:
            made = _levels(source, images.groups[source], images.patients)
        made = {name: values for name, values in made.items() if np.ptp(values) > 0}
        if not made:
            why = "no patient has an earlier image" if source == "prior_labels" else "it is the same for all images"
            said.append(f"pretest from {source}{where}: {why}, so it is not used")
        columns |= made
    if not columns:
        raise TableError(
            f"pretest{where}: no usable source",
            got=f"from:{','.join(sources)}; {'; '.join(said[-len(sources) :])}",
            allowed="a source that differs between images",
            next_step="add one of " + ", ".join(PRETEST_SOURCES),
        )
    different: dict[bytes, str] = {}  # where all labels are known, so are all of the earlier ones: one column says it
    for name, values in columns.items():
        different.setdefault(values.tobytes(), name)
    names = tuple(different.values())
    return Features(names, np.column_stack([columns[name] for name in names]), own)


def _age(age: Floats) -> dict[str, Floats]:
    """Piecewise linear between the fifths of the ages, in standard deviations."""
    known = ~np.isnan(age)
    if not known.any():
        return {}
    mean, spread = float(age[known].mean()), float(age[known].std()) or 1.0
    filled = np.where(known, age, mean)
    columns = {"age": (filled - mean) / spread, "age missing": (~known).astype(np.float64)}
    for knot in np.unique(np.quantile(age[known], (0.2, 0.4, 0.6, 0.8))):
        columns[f"age above {knot:g}"] = np.maximum(filled - knot, 0) / spread
    return columns


def _levels(source: str, values: NDArray[np.str_], patients: Integers) -> dict[str, Floats]:
    """An indicator for each group but the commonest; missing is a group, rare ones are put together."""
    levels, codes = np.unique(values, return_inverse=True)
    rare = (patients_in(codes, patients, len(levels)) < RARE) & (levels != "")
    names = np.where(rare, "other", np.where(levels == "", "missing", levels))[codes]
    groups, counts = np.unique(names, return_counts=True)
    commonest = groups[np.argmax(counts)]
    return {f"{source}={each}": (names == each).astype(np.float64) for each in groups if each != commonest}


def _prior(prior: PriorLabels, images: Images) -> dict[str, Floats]:
    columns = {"earlier images": np.log1p(prior.images), "no time": np.isnan(images.time).astype(np.float64)}
    for k, finding in enumerate(images.findings):
        columns[f"last {finding}"] = prior.last[:, k]
        columns[f"unknown {finding}"] = prior.unknown[:, k]
    return columns if prior.images.any() else {}
