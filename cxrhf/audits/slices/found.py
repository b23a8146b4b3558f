"""Rows of one class -> the form in which every method takes them and hands back its slices.

A method sees vectors, labels and the model's probabilities of the rows to discover on, and returns a function that says
of any rows of that class how much they belong to each slice: slices are found on some patients and looked at on others.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit

from cxrhf.audits.sample import SECONDS, Progress, one_thread
from cxrhf.errors import CxrhfError

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


def no_slices(about: str) -> Found:
    """No slice at all, and why."""
    return Found(lambda vectors, y, p: np.empty((len(vectors), 0)), 0, HALF, about)


def least_rows(n: int) -> int:
    """The smallest slice that is worth a look: 1% of the rows, and never fewer than ten."""
    return max(10, -(-n // 100))


def end_slices(values: Floats) -> Callable[[Floats], Floats] | None:
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


def to_unit_variance(vectors: Floats) -> Callable[[Floats], Floats]:
    """Moves the rows to mean 0 and mean variance 1, all axes by one factor: distances keep their proportions."""
    middle = vectors.mean(axis=0)
    scale = np.sqrt(((vectors - middle) ** 2).mean()) or 1.0
    return lambda other: np.asarray((other - middle) / scale)


def content_order(rows: Floats) -> NDArray[np.intp]:
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


# Vectors -> a few axes: principal modes, and a plane by UMAP where that package is there.
#
# umap-learn is no dependency: where it cannot be imported, principal modes stand in for it, and `Plane.about` says
# so.

NEIGHBOURS = 15  # UMAP's own default


class Plane(NamedTuple):
    """`project`: vectors of any rows -> their places; `about`: which map it was and why."""

    project: Callable[[Floats], Floats]
    about: str


def modes(vectors: Floats, n: int) -> Callable[[Floats], Floats]:
    """The first n principal modes, fewer where there are fewer axes; their signs do not depend on the order of rows."""
    middle = vectors.mean(axis=0)
    apart = vectors - middle
    _, axes = np.linalg.eigh(apart.T @ apart)
    axes = axes[:, ::-1][:, :n]
    axes = axes * np.where(axes[np.abs(axes).argmax(axis=0), np.arange(axes.shape[1])] < 0, -1.0, 1.0)
    return lambda other: np.asarray((other - middle) @ axes)


def plane(vectors: Floats, *, seed: int, progress: Progress, wanted: str = "UMAP") -> Plane:
    """Two axes for the rows; `wanted` is the map that the method's authors took."""
    varied = len(np.unique(vectors, axis=0)) > 2 * NEIGHBOURS
    if vectors.shape[1] <= 2:
        return Plane(to_unit_variance(vectors), f"no map: the embeddings have {vectors.shape[1]} dimensions")
    if varied and find_spec("umap") is not None:
        progress("a plane by UMAP")
        scale = to_unit_variance(vectors)
        fitted = import_module("umap").UMAP(
            n_components=2, n_neighbors=NEIGHBOURS, random_state=seed % 2**32, n_jobs=1
        )  # fmt: skip
        fitted.fit(scale(vectors))
        about = "UMAP to 2 axes" if wanted == "UMAP" else f"UMAP to 2 axes instead of {wanted}"
        return Plane(lambda other: np.asarray(fitted.transform(scale(other)), dtype=np.float64), about)
    if find_spec("umap") is None:
        why = "umap-learn is not installed" if wanted == "UMAP" else f"{wanted} and UMAP are not installed"
    else:
        why = f"too few different embeddings for {wanted}"
    return Plane(modes(vectors, 2), f"{why}: two principal modes instead")


# Long vectors and labels -> a layer of sigmoids fitted to the labels, without torch: SLICES' reduction.
#
# SLICES puts a layer of 128 sigmoids before the head of the model and trains it as the model was. Here the layer and
# a logistic head are fitted to the vectors as they are, with scikit-learn, until patients that were held out are
# predicted no better, and the best weights are kept.

