"""Numbers at another prevalence: closed forms against twins that weight the rows, replicates against repetition."""

from __future__ import annotations

import numpy as np
import pytest

from cxrhf import metrics
from cxrhf.metrics import prevalence as moved
from cxrhf.metrics.checks import InputError
from tests.metrics import twins


def sample(seed=0, n=300):
    """Scores with ties, weights, and a prevalence of some .3."""
    rng = np.random.default_rng(seed)
    y = (rng.random(n) < 0.3).astype(float)
    p = np.clip(np.round(0.3 * y + rng.beta(2, 4, n), 2), 0.01, 0.99)
    return y, p, rng.uniform(0.2, 2, n)


def weighted_to(y, weight, prevalence):
    """Row weights with which the positives are `prevalence` of all."""
    totals = {label: sum(w for each, w in zip(y, weight, strict=True) if each == label) for label in (0.0, 1.0)}
    shares = {1.0: prevalence, 0.0: 1 - prevalence}
    return np.array([w * shares[label] / totals[label] for label, w in zip(y, weight, strict=True)])


@pytest.mark.parametrize("prevalence", [0.005, 0.2, 0.9])
@pytest.mark.parametrize("seed", range(3))
def test_all_numbers_equal_those_of_weighted_rows(prevalence, seed):
    y, p, weight = sample(seed)
    there = weighted_to(y, weight, prevalence)
    rates = metrics.rates_at(y, p, 0.5, weight)
    tp, fp, fn, tn = twins.confusion(y, p, 0.5, there)
    assert moved.precision_at_prevalence(rates.tpr, rates.fpr, prevalence) == pytest.approx(tp / (tp + fp))
    assert moved.npv_at_prevalence(rates.tpr, rates.fpr, prevalence) == pytest.approx(tn / (tn + fn))
    parts = metrics.brier_positive(y, p, weight), metrics.brier_negative(y, p, weight)
    slow = sum(w * (score - label) ** 2 for label, score, w in zip(y, p, there, strict=True))
    assert moved.brier_at_prevalence(*parts, prevalence) == pytest.approx(slow)
    area = moved.average_precision_at_prevalence(y, p, prevalence, weight)
    assert area == pytest.approx(metrics.average_precision(y, p, there), abs=1e-12)


@pytest.mark.parametrize(("risk", "source", "target"), [(0.1, 0.3, 0.02), (0.1, 0.05, 0.5), (0.37, 0.3, 0.3)])
def test_net_benefit_equals_that_of_corrected_probabilities(risk, source, target):
    y, p, weight = sample(4)
    corrected = metrics.correct_prevalence(p, source, target)
    there = weighted_to(y, weight, target)
    slow = metrics.net_benefit(y, corrected, risk, there)
    threshold = moved.threshold_for_risk(risk, source, target)
    assert metrics.correct_prevalence([threshold], source, target)[0] == pytest.approx(risk)
    rates = metrics.rates_at(y, p, threshold, weight)
    assert moved.net_benefit_at_prevalence(rates.tpr, rates.fpr, target, risk) == pytest.approx(slow)
    assert moved.threshold_for_risk(risk, source, source) == risk
    everybody = target - (1 - target) * risk / (1 - risk)
    assert moved.net_benefit_at_prevalence(1, 1, target, risk) == pytest.approx(everybody)


def test_own_prevalence_changes_nothing():
    y, p, weight = sample(5)
    own = float((weight * y).sum() / weight.sum())
    rates = metrics.rates_at(y, p, 0.4, weight)
    assert moved.precision_at_prevalence(rates.tpr, rates.fpr, own) == pytest.approx(rates.precision)
    assert moved.npv_at_prevalence(rates.tpr, rates.fpr, own) == pytest.approx(rates.npv)
    assert moved.average_precision_at_prevalence(y, p, own, weight) == pytest.approx(
        metrics.average_precision(y, p, weight)
    )


