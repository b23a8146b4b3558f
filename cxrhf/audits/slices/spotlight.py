"""Vectors and errors of one class -> slices by Spotlight (d'Eon et al. 2022): where the mean error is largest.

A spotlight has a centre and a width; a row's weight is 1 at the centre and falls with the squared distance to 0. The
centre is moved until the weighted mean error is largest, the width always such that the weights sum to a share of the
rows, half of them at first, then fewer down to the least: so it cannot shrink onto single rows. The best of these is
kept. For the next one the errors that are already lit are taken out.

A slice is the rows with the largest weights, as many as the weights of all rows sum to. A fixed weight would not do: in
many axes distances are nearly equal, and a light of a tenth of the rows gives none of them a weight of a half.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from cxrhf.audits.sample import Progress
from cxrhf.audits.slices.found import HALF, Floats, Found, Seen, evenly, nothing, ticker

SPOTLIGHTS = 5
SHARES = (0.5, 0.2, 0.1)  # total weight as a share of the rows, the last is the least
STARTS = 5
REACH = 20.0  # how far a centre may go, in spreads of the vectors: from afar the light is a half-space
ROUNDS = 100


class Light(NamedTuple):
    """Centre, how fast the weight falls with the squared distance, and the mean error under it where it was found."""

    centre: Floats
    falls: float
    error: float


def spotlight(seen: Seen, *, seed: int, recipe: str, progress: Progress) -> Found:
    """Five spotlights, each the best of several starts at rows with large errors."""
    scale = evenly(seen.vectors)
    x, error = scale(seen.vectors), seen.error
    if np.ptp(error) < 1e-12 or np.ptp(x, axis=0).max() < 1e-9:
        return nothing("Spotlight: the embeddings or the errors do not differ")
    rng, tick = np.random.default_rng([seed, 223]), ticker(progress)
    left = error.copy()
    lights: list[Light] = []
    while len(lights) < SPOTLIGHTS and left.sum() > 1e-9 * error.sum():
        worst = np.argsort(-left, kind="stable")[: max(STARTS, len(x) // 10)]
        centres = [left @ x / left.sum(), *x[np.sort(rng.choice(worst, STARTS - 1, replace=False))]]
        found: list[Light] = []
        for centre in centres:
            tick(f"spotlight {len(lights) + 1} of {SPOTLIGHTS}, start {len(found) // len(SHARES) + 1} of {STARTS}")
            found += _moved(x, left, centre)
        lights.append(max(found, key=lambda each: each.error))
        left = left * (1 - lit(x, lights[-1]))
    cuts = [_cut(lit(x, each)) for each in lights]
    about = (
        f"Spotlight: {len(lights)} kernels in the given embeddings, each with the largest mean error under a total "
        f"weight of at least {SHARES[-1]:.0%} of the rows, {STARTS} starts; errors already covered are removed"
    )

    def weights(vectors: Floats, y: Floats, p: Floats) -> Floats:
        light = np.column_stack([lit(scale(vectors), each) for each in lights])
        return np.asarray(light / (light + cuts))  # half at the cut

    return Found(weights, len(lights), HALF, about)


def lit(x: Floats, light: Light) -> Floats:
    """Weight of each row."""
    return np.maximum(1 - light.falls * ((x - light.centre) ** 2).sum(axis=1), 0)


def _cut(weight: Floats) -> float:
    """The weight that as many rows reach as all weights sum to."""
    return float(np.sort(weight)[-max(1, round(float(weight.sum())))])


def objective(centre: Floats, x: Floats, error: Floats, total: float) -> tuple[float, Floats, float]:
    """Minus the mean error under the light whose weights sum to `total`, its slope by the centre, how fast it falls."""
    apart = x - centre
    far = np.einsum("ij,ij->i", apart, apart)
    order = np.argsort(far, kind="stable")
    near = far[order]
    # Were the light to end at each row in turn, the sum of weights would rise; it ends where that is enough.
    inside = np.arange(len(near)) - (np.cumsum(near) - near) / np.maximum(near, 1e-300)
    m = int(np.clip(np.searchsorted(inside, total), np.ceil(total), len(near)))
    rows = order[:m]
    falls = max((m - total) / max(float(near[:m].sum()), 1e-300), 1e-300)
    weight = np.maximum(1 - falls * far[rows], 0)
    mean = float(weight @ error[rows]) / total
    # A step of the centre changes distances, and `falls` so that the sum of weights stays.
    change = 2 * falls * apart[rows].sum(axis=0) / max(float(near[:m].sum()), 1e-300)
    slope = 2 * falls * (error[rows] @ apart[rows]) - change * float(error[rows] @ far[rows])
    return -mean, -slope / total, falls


def _moved(x: Floats, error: Floats, centre: Floats) -> list[Light]:
    """One start: a light for each share of the rows, each begun where the wider one ended."""
    from scipy.optimize import minimize

    unit = error.mean()
    lights = []
    for share in SHARES:
        total = share * len(x)

        def both(at: Floats, total: float = total) -> tuple[float, Floats]:
            value, slope, _ = objective(at, x, error, total)
            return value / unit, slope / unit

        limits = [(-REACH, REACH)] * len(centre)
        centre = minimize(both, centre, jac=True, method="L-BFGS-B", bounds=limits, options={"maxiter": ROUNDS}).x
        value, _, falls = objective(centre, x, error, total)
        lights.append(Light(centre, falls, -value))
    return lights
