"""Metrics with intervals over one label or many: against the plain functions, label by label."""

from __future__ import annotations

import numpy as np
import pytest

from cxrhf import metrics
from cxrhf.metrics.checks import InputError
from cxrhf.metrics.estimates import description_as_keys, flat, labels_of, mean_of, reweight_labels, study, thin_classes


@pytest.fixture
def wide():
    rng = np.random.default_rng(3)
    y = (rng.random((240, 3)) < 0.3).astype(float)
    p = np.clip(0.3 + 0.2 * y + 0.2 * rng.standard_normal(y.shape), 0, 1).round(2)
    y[5, 0] = y[6, 1] = np.nan
    p[5, 0] = np.nan
    return y, p, np.arange(240) // 2


def test_replicates_are_those_of_the_engine(wide):
    y, p, patients = wide
    found = study(["auroc", "brier"], labels_of(y, p), clusters=patients, n_resamples=60, seed=4)
    draws = metrics.draw(patients, y=y, n_resamples=60, seed=4)
    for name in ("auroc", "brier"):
        assert np.array_equal(found[name].replicates, metrics.bootstrap(name, y, p, draws=draws))


def test_weights_of_each_label_are_used(wide):
    y, p, patients = wide
    q = np.clip(p, 0.1, 0.9)
    rows = reweight_labels(labels_of(y, p, None, np.where(np.isnan(q), 0.5, q)), "att")
    found = study(["auroc"], rows, clusters=patients, n_resamples=40)["auroc"]
    draws = metrics.draw(patients, y=y, n_resamples=40)
    for k in range(3):
        valid = ~np.isnan(y[:, k])
        weight = np.zeros(240)
        weight[valid] = metrics.att_weights(y[valid, k], q[valid, k])
        assert found.values[k] == metrics.auroc(y[valid, k], p[valid, k], weight[valid])
        assert np.array_equal(found.replicates[:, k], metrics.bootstrap("auroc", y[:, k], p[:, k], weight, draws=draws))


def test_ipw_auroc_does_not_depend_on_the_prevalence(wide):
    y, p, _ = wide
    valid = ~np.isnan(y[:, 0])
    one, score = y[valid, 0], p[valid, 0]
    q = np.clip(score, 0.05, 0.95)
    found = study(["auroc"], reweight_labels(labels_of(one, score, None, q), "ipw"))["auroc"]
    for prevalence in (0.02, 0.5):
        expected = metrics.auroc(one, score, metrics.ipw_weights(one, q, prevalence))
        assert found.values[0] == pytest.approx(expected, abs=1e-12)


def test_options_may_differ_between_labels(wide):
    y, p, _ = wide
    p = np.nan_to_num(p, nan=0.5)
    rows = labels_of(y, p, probability=True)
    found = study({"brier_skill_score": {"prevalence": [0.2, 0.3, 0.4]}}, rows, n_resamples=20)["brier_skill_score"]
    for k, prevalence in enumerate((0.2, 0.3, 0.4)):
        valid = ~np.isnan(y[:, k])
        assert found.values[k] == metrics.brier_skill_score(y[valid, k], p[valid, k], prevalence=prevalence)
    draws = metrics.draw(y=y, n_resamples=20)
    expected = metrics.bootstrap("brier_skill_score", y[:, 2], p[:, 2], draws=draws, prevalence=0.4)
    assert np.array_equal(found.replicates[:, 2], expected)
    with pytest.raises(InputError, match=r"prevalence: .* 3 labels, got 2"):
        study({"brier_skill_score": {"prevalence": [0.2, 0.3]}}, rows)


def test_variants_that_the_engine_lacks_are_computed_one_by_one(wide):
    y, p, _ = wide
    valid = ~np.isnan(y[:, 0])
    one, score = y[valid, 0], p[valid, 0]
    asked = {"sensitivity_at_specificity": {"specificity": 0.9, "rule": "interp"}}
    ticks: list[int] = []
    found = study(asked, labels_of(one, score), n_resamples=12, seed=1, progress=lambda total: ticks.append)
    draws = metrics.draw(y=one, n_resamples=12, seed=1)
    counts = draws.counts(0, 12, conditional=False)
    for r in range(12):
        twice = np.repeat(np.arange(len(one)), counts[:, r])
        point = metrics.sensitivity_at_specificity(one[twice], score[twice], 0.9, rule="interp")
        assert found["sensitivity_at_specificity"].replicates[r, 0] == pytest.approx(point.sensitivity, abs=1e-12)
    assert sum(ticks) == 12
    with pytest.raises(InputError, match=r"n_resamples requires method='exact'"):
        study({"adaptive_calibration_error": {"method": "array_split"}}, labels_of(one, score), n_resamples=5)
    with pytest.raises(InputError, match=r"options of auroc: .*got 'bins'"):
        study({"auroc": {"bins": 5}}, labels_of(one, score), n_resamples=5)


