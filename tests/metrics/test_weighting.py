"""Weights, effective sizes, balance and strata of pre-test probability."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cxrhf import metrics
from cxrhf.twin.planted import context
from tests.metrics import twins

FAST = settings(max_examples=150, deadline=None, derandomize=True)


@st.composite
def contexts(draw):
    n = draw(st.integers(1, 30))
    y = draw(st.lists(st.integers(0, 1), min_size=n, max_size=n))
    q = draw(st.lists(st.sampled_from([0, 0.0001, 0.05, 0.2, 0.2, 0.5, 0.93, 0.9999, 1]), min_size=n, max_size=n))
    return np.array(y), np.array(q, dtype=float)


@FAST
@given(contexts(), st.sampled_from([0.01, 0.2, 0.5]), st.sampled_from([0.001, 0.05]))
def test_weights_are_the_formulas(sample, prevalence, clip):
    y, q = sample
    weight = metrics.ipw_weights(y, q, prevalence, clip=clip)
    np.testing.assert_allclose(weight, twins.ipw_weights(y, q, prevalence, clip), rtol=1e-12)
    assert weight.sum() == pytest.approx(len(y))
    np.testing.assert_allclose(metrics.att_weights(y, q, clip=clip), twins.att_weights(y, q, clip), rtol=1e-12)


def test_pretest_equal_to_prevalence_weighs_everybody_the_same():
    y = np.array([1, 0, 0, 1, 0])
    np.testing.assert_allclose(metrics.ipw_weights(y, np.full(5, 0.2), 0.2), 1.0, rtol=1e-12)


def test_ranking_does_not_depend_on_the_prevalence_of_the_weights():
    sample = context(2000, seed=1)
    values = [
        metrics.auroc(sample.y, sample.score, metrics.ipw_weights(sample.y, sample.pretest, prevalence))
        for prevalence in (0.01, 0.2, 0.7)
    ]
    assert np.ptp(values) < 1e-12


@FAST
@given(contexts(), st.integers(0, 5))
def test_effective_size(sample, seed):
    y, _ = sample
    weight = np.random.default_rng(seed).exponential(size=len(y))
    size = metrics.effective_sample_size(weight, y)
    for value, rows in ((size.total, np.full(len(y), True)), (size.positive, y == 1), (size.negative, y == 0)):
        expected = sum(weight[rows]) ** 2 / sum(v * v for v in weight[rows]) if rows.any() else 0.0
        assert value == pytest.approx(expected)
        assert value <= rows.sum() + 1e-9
    assert metrics.effective_sample_size(weight * 7, y) == pytest.approx(size)
    equal = metrics.effective_sample_size(np.full(len(y), 3.0), y)
    assert equal == pytest.approx((len(y), y.sum(), (1 - y).sum()))


def test_a_pooled_effective_size_hides_a_collapsed_class():
    """methods.md: at prevalence .05 pooled .92 of the rows, positives .39."""
    sample = context(200_000, pi=0.05, seed=3)
    size = metrics.effective_sample_size(metrics.ipw_weights(sample.y, sample.pretest, 0.05), sample.y)
    assert size.total / len(sample.y) == pytest.approx(0.92, abs=0.03)
    assert size.positive / sample.y.sum() == pytest.approx(0.39, abs=0.06)


@pytest.mark.parametrize("seed", range(5))
def test_balance_of_a_sample(seed):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, 60)
    q = np.round(np.clip(rng.normal(0.3 + 0.2 * y, 0.2), 0, 1), 2)
    w = rng.integers(0, 3, 60) + 0.0 if seed % 2 else np.ones(60)
    got = metrics.balance(y, q, w)
    assert got.mean_positive == pytest.approx(np.average(q[y == 1], weights=w[y == 1]))
    assert got.mean_negative == pytest.approx(np.average(q[y == 0], weights=w[y == 0]))
    assert got.ks == pytest.approx(twins.ks_distance(y, q, w))
    # one scale before and after weighting: the unweighted spread of the classes
    scale = np.sqrt((q[y == 1].var() + q[y == 0].var()) / 2)
    expected = (got.mean_positive - got.mean_negative) / scale
    assert got.standardised_difference == pytest.approx(expected, rel=0.03)  # n or n - 1
    assert 0 <= got.overlap <= 1


def test_balance_at_the_ends():
    same = metrics.balance([0, 1, 0, 1], [0.2, 0.2, 0.6, 0.6])
    assert (same.standardised_difference, same.ks, same.overlap) == pytest.approx((0, 0, 1))
    apart = metrics.balance([0, 0, 0, 1, 1, 1], [0.1, 0.15, 0.2, 0.7, 0.8, 0.9])
    assert (apart.ks, apart.overlap) == pytest.approx((1, 0))
    assert all(np.isnan(v) for v in metrics.balance([1, 1], [0.1, 0.2]))
    # Two constants that differ are as far apart as can be; one constant is no difference, not even a rounded one.
    assert metrics.balance([1, 1, 0, 0], [0.9, 0.9, 0.1, 0.1]).standardised_difference == np.inf
    assert metrics.balance([0, 0, 1, 1], [0.9, 0.9, 0.1, 0.1]).standardised_difference == -np.inf
    for n in range(3, 40):
        assert metrics.balance([1] * n + [0] * 2 * n, [0.3] * 3 * n, np.arange(3 * n)).standardised_difference == 0


@pytest.mark.parametrize("scheme", ["ipw", "att"])
def test_weights_balance_the_planted_context(scheme):
    sample = context(40_000, seed=5)
    y, q = sample.y, sample.pretest
    weight = metrics.ipw_weights(y, q, 0.2) if scheme == "ipw" else metrics.att_weights(y, q)
    before, after = metrics.balance(y, q), metrics.balance(y, q, weight)
    assert before.standardised_difference > 0.6
    assert abs(after.standardised_difference) < 0.1
    assert after.ks < before.ks / 3
    assert after.overlap > before.overlap
    target = np.average(q) if scheme == "ipw" else q[y == 1].mean()
    assert after.mean_negative == pytest.approx(target, abs=0.02)


def _codes(groups):
    return groups.middle * 1 + groups.top * 2


@FAST
@given(st.lists(st.integers(0, 8).map(lambda k: k / 8), min_size=1, max_size=40))
def test_midrank_groups(q):
    groups = metrics.quantile_groups(q)
    np.testing.assert_array_equal(_codes(groups), twins.midrank_groups(q))
    assert np.all(groups.bottom * 1 + groups.middle + groups.top == 1)
    assert groups.shares == pytest.approx([np.mean(twins.midrank_groups(q) == k) for k in range(3)])
    mirrored = metrics.quantile_groups([1 - v for v in q])
    np.testing.assert_array_equal(_codes(mirrored), 2 - _codes(groups))


def test_inclusive_groups_overlap_where_the_quantiles_meet():
    q = np.array([0.1] + [0.3] * 8 + [0.9])
    groups = metrics.quantile_groups(q, rule="inclusive")
    np.testing.assert_array_equal(groups.bottom, q <= 0.3)
    np.testing.assert_array_equal(groups.top, q >= 0.3)
    assert not groups.middle.any()
    midrank = metrics.quantile_groups(q)
    np.testing.assert_array_equal(_codes(midrank), [0, *[1] * 8, 2])


REPLICATES, ROWS = 24, 6000


@pytest.fixture(scope="module", params=[(0.2, 0.8, 0.4), (0.05, 0.8, 0.4), (0.2, 0.0, 0.0)], ids=["D1", "rare", "null"])
def planted(request):
    pi, g, eta = request.param
    return [context(ROWS, pi=pi, g=g, eta=eta, images_per_patient=(1, 5), seed=s) for s in range(REPLICATES)]


def _recovered(values, truth, bias=0.0):
    """Mean over independent samples within four of its standard errors, plus a stated small-sample bias."""
    values = np.array(values)
    return abs(values.mean() - truth) < 4 * values.std(ddof=1) / np.sqrt(len(values)) + bias


def test_planted_context_is_recovered(planted):
    """D1 with several images a patient: standard, ATT, IPW, strata."""
    truth = planted[0].truth
    assert _recovered([metrics.auroc(s.y, s.score) for s in planted], truth.standard)
    assert _recovered([metrics.auroc(s.y, s.prob) for s in planted], truth.standard)
    att = [metrics.auroc(s.y, s.score, metrics.att_weights(s.y, s.pretest)) for s in planted]
    assert _recovered(att, truth.att, 0.002)
    ipw = [metrics.auroc(s.y, s.score, metrics.ipw_weights(s.y, s.pretest, s.truth.prevalence)) for s in planted]
    assert _recovered(ipw, truth.ipw, 0.002)
    for name, expected in zip(("bottom", "middle", "top"), truth.strata, strict=True):
        rows = [getattr(metrics.quantile_groups(s.pretest), name) for s in planted]
        values = [metrics.auroc(s.y[r], s.score[r]) for s, r in zip(planted, rows, strict=True)]
        assert _recovered(values, expected, 0.002), name


def test_planted_sensitivities_are_recovered(planted):
    """D1 at 95% specificity: pooled, ATT and IPW weighted, and in strata by local and by global threshold."""
    truth = planted[0].truth
    at = metrics.sensitivity_at_specificity
    assert _recovered([at(s.y, s.score).sensitivity for s in planted], truth.sensitivity, 0.002)
    att = [at(s.y, s.score, weight=metrics.att_weights(s.y, s.pretest)).sensitivity for s in planted]
    assert _recovered(att, truth.sensitivity_att, 0.01)
    weights = [metrics.ipw_weights(s.y, s.pretest, s.truth.prevalence) for s in planted]
    ipw = [at(s.y, s.score, weight=w).sensitivity for s, w in zip(planted, weights, strict=True)]
    assert _recovered(ipw, truth.sensitivity_ipw, 0.005)
    for k, name in enumerate(("bottom", "middle", "top")):
        local, overall = [], []
        for s in planted:
            rows = getattr(metrics.quantile_groups(s.pretest), name)
            local.append(at(s.y[rows], s.score[rows]).sensitivity)
            overall.append(metrics.rates_at(s.y[rows], s.score[rows], at(s.y, s.score).threshold).tpr)
        assert _recovered(local, truth.sensitivity_local[k], 0.005), name
        assert _recovered(overall, truth.sensitivity_global[k], 0.003), name
