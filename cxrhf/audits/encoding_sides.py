"""Images with vectors and one target -> those that teach a new layer, those it is asked about, and the classes.

Layers learn from the images of the split train and are asked about those of the split test; where no training image has
a vector, one half of the evaluated patients teaches and the other is asked about. Never in folds: layers that share
most of their patients have intervals that are too narrow (labels dealt at random to 621 images: 29 of 200 intervals
missed .5; with halves 10 of 200).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cxrhf.audits.people import People, Texts
from cxrhf.metrics.estimates import FEW

Flags = NDArray[np.bool_]
Integers = NDArray[np.intp]

TRAIN, TEST = ("train", "training"), "test"
# Classes of one target, and images that teach a layer: more take longer and say the same.
MOST_CLASSES, MOST_IMAGES = 12, 20_000


class Sides(NamedTuple):
    """Places among the people of the images that teach and of those asked about; `how` they were parted."""

    learn: Integers
    ask: Integers
    classes: list[str]
    how: str


def sides_of(group: People, at: Integers, target: str, seed: int, notes: list[str]) -> Sides | None:
    """Both sides of one target among the images `at`; None where there is nothing to tell apart, said in `notes`."""
    value = group.values[target]
    known = at[value[at] != ""]
    if not len(known):
        notes.append(f"encoding: no SPLIT for {target}: no image with an embedding has a value")
        return None
    learn, ask, how = _parted(group, known, seed, notes)
    counts = {
        name: min(len(np.unique(group.patients[side[value[side] == name]])) for side in (learn, ask))
        for name in np.unique(value[known]).tolist()
    }
    enough = [name for name in counts if counts[name] >= FEW]
    if len(enough) < 2:
        notes.append(
            f"encoding: no SPLIT for {target}: fewer than two classes have {FEW} patients to train on and {FEW} to "
            "evaluate on"
        )
        return None
    classes = sorted(sorted(enough, key=lambda name: -counts[name])[:MOST_CLASSES])
    if left := len(counts) - len(classes):
        why = f"fewer than {FEW} patients to train or evaluate on"
        if len(enough) > MOST_CLASSES:
            why = f"only the {MOST_CLASSES} with most patients are used"
        notes.append(f"encoding: SPLIT for {target}: {left} of {len(counts)} classes are excluded: {why}")
    inside = np.isin(value, classes)
    return Sides(learn[inside[learn]], ask[inside[ask]], classes, how)


def _parted(group: People, rows: Integers, seed: int, notes: list[str]) -> tuple[Integers, Integers, str]:
    split, patients = group.splits, group.patients
    tested = bool((split == TEST).any())
    ask = rows[split[rows] == TEST] if tested else rows
    learn = rows[np.isin(split[rows], TRAIN)] if tested else rows[:0]
    if not len(learn):
        teaches = _half(patients, np.flatnonzero(split == TEST) if tested else np.arange(len(split)), seed)
        where = " of the split test" if tested else ""
        return ask[teaches[ask]], ask[~teaches[ask]], f"one half{where}, evaluated on the other"
    both = np.isin(patients[learn], np.unique(patients[ask]))
    if both.any():
        notes.append(
            f"encoding: {int(both.sum()):,} training images are excluded because their patients are in the split test"
        )
        learn = learn[~both]
    how, n = "the split train, evaluated on the split test", len(learn)
    if n > MOST_IMAGES:
        names, place = np.unique(patients[learn], return_inverse=True)
        turn = np.random.default_rng([seed, 67]).permutation(len(names))[place]
        learn = np.sort(learn[np.argsort(turn, kind="stable")[:MOST_IMAGES]])
        how = f"of {n:,} of {how}"
    return learn, ask, how


def _half(patients: Texts, rows: Integers, seed: int) -> Flags:
    """True for images of the half of the patients that teaches; patients in the order of their ids."""
    names = np.unique(patients[rows])
    teaches = names[np.random.default_rng([seed, 61]).permutation(len(names))[: len(names) // 2]]
    return np.isin(patients, teaches)
