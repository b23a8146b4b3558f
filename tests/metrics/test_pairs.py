"""Pairs between cells: AUROCs of all replicates, natural and equalised, are those of copied rows with their weights."""

from __future__ import annotations

import numpy as np
import pytest

from cxrhf.metrics import auroc, draw
from cxrhf.metrics.balancing import equalising_scales, equalising_weights
from cxrhf.metrics.subgroup_blocks import cells_auroc, drawn_tallies, rank_cells, sample_tally

PARTS = ([0, 1], [0], [1])


def sample(seed=0, n=240, decimals=1, weighted=True):
    """Several images a patient, ties, missing labels, groups and marks."""
    rng = np.random.default_rng(seed)
    clusters = rng.integers(0, n // 2, n)
    y = (rng.random(n) < 0.4).astype(float)
    mark = (rng.random(n) < 0.3 + 0.3 * y).astype(np.int64)
    p = np.round(1 / (1 + np.exp(-y - mark - rng.normal(size=n))), decimals)
    y[rng.random(n) < 0.1] = np.nan
    mark[rng.random(n) < 0.1] = -1
    weight = rng.choice([0.3, 1.0, 2.5], n) if weighted else np.ones(n)
    return y, p, weight, clusters, rng.integers(-1, 2, n), mark


def slow(y, p, weight, group, mark):
    """AUROC of both groups and of each; natural, then equalised."""
    known = (group >= 0) & (mark >= 0) & ~np.isnan(y) & (weight > 0)
    found = []
    for used in (weight, equalising_weights(y[known], group[known], mark[known], weight[known])):
        own = used[known] if len(used) == len(y) else used
        for groups in PARTS:
            inside = np.isin(group[known], groups)
            defined = not np.isnan(own[inside]).any() and len(np.unique(y[known][inside])) == 2
            found.append(auroc(y[known][inside], p[known][inside], own[inside]) if defined else np.nan)
    return found


def fast(tally):
    scales = (np.ones_like(tally.mass), equalising_scales(tally.mass))
    return np.stack([cells_auroc(tally, scale, groups) for scale in scales for groups in PARTS], axis=1)


@pytest.mark.parametrize("decimals", [1, 9])
@pytest.mark.parametrize("weighted", [False, True])
def test_sample_and_replicates_are_those_of_copied_rows(decimals, weighted) -> None:
    y, p, weight, clusters, group, mark = sample(decimals, decimals=decimals, weighted=weighted)
    draws = draw(clusters, y=y, n_resamples=70, seed=3)
    rows = rank_cells(y, p, weight, draws.unit, group, mark, 2)
    np.testing.assert_allclose(fast(sample_tally(rows))[0], slow(y, p, weight, group, mark), atol=1e-12)
    (tally,) = drawn_tallies([rows], draws)
    found, counts = fast(tally), draws.counts(0, 70)
    for r in (0, 1, 63, 64, 69):
        drawn = weight * counts[draws.unit, r]
        np.testing.assert_allclose(found[r], slow(y, p, drawn, group, mark), atol=1e-12)


def test_sums_of_cells_are_those_of_their_rows() -> None:
    y, p, weight, clusters, group, mark = sample(7)
    tally = sample_tally(rank_cells(y, p, weight, draw(clusters, y=y, n_resamples=1).unit, group, mark, 2))
    for g in (0, 1):
        for label in (0, 1):
            for value in (0, 1):
                inside = (group == g) & (y == label) & (mark == value)
                at = (0, g, label, value)
                assert tally.mass[at] == pytest.approx(weight[inside].sum())
                assert tally.said[at] == pytest.approx((weight * p)[inside].sum())
                assert tally.squared[at] == pytest.approx((weight * (p - label) ** 2)[inside].sum())


def test_a_replicate_without_a_cell_is_undefined() -> None:
    """One patient has the only marked positive of a group: without that patient nothing can be equalised."""
    y, p, weight, clusters, group, mark = sample(4)
    mark = np.where((group == 1) & (y == 1), 0, mark)
    alone = int(np.flatnonzero((group == 1) & (y == 1))[0])
    mark[alone] = 1
    clusters[alone] = clusters.max() + 1
    draws = draw(clusters, y=y, n_resamples=100, seed=0)
    (tally,) = drawn_tallies([rank_cells(y, p, weight, draws.unit, group, mark, 2)], draws)
    there = draws.counts(0, 100)[draws.unit[alone]] > 0
    assert 0 < there.sum() < 100
    found = fast(tally)
    assert np.isfinite(found[:, :3]).all()
    assert (np.isfinite(found[:, 3:]) == there[:, None]).all()


def test_threads_change_nothing() -> None:
    y, p, weight, clusters, group, mark = sample(1)
    draws = draw(clusters, y=y, n_resamples=200, seed=0)
    rows, done = rank_cells(y, p, weight, draws.unit, group, mark, 2), []
    one, two = (drawn_tallies([rows, rows], draws, workers, done.append) for workers in (1, 2))
    assert sum(done) == 400
    for left, right in zip((*one[0], *one[1]), (*two[0], *two[0]), strict=True):
        assert np.array_equal(left, right)
