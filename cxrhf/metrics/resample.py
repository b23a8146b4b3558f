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

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cxrhf.metrics.blocks import auroc_block, matched_block, metric_block, sum_block
from cxrhf.metrics.catalogue import AUROC, MATCHED, METRICS, SUMS, Metric, find_metric
from cxrhf.metrics.checks import (
    Floats,
    InputError,
    as_labels,
    as_probabilities,
    as_scores,
    as_weights,
    same_length,
)
from cxrhf.metrics.draws import LANES, Draws, draw, run_in_blocks
from cxrhf.metrics.streams import stream_key
from cxrhf.metrics.sums import SUM_METRICS, row_sums, unit_sums, value_of

__all__ = ["Draws", "bootstrap", "bootstrap_auroc", "bootstrap_many", "draw"]

CallableMetric = Callable[[Floats, Floats, Floats], float]


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

    `metrics`: names, or names with their option, as {"sensitivity_at_specificity": {"specificity": .9}}. `progress` is
    called with numbers of replicates, n_resamples in all.
    """
    asked = dict(metrics) if isinstance(metrics, Mapping) else {name: {} for name in metrics}
    entries = {name: (find_metric(name), _option(name, dict(given))) for name, given in asked.items()}
    probability = any(entry.probability for entry, _ in entries.values())
    labels, scores, weights, single = _checked(y, p, weight, draws, probability)
    table = _sort_labels(labels, scores, weights, draws.unit)
    progress = _over_stages(progress, [entry for entry, _ in entries.values()])
    result: dict[str, Floats] = {}
    rest: tuple[Any, ...]
    for conditional in (True, False):
        chosen = {name: entry for name, entry in entries.items() if entry[0].conditional == conditional}
        plain = {name: entry for name, entry in chosen.items() if entry[0].code not in (AUROC, MATCHED, SUMS)}
        if plain:
            codes = np.array([entry.code for entry, _ in plain.values()])
            options = np.array([option for _, option in plain.values()])
            rest = (table.y, table.p, table.weight, table.unit, codes, options)
            shape = (labels.shape[1], len(plain))
            out = _run(metric_block, (table.rows, *rest), shape, draws, conditional, workers, progress)
            result |= {name: out[:, :, k] for k, name in enumerate(plain)}
        summed = {name: entry[1] for name, entry in chosen.items() if entry[0].code == SUMS}
        if summed:
            result |= _from_sums(summed, labels, scores, weights, draws, conditional, workers, progress)
        if "auroc" in chosen:
            rest = (table.y == 1, table.weight, table.last, table.unit)
            result["auroc"] = _run(auroc_block, (table.rows, *rest), labels.shape[1:], draws, True, workers, progress)
        if "matched_auroc" in chosen:
            if weight is not None:
                raise InputError("matched_auroc takes no weight: a row is in the matched set or not")
            by_context, q = _sort_context(table, labels, pretest)
            rest = (table.y == 1, table.last, table.unit, by_context, q, chosen["matched_auroc"][1])
            result["matched_auroc"] = _run(
                matched_block, (table.rows, *rest), labels.shape[1:], draws, True, workers, progress
            )
    return {name: np.ascontiguousarray(result[name][:, 0] if single else result[name]) for name in asked}


def _over_stages(progress: Callable[[int], None] | None, entries: Sequence[Metric]) -> Callable[[int], None] | None:
    """Replicates pass through one stage for each kind of metric; what is reported adds up to n_resamples once."""
    kinds = {(entry.conditional, entry.code if entry.code in (AUROC, MATCHED, SUMS) else 1) for entry in entries}
    if progress is None or len(kinds) == 1:
        return progress
    waiting = [0]

    def shared(count: int) -> None:
        waiting[0] += count
        whole, waiting[0] = divmod(waiting[0], len(kinds))
        if whole:
            progress(whole)

    return shared


def _run(
    kernel: Callable[..., None],
    data: tuple[Any, ...],
    shape: tuple[int, ...],
    draws: Draws,
    conditional: bool,
    workers: int | None,
    progress: Callable[[int], None] | None,
) -> Floats:
    """Fill (n_resamples, *shape) by blocks of replicates."""
    members, edges = draws.plan(conditional)
    key = stream_key(draws.seed)
    out = np.empty((draws.n_resamples, *shape))
    run_in_blocks(
        lambda start, stop: kernel(key, start, members, edges, *data, out[start:stop]),
        draws.n_resamples,
        workers,
        progress,
    )
    return out


def _from_sums(
    metrics: Mapping[str, float],
    labels: Floats,
    scores: Floats,
    weights: Floats,
    draws: Draws,
    conditional: bool,
    workers: int | None,
    progress: Callable[[int], None] | None,
) -> dict[str, Floats]:
    """Metrics that are functions of sums: patients are summed once, replicates add patients."""
    result = {name: np.empty((draws.n_resamples, labels.shape[1])) for name in metrics}
    for label in range(labels.shape[1]):
        rows = np.flatnonzero(~np.isnan(labels[:, label]))
        # Metrics with the same columns and option share their sums.
        parts: dict[tuple[Any, float], list[str]] = {}
        for name, option in metrics.items():
            parts.setdefault((SUM_METRICS[name][0], _key(option)), []).append(name)
        own = [
            unit_sums(
                row_sums(names[0], labels[rows, label], scores[rows, label], weights[rows], metrics[names[0]]),
                draws.unit[rows],
                draws.n_units,
            )
            for names in parts.values()
        ]
        stacked = np.ascontiguousarray(np.concatenate(own, axis=1))
        sums = _run(sum_block, (stacked,), stacked.shape[1:], draws, conditional, workers, None)
        edges = np.cumsum([0, *(part.shape[1] for part in own)])
        for names, start, stop in zip(parts.values(), edges[:-1], edges[1:], strict=True):
            for name in names:
                result[name][:, label] = value_of(name, sums[:, start:stop], metrics[name])
    if progress is not None:
        progress(draws.n_resamples)
    return result


def _key(option: float) -> float:
    """NaN (no option) equals itself here."""
    return -np.inf if np.isnan(option) else option


def _sort_context(table: _Sorted, labels: Floats, pretest: ArrayLike | None) -> tuple[NDArray[np.int64], Floats]:
    """Each label's rows (places in the table) by pre-test probability and class, with those probabilities."""
    if pretest is None:
        raise InputError("matched_auroc needs pretest, the pre-test probability of each row (and label)")
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
    return by_context, sorted_q


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
