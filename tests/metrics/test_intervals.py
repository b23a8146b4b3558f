"""Intervals: the automatic choice, edges, undefined replicates. Their coverage is measured in test_coverage.py."""

from __future__ import annotations

import numpy as np
import pytest

from cxrhf.metrics import bootstrap, count_units, delong, difference_interval, draw, interval
from cxrhf.metrics.checks import InputError
from cxrhf.metrics.intervals import UnitCount, bootstrap_p
from cxrhf.metrics.ranking import auroc

MANY_UNITS = UnitCount(900, 900, 1000, 800.0, 800.0, 900.0)
FEW_UNITS = UnitCount(12, 180, 190, 10.0, 150.0, 160.0)


def spread(mean=0.8, sd=0.05, n=2000, seed=0):
    return np.random.default_rng(seed).normal(mean, sd, n)


def test_choice_is_made_and_named():
    assert interval(0.8, spread(), metric="auroc", units=MANY_UNITS).method == "percentile"
    assert interval(0.8, spread(), metric="auroc", units=FEW_UNITS).method == "logit-t"
    assert interval(0.8, spread(), metric="brier", units=FEW_UNITS).method == "logit-normal"
    assert interval(0.8, spread(), metric="sensitivity_at_specificity", units=FEW_UNITS).method == "logit-normal"
    assert interval(0.8, spread(), metric="adaptive_calibration_error", units=FEW_UNITS).method == "centred percentile"
    assert interval(1.2, spread(1.2), metric="calibration_slope", units=FEW_UNITS).method == "t"
    assert interval(1.0, np.ones(100), metric="auroc", units=FEW_UNITS).method == "wilson"
    assert interval(0.8, spread()).method == "percentile"


def test_few_patients_widen_and_stay_in_range():
    wide = interval(0.9, spread(0.9), metric="auroc", units=FEW_UNITS)
    narrow = interval(0.9, spread(0.9), metric="auroc", units=MANY_UNITS)
    assert 0 < wide.low < narrow.low < 0.9 < wide.high < 1
    doubled = interval(1.6, 2 * spread(), metric="balanced_brier", units=FEW_UNITS)
    single = interval(0.8, spread(), metric="auroc", units=FEW_UNITS)
    assert doubled.high < 2
    assert doubled.low == pytest.approx(2 * single.low)  # the same share of its range


def test_perfect_separation_is_not_certainty():
    perfect = interval(1.0, np.ones(500), metric="auroc", units=FEW_UNITS)
    assert perfect.high == pytest.approx(1.0)
    assert 0.6 < perfect.low < 0.8  # Wilson with 10 effective patients: .722
    zero = interval(0.0, np.zeros(500), metric="tpr", units=FEW_UNITS)
    assert zero.low == 0.0
    assert zero.high == pytest.approx(1 - perfect.low)


def test_perfect_forecasts_are_not_certainty():
    """p = y: no replicate shows an error, and yet the next patient may."""
    for metric, range_ in (("adaptive_calibration_error", 1.0), ("pav_refinement", 0.25)):
        found = interval(0.0, np.zeros(500), metric=metric, units=FEW_UNITS)
        assert found.method == "wilson"
        assert found.low == 0
        assert found.high == pytest.approx(range_ * 0.278, abs=0.001)


def test_undefined_replicates_are_counted_and_too_many_give_nothing():
    values = spread()
    values[:100] = np.nan
    assert interval(0.8, values).n_undefined == 100
    values[:1500] = np.nan
    empty = interval(0.8, values)
    assert np.isnan(empty.low)
    assert empty.method == "undefined in 1500 of 2000 replicates"
    assert interval(np.nan, spread()).method == "undefined"


def test_one_patient_says_nothing_of_the_spread_between_patients():
    one = count_units([1, 1, 0], ["a", "a", "a"])
    assert interval(0.8, spread(), metric="auroc", units=one).method.startswith("undefined: only 1 patient")
    assert np.isnan(interval(0.8, spread(), metric="brier", units=one).low)
    assert np.isnan(difference_interval(0.1, spread(0.1), units=one).p_value)


