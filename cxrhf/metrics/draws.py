"""Rows, patients and labels -> who is drawn how often in each bootstrap replicate.

A draw says how often each patient was drawn; a row counts as often as its patient. Replicate r depends on the seed
and r alone, not on threads or on what else is computed, so whatever is computed from the same `Draws` is paired.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cxrhf.metrics.checks import InputError, as_clusters, as_count, as_labels, one_of, same_length
from cxrhf.metrics.compiled import compiled
from cxrhf.metrics.streams import draw_with_replacement, stream_key, stream_start

# Replicates that the AUROC kernel carries side by side: a cache line of 8-bit counts for each patient.
LANES = 64
# Replicates between two reports of progress, and the work that one thread takes at a time.
BLOCK = 512

STRATA = ("auto", "positive", "label", "none")


@dataclass(frozen=True, slots=True)
class Draws:
    """A bootstrap plan: `unit` is the patient of each row, and `members` lists the units stratum by stratum."""

    unit: NDArray[np.int32]
    members: NDArray[np.int32]
    edges: NDArray[np.int64]
    strata: str
    n_resamples: int
    seed: int

    @property
    def n_units(self) -> int:
        """Patients (or rows, when no patients are known)."""
        return len(self.members)

    def plan(self, conditional: bool) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """Members and stratum edges for a metric; "auto" drops the strata where the prevalence matters."""
        if self.strata == "auto" and not conditional:
            return self.members, np.array([0, len(self.members)])
        return self.members, self.edges

    def counts(self, start: int, stop: int, *, conditional: bool = True) -> NDArray[np.uint8]:
        """How often each patient is drawn in replicates start..stop-1, shape (patients, replicates)."""
        members, edges = self.plan(conditional)
        counts = np.zeros((self.n_units, stop - start), dtype=np.uint8)
        draw_counts(stream_key(self.seed), start, members, edges, counts)
        return counts


def draw(
    clusters: ArrayLike | None = None,
    *,
    n: int | None = None,
    y: ArrayLike | None = None,
    n_resamples: int = 10_000,
    seed: int = 0,
    strata: str = "auto",
) -> Draws:
    """Plan a patient-level bootstrap: patients are drawn with replacement, each with all of their rows.

    `clusters` holds the patient of each row (any hashable values); without it, rows are resampled. `y` holds labels,
    one or many columns, with NaN for missing ones. `strata`: "positive" stratifies patients by whether they have a
    positive label; "label" stratifies rows by their label (the image-level scheme of CONTEXT; ranking metrics only);
    "none" does not stratify; "auto" (default) is "positive" for metrics within classes and "none" for those that depend
    on the prevalence.
    """
    as_count(n_resamples, "n_resamples")
    as_count(seed, "seed", least=0)
    one_of(strata, "strata", STRATA)
    labels = None if y is None else as_labels(y, masked=True)
    if clusters is not None:
        unit = np.unique(_plain_names(as_clusters(clusters)), return_inverse=True)[1].reshape(-1).astype(np.int32)
    elif labels is not None:
        unit = np.arange(len(labels), dtype=np.int32)
    elif n is not None:
        unit = np.arange(as_count(n, "n", least=0), dtype=np.int32)
    else:
        raise InputError("draw requires clusters, y or n to determine the number of rows")
    if labels is not None:
        same_length(y=labels, clusters=unit)
    n_units = int(unit.max()) + 1 if len(unit) else 0
    stratum = np.zeros(n_units, dtype=np.int64)
    if strata == "label":
        if labels is None or labels.ndim != 1 or clusters is not None:
            raise InputError("strata='label' requires a 1-D y and no clusters")
        stratum = (labels == 1).astype(np.int64)
    elif strata in ("auto", "positive") and labels is not None:
        positive = (labels == 1) if labels.ndim == 1 else (labels == 1).any(axis=1)
        np.maximum.at(stratum, unit, positive.astype(np.int64))
    elif strata == "positive":
        raise InputError("strata='positive' requires y to find the patients with a positive label")
    members = np.argsort(stratum, kind="stable").astype(np.int32)
    edges = np.r_[0, np.cumsum(np.bincount(stratum, minlength=2))] if n_units else np.zeros(2, dtype=np.int64)
    return Draws(unit, members, edges.astype(np.int64), strata, n_resamples, seed)


def _plain_names(raw: NDArray[Any]) -> NDArray[Any]:
    """Whole numbers written as text become numbers: patients are numbered in sorted order, and the same file read with
    its ids as text or as numbers must give the same draws."""
    if raw.dtype.kind not in "OUT" or len(raw) == 0:
        return raw
    text = raw.astype(str)
    try:
        number = text.astype(np.int64)
    except (ValueError, OverflowError):
        return text if raw.dtype.kind == "O" and any(isinstance(each, str) for each in raw) else raw
    return number if (number.astype(str) == text).all() else text


@compiled
def draw_counts(key: Any, first: int, members: Any, edges: Any, counts: Any) -> None:
    """Fill a column of zeroed counts for each of the replicates first, first + 1, ..."""
    for lane in range(counts.shape[1]):
        state = stream_start(key, first + lane)
        for s in range(edges.shape[0] - 1):
            if edges[s + 1] > edges[s]:
                state = draw_with_replacement(state, members[edges[s] : edges[s + 1]], counts, lane)


def threads(workers: int | None = None) -> int:
    """Threads to use: the argument, else CXRHF_THREADS, else the cores this process may use."""
    if workers is not None:
        return as_count(workers, "workers")
    asked = os.environ.get("CXRHF_THREADS", "")
    if asked.isdigit() and int(asked) > 0:
        return int(asked)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def run_in_blocks(
    work: Callable[[int, int], None],
    n_resamples: int,
    workers: int | None,
    progress: Callable[[int], None] | None,
) -> None:
    """Call work(start, stop) for blocks of replicates on a pool of threads (the kernels release the GIL)."""
    count = threads(workers)
    size = min(BLOCK, max(LANES, -(-n_resamples // (count * LANES)) * LANES))
    spans = [(start, min(start + size, n_resamples)) for start in range(0, n_resamples, size)]

    def one(span: tuple[int, int]) -> None:
        work(*span)
        if progress is not None:
            progress(span[1] - span[0])

    if count == 1 or len(spans) == 1:
        for span in spans:
            one(span)
        return
    with ThreadPoolExecutor(count) as pool:
        list(pool.map(one, spans))
