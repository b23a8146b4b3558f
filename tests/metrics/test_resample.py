"""The counting bootstrap against copying rows, and what must not change its numbers."""

from __future__ import annotations

from inspect import ismodule

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from cxrhf.metrics import METRICS, bootstrap, bootstrap_auroc, bootstrap_many, count_units, draw
from cxrhf.metrics.calibration import (
    adaptive_calibration_error,
    balanced_brier,
    brier,
    brier_negative,
    brier_positive,
    brier_skill_score,
    expected_calibration_error,
)
from cxrhf.metrics.checks import InputError
from cxrhf.metrics.matching import match_weights, matched_auroc
from cxrhf.metrics.operating import (
    Rates,
    max_f1_threshold,
    net_benefit,
    rates_at,
    sensitivity_at_specificity,
    youden_threshold,
)
from cxrhf.metrics.ranking import auprc_trapezoid, auroc, average_precision
from cxrhf.metrics.reliability import calibration_line, pav_decomposition
from tests.real_data import real_data


def table(seed: int = 0, patients: int = 60, labels: int = 3, masked: float = 0.1):
    rng = np.random.default_rng(seed)
    clusters = np.repeat(np.arange(patients), rng.integers(1, 6, patients))
    rng.shuffle(clusters)
    n = len(clusters)
    y = (rng.random((n, labels)) < 0.3).astype(float)
    p = np.round(0.3 * y + 0.6 * rng.random((n, labels)), 2)  # rounded: ties matter
    y[rng.random(y.shape) < masked] = np.nan
    return y, p, clusters


def copied_rows(draws, r, conditional=True):
    """The slow twin of a draw: rows written out as often as their patient was drawn."""
    counts = draws.counts(r, r + 1, conditional=conditional)[:, 0]
    return np.repeat(np.arange(len(draws.unit)), counts[draws.unit])


# Every metric of the catalogue by its own function; matching has its test below.
AT = 0.45
FUNCTIONS = {
    "auroc": auroc,
    "average_precision": average_precision,
    "auprc_trapezoid": auprc_trapezoid,
    "brier": brier,
    "brier_positive": brier_positive,
    "brier_negative": brier_negative,
    "balanced_brier": balanced_brier,
    "brier_skill_score": brier_skill_score,
    "adaptive_calibration_error": adaptive_calibration_error,
    "expected_calibration_error": expected_calibration_error,
    "calibration_slope": lambda y, p: calibration_line(y, p).slope,
    "calibration_intercept": lambda y, p: calibration_line(y, p).intercept,
    "calibration_in_the_large": lambda y, p: calibration_line(y, p).in_the_large,
    "sensitivity_at_specificity": lambda y, p: sensitivity_at_specificity(y, p).sensitivity,
    "max_f1": lambda y, p: rates_at(y, p, max_f1_threshold(y, p)).f1,
    "youden": lambda y, p: rates_at(y, p, youden_threshold(y, p)).j,
    "pav_calibration": lambda y, p: pav_decomposition(y, p).calibration,
    "pav_refinement": lambda y, p: pav_decomposition(y, p).refinement,
    "net_benefit": lambda y, p: net_benefit(y, p, AT),
    "observed_minus_predicted": lambda y, p: np.mean(y - p),
    "prevalence": lambda y, p: y.mean(),
} | {name: (lambda y, p, name=name: getattr(rates_at(y, p, AT), name)) for name in Rates._fields}


# Metrics of the matched set, of copied rows with their shares.
MATCHED = {
    "matched_auroc": auroc,
    "matched_sensitivity": lambda y, p, w: sensitivity_at_specificity(y, p, weight=w).sensitivity,
}


def test_replicates_equal_the_metric_of_copied_rows():
    assert set(FUNCTIONS) | set(MATCHED) == set(METRICS)
    y, p, clusters = table()
    draws = draw(clusters, y=y, n_resamples=5, seed=3)
    options = {name: {"threshold": AT} if METRICS[name].option == "threshold" else {} for name in FUNCTIONS}
    got = bootstrap_many(options, y, p, draws=draws)
    for name, metric in FUNCTIONS.items():
        for r in range(5):
            rows = copied_rows(draws, r, METRICS[name].conditional)
            for label in range(y.shape[1]):
                kept = rows[~np.isnan(y[rows, label])]
                expected = metric(y[kept, label], p[kept, label])
                assert got[name][r, label] == pytest.approx(expected, abs=1e-9, nan_ok=True), (name, r, label)


def test_weights_multiply_counts():
    y, p, clusters = table(masked=0.0)
    weight = np.random.default_rng(5).random(len(y))
    draws = draw(clusters, y=y, n_resamples=3)
    got = bootstrap("auroc", y, p, weight, draws=draws)
    for r in range(3):
        rows = copied_rows(draws, r)
        assert got[r, 0] == pytest.approx(roc_auc_score(y[rows, 0], p[rows, 0], sample_weight=weight[rows]), abs=1e-12)


