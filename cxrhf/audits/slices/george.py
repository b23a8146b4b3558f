"""Vectors of one class -> slices by GEORGE (Sohoni et al. 2020): a plane, a mixture there, k by silhouette."""

from __future__ import annotations

import numpy as np

from cxrhf.audits.sample import Progress
from cxrhf.audits.slices.em import FULL_FLOOR, Mixture, fit, prepare, start, unit_axes
from cxrhf.audits.slices.found import Floats, Found, Seen, least_rows, nothing, ticker
from cxrhf.audits.slices.maps import plane

COMPONENTS = range(2, 11)
SILHOUETTE_ROWS = 2_000  # distances of all pairs


def george(seen: Seen, *, seed: int, recipe: str, progress: Progress) -> Found:
    """Gaussians in the plane; the number with the best mean silhouette."""
    flat = plane(seen.vectors, seed=seed, progress=progress)
    places = flat.project(seen.vectors)
    scale = unit_axes(places)
    rows = prepare(scale(places), full=True)
    x = rows.vectors
    least, tick = least_rows(len(x)), ticker(progress)
    best: tuple[float, Mixture] | None = None
    for k in COMPONENTS:
        if k * least > len(x):
            break
        tick(f"k = {k}")
        found = fit(rows, start(x, k, (seed, k)), full=True, floor=FULL_FLOOR, least=least)
        height = _silhouette(places, found.belonging(rows)[0].argmax(axis=1), seed)
        if not np.isnan(height) and (best is None or height > best[0]):
            best = height, found
    if best is None:
        return nothing(f"GEORGE: {flat.about}; no two clusters there")
    height, chosen = best
    k = len(chosen.share)
    about = (
        f"GEORGE: {flat.about}; Gaussian mixture with full covariances there, {k} components by silhouette "
        f"({height:.2f})"
    )
    return Found(
        lambda vectors, y, p: chosen.belonging(prepare(scale(flat.project(vectors)), full=True))[0], k, 0.0, about
    )  # fmt: skip


def _silhouette(places: Floats, code: np.ndarray, seed: int) -> float:
    """Mean silhouette of at most some rows; NaN where they are all in one cluster."""
    from sklearn.metrics import silhouette_score

    if len(code) > SILHOUETTE_ROWS:
        chosen = np.sort(np.random.default_rng([seed, 211]).choice(len(code), SILHOUETTE_ROWS, replace=False))
        places, code = places[chosen], code[chosen]
    if not 2 <= len(np.unique(code)) < len(code):
        return float("nan")
    return float(silhouette_score(places, code))
