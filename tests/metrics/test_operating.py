"""Operating points against a loop over every threshold."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from cxrhf import metrics
from tests.metrics import twins
from tests.metrics.test_ranking import samples

FAST = settings(max_examples=120, deadline=None, derandomize=True)
SPECIFICITIES = st.sampled_from([0.5, 0.75, 0.8, 0.9, 0.95])


@FAST
@given(samples(), SPECIFICITIES)
def test_conservative_has_the_largest_sensitivity_allowed(sample, specificity):
    y, p, w = sample
    for weight in (None, w):
        point = metrics.sensitivity_at_specificity(y, p, specificity, weight)
        expected = twins.conservative(y, p, specificity, weight)
        assert (point.sensitivity, point.specificity) == pytest.approx(expected, abs=1e-9)
        assert point.specificity >= specificity - 1e-9
        tpr, fpr = twins.rates(y, p, point.threshold, weight)[:2]
        assert (tpr, 1 - fpr) == pytest.approx((point.sensitivity, point.specificity), abs=1e-9)


@pytest.mark.parametrize("n", [20, 40, 60, 100, 400, 1000])
def test_rates_exactly_at_the_limit_are_allowed(n):
    """One in twenty negatives may be called: 1 - .95 is .050000000000000044 in floats, and sums round."""
    y = np.r_[np.zeros(n), np.ones(3)]
    p = np.r_[np.arange(n), [n - n // 20, n - n // 20 - 1.5, n + 5]]
    for weight in (None, np.full(n + 3, 0.1), np.full(n + 3, 1 / 3)):
        point = metrics.sensitivity_at_specificity(y, p, weight=weight)
        assert point.specificity == pytest.approx(0.95, abs=1e-12)
        assert point.sensitivity == pytest.approx(2 / 3, abs=1e-12)


def test_nothing_can_be_called_when_negatives_are_few():
    """With 10 negatives and the highest score negative, 95% specificity leaves an infinite threshold."""
    y, p = np.r_[np.zeros(10), 1], np.r_[np.arange(10), 3]
    point = metrics.sensitivity_at_specificity(y, p)
    assert point == (np.inf, 0.0, 1.0)


@FAST
@given(samples(), SPECIFICITIES)
def test_nearest_point_and_line_between_points(sample, specificity):
    y, p, w = sample
    reached = np.array([twins.rates(y, p, t, w)[1] for t in twins.candidate_thresholds(p, w)])
    distance = np.abs(reached - (1 - specificity)).min()
    for rule in ("nearest", "nearest_first"):
        point = metrics.sensitivity_at_specificity(y, p, specificity, w, rule=rule)
        tpr, fpr = twins.rates(y, p, point.threshold, w)[:2]
        assert (tpr, 1 - fpr) == pytest.approx((point.sensitivity, point.specificity), abs=1e-9)
    point = metrics.sensitivity_at_specificity(y, p, specificity, w, rule="nearest")
    assert abs(1 - point.specificity - (1 - specificity)) == pytest.approx(distance, abs=1e-9)
    line = metrics.sensitivity_at_specificity(y, p, specificity, w, rule="interp")
    assert line.sensitivity == pytest.approx(twins.interpolated(y, p, specificity, w), abs=1e-9)


@FAST
@given(samples(), st.sampled_from([0.05, 0.1, 0.2, 0.5]))
@pytest.mark.slow
def test_nearest_corner_is_the_public_code(sample, fpr):
    """ENCODING and CONTEXT: scikit-learn's curve with dropped points, first index of the nearest rate."""
    from sklearn.metrics import roc_curve

    y, p, _ = sample
    assume(0 < y.sum() < len(y))
    rates, tpr, thresholds = roc_curve(y, p)
    gap = np.abs(rates - fpr)
    at = int(np.argmin(gap))
    assume(np.sum(gap <= gap[at] + 1e-9) == np.sum(rates == rates[at]))  # not two rates equally far, up to rounding
    assert metrics.threshold_at_fpr(y, p, fpr) == thresholds[at]
    point = metrics.sensitivity_at_specificity(y, p, 1 - fpr, rule="nearest_first")
    assert point == pytest.approx((thresholds[at], tpr[at], 1 - rates[at]), abs=1e-9)


@FAST
@given(samples(), st.sampled_from([0.05, 0.1, 0.2, 0.5]))
def test_threshold_at_fpr_conservative(sample, fpr):
    y, p, w = sample
    threshold = metrics.threshold_at_fpr(y, p, fpr, w, rule="conservative")
    reached = twins.rates(y, p, threshold, w)[1]
    assert reached <= fpr + 1e-9
    lower = [t for t in twins.candidate_thresholds(p, w) if t < threshold]
    assert all(twins.rates(y, p, t, w)[1] > fpr for t in lower)