def context(y: np.ndarray) -> np.ndarray:
    return np.round(np.clip(0.2 * np.nan_to_num(y) + 0.5 * np.random.default_rng(1).random(y.shape), 0, 1), 2)


@pytest.mark.parametrize("caliper", [None, 0.03])
def test_matching_is_redone_in_each_replicate_once_for_all_metrics(caliper):
    y, p, clusters = table(masked=0.1)
    q = context(y)
    draws = draw(clusters, y=y, n_resamples=20)
    got = bootstrap_many({name: {"caliper": caliper} for name in MATCHED}, y, p, pretest=q, draws=draws)
    for r in range(20):
        rows = copied_rows(draws, r)
        for label in range(y.shape[1]):
            kept = rows[~np.isnan(y[rows, label])]
            labels, scores = y[kept, label], p[kept, label]
            share = match_weights(labels, q[kept, label], caliper)
            for name, metric in MATCHED.items():
                assert got[name][r, label] == pytest.approx(metric(labels, scores, share), abs=1e-12), (name, r)
            assert got["matched_auroc"][r, label] == pytest.approx(
                matched_auroc(labels, scores, q[kept, label], caliper), abs=1e-12
            )


def test_each_matched_metric_has_its_own_option_and_caliper():
    y, p, clusters = table()
    q, draws = context(y), draw(clusters, y=y, n_resamples=40)
    asked = {"matched_auroc": {"caliper": 0.02}, "matched_sensitivity": {"specificity": 0.7}}
    together = bootstrap_many(asked, y, p, pretest=q, draws=draws)
    for name, option in asked.items():
        assert np.array_equal(together[name], bootstrap(name, y, p, pretest=q, draws=draws, **option), equal_nan=True)
    strict = bootstrap("matched_sensitivity", y, p, pretest=q, draws=draws)
    assert strict.mean() < together["matched_sensitivity"].mean()


@pytest.mark.parametrize("metric", METRICS)
def test_threads_and_company_do_not_change_replicates(metric):
    y, p, clusters = table()
    q = np.clip(p, 0, 1)
    draws = draw(clusters, y=y, n_resamples=300, seed=11)
    one = bootstrap(metric, y, p, pretest=q, draws=draws, workers=1)
    three = bootstrap(metric, y, p, pretest=q, draws=draws, workers=3)
    among = bootstrap_many(["auroc", "brier", metric, "tpr", "youden"], y, p, pretest=q, draws=draws)[metric]
    single = bootstrap(metric, y[:, 1], p[:, 1], pretest=q[:, 1], draws=draws)
    fewer = bootstrap(metric, y, p, pretest=q, draws=draw(clusters, y=y, n_resamples=100, seed=11))
    assert np.array_equal(one, three, equal_nan=True)
    assert np.array_equal(one, among, equal_nan=True)
    assert np.array_equal(one[:, 1], single, equal_nan=True)
    assert np.array_equal(one[:100], fewer, equal_nan=True)


@pytest.mark.parametrize("metric", [name for name, entry in METRICS.items() if not entry.matched])
def test_labels_may_have_weights_of_their_own(metric):
    y, p, clusters = table()
    weight = np.random.default_rng(7).random(y.shape)
    weight[np.isnan(y)] = np.nan  # never looked at
    draws = draw(clusters, y=y, n_resamples=12)
    together = bootstrap(metric, y, p, weight, draws=draws)
    for label in range(y.shape[1]):
        own = np.nan_to_num(weight[:, label])
        alone = bootstrap(metric, y[:, label], p[:, label], own, draws=draws)
        assert np.array_equal(together[:, label], alone, equal_nan=True)
    same = np.random.default_rng(8).random(len(y))
    wide = np.repeat(same[:, None], y.shape[1], axis=1)
    assert np.array_equal(
        bootstrap(metric, y, p, same, draws=draws), bootstrap(metric, y, p, wide, draws=draws), equal_nan=True
    )


def test_functions_take_weights_of_each_label():
    y, p, clusters = table()
    weight = np.random.default_rng(7).random(y.shape)
    draws = draw(clusters, y=y, n_resamples=9)
    assert np.allclose(
        bootstrap(brier, y, p, weight, draws=draws), bootstrap("brier", y, p, weight, draws=draws), atol=1e-12
    )


