"""Brier scores, calibration errors, calibration line and PAV against loops, scikit-learn and planted truth."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cxrhf import metrics
from cxrhf.metrics.calibration import expected_ece
from cxrhf.twin.planted import calibrated
from tests.metrics import twins

FAST = settings(max_examples=120, deadline=None, derandomize=True)


@st.composite
def samples(draw):
    """Labels, probabilities (often tied, with 0 and 1) and weights that may be 0; both classes have weight."""
    n = draw(st.integers(2, 25))
    y = draw(st.lists(st.integers(0, 1), min_size=n, max_size=n))
    chance = st.integers(0, 8).map(lambda k: k / 8) if draw(st.booleans()) else st.floats(0, 1)
    p = draw(st.lists(chance, min_size=n, max_size=n))
    w = draw(st.lists(st.sampled_from([0.0, 0.25, 1.0, 1.0, 3.0, 7.5]), min_size=n, max_size=n))
    y[0], y[1], w[0], w[1] = 0, 1, 1.0, 2.0
    return np.array(y), np.array(p), np.array(w)


@FAST
@given(samples())
def test_brier_family(sample):
    from sklearn.metrics import brier_score_loss

    y, p, w = sample
    for weight in (None, w):
        assert metrics.brier(y, p, weight) == pytest.approx(twins.brier(y, p, weight), abs=1e-12)
        assert metrics.brier_positive(y, p, weight) == pytest.approx(twins.brier(y, p, weight, 1), abs=1e-12)
        assert metrics.brier_negative(y, p, weight) == pytest.approx(twins.brier(y, p, weight, 0), abs=1e-12)
        assert metrics.balanced_brier(y, p, weight) == pytest.approx(twins.balanced_brier(y, p, weight), abs=1e-12)
        expected = twins.brier_skill_score(y, p, weight)
        assert metrics.brier_skill_score(y, p, weight) == pytest.approx(expected, abs=1e-10)
        expected = twins.brier_skill_score(y, p, weight, 0.3)
        assert metrics.brier_skill_score(y, p, weight, prevalence=0.3) == pytest.approx(expected, abs=1e-10)
    assert metrics.brier(y, p, w) == pytest.approx(brier_score_loss(y, p, sample_weight=w), abs=1e-9)


@FAST
@given(samples(), st.integers(1, 12))
def test_adaptive_calibration_error(sample, bins):
    y, p, w = sample
    ace = metrics.adaptive_calibration_error
    assert ace(y, p, w, bins=bins) == pytest.approx(twins.ace_exact(y, p, w, bins), abs=1e-12)
    assert ace(y, p, bins=bins) == pytest.approx(twins.ace_exact(y, p, None, bins), abs=1e-12)
    assert ace(y, p, bins=bins, method="array_split") == pytest.approx(twins.ace_array_split(y, p, bins), abs=1e-12)
    by_rows = ace(y, p, w, bins=bins, method="whole_rows")
    assert by_rows == pytest.approx(twins.ace_whole_rows(y, p, w, bins), abs=1e-12)


def test_exact_bins_are_the_limit_of_copied_rows():
    """Copy every pooled row `bins` times and equal-weight bins need no splitting: the plain definition."""
    rng = np.random.default_rng(0)
    for n in (7, 13, 37):
        p = np.round(rng.random(n), 1)
        y = rng.integers(0, 2, n)
        mean = np.array([y[p == v].mean() for v in p])
        order = np.repeat(np.argsort(p, kind="stable"), 10)
        expected = np.mean([abs((p - mean)[part].mean()) for part in np.split(order, 10)])
        assert metrics.adaptive_calibration_error(y, p) == pytest.approx(expected, abs=1e-12)


def test_one_bin_is_calibration_in_the_large():
    rng = np.random.default_rng(1)
    y, p, w = rng.integers(0, 2, 50), rng.random(50), rng.random(50)
    expected = abs(np.average(p - y, weights=w))
    for method in ("exact", "whole_rows", "array_split"):
        got = metrics.adaptive_calibration_error(y, p, w, bins=1, method=method)
        assert got == pytest.approx(expected, abs=1e-12)
    assert metrics.expected_calibration_error(y, p, w, bins=1) == pytest.approx(expected, abs=1e-12)


@FAST
@given(samples(), st.sampled_from([1, 2, 4, 5, 8, 10, 16]))
def test_equal_width_bins(sample, bins):
    y, p, w = sample
    got = metrics.expected_calibration_error(y, p, w, bins=bins)
    assert got == pytest.approx(twins.expected_calibration_error(y, p, w, bins), abs=1e-12)


@pytest.mark.parametrize("bins", [10, 15, 20, 100])
def test_a_probability_on_an_edge_belongs_to_the_bin_it_opens(bins):
    """Printed probabilities such as 0.29 lie on edges; [k/K, (k+1)/K) must hold although 0.29 * 100 < 29 in floats."""
    for k in range(1, bins):
        p = [k / bins, (k - 0.5) / bins]  # the edge and the bin below it
        got = metrics.expected_calibration_error([0, 1], p, bins=bins)
        assert got == pytest.approx((p[0] + (1 - p[1])) / 2, abs=1e-12), f"{p[0]} fell into the bin below"


@pytest.mark.parametrize("seed", range(6))
def test_calibration_line_is_the_maximum_likelihood_fit(seed):
    rng = np.random.default_rng(seed)
    p = rng.beta(0.8, 2.0, 300).clip(1e-6, 1 - 1e-6)
    y = (rng.random(300) < p**1.3).astype(int)
    w = rng.integers(0, 4, 300) if seed % 2 else None
    line = metrics.calibration_line(y, p, w)
    expected = twins.calibration_line(y, p, w)
    np.testing.assert_allclose((line.slope, line.intercept, line.in_the_large), expected, atol=2e-6)


def test_calibration_line_recovers_a_planted_line():
    from scipy.special import expit, logit

    rng = np.random.default_rng(5)
    p = expit(rng.normal(-1, 1.5, 60_000))
    y = rng.random(60_000) < expit(-0.3 + 0.7 * logit(p))
    line = metrics.calibration_line(y, p)
    assert line.slope == pytest.approx(0.7, abs=0.03)
    assert line.intercept == pytest.approx(-0.3, abs=0.04)


def test_calibration_line_without_a_maximum_is_undefined():
    assert np.isnan(metrics.calibration_line([0, 0, 1, 1], [0.1, 0.2, 0.8, 0.9]).slope)
    assert np.isnan(metrics.calibration_line([0, 1, 1], [0.4, 0.4, 0.4]).slope)
    assert np.isnan(metrics.calibration_line([1, 1], [0.4, 0.6]).in_the_large)
    # the intercept alone is defined there: two of three at .4
    assert metrics.calibration_line([0, 1, 1], [0.4] * 3).in_the_large == pytest.approx(np.log(2 / (0.4 / 0.6)))


def test_calibration_line_exists_unless_p_separates_the_classes():
    """The likelihood has a maximum iff the classes overlap (touching at one value is not enough); there the score
    equations hold. Probabilities of 0 and 1 are moved in by 1e-9, as the docstring says."""
    rng = np.random.default_rng(0)
    wrong = []
    for _ in range(600):
        n = int(rng.integers(4, 30))
        p = np.round(rng.beta(0.5, 0.8, n), int(rng.integers(1, 4)))
        y = (rng.random(n) < p * 0.9 + 0.05).astype(int)
        if y.min() == y.max() or np.ptp(p) == 0:
            continue
        low, high = (p[y == 0], p[y == 1]) if p[y == 0].mean() < p[y == 1].mean() else (p[y == 1], p[y == 0])
        overlap = low.max() > high.min()
        line = metrics.calibration_line(y, p)
        if np.isfinite(line.slope) != overlap:
            wrong.append((y.tolist(), p.tolist(), line.slope))
        elif overlap:
            x = np.log(p.clip(1e-9, 1 - 1e-9) / (1 - p.clip(1e-9, 1 - 1e-9)))
            residual = y - 1 / (1 + np.exp(-(line.intercept + line.slope * x)))
            assert abs(residual.sum()) < 1e-5
            assert abs((residual * x).sum()) < 1e-5
    assert not wrong, (len(wrong), min(wrong, key=lambda case: len(case[0])))


@FAST
@given(samples())
def test_pav_parts_add_up(sample):
    y, p, w = sample
    for weight in (None, w):
        parts = metrics.pav_decomposition(y, p, weight)
        mass = np.ones(len(y)) if weight is None else weight
        seen = mass > 0
        fitted = twins.isotonic(y, p, weight)
        left = np.average((fitted - y)[seen] ** 2, weights=mass[seen])
        prevalence = np.average(y, weights=mass)
        assert parts.brier == pytest.approx(twins.brier(y, p, weight), abs=1e-12)
        assert parts.calibration == pytest.approx(parts.brier - left, abs=1e-10)
        assert parts.uncertainty == pytest.approx(prevalence * (1 - prevalence), abs=1e-12)
        assert parts.discrimination == pytest.approx(parts.uncertainty - left, abs=1e-10)
        assert parts.brier == pytest.approx(parts.calibration - parts.discrimination + parts.uncertainty, abs=1e-10)
        assert parts.calibration >= -1e-12
        assert parts.discrimination >= -1e-12


def test_prevalence_correction_is_bayes_rule():
    p = np.array([0.0, 0.1, 0.5, 0.9, 1.0])
    got = metrics.correct_prevalence(p, source=0.5, target=0.1)
    odds = p[:-1] / (1 - p[:-1]) * (0.1 / 0.9) / (0.5 / 0.5)
    np.testing.assert_allclose(got, [*(odds / (1 + odds)), 1.0], atol=1e-12)
    np.testing.assert_allclose(metrics.correct_prevalence(got, 0.1, 0.5), p, atol=1e-9)
    assert metrics.correct_prevalence([0.2], 0.2, 0.03)[0] == pytest.approx(0.03)


def test_reliability_table_brackets_the_truth():
    """Ten rows of equal weight; low <= mean label <= high; a calibrated model lies inside almost everywhere."""
    planted = calibrated(20_000, 0.0, seed=2)
    table = metrics.reliability_table(planted.y, planted.prob, bins=10)
    assert len(table.mean_p) == len(table.mean_y) == len(table.low) == len(table.high) == 10
    np.testing.assert_allclose(np.asarray(table.weight) / np.sum(table.weight), 0.1, atol=1e-9)
    assert np.all(table.low <= table.mean_y)
    assert np.all(table.mean_y <= table.high)
    assert np.sum((table.low <= table.mean_p) & (table.mean_p <= table.high)) >= 8
    assert np.average(table.mean_y, weights=table.weight) == pytest.approx(planted.y.mean(), abs=1e-9)
    gap = np.average(np.abs(np.asarray(table.mean_p) - table.mean_y), weights=table.weight)
    assert gap == pytest.approx(metrics.adaptive_calibration_error(planted.y, planted.prob), abs=1e-9)
    wide = metrics.reliability_table(planted.y, planted.prob, bins=10, level=0.999)
    assert np.all(np.asarray(wide.high) - wide.low > np.asarray(table.high) - table.low)


@pytest.mark.parametrize("bins", [1, 3, 10])
@pytest.mark.parametrize("ties", [0, 1, 2])
def test_expected_ace_is_the_mean_of_simulated_errors(bins, ties):
    """Twin: the same random numbers turned into labels row by row, and the error function itself on them."""
    from cxrhf.metrics.draws import advanced, mixed, stream_key, stream_start, uniform

    rng = np.random.default_rng(ties)
    p = np.sort(rng.random(57) if ties == 0 else rng.random(57).round(ties))
    w = rng.integers(1, 4, 57).astype(float) if bins != 3 else np.full(57, 2.0)
    errors = []
    with np.errstate(over="ignore"):
        for replicate in range(7):
            state = np.uint64(stream_start.py_func(stream_key(5), replicate))
            y = []
            for each in p:
                state = advanced.py_func(state)
                y.append(float(uniform.py_func(mixed.py_func(state)) < each))
            errors.append(metrics.adaptive_calibration_error(y, p, w, bins=bins))
    got = metrics.expected_ace(p, w, bins=bins, n_simulations=7, seed=5)
    assert got == pytest.approx(np.mean(errors), abs=1e-12)


def test_expected_ace_is_the_mean_over_calibrated_labels():
    rng = np.random.default_rng(0)
    p = rng.beta(0.8, 3.2, 500)
    draws = [metrics.adaptive_calibration_error(rng.random(500) < p, p) for _ in range(300)]
    got = metrics.expected_ace(p, n_simulations=300, seed=1)
    assert got == pytest.approx(np.mean(draws), abs=5 * np.std(draws) / np.sqrt(300))
    assert metrics.expected_ace(p, seed=1) == metrics.expected_ace(p, seed=1)
    assert metrics.expected_ace(p, seed=1) != metrics.expected_ace(p, seed=2)


@pytest.mark.parametrize("weighted", [False, True])
def test_expected_ece_is_the_mean_over_calibrated_labels(weighted):
    """Twin: labels drawn anew and the error function itself on them; few bins are filled, and the last one is."""
    rng = np.random.default_rng(0)
    p = np.r_[rng.beta(0.5, 8, 299), 1.0]
    w = rng.choice([0.0, 1.0, 3.0], 300) if weighted else None
    draws = [metrics.expected_calibration_error(rng.random(300) < p, p, w) for _ in range(300)]
    got = expected_ece(p, w, n_simulations=300, seed=1)
    assert got == pytest.approx(np.mean(draws), abs=5 * np.std(draws) / np.sqrt(300))
    assert np.isnan(expected_ece([]))


@pytest.mark.parametrize(("n", "printed"), [(20_770, 0.006), (1_000, 0.027), (300, 0.048)])
def test_expected_ace_grows_as_the_sample_shrinks(n, printed):
    """The figures of methods.md, for probabilities as of D5."""
    planted = calibrated(n, 0.0, seed=0)
    assert metrics.expected_ace(planted.prob, n_simulations=60) == pytest.approx(printed, abs=0.004)


@pytest.mark.parametrize("h", [0.0, 0.4, 1.0])
def test_planted_calibration_is_recovered(h):
    """D5: mean over replicates within 4 standard errors (and the small-sample bias of the error measure)."""
    runs = [calibrated(20_000, h, seed=s) for s in range(12)]
    truth = runs[0].truth
    names = ("brier", "brier_skill_score", "brier_positive", "brier_negative", "balanced_brier")
    for name in (*names, "adaptive_calibration_error"):
        values = np.array([getattr(metrics, name)(r.y, r.prob) for r in runs])
        bias = 0.007 if name == "adaptive_calibration_error" else 0.0
        error = abs(values.mean() - getattr(truth, name))
        assert error < 4 * values.std(ddof=1) / np.sqrt(len(runs)) + bias, name
    lines = np.array([metrics.calibration_line(r.y, r.prob) for r in runs])
    spread = lines.std(axis=0, ddof=1) / np.sqrt(len(runs))
    assert abs(lines[:, 0].mean() - truth.slope) < 4 * spread[0]
    assert abs(lines[:, 2].mean() - truth.in_the_large) < 4 * spread[2]
