"""EMBEDDING, ATTRIBUTE and characteristics tables -> what lies beside the predictions of one sample, in its row order.

Vectors are those of the model under audit where there are any (`EMBEDDING.model`, and its seed where both have one).
Where the table holds vectors of one other network only, they stand in for them, which is said: such slices and maps
show what that network sees, not what the model uses.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from cxrhf.errors import TableError, shorten
from cxrhf.tables.cells import AGE_BANDS, NO_VALUE, age_band
from cxrhf.tables.checks import MOST_GROUP, PredictionArrays

Integers = NDArray[np.int64]


Vectors = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Material:
    """Tables beside the predictions, None where there is none.

    `images`: IMAGE rows of images that have vectors, for who is in pictures without a prediction. `probes`: RESULT rows
    of `cxrhf probe` (audit `split`). `prevalence`: share of positives in training, by finding, where it is known.
    """

    embeddings: pa.Table | None = None
    attributes: pa.Table | None = None
    characteristics: pa.Table | None = None
    images: pa.Table | None = None
    probes: Sequence[Mapping[str, Any]] = ()
    prevalence: Mapping[str, float] = field(default_factory=dict)


class Layer(NamedTuple):
    """Vectors of some rows of a sample: `at` are their places, in rising order."""

    at: NDArray[np.intp]
    vectors: Vectors


@dataclass(frozen=True, slots=True)
class SampleMaterial:
    """What is known of the rows of one sample beyond its predictions.

    `layers`: finding -> vectors made for it; None -> the penultimate layer. `attributes`: name -> value of each row, ""
    where it is not known.
    """

    layers: Mapping[str | None, Layer] = field(default_factory=dict)
    attributes: Mapping[str, NDArray[np.str_]] = field(default_factory=dict)
    prevalence: Mapping[str, float] = field(default_factory=dict)

    def layer(self, finding: str) -> Layer | None:
        """The vectors of a finding: its own, else those of the penultimate layer."""
        return self.layers.get(finding) or self.layers.get(None)


def beside(material: Material, data: PredictionArrays, name: str, seed: int | None, notes: list[str]) -> SampleMaterial:
    """What lies beside one sample; what had to be taken from elsewhere is said in `notes`."""
    layers: dict[str | None, Layer] = {}
    if material.embeddings is not None and material.embeddings.num_rows:
        chosen, whose = _rows_of_model(material.embeddings, name, seed, notes)
        for finding in pc.unique(chosen["finding"]).to_pylist():
            column = chosen["finding"]
            rows = chosen.filter(pc.is_null(column) if finding is None else pc.equal(column, finding))
            layer = _layer(rows, data, whose)
            if len(layer.at):
                layers[finding] = layer
        if chosen.num_rows and not layers:
            notes.append(f"{name}: none of its images has an embedding")
    attributes = {} if material.attributes is None else attribute_columns(material.attributes, data.image_ids)
    return SampleMaterial(layers, attributes, material.prevalence)


def _rows_of_model(table: pa.Table, name: str, seed: int | None, notes: list[str]) -> tuple[pa.Table, str]:
    """The rows of this model and seed, or of the one network that is there instead."""
    models = pc.unique(table["model"]).to_pylist()
    whose = name if name in models else models[0]
    if whose != name and len(models) > 1:
        notes.append(
            f"{name}: the embeddings are of {', '.join(models)}, not of this model, so it has no slices and maps"
        )
        return table.slice(0, 0), whose
    if whose != name:
        notes.append(
            f"{name}: the embeddings are of {whose}: they show what that network encodes, not what {name} uses"
        )
    chosen = table.filter(pc.equal(table["model"], whose))
    seeds = pc.unique(chosen["seed"]).to_pylist()
    if len(seeds) > 1:
        wanted = seed if seed in seeds else seeds[0]
        if wanted != seed:
            notes.append(f"{name}: no embeddings of seed {seed}, so those of seed {wanted} are used")
        column = chosen["seed"]
        chosen = chosen.filter(pc.is_null(column) if wanted is None else pc.equal(column, wanted))
    return chosen, whose


def _layer(rows: pa.Table, data: PredictionArrays, whose: str) -> Layer:
    ids, vectors = vectors_by_image(rows, whose)
    at = np.flatnonzero(np.isin(data.image_ids, ids))
    return Layer(at, vectors[np.searchsorted(ids, data.image_ids[at])])


def vectors_by_image(rows: pa.Table, whose: str) -> tuple[NDArray[np.str_], Vectors]:
    """Image ids in order, and their vectors, of one network and layer; an image with two of them is an error."""
    ids = np.array(rows["image_id"].to_pylist(), dtype=str)
    order = np.argsort(ids, kind="stable")
    if (ids[order][1:] == ids[order][:-1]).any():
        raise TableError(
            f"embeddings: an image of {whose} has two embeddings",
            next_step="keep one row for each image, model, seed and finding",
        )
    return ids[order], _vectors(rows)[order]


def _vectors(rows: pa.Table) -> Vectors:
    """The vectors of EMBEDDING rows as one matrix; lengths that differ and numbers that are none are errors."""
    column = rows["vector"].combine_chunks()
    if isinstance(column, pa.ChunkedArray):  # no rows
        return np.empty((0, 0), dtype=np.float32)
    lengths = pc.unique(pc.list_value_length(column)).to_pylist()
    if len(lengths) != 1 or not lengths[0]:
        raise TableError("embeddings: rows of one model differ in length", got=", ".join(map(str, lengths[:5])))
    flat = np.asarray(column.flatten(), dtype=np.float32).reshape(len(column), lengths[0])
    if not np.isfinite(flat).all():
        row = int(np.argmax(~np.isfinite(flat).all(axis=1)))
        raise TableError(f"embeddings: row {row + 1} has a value that is not finite")
    return flat


def attribute_columns(table: pa.Table, image_ids: NDArray[Any]) -> dict[str, NDArray[np.str_]]:
    """Every attribute as one value an image, "" where nobody said; the same image said to be both is an error."""
    place = {name: at for at, name in enumerate(image_ids.tolist())}
    found: dict[str, list[str]] = {}
    columns = (table[name].to_pylist() for name in ("image_id", "name", "value"))
    for image, name, value in zip(*columns, strict=True):
        at = place.get(image)
        if at is None or value is None:
            continue
        if len(value) > MOST_GROUP:
            raise TableError(
                f"attributes: a value of {shorten(name, 60)!r} is too long", got=f"{len(value):,} letters",
                allowed=f"at most {MOST_GROUP:,}", next_step="use one or two words per attribute",
            )  # fmt: skip
        if name not in found:
            found[name] = [""] * len(image_ids)
        values = found[name]
        if values[at] not in ("", value):
            raise TableError(
                f"attributes: {name!r} has two values for one image", got=f"{values[at]!r} and {value!r}",
                next_step="keep one row for each image and attribute",
            )  # fmt: skip
        values[at] = value
    return {name: np.array(values, dtype=str) for name, values in sorted(found.items())}


def confirmation_half(data: PredictionArrays, seed: int) -> NDArray[np.bool_]:
    """True for the rows of the half of the patients on which things are confirmed; the others are to discover on.

    Dealt by patient in the order of their ids, so the order of rows plays no part.
    """
    n = len(data.patient_ids)
    confirm = np.zeros(n, dtype=bool)
    confirm[np.random.default_rng([seed, 97]).permutation(n)[: n // 2]] = True
    return confirm[data.patients]


# PREDICTION, characteristics and IMAGE rows -> who is in each picture that has a vector: patient, split, sex, race.
#
# What one table does not say, the next one may. Where the predictions are of one dataset all images belong to it;
# where they are of several, each is looked at on its own, as everywhere.

Texts = NDArray[np.str_]

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
                _check_one_patient(known[name], said)
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
        _check_one_patient(order[np.minimum(first, last)], order[last])
    return np.asarray(order[last], dtype=str)


def _check_one_patient(one: Texts, other: Texts) -> None:
    if ((one != "") & (other != "") & (one != other)).any():
        raise TableError(
            "encoding: one image has two patients",
            next_step="use the same image ids in predictions, characteristics and images",
        )


def _classes(values: Texts) -> Texts:
    lowered = np.char.lower(np.char.strip(values))
    return np.where(np.isin(lowered, NO_VALUE), "", values)
