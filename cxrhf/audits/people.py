"""PREDICTION, characteristics and IMAGE rows -> who is in each picture that has a vector: patient, split, sex, race.

What one table does not say, the next one may. Where the predictions are of one dataset all images belong to it; where
they are of several, each is looked at on its own, as everywhere.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from cxrhf.errors import TableError
from cxrhf.tables.ages import AGE_BANDS, age_band
from cxrhf.tables.groups import NO_VALUE

Texts = NDArray[np.str_]
Integers = NDArray[np.int64]

TARGETS = ("sex", "race", "view", "age_band")
_COLUMNS = ("patient_id", "dataset", "split", "sex", "race", "view")


@dataclass(frozen=True, slots=True)
class People:
    """Images of one dataset by their ids; `values`: target -> what is known of each, "" = nothing."""

    dataset: str | None
    image_ids: Texts
    patients: Texts
    splits: Texts
    values: Mapping[str, Texts]


def people_of(
    image_ids: pa.ChunkedArray, tables: Sequence[pa.Table], predictions: pa.Table, notes: list[str]
) -> list[People]:
    """Everybody of whom these tables say which patient it is; the first that knows something is believed."""
    ids = np.array(sorted(pc.unique(image_ids).to_pylist()), dtype=str)
    known: dict[str, Texts] = {name: np.zeros(len(ids), dtype="U1") for name in _COLUMNS}
    age = np.full(len(ids), np.nan)
    for table in tables:
        at = _places(table, ids)
        rows, place = np.flatnonzero(at >= 0), at[at >= 0]
        for name in _COLUMNS:
            said = _texts(table, name, rows, place, len(ids))
            if name == "patient_id":
                _one_patient(known[name], said)
            known[name] = np.where(known[name] == "", said, known[name])
        if "age" in table.column_names:
            said_age = np.full(len(ids), np.nan)
            years = np.asarray(pc.fill_null(table["age"].cast(pa.float64()), np.nan), dtype=np.float64)
            np.fmax.at(said_age, place, years[rows])
            age = np.where(np.isnan(age), said_age, age)
    found = known["patient_id"] != ""
    if strangers := int((~found).sum()):
        notes.append(f"encoding: {strangers:,} of {len(ids):,} images with embeddings are in no table and are excluded")
    bands = np.array([*AGE_BANDS, ""])[age_band(age)]
    values = {"age_band": bands} | {name: _classes(known[name]) for name in TARGETS if name in known}
    datasets = pc.unique(predictions["dataset"]).to_pylist()
    if len(datasets) == 1:
        groups = {datasets[0]: found}
    else:
        groups = {name or None: found & (known["dataset"] == name) for name in np.unique(known["dataset"]).tolist()}
    return [
        People(
            dataset, ids[inside], known["patient_id"][inside], known["split"][inside],
            {name: values[name][inside] for name in TARGETS},
        )
        for dataset, inside in groups.items()
        if inside.any()
    ]  # fmt: skip


def _places(table: pa.Table, ids: Texts) -> Integers:
    """Where the image of each row stands among `ids`, -1 = not there."""
    found = pc.index_in(table["image_id"], value_set=pa.array(ids.tolist(), pa.string()))
    return np.asarray(pc.fill_null(found, -1), dtype=np.int64)


def _texts(table: pa.Table, name: str, rows: Integers, place: Integers, n: int) -> Texts:
    """One value an image, "" where there is none; of several the last in the alphabet, whatever the order of rows."""
    if name not in table.column_names or not len(rows):
        return np.zeros(n, dtype="U1")
    column = pc.fill_null(table[name].cast(pa.string()), "").combine_chunks().dictionary_encode()
    words = np.array([*column.dictionary.to_pylist(), ""], dtype=str)
    order = np.unique(words)
    code = np.searchsorted(order, words)[np.asarray(column.indices, dtype=np.int64)]
    last = np.zeros(n, dtype=np.int64)
    np.maximum.at(last, place, code[rows])
    if name == "patient_id":
        first = np.full(n, len(order), dtype=np.int64)
        np.minimum.at(first, place, code[rows])
        _one_patient(order[np.minimum(first, last)], order[last])
    return np.asarray(order[last], dtype=str)


def _one_patient(one: Texts, other: Texts) -> None:
    if ((one != "") & (other != "") & (one != other)).any():
        raise TableError(
            "encoding: one image has two patients",
            next_step="use the same image ids in predictions, characteristics and images",
        )


def _classes(values: Texts) -> Texts:
    lowered = np.char.lower(np.char.strip(values))
    return np.where(np.isin(lowered, NO_VALUE), "", values)