def test_labels_may_have_options_of_their_own():
    y, p, clusters = table()
    draws = draw(clusters, y=y, n_resamples=30)
    options = {
        "precision": {"threshold": [0.3, np.nan, 0.6]},
        "sensitivity_at_specificity": {"specificity": [0.9, 0.8, 0.7]},
        "adaptive_calibration_error": {"bins": [5, 10, 3]},
        "brier_skill_score": {"prevalence": [0.2, np.nan, 0.4]},
    }
    got = bootstrap_many(options, y, p, draws=draws)
    for name, given in options.items():
        ((key, values),) = given.items()
        for label, value in enumerate(values):
            if np.isnan(value) and name == "precision":
                assert np.isnan(got[name][:, label]).all()
                continue
            option = {} if np.isnan(value) else {key: value}
            alone = bootstrap(name, y[:, label], p[:, label], draws=draws, **option)
            assert np.array_equal(got[name][:, label], alone, equal_nan=True)


def test_row_order_of_a_patient_does_not_matter_and_patients_move_together():
    y, p, clusters = table(masked=0.0)
    draws = draw(clusters, y=y, n_resamples=50)
    order = np.random.default_rng(2).permutation(len(y))
    again = draw(clusters[order], y=y[order], n_resamples=50)
    assert np.allclose(bootstrap("auroc", y, p, draws=draws), bootstrap("auroc", y[order], p[order], draws=again))
    counts = draws.counts(0, 50)
    assert counts.shape == (60, 50)
    assert (counts.sum(axis=0) == 60).all()


def test_strata_hold_positive_patients_fixed_only_where_prevalence_does_not_matter():
    y, _, clusters = table(masked=0.0, labels=1)
    draws = draw(clusters, y=y, n_resamples=200)
    positive = np.zeros(60)
    np.maximum.at(positive, clusters, y[:, 0])
    held = positive @ draws.counts(0, 200)
    assert (held == positive.sum()).all()
    free = positive @ draws.counts(0, 200, conditional=False)
    assert free.std() > 1
    forced = draw(clusters, y=y, n_resamples=200, strata="positive")
    assert (positive @ forced.counts(0, 200, conditional=False) == positive.sum()).all()
    none = draw(clusters, y=y, n_resamples=200, strata="none")
    assert (positive @ none.counts(0, 200)).std() > 1


def test_draws_are_uniform():
    counts = draw(n=7, n_resamples=20_000).counts(0, 20_000).astype(float)
    assert np.abs(counts.mean(axis=1) - 1).max() < 0.03
    assert counts.var() == pytest.approx(6 / 7, rel=0.02)  # multinomial: 1 - 1/7
    joint = np.corrcoef(counts)
    assert np.abs(joint[~np.eye(7, dtype=bool)] + 1 / 6).max() < 0.03


def test_replicates_lacking_a_class_are_nan_and_counted():
    y = np.array([1.0, 0, 0, 0])
    p = np.array([0.9, 0.1, 0.2, 0.3])
    free = bootstrap("auroc", y, p, draws=draw(n=4, n_resamples=500))
    assert 0.2 < np.isnan(free).mean() < 0.45  # (3/4)^4 = .316
    held = bootstrap("auroc", y, p, draws=draw(y=y, n_resamples=500))
    assert not np.isnan(held).any()
    assert np.isnan(bootstrap_auroc(np.zeros(4), p, n_resamples=10)).all()


def test_callable_metric_uses_the_same_engine():
    y, p, clusters = table(labels=2)
    draws = draw(clusters, y=y, n_resamples=70)
    assert np.allclose(bootstrap(brier, y, p, draws=draws), bootstrap("brier", y, p, draws=draws), atol=1e-12)


def test_what_stands_beside_a_missing_label_may_be_missing_in_lists_too():
    y, p, q = [0, 1, None, 1, 0], [0.1, 0.9, None, 0.4, 0.6], [0.2, 0.5, None, 0.3, 0.4]
    draws = draw(y=y, n_resamples=9)
    there = [0, 1, 3, 4]
    arrays = [np.array([each[i] if i in there else np.nan for i in range(5)]) for each in (y, p, q)]
    for metric in ("auroc", "matched_auroc", "brier"):
        found = bootstrap(metric, y, p, pretest=q, draws=draws)
        expected = bootstrap(metric, arrays[0], arrays[1], pretest=arrays[2], draws=draws)
        assert np.array_equal(found, expected, equal_nan=True)