def two_labels():
    y, p, weight = sample(6)
    other, scores, mass = sample(7)
    other = np.where(np.arange(len(other)) % 5 == 0, np.nan, other)
    return np.c_[y, other], np.c_[p, scores], np.c_[weight, mass]


THRESHOLDS = np.array([[0.5, 0.2, np.inf], [0.3, 0.3, 0.9]])  # in no order
PREVALENCES = np.array([[0.01, 0.5], [0.1, 0.4]])


def test_sums_and_areas_of_several_labels():
    y, p, weight = two_labels()
    found = moved.walk(y, p, weight, THRESHOLDS, PREVALENCES)
    for k in range(2):
        rows = ~np.isnan(y[:, k])
        for c, threshold in enumerate(THRESHOLDS[k]):
            tp, fp, fn, tn = twins.confusion(y[rows, k], p[rows, k], threshold, weight[rows, k])
            assert found.sums[k, c] == pytest.approx([tp + fn, fp + tn, tp, fp])
        for g, prevalence in enumerate(PREVALENCES[k]):
            there = weighted_to(y[rows, k], weight[rows, k], prevalence)
            slow = metrics.average_precision(y[rows, k], p[rows, k], there)
            assert found.average_precision[k, g] == pytest.approx(slow)


@pytest.mark.parametrize("conditional", [True, False])
def test_replicates_equal_repeated_rows(conditional):
    y, p, weight = two_labels()
    patients = np.arange(len(y)) // 3
    draws = metrics.draw(patients, y=y, n_resamples=12, seed=3)
    found = moved.bootstrap_walk(y, p, weight, THRESHOLDS, PREVALENCES, draws=draws, conditional=conditional)
    times = draws.counts(0, 12, conditional=conditional)[draws.unit]
    for r in range(12):
        rows = np.repeat(np.arange(len(y)), times[:, r])
        slow = moved.walk(y[rows], p[rows], weight[rows], THRESHOLDS, PREVALENCES)
        assert found.sums[r] == pytest.approx(slow.sums)
        assert found.average_precision[r] == pytest.approx(slow.average_precision)


def test_threads_do_not_change_a_bit():
    y, p, weight = two_labels()
    draws = metrics.draw(y=y, n_resamples=200)
    done: list[int] = []
    one = moved.bootstrap_walk(y, p, weight, THRESHOLDS, PREVALENCES, draws=draws, workers=1, progress=done.append)
    two = moved.bootstrap_walk(y, p, weight, THRESHOLDS, PREVALENCES, draws=draws, workers=2)
    assert (one.sums == two.sums).all()
    assert (one.average_precision == two.average_precision).all()
    assert sum(done) == 200


def test_undefined():
    assert np.isnan(moved.average_precision_at_prevalence([0, 0], [0.1, 0.2], 0.3))
    assert np.isnan(moved.average_precision_at_prevalence([1, 1], [0.1, 0.2], 0.3))
    assert np.isnan(moved.precision_at_prevalence(0.0, 0.0, 0.3))  # nothing is called
    assert np.isnan(moved.npv_at_prevalence(1.0, 1.0, 0.3))
    assert np.isnan(moved.precision_at_prevalence([np.nan], 0.5, 0.3))[0]
    y = np.array([[0.0, 1.0], [np.nan, 1.0]])
    nothing = moved.walk(y, np.ones((2, 2)), np.ones((2, 2)), np.full((2, 1), 0.5), np.full((2, 1), 0.1))
    assert np.isnan(nothing.average_precision).all()
    assert nothing.sums[0, 0].tolist() == [0, 1, 0, 1]
    with pytest.raises(InputError, match="prevalence"):
        moved.average_precision_at_prevalence([0, 1], [0.1, 0.2], 1.5)
    with pytest.raises(InputError, match="shapes"):
        moved.walk(y, np.ones((2, 1)), np.ones((2, 2)), np.ones((2, 1)), np.ones((2, 1)))
