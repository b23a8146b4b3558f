"""Images, their splits or a number of folds -> who teaches a new layer, who stops it, whom it is asked about.

Patients are never cut: those a layer is asked about have no image among those that teach or stop it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from cxrhf.errors import ConfigError, LeakageError, RunError
from cxrhf.models.seeding import numbers
from cxrhf.models.tasks import Targets, Task, columns

Integers = NDArray[np.int64]
TRAIN, VALIDATE, TEST = "train", "validate", "test"
HELD = 8  # where there is no validation split, one in so many of the learning patients stops the layers
FEWEST = 10  # patients of a class below which it is left out


@dataclass(frozen=True, slots=True)
class Part:
    """Rows that teach a layer, rows that say when it is best, and rows that it is asked about."""

    learn: Integers
    held: Integers
    asked: Integers


def split_parts(table: pa.Table, goal: Targets, seed: int) -> tuple[list[Part], list[str]]:
    """Learn on train, stop on validate, ask about validate and test; and what must be said of it."""
    split = np.asarray(table["split"].to_pylist(), dtype=object)
    rows = {name: np.flatnonzero(split == name) for name in (TRAIN, VALIDATE, TEST)}
    for name in (TRAIN, TEST):
        if not len(rows[name]):
            there = ", ".join(sorted({str(each) for each in split if each is not None})) or "none"
            raise RunError(
                f"the build has no split {name} (splits: {there})",
                next_step="pass --folds 5 to cross-validate over all images by patient",
            )
    patients = patients_of(table)
    _apart(patients, rows)
    if len(rows[VALIDATE]):
        return [Part(rows[TRAIN], rows[VALIDATE], np.concatenate([rows[VALIDATE], rows[TEST]]))], []
    learn, held = _held(patients, goal, rows[TRAIN], seed)
    note = (
        f"there is no split {VALIDATE}, so one in {HELD} training patients is used for early stopping and to choose "
        "thresholds"
    )
    return [Part(learn, held, rows[TEST])], [note]


def fold_parts(table: pa.Table, goal: Targets, folds: int, seed: int) -> list[Part]:
    """Every row is asked about once, by a layer whose learning and stopping rows are of other patients."""
    patients = patients_of(table)
    names, place = np.unique(patients, return_inverse=True)
    if len(names) < folds * 2:
        raise ConfigError(
            "--folds", got=f"{folds} for {len(names):,} patients", allowed="at least two patients per fold"
        )
    fold = deal(names.tolist(), _habits(place, len(names), goal), folds, seed, "fold")[place]
    parts = []
    for each in range(folds):
        rest = np.flatnonzero(fold != each)
        learn, held = _held(patients, goal, rest, seed)
        parts.append(Part(learn, held, np.flatnonzero(fold == each)))
    for part in parts:
        inside = set(patients[part.learn]) | set(patients[part.held])
        if inside & set(patients[part.asked]) or set(patients[part.learn]) & set(patients[part.held]):
            raise LeakageError("a patient is in the training and the test images of a fold", counts={"folds": folds})
    return parts


def deal(names: list[str], habits: NDArray[np.int8], n: int, seed: int, purpose: str) -> Integers:
    """A pile from 0 to n - 1 for each patient: piles differ by one patient at most, and hold the same kinds of them.

    Patients are put in order by what is known of them (`habits`, the first column first), those alike by chance, and
    dealt round. The order in which they come plays no part.

    >>> deal(["a", "b", "c", "d"], np.array([[1], [0], [1], [0]], dtype=np.int8), 2, 0, "fold")[[0, 2]].sum()
    np.int64(1)
    """
    drawn = numbers(seed, "probe", purpose, ids=names)
    order = np.lexsort((drawn, *habits.T[::-1]))
    pile = np.empty(len(names), dtype=np.int64)
    pile[order] = np.arange(len(names)) % n
    return pile


def enough(table: pa.Table, tasks: list[Task], goal: Targets, learn: Integers) -> tuple[list[Task], list[str]]:
    """The tasks without classes and findings that too few learning patients have; and what was left out."""
    _, place = np.unique(patients_of(table)[learn], return_inverse=True)
    kept, notes = [], []
    for task, at in columns(tasks):
        outputs = []
        for name, label in zip(task.outputs, goal[learn, at].T, strict=True):
            sides = [len(np.unique(place[label == side])) for side in ((1, 0) if task.kind == "labels" else (1,))]
            what = name if task.kind == "labels" else f"{task.name}={name}"
            if min(sides) >= FEWEST:
                outputs.append(name)
            else:
                side = "with" if sides[0] < FEWEST else "without"
                whose = f"{side} it" if task.kind == "labels" else "of it"
                notes.append(
                    f"{what} is excluded: {min(sides)} training patients {whose}, at least {FEWEST} are required"
                )
        if len(outputs) >= (1 if task.kind == "labels" else 2):
            kept.append(Task(task.name, task.kind, tuple(outputs)))
        elif outputs:
            notes.append(f"{task.name} is excluded: only one class remains")
    if not kept:
        raise ConfigError(
            f"no target has enough training patients ({'; '.join(notes)})",
            next_step="choose other --targets or a larger build",
        )
    return kept, notes


def patients_of(table: pa.Table) -> NDArray[np.str_]:
    """The patient of each row."""
    return np.asarray(table["patient_id"].cast(pa.string()).to_pylist(), dtype=np.str_)


def all_asked(table: pa.Table) -> pa.Table:
    """The same images, all of the split test: what cross-fitted layers say of them is said of strangers."""
    rest = table.drop_columns("split") if "split" in table.column_names else table
    return rest.append_column("split", pa.repeat(pa.scalar(TEST), table.num_rows))


def is_test(table: pa.Table) -> NDArray[np.bool_]:
    """The rows that results are made of."""
    return np.asarray(pc.fill_null(pc.equal(table["split"], TEST), False))


def _held(patients: NDArray[np.str_], goal: Targets, rows: Integers, seed: int) -> tuple[Integers, Integers]:
    """Learning rows, and those of one in HELD patients that stop the layers."""
    names, place = np.unique(patients[rows], return_inverse=True)
    if len(names) < 2:
        raise ConfigError("training patients", got=f"{len(names):,}", allowed="at least 2")
    pile = deal(names.tolist(), _habits(place, len(names), goal[rows]), min(HELD, len(names)), seed, "held")
    held = pile[place] == 0
    return rows[~held], rows[held]


def _habits(place: Integers, n: int, goal: Targets) -> NDArray[np.int8]:
    """patients x outputs: 1 if any image has it, 0 if none does, -1 if nothing is known."""
    found = np.full((n, goal.shape[1]), -1, dtype=np.int8)
    np.maximum.at(found, place, goal)
    return found


def _apart(patients: NDArray[np.str_], rows: dict[str, Integers]) -> None:
    """A patient on both sides would let a layer recognise people instead of what it is asked about."""
    sets = {name: set(patients[at]) for name, at in rows.items()}
    counts = {
        f"{one} and {other}": len(sets[one] & sets[other])
        for one, other in ((TRAIN, TEST), (TRAIN, VALIDATE), (VALIDATE, TEST))
    }
    if any(counts.values()):
        said = ", ".join(f"{count:,} in {which}" for which, count in counts.items() if count)
        raise LeakageError(
            f"patients are in two splits: {said}",
            counts=counts,
            next_step="build the dataset again (cxrhf build splits by patient), or pass --folds 5 to ignore splits",
        )
