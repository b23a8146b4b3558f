"""Long vectors and labels -> a layer of sigmoids fitted to the labels, without torch: SLICES' reduction.

SLICES puts a layer of 128 sigmoids before the head of the model and trains it as the model was. Here the layer and a
logistic head are fitted to the vectors as they are, with scikit-learn, until patients that were held out are predicted
no better, and the best weights are kept.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit

from cxrhf.audits.one_thread import one_thread
from cxrhf.audits.sample import Progress
from cxrhf.audits.slices.found import Floats, own_order, ticker
from cxrhf.errors import CxrhfError

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
    held = held_out(patients, y, seed)
    if len(np.unique(y[~held])) < 2 or not held.any():
        raise CxrhfError(
            "a layer cannot be fitted to one class alone", got=f"{int((y == 1).sum())} positives of {len(y)} images",
            next_step="keep the full length of the embeddings with reduce",
        )  # fmt: skip
    # The order in which rows come must not matter: only that of what stands in them.
    order = own_order(np.column_stack([vectors, y, held]))
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


def held_out(patients: NDArray[np.generic], y: Floats, seed: int) -> NDArray[np.bool_]:
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
