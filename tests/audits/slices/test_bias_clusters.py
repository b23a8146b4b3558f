"""Bias-aware clusters: cut where errors differ and not where they do not, the same cuts for other rows."""

from __future__ import annotations

import numpy as np

from cxrhf.audits.slices.methods import Seen, assign, discover
from tests.audits.slices.planted import silent


def rows(n: int = 400, far: float = 6.0, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    group = (rng.random(n) < 0.3).astype(int)
    vectors = rng.standard_normal((n, 3)) + far * group[:, None] * [1, 0, 0]
    return vectors, group, rng.uniform(0.5, 0.9, n)


def test_cut_where_errors_differ() -> None:
    vectors, group, p = rows()
    worse = np.where(group == 1, p - 0.4, p)
    found = discover("bias_clusters", Seen(vectors, np.ones(400), worse), seed=0, progress=silent)
    others, truth, _ = rows(seed=1)
    code = assign(found.weights(others, np.ones(400), np.full(400, 0.5)), found.floor)
    mixed = sum(min((truth[code == j] == 0).sum(), (truth[code == j] == 1).sum()) for j in range(found.n_slices))
    assert mixed < 4
    assert "principal modes instead" in found.about


def test_clusters_with_the_same_errors_stay_whole() -> None:
    none = 0
    for seed in range(10):
        vectors, _, p = rows(seed=seed)
        none += discover("bias_clusters", Seen(vectors, np.ones(400), p), seed=0, progress=silent).n_slices == 0
    assert none >= 7
