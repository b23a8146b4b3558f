"""Matching on pre-test probability against scipy's assignment solver, its memory, and redoing it in each replicate."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import numpy as np

from benchmarks.rows import Row, row
from cxrhf.metrics import bootstrap, draw, match_pairs

POSITIVES, NEGATIVES, LABELS, RESAMPLES = 4_768, 16_002, 13, 10_000
# What CONTEXT's public code needs for one label at 10,000 replicates: about two weeks.
PUBLIC_CODE_SECONDS = 14 * 24 * 3600.0

# Linux keeps the peak since it was last reset, so that the (larger) peak of importing cannot hide ours.
MEMORY_CHECK = """
from pathlib import Path
from cxrhf.metrics import match_pairs
from benchmarks.matching import sample

def memory(field):
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field)) / 1024

y, q = sample()
match_pairs(y[:50], q[:50])
Path("/proc/self/clear_refs").write_text("5")
before = memory("VmRSS")
match_pairs(y, q)
print(memory("VmHWM") - before)
"""


def sample(seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Labels and pre-test probabilities, positives higher; the numbers of CONTEXT's most frequent finding."""
    rng = np.random.default_rng(seed)
    y = np.r_[np.ones(POSITIVES), np.zeros(NEGATIVES)]
    return y, np.r_[rng.beta(2, 4, POSITIVES), rng.beta(1, 5, NEGATIVES)]


def run() -> list[Row]:
    from scipy.optimize import linear_sum_assignment

    y, q = sample()
    match_pairs(y[:50], q[:50])
    seconds = []
    for _ in range(5):
        start = time.perf_counter()
        pairs = match_pairs(y, q)
        seconds.append(time.perf_counter() - start)
    ours = float(np.median(seconds))
    start = time.perf_counter()
    cost = np.abs(q[:POSITIVES, None] - q[None, POSITIVES:])
    rows, columns = linear_sum_assignment(cost)
    peer = time.perf_counter() - start
    same = abs(cost[rows, columns].sum() - np.abs(q[pairs.positives] - q[pairs.negatives]).sum())
    del cost
    memory = float(
        subprocess.run(
            [sys.executable, "-c", MEMORY_CHECK], capture_output=True, text=True, check=True, env=dict(os.environ)
        ).stdout
    )
    result = [
        row(
            f"match_pairs, {POSITIVES} x {NEGATIVES}", ours, peer,
            f"peer: scipy linear_sum_assignment with its cost matrix; total costs differ by {same:.1e}; "
            f"ours takes {memory:.1f} MB above the import baseline (target < 50: {'met' if memory < 50 else 'MISSED'})",
            target=500.0,
        )
    ]  # fmt: skip
    rng = np.random.default_rng(1)
    n = POSITIVES + NEGATIVES
    labels = (rng.random((n, LABELS)) < np.linspace(0.02, 0.23, LABELS)).astype(float)
    context = np.clip(rng.beta(1, 5, (n, LABELS)) + 0.1 * labels, 0, 1)
    scores = labels + context + rng.standard_normal((n, LABELS))
    draws = draw(rng.integers(0, 2_600, n), y=labels, n_resamples=RESAMPLES)
    start = time.perf_counter()
    bootstrap("matched_auroc", labels, scores, pretest=context, draws=draws)
    redo = time.perf_counter() - start
    name = f"matching redone in {RESAMPLES} replicates x {LABELS} labels"
    note = f"{redo / 60:.1f} minutes; peer: the public code's own time, two weeks a label (not run here)"
    result.append(row(name, redo, PUBLIC_CODE_SECONDS * LABELS, note))
    return result
