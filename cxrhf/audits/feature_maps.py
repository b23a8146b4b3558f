"""Vectors -> places in a plane: principal components (PCA), and t-SNE of the components with 99% of the variance."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cxrhf.audits.one_thread import one_thread
from cxrhf.audits.sample import SECONDS, Floats, Progress

VARIANCE = 0.99
PERPLEXITY = 30.0
# Fewer rows have no neighbourhoods to keep.
LEAST_ROWS = 10


class Modes(NamedTuple):
    """Scores of the rows on all modes with variance, each one's share of it, and how many hold 99% of it."""

    scores: Floats
    share: Floats
    n_components: int


def principal_modes(vectors: NDArray[np.float32]) -> Modes:
    """PCA of these rows, centred, not scaled. The largest loading of a mode is positive, which settles its sign."""
    centred = vectors.astype(np.float64)
    centred -= centred.mean(axis=0)
    wide = centred.shape[1] > len(centred)
    with one_thread():
        values, axes = np.linalg.eigh(centred @ centred.T if wide else centred.T @ centred)
        values, axes = values[::-1], axes[:, ::-1]
        kept = values > 1e-10 * max(float(values[0]), 0.0)
        values, axes = values[kept], axes[:, kept]
        if wide:
            axes = centred.T @ (axes / np.sqrt(values))
        largest = axes[np.abs(axes).argmax(axis=0), np.arange(axes.shape[1])] if axes.size else np.ones(0)
        scores = centred @ (axes * np.sign(largest))
    share = values / values.sum()
    return Modes(scores, share, int(np.searchsorted(np.cumsum(share), VARIANCE - 1e-12) + 1) if len(share) else 0)


def neighbour_map(modes: Modes, seed: int, progress: Progress, text: str) -> Floats | None:
    """t-SNE of the modes that hold 99% of the variance; None for too few rows. The same seed gives the same map.

    scikit-learn's takes no function to report to, so the time that has passed is reported beside it.
    """
    from sklearn.manifold import TSNE

    rows = modes.scores[:, : modes.n_components]
    if len(rows) < LEAST_ROWS or not rows.shape[1]:
        return None
    # Started from the first two modes; where there is one only, from chance.
    start: Any = "pca" if rows.shape[1] > 1 else "random"
    method = TSNE(init=start, perplexity=min(PERPLEXITY, (len(rows) - 1) / 3), random_state=seed % 2**32, n_jobs=1)
    with one_thread(), _told(progress, text):
        return np.asarray(method.fit_transform(rows), dtype=np.float64)


@contextmanager
def _told(progress: Progress, text: str) -> Iterator[None]:
    """Say every few seconds that it goes on, and for how long."""
    done, begun = threading.Event(), time.monotonic()

    def tell() -> None:
        while not done.wait(SECONDS):
            progress(f"{text}, {time.monotonic() - begun:.0f} s")

    teller = threading.Thread(target=tell, daemon=True)
    teller.start()
    try:
        yield
    finally:
        done.set()
        teller.join()