def test_the_mean_and_its_notes(wide):
    y, p, _ = wide
    y[:, 1] = 0
    out = flat("x", study(["auroc"], labels_of(y, p), n_resamples=50)["auroc"], label_names=["a", "b", "c"])
    assert out["x"] == np.mean([out["x_per_label"]["a"], out["x_per_label"]["c"]])
    assert out["x_note"] == "mean of 2 of 3 labels; undefined for b: no positives among 240 rows"
    assert np.isnan(out["x_per_label_ci_low"]["b"])
    y[:, :], p[5, 0] = 0, 0.5
    out = flat("x", study(["auroc"], labels_of(y, p), n_resamples=50)["auroc"])
    assert np.isnan(out["x"])
    assert np.isnan(out["x_ci_low"])
    assert out["x_note"].startswith("mean of 0 of 3 labels")


def test_a_difference_of_equals_is_nothing(wide):
    y, p, patients = wide
    found = study(["auroc"], labels_of(y, p), clusters=patients, n_resamples=30)["auroc"]
    out = flat("drop", found.minus(found))
    assert out["drop"] == out["drop_ci_low"] == out["drop_ci_high"] == 0


def test_thin_classes_are_told():
    y = np.r_[np.ones(20), np.zeros(20)]
    rows = labels_of(y, y, np.r_[np.ones(20), 1000, np.ones(19)])
    assert thin_classes("x", rows) == {"x_warning": "20 negatives count like 1.0 after weighting"}
    assert thin_classes("x", labels_of(y, y)) == {}


def test_shapes_and_names_are_checked(wide):
    y, p, _ = wide
    with pytest.raises(InputError, match=r"predictions: expected shape \(240, 3\) as in references, got \(240,\)"):
        labels_of(y, p[:, 0])
    with pytest.raises(InputError, match=r"context\[0, 0\]: expected a probability from 0 to 1, got 1.5"):
        labels_of(y, p, None, np.full(240, 1.5))
    rows = labels_of(y, p)
    with pytest.raises(InputError, match=r"label_names: .*got 2"):
        flat("x", study(["auroc"], rows)["auroc"], label_names=["a", "b"])
    with pytest.raises(InputError, match=r"label_names: .*got 3 \(2 distinct\)"):
        description_as_keys("x", [1, 2, 3], rows, ["a", "a", "b"])
    assert mean_of("x", [1.0, np.nan, 3.0], rows)["x"] == 2.0
    with pytest.raises(InputError, match=r"weighting: expected 'att' or 'ipw'.*got 'odds'"):
        reweight_labels(labels_of(y, p, None, np.full(240, 0.5)), "odds")
    with pytest.raises(InputError, match=r"clusters: expected 240 rows .*got 2"):
        study(["auroc"], rows, clusters=[1, 2])


def test_weights_of_each_label_are_checked_like_those_of_rows(wide):
    y, p, _ = wide
    weight = np.ones(y.shape)
    weight[7, 2] = -1
    with pytest.raises(InputError, match=r"sample_weight\[7, 2\]: expected a finite number >= 0, got -1.0"):
        labels_of(y, p, weight)
    weight[7, 2] = 2
    weight[5, 0] = np.nan  # beside a missing label
    assert labels_of(y, p, weight).weight[7, 2] == 2
    with pytest.raises(InputError, match=r"context: expected shape \(240, 3\) as in references, got \(7,\)"):
        labels_of(y, p, None, np.full(7, 0.5))


@pytest.mark.parametrize("weighting", ["att", "ipw"])
def test_a_label_without_rows_is_undefined_whatever_the_weights(wide, weighting):
    y, p, _ = wide
    y[:, 1] = np.nan
    even = reweight_labels(labels_of(y, p, None, np.full(240, 0.4)), weighting)
    out = flat("x", study(["auroc"], even, n_resamples=10)["auroc"])
    assert np.isnan(out["x_per_label"][1])
    assert out["x_note"] == "mean of 2 of 3 labels; undefined for label 1: no rows"


def test_patients_as_text_or_numbers_give_the_same_draws(wide):
    y, p, patients = wide
    number = study(["auroc"], labels_of(y, p), clusters=patients, n_resamples=20)["auroc"].replicates
    text = study(["auroc"], labels_of(y, p), clusters=[str(each) for each in patients], n_resamples=20)["auroc"]
    assert np.array_equal(number, text.replicates)
