"""Every classifier of the grids learns what is planted, scores it on a scale of odds, and says what it rests on."""

from __future__ import annotations

import sys
import threading
import warnings
from typing import NamedTuple

import numpy as np
import pytest
from scipy import sparse
from scipy.special import expit

from cxrhf.context import bow
from cxrhf.context.families import candidates
from cxrhf.context.material import Candidate
from cxrhf.context.sweep import KINDS, Linear, fit, importance, limit_threads, scores, settled
from cxrhf.errors import ConfigError, CxrhfError, TableError
from cxrhf.metrics import auroc
from tests.refusals import refused


class Problem(NamedTuple):
    features: object
    rows: np.ndarray
    y: np.ndarray
    patients: np.ndarray


def problem(seed: int, kind: str, n: int = 200, width: int = 30) -> Problem:
    """Three features speak for the finding, three against it, the others are noise."""
    rng = np.random.default_rng(seed)
    if kind == "encoder":
        features = rng.normal(size=(n, width)).astype(np.float32)
    else:
        counts = rng.poisson(0.5, size=(n, width)).astype(np.float32)
        features = sparse.csr_array(counts / np.maximum(np.linalg.norm(counts, axis=1, keepdims=True), 1))
    pull = np.zeros(width)
    pull[:3], pull[3:6] = 1.0, -1.0
    signal = features @ pull
    y = (rng.random(n) < expit(4 * (signal - signal.mean()) / signal.std())).astype(float)
    return Problem(features, np.arange(n), y, np.arange(n) // 2)


PAPER = [(kind, each) for kind in ("encoder", "words") for each in candidates(kind, "paper", draws=1, seed=0)]
DEFAULT = [
    (kind, each)
    for kind in ("encoder", "words", "boosted")
    for each in candidates(kind, "default", draws=6, seed=0)
]  # fmt: skip


def marked(kind: str, candidate: Candidate):
    """More trees take more time, and no other way through the code."""
    many = candidate.kind == "RandomForestClassifier" and candidate.params["n_estimators"] > 50
    return pytest.param(kind, candidate, id=f"{kind}-{candidate.label}", marks=[pytest.mark.slow] if many else [])


@pytest.mark.parametrize(("kind", "candidate"), [marked(*each) for each in PAPER + DEFAULT])
def test_every_cell_learns(kind, candidate):
    n = 600 if candidate.kind == "MLPClassifier" else 200  # it stops early by a tenth of the rows, and 20 tell nothing
    learn, fresh = problem(0, kind, n), problem(1, kind)
    model = fit(candidate, *learn, 0)
    found = scores(model, fresh.features)
    assert found.dtype == np.float64
    assert found.shape == fresh.y.shape
    assert np.isfinite(found).all()
    assert auroc(fresh.y, found) > 0.6
    said = importance(model, 30)
    if said is None:
        assert candidate.kind in {"KNeighborsClassifier", "MLPClassifier", "GaussianNB"}
        return
    assert said.values.shape == (30,)
    telling = np.abs(said.values[:6]).mean()
    assert telling > 1.5 * np.abs(said.values[6:]).mean()
    if said.signed:
        assert said.values[:3].min() > said.values[3:6].max()
    else:
        assert said.values.min() >= 0
        assert said.values.sum() == pytest.approx(1)


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_same_seed_same_scores(kind):
    where = "encoder" if kind in {"GaussianNB", "LinearDiscriminantAnalysis"} else "words"
    known = {each.kind: each for _, each in PAPER + DEFAULT}
    candidate = known.get(kind, Candidate(kind, {}))
    learn = problem(2, where)
    one, two = (scores(fit(candidate, *learn, 2**40 + 7), learn.features) for _ in range(2))
    assert np.array_equal(one, two)


def test_passive_aggressive_is_the_classifier_that_leaves_scikit_learn():
    from sklearn import linear_model

    if not hasattr(linear_model, "PassiveAggressiveClassifier"):
        pytest.skip("gone from this scikit-learn")
    learn = problem(3, "words")
    ours = fit(Candidate("PassiveAggressive", {"C": 0.1}), *learn, 5)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = linear_model.PassiveAggressiveClassifier(C=0.1, random_state=5)
        theirs.fit(learn.features.astype(np.float64), learn.y)
    assert np.array_equal(ours.coef_, theirs.coef_)
    assert np.array_equal(ours.intercept_, theirs.intercept_)


def test_fixed_settings_are_those_of_the_tables():
    learn = problem(4, "encoder")

    def settings(kind, **params):
        return fit(Candidate(kind, params), *learn, 42).get_params()

    assert settings("RidgeClassifierCV")["alphas"] == tuple(np.logspace(-4, 4, 9))
    assert settings("Perceptron")["penalty"] == "l2"
    network = settings("MLPClassifier")
    assert (network["early_stopping"], network["validation_fraction"], network["max_iter"]) == (True, 0.1, 300)
    assert (settings("SGDClassifier")["loss"], settings("SGDClassifier")["penalty"]) == ("log_loss", "l2")
    assert (settings("LinearSVC")["max_iter"], settings("LinearSVC", max_iter=2000)["max_iter"]) == (1000, 2000)
    assert settings("LinearSVC")["random_state"] == 42


def test_word_ridge_is_the_ridge_of_the_audits():
    """Images that share notes are counted, and give what a bag of all of them gives; penalty 3 is the audits' own."""
    rng = np.random.default_rng(0)
    sets = problem(5, "words", n=80)
    rows = np.sort(rng.integers(0, 80, 300))
    patients = rows // 2
    y = (rng.random(300) < expit(8 * sets.features[:, [0]].toarray().ravel()[rows] - 2)).astype(float)
    model = fit(Candidate("WordRidge", {"penalty": 3.0}), sets.features, rows, y, patients, 0)
    there = np.unique(rows)
    row = np.searchsorted(there, rows)
    bag = bow.bag_of(
        sparse.csr_array(sets.features[there].astype(np.float64)), np.unique(there // 2, return_inverse=True)[1], row
    )
    positive = np.bincount(row, y)
    weight, intercept = bow.fit(bag, np.arange(len(there)), positive, np.bincount(row) - positive)
    sharp = fit(Candidate("WordRidge", {"penalty": 3.0, "sharpness": 2.0}), sets.features, rows, y, patients, 0)
    assert np.abs(sharp.weight[1:]).sum() / sharp.weight[0] < np.abs(weight[1:]).sum() / weight[0]
    assert isinstance(model, Linear)
    assert np.array_equal(model.weight, weight)
    assert model.intercept == intercept
    order = rng.permutation(300)
    again = fit(Candidate("WordRidge", {"penalty": 3.0}), sets.features, rows[order], y[order], patients[order], 0)
    assert np.array_equal(again.weight, model.weight)
    assert scores(model, sets.features) == pytest.approx(sets.features.toarray() @ weight + intercept)


def test_word_ridge_without_any_word():
    nothing = sparse.csr_array((60, 0), dtype=np.float32)
    y = np.tile([0.0, 0.0, 1.0], 20)
    model = fit(Candidate("WordRidge", {"penalty": 3.0}), nothing, np.arange(60), y, np.arange(60), 0)
    assert expit(scores(model, nothing)) == pytest.approx(np.full(60, 1 / 3))


def test_probabilities_become_odds_without_new_ties():
    learn = problem(6, "encoder")
    for kind in ("RandomForestClassifier", "KNeighborsClassifier", "DecisionTreeClassifier", "MLPClassifier"):
        model = fit(Candidate(kind, {}), *learn, 0)
        p, found = model.predict_proba(learn.features)[:, 1], scores(model, learn.features)
        assert np.array_equal(np.unique(p, return_inverse=True)[1], np.unique(found, return_inverse=True)[1])
        assert np.abs(found).max() < 7
    wide = problem(7, "encoder", width=400)
    wide.features[:, :] = np.sign(wide.features[:, [0]]) + 0.3 * wide.features  # 400 times the same evidence
    model = fit(Candidate("GaussianNB", {}), *wide, 0)
    assert len(np.unique(model.predict_proba(wide.features)[:, 1])) < 150  # rounded to 0 and 1
    assert len(np.unique(scores(model, wide.features))) == 200


def test_boosted_trees_take_stored_zeros_as_absent():
    learn = problem(8, "words")
    candidate = candidates("boosted", "default", draws=1, seed=0)[0]
    dense = learn.features.toarray()
    stored = sparse.csr_array((dense.ravel(), np.tile(np.arange(30), 200), np.arange(0, 6001, 30)), shape=dense.shape)
    assert stored.nnz == 6000
    model = fit(candidate, *learn, 0)
    other = fit(candidate, stored, *learn[1:], 0)
    expected = scores(model, learn.features)
    assert np.array_equal(scores(model, stored), expected)
    assert np.array_equal(scores(other, learn.features), expected)
    assert stored.nnz == 6000  # the caller's matrix is left as it was
    assert importance(model, 30).values.argmax() < 6


def test_missing_xgboost(monkeypatch):
    monkeypatch.setitem(sys.modules, "xgboost", None)
    with refused(CxrhfError, "XGBoost", fix="pip install 'cxrhf[context]'"):
        fit(candidates("boosted", "default", draws=1, seed=0)[0], *problem(0, "words"), 0)


def test_bad_input():
    learn = problem(0, "words")
    with refused(ConfigError, "LinearSVC", got="LinearSVM"):
        fit(Candidate("LinearSVM", {}), *learn, 0)
    for y in (np.zeros(200), np.ones(200), np.where(learn.y == 1, 2.0, 0.0), np.where(learn.y == 1, np.nan, 0.0)):
        with refused(TableError, "with and without the finding", got="with label 1"):
            fit(Candidate("LinearSVC", {}), *learn._replace(y=y), 0)
    assert scores(fit(Candidate("LinearSVC", {}), *learn, 0), learn.features[:0]).shape == (0,)


def test_settled():
    learn = problem(9, "encoder")
    assert settled(fit(Candidate("LogisticRegression", {"C": 1.0}), *learn, 0))
    assert not settled(fit(Candidate("LogisticRegression", {"C": 1.0, "max_iter": 1}), *learn, 0))
    assert not settled(fit(Candidate("MLPClassifier", {"max_iter": 1}), *learn, 0))
    assert settled(fit(Candidate("KNeighborsClassifier", {}), *learn, 0))
    assert settled(Linear(np.zeros(3), 0.0))


def test_nothing_is_printed_and_all_is_set_back():
    """In one thread, and in two that overlap."""
    import threadpoolctl

    learn = problem(9, "encoder")
    fit(Candidate("KNeighborsClassifier", {}), *learn, 0)  # all libraries are loaded

    def threads():
        return {each["filepath"]: each["num_threads"] for each in threadpoolctl.threadpool_info()
                if each["user_api"] == "blas"}  # fmt: skip

    at_first = threads()
    aside(lambda: threadpoolctl.threadpool_limits(2, user_api="blas"))
    before = threads()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        filters = list(warnings.filters)
        fit(Candidate("LogisticRegression", {"C": 1.0, "max_iter": 1}), *learn, 0)
        assert not caught
        assert (threads(), list(warnings.filters)) == (before, filters)
        steps = [threading.Barrier(3) for _ in range(3)]

        def work(leaves_last):
            with limit_threads():
                steps[0].wait()
                steps[1].wait()
                if leaves_last:
                    steps[2].wait()
            if not leaves_last:
                steps[2].wait()

        two = [threading.Thread(target=work, args=(last,)) for last in (False, True)]
        for each in two:
            each.start()
        steps[0].wait()
        assert set(threads().values()) == {1}
        steps[1].wait()
        steps[2].wait()
        for each in two:
            each.join()
        assert (threads(), list(warnings.filters)) == (before, filters)
    aside(lambda: threadpoolctl.threadpool_limits(at_first, user_api=None))
    assert threads() == at_first


def aside(work):
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
