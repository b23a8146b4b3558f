"""Permutation tests: exact small cases, size under the null, power under a planted difference."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from cxrhf.metrics import groups_permutation_test, models_permutation_test
from cxrhf.metrics.calibration import brier
from cxrhf.metrics.checks import InputError
from cxrhf.metrics.ranking import auroc


def test_models_against_all_swaps():
    """With 8 patients every swap can be listed; the sampled p value must come near the exact one."""
    rng = np.random.default_rng(0)
    clusters = np.repeat(np.arange(8), 2)
    y = np.tile([0.0, 1.0], 8)
    a, b = rng.random(16), rng.random(16)
    a[y == 1] += 0.4
    observed = abs(brier(y, np.clip(a, 0, 1)) - brier(y, b))
    a = np.clip(a, 0, 1)
    extreme = 0
    for flips in itertools.product([False, True], repeat=8):
        swap = np.array(flips)[clusters]
        difference = brier(y, np.where(swap, b, a)) - brier(y, np.where(swap, a, b))
        extreme += abs(difference) >= observed - 1e-12
    got = models_permutation_test(y, a, b, clusters=clusters, metric="brier", n_permutations=20_000)
    assert got.difference == pytest.approx(brier(y, a) - brier(y, b), abs=1e-12)
    assert got.p_value == pytest.approx(extreme / 256, abs=0.015)


def simulate(rng, gap=0.0, patients=80):
    clusters = np.repeat(np.arange(patients), 3)
    y = (rng.random(len(clusters)) < 0.3).astype(float)
    patient = rng.normal(size=patients)[clusters]
    a = y + gap * y + patient + rng.normal(size=len(y))
    b = y + patient + rng.normal(size=len(y))
    return clusters, y, a, b


def test_size_and_power():
    rng = np.random.default_rng(1)
    null, planted, groups = [], [], []
    for seed in range(150):
        clusters, y, a, b = simulate(rng)
        null.append(models_permutation_test(y, a, b, clusters=clusters, n_permutations=199, seed=seed).p_value)
        groups.append(
            groups_permutation_test(y, a, clusters % 2, clusters=clusters, n_permutations=199, seed=seed).p_value
        )
        if seed >= 50:
            continue
        clusters, y, a, b = simulate(rng, gap=1.5)
        planted.append(models_permutation_test(y, a, b, clusters=clusters, n_permutations=199, seed=seed).p_value)
    assert np.mean(np.array(null) <= 0.05) < 0.11  # 3 standard errors above .05
    assert np.mean(np.array(groups) <= 0.05) < 0.11
    assert np.mean(np.array(planted) <= 0.05) > 0.8


def test_group_difference_is_that_of_the_metric():
    clusters, y, a, _ = simulate(np.random.default_rng(2))
    sex = np.where(clusters % 2 == 0, "F", "M")
    got = groups_permutation_test(y, a, sex, clusters=clusters, n_permutations=99)
    expected = auroc(y[sex == "F"], a[sex == "F"]) - auroc(y[sex == "M"], a[sex == "M"])
    assert got.difference == pytest.approx(expected, abs=1e-12)
    assert got.p_value >= 0.01
    assert got == groups_permutation_test(y, a, sex, clusters=clusters, n_permutations=99)


def test_one_class_is_undefined():
    got = models_permutation_test([0, 0], [0.1, 0.2], [0.3, 0.1], n_permutations=9)
    assert np.isnan(got.p_value)


def test_bad_input_is_named():
    with pytest.raises(InputError, match="2 distinct values, got 3"):
        groups_permutation_test([0, 1, 1], [0.1, 0.2, 0.3], ["a", "b", "c"])
    with pytest.raises(InputError, match="one group per patient"):
        groups_permutation_test([0, 1], [0.1, 0.2], ["a", "b"], clusters=[1, 1])
    with pytest.raises(InputError, match="matched_auroc has no permutation test"):
        models_permutation_test([0, 1], [0.1, 0.2], [0.1, 0.2], metric="matched_auroc")
