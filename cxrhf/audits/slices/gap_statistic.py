"""Vectors -> how many clusters they have by the gap statistic (Tibshirani et al. 2001), 1 = none.

The log of the dispersion within k clusters is held against that of uniform rows in the box of the principal modes. k is
the first whose gap is no smaller than the next one less its standard error.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from cxrhf.audits.one_thread import one_thread
from cxrhf.audits.sample import Progress
from cxrhf.audits.slices.found import Floats, evenly, own_order, ticker
from cxrhf.audits.slices.maps import modes

CLUSTERS, REFERENCES, ROWS = 8, 10, 1_000


class GapStatistic(NamedTuple):
    """Gap and its standard error for k = 1, 2, ...; NaN where there are no more different vectors than clusters."""

    gaps: Floats
    spread: Floats
    k: int


def gap_statistic(vectors: Floats, *, seed: int, progress: Progress) -> GapStatistic:
    """Of at most 1,000 of the rows, whatever their order."""
    with one_thread():
        return _gap_statistic(np.asarray(vectors, dtype=np.float64), seed, ticker(progress))


def _gap_statistic(vectors: Floats, seed: int, tick: Progress) -> GapStatistic:
    rng = np.random.default_rng([seed, 229])
    x = vectors[own_order(vectors)]  # first of all: sums depend on the order, if only in their last digits
    x = evenly(x)(x)
    if len(x) > ROWS:
        x = x[np.sort(rng.choice(len(x), ROWS, replace=False))]
    x = modes(x, x.shape[1])(x)
    most = min(CLUSTERS, len(np.unique(x, axis=0)) - 1)
    gaps, spread = np.full(CLUSTERS, np.nan), np.full(CLUSTERS, np.nan)
    if most < 1:
        return GapStatistic(gaps, spread, 1)
    low, high = x.min(axis=0), x.max(axis=0)
    logs = np.empty((REFERENCES, most))
    for at in range(REFERENCES):
        tick(f"gap statistic, reference {at + 1} of {REFERENCES}")
        logs[at] = _log_dispersion(rng.uniform(low, high, x.shape), most, seed)
    gaps[:most] = logs.mean(axis=0) - _log_dispersion(x, most, seed)
    spread[:most] = logs.std(axis=0) * np.sqrt(1 + 1 / REFERENCES)
    enough = gaps[: most - 1] >= gaps[1:most] - spread[1:most]
    return GapStatistic(gaps, spread, int(enough.argmax()) + 1 if enough.any() else most)


def _log_dispersion(x: Floats, most: int, seed: int) -> Floats:
    """Log of the sum of squares about the centres of k-means, for k = 1 to `most`."""
    from sklearn.cluster import KMeans

    whole = ((x - x.mean(axis=0)) ** 2).sum()
    parts = [KMeans(k, n_init=2, random_state=seed % 2**32).fit(x).inertia_ for k in range(2, most + 1)]
    return np.log([whole, *parts])
