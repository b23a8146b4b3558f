"""Vectors of one class -> slices by SLICES' own way: a mixture of Gaussians, its number of components by BIC."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import numpy as np
from scipy.linalg import solve_triangular

from cxrhf.audits.sample import Progress, one_thread
from cxrhf.audits.slices.found import (
    Floats,
    Found,
    Seen,
    content_order,
    least_rows,
    modes,
    no_slices,
    ticker,
    to_unit_variance,
)

# Vectors -> a mixture of Gaussians by EM: one for every method that needs a mixture.
#
# Beside the vectors a row may have soft kinds (what a model predicts, as shares that sum to 1); a component then has
# a categorical of its own over them, whose log likelihood counts `kind_weight` times (Domino). Axes should be brought
# to variance 1 before, which changes no mixture but makes the regularisation mean the same for every axis.

START_ROWS = 5_000  # rows for the k-means that starts the EM
# EM ends when the mean log likelihood of a row rises by less than this. A slice of a tenth of the rows first creeps:
# with 1e-4 EM stops before it has found its edge in three of ten draws of D2, with 1e-6 in none.
ROUNDS, TOLERANCE = 300, 1e-6
DIAGONAL_FLOOR, FULL_FLOOR = 1e-3, 1e-6  # added to every variance, of axes with variance 1
FEW_AXES = 8  # up to so many, all products of two axes are kept: one product of matrices does all components
NEGLIGIBLE = 1e-10  # rows that belong less to a component leave no trace in its covariance
_TINY = 10 * np.finfo(float).eps


@dataclass(frozen=True, slots=True)
class Rows:
    """What a mixture is fitted to: vectors, what is made of them once for all rounds, and kinds where there are any.

    `products`: the square of each axis; for full covariances of few axes all products of two axes, of many None.
    """

    vectors: Floats
    products: Floats | None
    kinds: Floats | None = None
    kind_weight: float = 1.0


def prepare(vectors: Floats, *, full: bool, kinds: Floats | None = None, kind_weight: float = 1.0) -> Rows:
    """Rows for a mixture with full or with diagonal covariances."""
    products: Floats | None = vectors * vectors
    if full:
        pairs = vectors[:, :, None] * vectors[:, None, :] if vectors.shape[1] <= FEW_AXES else None
        products = None if pairs is None else pairs.reshape(len(vectors), -1)
    return Rows(vectors, products, kinds, kind_weight)


@dataclass(frozen=True, slots=True)
class Mixture:
    """k components: shares (k,), means (k, d), variances (k, d) or covariances (k, d, d), kinds (k, c) or None."""

    share: Floats
    mean: Floats
    covariance: Floats
    kinds: Floats | None = None
    log_likelihood: float = float("nan")  # of all rows it was fitted to
    rounds: int = 0

    @property
    def full(self) -> bool:
        """Whether components have correlations."""
        return self.covariance.ndim == 3

    @property
    def n_parameters(self) -> int:
        """Numbers that were free."""
        k, d = self.mean.shape
        spread = d * (d + 1) // 2 if self.full else d
        return k * (d + spread) + k - 1 + (0 if self.kinds is None else k * (self.kinds.shape[1] - 1))

    def bic(self, n: int) -> float:
        """Bayesian information criterion, lower is better."""
        return float(self.n_parameters * np.log(n) - 2 * self.log_likelihood)

    def log_joint(self, rows: Rows) -> Floats:
        """Log of share times density, (n, k)."""
        x, (k, d) = rows.vectors, self.mean.shape
        if rows.products is None:
            out = np.empty((len(x), k))
            for j, (mean, covariance) in enumerate(zip(self.mean, self.covariance, strict=True)):
                lower = np.linalg.cholesky(covariance)
                whiten = solve_triangular(lower, np.eye(d), lower=True).T
                white = x @ whiten - mean @ whiten
                out[:, j] = -0.5 * np.einsum("ij,ij->i", white, white) - np.log(np.diag(lower)).sum()
        else:
            if self.full:
                precision = np.linalg.inv(self.covariance)
                pull = np.einsum("kij,kj->ki", precision, self.mean)
                log_volume = np.linalg.slogdet(self.covariance)[1]
            else:
                precision = 1 / self.covariance
                pull = self.mean * precision
                log_volume = np.log(self.covariance).sum(axis=1)
            out = rows.products @ (-0.5 * precision.reshape(k, -1).T) + x @ pull.T
            out -= 0.5 * ((self.mean * pull).sum(axis=1) + log_volume)
        out += np.log(self.share) - 0.5 * d * np.log(2 * np.pi)
        if self.kinds is not None and rows.kinds is not None:
            out += rows.kind_weight * (rows.kinds @ np.log(self.kinds).T)
        return out

    def belonging(self, rows: Rows) -> tuple[Floats, Floats]:
        """How much each row belongs to each component (rows sum to 1), and the log likelihood of each row."""
        joint = self.log_joint(rows)
        top = joint.max(axis=1, keepdims=True)
        np.subtract(joint, top, out=joint)
        np.exp(joint, out=joint)
        total = joint.sum(axis=1, keepdims=True)
        joint /= total
        return joint, (np.log(total) + top)[:, 0]


def maximise(rows: Rows, belonging: Floats, *, full: bool, floor: float) -> Mixture:
    """The M step: components from how much each row belongs to them."""
    x = rows.vectors
    count = belonging.sum(axis=0) + _TINY
    mean = belonging.T @ x / count[:, None]
    k, d = mean.shape
    if rows.products is None:
        covariance = np.empty((k, d, d))
        for j, weight in enumerate(belonging.T):
            near = np.flatnonzero(weight > NEGLIGIBLE)
            apart = x[near] - mean[j]
            covariance[j] = (apart * weight[near, None]).T @ apart / count[j]
    else:
        covariance = belonging.T @ rows.products / count[:, None]
        if full:
            covariance = covariance.reshape(k, d, d) - mean[:, :, None] * mean[:, None, :]
        else:
            covariance = np.maximum(covariance - mean**2, 0)
    covariance += floor * np.eye(d) if full else floor
    kinds = None
    if rows.kinds is not None:
        kinds = belonging.T @ rows.kinds + 1e-6  # never exactly 0, whose log is none
        kinds /= kinds.sum(axis=1, keepdims=True)
    return Mixture(count / count.sum(), mean, covariance, kinds)


def fit(
    rows: Rows,
    belonging: Floats,
    *,
    full: bool,
    floor: float,
    least: float = 0.0,
    rounds: int = ROUNDS,
    tolerance: float = TOLERANCE,
    tick: Progress = lambda text: None,
) -> Mixture:
    """EM from a first belonging. Components with fewer than `least` rows are dropped one by one; EM goes on."""
    found, n = maximise(rows, belonging, full=full, floor=floor), len(belonging)
    before, done = -np.inf, 0
    while True:
        belonging, log_likelihood = found.belonging(rows)
        now, done = float(log_likelihood.mean()), done + 1
        tick(f"{components_text(len(found.share))}, round {done}")
        if now - before < tolerance or done >= rounds:
            smallest = int(belonging.sum(axis=0).argmin())
            if belonging[:, smallest].sum() >= least or belonging.shape[1] == 1:
                return replace(found, log_likelihood=now * n, rounds=done)
            belonging = np.delete(belonging, smallest, axis=1)
            belonging /= np.maximum(belonging.sum(axis=1, keepdims=True), _TINY)
            now, done = -np.inf, 0
        before = now
        found = maximise(rows, belonging, full=full, floor=floor)


def start(vectors: Floats, k: int, seed: Sequence[int]) -> Floats:
    """A first belonging: every row wholly to the nearest of k centres of k-means on some of the rows."""
    from sklearn.cluster import KMeans

    rng = np.random.default_rng(list(seed))
    chosen = vectors
    if len(vectors) > START_ROWS:
        chosen = vectors[np.sort(rng.choice(len(vectors), START_ROWS, replace=False))]
    k = min(k, len(np.unique(chosen, axis=0)))
    centres = KMeans(k, n_init=1, random_state=int(rng.integers(2**31))).fit(chosen).cluster_centers_
    nearest = ((centres**2).sum(axis=1) - 2 * (vectors @ centres.T)).argmin(axis=1)
    _, code = np.unique(nearest, return_inverse=True)
    return np.asarray(np.eye(code.max() + 1)[code])


def unit_axes(vectors: Floats) -> Callable[[Floats], Floats]:
    """Brings every axis to mean 0 and variance 1; an axis that does not vary stays at 0."""
    mean, spread = vectors.mean(axis=0), vectors.std(axis=0)
    flat = spread <= 1e-12 * np.maximum(1, np.abs(mean))
    return lambda other: np.asarray(np.where(flat, 0.0, (other - mean) / np.where(flat, 1.0, spread)))


def components_text(k: int) -> str:
    """The number of components in words."""
    return "1 component" if k == 1 else f"{k} components"


# The main part.

# Components that are tried. SLICES' code has 4 to 16 in steps of 2; fewer are added. 1 is not: by BIC a class of some
# hundred images is one cloud, and D2's slice, which two components find, would never be looked at.
COMPONENTS = (2, 3, 4, 6, 8, 10, 12, 14, 16)
PAPER_COMPONENTS = (4, 6, 8, 10, 12, 14, 16)
PAPER_ROUNDS, PAPER_TOLERANCE = 100, 1e-3  # what SLICES' code leaves as scikit-learn has it
STARTS = 3
SHORT = 25  # rounds of EM after which the best start is chosen
SEARCH_ROWS = 4_000  # rows on which the number of components is chosen; all rows then fit that many


@dataclass(frozen=True, slots=True)
class Choice:
    """The mixture with the best BIC, and the BIC of every number of components that was tried."""

    mixture: Mixture
    tried: dict[int, float]


def by_bic(
    rows: Rows,
    components: Sequence[int],
    *,
    full: bool,
    floor: float,
    least: float,
    starts: int,
    seed: int,
    progress: Progress,
    patience: int | None = 2,
    rounds: int = ROUNDS,
    tolerance: float = TOLERANCE,
) -> Choice:
    """Fit every number of components; the search ends once `patience` in a row were worse than the best.

    Of several starts the one with the best likelihood after some rounds is followed to the end.
    """
    tick, n = ticker(progress), len(rows.vectors)
    best: Mixture | None = None
    tried: dict[int, float] = {}
    worse = 0
    for k in components:
        if best is not None and k * max(least, 2) > n:
            break
        run = partial(fit, rows, full=full, floor=floor, tolerance=tolerance)
        first = start(rows.vectors, k, (seed, k, 0))
        if starts > 1:
            shorts = [
                run(
                    start(rows.vectors, k, (seed, k, s)),
                    rounds=SHORT,
                    tick=_prefix_progress(f"k = {k}, start {s + 1}", tick),
                )
                for s in range(starts)
            ]
            first = max(shorts, key=lambda each: each.log_likelihood).belonging(rows)[0]
        found = run(first, least=least, rounds=rounds, tick=_prefix_progress(f"k = {k}", tick))
        tried[k] = found.bic(n)
        if best is None or tried[k] < best.bic(n):
            best, worse = found, 0
        else:
            worse += 1
        if worse == patience:
            break
    assert best is not None, "components is empty"
    return Choice(best, tried)


def _prefix_progress(said: str, tick: Progress) -> Progress:
    return lambda text: tick(f"{said}: {text}")


def mixture(seen: Seen, *, seed: int, recipe: str, progress: Progress) -> Found:
    """Gaussians with diagonal covariances; with the recipe `paper` full ones, 4 to 16, one start, no least size."""
    paper = recipe == "paper"
    scale = unit_axes(seen.vectors)
    x = scale(seen.vectors)
    n, d = x.shape
    least = 2 if paper else least_rows(n)
    components = PAPER_COMPONENTS if paper else COMPONENTS
    floor, searched = FULL_FLOOR if paper else DIAGONAL_FLOOR, x
    if n > SEARCH_ROWS and not paper:
        searched = x[np.sort(np.random.default_rng([seed, 223]).choice(n, SEARCH_ROWS, replace=False))]
    choice = by_bic(
        prepare(searched, full=paper), components, full=paper, floor=floor,
        least=2 if paper else least_rows(len(searched)), starts=1 if paper else STARTS, seed=seed, progress=progress,
        patience=None if paper else 2, rounds=PAPER_ROUNDS if paper else ROUNDS,
        tolerance=PAPER_TOLERANCE if paper else TOLERANCE,
    )  # fmt: skip
    best = choice.mixture
    if len(searched) < n:
        rows = prepare(x, full=paper)
        tick = _prefix_progress(f"all {n:,} rows", ticker(progress))
        best = fit(rows, best.belonging(rows)[0], full=paper, floor=floor, least=least, tick=tick)
    k = len(best.share)
    about = (
        f"Gaussian mixture with {'full' if paper else 'diagonal'} covariances: {components_text(k)} by BIC, tried "
        f"{', '.join(map(str, choice.tried))}{f' on {len(searched):,} of the rows' if len(searched) < n else ''}, "
        f"{1 if paper else STARTS} start{'' if paper else 's'} each, at least {least} rows a component"
    )
    if k == max(components):
        about += ", the largest number tried, so more might be better"
    if paper and (thin := int((best.share * n <= d).sum())):
        about += f"; {thin} have no more rows than dimensions, so their covariances depend on the regularisation"
    if k == 1:
        return no_slices(f"{about}: the embeddings of this class form no clusters")
    return Found(lambda vectors, y, p: best.belonging(prepare(scale(vectors), full=paper))[0], k, 0.0, about)


# Vectors -> how many clusters they have by the gap statistic (Tibshirani et al. 2001), 1 = none.
#
# The log of the dispersion within k clusters is held against that of uniform rows in the box of the principal modes.
# k is the first whose gap is no smaller than the next one less its standard error.

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
    x = vectors[content_order(vectors)]  # first of all: sums depend on the order, if only in their last digits
    x = to_unit_variance(x)(x)
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
