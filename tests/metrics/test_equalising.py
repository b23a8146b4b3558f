"""Weights that give every group the same share of a mark: the definition row by row, and what cannot be reached."""

from __future__ import annotations

import numpy as np
import pytest

from cxrhf.metrics.balancing import equalising_weights


def sample(seed=0, n=400, groups=2):
    rng = np.random.default_rng(seed)
    y = (rng.random(n) < 0.4).astype(float)
    y[rng.random(n) < 0.05] = np.nan
    group, mark = rng.integers(-1, groups, n), rng.integers(-1, 2, n)
    return y, group, mark, rng.choice([0.5, 1.0, 3.0], n)


def slow(y, group, mark, weight, groups=2):
    """The definition, one row at a time."""
    out = np.zeros(len(y))

    def share(r, d, a):
        inside = (group == r) & (y == d) & (mark >= 0)
        return weight[inside & (mark == a)].sum() / weight[inside].sum()

    for i in range(len(y)):
        if group[i] >= 0 and mark[i] >= 0 and not np.isnan(y[i]):
            target = np.mean([share(r, y[i], mark[i]) for r in range(groups)])
            out[i] = weight[i] * target / share(group[i], y[i], mark[i])
    return out


@pytest.mark.parametrize("groups", [2, 3])
def test_weights_are_those_of_the_definition(groups) -> None:
    y, group, mark, weight = sample(groups, groups=groups)
    found = equalising_weights(y, group, mark, weight)
    np.testing.assert_allclose(found, slow(y, group, mark, weight, groups), rtol=1e-12)
    for label in (0, 1):
        rows = [(group == r) & (y == label) & (mark >= 0) for r in range(groups)]
        shares = [found[own & (mark == 1)].sum() / found[own].sum() for own in rows]
        assert np.ptp(shares) < 1e-12
        for own in rows:  # how many rows of a label a group has does not change
            assert found[own].sum() == pytest.approx(weight[own].sum())


def test_a_weight_is_a_repetition() -> None:
    y, group, mark, _ = sample(5)
    times = np.random.default_rng(5).integers(1, 4, len(y))
    apart = equalising_weights(*(np.repeat(each, times) for each in (y, group, mark)))
    np.testing.assert_allclose(np.repeat(equalising_weights(y, group, mark, times) / times, times), apart, rtol=1e-12)


def test_equal_shares_keep_every_row_as_it_is() -> None:
    y, group, mark = (np.tile(each, 5) for each in ([0, 0, 1, 1] * 2, [0] * 4 + [1] * 4, [0, 1] * 4))
    assert equalising_weights(y, group, mark).tolist() == [1.0] * 40


@pytest.mark.parametrize("value", [0, 1])
def test_what_nobody_has_cannot_be_equalised(value) -> None:
    y, group, mark, weight = sample(2)
    mark = np.where((group == 1) & (y == 1), value, mark)  # the mark is constant in one group and label
    found = equalising_weights(y, group, mark, weight)
    inside = (group >= 0) & (mark >= 0) & ~np.isnan(y)
    assert np.isnan(found[inside & (y == 1)]).all()
    assert np.isfinite(found[inside & (y == 0)]).all()
    assert (found[~inside] == 0).all()
