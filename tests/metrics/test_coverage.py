"""Do nominal 95% intervals hold the truth 95% of the time? The full study runs under `make test-slow`."""

from __future__ import annotations

import numpy as np
import pytest

from tests.metrics.coverage import EASY, Cell, as_table, grid, measure, study


@pytest.mark.slow
def test_coverage_study():
    rows = study(grid(), simulations=2000, n_resamples=600)
    print("\n" + as_table(rows))
    usual = [row for row in rows if row.cell.separation != EASY]
    inside = [0.93 <= row.covered <= 0.97 for row in usual]
    print(f"\n{sum(inside)} of {len(usual)} cells within 93-97% at AUROC .856")
    # 2,000 simulations have a standard error of .5%; nothing may fall below 91%, and misses must stay few.
    assert min(row.covered for row in usual) > 0.91
    assert np.mean(inside) > 0.85


def test_coverage_in_a_small_cell():
    """A quick guard that the machinery is not badly wrong: 150 simulations, 3 standard errors of .95 and more."""
    rows = measure(Cell(200, 3, 0.2), simulations=150, n_resamples=200, seed=0)
    for row in rows:
        assert row.covered > 0.88, row
