"""Labels, scores and patients -> bootstrap replicates of any metric, by counting rows instead of copying them.

A draw says how often each patient was drawn; a row counts as often as its patient. Rows are sorted once, then every
replicate is one pass over sorted rows with other counts. The same draw serves every finding, model, stratum and
metric given the same `Draws`, so differences between them are paired. Replicate r depends on the seed and r alone,
not on threads or on what else is computed.

Metrics that only look within the classes (AUROC, sensitivity, Brier+) are drawn with the number of patients who have
any positive held fixed, so that rare findings stay present; metrics that depend on the prevalence (Brier, calibration
error, precision) are not, because holding it fixed would hide most of their variance.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import ArrayLike, NDArray

from cxrhf.metrics.catalogue import AUROC, MATCHED, METRICS, Metric, evaluate_sorted, find_metric
from cxrhf.metrics.checks import (
    Floats,
    InputError,
    as_count,
    as_labels,
    as_probabilities,
    as_scores,
    as_weights,
    one_of,
    same_length,
)
from cxrhf.metrics.matching import matched_shares
from cxrhf.metrics.ranking import auroc_lanes
from cxrhf.metrics.streams import draw_with_replacement, stream_key, stream_start

# Replicates that the AUROC kernel carries side by side: a cache line of 8-bit counts for each patient.
LANES = 64
# Replicates between two reports of progress, and the work that one thread takes at a time.
BLOCK = 512

STRATA = ("auto", "positive", "label", "none")
CallableMetric = Callable[[Floats, Floats, Floats], float]


@dataclass(frozen=True, slots=True)
class Draws:
    """Who is drawn: `unit` is the patient of each row. Units are listed stratum after stratum in `members`."""

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
        _draw(stream_key(self.seed), start, members, edges, counts)
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
    """Plan a bootstrap: patients with replacement, one draw for all their rows.

    `clusters`: the patient of each row (any hashable values); without, every row stands for itself. `y`: labels,
    one or many columns, NaN = missing. `strata`: "positive" draws patients with and without any positive label
    apart, "label" draws rows by their label (the image-level scheme of CONTEXT; ranking metrics only), "none"
    draws all alike; "auto" is "positive" for metrics within classes and "none" for those that depend on the
    prevalence.
    """
    as_count(n_resamples, "n_resamples")
    as_count(seed, "seed", least=0)
    one_of(strata, "strata", STRATA)
    labels = None if y is None else as_labels(y, masked=True)
    if clusters is not None:
        raw = np.asarray(clusters)
        if raw.ndim != 1:
            raise InputError(f"clusters has {raw.ndim} dimensions, allowed: one patient for each row")
        if raw.dtype.kind == "f" and np.isnan(raw).any():
            raise InputError(f"clusters[{int(np.argmax(np.isnan(raw)))}] is nan: every row needs a patient")
        unit = np.unique(raw, return_inverse=True)[1].reshape(-1).astype(np.int32)
    elif labels is not None or n is not None:
        unit = np.arange(len(labels) if labels is not None else n, dtype=np.int32)
    else:
        raise InputError("draw needs clusters, y or n to know how many rows there are")
    if labels is not None:
        same_length(y=labels, clusters=unit)
    n_units = int(unit.max()) + 1 if len(unit) else 0
    stratum = np.zeros(n_units, dtype=np.int64)
    if strata == "label":
        if labels is None or labels.ndim != 1 or clusters is not None:
            raise InputError("strata='label' draws rows by one label: give y of one dimension and no clusters")
        stratum = (labels == 1).astype(np.int64)
    elif strata in ("auto", "positive") and labels is not None:
        positive = (labels == 1) if labels.ndim == 1 else (labels == 1).any(axis=1)
        np.maximum.at(stratum, unit, positive.astype(np.int64))
    elif strata == "positive":
        raise InputError("strata='positive' needs y to know which patients have a positive label")
    members = np.argsort(stratum, kind="stable").astype(np.int32)
    edges = np.r_[0, np.cumsum(np.bincount(stratum, minlength=2))] if n_units else np.zeros(2, dtype=np.int64)
    return Draws(unit, members, edges.astype(np.int64), strata, n_resamples, seed)


@njit(cache=True, nogil=True)
def _draw(key: Any, first: int, members: Any, edges: Any, counts: Any) -> None:
    for lane in range(counts.shape[1]):
        state = stream_start(key, first + lane)
        for s in range(edges.shape[0] - 1):
            if edges[s + 1] > edges[s]:
                state = draw_with_replacement(state, members[edges[s] : edges[s + 1]], counts, lane)


@njit(cache=True, nogil=True)
def _auroc_block(
    key: Any, first: int, members: Any, edges: Any, rows: Any, positive: Any, weight: Any, last: Any, unit: Any, out: Any
) -> None:
    """AUROC of every label for out.shape[0] replicates, LANES at a time; rows[l]:rows[l + 1] are label l's rows."""
    lanes = LANES
    counts = np.empty((members.shape[0], lanes), dtype=np.uint8)
    below, area, result = np.empty(lanes), np.empty(lanes), np.empty(lanes)
    tied = np.empty((2, lanes))
    for start in range(0, out.shape[0], lanes):
        counts[:] = 0
        _draw(key, first + start, members, edges, counts)
        for label in range(rows.shape[0] - 1):
            a, b = rows[label], rows[label + 1]
            auroc_lanes(positive[a:b], weight[a:b], last[a:b], unit[a:b], counts, below, area, tied, result)
            for lane in range(min(lanes, out.shape[0] - start)):
                out[start + lane, label] = result[lane]


