"""Failure direction: the ends of a direction along which rows fail, cut so that others fall there as often."""

from __future__ import annotations

import numpy as np

from cxrhf.audits.slices.methods import Seen, assign, discover
from tests.audits.slices.planted import silent


def rows(n: int, lift: float, seed: int) -> Seen:
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((n, 40))
    return Seen(x, np.ones(n), 1 / (1 + np.exp(x[:, 0] - lift + 0.3 * rng.standard_normal(n))))


def test_ends_of_the_direction_hold_a_tenth_of_others_too() -> None:
    """With forty axes and few rows the SVM's own rows lie farther out than others do."""
    other = rows(2_000, 0.5, 1)
    found = discover("failure_svm", rows(300, 0.5, 0), seed=0, progress=silent)
    code = assign(found.weights(*other), found.floor)
    assert other.vectors[code == 0, 0].mean() > 1
    assert other.vectors[code == 1, 0].mean() < -1
    shares = [(code == j).mean() for j in (0, 1)]
    assert 0.04 < min(shares) <= max(shares) < 0.18


def test_without_errors_the_median_divides() -> None:
    found = discover("failure_svm", rows(300, 6.0, 0), seed=0, progress=silent)
    assert "above the median" in found.about
    code = assign(found.weights(*rows(500, 6.0, 1)), found.floor)
    assert rows(500, 6.0, 1).vectors[code == 0, 0].mean() > 0.7
