"""Balancing weights: the formula written out, the target reached, empty cells, and what must not matter."""

from __future__ import annotations

import numpy as np
import pytest

from cxrhf.data.planted_subgroups import AGE, PREVALENCE, SHARE, subgroups
from cxrhf.metrics import age_bins, auroc, balancing_weights, rates_at
from cxrhf.metrics.balancing import AGE_BINS
from tests.metrics import twins


def sample(seed=0, n=400, empty=False):
    rng = np.random.default_rng(seed)
    group = rng.integers(-1, 3, n)
    y = (rng.random(n) < 0.2 + 0.1 * group).astype(float)
    bins = np.clip(rng.integers(-1, 4, n) + (group == 2), -1, 4)
    if empty:
        bins[(group == 1) & (y == 1) & (bins > 1)] = 0
    return y, group, bins, rng.choice([0.0, 0.5, 1.0, 2.0], n)


@pytest.mark.parametrize("empty", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
def test_the_formula_row_by_row(empty, weighted):
    y, group, bins, weight = sample(empty=empty)
    weight = weight if weighted else np.ones(len(y))
    found = balancing_weights(y, group, bins, weight)
    np.testing.assert_allclose(found.weight, twins.balancing_weights(y, group, bins, weight), atol=1e-12)
    assert found.weight.sum() == pytest.approx(weight[(group >= 0) & (bins >= 0)].sum())


@pytest.mark.parametrize("empty", [False, True])
def test_groups_become_alike(empty):
    y, group, bins, _ = sample(n=3000, empty=empty)
    found = balancing_weights(y, group, bins)
    inside = (group >= 0) & (bins >= 0)
    prevalence = y[inside].mean()
    for g in range(3):
        own = group == g
        assert found.weight[own].sum() == pytest.approx(inside.sum() / 3)
        assert np.average(y[own], weights=found.weight[own]) == pytest.approx(prevalence)
        for d in (0, 1):
            cell = own & (y == d)
            ages = np.array([found.weight[cell & (bins == a)].sum() for a in range(5)]) / found.weight[cell].sum()
            there = found.covered[g, d]
            np.testing.assert_allclose(ages, found.target[d] * there / (found.target[d] * there).sum(), atol=1e-12)
            assert found.share[g, d] == pytest.approx(found.target[d][there].sum())
    lacks = found.share[1, 1] < 0.7
    assert lacks == empty


def test_without_ages_only_the_prevalence_is_balanced():
    y, group, _, _ = sample(n=2000)
    found = balancing_weights(y, group)
    for g in range(3):
        for d in (0, 1):
            assert np.ptp(found.weight[(group == g) & (y == d)]) == 0
        assert np.average(y[group == g], weights=found.weight[group == g]) == pytest.approx(y[group >= 0].mean())
    assert (found.share == 1).all()


def test_groups_alike_keep_their_weights():
    y = np.tile([0, 0, 1, 1], 6)
    group = np.repeat([0, 1, 2], 8)
    np.testing.assert_allclose(balancing_weights(y, group, np.tile([0, 1, 0, 1], 6)).weight, 1.0)


def test_weight_is_repetition_and_order_does_not_matter():
    y, group, bins, _ = sample()
    times = np.random.default_rng(1).integers(0, 4, len(y))
    at = np.repeat(np.arange(len(y)), times)
    found = balancing_weights(y, group, bins, times).weight
    repeated = np.bincount(at, balancing_weights(y[at], group[at], bins[at]).weight, len(y))
    np.testing.assert_allclose(found, repeated, atol=1e-12)
    order = np.random.default_rng(2).permutation(len(y))
    shuffled = balancing_weights(y[order], group[order], bins[order], times[order]).weight
    np.testing.assert_allclose(shuffled, found[order], atol=1e-12)


def test_nobody_left():
    assert balancing_weights([0, 1], [-1, -1]).weight.tolist() == [0, 0]
    assert balancing_weights([], []).weight.tolist() == []
    lone = balancing_weights([0, 0, np.nan], [0, 1, 1], n_groups=3)
    assert lone.weight.tolist() == [1, 1, 0]
    assert np.isnan(lone.share[2]).all()
    assert np.isnan(lone.share[:, 1]).all()


def test_bins_are_those_of_the_paper():
    ages = [0, 20, 20.1, 30, 31, 80, 80.5, 110, np.nan]
    assert age_bins(ages).tolist() == [0, 0, 1, 1, 2, 6, 7, 7, -1]
    assert AGE_BINS[:3] == ("<=20", "21-30", "31-40")
    assert AGE_BINS[-2:] == ("71-80", ">80")
    assert len(AGE_BINS) == 8


@pytest.mark.parametrize("shift", [0.0, 0.5])
def test_planted_balanced_rates(shift):
    """D3: with a large sample the balanced rates of every race are the closed forms, to three decimals and a bit."""
    data = subgroups(400_000, shift=shift, seed=4)
    weight = balancing_weights(data.y, data.race, data.age).weight
    assert np.bincount(data.race, weight) / len(weight) == pytest.approx([1 / 3] * 3)
    assert np.average(data.y, weights=weight) == pytest.approx(float(SHARE @ PREVALENCE), abs=0.003)
    share = np.average(data.age == 0, weights=weight * (data.y == 1))
    assert share == pytest.approx(float((SHARE * PREVALENCE) @ AGE[1, :, 0] / (SHARE @ PREVALENCE)), abs=0.003)
    for race in range(3):
        own = data.race == race
        rates = rates_at(data.y[own], data.score[own], data.truth.threshold, weight[own])
        assert rates.tpr == pytest.approx(data.truth.balanced_tpr[race], abs=0.012)
        assert rates.fpr == pytest.approx(data.truth.balanced_fpr[race], abs=0.012)
        assert auroc(data.y[own], data.score[own], weight[own]) == pytest.approx(
            data.truth.balanced_auroc[race], abs=0.01
        )