@njit(cache=True, nogil=True)
def _metric_block(
    key: Any,
    first: int,
    members: Any,
    edges: Any,
    rows: Any,
    y: Any,
    p: Any,
    weight: Any,
    unit: Any,
    codes: Any,
    options: Any,
    out: Any,
) -> None:
    """Several metrics of every label, replicate after replicate; out is (replicates, labels, metrics)."""
    counts = np.empty((members.shape[0], 1), dtype=np.uint8)
    w = np.empty(y.shape[0])
    for r in range(out.shape[0]):
        counts[:] = 0
        _draw(key, first + r, members, edges, counts)
        for i in range(y.shape[0]):
            w[i] = weight[i] * counts[unit[i], 0]
        for label in range(rows.shape[0] - 1):
            a, b = rows[label], rows[label + 1]
            for m in range(codes.shape[0]):
                out[r, label, m] = evaluate_sorted(codes[m], y[a:b], p[a:b], w[a:b], options[m])


@njit(cache=True, nogil=True)
def _matched_block(
    key: Any,
    first: int,
    members: Any,
    edges: Any,
    rows: Any,
    positive: Any,
    last: Any,
    unit: Any,
    by_context: Any,
    pretest: Any,
    caliper: float,
    out: Any,
) -> None:
    """Matched AUROC of every label, the matching redone in each replicate.

    Rows are sorted by score; `by_context` lists the same rows of a label sorted by (pre-test probability, class).
    """
    counts = np.empty((members.shape[0], 1), dtype=np.uint8)
    longest = 0
    for label in range(rows.shape[0] - 1):
        longest = max(longest, rows[label + 1] - rows[label])
    count = np.empty(longest, dtype=np.int64)
    share = np.empty(longest)
    side = np.empty(longest, dtype=np.bool_)
    taken = np.empty((longest, 1))
    ones = np.ones(longest)
    place = np.arange(longest).astype(np.int32)
    below, area, result = np.empty(1), np.empty(1), np.empty(1)
    tied = np.empty((2, 1))
    work = np.empty((3, 2 * longest + 1))
    for r in range(out.shape[0]):
        counts[:] = 0
        _draw(key, first + r, members, edges, counts)
        for label in range(rows.shape[0] - 1):
            a, b = rows[label], rows[label + 1]
            copies = 0
            for i in range(b - a):
                j = by_context[a + i]
                count[i] = counts[unit[j], 0]
                side[i] = positive[j]
                copies += count[i]
            if copies + 1 > work.shape[1]:
                work = np.empty((3, 2 * copies + 1))
            matched_shares(pretest[a:b], side[: b - a], count[: b - a], caliper, share[: b - a], work)
            for i in range(b - a):
                taken[by_context[a + i] - a, 0] = share[i] * count[i]
            auroc_lanes(
                positive[a:b], ones[: b - a], last[a:b], place[: b - a], taken[: b - a], below, area, tied, result
            )
            out[r, label] = result[0]


@dataclass(frozen=True, slots=True)
class _Sorted:
    """Rows of all labels, label after label, each sorted by score; `rows` are the edges."""

    rows: NDArray[np.int64]
    origin: NDArray[np.int64]
    y: Floats
    p: Floats
    weight: Floats
    last: NDArray[np.bool_]
    unit: NDArray[np.int32]


