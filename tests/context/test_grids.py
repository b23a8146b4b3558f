"""The paper's grids have the cells that its tables print; the default ones are small; draws are drawn, and repeat."""

from __future__ import annotations

import json
from collections import Counter

import pytest

from cxrhf.context.families import candidates
from cxrhf.context.sweep import KINDS
from cxrhf.errors import ConfigError
from tests.refusals import refused

# Tables A.5 and A.11, cells of each classifier.
ENCODER = {
    "Perceptron": 3, "RidgeClassifierCV": 1, "PassiveAggressive": 4, "GaussianNB": 1, "LinearDiscriminantAnalysis": 4,
    "RandomForestClassifier": 27, "KNeighborsClassifier": 4, "MLPClassifier": 9, "LinearSVC": 3, "SGDClassifier": 6,
}  # fmt: skip
WORDS = {
    "Perceptron": 3, "RidgeClassifierCV": 1, "PassiveAggressive": 4, "RandomForestClassifier": 27, "LinearSVC": 4,
    "SGDClassifier": 9, "DecisionTreeClassifier": 16,
}  # fmt: skip


@pytest.mark.parametrize(("kind", "cells"), [("encoder", ENCODER), ("words", WORDS)])
def test_paper_grids(kind, cells):
    found = candidates(kind, "paper", draws=1, seed=0)
    assert Counter(each.kind for each in found) == cells
    assert len({each.label for each in found}) == len(found) == sum(cells.values())


def values(kind: str, search: str, classifier: str) -> dict[str, set[object]]:
    found: dict[str, set[object]] = {}
    for each in candidates(kind, search, draws=1, seed=0):
        if each.kind == classifier:
            for name, value in each.params.items():
                found.setdefault(name, set()).add(value)
    return found


def test_paper_values():
    forest = values("encoder", "paper", "RandomForestClassifier")
    assert forest == {"n_estimators": {50, 100, 150}, "max_depth": {None, 5, 10}, "min_samples_leaf": {1, 5, 10}}
    forest = values("words", "paper", "RandomForestClassifier")
    assert forest == {"n_estimators": {50, 100, 200}, "max_depth": {None, 20, 10}, "min_samples_leaf": {1, 5, 10}}
    assert values("encoder", "paper", "SGDClassifier") == {"alpha": {1e-5, 1e-4, 1e-3}, "penalty": {"l1", "l2"}}
    assert values("words", "paper", "SGDClassifier")["penalty"] == {"l1", "l2", "elasticnet"}
    assert values("words", "paper", "LinearSVC") == {"C": {0.01, 0.1, 1.0, 10.0}, "max_iter": {2000}}
    assert values("words", "paper", "PassiveAggressive") == {"C": {0.001, 0.01, 0.1, 1.0}}
    assert values("encoder", "paper", "PassiveAggressive") == {"C": {0.01, 0.1, 0.5, 1.0}}
    assert values("encoder", "paper", "MLPClassifier")["hidden_layer_sizes"] == {(64,), (128,), (64, 32)}
    lda = values("encoder", "paper", "LinearDiscriminantAnalysis")
    assert lda == {"solver": {"lsqr", "eigen"}, "shrinkage": {None, "auto"}}


def test_default_grids_are_small():
    for kind, most in (("words", 12), ("encoder", 8)):
        found = candidates(kind, "default", draws=1, seed=0)
        assert 0 < len(found) <= most
        assert all(each.kind in KINDS for each in found)


@pytest.mark.parametrize("search", ["default", "paper"])
def test_draws(search):
    few = candidates("boosted", search, draws=5, seed=3)
    more = candidates("boosted", search, draws=40, seed=3)
    assert more[:5] == few  # so a longer search keeps what the shorter one tried
    assert candidates("boosted", search, draws=5, seed=4) != few
    assert {each.kind for each in more} == {"XGBoost"}
    assert len({each.label for each in more}) == 40
    for each in more:
        assert 0 < each.params["learning_rate"] <= 0.5
        assert 0 < each.params["subsample"] <= 1
        assert 0 < each.params["colsample_bytree"] <= 1
        assert type(each.params["n_estimators"]) is int


def test_candidates_are_plain_values():
    """So that they can be written down as JSON and read again."""
    for kind in ("words", "boosted", "encoder"):
        for search in ("default", "paper"):
            for each in candidates(kind, search, draws=3, seed=0):
                assert json.loads(json.dumps(each.params)).keys() == each.params.keys()


def test_unknown():
    with refused(ConfigError, got="huge of words"):
        candidates("words", "huge", draws=1, seed=0)
    with refused(ConfigError, got="default of pictures"):
        candidates("pictures", "default", draws=1, seed=0)
    with refused(ConfigError, got="huge of boosted"):
        candidates("boosted", "huge", draws=1, seed=0)
