"""Features and labels of images -> probabilities from models that never saw the image's patient.

Ridge logistic regression. Its penalty is chosen for each held-out fold on the other folds alone (a model without folds
u and v serves both, so five folds need ten of them), which keeps the probabilities calibrated: with few positives a
fixed mild penalty overfits, a strong one flattens. Written out as Newton steps over the features that are not 0, each
fit starting from the one with the neighbouring penalty: there are 55 fits a finding. And not with BLAS, whose threads
give other last digits on other machines and stall where cores are shared.
"""

from __future__ import annotations

import heapq
from itertools import combinations
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray
from scipy.special import expit

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

FOLDS = 5
# Patients with and without the finding that a fit needs.
ENOUGH = 10
# Strong to weak; features are indicators, shares or standardised, so a penalty of 3 expects log odds ratios within 1.
PENALTIES = (3000.0, 300.0, 30.0, 3.0, 0.3)
# So many patients of each class per feature leave nothing to shrink: the weakest penalty is taken without a search.
PLENTY = 100


def deal_patients(y: Floats, patients: Integers, seed: int) -> Integers:
    """The fold of each row: patients whole, positives and negatives spread as evenly as that allows.

    Patients with most positives first, each into the fold that has fewest so far. Even folds matter: where a fold has
    more positives the models for it saw fewer, and a context without any information would seem to rank backwards.
    (scikit-learn's StratifiedGroupKFold does likewise, in a second a finding at 20,000 images.) NaN in y = no label.
    """
    n_patients = int(patients.max(initial=-1)) + 1
    labelled = ~np.isnan(y)
    positive = np.bincount(patients[labelled], y[labelled], minlength=n_patients)
    negative = np.bincount(patients[labelled], 1 - y[labelled], minlength=n_patients)
    chance = np.random.default_rng(seed).permutation(n_patients)
    fold = np.zeros(n_patients, dtype=np.int64)
    order = np.lexsort((chance, -negative, -positive))
    n_holders = int((positive > 0).sum())
    heap = [(0.0, 0.0, at) for at in range(FOLDS)]
    for patient in order[:n_holders]:
        held, free, at = heap[0]
        fold[patient] = at
        heapq.heapreplace(heap, (held + positive[patient], free + negative[patient], at))
    rest = [(free, at) for _, free, at in heap]
    heapq.heapify(rest)
    for patient in order[n_holders:]:
        free, at = rest[0]
        fold[patient] = at
        heapq.heapreplace(rest, (free + negative[patient], at))
    return fold[patients]


def cross_fit(features: Floats, y: Floats, weight: Floats, fold: Integers, n_units: int) -> Floats | None:
    """Probabilities of all rows, each from the folds without it; None where a fold's models saw one class only.

    Rows without a label (NaN) are predicted and not learned from. `n_units` = patients of the rarer class.
    """
    design = np.column_stack([np.ones(len(y)), features])
    n_folds = int(fold.max(initial=-1)) + 1
    used = ~np.isnan(y) & (weight > 0)
    parts = [np.flatnonzero(used & (fold == each)) for each in range(n_folds)]
    pairs = list(combinations(range(n_folds), 2))
    if any(len(np.unique(y[_without(parts, *pair)])) < 2 for pair in pairs):
        return None
    penalties = [PENALTIES[-1]] * n_folds
    starts: list[Floats | None] = [None] * n_folds
    if n_units < PLENTY * design.shape[1]:
        penalties, starts = _search(design, y, weight, parts, pairs)
    probability = np.empty(len(y))
    for held in range(n_folds):
        found = fit_ridge(design, y, weight, penalties[held], starts[held], rows=_without(parts, held))
        away = np.flatnonzero(fold == held)
        probability[away] = expit(_scores(design, away, found))
    return probability


def _without(parts: list[Integers], *held: int) -> Integers:
    return np.concatenate([part for at, part in enumerate(parts) if at not in held])


