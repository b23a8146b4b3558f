"""Balancing weights: the formula written out, the target reached, empty cells, and what must not matter."""

from __future__ import annotations

import math

import numpy as np
import pytest

from cxrhf.metrics import age_bins, auroc, balancing_weights, disease_groups, rates_at, threshold_at_fpr
from cxrhf.metrics.balancing import AGE_BINS
from cxrhf.twin.planted_groups import AGE, PREVALENCE, SHARE, diseases, diseases_truth, subgroups
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


# ---------------------------------------------------------------- ENCODING's three disease groups


def disease_sample(seed=0, n=500, empty=False):
    """Labels of both findings, some missing, some positive in both; races, age bins and weights."""
    rng = np.random.default_rng(seed)
    race, bins = rng.integers(-1, 3, n), rng.integers(-1, 4, n)
    healthy = (rng.random(n) < 0.2 + 0.2 * race).astype(float)
    effusion = (rng.random(n) < 0.3).astype(float)
    healthy[rng.random(n) < 0.1], effusion[rng.random(n) < 0.1] = np.nan, np.nan
    if empty:
        bins[(race == 1) & (effusion == 1) & (bins == 2)] = 0
    return healthy, effusion, race, bins, rng.choice([0.5, 1.0, 2.0], n)


def slow_weights(healthy, effusion, race, bins, weight):
    """The paper's population in plain Python, image by image: Pleural Effusion overrides No Finding, the rest is Other;
    w = (1/R) P(d) P(a | d) / P(r, d, a), the ages that a race lacks in a disease group taken over by its others."""
    images = []
    for i, (one, other) in enumerate(zip(healthy.tolist(), effusion.tolist(), strict=True)):
        if not math.isnan(one + other) and race[i] >= 0 and bins[i] >= 0:
            group = "effusion" if other == 1 else "healthy" if one == 1 else "other"
            images.append((i, int(race[i]), group, int(bins[i]), float(weight[i])))

    def share(r=None, d=None, a=None):
        return sum(w for _, r_, d_, a_, w in images if r in (None, r_) and d in (None, d_) and a in (None, a_)) / total

    total = sum(w for *_, w in images)
    races = {r for _, r, *_ in images}
    out = [0.0] * len(healthy)
    for i, r, d, a, w in images:
        there = {a_ for _, r_, d_, a_, _ in images if (r_, d_) == (r, d)}
        target = share(d=d) * share(d=d, a=a) / sum(share(d=d, a=each) for each in there)
        out[i] = w * target / len(races) / share(r, d, a)
    return out


@pytest.mark.parametrize("empty", [False, True])
def test_the_papers_population_row_by_row(empty):
    healthy, effusion, race, bins, weight = disease_sample(n=250, empty=empty)
    disease = disease_groups(healthy, effusion)
    found = balancing_weights(disease, race, bins, weight)
    np.testing.assert_allclose(found.weight, slow_weights(healthy, effusion, race, bins, weight), atol=1e-12)
    known = ~np.isnan(healthy) & ~np.isnan(effusion)
    assert found.weight.sum() == pytest.approx(weight[known & (race >= 0) & (bins >= 0)].sum())
    assert found.covered.shape == (3, 3, 4)
    assert found.covered[1, 1, 2] == (not empty)
    assert found.share[1, 1] == pytest.approx(1 - found.target[1, 2] if empty else 1)


@pytest.mark.parametrize("empty", [False, True])
def test_races_become_alike_in_every_disease_group(empty):
    """An empty (race, disease group, age) takes no weight from its race and disease group: the other ages have it."""
    healthy, effusion, race, bins, _ = disease_sample(n=5000, empty=empty)
    disease = disease_groups(healthy, effusion)
    found = balancing_weights(disease, race, bins)
    inside = (race >= 0) & (bins >= 0) & ~np.isnan(disease)
    for d in range(3):
        share = (disease[inside] == d).mean()
        for r in range(3):
            cell = inside & (race == r) & (disease == d)
            assert found.weight[cell].sum() == pytest.approx(share * inside.sum() / 3)
            ages = np.array([found.weight[cell & (bins == a)].sum() for a in range(4)]) / found.weight[cell].sum()
            target = found.target[d] * found.covered[r, d]
            np.testing.assert_allclose(ages, target / target.sum(), atol=1e-12)


@pytest.mark.parametrize("finding", ["no_finding", "pleural_effusion"])
@pytest.mark.parametrize("alike", [False, True])
def test_planted_numbers_of_the_papers_population(finding, alike):
    """Large samples: every sex and race has the closed forms, also where the order of women and men turns."""
    made = diseases(400_000, alike=alike, seed=2)
    y, score = made.y[finding], made.score[finding]
    by_disease = disease_groups(made.y["no_finding"], made.y["pleural_effusion"])
    np.testing.assert_array_equal(by_disease, made.disease)
    for population, classes in (("_balanced_by_race", y), ("_balanced_by_race_and_disease", by_disease)):
        truth = diseases_truth(finding, population, alike=alike)
        weight = balancing_weights(classes, made.race, made.age).weight
        at = threshold_at_fpr(y, score, 0.2, weight)
        assert at == pytest.approx(truth.threshold, abs=0.01)
        groups = {f"sex={sex}": made.sex == sex for sex in "FM"} | {f"race={r}": made.race == r for r in range(3)}
        for name, own in groups.items():
            rates = rates_at(y[own], score[own], at, weight[own])
            assert auroc(y[own], score[own], weight[own]) == pytest.approx(truth.auroc[name], abs=0.007), name
            assert (rates.tpr, rates.fpr) == pytest.approx((truth.tpr[name], truth.fpr[name]), abs=0.015), name
