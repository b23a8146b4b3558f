"""The kernels that carry many replicates side by side, against the metric of each replicate alone."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from cxrhf.metrics import draw
from cxrhf.metrics.catalogue import ACE, MAX_F1, PR_STEPS, PR_TRAPEZOID, SENSITIVITY, YOUDEN, evaluate_sorted
from cxrhf.metrics.draws import stream_key
from cxrhf.metrics.lanes import (
    STRETCH,
    ace_lanes,
    best_lanes,
    class_lanes,
    pr_lanes,
    sensitivity_lanes,
    stretches,
    sum_lanes,
)
from cxrhf.metrics.resample import draw_lanes

LANES = 16


def case(name: str):
    """(y, p, weight, last, unit, counts) of rows sorted by score."""
    rng = np.random.default_rng(len(name))
    n, units, digits = {"tiny": (5, 4, 1), "one row": (1, 1, 2), "empty": (0, 3, 2), "few scores": (900, 70, 1)}.get(
        name, (400, 70, 12)
    )
    p = np.sort(np.round(rng.beta(1, 2, n), digits))
    y = (rng.random(n) < p).astype(float)
    if name == "constant":
        p[:] = 0.3
    if name == "long run":  # with single scores on both sides
        p[100:300] = p[100]
    if name == "no positives":
        y[:] = 0.0
    if name == "all positive":
        y[:] = 1.0
    if name == "three positives":
        y[:] = 0.0
        y[[10, 200, 399]] = 1.0
    weight = {"weights": rng.random(n), "zero weights": rng.integers(0, 3, n) / 2}.get(name, np.ones(n))
    last = np.r_[p[1:] != p[:-1], [True] * (n > 0)].astype(bool)
    counts = rng.poisson(1, (units, LANES)).astype(np.uint8)
    counts[:, 3] = 0  # nobody drawn
    return y, p, weight, last, rng.integers(0, units, n).astype(np.int32), counts


CASES = [
    "no ties",
    "few scores",
    "constant",
    "long run",
    "weights",
    "zero weights",
    "no positives",
    "all positive",
    "three positives",
    "tiny",
    "one row",
    "empty",
]


@pytest.mark.parametrize("name", CASES)
def test_every_lane_is_the_metric_of_its_own_replicate(name):
    y, p, weight, last, unit, counts = case(name)
    rows = (y == 1, weight, last, unit, counts)
    got = {code: np.empty(LANES) for code in (ACE, SENSITIVITY, MAX_F1, YOUDEN)}
    areas, totals = np.empty((2, LANES)), np.empty((2, LANES))
    pr_lanes(*rows, areas)
    got |= {PR_STEPS: areas[0], PR_TRAPEZOID: areas[1]}
    class_lanes(y == 1, weight, unit, counts, totals)
    sensitivity_lanes(*rows, totals, 1 - 0.8, got[SENSITIVITY])
    best_lanes(*rows, totals, False, got[MAX_F1])
    best_lanes(*rows, totals, True, got[YOUDEN])
    edges = np.empty(len(y) + 1, dtype=np.int64)
    edges = edges[: stretches(last, edges) + 1]
    work = np.empty((len(edges), LANES)), np.empty((len(edges), LANES))
    ace_lanes(y, p, weight, last, unit, counts, 7, edges, *work, got[ACE])
    for lane in range(LANES):
        drawn = weight * counts[unit, lane]
        assert totals[1, lane] == pytest.approx(drawn[y == 1].sum())
        for code, values in got.items():
            option = {ACE: 7.0, SENSITIVITY: 0.8}.get(code, np.nan)
            expected = evaluate_sorted(code, y, p, drawn, option)
            assert values[lane] == pytest.approx(expected, abs=1e-12, nan_ok=True), (code, lane)


@pytest.mark.parametrize("name", CASES)
def test_stretches_end_with_runs_and_are_short(name):
    last = case(name)[3]
    edges = np.empty(len(last) + 1, dtype=np.int64)
    edges = edges[: stretches(last, edges) + 1]
    assert edges[0] == 0
    assert edges[-1] == len(last)
    assert (np.diff(edges) > 0).all()
    for a, b in pairwise(edges):
        assert last[b - 1]
        assert b - a <= STRETCH or last[a:b].sum() == 1


def test_sums_are_added_as_often_as_drawn():
    rng = np.random.default_rng(0)
    sums = rng.random((50, 7)) * rng.integers(0, 2, (50, 7))
    counts = rng.poisson(1, (50, LANES)).astype(np.uint8)
    out = np.empty((7, LANES))
    sum_lanes(sums, counts, out)
    np.testing.assert_allclose(out, sums.T @ counts, atol=1e-12)


@pytest.mark.parametrize("conditional", [True, False])
def test_lanes_are_drawn_as_the_replicates_they_are(conditional):
    rng = np.random.default_rng(1)
    draws = draw(np.arange(400) % 130, y=rng.integers(0, 2, 400), n_resamples=100, seed=5)
    members, edges = draws.plan(conditional)
    by_lane, counts = np.empty((LANES, 130), np.uint8), np.empty((130, LANES), np.uint8)
    draw_lanes(stream_key(5), 40, members, edges, by_lane, counts)
    assert np.array_equal(counts, draws.counts(40, 40 + LANES, conditional=conditional))
    assert np.array_equal(by_lane.T, counts)