def test_progress_reports_every_replicate():
    y, p, clusters = table()
    seen: list[int] = []
    bootstrap("auroc", y, p, draws=draw(clusters, y=y, n_resamples=1300), progress=seen.append)
    assert sum(seen) == 1300
    seen.clear()
    many = ["auroc", "brier", "tpr", "adaptive_calibration_error", "youden"]
    bootstrap_many(many, y, p, draws=draw(clusters, y=y, n_resamples=1300), progress=seen.append)
    assert sum(seen) == 1300


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (draw, "clusters, y or n"),
        (lambda: draw(n=3, n_resamples=0), r"n_resamples: .*got 0"),
        (lambda: draw(n=3, seed=-1), r"seed: .*got -1"),
        (lambda: draw([1.0, np.nan]), r"clusters\[1\]: .*got nan"),
        (lambda: draw(["a", None]), r"clusters\[1\]: .*got None"),
        (lambda: draw(["a", np.nan]), r"clusters\[1\]: .*got 'nan'"),
        (lambda: draw(np.array(["a", np.nan], dtype=object)), r"clusters\[1\]: .*got nan"),
        (lambda: count_units([0, 1], np.array(["a", np.nan], dtype=object)), r"clusters\[1\]: .*got nan"),
        (lambda: draw(n=3, strata="sex"), r"strata: .*got 'sex'"),
        (lambda: draw([1, 2], y=[0, 1, 1]), r"expected . rows .*got ."),
        (lambda: bootstrap("aurocc", [0, 1], [0, 1], draws=draw(n=2)), r"metric: .*got 'aurocc'"),
        (
            lambda: bootstrap("auroc", [0, 1], [0, 1], draws=draw(n=3)),
            r"expected . rows .*got .",
        ),
        (lambda: bootstrap("auroc", [0, 1], [0, np.nan], draws=draw(n=2)), r"p\[1\]: .*got nan"),
        (lambda: bootstrap("auroc", [0, 2], [0, 1], draws=draw(n=2)), r"y\[1\]: .*got 2.0"),
        (lambda: bootstrap("brier", [0, 1], [0, 1.3], draws=draw(n=2)), r"p\[1\]: .*got 1.3"),
        (lambda: bootstrap("matched_auroc", [0, 1], [0, 1], draws=draw(n=2)), "requires pretest"),
        (
            lambda: bootstrap("matched_auroc", [0, 1], [0, 1], draws=draw(n=2), pretest=[0.1, 0.2, 0.3]),
            r"pretest: expected shape \(2, 1\) .*got \(3,\)",
        ),
        (
            lambda: bootstrap("matched_auroc", [0, 1], [0, 1], draws=draw(n=2), pretest=["low", "high"]),
            r"pretest\[0, 0\]: .*low",
        ),
        (lambda: bootstrap("auroc", [0, 1], [0, 1], draws=draw(n=2), bins=3), r"options of \w+: .*got 'bins'"),
        (lambda: bootstrap_auroc([[0, 1]], [[0, 1, 1]]), "shape"),
        (
            lambda: bootstrap("auroc", [[0], [1]], [[0.0], [1]], [[1, 2], [3, 4]], draws=draw(n=2)),
            r"weight: expected shape \(2, 1\)",
        ),
        (
            lambda: bootstrap("auroc", [[0], [1]], [[0.0], [1]], [[1.0], [-1]], draws=draw(n=2)),
            r"weight\[1, 0\]: .*got -1",
        ),
        (
            lambda: bootstrap("auroc", [[0], [1]], [[0.0], [1]], [[1.0], [np.nan]], draws=draw(n=2)),
            r"weight\[1, 0\]: ",
        ),
        (lambda: bootstrap("tpr", [0, 1], [0, 1], draws=draw(n=2), threshold=[0.1, 0.2]), "threshold of tpr"),
        (
            lambda: bootstrap("matched_sensitivity", [0, 1], [0, 1], [1, 1], pretest=[0, 1], draws=draw(n=2)),
            "matched_sensitivity takes no weight",
        ),
        (
            lambda: bootstrap("matched_auroc", [0, 1], [0, 1], pretest=[0, 1], draws=draw(n=2), caliper=0),
            r"caliper: .*got 0",
        ),
    ],
)
def test_bad_input_is_named(call, words):
    with pytest.raises(InputError, match=words):
        call()


@pytest.mark.real
def test_nih_patients_matter():
    """On real predictions with several images per patient the naive standard error is too small."""
    from pyarrow import csv

    predictions = csv.read_csv(real_data("nih/predictions.csv.gz"))
    findings = [name[5:] for name in predictions.column_names if name.startswith("prob_")]
    y = np.column_stack([predictions[f].to_numpy() for f in findings]).astype(float)
    p = np.column_stack([predictions[f"prob_{f}"].to_numpy() for f in findings])
    patients = predictions["patient_id"].to_numpy()
    ratio = bootstrap_auroc(y, p, clusters=patients, n_resamples=2000).std(axis=0) / bootstrap_auroc(
        y, p, n_resamples=2000
    ).std(axis=0)
    by_finding = dict(zip(findings, ratio, strict=True))
    assert np.median(ratio) > 1.1
    assert min(by_finding[f] for f in ("Mass", "Infiltration", "Pneumothorax")) > 1.3


def test_no_exported_name_hides_a_file():
    import cxrhf.metrics as package

    assert not set(package.__all__) & set(package._FILES)
    for name in package.__all__:
        assert getattr(package, name) is not None
    for file in package._FILES:
        assert ismodule(getattr(package, file))
