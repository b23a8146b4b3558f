"""Adjusted p values against scipy and the definitions, and simultaneous bands."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cxrhf import metrics
from tests.metrics import twins

FAST = settings(max_examples=200, deadline=None, derandomize=True)
P_VALUES = st.lists(st.one_of(st.floats(0, 1), st.sampled_from([0.0, 0.01, 0.01, 0.05, 1.0])), min_size=1, max_size=15)
METHODS = ("bonferroni", "holm", "benjamini_hochberg", "benjamini_yekutieli")


@pytest.mark.parametrize("method", METHODS)
@FAST
@given(p=P_VALUES)
def test_adjusted_values_are_the_definition(method, p):
    got = getattr(metrics, method)(np.array(p))
    np.testing.assert_allclose(got, getattr(twins, method)(p), rtol=1e-12, atol=1e-15)
    assert np.all((got >= np.array(p) - 1e-15) & (got <= 1))


@pytest.mark.parametrize(("method", "name"), [("benjamini_hochberg", "bh"), ("benjamini_yekutieli", "by")])
@FAST
@given(p=P_VALUES)
def test_false_discovery_rates_are_scipys(method, name, p):
    from scipy.stats import false_discovery_control

    got = getattr(metrics, method)(np.array(p))
    np.testing.assert_allclose(got, false_discovery_control(p, method=name), rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("method", METHODS)
def test_undefined_tests_are_no_part_of_the_family(method):
    function = getattr(metrics, method)
    p = np.array([0.001, np.nan, 0.02, 0.03, np.nan, 0.4])
    got = function(p)
    np.testing.assert_array_equal(np.isnan(got), np.isnan(p))
    np.testing.assert_allclose(got[~np.isnan(p)], function(p[~np.isnan(p)]), rtol=1e-12)
    assert np.isnan(function(np.array([np.nan, np.nan]))).all()
    assert len(function(np.array([]))) == 0


@pytest.mark.parametrize("method", METHODS)
def test_order_does_not_matter(method):
    rng = np.random.default_rng(0)
    p = np.round(rng.random(40) ** 3, 2)
    order = rng.permutation(40)
    function = getattr(metrics, method)
    np.testing.assert_allclose(function(p[order]), function(p)[order], rtol=1e-12)


@pytest.mark.parametrize("bad", [-0.1, 1.3])
@pytest.mark.parametrize("method", METHODS)
def test_a_p_value_outside_0_1_is_refused(method, bad):
    with pytest.raises(ValueError) as error:
        getattr(metrics, method)([0.2, bad, 0.5])
    assert "[1]" in str(error.value)
    assert str(bad) in str(error.value)


def test_methods_are_ordered():
    """Holm never loses to Bonferroni, BH never to Holm or BY."""
    p = np.random.default_rng(1).random(30) ** 2
    bonferroni, holm, bh, by = (getattr(metrics, m)(p) for m in METHODS)
    assert np.all(holm <= bonferroni + 1e-15)
    assert np.all(bh <= holm + 1e-15)
    assert np.all(bh <= by + 1e-15)


def test_max_t_bands_cover_all_labels_at_once():
    """Independent normal replicates around the points: the bands are c standard errors wide, c the .95 quantile of
    the largest of 10 absolute normals (2.80), wider than 1.96 each and narrower than or equal to Bonferroni (2.81)."""
    rng = np.random.default_rng(2)
    scale = np.linspace(0.01, 0.1, 10)
    point = np.linspace(0.3, 0.7, 10)
    replicates = point + scale * rng.standard_normal((20_000, 10))
    bands = metrics.max_t(point, replicates, level=0.95)
    low, high = np.asarray(bands.low), np.asarray(bands.high)
    np.testing.assert_allclose((high - low) / (2 * scale), 2.80, atol=0.08)
    np.testing.assert_allclose((high + low) / 2, point, atol=0.01)
    inside = np.all((replicates >= low) & (replicates <= high), axis=1)
    assert inside.mean() == pytest.approx(0.95, abs=0.01)
    # fully dependent labels need no correction
    together = point + scale * rng.standard_normal((20_000, 1))
    bands = metrics.max_t(point, together, level=0.95)
    np.testing.assert_allclose((np.asarray(bands.high) - bands.low) / (2 * scale), 1.96, atol=0.06)