def test_a_metric_of_one_class_rests_on_that_class():
    scarce = UnitCount(1, 500, 500, 1.0, 450.0, 450.0)
    assert interval(0.1, spread(0.1, 0.01), metric="brier_negative", units=scarce).method == "percentile"
    assert interval(0.1, spread(0.1, 0.01), metric="fpr", units=scarce).method == "percentile"
    assert np.isnan(interval(0.8, spread(), metric="tpr", units=scarce).low)
    assert interval(0.002, spread(0.002, 0.0001), metric="prevalence", units=scarce).method == "percentile"


def test_percentile_is_numpy_quantile():
    values = spread()
    got = interval(0.8, values, method="percentile", level=0.9)
    assert (got.low, got.high) == tuple(np.quantile(values, [0.05, 0.95]))


def test_centred_percentile_moves_replicates_back():
    got = interval(0.02, spread(0.05, 0.005), metric="adaptive_calibration_error", units=MANY_UNITS)
    assert got.low < 0.02 < got.high
    assert got.low >= 0


def test_difference_p_agrees_with_its_interval():
    for centre in (0.0, 0.02, 0.08, 0.2):
        for units in (FEW_UNITS, MANY_UNITS, None):
            values = spread(centre, 0.05)
            got = difference_interval(float(values.mean()), values, units=units)
            assert (got.p_value < 0.05) == (not got.low <= 0 <= got.high), (centre, units, got)
    assert difference_interval(0.0, np.zeros(10), units=FEW_UNITS).p_value == 1.0
    assert bootstrap_p(np.full(999, 0.1)) == pytest.approx(2 / 1000)


def test_bonferroni_percentiles_of_the_paper():
    level = 1 - 0.05 / 13
    tail = (1 - level) / 2 * 100
    assert tail == pytest.approx(0.19230769230769232)
    values = spread()
    got = interval(0.8, values, level=level)
    assert got.low == pytest.approx(np.percentile(values, tail))


def test_count_units():
    got = count_units([1, 1, 0, 0, np.nan], ["a", "a", "a", "b", "c"])
    assert got[:3] == (1, 2, 2)
    assert got.effective_positive == 1.0
    assert got.effective_negative == 2.0
    assert got.effective_total == pytest.approx(16 / 10)
    assert count_units([1, 0, 0])[:3] == (1, 2, 3)


def test_delong_agrees_with_the_bootstrap():
    rng = np.random.default_rng(0)
    clusters = np.repeat(np.arange(300), 3)
    y = (rng.random(900) < 0.25).astype(float)
    patient = rng.normal(size=300)[clusters]
    p = y + patient + rng.normal(size=900)
    for groups in (None, clusters):
        replicates = bootstrap("auroc", y, p, draws=draw(groups, y=y, n_resamples=4000))
        got = delong(y, p, clusters=groups)
        assert got.value == pytest.approx(auroc(y, p), abs=1e-12)
        assert got.se == pytest.approx(replicates.std(), rel=0.05)
    other = y + rng.normal(size=900)
    draws = draw(clusters, y=y, n_resamples=4000)
    change = bootstrap("auroc", y, p, draws=draws) - bootstrap("auroc", y, other, draws=draws)
    got = delong(y, p, other, clusters=clusters)
    assert got.value == pytest.approx(auroc(y, p) - auroc(y, other), abs=1e-12)
    assert got.se == pytest.approx(change.std(), rel=0.06)


def test_bad_input_is_named():
    with pytest.raises(InputError, match=r"level: .*got 95"):
        interval(0.8, spread(), level=95)
    with pytest.raises(InputError, match=r"method: .*got 'bca'"):
        interval(0.8, spread(), method="bca")
    with pytest.raises(InputError, match=r"replicates: expected a 1-D array"):
        interval(0.8, [[0.1, 0.2]])
    with pytest.raises(InputError, match=r"y: expected a 1-D array"):
        count_units([[0, 1]])