@FAST
@given(samples())
def test_best_thresholds_are_the_best(sample):
    y, p, w = sample
    every = [twins.rates(y, p, t, w) for t in twins.candidate_thresholds(p, w)]
    f1 = twins.rates(y, p, metrics.max_f1_threshold(y, p, w), w)[4]
    assert f1 == pytest.approx(np.nanmax([r[4] for r in every]), abs=1e-12)
    j = twins.rates(y, p, metrics.youden_threshold(y, p, w), w)[6]
    assert j == pytest.approx(max(r[6] for r in every), abs=1e-9)


@FAST
@given(samples(both_classes=False), st.floats(-1, 1.5))
def test_rates(sample, threshold):
    y, p, w = sample
    for weight in (None, w):
        got = metrics.rates_at(y, p, threshold, weight)
        np.testing.assert_allclose(got, twins.rates(y, p, threshold, weight), atol=1e-12)
    at_a_score = metrics.rates_at(y, p, p[0])
    np.testing.assert_allclose(at_a_score, twins.rates(y, p, p[0]), atol=1e-12)


def test_rates_agree_with_sklearn():
    from sklearn.metrics import f1_score, matthews_corrcoef, precision_score, recall_score

    rng = np.random.default_rng(0)
    y, p, w = rng.integers(0, 2, 300), np.round(rng.random(300), 2), rng.random(300)
    called = p >= 0.4
    got = metrics.rates_at(y, p, 0.4, w)
    for value, function in (
        (got.tpr, recall_score),
        (got.precision, precision_score),
        (got.f1, f1_score),
        (got.mcc, matthews_corrcoef),
    ):
        assert value == pytest.approx(function(y, called, sample_weight=w), abs=1e-12)
    assert got.j == pytest.approx(got.tpr - got.fpr)
    assert got.npv == pytest.approx(precision_score(1 - y, ~called, sample_weight=w), abs=1e-12)


@pytest.mark.parametrize("threshold", [0.05, 0.2, 0.5, 0.9])
def test_net_benefit(threshold):
    rng = np.random.default_rng(0)
    p = np.round(rng.random(200), 2)
    y, w = (rng.random(200) < p).astype(int), rng.random(200)
    got = metrics.net_benefit(y, p, threshold, w)
    assert got == pytest.approx(twins.net_benefit(y, p, threshold, w), abs=1e-12)
    everybody = metrics.net_benefit(y, np.ones(200), threshold)
    assert everybody == pytest.approx(y.mean() - (1 - y.mean()) * threshold / (1 - threshold), abs=1e-12)
    assert metrics.net_benefit(y, np.zeros(200), threshold) == 0
    assert metrics.net_benefit(y, y.astype(float), threshold) == pytest.approx(y.mean())


def test_true_false_positive_rate_of_the_conservative_threshold():
    """On new negatives it is (floor(.05 n) + 1) / (n + 1), which is why few negatives mislead."""
    rng = np.random.default_rng(0)
    n = 50
    reached = []
    for _ in range(4000):
        sample = rng.random(n)
        threshold = metrics.sensitivity_at_specificity(np.r_[np.zeros(n), 1], np.r_[sample, 2.0]).threshold
        cut = sample[sample >= threshold].min() if (sample >= threshold).any() else threshold
        nearest_above = np.sort(sample)[-(int(0.05 * n) + 1)]  # the first negative that is not called
        assert cut > nearest_above
        reached.append(1 - nearest_above)  # any threshold just above it calls this share of new negatives
    expected = (int(0.05 * n) + 1) / (n + 1)
    assert np.mean(reached) == pytest.approx(expected, abs=4 * np.std(reached) / np.sqrt(4000))


@FAST
@given(samples(), SPECIFICITIES)
def test_plus_one_counts_one_more_false_alarm(sample, specificity):
    """The largest sensitivity with (false alarms + 1) / (negatives + 1) within the limit."""
    y, p, _ = sample
    best = 0.0
    for threshold in twins.candidate_thresholds(p):
        tp, fp, fn, tn = twins.confusion(y, p, threshold)
        if (fp + 1) / (fp + tn + 1) <= 1 - specificity + 1e-12:
            best = max(best, tp / (tp + fn))
    point = metrics.sensitivity_at_specificity(y, p, specificity, rule="plus_one")
    assert point.sensitivity == pytest.approx(best, abs=1e-12)
