"""Rows of one class -> the form in which every method takes them and hands back its slices.

A method sees vectors, labels and the model's probabilities of the rows to discover on, and returns a function that says
of any rows of that class how much they belong to each slice: slices are found on some patients and looked at on others.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from cxrhf.audits.sample import SECONDS, Progress

Floats = NDArray[np.float64]
Weights = Callable[[Floats, Floats, Floats], Floats]
# A row that belongs to a kernel, an end of a direction or a kept component belongs there more than not.
HALF = 0.5
ENDS = 0.1  # share of the rows at each end of a direction


class Seen(NamedTuple):
    """Rows of one class to discover on: vectors (n, d), labels (all 1 or all 0), the model's probabilities."""

    vectors: Floats
    y: Floats
    p: Floats

    @property
    def error(self) -> Floats:
        """Squared error of each row."""
        return np.asarray((self.y - self.p) ** 2)


class Found(NamedTuple):
    """What a method found.

    `weights`: vectors, y, p of any rows of the class -> (rows, slices) in [0, 1], how much a row belongs to each slice.
    `floor`: a row belongs to the slice of its largest weight if that is at least so large; 0 where everybody belongs
    somewhere. `about`: what was fitted, with which choices, and what was put in place of what.
    """

    weights: Weights
    n_slices: int
    floor: float
    about: str


def assign(weights: Floats, floor: float) -> NDArray[np.int64]:
    """The slice of each row, -1 where it belongs to none.

    >>> assign(np.array([[0.9, 0.1], [0.2, 0.3]]), 0.5).tolist()
    [0, -1]
    """
    if weights.shape[1] == 0:
        return np.full(len(weights), -1, dtype=np.int64)
    best = weights.argmax(axis=1)
    return np.where(weights[np.arange(len(best)), best] >= floor, best, -1)


def nothing(about: str) -> Found:
    """No slice at all, and why."""
    return Found(lambda vectors, y, p: np.empty((len(vectors), 0)), 0, HALF, about)


def least_rows(n: int) -> int:
    """The smallest slice that is worth a look: 1% of the rows, and never fewer than ten."""
    return max(10, -(-n // 100))


def ends(values: Floats) -> Callable[[Floats], Floats] | None:
    """Values of the rows seen -> weights of two slices: the tenth with the highest values, and that with the lowest.

    The weight is .5 at the cut and runs with the value, so the farthest rows have the largest. None where the values
    do not differ enough for two ends.
    """
    low, high = np.quantile(values, [ENDS, 1 - ENDS])
    spread = values.std()
    if not low < high or spread <= 1e-9 * np.abs(values).max():
        return None

    def weights(other: Floats) -> Floats:
        return np.asarray(expit(np.column_stack([other - high, low - other]) / spread))

    return weights


def evenly(vectors: Floats) -> Callable[[Floats], Floats]:
    """Moves the rows to mean 0 and mean variance 1, all axes by one factor: distances keep their proportions."""
    middle = vectors.mean(axis=0)
    scale = np.sqrt(((vectors - middle) ** 2).mean()) or 1.0
    return lambda other: np.asarray((other - middle) / scale)


def own_order(rows: Floats) -> NDArray[np.intp]:
    """An order that depends on what stands in the rows alone; rows that are equal are interchangeable."""
    whole = np.ascontiguousarray(rows + 0.0)  # -0 becomes 0
    return np.argsort(whole.view(np.dtype((np.void, whole.itemsize * whole.shape[1]))).ravel(), kind="stable")


def ticker(progress: Progress) -> Progress:
    """The same progress, but at most every few seconds."""
    said = time.monotonic()

    def tick(text: str) -> None:
        nonlocal said
        if time.monotonic() - said > SECONDS:
            said = time.monotonic()
            progress(text)

    return tick
