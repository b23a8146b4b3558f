"""Bad input is refused with position and value; undefined is NaN with a sentence."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from cxrhf import metrics
from cxrhf.metrics import checks

Y = [0, 1, 0, 1, 0, 1]
P = [0.1, 0.7, 0.3, 0.4, 0.2, 0.9]
W = [1.0, 2.0, 1.0, 0.5, 3.0, 1.0]

RANKING = {
    "auroc": metrics.auroc,
    "average_precision": metrics.average_precision,
    "auprc_trapezoid": metrics.auprc_trapezoid,
    "roc_curve": metrics.roc_curve,
    "pr_curve": metrics.pr_curve,
    "sensitivity_at_specificity": lambda y, p, w=None: metrics.sensitivity_at_specificity(y, p, weight=w),
    "threshold_at_fpr": lambda y, p, w=None: metrics.threshold_at_fpr(y, p, weight=w),
    "max_f1_threshold": metrics.max_f1_threshold,
    "youden_threshold": metrics.youden_threshold,
    "rates_at": lambda y, p, w=None: metrics.rates_at(y, p, 0.5, w),
}
PROBABILITY = {
    "brier": metrics.brier,
    "brier_positive": metrics.brier_positive,
    "brier_negative": metrics.brier_negative,
    "balanced_brier": metrics.balanced_brier,
    "brier_skill_score": metrics.brier_skill_score,
    "adaptive_calibration_error": metrics.adaptive_calibration_error,
    "expected_calibration_error": metrics.expected_calibration_error,
    "calibration_line": metrics.calibration_line,
    "pav_decomposition": metrics.pav_decomposition,
    "reliability_table": lambda y, p, w=None: metrics.reliability_table(y, p, w),
    "net_benefit": lambda y, p, w=None: metrics.net_benefit(y, p, 0.5, w),
}
EVERY = RANKING | PROBABILITY


def message(function, *arguments, **options):
    with pytest.raises(ValueError) as error:
        function(*arguments, **options)
    assert isinstance(error.value, checks.InputError)
    return str(error.value)


def replaced(values, position, value):
    out = list(values)
    out[position] = value
    return out


@pytest.mark.parametrize("name", EVERY)
class TestEveryMetricRefuses:
    def test_label_that_is_not_0_or_1(self, name):
        for bad in (2, -1, 0.5):
            text = message(EVERY[name], replaced(Y, 3, bad), P)
            assert "y[3]" in text
            assert str(float(bad)) in text

    def test_missing_label(self, name):
        for bad in (np.nan, None):
            text = message(EVERY[name], replaced(Y, 2, bad), P)
            assert "y[2]" in text
            assert "nan" in text.lower()

    def test_missing_or_infinite_score(self, name):
        for bad in (np.nan, np.inf, -np.inf):
            text = message(EVERY[name], Y, replaced(P, 4, bad))
            assert "p[4]" in text
            assert str(bad) in text

    def test_bad_weight(self, name):
        for bad in (-1.0, np.nan, np.inf):
            text = message(EVERY[name], Y, P, replaced(W, 1, bad))
            assert "weight[1]" in text
            assert str(bad) in text

    def test_unequal_lengths(self, name):
        text = message(EVERY[name], Y, P[:-1])
        assert "6" in text
        assert "5" in text
        text = message(EVERY[name], Y, P, W[:-2])
        assert "6" in text
        assert "4" in text

    def test_text(self, name):
        text = message(EVERY[name], Y, replaced([str(v) for v in P], 0, "high"))
        assert "p[0]" in text
        assert "high" in text
        text = message(EVERY[name], replaced(Y, 5, "yes"), P)
        assert "y[" in text
        text = message(EVERY[name], Y, P, [str(v) for v in W])
        assert "weight[0]" in text
        assert "1.0" in text

    def test_two_dimensions(self, name):
        assert "(1, 6)" in message(EVERY[name], Y, [P])
        assert "(6, 1)" in message(EVERY[name], np.array(Y)[:, None], P)
        message(EVERY[name], 1, 0.5)


@pytest.mark.parametrize("name", PROBABILITY)
def test_probability_metrics_refuse_other_scores(name):
    for bad in (1.3, -0.2):
        text = message(PROBABILITY[name], Y, replaced(P, 2, bad))
        assert "p[2]" in text
        assert str(bad) in text


@pytest.mark.parametrize("name", RANKING)
def test_ranking_metrics_take_any_finite_score(name):
    RANKING[name](Y, np.array(P) * 100 - 50, W)


def test_context_functions_refuse():
    for function in (
        lambda y, q: metrics.ipw_weights(y, q, 0.2),
        metrics.att_weights,
        metrics.match_pairs,
        metrics.match_weights,
        lambda y, q: metrics.matched_auroc(y, P, q),
    ):
        text = message(function, Y, replaced(P, 1, 1.3))
        assert "pretest[1]" in text
        assert "1.3" in text
        assert "y[0]" in message(function, replaced(Y, 0, 2), P)
        message(function, Y, P[:4])
        message(function, Y, replaced(P, 3, np.nan))
    assert "prevalence" in message(metrics.ipw_weights, Y, P, 0.0)
    assert "prevalence" in message(metrics.ipw_weights, Y, P, 20)
    assert "caliper" in message(metrics.match_pairs, Y, P, caliper=-0.1)
    message(metrics.match_pairs, Y, P, ids=["a", "b"])
    message(metrics.matched_auroc, Y, P[:3], P)
    message(metrics.effective_sample_size, 5.0)
    message(metrics.effective_sample_size, [[1.0, 2.0]])
    assert "weight[0]" in message(metrics.effective_sample_size, [-1.0, 2.0])
    message(metrics.balance, Y, P, W[:2])


def test_options_are_checked():
    assert "1.5" in message(metrics.sensitivity_at_specificity, Y, P, 1.5)
    assert "conservative" in message(metrics.sensitivity_at_specificity, Y, P, rule="closest")
    assert "nearest" in message(metrics.threshold_at_fpr, Y, P, rule="closest")
    assert "exact" in message(metrics.adaptive_calibration_error, Y, P, method="quick")
    assert "0" in message(metrics.adaptive_calibration_error, Y, P, bins=0)
    assert "bins" in message(metrics.expected_calibration_error, Y, P, bins=2.5)
    assert "nan" in message(metrics.rates_at, Y, P, np.nan)
    assert "midrank" in message(metrics.quantile_groups, P, rule="median")
    assert "cuts" in message(metrics.quantile_groups, P, cuts=(0.8, 0.2))
    assert "prevalence" in message(metrics.brier_skill_score, Y, P, prevalence=0)
    assert "target" in message(metrics.correct_prevalence, P, 0.2, 1.0)


@pytest.mark.parametrize(
    "labels",
    [Y, [bool(v) for v in Y], np.array(Y, dtype=np.int8), np.array(Y, dtype=np.float32), np.array(Y, dtype=object)],
)
def test_labels_of_any_number_type_are_welcome(labels):
    assert metrics.auroc(labels, P) == metrics.auroc(Y, P)
    assert metrics.brier(labels, np.array(P, dtype=np.float64)) == metrics.brier(Y, P)


def test_input_is_left_alone():
    y, p, w = np.array(Y, dtype=float), np.array(P), np.array(W)
    kept = y.copy(), p.copy(), w.copy()
    for function in EVERY.values():
        function(y, p, w)
    metrics.match_pairs(y, p)
    metrics.matched_auroc(y, p, p)
    metrics.ipw_weights(y, p, 0.2)
    for before, after in zip(kept, (y, p, w), strict=True):
        np.testing.assert_array_equal(before, after)


def numbers(name, y, p, w=None):
    """The value(s) that RESULT would carry under this name."""
    rates = ("tpr", "fpr", "precision", "npv", "f1", "mcc", "j")
    line = {
        "calibration_slope": "slope",
        "calibration_intercept": "intercept",
        "calibration_in_the_large": "in_the_large",
    }
    if name in rates:
        return getattr(metrics.rates_at(y, p, 0.5, w), name)
    if name in line:
        return getattr(metrics.calibration_line(y, p, w), line[name])
    if name == "sensitivity_at_specificity":
        return metrics.sensitivity_at_specificity(y, p, weight=w).sensitivity
    if name == "youden":
        return metrics.rates_at(y, p, metrics.youden_threshold(y, p, w), w).j if _defined(y, w) else np.nan
    if name == "max_f1":
        threshold = metrics.max_f1_threshold(y, p, w)
        return metrics.rates_at(y, p, threshold, w).f1 if np.isfinite(threshold) else np.nan
    if name == "matched_auroc":
        return metrics.matched_auroc(y, p, np.full(len(y), 0.3)) if w is None else None
    if name == "delong":
        return metrics.delong(y, p).value if w is None else None
    if name == "pav_decomposition":
        return metrics.pav_decomposition(y, p, w).brier
    return EVERY[name](y, p, w)


def _defined(y, w):
    y, w = np.asarray(y), np.ones(len(y)) if w is None else np.asarray(w)
    return w[y == 1].sum() > 0 and w[y == 0].sum() > 0


# fmt: off
SCALARS = [
    "auroc", "average_precision", "auprc_trapezoid", "brier", "brier_positive", "brier_negative", "balanced_brier",
    "brier_skill_score", "adaptive_calibration_error", "expected_calibration_error", "calibration_slope",
    "calibration_intercept", "calibration_in_the_large", "sensitivity_at_specificity", "threshold_at_fpr",
    "max_f1_threshold", "youden_threshold", "max_f1", "youden", "tpr", "fpr", "mcc", "j", "net_benefit",
    "matched_auroc", "delong", "pav_decomposition",
]
# fmt: on
THIN = {
    "no positives": ([0, 0, 0], [0.2, 0.6, 0.4], None),
    "no negatives": ([1, 1, 1], [0.2, 0.6, 0.4], None),
    "positives weigh nothing": ([0, 1, 0], [0.2, 0.6, 0.4], [1, 0, 2]),
    "negatives weigh nothing": ([0, 1, 0, 1], [0.2, 0.6, 0.4, 0.7], [0, 1, 0, 2]),
    "nothing weighs": ([0, 1, 0], [0.2, 0.6, 0.4], [0, 0, 0]),
    "no rows": ([], [], None),
    "no rows, weighted": ([], [], []),
}


@pytest.mark.parametrize("case", THIN)
@pytest.mark.parametrize("name", SCALARS)
def test_undefined_is_nan_exactly_where_a_sentence_says_why(name, case):
    y, p, w = THIN[case]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        value = numbers(name, y, p, w)
        sentence = metrics.undefined(name, y, w)
    if value is None:  # takes no weight
        return
    assert isinstance(value, float)
    assert np.isnan(value) == (sentence is not None), (value, sentence)
    if sentence is not None:
        assert name in sentence
        assert "undefined" in sentence


def test_a_given_prevalence_does_not_make_skill_of_one_class():
    assert metrics.undefined("brier_skill_score", [1, 1]) is not None
    assert np.isnan(metrics.brier_skill_score([1, 1], [0.5, 0.6], prevalence=0.3))


@pytest.mark.parametrize("name", SCALARS)
def test_defined_values_need_no_sentence(name):
    y, p = [0, 1, 0, 1, 0, 1], [0.1, 0.7, 0.6, 0.4, 0.2, 0.9]
    assert metrics.undefined(name, y) is None
    assert np.isfinite(numbers(name, y, p))


def test_the_sentence_counts_rows_and_names_the_missing_class():
    assert "12" in metrics.undefined("auroc", [0] * 12)
    assert "positive" in metrics.undefined("auroc", [0] * 12)
    assert "negative" in metrics.undefined("auroc", [1] * 7)
    assert "weight" in metrics.undefined("brier", [0, 1], [0, 0])


@pytest.mark.parametrize("case", THIN)
def test_records_and_curves_do_not_stumble_over_thin_groups(case):
    y, p, w = THIN[case]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for function in EVERY.values():
            function(y, p, w)
        metrics.balance(y, p, w)
        metrics.match_weights(y, p)
        metrics.match_pairs(y, p)
        metrics.quantile_groups(p)
        metrics.att_weights(y, p)
        metrics.ipw_weights(y, p, 0.2)
        metrics.effective_sample_size([] if w is None and not y else (w or [1] * len(y)), y)
        assert np.isfinite(metrics.expected_ace(p, w)) == (bool(y) and (w is None or sum(w) > 0))
