"""Replicates of the audits' metrics, side by side in lanes, against the same metrics of one replicate after another.

The peer is the compiled kernel of the metric itself, called from Python once per replicate with its weights gathered by
numpy (for the parts of the Brier score, `pav_decomposition` with scipy's isotonic regression). It is weaker than one
compiled loop over all replicates, so the ratios guard against a slower engine and are not a claim about speed. The peer
is timed on a few replicates and scaled; ours runs in full, both on one thread.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from benchmarks.bootstrap import LABELS, ROWS, sample
from benchmarks.rows import Row, row
from cxrhf.metrics import METRICS, bootstrap_many, calibration_line, draw, pav_decomposition
from cxrhf.metrics.catalogue import evaluate_sorted
from cxrhf.metrics.draws import Draws
from cxrhf.metrics.reliability import line_from, log_odds

RESAMPLES, PEER_RESAMPLES = 2_000, 3
# Metrics with the ratio that must be reached.
SETS: dict[tuple[str, ...], float] = {
    ("calibration_slope", "calibration_intercept", "calibration_in_the_large"): 5.0,
    ("average_precision", "auprc_trapezoid"): 5.0,
    ("adaptive_calibration_error",): 5.0,
    ("sensitivity_at_specificity",): 5.0,
    ("pav_calibration", "pav_refinement"): 5.0,
}
Value = Callable[[np.ndarray, np.ndarray, np.ndarray], Any]


def one_by_one(names: Sequence[str], y: np.ndarray, p: np.ndarray, draws: Draws) -> float:
    """Seconds a replicate: rows sorted once, then every metric on the weights of each replicate."""
    order = np.argsort(p, axis=0)
    labels, scores = np.take_along_axis(y, order, axis=0).T.copy(), np.take_along_axis(p, order, axis=0).T.copy()
    values = [_value(names, labels[k], scores[k]) for k in range(len(labels))]
    start = time.perf_counter()
    for r in range(PEER_RESAMPLES):
        drawn = draws.counts(r, r + 1, conditional=False)[draws.unit, 0].astype(np.float64)
        for k, value in enumerate(values):
            value(labels[k], scores[k], drawn[order[:, k]])
    return (time.perf_counter() - start) / PEER_RESAMPLES


def _value(names: Sequence[str], y: np.ndarray, p: np.ndarray) -> Value:
    """How the peer computes these metrics; the calibration line starts from that of the whole sample."""
    if names[0].startswith("pav"):
        return pav_decomposition
    if names[0].startswith("calibration"):
        whole, odds = calibration_line(y, p), np.empty(len(p))
        log_odds(p, odds)

        def lines(y: np.ndarray, p: np.ndarray, weight: np.ndarray) -> None:
            line_from(y, odds, weight, True, whole.intercept, whole.slope)
            line_from(y, odds, weight, False, whole.in_the_large, 1.0)

        return lines

    def kernels(y: np.ndarray, p: np.ndarray, weight: np.ndarray) -> None:
        for name in names:
            evaluate_sorted(METRICS[name].code, y, p, weight, METRICS[name].default)

    return kernels


def run() -> list[Row]:
    y, p, patients = sample()
    labels = y.astype(float)
    draws = draw(patients, y=labels, n_resamples=RESAMPLES)
    few = draw(patients[:200], y=labels[:200], n_resamples=4)
    rows = []
    for names, target in SETS.items():
        bootstrap_many(names, labels[:200], p[:200], draws=few, workers=1)  # compile or load
        one_by_one(names, labels[:200], p[:200], few)
        peer = one_by_one(names, labels, p, draws) * RESAMPLES
        start = time.perf_counter()
        bootstrap_many(names, labels, p, draws=draws, workers=1)
        ours = time.perf_counter() - start
        note = f"n = {ROWS}; peer: a Python call per replicate, {PEER_RESAMPLES} of them scaled; one thread"
        rows.append(row(f"{', '.join(names)[:44]}, {RESAMPLES} x {LABELS}", ours, peer, note, target=target))
    return rows
