"""PREDICTION rows -> arrays to calibrate with: findings one by one, the classes of a softmax task side by side."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from cxrhf.errors import TableError

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


class Rows(NamedTuple):
    """Columns of PREDICTION as arrays; NaN = null, weight 1 where there is none."""

    names: tuple[str, ...]
    finding: Integers
    image: Integers
    patient: Integers
    label: Floats
    logit: Floats
    weight: Floats


class TaskCells(NamedTuple):
    """The rows of a softmax task, images x classes; `place` is where a cell stands in the table, -1 = nowhere."""

    place: Integers
    logit: Floats
    label: Floats
    weight: Floats


def task_cells(given: Rows, task: str, classes: Integers) -> TaskCells:
    """Images x classes."""
    rows = np.flatnonzero(np.isin(given.finding, classes))
    column = np.searchsorted(classes, given.finding[rows])
    images, row = np.unique(given.image[rows], return_inverse=True)
    shape = (len(images), len(classes))
    place = np.full(shape, -1, dtype=np.int64)
    place[row, column] = rows
    if (place >= 0).sum() < len(rows):
        raise TableError(
            f"{task}: several rows have the same image and class", next_step="keep one row per image and class"
        )
    there = place >= 0
    weight = np.where(there, given.weight[place], np.nan)
    low, high = np.nanmin(weight, axis=1), np.nanmax(weight, axis=1)
    if (low != high).any():
        raise TableError(
            f"{task}: the rows of an image have different weights",
            next_step="give every row of an image the same weight",
        )
    logit, label = (np.where(there, each[place], np.nan) for each in (given.logit, given.label))
    return TaskCells(place, logit, label, low)


def tasks_of(names: tuple[str, ...]) -> dict[str, Integers]:
    """Softmax task -> the numbers of its outputs."""
    found: dict[str, list[int]] = {}
    for at, name in enumerate(names):
        if "=" in name:
            found.setdefault(name.partition("=")[0], []).append(at)
    return {task: np.array(numbers, dtype=np.int64) for task, numbers in found.items()}


def read_rows(table: pa.Table) -> Rows:
    findings, finding = _codes(table["finding"])
    weight = floats(table["weight"])
    return Rows(
        names=findings,
        finding=finding,
        image=_codes(table["image_id"])[1],
        patient=_codes(table["patient_id"])[1],
        label=floats(table["label"]),
        logit=floats(table["logit"]),
        weight=np.where(np.isnan(weight), 1.0, weight),
    )


def _codes(column: pa.ChunkedArray) -> tuple[tuple[str, ...], Integers]:
    """Distinct values, sorted, and the number of each row's: nothing depends on the order of the rows."""
    coded = column.dictionary_encode().combine_chunks()
    values = np.array(coded.dictionary.to_pylist(), dtype=object)
    order = np.argsort(values)
    rank = np.empty(len(order), dtype=np.int64)
    rank[order] = np.arange(len(order))
    return tuple(values[order]), rank[coded.indices.to_numpy(zero_copy_only=False)]


def floats(column: pa.ChunkedArray) -> Floats:
    return np.array(column.cast(pa.float64()).to_numpy(), dtype=np.float64)
