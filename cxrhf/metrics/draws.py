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


# (seed, replicate) -> random numbers inside compiled loops.
#
# Every replicate starts its own stream from the seed and its own number, so a result does not depend on how many
# threads shared the work or in which order they took it. The generator is SplitMix64; whole numbers are drawn by
# multiplication with rejection, so every patient has exactly the same chance.

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)
_LOW = np.uint64(0xFFFFFFFF)


def stream_key(seed: int) -> np.uint64:
    """A well-spread 64-bit key from any whole number >= 0 (numpy's SeedSequence does the spreading)."""
    return np.uint64(np.random.SeedSequence(seed).generate_state(1, np.uint64)[0])


@compiled(inline="always")
def mixed(state: Any) -> Any:
    """The output function of SplitMix64."""
    z = (state ^ (state >> np.uint64(30))) * _MIX_1
    z = (z ^ (z >> np.uint64(27))) * _MIX_2
    return z ^ (z >> np.uint64(31))


@compiled(inline="always")
def stream_start(key: Any, replicate: int) -> Any:
    """The first state of one replicate's stream."""
    return mixed(key + mixed(np.uint64(replicate) * _GOLDEN + _GOLDEN))


@compiled(inline="always")
def advanced(state: Any) -> Any:
    """The next state; the random number is `mixed` of it."""
    return state + _GOLDEN


@compiled(inline="always")
def uniform(bits: Any) -> float:
    """A number in [0, 1) from 64 random bits."""
    return float(bits >> np.uint64(11)) * (1.0 / 9007199254740992.0)


@compiled
def draw_with_replacement(state: Any, members: Any, counts: Any, lane: int) -> Any:
    """Add one draw of len(members) units with replacement to column `lane` of counts; returns the state after.

    Two 32-bit halves of each output are used. A half is refused when its low product falls under the bias limit,
    which keeps every member equally likely (Lemire's method).
    """
    size = np.uint64(members.shape[0])
    limit = (np.uint64(4294967296) - size) % size if size > np.uint64(0) else np.uint64(0)
    drawn = np.uint64(0)
    while drawn < size:
        state = advanced(state)
        bits = mixed(state)
        product = (bits & _LOW) * size
        if (product & _LOW) >= limit:
            counts[members[product >> np.uint64(32)], lane] += 1
            drawn += np.uint64(1)
        if drawn < size:
            product = (bits >> np.uint64(32)) * size
            if (product & _LOW) >= limit:
                counts[members[product >> np.uint64(32)], lane] += 1
                drawn += np.uint64(1)
    return state
