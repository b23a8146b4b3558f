"""Folds hold whole patients, even labels, and both classes."""

from __future__ import annotations

import numpy as np
import pytest

from cxrhf.context.sweep import deal
from cxrhf.errors import ConfigError
from tests.refusals import refused


def test_folds_hold_whole_patients_and_even_labels():
    rng = np.random.default_rng(0)
    patients = np.sort(rng.geometric(0.02, 3000))
    y = (rng.random(3000) < 0.1 + 0.3 * (patients % 3 == 0)).astype(float)
    learn = patients % 7 > 0
    fold = deal(y, patients, learn, 5, seed=0)
    assert (fold[~learn] == -1).all()
    assert set(fold[learn]) == set(range(5))
    assert all(len(np.unique(fold[patients == each])) == 1 for each in np.unique(patients))
    assert np.std([y[fold == at].mean() for at in range(5)]) < 0.02
    assert (deal(y, patients, learn, 5, seed=0) == fold).all()
    assert (deal(y, patients, learn, 5, seed=1) != fold).any()
    order = rng.permutation(3000)
    assert (deal(y[order], patients[order], learn[order], 5, seed=0) == fold[order]).all()


def test_patients_without_a_label_go_round():
    patients = np.repeat(np.arange(100), 3)
    y = (patients % 2).astype(float)
    y[patients >= 60] = np.nan
    y[::3] = np.nan  # and one image of everybody
    fold = deal(y, patients, np.ones(300, dtype=bool), 5, seed=2)
    assert all(len(np.unique(fold[patients == each])) == 1 for each in range(100))
    assert np.bincount(fold[180::3]).tolist() == [8] * 5
    assert (fold[:180] >= 0).all()


@pytest.mark.parametrize("folds", [3, 5, 8])
def test_every_fold_has_both_classes(folds):
    """As few patients as folds, with very different numbers of images: scikit-learn's folds alone miss some."""
    for seed in range(30):
        rng = np.random.default_rng(seed)
        n = int(rng.integers(2 * folds, 60))
        patients = np.repeat(np.arange(n), rng.geometric(0.15, n))
        share = np.where(np.arange(n) < rng.integers(folds, folds + 3), rng.random(n), 0)
        y = (rng.random(len(patients)) < share[patients]).astype(float)
        y[np.searchsorted(patients, np.arange(folds))] = 1.0
        if len(np.unique(patients[y == 0])) < folds:
            continue
        fold = deal(y, patients, np.ones(len(y), dtype=bool), folds, seed)
        assert all(set(y[fold == at]) == {0.0, 1.0} for at in range(folds)), seed
        assert all(len(np.unique(fold[patients == each])) == 1 for each in range(n))


def test_too_few_patients():
    patients = np.repeat(np.arange(30), 2)
    y = (patients < 4).astype(float)
    everybody = np.ones(60, dtype=bool)
    with refused(ConfigError, "--folds", got="5 folds for 4 patients with the finding and 26 without"):
        deal(y, patients, everybody, 5, seed=0)
    with refused(ConfigError, "--folds", got="0 patients with the finding and 0 without"):
        deal(np.full(60, np.nan), patients, everybody, 5, seed=0)
    assert deal(y, patients, everybody, 4, seed=0).max() == 3
