"""Vectors -> a mixture of Gaussians by EM: one for every method that needs a mixture.

Beside the vectors a row may have soft kinds (what a model predicts, as shares that sum to 1); a component then has a
categorical of its own over them, whose log likelihood counts `kind_weight` times (Domino). Axes should be brought to
variance 1 before, which changes no mixture but makes the regularisation mean the same for every axis.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.linalg import solve_triangular

from cxrhf.audits.sample import Progress
from cxrhf.audits.slices.found import Floats

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
