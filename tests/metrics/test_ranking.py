"""auroc, average precision, curves and DeLong against pair loops, scikit-learn and closed cases."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cxrhf import metrics
from tests.metrics import twins

FAST = settings(max_examples=150, deadline=None, derandomize=True)


@st.composite
def samples(draw, both_classes=True):
    """Labels, scores on a coarse grid (many ties) or anywhere, and weights that may be 0."""
    n = draw(st.integers(2, 25))
    y = draw(st.lists(st.integers(0, 1), min_size=n, max_size=n))
    score = st.integers(0, 5).map(lambda k: k / 5) if draw(st.booleans()) else st.floats(-1e3, 1e3)
    p = draw(st.lists(score, min_size=n, max_size=n))
    w = draw(st.lists(st.sampled_from([0.0, 0.25, 1.0, 1.0, 3.0, 7.5]), min_size=n, max_size=n))
    if both_classes:
        y[0], y[1], w[0], w[1] = 0, 1, 1.0, 2.0
    return np.array(y), np.array(p), np.array(w)


@FAST
@given(samples())
def test_auroc_is_the_share_of_pairs_and_what_sklearn_says(sample):
    from sklearn.metrics import roc_auc_score

    y, p, w = sample
    assert metrics.auroc(y, p) == pytest.approx(twins.auroc(y, p), abs=1e-12)
    assert metrics.auroc(y, p, w) == pytest.approx(twins.auroc(y, p, w), abs=1e-12)
    assert metrics.auroc(y, p, w) == pytest.approx(roc_auc_score(y, p, sample_weight=w), abs=1e-9)


@FAST
@given(samples())
def test_average_precision_is_sklearns(sample):
    from sklearn.metrics import average_precision_score

    y, p, w = sample
    assert metrics.average_precision(y, p, w) == pytest.approx(twins.average_precision(y, p, w), abs=1e-12)
    assert metrics.average_precision(y, p) == pytest.approx(average_precision_score(y, p), abs=1e-9)
    seen = w > 0  # scikit-learn divides by zero where the highest scores weigh nothing
    expected = average_precision_score(y[seen], p[seen], sample_weight=w[seen])
    assert metrics.average_precision(y, p, w) == pytest.approx(expected, abs=1e-9)


@FAST
@given(samples())
@pytest.mark.slow
def test_trapezoid_follows_the_points(sample):
    from sklearn.metrics import auc, precision_recall_curve

    y, p, w = sample
    assert metrics.auprc_trapezoid(y, p, w) == pytest.approx(twins.auprc_trapezoid(y, p, w), abs=1e-12)
    precision, recall, _ = precision_recall_curve(y, p)
    assert metrics.auprc_trapezoid(y, p) == pytest.approx(auc(recall, precision), abs=1e-9)


@FAST
@given(samples())
def test_curves_hold_every_threshold(sample):
    from sklearn.metrics import roc_curve

    y, p, w = sample
    curve = metrics.roc_curve(y, p, w)
    fpr, tpr, threshold = roc_curve(y, p, sample_weight=w, drop_intermediate=False)
    np.testing.assert_allclose(curve.fpr, fpr, atol=1e-12)
    np.testing.assert_allclose(curve.tpr, tpr, atol=1e-12)
    np.testing.assert_array_equal(curve.threshold, threshold)
    for f, t, at in zip(*curve, strict=True):
        assert (t, f) == pytest.approx(twins.rates(y, p, at, w)[:2], abs=1e-12)
    points = metrics.pr_curve(y, p, w)
    assert (points.recall[0], points.precision[0], points.threshold[0]) == (0, 1, np.inf)
    expected = twins.pr_points(y, p, w)
    np.testing.assert_allclose(np.c_[points.recall, points.precision][1:], expected, atol=1e-12)
    assert np.trapezoid(curve.tpr, curve.fpr) == pytest.approx(metrics.auroc(y, p, w), abs=1e-12)


def test_large_samples_keep_their_digits():
    from sklearn.metrics import roc_auc_score

    rng = np.random.default_rng(3)
    y, w = rng.integers(0, 2, 20_000), rng.exponential(size=20_000) * 1e6
    p = np.round(rng.normal(y, 1.5), 2)
    assert metrics.auroc(y, p, w) == pytest.approx(roc_auc_score(y, p, sample_weight=w), abs=1e-12)


@pytest.mark.parametrize("seed", range(8))
def test_delong_is_the_variance_of_placements(seed):
    rng = np.random.default_rng(seed)
    n = 40
    y = np.r_[0, 0, 1, 1, rng.integers(0, 2, n - 4)]
    p = np.round(rng.normal(y, 1.0), seed % 3)
    clusters = rng.integers(0, 15, n)
    plain, clustered = metrics.delong(y, p), metrics.delong(y, p, clusters=clusters)
    assert plain.value == clustered.value == pytest.approx(twins.auroc(y, p), abs=1e-12)
    assert plain.se == pytest.approx(twins.delong_se(y, p), abs=1e-12)
    assert clustered.se == pytest.approx(twins.clustered_se(y, p, clusters), abs=1e-12)
    assert metrics.delong(y, p, clusters=[f"patient {i}" for i in range(n)]).se == pytest.approx(plain.se, abs=1e-12)


def test_delong_of_copied_rows_is_not_fooled():
    """Each row four times in one cluster says no more than each row once."""
    rng = np.random.default_rng(1)
    y = np.r_[0, 0, 1, 1, rng.integers(0, 2, 56)]
    p = rng.normal(y, 1.0)
    once = metrics.delong(y, p)
    copied = metrics.delong(np.tile(y, 4), np.tile(p, 4), clusters=np.tile(np.arange(60), 4))
    assert copied.value == pytest.approx(once.value, abs=1e-12)
    assert copied.se == pytest.approx(once.se, rel=1e-9)


def test_delong_difference_of_two_models():
    """The variance of a difference is that of the differences of placements; a model against itself differs by 0."""
    rng = np.random.default_rng(4)
    y = rng.integers(0, 2, 80)
    a, b = rng.normal(y, 1.0), rng.normal(y, 2.0)
    gap = metrics.delong(y, a, b)
    assert gap.value == pytest.approx(twins.auroc(y, a) - twins.auroc(y, b), abs=1e-12)
    beats = [np.subtract.outer(s[y == 1], s[y == 0]) for s in (a, b)]
    wins = (beats[0] > 0) * 1.0 - (beats[1] > 0) * 1.0
    variance = wins.mean(axis=1).var(ddof=1) / len(wins) + wins.mean(axis=0).var(ddof=1) / wins.shape[1]
    assert gap.se == pytest.approx(np.sqrt(variance), abs=1e-12)
    assert metrics.delong(y, a, a) == (0, 0)
