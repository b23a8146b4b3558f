"""Vectors and classes of images -> a new linear layer learned on some patients, and what it says of others.

SPLIT of ENCODING without torch: multinomial logistic regression with a ridge penalty, on vectors in units of their
spread over the learning images. The penalty, and the thresholds at which a class is called, come from folds of patients
within the learning images, so nothing is known of those that are asked about.

How it is fitted: vectors are turned to their principal axes, where the Gram matrix, and with it an upper bound of the
curvature, is diagonal. Steps by that bound go downhill in all folds at once, with momentum (Nesterov's, begun anew in a
fold where it points uphill): a step is two products of matrices, whatever the number of folds and classes. A Newton
step (crossfit.py) on 1,024 features would cost some thousand of them.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from cxrhf.metrics.operating import youden_threshold

Floats = NDArray[np.float64]
Singles = NDArray[np.float32]
Flags = NDArray[np.bool_]
Integers = NDArray[np.int64]

FOLDS = 5
# Strong to weak: a penalty of 300 expects coefficients (log odds a standard deviation) of some 0.06.
PENALTIES = (30_000.0, 3_000.0, 300.0, 30.0, 3.0)
# Log loss an image that a fit may leave to gain, and steps after which it ends anyway.
_LEFT, _STEPS = 1e-8, 2_000
# A dimension whose spread is less than this share of its size is constant but for rounding.
_CONSTANT = 1e-5
_AT_ONCE = 8192  # rows


class Layer(NamedTuple):
    """A linear layer on raw vectors: weights (dimensions x classes); the threshold of each class with the largest J."""

    weight: Floats
    bias: Floats
    thresholds: Floats
    penalty: float

    def probability(self, vectors: Singles) -> Floats:
        """Of every class: rows x classes."""
        starts = range(0, len(vectors), _AT_ONCE)
        scores = [vectors[at : at + _AT_ONCE].astype(np.float64) @ self.weight + self.bias for at in starts]
        # Rounded, because equal vectors must give equal numbers, wherever they stand in the product.
        return np.asarray(softmax(np.round(np.concatenate(scores), 9), axis=1), dtype=np.float64)


class Axes(NamedTuple):
    """Learning rows in units of spread on their principal axes (`rows`), the Gram matrix there, and the way back."""

    rows: Singles
    gram: Floats
    back: Floats  # dimensions x axes
    mean: Floats


def turn(vectors: Singles) -> Axes:
    """Learning vectors on their principal axes."""
    mean, spread = vectors.mean(axis=0, dtype=np.float64), vectors.std(axis=0, dtype=np.float64)
    moving = spread > _CONSTANT * np.abs(mean)
    scaled = (vectors[:, moving] - mean[moving]) / spread[moving]
    if scaled.shape[1] <= len(scaled):
        gram, axes = np.linalg.eigh(scaled.T @ scaled)
    else:  # fewer rows than dimensions: no axes but those the rows span
        gram, across = np.linalg.eigh(scaled @ scaled.T)
        axes = scaled.T @ (across / np.sqrt(np.maximum(gram, np.finfo(float).tiny)))
    kept = gram > 1e-9 * gram.max(initial=0.0)
    back = np.zeros((len(mean), int(kept.sum())))
    back[moving] = axes[:, kept] / spread[moving, None]
    return Axes((scaled @ axes[:, kept]).astype(np.float32), gram[kept], back, mean)


def learn_layer(axes: Axes, code: Integers, patients: Integers, n_classes: int, seed: int) -> Layer:
    """A layer that tells the classes (`code`, the class of each learning row) apart."""
    fold = fold_patients(code, patients, seed)
    known = code[:, None] == np.arange(n_classes)
    others = fold[:, None] != np.arange(FOLDS)
    found = np.zeros((len(axes.gram) + 1, FOLDS, n_classes))
    found[0] = np.log(known.mean(axis=0))
    best, chosen, least, held = found, PENALTIES[0], np.inf, known.astype(np.float32)
    for penalty in PENALTIES:
        found = _fit(axes, known, others, penalty, found)
        said = _said(axes.rows, found)[np.arange(len(fold)), fold]  # by layers that did not learn from the patient
        loss = float(-np.log(np.maximum(said[known], 1e-30)).sum(dtype=np.float64))
        if loss >= least:
            break  # weaker penalties fit other patients worse still
        best, chosen, least, held = found, penalty, loss, said
    thresholds = [youden_threshold(known[:, k].astype(np.float64), held[:, k]) for k in range(n_classes)]
    layer = _fit(axes, known, np.ones((len(code), 1), dtype=bool), chosen, best.mean(axis=1, keepdims=True))[:, 0]
    weight = axes.back @ layer[1:]
    return Layer(weight, layer[0] - axes.mean @ weight, np.array(thresholds), chosen)


def fold_patients(code: Integers, patients: Integers, seed: int) -> Integers:
    """The fold of each row: patients whole, those of one class dealt round, so that every fold has its share."""
    names, place = np.unique(patients, return_inverse=True)
    kind = np.zeros(len(names), dtype=np.int64)
    np.maximum.at(kind, place, code)
    chance = np.random.default_rng([seed, 59]).permutation(len(names))
    fold = np.empty(len(names), dtype=np.int64)
    fold[np.lexsort((chance, kind))] = np.arange(len(names)) % FOLDS
    return fold[place]


def _fit(axes: Axes, known: Flags, inside: Flags, penalty: float, start: Floats) -> Floats:
    """Coefficients (1 + axes, fits, classes) with the least log loss over `inside` (rows x fits) + penalty/2 squares.

    The first are intercepts and not penalised.
    """
    n, (width, fits, classes) = len(known), start.shape
    ridge = np.full((width, 1, 1), penalty)
    ridge[0] = 0.0
    bound = np.r_[n, axes.gram][:, None, None] / 2 + ridge  # of the curvature; that of fewer rows is less
    enough = _LEFT * inside.sum(axis=0)
    weight = inside[:, :, None].astype(np.float32)
    target = known[:, None, :].astype(np.float32)
    found = ahead = start
    speed = np.ones((1, fits, 1))
    for _ in range(_STEPS):
        off = ((_said(axes.rows, ahead) - target) * weight).reshape(n, fits * classes)
        slope = np.vstack([off.sum(axis=0, dtype=np.float64), axes.rows.T @ off]).reshape(start.shape) + ridge * ahead
        step = slope / bound
        new = ahead - step
        if ((slope * step).sum(axis=(0, 2)) < enough).all():
            return new
        uphill = (slope * (new - found)).sum(axis=(0, 2), keepdims=True) > 0
        faster = np.where(uphill, 1.0, (1 + np.sqrt(1 + 4 * speed**2)) / 2)
        ahead = new + np.where(uphill, 0.0, (speed - 1) / faster) * (new - found)
        found, speed = new, faster
    return found


def _said(rows: Singles, layers: Floats) -> Singles:
    """Probability of every class: rows x fits x classes."""
    width, fits, classes = layers.shape
    flat = layers.reshape(width, fits * classes).astype(np.float32)
    score = (rows @ flat[1:] + flat[0]).reshape(len(rows), fits, classes)
    score -= score.max(axis=2, keepdims=True)
    np.exp(score, out=score)
    score /= score.sum(axis=2, keepdims=True)
    return score
