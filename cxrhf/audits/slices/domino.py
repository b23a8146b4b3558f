"""Vectors and predictions of one class -> slices by Domino's error-aware mixture (Eyuboglu et al. 2022).

A mixture over principal modes of the vectors and over what the model predicts, the latter counted ten times, so that a
component is alike in both. Components in which label and prediction lie farthest apart are the slices. Within one class
the label is the same everywhere, so Domino's term for it falls away. Domino was made for CLIP's vectors, which let it
describe slices in words; here the vectors are those that are given.
"""

from __future__ import annotations

import numpy as np

from cxrhf.audits.sample import Progress
from cxrhf.audits.slices.em import DIAGONAL_FLOOR, Rows, fit, prepare, start, unit_axes
from cxrhf.audits.slices.found import HALF, Floats, Found, Seen, least_rows, ticker
from cxrhf.audits.slices.maps import modes

MODES = 128
COMPONENTS, ROWS_EACH = 25, 20  # at most so many components, and so many rows for each
SLICES = 5
PREDICTION_WEIGHT = 10.0


def domino(seen: Seen, *, seed: int, recipe: str, progress: Progress) -> Found:
    """The five components with the largest gap between label and mean prediction."""
    project = modes(seen.vectors, MODES)
    scale = unit_axes(project(seen.vectors))

    def rows(vectors: Floats, p: Floats) -> Rows:
        kinds = np.column_stack([1 - p, p])
        return prepare(scale(project(vectors)), full=False, kinds=kinds, kind_weight=PREDICTION_WEIGHT)

    made = rows(seen.vectors, seen.p)
    n, d = made.vectors.shape
    k = int(np.clip(n // ROWS_EACH, 2, COMPONENTS))
    first = _start(made.vectors, seen.error > 0.25, k, seed)
    best = fit(made, first, full=False, floor=DIAGONAL_FLOOR, least=least_rows(n), tick=ticker(progress))
    assert best.kinds is not None
    gap = np.abs(seen.y[0] - best.kinds[:, 1])
    kept = np.argsort(-gap, kind="stable")[:SLICES]
    about = (
        f"Domino's mixture over {d} principal modes of the given embeddings (not CLIP's) and the prediction counted "
        f"{PREDICTION_WEIGHT:g} times: {len(gap)} components, kept the {len(kept)} with the largest gap between label "
        "and mean prediction"
    )
    return Found(lambda vectors, y, p: best.belonging(rows(vectors, p))[0][:, kept], len(kept), HALF, about)


def _start(vectors: Floats, wrong: np.ndarray, k: int, seed: int) -> Floats:
    """Rows that are predicted wrong and rows that are predicted right start in components of their own, as Domino's."""
    if min(wrong.sum(), (~wrong).sum()) < ROWS_EACH:
        return start(vectors, k, (seed, k))
    parts = [start(vectors[rows], size, (seed, k)) for rows, size in ((wrong, k // 2), (~wrong, k - k // 2))]
    belonging = np.zeros((len(vectors), sum(part.shape[1] for part in parts)))
    belonging[wrong, : parts[0].shape[1]] = parts[0]
    belonging[~wrong, parts[0].shape[1] :] = parts[1]
    return belonging
