"""Vectors -> a few axes: principal modes, and a plane by UMAP where that package is there.

umap-learn is no dependency: where it cannot be imported, principal modes stand in for it, and `Plane.about` says so.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from typing import NamedTuple

import numpy as np

from cxrhf.audits.sample import Progress
from cxrhf.audits.slices.found import Floats, evenly

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
        return Plane(evenly(vectors), f"no map: the embeddings have {vectors.shape[1]} dimensions")
    if varied and find_spec("umap") is not None:
        progress("a plane by UMAP")
        scale = evenly(vectors)
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