def _sort_labels(y: Floats, p: Floats, weight: Floats, unit: NDArray[np.int32]) -> _Sorted:
    parts: list[NDArray[np.int64]] = []
    last: list[NDArray[np.bool_]] = []
    for label in range(y.shape[1]):
        valid = np.flatnonzero(~np.isnan(y[:, label]))
        order = valid[np.argsort(p[valid, label], kind="stable")]
        scores = p[order, label]
        parts.append(order)
        last.append(np.r_[scores[1:] != scores[:-1], True] if len(order) else np.zeros(0, dtype=np.bool_))
    origin = np.concatenate(parts)
    column = np.repeat(np.arange(y.shape[1]), [len(part) for part in parts])
    rows = np.r_[0, np.cumsum([len(part) for part in parts])].astype(np.int64)
    return _Sorted(
        rows, origin, y[origin, column], p[origin, column], weight[origin], np.concatenate(last), unit[origin]
    )


def threads(workers: int | None = None) -> int:
    """Threads to use: the argument, else CXRHF_THREADS, else the cores this process may use."""
    if workers is not None:
        return as_count(workers, "workers")
    asked = os.environ.get("CXRHF_THREADS", "")
    return int(asked) if asked.isdigit() and int(asked) > 0 else len(os.sched_getaffinity(0))


