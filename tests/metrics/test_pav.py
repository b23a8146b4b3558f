"""The Brier score split by isotonic recalibration: compiled pools against scipy's isotonic regression."""

from __future__ import annotations

import numpy as np
import pytest

from cxrhf.metrics import bootstrap_many, draw, interval, pav_decomposition
from cxrhf.metrics.reliability import kept_by_pools, pav_groups, pav_sorted

NAMES = ("pav_calibration", "pav_refinement")


def rows(digits: int, n: int = 300, seed: int = 0):
    rng = np.random.default_rng(seed)
    p = np.sort(np.round(rng.beta(1, 2, n), digits))
    return (rng.random(n) < p**1.5).astype(float), p, rng.integers(0, n // 4, n), rng.random(n) * rng.integers(0, 3, n)


@pytest.mark.parametrize("digits", [0, 1, 2, 12])
def test_pools_are_those_of_isotonic_regression(digits):
    y, p, _, weight = rows(digits)
    for w in (np.ones(len(y)), weight, np.zeros(len(y))):
        expected = pav_decomposition(y, p, w)
        np.testing.assert_allclose(pav_sorted(y, p, w), expected[1:3], rtol=0, atol=1e-12)


@pytest.mark.parametrize("digits", [0, 1, 2, 12])
@pytest.mark.parametrize("weighted", [False, True])
def test_replicates_are_the_decomposition_of_their_rows(digits, weighted):
    y, p, patients, weight = rows(digits)
    weight = weight if weighted else np.ones(len(y))
    draws = draw(patients, y=y, n_resamples=20)
    got = bootstrap_many(NAMES, y, p, weight, draws=draws)
    counts = draws.counts(0, 20, conditional=False)[draws.unit]
    for r in range(20):
        expected = pav_decomposition(y, p, weight * counts[:, r])
        assert got["pav_calibration"][r] == pytest.approx(expected.calibration, abs=1e-12)
        assert got["pav_refinement"][r] == pytest.approx(expected.refinement, abs=1e-12)


def test_groups_split_only_where_a_pool_may_begin():
    positive = np.array([0, 0, 1, 1, 0, 0, 1, 0, 1], dtype=bool)
    last = np.array([1, 1, 1, 1, 1, 1, 0, 1, 1], dtype=bool)  # rows 6 and 7 have one score
    group = np.empty(9, dtype=np.int32)
    assert pav_groups(positive, last, group) == 4
    assert group.tolist() == [0, 0, 1, 1, 1, 1, 2, 2, 3]


@pytest.mark.parametrize(
    ("y", "calibration", "refinement"),
    [([0.0, 0.0, 1.0], 0.05, 0.0), ([1.0, 1.0, 1.0], 0.4366666, 0.0), ([1.0, 0.0, 0.0], None, 2 / 9)],
)
def test_by_hand(y, calibration, refinement):
    p = np.array([0.1, 0.3, 0.6])
    score = float(((p - y) ** 2).mean())
    found = pav_sorted(np.array(y), p, np.ones(3))
    assert found[1] == pytest.approx(refinement)
    assert found[0] == pytest.approx(score - refinement)
    assert kept_by_pools(np.zeros(0), np.zeros(0)) == 0.0


def test_a_calibrated_model_has_a_noise_floor_and_its_interval_is_centred():
    y, p, patients, _ = rows(12, n=400)
    draws = draw(patients, y=y, n_resamples=300)
    value = pav_decomposition(y, p)
    got = bootstrap_many(NAMES, y, p, draws=draws)
    for name, point in zip(NAMES, (value.calibration, value.refinement), strict=True):
        found = interval(point, got[name], metric=name)
        assert found.method == "centred percentile"
        assert found.low < point < found.high
    assert got["pav_calibration"].mean() > value.calibration
    assert got["pav_refinement"].mean() < value.refinement


def test_undefined_without_rows():
    y, p, _, _ = rows(12, n=8)
    out = bootstrap_many(NAMES, np.full(8, np.nan), p, draws=draw(y=y, n_resamples=4))
    assert all(np.isnan(out[name]).all() for name in NAMES)
