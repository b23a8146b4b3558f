"""Vectors and errors of one class -> slices by bias-aware hierarchical clustering (Misztal-Radecka and Indurkhya 2021).

In a plane, the cluster whose errors differ most is cut in two by k-means, and again, as long as a part deviates more
from the mean error of all rows than the whole did. The printed rule never ends: the mean of the whole lies between
those of its parts, so one part always deviates at least as much. Here it must do so by two standard errors.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cxrhf.audits.sample import Progress
from cxrhf.audits.slices.found import Floats, Found, Seen, least_rows, nothing
from cxrhf.audits.slices.maps import plane

CLUSTERS = 16
STANDARD_ERRORS = 2.0


class Cut(NamedTuple):
    """Cluster `whole` becomes itself (nearer to the first centre) and cluster `new` (nearer to the second)."""

    whole: int
    new: int
    centres: Floats


def bias_clusters(seen: Seen, *, seed: int, recipe: str, progress: Progress) -> Found:
    """Clusters of a plane, cut where errors differ."""
    flat = plane(seen.vectors, seed=seed, progress=progress)
    cuts = list(_cuts(flat.project(seen.vectors), seen.error, least_rows(len(seen.y)), seed))
    if not cuts:
        return nothing(f"bias-aware clusters: {flat.about}; no cut separates errors")
    about = (
        f"bias-aware clusters: {flat.about}; cut in two by k-means where errors differ most, while a part deviates "
        f"more than the whole by {STANDARD_ERRORS:g} standard errors: {len(cuts) + 1} clusters"
    )
    return Found(
        lambda vectors, y, p: np.eye(len(cuts) + 1)[_codes(flat.project(vectors), cuts)], len(cuts) + 1, 0.0, about
    )  # fmt: skip


def _cuts(places: Floats, error: Floats, least: int, seed: int) -> Iterator[Cut]:
    """Cuts in the order in which they are to be made."""
    from sklearn.cluster import KMeans

    code = np.zeros(len(places), dtype=np.int64)
    n, final = 1, set[int]()
    while n < CLUSTERS and len(final) < n:
        whole = max((j for j in range(n) if j not in final), key=lambda j: (error[code == j].std(), -j))
        inside = np.flatnonzero(code == whole)
        final.add(whole)
        if len(inside) < 2 * least or len(np.unique(places[inside], axis=0)) < 2:
            continue
        centres = KMeans(2, n_init=4, random_state=(seed + n) % 2**32).fit(places[inside]).cluster_centers_
        second = _second(places[inside], centres)
        parts = [inside[~second], inside[second]]
        if min(map(len, parts)) < least or not _farther(error, inside, parts):
            continue
        code[parts[1]] = n
        final.discard(whole)
        yield Cut(whole, n, centres)
        n += 1


def _farther(error: Floats, whole: NDArray[np.intp], parts: list[NDArray[np.intp]]) -> bool:
    """Whether a part deviates more from the mean of all rows than the whole, beyond its own noise."""
    middle = error.mean()
    before = abs(error[whole].mean() - middle)
    return any(
        abs(error[part].mean() - middle) - before > STANDARD_ERRORS * error[part].std() / np.sqrt(len(part))
        for part in parts
    )


def _second(places: Floats, centres: Floats) -> NDArray[np.bool_]:
    far = ((places[:, None, :] - centres) ** 2).sum(axis=2)
    return np.asarray(far[:, 1] < far[:, 0])


def _codes(places: Floats, cuts: list[Cut]) -> NDArray[np.int64]:
    code = np.zeros(len(places), dtype=np.int64)
    for cut in cuts:
        inside = np.flatnonzero(code == cut.whole)
        code[inside[_second(places[inside], cut.centres)]] = cut.new
    return code