def _in_blocks(
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


def _checked(
    y: ArrayLike, p: ArrayLike, weight: ArrayLike | None, draws: Draws, probability: bool
) -> tuple[Floats, Floats, Floats, bool]:
    labels = as_labels(y, masked=True)
    single = labels.ndim == 1
    raw = np.asarray(p, dtype=object) if isinstance(p, (list, tuple)) else np.asarray(p)
    scores = raw if raw.dtype.kind == "f" else as_scores(p, masked=True)
    if np.shape(scores) != labels.shape:
        raise InputError(f"y has shape {labels.shape} but p has shape {np.shape(scores)}; they must be equal")
    # A score next to a missing label is never looked at, so it may be missing too.
    scores = np.where(np.isnan(labels), 0.0, scores)
    scores = as_probabilities(scores, masked=True) if probability else as_scores(scores, masked=True)
    same_length(y=labels, draws=draws.unit)
    weights = as_weights(weight, len(labels))
    return (labels[:, None], scores[:, None], weights, True) if single else (labels, scores, weights, False)


def bootstrap_many(
    metrics: Mapping[str, Mapping[str, float]] | Sequence[str],
    y: ArrayLike,
    p: ArrayLike,
    weight: ArrayLike | None = None,
    *,
    draws: Draws,
    pretest: ArrayLike | None = None,
    workers: int | None = None,
    progress: Callable[[int], None] | None = None,
) -> dict[str, Floats]:
    """Replicates of several metrics on the same draws: {name: (n_resamples,) or (n_resamples, labels)}.

    `metrics`: names, or names with their option, as {"sensitivity_at_specificity": {"specificity": .9}}.
    """
    asked = dict(metrics) if isinstance(metrics, Mapping) else {name: {} for name in metrics}
    entries = {name: (find_metric(name), _option(name, dict(given))) for name, given in asked.items()}
    probability = any(entry.probability for entry, _ in entries.values())
    labels, scores, weights, single = _checked(y, p, weight, draws, probability)
    table = _sort_labels(labels, scores, weights, draws.unit)
    key = stream_key(draws.seed)
    result: dict[str, Floats] = {}
    for conditional in (True, False):
        members, edges = draws.plan(conditional)
        chosen = {n: e for n, e in entries.items() if e[0].conditional == conditional}
        plain = {n: e for n, e in chosen.items() if e[0].code not in (AUROC, MATCHED)}
        if plain:
            codes = np.array([entry.code for entry, _ in plain.values()])
            options = np.array([option for _, option in plain.values()])
            out = np.empty((draws.n_resamples, labels.shape[1], len(plain)))

            def metric_work(start: int, stop: int, m: Any = members, e: Any = edges, o: Any = out, c: Any = (codes, options)) -> None:
                _metric_block(
                    key, start, m, e, table.rows, table.y, table.p, table.weight, table.unit, *c, o[start:stop]
                )

            _in_blocks(metric_work, draws.n_resamples, workers, progress)
            result |= {name: out[:, :, k] for k, name in enumerate(plain)}
        if "auroc" in chosen:
            area = np.empty((draws.n_resamples, labels.shape[1]))
            positive = table.y == 1

            def auroc_work(start: int, stop: int, m: Any = members, e: Any = edges, o: Any = area) -> None:
                _auroc_block(key, start, m, e, table.rows, positive, table.weight, table.last, table.unit, o[start:stop])

            _in_blocks(auroc_work, draws.n_resamples, workers, progress)
            result["auroc"] = area
        if "matched_auroc" in chosen:
            result["matched_auroc"] = _matched(
                table, labels, pretest, weight, chosen["matched_auroc"][1], draws, workers, progress
            )
    return {name: np.ascontiguousarray(result[name][:, 0] if single else result[name]) for name in asked}


def _matched(
    table: _Sorted,
    labels: Floats,
    pretest: ArrayLike | None,
    weight: ArrayLike | None,
    caliper: float,
    draws: Draws,
    workers: int | None,
    progress: Callable[[int], None] | None,
) -> Floats:
    if pretest is None:
        raise InputError("matched_auroc needs pretest, the pre-test probability of each row (and label)")
    if weight is not None:
        raise InputError("matched_auroc takes no weight: a row is in the matched set or not")
    q = np.asarray(pretest, dtype=np.float64)
    q = np.broadcast_to(q[:, None], labels.shape) if q.ndim == 1 else q
    if q.shape != labels.shape:
        raise InputError(f"y has shape {labels.shape} but pretest has shape {q.shape}; they must be equal")
    q = as_probabilities(np.where(np.isnan(labels), 0.0, q), "pretest", masked=True)
    by_context = np.empty(len(table.origin), dtype=np.int64)
    sorted_q = np.empty(len(table.origin))
    for label in range(labels.shape[1]):
        a, b = table.rows[label], table.rows[label + 1]
        values = q[table.origin[a:b], label]
        order = np.lexsort((table.y[a:b], values))
        by_context[a:b] = a + order
        sorted_q[a:b] = values[order]
    members, edges = draws.plan(True)
    key, positive = stream_key(draws.seed), table.y == 1
    out = np.empty((draws.n_resamples, labels.shape[1]))

    def work(start: int, stop: int) -> None:
        _matched_block(
            key,
            start,
            members,
            edges,
            table.rows,
            positive,
            table.last,
            table.unit,
            by_context,
            sorted_q,
            caliper,
            out[start:stop],
        )

    _in_blocks(work, draws.n_resamples, workers, progress)
    return out


def _option(name: str, given: dict[str, float]) -> float:
    metric: Metric = METRICS[name]
    value = metric.default
    if metric.option is not None and given.get(metric.option) is not None:
        value = float(given.pop(metric.option))
    unknown = [k for k, v in given.items() if v is not None and k != metric.option]
    if unknown:
        raise InputError(f"{name} takes no option {unknown[0]!r}, allowed: {metric.option or 'none'}")
    return value


def bootstrap(
    metric: str | CallableMetric,
    y: ArrayLike,
    p: ArrayLike,
    weight: ArrayLike | None = None,
    *,
    draws: Draws,
    pretest: ArrayLike | None = None,
    workers: int | None = None,
    progress: Callable[[int], None] | None = None,
    **option: float,
) -> Floats:
    """Replicates of one metric: shape (n_resamples,), or (n_resamples, labels) for two-dimensional y and p.

    A replicate that lacks a class is NaN. `metric` is a name of the catalogue or any function (y, p, weight) ->
    float, called with weight = weight * how often the row was drawn (slower, and drawn as if it depended on the
    prevalence).
    """
    if isinstance(metric, str):
        return bootstrap_many(
            {metric: option}, y, p, weight, draws=draws, pretest=pretest, workers=workers, progress=progress
        )[metric]
    labels, scores, weights, single = _checked(y, p, weight, draws, False)
    out = np.empty((draws.n_resamples, labels.shape[1]))
    valid = [np.flatnonzero(~np.isnan(labels[:, k])) for k in range(labels.shape[1])]
    for start in range(0, draws.n_resamples, LANES):
        stop = min(start + LANES, draws.n_resamples)
        counts = draws.counts(start, stop, conditional=False)
        for r in range(start, stop):
            times = weights * counts[draws.unit, r - start]
            for k, rows in enumerate(valid):
                out[r, k] = metric(labels[rows, k], scores[rows, k], times[rows])
        if progress is not None:
            progress(stop - start)
    return out[:, 0] if single else out


def bootstrap_auroc(
    y: ArrayLike,
    p: ArrayLike,
    weight: ArrayLike | None = None,
    clusters: ArrayLike | None = None,
    n_resamples: int = 10_000,
    seed: int = 0,
) -> Floats:
    """AUROC replicates, (n_resamples,) or, for two-dimensional y and p, (n_resamples, labels).

    Patients (`clusters`) are drawn with replacement, those with and without a positive label apart.

    >>> bootstrap_auroc([0, 1, 0, 1], [0.1, 0.9, 0.2, 0.8], n_resamples=3).tolist()
    [1.0, 1.0, 1.0]
    """
    draws = draw(clusters, y=y, n_resamples=n_resamples, seed=seed)
    return bootstrap("auroc", y, p, weight, draws=draws)
