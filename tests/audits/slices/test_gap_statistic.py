"""Gap statistic: one blob is one cluster, three are three, and the dispersion is that of its definition."""

from __future__ import annotations

import numpy as np
import pytest

from cxrhf.audits.slices.mixture import CLUSTERS, GapStatistic, gap_statistic
from tests.audits.slices.planted import silent


def gaps_of(vectors: np.ndarray, seed: int) -> GapStatistic:
    return gap_statistic(vectors, seed=seed, progress=silent)


def blobs(k: int, n: int = 240, d: int = 3, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return rng.standard_normal((n, d)) + (8 * np.eye(d)[rng.integers(k, size=n)] if k > 1 else 0)


def test_one_and_three_blobs() -> None:
    assert [gaps_of(blobs(1, seed=seed), seed=seed).k for seed in range(3)] == [1, 1, 1]
    assert [gaps_of(blobs(3, seed=seed), seed=seed).k for seed in range(3)] == [3, 3, 3]


def test_the_first_gap_is_that_of_its_definition() -> None:
    """k = 1 by hand: half the mean of all squared distances; if uniform 1/12 of the squared sides of the box."""
    x = blobs(1)
    found = gaps_of(x, seed=0)
    pairs = ((x[:, None] - x[None]) ** 2).sum(axis=2).sum() / (2 * len(x))
    _, _, axes = np.linalg.svd(x - x.mean(axis=0), full_matrices=False)
    box = np.ptp((x - x.mean(axis=0)) @ axes.T, axis=0)
    uniform = len(x) * (box**2).sum() / 12
    assert abs(found.gaps[0] - (np.log(uniform) - np.log(pairs))) < 4 * found.spread[0]


@pytest.mark.slow
def test_neither_order_nor_scale_matters() -> None:
    x = blobs(2, 300)
    one, two = gaps_of(x, seed=0), gaps_of(x[np.random.default_rng(0).permutation(300)], seed=0)
    np.testing.assert_array_equal(one.gaps, two.gaps)
    assert gaps_of(100 * x + 5, seed=0).k == one.k == 2


def test_few_different_vectors() -> None:
    found = gaps_of(np.ones((50, 3)), seed=0)
    assert found.k == 1
    assert np.isnan(found.gaps).all()
    found = gaps_of(np.repeat(blobs(1, 4), 20, axis=0), seed=0)
    assert np.isfinite(found.gaps[:3]).all()
    assert np.isnan(found.gaps[3:]).all()
    assert len(found.gaps) == len(found.spread) == CLUSTERS
