"""AUROC bootstrap at the size of CONTEXT's test set, against numpy, scikit-learn and torchmetrics.

The numpy peer is the strong one: rows sorted once, blocks of replicates as matrices. The others call a metric of their
library once per replicate. All are timed on a few replicates and scaled; ours runs 10,000 in full. Kernels are compiled
(or loaded from the cache on disk) before the clock starts, and so are the peers' imports.
"""

from __future__ import annotations

import time

import numpy as np

from benchmarks.rows import Row, row
from cxrhf.metrics import bootstrap_auroc

ROWS, LABELS, PATIENTS, RESAMPLES = 20_770, 13, 2_600, 10_000


def sample(seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Labels at prevalences from 2 to 30%, continuous scores, patients."""
    rng = np.random.default_rng(seed)
    y = (rng.random((ROWS, LABELS)) < np.linspace(0.02, 0.3, LABELS)).astype(np.int64)
    p = 1 / (1 + np.exp(-(1.5 * y - 2 + rng.standard_normal((ROWS, LABELS)))))
    return y, p, rng.integers(0, PATIENTS, ROWS)


def numpy_blocks(y: np.ndarray, p: np.ndarray, replicates: int, block: int = 64) -> float:
    """Seconds a replicate: rows sorted once, then the AUROC of a block of replicates by cumulative sums."""
    rng, order = np.random.default_rng(0), np.argsort(p, axis=0)
    positive = np.take_along_axis(y, order, axis=0) == 1
    start = time.perf_counter()
    for _ in range(0, replicates, block):
        drawn = [np.bincount(rng.integers(0, len(y), len(y)), minlength=len(y)) for _ in range(block)]
        counts = np.array(drawn, dtype=np.float32).T.copy()  # half the time of float64, and exact for counts
        for k in range(y.shape[1]):
            weight, is_positive = counts[order[:, k]], positive[:, k]
            own = weight[is_positive]
            weight[is_positive] = 0
            below = np.cumsum(weight, axis=0)
            (below[is_positive] * own).sum(axis=0, dtype=np.float64) / (own.sum(axis=0) * below[-1])
    return (time.perf_counter() - start) / (-(-replicates // block) * block)


def scikit_learn(y: np.ndarray, p: np.ndarray, replicates: int) -> float:
    """Seconds a replicate: rows copied by sklearn.utils.resample, then roc_auc_score of every label."""
    from sklearn.metrics import roc_auc_score
    from sklearn.utils import resample

    start = time.perf_counter()
    for r in range(replicates):
        labels, scores = resample(y, p, random_state=r)
        roc_auc_score(labels, scores, average=None)
    return (time.perf_counter() - start) / replicates


def torchmetrics_bootstrapper(y: np.ndarray, p: np.ndarray, replicates: int) -> float:
    """Seconds a replicate of BootStrapper around MultilabelAUROC with exact thresholds."""
    import torch
    from torchmetrics.classification import MultilabelAUROC
    from torchmetrics.wrappers import BootStrapper

    metric = BootStrapper(
        MultilabelAUROC(LABELS, average="none", validate_args=False),
        num_bootstraps=replicates,
        mean=False,
        std=False,
        raw=True,
    )
    start = time.perf_counter()
    metric.update(torch.from_numpy(p), torch.from_numpy(y))
    metric.compute()
    return (time.perf_counter() - start) / replicates


def ours(y: np.ndarray, p: np.ndarray, clusters: np.ndarray | None) -> float:
    """Seconds of a whole bootstrap."""
    start = time.perf_counter()
    bootstrap_auroc(y, p, clusters=clusters, n_resamples=RESAMPLES)
    return time.perf_counter() - start


def run() -> list[Row]:
    y, p, patients = sample()
    bootstrap_auroc(y[:100], p[:100], n_resamples=64)  # compile or load
    images, clustered = ours(y, p, None), ours(y, p, patients)
    rows = [
        row(
            f"AUROC bootstrap by patient, {RESAMPLES} x {LABELS} labels, against by image", clustered, images,
            "ratio = time by patient over time by image, both ours", ratio=clustered / images, target=2.0, at_most=True,
        )
    ]  # fmt: skip
    for name, peer, replicates, target in (
        ("numpy, blocks of 64 replicates, one thread", numpy_blocks, 128, 5.0),
        ("sklearn.utils.resample + roc_auc_score", scikit_learn, 15, 250.0),
        ("torchmetrics BootStrapper(MultilabelAUROC)", torchmetrics_bootstrapper, 10, 200.0),
    ):
        peer(y[:100], p[:100], 2)
        seconds = peer(y, p, replicates) * RESAMPLES
        what = f"AUROC bootstrap, n = {ROWS}, {LABELS} labels, {RESAMPLES} replicates"
        rows.append(row(what, images, seconds, f"peer: {name}, {replicates} replicates scaled", target=target))
    return rows
