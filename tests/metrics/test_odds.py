"""Enrichment and gaps of means: Fisher's and Welch's tests with one row a patient, honest with several."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import polars as pl
import pytest
from scipy import stats
from scipy.stats import binom

from cxrhf.metrics.two_groups import enrichment, fisher_more, mean_gap, permuted_gap
from tests.real_data import real_data


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
    assert found.t == pytest.approx(peer.statistic, rel=1e-9)
    alike = np.sqrt(x.var(ddof=1) * (1 / has.sum() + 1 / (~has).sum()))  # both groups dealt from everybody
    assert (found.high - found.value) / stats.t.ppf(0.975, found.patients_with - 1) == pytest.approx(
        max(found.value / peer.statistic, alike), rel=1e-9
    )


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
    assert mean_gap([1.0, 1.0, 1.0, 1.0], [1, 1, 0, 0]).t == 0
    assert permuted_gap([1.0, 1.0, 1.0, 1.0], [1, 1, 0, 0]).p_more == 1
    assert np.isnan(permuted_gap([1.0, 2.0, 3.0], [1, 0, 0]).p_more)


def test_permutation_p_value_is_the_share_of_all_deals() -> None:
    """Slow twin: every way to give three of eight patients the attribute."""
    x, has = np.array([0.0, 0.1, 0.2, 0.9, 0.3, 0.05, 0.0, 0.7]), np.array([0, 0, 0, 1, 1, 0, 0, 1], dtype=bool)
    every = [mean_gap(x, np.isin(np.arange(8), chosen)).t for chosen in combinations(range(8), 3)]
    observed = mean_gap(x, has).t
    found = permuted_gap(x, has, n_permutations=20_000)
    assert found.p_more == pytest.approx(np.mean([t >= observed - 1e-9 for t in every]), abs=0.02)
    assert found.p_less == pytest.approx(np.mean([t <= observed + 1e-9 for t in every]), abs=0.02)
    other = permuted_gap(x, ~has, n_permutations=20_000)
    assert (other.p_more, other.p_less) == (found.p_less, found.p_more)


def test_patients_are_dealt_whole() -> None:
    """Ten copies of each row of ten patients say no more than one."""
    rng = np.random.default_rng(3)
    x, has = rng.random(30), np.arange(30) < 12
    once = permuted_gap(x, has, n_permutations=2000)
    tenfold = permuted_gap(np.repeat(x, 10), np.repeat(has, 10), np.repeat(np.arange(30), 10), n_permutations=2000)
    assert tenfold.p_more == pytest.approx(once.p_more, abs=0.08)


def test_rare_misses_and_a_rare_attribute_are_called_at_their_level() -> None:
    """1% misses, 20 of 1,000 rows have the attribute: Welch's test calls 81% of these significant."""
    rng, n = np.random.default_rng(0), 100
    called = np.zeros(2)
    for seed in range(n):
        x = 0.8 * (rng.random(1000) < 0.01) + 0.01 * rng.random(1000)
        found = permuted_gap(x, rng.permutation(1000) < 20, n_permutations=199, seed=seed)
        called += np.array([found.p_more, found.p_less]) <= 0.05
    assert (called <= binom.ppf(0.999, n, 0.05)).all()
    assert called.sum() >= binom.ppf(0.001, 2 * n, 0.05)


@pytest.mark.slow
@pytest.mark.real
@pytest.mark.parametrize("share", [0.005, 0.03, 0.2])
@pytest.mark.parametrize("label", ["Pneumothorax", "Effusion", "Cardiomegaly"])
def test_random_attributes_of_real_patients_are_called_at_their_level(label: str, share: float) -> None:
    real = pl.read_csv(real_data("nih/predictions.csv.gz")).filter(pl.col(label) == 0)
    error = (real[f"prob_{label}"].to_numpy()) ** 2
    patient = np.unique(real["patient_id"].to_numpy(), return_inverse=True)[1]
    rng, n, size = np.random.default_rng(1), 400, patient.max() + 1
    for rows in (False, True):  # an attribute of the patient, and one that half of the rows of some patients have
        called = np.zeros(2)
        for seed in range(n):
            has = (rng.random(size) < share * (1 + rows))[patient] & (~np.array(rows) | (rng.random(len(error)) < 0.5))
            found = permuted_gap(error, has, patient, n_permutations=199, seed=seed)
            called += np.array([found.p_more, found.p_less]) <= 0.05
        print(f"\n{label}, share {share}, {'rows' if rows else 'patients'}: {called / n}")
        assert (called <= binom.ppf(0.9999, n, 0.06)).all()
