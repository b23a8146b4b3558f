"""The name of a method and rows of one class -> slices, by one interface for all of SLICES' Table 1.

Rows are put in an order of their own before a method sees them, so what it finds depends on the rows and the seed, not
on the order in which they came. All of it runs on one thread: several that share a busy machine's cores are slower.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import numpy as np

from cxrhf.audits.one_thread import one_thread
from cxrhf.audits.sample import Progress
from cxrhf.audits.slices.bias_clusters import bias_clusters
from cxrhf.audits.slices.domino import domino
from cxrhf.audits.slices.failure_svm import failure_svm
from cxrhf.audits.slices.found import Floats, Found, Seen, assign, own_order
from cxrhf.audits.slices.george import george
from cxrhf.audits.slices.knn import knn
from cxrhf.audits.slices.mixture import mixture
from cxrhf.audits.slices.multiaccuracy import multiaccuracy
from cxrhf.audits.slices.planespot import planespot
from cxrhf.audits.slices.spotlight import spotlight
from cxrhf.config_representations import SLICE_METHODS, SLICE_RECIPES
from cxrhf.errors import ConfigError, CxrhfError, did_you_mean

__all__ = ["METHODS", "Found", "Seen", "assign", "discover"]

LEAST = 30  # rows


class Method(Protocol):
    """Rows of one class -> slices. `recipe` paper: as published, where a method's default differs from that."""

    def __call__(self, seen: Seen, *, seed: int, recipe: str, progress: Progress) -> Found: ...


METHODS: Mapping[str, Method] = {
    "mixture": mixture,
    "domino": domino,
    "spotlight": spotlight,
    "george": george,
    "planespot": planespot,
    "multiaccuracy": multiaccuracy,
    "failure_svm": failure_svm,
    "bias_clusters": bias_clusters,
    "knn": knn,
}


def discover(name: str, seen: Seen, *, seed: int, recipe: str = "default", progress: Progress) -> Found:
    """Slices of these rows by one method."""
    if name not in METHODS:
        raise ConfigError(
            "slice_methods: no such method", got=name, allowed=", ".join(SLICE_METHODS),
            next_step=did_you_mean(name, SLICE_METHODS),
        )  # fmt: skip
    if recipe not in SLICE_RECIPES:
        raise ConfigError("slice_recipe: no such recipe", got=recipe, allowed=", ".join(SLICE_RECIPES))
    vectors, y, p = (np.asarray(each, dtype=np.float64) for each in seen)
    if len(vectors) < LEAST:
        raise CxrhfError("too few rows of one class to find slices in", got=len(vectors), allowed=f"{LEAST} or more")
    if vectors.ndim != 2 or vectors.shape[1] == 0 or y.shape != (len(vectors),) or p.shape != y.shape:
        raise CxrhfError(
            "slices require an embedding, a label and a probability for each row",
            got=f"shapes {vectors.shape}, {y.shape}, {p.shape}",
        )
    if not (np.isfinite(vectors).all() and ((p >= 0) & (p <= 1)).all()):
        raise CxrhfError("slices require finite embeddings and probabilities from 0 to 1")
    if not ((y == y[0]).all() and y[0] in (0, 1)):
        raise CxrhfError("slices are found in one class at a time", got="both labels", allowed="all 1 or all 0")
    order = own_order(np.column_stack([vectors, p]))
    with one_thread():
        found = METHODS[name](Seen(vectors[order], y[order], p[order]), seed=seed, recipe=recipe, progress=progress)

    def weights(vectors: Floats, y: Floats, p: Floats) -> Floats:
        with one_thread():
            return found.weights(*(np.asarray(each, dtype=np.float64) for each in (vectors, y, p)))

    return found._replace(weights=weights)