def _search(
    design: Floats, y: Floats, weight: Floats, parts: list[Integers], pairs: list[tuple[int, int]]
) -> tuple[list[float], list[Floats | None]]:
    """For each fold the penalty with the least loss on the other folds, and coefficients to start from."""
    n_folds = len(parts)
    chosen, best = [PENALTIES[0]] * n_folds, np.full(n_folds, np.inf)
    starts: list[Floats | None] = [None] * n_folds
    path: dict[tuple[int, int], Floats | None] = dict.fromkeys(pairs)
    learned = {pair: _without(parts, *pair) for pair in pairs}
    for penalty in PENALTIES:
        loss = np.zeros(n_folds)
        for u, v in pairs:
            found = path[u, v] = fit_ridge(design, y, weight, penalty, path[u, v], rows=learned[u, v])
            for held, judged in ((v, u), (u, v)):  # fold `held` is out of everything, fold `judged` is predicted
                rows = parts[judged]
                score = _scores(design, rows, found)
                loss[held] += (weight[rows] * (np.logaddexp(0, score) - y[rows] * score)).sum()
        for held in range(n_folds):
            if loss[held] < best[held]:
                chosen[held], best[held] = penalty, loss[held]
                starts[held] = path[next(pair for pair in pairs if held in pair)]
        if (loss > best).all():
            break  # weaker penalties fit the other folds worse still
    return chosen, starts


def fit_ridge(
    design: Floats, y: Floats, weight: Floats, penalty: float, start: Floats | None = None, *, rows: Integers
) -> Floats:
    """Coefficients that minimise the rows' weighted log loss + penalty / 2 * their squares.

    The first column is the intercept and not penalised.
    """
    ridge = np.full(design.shape[1], penalty)
    ridge[0] = 1e-9
    if start is None:
        share = (weight[rows] * y[rows]).sum() / weight[rows].sum()
        start = np.zeros(design.shape[1])
        start[0] = np.log(share / (1 - share))
    found = start
    value, gradient, hessian = _newton_sums(design, y, weight, rows, found, ridge)
    for _ in range(100):
        step = np.linalg.solve(hessian, gradient)
        if (gradient * step).sum() < 1e-9:
            break
        for _ in range(30):  # a full step is nearly always right
            new = found - step
            new_value, new_gradient, new_hessian = _newton_sums(design, y, weight, rows, new, ridge)
            if new_value <= value:
                break
            step = step / 2
        else:
            break
        found, value, gradient, hessian = new, new_value, new_gradient, new_hessian
    return found


@njit(cache=True, nogil=True)
def _newton_sums(design: Any, y: Any, weight: Any, rows: Any, found: Any, ridge: Any) -> Any:
    """Objective, gradient and Hessian at the coefficients `found`."""
    width = design.shape[1]
    value = 0.0
    gradient, hessian = np.zeros(width), np.zeros((width, width))
    filled = np.empty(width, np.int64)
    for j in range(width):
        value += ridge[j] * found[j] * found[j] / 2
        gradient[j] = ridge[j] * found[j]
        hessian[j, j] = ridge[j]
    for row in rows:
        n_filled = 0
        score = 0.0
        for j in range(width):
            if design[row, j] != 0:
                filled[n_filled] = j
                n_filled += 1
                score += design[row, j] * found[j]
        small = np.exp(-abs(score))
        p = 1 / (1 + small) if score > 0 else small / (1 + small)
        value += weight[row] * (max(score, 0.0) + np.log1p(small) - y[row] * score)
        slope = weight[row] * (p - y[row])
        bend = weight[row] * p * (1 - p)
        for a in range(n_filled):
            j = filled[a]
            gradient[j] += slope * design[row, j]
            part = bend * design[row, j]
            for b in range(a + 1):
                hessian[j, filled[b]] += part * design[row, filled[b]]
    for j in range(width):
        for i in range(j):
            hessian[i, j] = hessian[j, i]
    return value, gradient, hessian


@njit(cache=True, nogil=True)
def _scores(design: Any, rows: Any, found: Any) -> Any:
    """The linear predictor; equal rows give equal numbers, wherever they stand."""
    out = np.zeros(rows.shape[0])
    for at in range(rows.shape[0]):
        for j in range(design.shape[1]):
            out[at] += design[rows[at], j] * found[j]
    return out
