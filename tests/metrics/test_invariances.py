"""What must not change a metric: row order, how a weight is written, the scale of the scores, the scale of weights."""

from __future__ import annotations

import numpy as np
import pytest

from cxrhf import metrics


def sens(rule, what="sensitivity"):
    return lambda y, p, w: getattr(metrics.sensitivity_at_specificity(y, p, 0.9, weight=w, rule=rule), what)


def rates(threshold):
    """All rates at a threshold that is chosen on the same rows."""
    return lambda y, p, w: np.array(metrics.rates_at(y, p, threshold(y, p, w), w))


# Functions of (y, p, weight). Ranking metrics look at the order of scores only.
RANKING = {
    "auroc": metrics.auroc,
    "average_precision": metrics.average_precision,
    "auprc_trapezoid": metrics.auprc_trapezoid,
    "roc_area": lambda y, p, w: np.trapezoid(*metrics.roc_curve(y, p, w)[1::-1]),
    "sensitivity_conservative": sens("conservative"),
    "sensitivity_nearest": sens("nearest"),
    "sensitivity_interp": sens("interp"),
    "specificity_reached": sens("conservative", "specificity"),
    "rates_at_fpr": rates(lambda y, p, w: metrics.threshold_at_fpr(y, p, 0.2, w, rule="nearest_all")),
    "rates_at_fpr_conservative": rates(lambda y, p, w: metrics.threshold_at_fpr(y, p, 0.2, w, rule="conservative")),
    "rates_at_max_f1": rates(metrics.max_f1_threshold),
    "rates_at_youden": rates(metrics.youden_threshold),
}
THRESHOLDS = {
    "threshold_conservative": sens("conservative", "threshold"),
    "threshold_fpr_conservative": lambda y, p, w: metrics.threshold_at_fpr(y, p, 0.2, w, rule="conservative"),
    "threshold_fpr_nearest": lambda y, p, w: metrics.threshold_at_fpr(y, p, 0.2, w),
    "threshold_max_f1": metrics.max_f1_threshold,
    "threshold_youden": metrics.youden_threshold,
}
PROBABILITY = {
    "brier": metrics.brier,
    "brier_positive": metrics.brier_positive,
    "brier_negative": metrics.brier_negative,
    "balanced_brier": metrics.balanced_brier,
    "brier_skill_score": metrics.brier_skill_score,
    "brier_skill_score_given": lambda y, p, w: metrics.brier_skill_score(y, p, w, prevalence=0.3),
    "adaptive_calibration_error": metrics.adaptive_calibration_error,
    "adaptive_calibration_error_7": lambda y, p, w: metrics.adaptive_calibration_error(y, p, w, bins=7),
    "expected_calibration_error": metrics.expected_calibration_error,
    "calibration_line": lambda y, p, w: np.array(metrics.calibration_line(y, p, w)),
    "pav": lambda y, p, w: np.array(metrics.pav_decomposition(y, p, w)),
    "net_benefit": lambda y, p, w: metrics.net_benefit(y, p, 0.4, w),
    "rates_at": lambda y, p, w: np.array(metrics.rates_at(y, p, 0.5, w)),
    "reliability": lambda y, p, w: np.array(metrics.reliability_table(y, p, w)[:2]),
}
# Depends on row order where scores tie or on how many rows there are, by definition.
WHOLE_ROWS = {
    "ace_whole_rows": lambda y, p, w: metrics.adaptive_calibration_error(y, p, w, method="whole_rows"),
}
EVERY = RANKING | THRESHOLDS | PROBABILITY


@pytest.fixture(params=[(0, 1), (1, 2), (2, 6)], ids=["many ties", "some ties", "no ties"])
def sample(request):
    seed, digits = request.param
    rng = np.random.default_rng(seed)
    p = np.round(rng.beta(1, 2, 180), digits)
    y = (rng.random(180) < p).astype(int)
    return y, p, rng.integers(0, 4, 180).astype(float)


def same(a, b):
    np.testing.assert_allclose(a, b, rtol=0, atol=1e-9)


@pytest.mark.parametrize("name", EVERY)
def test_row_order(name, sample):
    y, p, w = sample
    order = np.random.default_rng(9).permutation(len(y))
    same(EVERY[name](y, p, w), EVERY[name](y[order], p[order], w[order]))
    same(EVERY[name](y, p, None), EVERY[name](y[::-1], p[::-1], None))


@pytest.mark.parametrize("name", EVERY)
def test_a_weight_is_a_number_of_copies(name, sample):
    y, p, w = sample
    copied = np.repeat(np.arange(len(y)), w.astype(int))
    same(EVERY[name](y, p, w), EVERY[name](y[copied], p[copied], None))


@pytest.mark.parametrize("name", [*EVERY, *WHOLE_ROWS])
def test_rows_without_weight_are_not_there(name, sample):
    y, p, w = sample
    function = (EVERY | WHOLE_ROWS)[name]
    keep = w > 0
    same(function(y, p, w), function(y[keep], p[keep], w[keep]))


