"""Curves with bands: the curve itself, replicate by replicate, and simultaneous against pointwise."""

from __future__ import annotations

import numpy as np
import pytest

from cxrhf.metrics import draw, pr_band, roc_band, roc_curve
from cxrhf.metrics.ranking import pr_curve


def sample(seed=0, patients=150):
    rng = np.random.default_rng(seed)
    clusters = np.repeat(np.arange(patients), 2)
    y = (rng.random(len(clusters)) < 0.3).astype(float)
    return clusters, y, np.round(y + rng.normal(size=len(y)), 1)


def tpr_at(y, p, rate):
    curve = roc_curve(y, p)
    return curve.tpr[curve.fpr <= rate + 1e-12].max()


def precision_at(y, p, recall):
    curve = pr_curve(y, p)
    return curve.precision[1:][curve.recall[1:] >= recall - 1e-12][0]


def test_curve_and_replicates_equal_slow_twins():
    clusters, y, p = sample()
    draws = draw(clusters, y=y, n_resamples=40)
    grid = np.array([0.0, 0.1, 0.5, 1.0])
    band = roc_band(y, p, draws=draws, grid=grid)
    assert band.y == pytest.approx([tpr_at(y, p, g) for g in grid])
    copies = [np.repeat(np.arange(len(y)), draws.counts(r, r + 1)[draws.unit, 0]) for r in range(40)]
    slow = np.array([[tpr_at(y[rows], p[rows], g) for g in grid] for rows in copies])
    assert band.low == pytest.approx(np.quantile(slow, 0.025, axis=0))
    assert band.high == pytest.approx(np.quantile(slow, 0.975, axis=0))
    recalls = np.array([0.05, 0.5, 1.0])
    band = pr_band(y, p, draws=draws, grid=recalls)
    assert band.y == pytest.approx([precision_at(y, p, g) for g in recalls])
    copies = [np.repeat(np.arange(len(y)), draws.counts(r, r + 1, conditional=False)[draws.unit, 0]) for r in range(40)]
    slow = np.array([[precision_at(y[rows], p[rows], g) for g in recalls] for rows in copies])
    assert band.low == pytest.approx(np.quantile(slow, 0.025, axis=0))


def test_simultaneous_is_wider():
    clusters, y, p = sample()
    draws = draw(clusters, y=y, n_resamples=300)
    inside = slice(10, 90)
    narrow, wide = roc_band(y, p, draws=draws), roc_band(y, p, draws=draws, simultaneous=True)
    assert (wide.high - wide.low)[inside].mean() > 1.2 * (narrow.high - narrow.low)[inside].mean()
    assert ((wide.low >= 0) & (wide.high <= 1)).all()


def test_one_class_is_nan():
    draws = draw(n=3, n_resamples=5)
    assert np.isnan(roc_band([0, 0, 0], [0.1, 0.2, 0.3], draws=draws).y).all()
    assert np.isnan(pr_band([0, 0, 0], [0.1, 0.2, 0.3], draws=draws).low).all()
