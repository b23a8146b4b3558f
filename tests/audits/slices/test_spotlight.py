"""Spotlight: its slope is that of its objective, weights sum to what they should, each light shows another place."""

from __future__ import annotations

import numpy as np
import pytest

from cxrhf.audits.slices.methods import Light, Seen, discover, objective, spotlight_weights
from tests.audits.slices.planted import silent


@pytest.mark.parametrize("total", [5.5, 50.0, 250.0, 420.0])
def test_slope_and_sum(total: float) -> None:
    rng = np.random.default_rng(0)
    x, error, centre = rng.standard_normal((500, 4)), rng.random(500), rng.standard_normal(4)
    value, slope, falls = objective(centre, x, error, total)
    weight = spotlight_weights(x, Light(centre, falls, 0.0))
    assert weight.sum() == pytest.approx(total)
    assert -value == pytest.approx(weight @ error / weight.sum())
    steps = 1e-6 * np.eye(4)
    numeric = [
        (objective(centre + s, x, error, total)[0] - objective(centre - s, x, error, total)[0]) / 2e-6 for s in steps
    ]
    np.testing.assert_allclose(slope, numeric, atol=1e-7)


def test_slices_hold_a_tenth_or_more_of_the_rows_in_many_axes() -> None:
    rng = np.random.default_rng(2)
    x, p = rng.standard_normal((300, 64)), rng.beta(2, 1, 300)
    x[:, 0] -= 3 * p
    found = discover("spotlight", Seen(x, np.ones(300), p), seed=0, progress=silent)
    sizes = (found.weights(x, np.ones(300), p) >= 0.5).sum(axis=0)
    assert ((sizes >= 30) & (sizes <= 150)).all(), sizes


def test_the_second_light_shows_another_place() -> None:
    """Two clusters fail; each is lit once, the worse first."""
    rng = np.random.default_rng(0)
    group = rng.choice(4, 600, p=[0.4, 0.3, 0.15, 0.15])
    x = 8 * np.eye(4)[group] + rng.standard_normal((600, 4))
    p = np.array([0.9, 0.9, 0.1, 0.3])[group]
    found = discover("spotlight", Seen(x, np.ones(600), p), seed=0, progress=silent)
    weights = found.weights(x, np.ones(600), p)
    inside = [np.bincount(group[weights[:, j] >= 0.5], minlength=4).argmax() for j in (0, 1)]
    assert inside == [2, 3]
