"""Calibration lines of replicates from a few points, against the line fitted on the rows of each replicate."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import expit, logit

from cxrhf.metrics import bootstrap_many, calibration_line, draw
from cxrhf.metrics.lanes import POINTS, _gather, cut_cells

NAMES = ("calibration_slope", "calibration_intercept", "calibration_in_the_large")
RESAMPLES = 24


def case(name: str):
    rng = np.random.default_rng(len(name))
    n = {"few rows": 14, "few positives": 60}.get(name, 1500)
    x = rng.normal(-1.5, 1.8, n)
    y = (rng.random(n) < expit(x)).astype(float)
    p = expit(x)
    if name == "overconfident":
        p = expit(4 * x)
    if name == "timid":
        p = expit(0.15 * x)
    if name == "steep and narrow":  # the slope is far above 1
        p = expit(0.02 * x - 1)
    if name == "turned round":
        p = 1 - p
    if name == "rounded":
        p = np.round(p, 1)
    if name == "zeros and ones":
        p = np.where(p < 0.2, 0.0, np.where(p > 0.7, 1.0, p))
    if name == "shifted":
        p = expit(x + 4)
    if name == "no use":
        p = expit(rng.normal(0, 1, n))
    if name == "constant":
        p = np.full(n, 0.2)
    if name in ("few rows", "few positives"):  # many replicates are separated or lack a class
        y = (x > np.sort(x)[-4]).astype(float)
        y[np.argsort(x)[-5 if name == "few rows" else 0]] = 1.0
        y[np.argmax(x)] = 0.0
    if name == "one class":
        y[:] = 1.0
    weight = {"weights": rng.random(n) ** 6 * 50, "zero weights": rng.integers(0, 2, n).astype(float)}.get(name)
    return y, p, weight, rng.integers(0, n // 3, n)


@pytest.mark.parametrize(
    "name",
    [
        "plain",
        "overconfident",
        "timid",
        "steep and narrow",
        "turned round",
        "rounded",
        "zeros and ones",
        "shifted",
        "no use",
        "constant",
        "few rows",
        "few positives",
        "one class",
        "weights",
        "zero weights",
    ],
)
def test_replicates_are_the_lines_of_their_rows(name):
    y, p, weight, patients = case(name)
    draws = draw(patients, y=y, n_resamples=RESAMPLES, seed=2)
    got = bootstrap_many(NAMES, y, p, weight, draws=draws)
    counts = draws.counts(0, RESAMPLES, conditional=False)
    for r in range(RESAMPLES):
        drawn = counts[draws.unit, r] * (1.0 if weight is None else weight)
        exact = calibration_line(y, p, drawn)
        for metric, expected in zip(NAMES, (exact.slope, exact.intercept, exact.in_the_large), strict=True):
            assert got[metric][r] == pytest.approx(expected, abs=1e-7, rel=1e-7, nan_ok=True), (metric, r)
    if name == "few rows":
        assert 0 < np.isnan(got["calibration_slope"]).sum() < RESAMPLES


def test_a_replicate_far_from_the_sample_is_fitted_on_its_rows():
    """Without its few outliers a sample has a slope that its own cells are too wide for."""
    rng = np.random.default_rng(0)
    x = np.r_[rng.normal(0, 1, 300), np.full(30, 9.0)]
    y = np.r_[(rng.random(300) < expit(4 * x[:300])), np.zeros(30)].astype(float)
    patients = np.r_[np.arange(300), np.full(30, 300)]  # all of one patient
    draws = draw(patients, n_resamples=60, strata="none")
    got = bootstrap_many(["calibration_slope"], y, expit(x), draws=draws)["calibration_slope"]
    counts = draws.counts(0, 60, conditional=False)[draws.unit]
    exact = [calibration_line(y, expit(x), counts[:, r].astype(float)).slope for r in range(60)]
    assert max(exact) > 4 * min(exact)
    np.testing.assert_allclose(got, exact, rtol=1e-7)


def test_cells_hold_all_rows_and_their_points_keep_polynomials():
    y, p, _, _ = case("plain")
    order = np.argsort(p)
    y, p = y[order], p[order]
    cells = cut_cells(y, p, np.ones(len(p)))
    assert cells.rows[0] == 0
    assert cells.rows[-1] == len(p)
    assert len(cells.at) < len(p) / 4
    rng = np.random.default_rng(0)
    unit, counts = np.arange(len(p), dtype=np.int32), rng.poisson(1, (len(p), 8)).astype(np.uint8)
    mass = np.empty((8, len(cells.at)))
    _gather(np.ones(len(p)), cells.odds, unit, counts, cells.rows, cells.points, mass)
    assert np.allclose(cells.odds, logit(np.clip(p, 1e-9, 1 - 1e-9)))
    for degree in range(POINTS):
        np.testing.assert_allclose(mass @ cells.at**degree, (cells.odds**degree) @ counts, rtol=1e-9)
    np.testing.assert_allclose(mass @ expit(0.3 + cells.at), expit(0.3 + cells.odds) @ counts, rtol=1e-10)
