"""Values of rows and a plan of draws -> replicates of their means, each row counting as often as its patient."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from cxrhf.metrics.checks import Floats, InputError
from cxrhf.metrics.draws import BLOCK, Draws
from cxrhf.metrics.intervals import UnitCount


def mean_replicates(values: ArrayLike, draws: Draws) -> Floats:
    """Means of each column (rows x columns) in every replicate, shape (replicates, columns); NaN values are left out.

    Columns are drawn together, so differences between them are paired. A replicate without a value is NaN.
    """
    x = np.asarray(values, dtype=np.float64)
    if x.ndim != 2 or len(x) != len(draws.unit):
        raise InputError(f"values: expected {len(draws.unit)} rows and one column per mean, got shape {x.shape}")
    there = ~np.isnan(x)
    sums, sizes = np.zeros((draws.n_units, x.shape[1])), np.zeros((draws.n_units, x.shape[1]))
    np.add.at(sums, draws.unit, np.where(there, x, 0.0))
    np.add.at(sizes, draws.unit, there.astype(np.float64))
    out = np.empty((draws.n_resamples, x.shape[1]))
    for start in range(0, draws.n_resamples, BLOCK):
        stop = min(start + BLOCK, draws.n_resamples)
        times = draws.counts(start, stop, conditional=False).astype(np.float64).T
        total, n = times @ sums, times @ sizes
        out[start:stop] = np.divide(total, n, out=np.full(total.shape, np.nan), where=n > 0)
    return out


def patients_behind(values: ArrayLike, draws: Draws) -> UnitCount:
    """Patients with a value, and their effective number, in the form that intervals take; there are no classes."""
    there = ~np.isnan(np.asarray(values, dtype=np.float64))
    rows = np.bincount(draws.unit[there], minlength=draws.n_units).astype(np.float64)
    n, square = int((rows > 0).sum()), float((rows**2).sum())
    effective = float(rows.sum() ** 2 / square) if square else 0.0
    return UnitCount(n, n, n, effective, effective, effective)
