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
from cxrhf.schema import PredictionArrays
from cxrhf.tables.checks import MOST_GROUP

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
class Beside:
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


def beside(material: Material, data: PredictionArrays, name: str, seed: int | None, notes: list[str]) -> Beside:
    """What lies beside one sample; what had to be taken from elsewhere is said in `notes`."""
    layers: dict[str | None, Layer] = {}
    if material.embeddings is not None and material.embeddings.num_rows:
        chosen, whose = _of_model(material.embeddings, name, seed, notes)
        for finding in pc.unique(chosen["finding"]).to_pylist():
            column = chosen["finding"]
            rows = chosen.filter(pc.is_null(column) if finding is None else pc.equal(column, finding))
            layer = _layer(rows, data, whose)
            if len(layer.at):
                layers[finding] = layer
        if chosen.num_rows and not layers:
            notes.append(f"{name}: none of its images has an embedding")
    attributes = {} if material.attributes is None else attribute_columns(material.attributes, data.image_ids)
    return Beside(layers, attributes, material.prevalence)


def _of_model(table: pa.Table, name: str, seed: int | None, notes: list[str]) -> tuple[pa.Table, str]:
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


def halves(data: PredictionArrays, seed: int) -> NDArray[np.bool_]:
    """True for the rows of the half of the patients on which things are confirmed; the others are to discover on.

    Dealt by patient in the order of their ids, so the order of rows plays no part.
    """
    n = len(data.patient_ids)
    confirm = np.zeros(n, dtype=bool)
    confirm[np.random.default_rng([seed, 97]).permutation(n)[: n // 2]] = True
    return confirm[data.patients]
