"""Folds of whole patients, and the ridge regression that is fitted on them."""

from __future__ import annotations

import numpy as np
from scipy.special import expit

from cxrhf.audits.pretest import cross_fit, deal_patients, fit_ridge
from cxrhf.metrics import auroc


def test_patients_are_never_on_both_sides() -> None:
    rng = np.random.default_rng(1)
    patients = np.sort(rng.integers(0, 300, 2000))
    y = np.where(rng.random(2000) < 0.1, np.nan, (rng.random(2000) < 0.05 + 0.3 * (patients % 7 == 0)).astype(float))
    fold = deal_patients(y, patients, 0)
    assert all(len(set(fold[patients == each])) == 1 for each in np.unique(patients))
    positive, labelled = np.bincount(fold[y == 1]), np.bincount(fold[~np.isnan(y)])
    assert np.ptp(positive) <= 2
    assert np.ptp(labelled) <= 10
    # A name tag for every patient is the best there is if patients are on both sides, and nothing if they are not.
    few = patients % 50
    tags = (few[:, None] == np.arange(50)).astype(float)
    coin = rng.integers(0, 2, 50).astype(float)[few]
    q = cross_fit(tags, coin, np.ones(2000), deal_patients(coin, few, 0), 20)
    assert q is not None
    assert auroc(coin, q) < 0.55


def test_ridge_is_scikit_learns() -> None:
    from sklearn.linear_model import LogisticRegression

    rng = np.random.default_rng(0)
    x = rng.standard_normal((500, 4))
    y = (rng.random(500) < expit(x @ [1, -1, 0.5, 0] - 1)).astype(float)
    weight = rng.uniform(0.5, 2, 500)
    design, every = np.column_stack([np.ones(500), x]), np.arange(500)
    for penalty in (0.01, 3.0, 300.0):
        theirs = LogisticRegression(C=1 / penalty, tol=1e-10, max_iter=1000).fit(x, y, weight)
        expected = np.r_[theirs.intercept_, theirs.coef_[0]]
        for start in (None, rng.standard_normal(5) * 3):
            np.testing.assert_allclose(fit_ridge(design, y, weight, penalty, start, rows=every), expected, atol=2e-4)
    clear = (x[:, 0] > 0).astype(float)  # separable: finite all the same
    apart = fit_ridge(design[:, :2], clear, np.ones(500), 0.3, rows=every)
    assert np.isfinite(apart).all()


def test_one_class_on_one_side_is_undefined() -> None:
    patients = np.arange(100)
    y = (patients < 20).astype(float)
    fold = np.where(y == 1, 0, patients % 5)  # all positives in one fold
    assert cross_fit(np.ones((100, 1)) * patients[:, None], y, np.ones(100), fold, 20) is None


def test_folds_are_even_so_that_no_information_is_no_information() -> None:
    rng = np.random.default_rng(0)
    ranked = []
    for seed in range(20):
        patients = np.sort(rng.integers(0, 250, 1000))
        y = (rng.random(1000) < rng.beta(0.2, 2, 250)[patients]).astype(float)
        noise = rng.standard_normal((250, 3))[patients]
        q = cross_fit(noise, y, np.ones(1000), deal_patients(y, patients, seed), 60)
        assert q is not None
        ranked.append(auroc(y, q))
    assert 0.46 < np.mean(ranked) < 0.53


def test_many_patients_need_no_search() -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((4000, 2))
    y = (rng.random(4000) < expit(x[:, 0])).astype(float)
    fold = deal_patients(y, np.arange(4000), 0)
    searched, plain = (cross_fit(x, y, np.ones(4000), fold, n_units) for n_units in (10, 2000))
    assert searched is not None
    assert plain is not None
    np.testing.assert_allclose(searched, plain, atol=0.02)
