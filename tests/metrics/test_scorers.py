"""Scorers give the metric functions' own values, the right way up, through every door of scikit-learn."""

from __future__ import annotations

import importlib

import numpy as np
import pytest
from sklearn import config_context
from sklearn.base import clone
from sklearn.exceptions import UndefinedMetricWarning
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import make_scorer
from sklearn.model_selection import GridSearchCV, GroupKFold, StratifiedGroupKFold, cross_validate
from sklearn.svm import LinearSVC

import cxrhf.metrics as m
from cxrhf.metrics.catalogue import METRICS
from cxrhf.metrics.checks import InputError
from cxrhf.metrics.module import _FUNCTIONS

RNG = np.random.default_rng(3)
N = 300
PATIENT = np.sort(RNG.integers(0, 90, N))
PRETEST = RNG.uniform(0.05, 0.8, N)
Y = (RNG.random(N) < PRETEST).astype(int)
X = RNG.normal(size=(N, 4)) + 0.7 * Y[:, None]
WEIGHT = RNG.uniform(0.2, 2, N)
MODEL = LogisticRegression().fit(X, Y)
P = MODEL.predict_proba(X)[:, 1]


@pytest.mark.parametrize(
    ("name", "options", "value"),
    [
        ("auroc", {}, m.auroc(Y, P, WEIGHT)),
        ("average_precision", {}, m.average_precision(Y, P, WEIGHT)),
        ("auprc_trapezoid", {}, m.auprc_trapezoid(Y, P, WEIGHT)),
        ("brier", {}, -m.brier(Y, P, WEIGHT)),
        ("brier_positive", {}, -m.brier_positive(Y, P, WEIGHT)),
        ("brier_negative", {}, -m.brier_negative(Y, P, WEIGHT)),
        ("balanced_brier", {}, -m.balanced_brier(Y, P, WEIGHT)),
        ("brier_skill_score", {}, m.brier_skill_score(Y, P, WEIGHT)),
        ("brier_skill_score", {"prevalence": 0.2}, m.brier_skill_score(Y, P, WEIGHT, prevalence=0.2)),
        ("adaptive_calibration_error", {}, -m.adaptive_calibration_error(Y, P, WEIGHT)),
        ("adaptive_calibration_error", {"bins": 7}, -m.adaptive_calibration_error(Y, P, WEIGHT, bins=7)),
        ("expected_calibration_error", {}, -m.expected_calibration_error(Y, P, WEIGHT)),
        ("sensitivity_at_specificity", {}, m.sensitivity_at_specificity(Y, P, 0.95, WEIGHT).sensitivity),
        (
            "sensitivity_at_specificity",
            {"specificity": 0.8, "rule": "plus_one"},
            m.sensitivity_at_specificity(Y, P, 0.8, WEIGHT, "plus_one").sensitivity,
        ),
        ("net_benefit", {"threshold": 0.3}, m.net_benefit(Y, P, 0.3, WEIGHT)),
        *((name, {"threshold": 0.4}, getattr(m.rates_at(Y, P, 0.4, WEIGHT), name)) for name in ("tpr", "f1", "mcc")),
        ("fpr", {}, -m.rates_at(Y, P, 0.5, WEIGHT).fpr),
    ],
)
def test_value_and_sign(name, options, value):
    assert m.scorer(name, **options)(MODEL, X, Y, sample_weight=WEIGHT) == pytest.approx(value, rel=1e-12)


def test_every_metric_that_has_a_direction_and_no_threshold_of_its_own_is_there():
    directed = {name for name, entry in METRICS.items() if entry.higher_is_better is not None}
    matched = {name for name, entry in METRICS.items() if entry.matched} - {"matched_auroc"}
    assert set(_FUNCTIONS) == directed - {"max_f1", "youden"} - matched
    for name in _FUNCTIONS:
        m.scorer(name)


def test_ranking_looks_at_decision_function_and_probability_metrics_refuse_models_without():
    svm = LinearSVC().fit(X, Y)
    assert m.scorer("auroc")(svm, X, Y) == m.auroc(Y, svm.decision_function(X))
    for name in ("brier", "f1"):
        with pytest.raises(AttributeError, match="predict_proba"):
            m.scorer(name)(svm, X, Y)