@pytest.mark.parametrize("name", [*EVERY, *WHOLE_ROWS])
def test_no_threshold_falls_on_a_row_without_weight(name, sample):
    """Rows of no weight between all neighbouring scores, of both classes, and beyond the ends."""
    y, p, w = sample
    function = (EVERY | WHOLE_ROWS)[name]
    values = np.unique(p[w > 0])
    ghosts = np.repeat(np.r_[values[0] / 2, (values[1:] + values[:-1]) / 2, (1 + values[-1]) / 2], 2)
    keep = w > 0
    with_ghosts = (
        np.r_[y, np.arange(len(ghosts)) % 2],
        np.r_[p, ghosts],
        np.r_[w, np.zeros(len(ghosts))],
    )
    same(function(*with_ghosts), function(y[keep], p[keep], w[keep]))


def test_youden_without_skill_ignores_rows_without_weight():
    assert metrics.youden_threshold([1, 0, 0], [0.1, 0.5, 0.9], [1, 1, 0]) == metrics.youden_threshold(
        [1, 0], [0.1, 0.5]
    )


@pytest.mark.parametrize("scale", [1e-6, 1 / 3, 1e5])
@pytest.mark.parametrize("name", [*EVERY, *WHOLE_ROWS])
def test_the_scale_of_the_weights(name, scale, sample):
    y, p, w = sample
    function = (EVERY | WHOLE_ROWS)[name]
    w = w * np.linspace(0.5, 2, len(w))
    same(function(y, p, w), function(y, p, w * scale))


@pytest.mark.parametrize("name", EVERY)
def test_equal_weights_are_no_weights(name, sample):
    y, p, _ = sample
    same(EVERY[name](y, p, np.full(len(y), 0.7)), EVERY[name](y, p, None))


@pytest.mark.parametrize(
    "transform",
    [
        lambda p: 100 * p - 30,
        np.exp,
        lambda p: p**3,
        lambda p: np.argsort(np.argsort(np.unique(p)))[np.unique(p, return_inverse=True)[1]],
    ],
)
@pytest.mark.parametrize("name", RANKING)
def test_ranking_metrics_see_the_order_only(name, transform, sample):
    y, p, w = sample
    same(RANKING[name](y, p, w), RANKING[name](y, transform(p).astype(float), w))


@pytest.mark.parametrize("transform", [lambda p: 100 * p - 30, np.exp])
@pytest.mark.parametrize("name", THRESHOLDS)
def test_thresholds_move_with_the_scores(name, transform, sample):
    y, p, w = sample
    same(transform(THRESHOLDS[name](y, p, w)), THRESHOLDS[name](y, transform(p), w))


def test_swapping_classes_and_direction(sample):
    y, p, w = sample
    same(metrics.auroc(y, p, w), metrics.auroc(1 - y, 1 - p, w))
    same(metrics.auroc(y, p, w), 1 - metrics.auroc(y, -p, w))
    for name in ("brier", "balanced_brier", "brier_skill_score", "adaptive_calibration_error"):
        function = getattr(metrics, name)
        same(function(y, p, w), function(1 - y, 1 - p, w))
    same(metrics.brier_positive(y, p, w), metrics.brier_negative(1 - y, 1 - p, w))


def test_unweighted_extremes(sample):
    y, _, w = sample
    assert metrics.auroc(y, y.astype(float), w) == 1
    assert metrics.auroc(y, np.full(len(y), 0.3), w) == 0.5
    assert metrics.average_precision(y, y.astype(float)) == 1
    assert metrics.average_precision(y, np.zeros(len(y))) == pytest.approx(y.mean())
    assert metrics.brier_skill_score(y, np.full(len(y), np.average(y, weights=w)), w) == pytest.approx(0, abs=1e-12)
    assert metrics.adaptive_calibration_error(y, y.astype(float), w) == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize("caliper", [None, 0.05])
def test_matching_sees_rows_not_their_order_and_scores_not_their_scale(caliper, sample):
    y, p, _ = sample
    q = np.round(np.random.default_rng(4).beta(1, 3, len(y)), 2)
    value = metrics.matched_auroc(y, p, q, caliper)
    order = np.random.default_rng(5).permutation(len(y))
    same(value, metrics.matched_auroc(y[order], p[order], q[order], caliper))
    same(value, metrics.matched_auroc(y, np.exp(3 * p), q, caliper))
    same(metrics.match_weights(y, q, caliper)[order], metrics.match_weights(y[order], q[order], caliper))


def test_weights_follow_their_rows(sample):
    y, p, _ = sample
    q = np.clip(p, 0.01, 0.99)
    order = np.random.default_rng(6).permutation(len(y))
    same(metrics.ipw_weights(y, q, 0.2)[order], metrics.ipw_weights(y[order], q[order], 0.2))
    same(metrics.att_weights(y, q)[order], metrics.att_weights(y[order], q[order]))
    same(metrics.quantile_groups(q).top[order], metrics.quantile_groups(q[order]).top)
    same(metrics.balance(y, q), metrics.balance(y[order], q[order]))
