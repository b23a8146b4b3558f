"""Sparse features and label counts -> logistic regression with an L2 penalty; scores -> Platt's line.

Written out (L-BFGS, two dozen lines) because scipy's wakes the threads of BLAS for thousands of tiny products: with
other programs on the same two cores, 3,000 coefficients took 8.4 s that one thread does in .3 s. Nothing here is large
enough for a thread.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.special import expit, logit

Floats = NDArray[np.float64]

# CLOSE: the share of the loss that a further step may still win. On the twin a thousandth of it moved no probability by
# more than .0011.
MEMORY, MOST_STEPS, CLOSE = 10, 300, 1e-6


def fit_ridge(design: sparse.csr_array, positive: Floats, negative: Floats, penalty: float) -> tuple[Floats, float]:
    """Coefficients and intercept (not penalised) of least log loss + penalty / 2 * squared coefficients.

    `positive` and `negative` count the labels of each row; both classes must be there.
    """
    turned = sparse.csr_array(design.T)
    total = positive + negative

    def loss(found: Floats) -> tuple[float, Floats]:
        score = design @ found[1:] + found[0]
        value = np.sum(positive * np.logaddexp(0, -score) + negative * np.logaddexp(0, score))
        slope = total * expit(score) - positive
        steep = np.concatenate([[slope.sum()], turned @ slope + penalty * found[1:]])
        return float(value + penalty / 2 * np.sum(found[1:] ** 2)), steep

    start = np.zeros(design.shape[1] + 1)
    start[0] = logit(positive.sum() / total.sum())
    found = minimise(loss, start)
    return found[1:], float(found[0])


def platt(score: Floats, positive: Floats, negative: Floats) -> tuple[float, float]:
    """Slope and intercept that turn scores into calibrated log odds; a score that ranks backwards counts for nothing.

    The counts are smoothed as Platt does, by one made-up label of each class, so that scores which separate the
    classes do not become certainties.
    """
    n_positive, n_negative = positive.sum(), negative.sum()
    high, low = (n_positive + 1) / (n_positive + 2), 1 / (n_negative + 2)
    smooth = positive * high + negative * low
    middle, width = score.mean(), max(score.std(), 1e-12)
    slope, shift = fit_ridge(
        sparse.csr_array(((score - middle) / width)[:, None]), smooth, positive + negative - smooth, 0.0
    )
    if slope[0] <= 0:
        return 0.0, float(logit(n_positive / (n_positive + n_negative)))
    return float(slope[0] / width), shift - float(slope[0] / width * middle)


def minimise(loss: Callable[[Floats], tuple[float, Floats]], start: Floats) -> Floats:
    """The least point of a smooth convex function that gives its value and gradient: L-BFGS with halved steps."""
    found = start
    value, steep = loss(found)
    past: deque[tuple[Floats, Floats, float]] = deque(maxlen=MEMORY)
    for _ in range(MOST_STEPS):
        way = -_turned(steep, past)
        fall = np.sum(way * steep)
        if fall >= -CLOSE * max(abs(value), 1.0):  # what a whole step could still win
            break
        length = 1.0 if past else min(1.0, 1 / np.sqrt(np.sum(steep**2)))
        for _ in range(40):
            at = found + length * way
            new_value, new_steep = loss(at)
            if new_value <= value + 1e-4 * length * fall:
                break
            length /= 2
        else:
            break  # as low as rounding lets it be seen
        moved, bent = at - found, new_steep - steep
        curve = np.sum(moved * bent)
        if curve > 0:
            past.append((moved, bent, curve))
        found, value, steep = at, new_value, new_steep
    return found


def _turned(steep: Floats, past: deque[tuple[Floats, Floats, float]]) -> Floats:
    """The gradient times the inverse curvature that the last steps have shown."""
    way = steep.copy()
    shares = []
    for moved, bent, curve in reversed(past):
        share = np.sum(moved * way) / curve
        way -= share * bent
        shares.append(share)
    if past:
        _, bent, curve = past[-1]
        way *= curve / np.sum(bent**2)
    for (moved, bent, curve), share in zip(past, reversed(shares), strict=True):
        way += (share - np.sum(bent * way) / curve) * moved
    return way
