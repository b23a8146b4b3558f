"""PREDICTION -> aligned matrices, images x findings, for one model.

Images are sorted by id and patients numbered in the order of their ids, so that no number depends on the order of the
rows in a file. NaN in `y` masks a cell: no label, or no prediction of that finding for that image.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cxrhf.errors import TableError

# Letters up to which numpy's own text is taken, where each takes the room of the longest; else Python's strings.
_SHORT = 64
_BLOCK = 100_000


@dataclass(frozen=True, slots=True)
class PredictionArrays:
    """One model's predictions as numpy arrays; n images, k findings."""

    model: str
    seed: int | None
    findings: tuple[str, ...]
    image_ids: np.ndarray  # (n,) of str
    patient_ids: np.ndarray  # (patients,) of str, sorted
    patients: np.ndarray  # (n,) int64, positions in patient_ids
    y: np.ndarray  # (n, k) float64: 1, 0, NaN = masked
    p: np.ndarray  # (n, k) float64: prob, or the score where is_probability is False
    is_probability: np.ndarray  # (k,) bool: False = ranking metrics only
    pretest: np.ndarray | None  # (n, k) float64, None = the table has none
    mention: np.ndarray | None  # (n, k) float64: 1, 0, NaN
    weight: np.ndarray | None  # (n, k) float64
    age: np.ndarray | None  # (n,) float64
    groups: dict[str, np.ndarray]  # "sex", "race", "view", "split", "dataset" where given: (n,) of str, "" = missing


class _Coded(NamedTuple):
    codes: np.ndarray
    values: pa.Array


def arrays(predictions: pa.Table, model: str | None = None, *, seed: int | None = None) -> PredictionArrays:
    """The matrices of one model (and training seed). Several of either must be told apart by name."""
    table = _choose(_choose(predictions, "model", model), "seed", seed)
    if table.num_rows == 0:
        raise TableError("the predictions have no rows", next_step="check how the table was made")
    image, patient = _sorted_codes(table["image_id"]), _sorted_codes(table["patient_id"])
    finding = _codes(table["finding"])  # in the order of the table: people ordered their columns for a reason
    n, k = len(image.values), len(finding.values)
    cell = image.codes * k + finding.codes
    if np.bincount(cell).max() > 1:
        raise TableError(
            "the predictions have two rows for one image, finding and model",
            next_step="read the file with cxrhf.read_predictions, which names the rows",
        )

    def matrix(name: str) -> np.ndarray:
        out = np.full(n * k, np.nan)
        out[cell] = _floats(table[name])
        return out.reshape(n, k)

    def optional(name: str) -> np.ndarray | None:
        return matrix(name) if table[name].null_count < table.num_rows else None

    def per_image(values: np.ndarray) -> np.ndarray:
        """One value an image, whatever the order of its rows; blanks give way to what is there."""
        if values.dtype.kind == "f":
            out = np.full(n, np.nan)
            np.fmax.at(out, image.codes, values)
            return out
        names, place = np.unique(values, return_inverse=True)
        last = np.zeros(n, dtype=np.int64)
        np.maximum.at(last, image.codes, place.reshape(-1))
        return np.asarray(names[last])

    prob, score = matrix("prob"), matrix("logit")
    is_probability = ~np.isnan(prob).all(axis=0) | np.isnan(score).all(axis=0)
    p = np.where(is_probability, prob, score)
    y = np.where(np.isnan(p), np.nan, matrix("label"))
    given = [name for name in ("sex", "race", "view", "split", "dataset") if table[name].null_count < table.num_rows]
    seeds = pc.unique(table["seed"]).to_pylist()
    return PredictionArrays(
        model=table["model"][0].as_py(),
        seed=seeds[0],
        findings=tuple(finding.values.to_pylist()),
        image_ids=_texts(image.values),
        patient_ids=_texts(patient.values),
        patients=per_image(patient.codes),
        y=y,
        p=p,
        is_probability=is_probability,
        pretest=optional("pretest"),
        mention=optional("mention"),
        weight=optional("weight"),
        age=per_image(_floats(table["age"])) if table["age"].null_count < table.num_rows else None,
        groups={name: per_image(_names(table[name])) for name in given},
    )


def _choose(table: pa.Table, name: str, wanted: str | int | None) -> pa.Table:
    there = pc.unique(table[name]).to_pylist()
    if wanted is None and len(there) > 1:
        raise TableError(
            "the predictions",
            allowed=f"one {name}",
            got=f"{len(there)} ({', '.join(str(each) for each in there[:10])})",
            next_step=f"choose one: arrays(predictions, {name}={there[0]!r})",
        )
    if wanted is None or there == [wanted]:
        return table
    if wanted not in there:
        raise TableError(
            f'the predictions have no {name} "{wanted}"', allowed=f"one of {', '.join(map(str, there[:10]))}"
        )
    return table.filter(pc.equal(table[name], wanted))


def _codes(column: pa.ChunkedArray) -> _Coded:
    coded = column.dictionary_encode().combine_chunks()
    return _Coded(coded.indices.to_numpy(zero_copy_only=False).astype(np.int64), coded.dictionary)


def _sorted_codes(column: pa.ChunkedArray) -> _Coded:
    coded = _codes(column)
    order = pc.sort_indices(coded.values).to_numpy()
    rank = np.empty(len(order), dtype=np.int64)
    rank[order] = np.arange(len(order))
    return _Coded(rank[coded.codes], coded.values.take(pa.array(order)))


def _texts(values: pa.Array) -> np.ndarray:
    longest = max(pc.max(pc.utf8_length(values)).as_py() or 0, 1)
    out = np.empty(len(values), dtype=f"U{longest}" if longest <= _SHORT else object)
    for start in range(0, len(values), _BLOCK):
        out[start : start + _BLOCK] = values.slice(start, _BLOCK).to_pylist()
    return out


def _floats(column: pa.ChunkedArray) -> np.ndarray:
    return np.asarray(column.cast(pa.float64()).to_numpy(), dtype=np.float64)


def _names(column: pa.ChunkedArray) -> np.ndarray:
    coded = _codes(column.fill_null(""))
    return np.array(coded.values.to_pylist())[coded.codes]
