"""Vectors and predictions of one class -> slices by PlaneSpot (Plumb et al. 2023): a plane, the confidence, a mixture.

PlaneSpot takes scvis for its plane; what stands in for it here, `Found.about` says.
"""

from __future__ import annotations

import numpy as np

from cxrhf.audits.sample import Progress
from cxrhf.audits.slices.em import FULL_FLOOR, prepare, unit_axes
from cxrhf.audits.slices.found import Floats, Found, Seen, least_rows, nothing
from cxrhf.audits.slices.maps import plane
from cxrhf.audits.slices.mixture import COMPONENTS, STARTS, by_bic


def planespot(seen: Seen, *, seed: int, recipe: str, progress: Progress) -> Found:
    """Gaussians over two axes of a map and the model's probability, all brought to variance 1."""
    flat = plane(seen.vectors, seed=seed, progress=progress, wanted="scvis")

    def beside(vectors: Floats, p: Floats) -> Floats:
        return np.column_stack([flat.project(vectors), p])

    scale = unit_axes(beside(seen.vectors, seen.p))
    choice = by_bic(
        prepare(scale(beside(seen.vectors, seen.p)), full=True), COMPONENTS, full=True, floor=FULL_FLOOR,
        least=least_rows(len(seen.p)), starts=STARTS, seed=seed, progress=progress,
    )  # fmt: skip
    best = choice.mixture
    k = len(best.share)
    about = (
        f"PlaneSpot: {flat.about}, the probability as a third axis of the same spread; Gaussian mixture with full "
        f"covariances, {k} by BIC of {min(choice.tried)} to {max(choice.tried)}"
    )
    if k == 1:
        return nothing(f"{about}: no clusters")
    return Found(
        lambda vectors, y, p: best.belonging(prepare(scale(beside(vectors, p)), full=True))[0], k, 0.0, about
    )  # fmt: skip
