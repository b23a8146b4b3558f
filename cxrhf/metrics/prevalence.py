"""Scores within the classes -> what the same model reaches where the finding is rarer or more frequent.

Assumes that positives and negatives look to the model as they do here and only their shares change. Sensitivity,
specificity, AUROC and balanced Brier then stay; precision, NPV, Brier, average precision and net benefit follow from
numbers within the classes. Weighting the positives to the new prevalence gives the same values.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cxrhf.metrics.calibration import correct_prevalence
from cxrhf.metrics.checks import Floats, InputError, as_fraction, binary_input, same_length
from cxrhf.metrics.compiled import compiled
from cxrhf.metrics.draws import Draws, draw_counts, run_in_blocks, stream_key


class Walk(NamedTuple):
    """What one pass down the scores of each label gives; replicates come first.

    `sums` (labels, thresholds, 4): weight of positives, of negatives, and of those of each that are called positive.
    `average_precision` (labels, prevalences).
    """

    sums: Floats
    average_precision: Floats


def _share(top: ArrayLike, other: ArrayLike) -> Floats:
    """top / (top + other), NaN where both are 0."""
    a, b = np.broadcast_arrays(np.asarray(top, dtype=np.float64), np.asarray(other, dtype=np.float64))
    return np.divide(a, a + b, out=np.full(a.shape, np.nan), where=a + b > 0)


def precision_at_prevalence(tpr: ArrayLike, fpr: ArrayLike, prevalence: ArrayLike) -> Floats:
    """Precision (positive predictive value, PPV) at a given prevalence. NaN if no row is predicted positive.

    >>> precision_at_prevalence(0.8, 0.1, [0.5, 0.01]).round(4).tolist()
    [0.8889, 0.0748]
    """
    pi = np.asarray(prevalence, dtype=np.float64)
    return _share(pi * np.asarray(tpr), (1 - pi) * np.asarray(fpr))


def npv_at_prevalence(tpr: ArrayLike, fpr: ArrayLike, prevalence: ArrayLike) -> Floats:
    """Negative predictive value (NPV) at a given prevalence. NaN if all rows are predicted positive.

    >>> npv_at_prevalence(0.8, 0.1, [0.5, 0.01]).round(4).tolist()
    [0.8182, 0.9978]
    """
    pi = np.asarray(prevalence, dtype=np.float64)
    return _share((1 - pi) * (1 - np.asarray(fpr)), pi * (1 - np.asarray(tpr)))


def brier_at_prevalence(positive: ArrayLike, negative: ArrayLike, prevalence: ArrayLike) -> Floats:
    """Brier score at a given prevalence, from Brier+ and Brier- of the classes. Probabilities stay unchanged."""
    pi = np.asarray(prevalence, dtype=np.float64)
    return np.asarray(pi * np.asarray(positive) + (1 - pi) * np.asarray(negative), dtype=np.float64)


def net_benefit_at_prevalence(tpr: ArrayLike, fpr: ArrayLike, prevalence: ArrayLike, risk: float) -> Floats:
    """Net benefit of treating at a risk of `risk` and a given prevalence. If both rates are 1, everyone is treated."""
    odds = as_fraction(risk, "risk") / (1 - risk)
    pi = np.asarray(prevalence, dtype=np.float64)
    return np.asarray(pi * np.asarray(tpr) - (1 - pi) * np.asarray(fpr) * odds, dtype=np.float64)


def threshold_for_risk(risk: float, source: float, target: float) -> float:
    """Probability at prevalence `source` that corresponds to a risk of `risk` at prevalence `target`.

    >>> round(threshold_for_risk(0.1, source=0.5, target=0.1), 6)
    0.5
    """
    if source == target:
        return float(as_fraction(risk, "risk"))  # without the rounding of there and back
    return float(correct_prevalence([risk], source=target, target=source)[0])


def average_precision_at_prevalence(
    y: ArrayLike, p: ArrayLike, prevalence: float, weight: ArrayLike | None = None
) -> float:
    """Average precision with the classes weighted to a given prevalence; 0 to 1, higher is better.

    The value expected by chance is that prevalence. NaN without positives or without negatives.
    """
    labels, scores, weights = binary_input(y, p, weight)
    asked = np.array([[as_fraction(prevalence, "prevalence")]])
    found = walk(labels[:, None], scores[:, None], weights[:, None], np.empty((1, 0)), asked)
    return float(found.average_precision[0, 0])


class _Sorted(NamedTuple):
    """Rows of all labels, label after label, each by descending score; `rows` are the edges."""

    rows: NDArray[np.int64]
    origin: NDArray[np.int64]
    y: Floats
    weight: Floats
    last: NDArray[np.bool_]
    cuts: NDArray[np.int64]  # (labels, thresholds): rows called positive, ascending
    places: NDArray[np.int64]  # where each asked threshold stands among the sorted cuts


def _sorted(y: Floats, p: Floats, weight: Floats, thresholds: Floats) -> _Sorted:
    same_length(y=y, p=p, weight=weight)
    if not y.shape == p.shape == weight.shape or len(thresholds) != y.shape[1]:
        shapes = f"{y.shape}, {p.shape}, {weight.shape}, {thresholds.shape}"
        raise InputError(f"y, p, weight and thresholds: expected one column (row) per label, got shapes {shapes}")
    parts, ys, weights, lasts = [], [], [], []
    cuts = np.zeros(thresholds.shape, dtype=np.int64)
    for label in range(y.shape[1]):
        valid = np.flatnonzero(~np.isnan(y[:, label]))
        order = valid[np.argsort(-p[valid, label], kind="stable")]
        scores = p[order, label]
        parts.append(order)
        ys.append(y[order, label])
        weights.append(weight[order, label])
        lasts.append(np.r_[scores[1:] != scores[:-1], True] if len(order) else np.zeros(0, dtype=np.bool_))
        cuts[label] = np.searchsorted(-scores, -thresholds[label], side="right")
    rows = np.r_[0, np.cumsum([len(part) for part in parts])].astype(np.int64)
    ranked = np.argsort(cuts, axis=1, kind="stable")
    return _Sorted(
        rows,
        np.concatenate(parts),
        np.concatenate(ys),
        np.concatenate(weights),
        np.concatenate(lasts),
        np.take_along_axis(cuts, ranked, axis=1),
        np.argsort(ranked, axis=1, kind="stable"),
    )


@compiled
def _walk_sorted(y: Any, w: Any, last: Any, cuts: Any, prevalences: Any, points: Any, sums: Any, areas: Any) -> None:
    """One label, rows by descending score: sums of what is called above each cut, average precision at prevalences.

    Precision matters only where a positive is met, so those points (one each, at most) are kept aside until the class
    totals are known.
    """
    hits, alarms, recalled = 0.0, 0.0, 0.0
    met, i = 0, 0
    for c in range(cuts.shape[0] + 1):
        stop = cuts[c] if c < cuts.shape[0] else y.shape[0]
        while i < stop:
            hits += w[i] * y[i]
            alarms += w[i] * (1 - y[i])
            if last[i] and hits > recalled:
                points[met, 0], points[met, 1], points[met, 2] = hits - recalled, hits, alarms
                recalled = hits
                met += 1
            i += 1
        if c < cuts.shape[0]:
            sums[c, 2], sums[c, 3] = hits, alarms
    sums[:, 0] = hits
    sums[:, 1] = alarms
    for g in range(prevalences.shape[0]):
        areas[g] = np.nan
        if hits > 0 and alarms > 0:
            charge = (1 - prevalences[g]) / prevalences[g] * hits / alarms
            area = 0.0
            for k in range(met):
                area += points[k, 0] * points[k, 1] / (points[k, 1] + charge * points[k, 2])
            areas[g] = area / hits


@compiled
def _walk_block(
    key: Any,
    first: int,
    members: Any,
    edges: Any,
    rows: Any,
    y: Any,
    weight: Any,
    last: Any,
    unit: Any,
    cuts: Any,
    prevalences: Any,
    sums: Any,
    areas: Any,
) -> None:
    counts = np.empty((members.shape[0], 1), dtype=np.uint8)
    w = np.empty(y.shape[0])
    most = 0
    for k in range(rows.shape[0] - 1):
        most = max(most, int(y[rows[k] : rows[k + 1]].sum()))
    points = np.empty((most, 3))
    for r in range(sums.shape[0]):
        counts[:] = 0
        draw_counts(key, first + r, members, edges, counts)
        for i in range(y.shape[0]):
            w[i] = weight[i] * counts[unit[i], 0]
        for k in range(rows.shape[0] - 1):
            a, b = rows[k], rows[k + 1]
            _walk_sorted(y[a:b], w[a:b], last[a:b], cuts[k], prevalences[k], points, sums[r, k], areas[r, k])


def walk(y: Floats, p: Floats, weight: Floats, thresholds: Floats, prevalences: Floats) -> Walk:
    """Sums at thresholds and average precision at prevalences of every label.

    y, p, weight: (rows, labels), NaN labels masked. thresholds, prevalences: (labels, any number). `p >= threshold` is
    called positive, infinity calls nothing. Average precision is NaN without either class.
    """
    table = _sorted(y, p, weight, thresholds)
    sums, areas = np.empty((*thresholds.shape, 4)), np.empty(prevalences.shape)
    points = np.empty((int(table.y.sum()), 3))
    for k in range(y.shape[1]):
        a, b = table.rows[k], table.rows[k + 1]
        rows = (table.y[a:b], table.weight[a:b], table.last[a:b], table.cuts[k])
        _walk_sorted(*rows, prevalences[k], points, sums[k], areas[k])
    return Walk(np.take_along_axis(sums, table.places[..., None], axis=1), areas)


def bootstrap_walk(
    y: Floats,
    p: Floats,
    weight: Floats,
    thresholds: Floats,
    prevalences: Floats,
    *,
    draws: Draws,
    conditional: bool = True,
    workers: int | None = None,
    progress: Callable[[int], None] | None = None,
) -> Walk:
    """Replicates of `walk`, thresholds held fixed, (n_resamples, labels, ...).

    What depends on the classes alone is drawn with the patients who have any positive held fixed (`conditional`), as
    everywhere in the engine; what depends on the sample's own prevalence is not.
    """
    table = _sorted(y, p, weight, thresholds)
    same_length(y=y, draws=draws.unit)
    members, edges = draws.plan(conditional)
    key, unit = stream_key(draws.seed), draws.unit[table.origin]
    sums = np.empty((draws.n_resamples, *thresholds.shape, 4))
    areas = np.empty((draws.n_resamples, *prevalences.shape))
    data = (table.rows, table.y, table.weight, table.last, unit, table.cuts, np.ascontiguousarray(prevalences))

    def work(start: int, stop: int) -> None:
        _walk_block(key, start, members, edges, *data, sums[start:stop], areas[start:stop])

    run_in_blocks(work, draws.n_resamples, workers, progress)
    return Walk(np.take_along_axis(sums, table.places[None, ..., None], axis=2), areas)
