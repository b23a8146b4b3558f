"""Vectors and errors of one class -> slices at the ends of the direction of failure (Jain et al. 2023): a linear SVM.

Their vectors are CLIP's; here those that are given. Known gap: cuts are set on folds of rows, not of patients, so with
many images a patient the ends hold somewhat more or less than a tenth of other patients.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from cxrhf.audits.sample import Progress
from cxrhf.audits.slices.em import unit_axes
from cxrhf.audits.slices.found import HALF, Floats, Found, Seen, ends, nothing, ticker

FEW = 10  # wrong or right rows with which a direction is not learnt
FOLDS = 5
STRENGTHS = (0.001, 0.01, 0.1)
MOST = 5_000  # rows on which the strength is chosen


def failure_svm(seen: Seen, *, seed: int, recipe: str, progress: Progress) -> Found:
    """The tenth of the rows that lies farthest in the direction of failure, and the tenth farthest from it."""
    failed = seen.error > 0.25
    which = "errors from successes at 0.5"
    if min(failed.sum(), (~failed).sum()) < FEW:
        failed = seen.error > np.median(seen.error)
        which = "errors above the median from those below, because at 0.5 too few rows are wrong or right"
    scale = unit_axes(seen.vectors)
    x = scale(seen.vectors)
    if min(failed.sum(), (~failed).sum()) < FEW or not x.any():
        return nothing("failure direction: the embeddings or the errors do not differ")
    strength, outside = _unseen_values(x, failed, seed, ticker(progress))
    weights = ends(outside)
    if weights is None:
        return nothing("failure direction: no direction of the embeddings separates errors from successes")
    fitted = _svm(strength).fit(x, failed)
    about = (
        f"failure direction: a linear SVM on the given embeddings (not CLIP's) separates {which}; slices are the "
        f"tenths at its two ends, cut on held-out folds, C = {strength:g} by the same folds"
    )
    return Found(lambda vectors, y, p: weights(fitted.decision_function(scale(vectors))), 2, HALF, about)


def _svm(strength: float) -> Any:
    from sklearn.svm import LinearSVC

    return LinearSVC(C=strength, class_weight="balanced", dual=False, max_iter=200)


def _unseen_values(x: Floats, failed: np.ndarray, seed: int, tick: Progress) -> tuple[float, Floats]:
    """The C whose values rank failures best in rows it had not seen, and its values of all rows, each unseen."""
    from sklearn.model_selection import StratifiedKFold, cross_val_predict

    from cxrhf.metrics import auroc

    folds = StratifiedKFold(FOLDS, shuffle=True, random_state=seed % 2**32)
    some = np.arange(len(x))
    if len(x) > MOST:
        some = np.sort(np.random.default_rng([seed, 227]).choice(len(x), MOST, replace=False))

    def values(strength: float, rows: np.ndarray) -> Floats:
        tick(f"C = {strength:g}")
        return np.asarray(
            cross_val_predict(_svm(strength), x[rows], failed[rows], cv=folds, method="decision_function")
        )

    best = max(STRENGTHS, key=lambda strength: float(auroc(failed[some], values(strength, some))))
    return best, values(best, np.arange(len(x)))
