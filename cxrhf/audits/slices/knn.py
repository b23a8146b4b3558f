"""Vectors and errors of one class -> slices where nearest neighbours fail most and least (Oakden-Rayner et al. 2020).

SLICES' Table 1 names KNN for their "algorithmic measurement". A row's local error is the mean error of its neighbours;
the tenth with the largest and the tenth with the smallest are the slices.
"""

from __future__ import annotations

import numpy as np

from cxrhf.audits.sample import Progress
from cxrhf.audits.slices.found import HALF, Floats, Found, Seen, ends, evenly, nothing


def knn(seen: Seen, *, seed: int, recipe: str, progress: Progress) -> Found:
    """Two slices by the mean error of as many neighbours as the root of the number of rows."""
    from sklearn.neighbors import NearestNeighbors

    scale = evenly(seen.vectors)
    # Rows with one and the same vector are one point: which of them comes first must not matter.
    points, code, count = np.unique(scale(seen.vectors), axis=0, return_inverse=True, return_counts=True)
    error = np.bincount(code.ravel(), seen.error) / count
    k = max(10, round(np.sqrt(len(seen.y))))
    if len(points) <= k + 1:
        return nothing(f"nearest neighbours: only {len(points)} different embeddings, at least {k + 2} are needed")
    progress(f"{k} neighbours of {len(points)} points")
    tree = NearestNeighbors().fit(points)

    def local(near: np.ndarray) -> Floats:
        return np.asarray((error[near] * count[near]).sum(axis=1) / count[near].sum(axis=1))

    # Of the k + 1 nearest of a point the first is itself.
    near = tree.kneighbors(points, k + 1, return_distance=False)
    own = near == np.arange(len(points))[:, None]
    own[~own.any(axis=1), -1] = True
    around = local(near[~own].reshape(len(points), k))
    weights = ends(around[code.ravel()])
    if weights is None:
        return nothing("nearest neighbours: local errors do not differ")
    about = (
        f"nearest neighbours: the tenths of the rows whose {k} nearest neighbours among the embeddings have the "
        "largest and the smallest mean error"
    )
    return Found(
        lambda vectors, y, p: weights(local(tree.kneighbors(scale(vectors), k, return_distance=False))), 2, HALF, about
    )  # fmt: skip