SIZE = 128
HELD_OUT = 0.2  # of the patients
EPOCHS, PATIENCE = 100, 6
BATCH, STEP = 64, 1e-3
LEAST_PATIENTS = 10


def fit_reduction(
    vectors: Floats, y: Floats, patients: ArrayLike, *, size: int = SIZE, seed: int, progress: Progress
) -> Callable[[Floats], Floats]:
    """The function from vectors to the activations of the layer, all between 0 and 1.

    `y` is 1 or 0 for every row: rows without a label are left out before.
    """
    from sklearn.neural_network import MLPClassifier

    vectors, y, patients = np.asarray(vectors, np.float64), np.asarray(y), np.asarray(patients)
    held = hold_out_patients(patients, y, seed)
    if len(np.unique(y[~held])) < 2 or not held.any():
        raise CxrhfError(
            "a layer cannot be fitted to one class alone", got=f"{int((y == 1).sum())} positives of {len(y)} images",
            next_step="keep the full length of the embeddings with reduce",
        )  # fmt: skip
    # The order in which rows come must not matter: only that of what stands in them.
    order = content_order(np.column_stack([vectors, y, held]))
    x, label, held = vectors[order], y[order].astype(np.int64), held[order]
    mean, spread = x[~held].mean(axis=0), x[~held].std(axis=0)
    spread = np.where(spread > 1e-12 * np.maximum(1, np.abs(mean)), spread, 1.0)
    x = ((x - mean) / spread).astype(np.float32)
    layers = MLPClassifier(
        (size,), activation="logistic", batch_size=min(BATCH, int((~held).sum())), learning_rate_init=STEP,
        random_state=np.random.RandomState(seed % 2**32),
    )  # fmt: skip
    tick, best, waited = ticker(progress), np.inf, 0
    kept: tuple[NDArray[np.float32], NDArray[np.float32]] | None = None
    for epoch in range(EPOCHS):
        with warnings.catch_warnings(), one_thread():
            warnings.simplefilter("ignore")  # one epoch at a time never converges
            layers.partial_fit(x[~held], label[~held], classes=[0, 1])
        loss = _loss(label[held], layers.predict_proba(x[held])[:, 1])
        tick(f"epoch {epoch + 1} of at most {EPOCHS}, loss {loss:.4f} on held-out patients")
        if loss < best - 1e-5:
            best, waited = loss, 0
            kept = layers.coefs_[0].copy(), layers.intercepts_[0].copy()
        else:
            waited += 1
        if waited == PATIENCE:
            break
    assert kept is not None
    coefficients, intercepts = (each.astype(np.float64) for each in kept)
    return lambda other: np.asarray(expit((np.asarray(other) - mean) / spread @ coefficients + intercepts))


def hold_out_patients(patients: NDArray[np.generic], y: Floats, seed: int) -> NDArray[np.bool_]:
    """True for the rows of a fifth of the patients with a positive and of a fifth of the others, whole patients."""
    named, code = np.unique(patients, return_inverse=True)
    if len(named) < LEAST_PATIENTS:
        raise CxrhfError(
            "too few patients to fit a layer to", got=len(named), allowed=f"{LEAST_PATIENTS} or more",
            next_step="keep the full length of the embeddings with reduce",
        )  # fmt: skip
    any_positive = np.bincount(code, y == 1) > 0
    rng = np.random.default_rng([seed, 233])
    held = np.zeros(len(named), dtype=bool)
    for stratum in (any_positive, ~any_positive):
        members = np.flatnonzero(stratum)
        held[rng.permutation(members)[: round(HELD_OUT * len(members))]] = True
    return np.asarray(held[code])


def _loss(y: NDArray[np.int64], p: NDArray[np.floating]) -> float:
    """Mean log loss."""
    p = np.clip(p.astype(np.float64), 1e-7, 1 - 1e-7)
    return float(-np.where(y == 1, np.log(p), np.log1p(-p)).mean())
