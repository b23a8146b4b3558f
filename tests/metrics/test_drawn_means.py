"""Replicates of means: those of rows written out as often as their patient was drawn."""

from __future__ import annotations

import numpy as np
import pytest

from cxrhf.metrics.checks import InputError
from cxrhf.metrics.draws import draw
from cxrhf.metrics.intervals import count_patients, mean_replicates


def test_drawn_means_are_means_of_drawn_rows() -> None:
    rng = np.random.default_rng(0)
    patient = rng.integers(0, 9, 40)
    values = rng.random((40, 2))
    values[rng.random((40, 2)) < 0.2] = np.nan
    draws = draw(patient, n_resamples=30, seed=3)
    found = mean_replicates(values, draws)
    times = draws.counts(0, 30, conditional=False)
    for at in range(30):
        rows = np.repeat(np.arange(40), times[draws.unit, at])
        assert found[at] == pytest.approx(np.nanmean(values[rows], axis=0))
    units = count_patients(values[:, 0], draws)
    assert units.total == len(np.unique(patient[~np.isnan(values[:, 0])]))
    assert 1 < units.effective_total <= units.total
    with pytest.raises(InputError, match="expected 40 rows"):
        mean_replicates(values[:5], draws)
