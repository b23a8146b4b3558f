"""IMAGE rows -> tasks and targets: what each output of the last layer stands for, and what it should say.

All tasks share one linear layer, so that every network is a plain classifier that others can load. Findings have an
output each (sigmoid); sex, race, view and age band have an output for each class (softmax over them). Targets are one
matrix of 1, 0 and -1: -1 is unknown, and unknown never counts. Classes are those of the training images.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from cxrhf.errors import ConfigError, did_you_mean
from cxrhf.tables.ages import AGE_BANDS, age_band
from cxrhf.tables.groups import NO_VALUE

Targets = NDArray[np.int8]
UNKNOWN = -1


@dataclass(frozen=True, slots=True)
class Task:
    """`labels`: each output is 1 or 0 on its own; `classes`: one of the outputs holds."""

    name: str
    kind: Literal["labels", "classes"]
    outputs: tuple[str, ...]


def names(tasks: Sequence[Task]) -> list[str]:
    """Every output of the last layer in order: a finding by its name, a class as `race=Black`.

    >>> names([Task("findings", "labels", ("edema",)), Task("sex", "classes", ("F", "M"))])
    ['edema', 'sex=F', 'sex=M']
    """
    return [each if task.kind == "labels" else f"{task.name}={each}" for task in tasks for each in task.outputs]


def columns(tasks: Sequence[Task]) -> list[tuple[Task, slice]]:
    """Where the outputs of each task stand in the last layer."""
    found, at = [], 0
    for task in tasks:
        found.append((task, slice(at, at + len(task.outputs))))
        at += len(task.outputs)
    return found


def make_tasks(table: pa.Table, wanted: Sequence[str], findings: Sequence[str]) -> tuple[list[Task], list[str]]:
    """The tasks that these training images can teach, and what was left out.

    A finding without a positive or without a negative, and an attribute with one value, cannot be learned: they are
    left out, which is said. Nothing left is an error.
    """
    tasks, notes = [], []
    for name in wanted:
        if name == "findings":
            kept = []
            for finding in findings:
                said = _unlearnable(table, finding)
                if said:
                    notes.append(f"{finding} is excluded: {said}")
                else:
                    kept.append(finding)
            if kept:
                tasks.append(Task("findings", "labels", tuple(kept)))
            continue
        classes = _classes(table, name)
        if len(classes) < 2:
            notes.append(f"{name} is excluded: training images have {len(classes) or 'no'} value of it")
        else:
            tasks.append(Task(name, "classes", tuple(classes)))
    if not tasks:
        raise ConfigError(
            f"no task can be learned from these images ({'; '.join(notes) or 'no findings'})",
            next_step="choose other --tasks or --findings, exclude less with --only, or use a build with more labels",
        )
    return tasks, notes


def check_findings(findings: Sequence[str], there: Sequence[str]) -> None:
    """A finding that the build does not have is an error with the nearest name."""
    for name in findings:
        if name not in there:
            raise ConfigError(
                f'the build has no finding "{name}"', allowed=", ".join(there), next_step=did_you_mean(name, there)
            )


def targets(table: pa.Table, tasks: Sequence[Task]) -> Targets:
    """images x outputs: 1, 0, or -1 where it is not known. Columns that a table lacks are unknown."""
    parts = []
    for task in tasks:
        if task.kind == "labels":
            parts += [_labels(table, finding)[:, None] for finding in task.outputs]
        else:
            place = _place(table, task)
            hot = (place[:, None] == np.arange(len(task.outputs))).astype(np.int8)
            hot[place < 0] = UNKNOWN
            parts.append(hot)
    if not parts:
        return np.empty((table.num_rows, 0), dtype=np.int8)
    return np.ascontiguousarray(np.concatenate(parts, axis=1), dtype=np.int8)


def shuffled(target: Targets, patients: Sequence[str], seed: int) -> Targets:
    """Each patient gets the labels of another patient, image by image: what is learned then is nothing.

    Whole patients are dealt, because images of one patient share labels: a permutation of rows alone would leave the
    patient's own habits in place. A patient with more images than the other has takes the other's again from the start.
    """
    _, place = np.unique(np.asarray(patients), return_inverse=True)
    count = int(place.max()) + 1 if len(place) else 0
    rng = np.random.default_rng([seed, 7])
    # A cycle through a random order: nobody keeps the own labels.
    order = rng.permutation(count)
    other = np.empty(count, dtype=np.int64)
    other[order] = np.roll(order, 1)
    rows = _rows_by_patient(place, count)
    out = target.copy()
    for mine, theirs in enumerate(other):
        given = rng.permutation(rows[theirs])
        out[rows[mine]] = target[given[np.arange(len(rows[mine])) % len(given)]]
    return out


def to_json(tasks: Sequence[Task]) -> list[dict[str, Any]]:
    """Tasks as plain values."""
    return [{"name": each.name, "kind": each.kind, "outputs": list(each.outputs)} for each in tasks]


def from_json(values: Sequence[Mapping[str, Any]]) -> list[Task]:
    """What `to_json` wrote."""
    return [Task(str(each["name"]), each["kind"], tuple(map(str, each["outputs"]))) for each in values]


def _rows_by_patient(place: NDArray[np.int64], count: int) -> list[NDArray[np.int64]]:
    order = np.argsort(place, kind="stable")
    return np.split(order, np.cumsum(np.bincount(place, minlength=count))[:-1])


def _labels(table: pa.Table, finding: str) -> NDArray[np.int8]:
    if finding not in table.column_names:
        return np.full(table.num_rows, UNKNOWN, dtype=np.int8)
    return np.asarray(pc.fill_null(table[finding].cast(pa.int8()), UNKNOWN), dtype=np.int8)


def _unlearnable(table: pa.Table, finding: str) -> str | None:
    label = _labels(table, finding)
    positive, negative = int((label == 1).sum()), int((label == 0).sum())
    if positive and negative:
        return None
    if not positive and not negative:
        return "no training image is labelled for it"
    return f"none of {positive + negative:,} labelled training images is {'positive' if not positive else 'negative'}"


def _values(table: pa.Table, name: str) -> list[str | None]:
    if name == "age_band":
        if "age" not in table.column_names:
            return [None] * table.num_rows
        ages = np.asarray(pc.fill_null(table["age"].cast(pa.float64()), float("nan")))
        return [AGE_BANDS[each] if each >= 0 else None for each in age_band(ages)]
    if name not in table.column_names:
        return [None] * table.num_rows
    given = table[name].cast(pa.string()).to_pylist()
    return [None if each is None or each.strip().lower() in NO_VALUE else each for each in given]


def _classes(table: pa.Table, name: str) -> list[str]:
    return sorted({each for each in _values(table, name) if each is not None})


def _place(table: pa.Table, task: Task) -> NDArray[np.int64]:
    at = {each: place for place, each in enumerate(task.outputs)}
    return np.array([at.get(each, UNKNOWN) if each else UNKNOWN for each in _values(table, task.name)], dtype=np.int64)