@pytest.mark.parametrize(
    ("name", "options", "said"),
    [
        ("aurok", {}, "metric: expected auroc.*got 'aurok'"),
        ("calibration_slope", {}, "has no better direction"),
        ("youden", {}, "got 'youden'"),
        ("matched_sensitivity", {}, "got 'matched_sensitivity'"),
        ("auroc", {"bins": 3}, "options of auroc: expected none, got 'bins'"),
        ("adaptive_calibration_error", {"bin": 3}, "expected bins, method, got 'bin'"),
        ("sensitivity_at_specificity", {"specificity": 95}, r"specificity: .*got 95"),
        ("auroc", {"weight": WEIGHT}, r"options of \w+: .*got 'weight'"),
    ],
)
def test_mistakes_are_refused_when_the_scorer_is_made(name, options, said):
    with pytest.raises(InputError, match=said):
        m.scorer(name, **options)


def test_cross_validation_by_patient_with_weights_and_context():
    cv = StratifiedGroupKFold(4)
    with config_context(enable_metadata_routing=True):
        found = cross_validate(
            LogisticRegression().set_fit_request(sample_weight=True),
            X,
            Y,
            cv=cv,
            scoring={
                "auroc": m.scorer("auroc").set_score_request(sample_weight=True),
                "plain": m.scorer("balanced_brier").set_score_request(sample_weight=False),
                "matched": m.scorer("matched_auroc").set_score_request(pretest=True),
            },
            params={"groups": PATIENT, "sample_weight": WEIGHT, "pretest": PRETEST},
            error_score="raise",
        )
    for k, (train, test) in enumerate(cv.split(X, Y, PATIENT)):
        assert not set(PATIENT[train]) & set(PATIENT[test])
        model = LogisticRegression().fit(X[train], Y[train], sample_weight=WEIGHT[train])
        p = model.predict_proba(X[test])[:, 1]
        score = model.decision_function(X[test])
        assert found["test_auroc"][k] == m.auroc(Y[test], score, WEIGHT[test])
        assert found["test_plain"][k] == -m.balanced_brier(Y[test], p)
        assert found["test_matched"][k] == m.matched_auroc(Y[test], score, PRETEST[test])


def test_matching_without_context_says_what_to_do():
    with pytest.raises(InputError, match=r"set_score_request\(pretest=True\)"):
        m.scorer("matched_auroc")(MODEL, X, Y)


def test_undefined_is_nan_with_its_reason_as_a_warning():
    with pytest.warns(UndefinedMetricWarning, match="auroc is undefined: no positives among 300 rows"):
        assert np.isnan(m.scorer("auroc")(MODEL, X, np.zeros(N)))
    with pytest.warns(UndefinedMetricWarning, match="precision is undefined on these 300 rows"):
        assert np.isnan(m.scorer("precision", threshold=2.0)(MODEL, X, Y))


@pytest.mark.filterwarnings("ignore:One or more of the test scores")
def test_scikit_learn_calls_the_first_candidate_best_when_a_fold_is_undefined():
    """Not our doing, but what the module's docstring warns of; should it change, the warning can go."""
    y = np.zeros(60, dtype=int)
    y[[1, 21]] = 1  # two of four folds without a positive
    search = GridSearchCV(LogisticRegression(), {"C": [1e-9, 1.0]}, cv=GroupKFold(4), scoring=m.scorer("auroc"))
    with pytest.warns(UndefinedMetricWarning, match="auroc is undefined"):
        search.fit(X[:60], y, groups=np.repeat(np.arange(20), 3))
    assert np.isnan(search.cv_results_["mean_test_score"]).all()
    assert search.cv_results_["rank_test_score"].tolist() == [1, 1]
    assert search.best_params_ == {"C": 1e-9}


def test_scorers_can_be_found_by_name_in_other_processes_and_are_shown_plainly():
    for name in ("brier", "matched_auroc"):
        function = m.scorer(name)._score_func
        assert getattr(importlib.import_module(function.__module__), function.__qualname__) is function
    assert repr(m.scorer("brier")) == (
        "make_scorer(catalogue_score, greater_is_better=False, response_method='predict_proba', metric=brier)"
    )
    assert isinstance(m.scorer("brier"), type(make_scorer(m.auroc)))
    assert clone(GridSearchCV(MODEL, {"C": [1]}, scoring=m.scorer("brier"))).scoring is not None
