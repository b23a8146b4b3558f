"""What methods share: ends of values, even scaling, an order of their own, quiet progress."""

from __future__ import annotations

import numpy as np
import pytest

from cxrhf.audits.slices.found import assign, content_order, end_slices, least_rows, ticker, to_unit_variance


def test_ends_are_the_highest_and_the_lowest_tenth() -> None:
    values = np.random.default_rng(0).permutation(100.0 + np.arange(1000))
    weights = end_slices(values)
    assert weights is not None
    code = assign(weights(values), 0.5)
    assert sorted(values[code == 0]) == list(range(1000, 1100))
    assert sorted(values[code == 1]) == list(range(100, 200))
    assert np.argmax(weights(values)[:, 0]) == np.argmax(values)
    assert end_slices(np.ones(50)) is None
    assert end_slices(np.r_[np.ones(49), 1 + 1e-15]) is None


def test_even_scaling_keeps_proportions() -> None:
    x = np.random.default_rng(0).standard_normal((50, 3)) * [1, 10, 100] + 7
    scaled = to_unit_variance(x)(x)
    np.testing.assert_allclose(scaled.mean(axis=0), 0, atol=1e-12)
    assert (scaled**2).mean() == pytest.approx(1)
    ratio = scaled.std(axis=0) / x.std(axis=0)
    np.testing.assert_allclose(ratio, ratio[0])
    assert not to_unit_variance(np.ones((4, 2)))(np.ones((4, 2))).any()


def test_an_order_of_what_stands_in_the_rows() -> None:
    x = np.random.default_rng(0).standard_normal((40, 3))
    x[7], x[9, 0], x[11, 0] = x[30], 0.0, -0.0
    shuffled = x[np.random.default_rng(1).permutation(40)]
    np.testing.assert_array_equal(x[content_order(x)], shuffled[content_order(shuffled)])


def test_least_rows() -> None:
    assert [least_rows(n) for n in (30, 1000, 1001, 20_000)] == [10, 10, 11, 200]


def test_progress_is_not_said_at_every_step() -> None:
    said: list[str] = []
    tick = ticker(said.append)
    for step in range(100):
        tick(str(step))
    assert not said
