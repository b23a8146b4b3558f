"""Enrichment and gaps of means: Fisher's and Welch's tests with one row a patient, honest with several."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from cxrhf.metrics.cluster_means import mean_gap
from cxrhf.metrics.odds import enrichment, fisher_more


@pytest.mark.parametrize("seed", range(5))
def test_one_row_a_patient_is_fishers_test(seed: int) -> None:
    rng = np.random.default_rng(seed)
    inside, has = rng.random(60) < 0.3, rng.random(60) < 0.4
    table = [[(inside & has).sum(), (inside & ~has).sum()], [(~inside & has).sum(), (~inside & ~has).sum()]]
    found = enrichment(inside, has)
    assert found.p_value == pytest.approx(stats.fisher_exact(table, alternative="greater").pvalue, rel=1e-9)
    odds = (table[0][0] + 0.5) * (table[1][1] + 0.5) / ((table[0][1] + 0.5) * (table[1][0] + 0.5))
    assert found.odds_ratio == pytest.approx(odds)
    assert found.design_effect == 1
    assert enrichment(inside, has, np.arange(60)[::-1]) == found


def test_rows_repeated_within_patients_are_no_new_patients() -> None:
    rng = np.random.default_rng(3)
    inside, has = rng.random(80) < 0.3, rng.random(80) < 0.4
    once = enrichment(inside, has)
    five = enrichment(np.repeat(inside, 5), np.repeat(has, 5), np.repeat(np.arange(80), 5))
    assert five.design_effect == pytest.approx(5, rel=0.05)
    assert five.p_value == pytest.approx(once.p_value, abs=0.03)
    assert np.log(five.high / five.low) == pytest.approx(np.log(once.high / once.low), rel=0.1)


def test_p_values_hold_under_the_null_with_many_rows_a_patient() -> None:
    rng = np.random.default_rng(0)
    small = 0
    for _ in range(400):
        patient = np.repeat(np.arange(60), rng.integers(1, 8, 60))
        inside, has = (rng.random(60) < 0.3)[patient], (rng.random(60) < 0.3)[patient]
        small += enrichment(inside, has, patient).p_value < 0.05
    assert small <= 30  # 20 expected at most, and Fisher's test gives fewer


def test_empty_sides_and_constants() -> None:
    assert np.isnan(enrichment([0, 0], [1, 0]).p_value)
    assert enrichment([1, 1, 0, 0], [1, 1, 1, 1]).p_value == 1
    assert fisher_more(0, 5, 3, 2) == 1


@pytest.mark.parametrize("seed", range(5))
def test_one_row_a_patient_is_nearly_welchs_test(seed: int) -> None:
    rng = np.random.default_rng(seed)
    x, has = rng.random(200), rng.random(200) < 0.3
    found, peer = mean_gap(x, has), stats.ttest_ind(x[has], x[~has], equal_var=False)
    assert found.value == pytest.approx(x[has].mean() - x[~has].mean())
    assert (found.high - found.value) / stats.t.ppf(0.975, found.patients_with - 1) == pytest.approx(
        found.value / peer.statistic, rel=1e-9
    )
    assert 2 * min(found.p_more, found.p_less) == pytest.approx(peer.pvalue, abs=0.01)


def test_repeated_rows_move_nothing() -> None:
    rng = np.random.default_rng(1)
    x, has = rng.random(50), rng.random(50) < 0.4
    once, twice = mean_gap(x, has), mean_gap(np.repeat(x, 3), np.repeat(has, 3), np.repeat(np.arange(50), 3))
    assert twice[:5] == pytest.approx(once[:5])


def test_gaps_that_cannot_be_known() -> None:
    assert np.isnan(mean_gap([1.0, 2.0], [1, 1]).value)
    alone = mean_gap([1.0, 2.0, 3.0], [1, 0, 0])
    assert alone.value == -1.5
    assert np.isnan(alone.low)
    assert mean_gap([1.0, 1.0, 1.0, 1.0], [1, 1, 0, 0]).p_more == 1
