"""Labels, scores, weights and pre-test probabilities -> checked columns, sorted once for all replicates.

One column or many. NaN marks a missing label: its row is left out for that label only, and what stands beside it is
never looked at and may be missing too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cxrhf.metrics.checks import Floats, InputError, as_labels, as_probabilities, as_scores, as_weights, same_length
from cxrhf.metrics.draws import Draws


@dataclass(frozen=True, slots=True)
class Columns:
    """Checked matrices (rows x labels); `single` when the caller gave one column."""

    y: Floats
    p: Floats
    weight: Floats
    single: bool


class LabelRows(NamedTuple):
    """The labelled rows of one label by score; `last` ends a run of equal scores, `unit` is the row's patient."""

    origin: NDArray[np.int64]
    y: Floats
    p: Floats
    positive: NDArray[np.bool_]
    weight: Floats
    last: NDArray[np.bool_]
    unit: NDArray[np.int32]


class LabelContext(NamedTuple):
    """The same rows by pre-test probability and class: that probability, the row's class, patient and place by score.

    `tied`: some rows have the same probability and class.
    """

    pretest: Floats
    positive: NDArray[np.bool_]
    unit: NDArray[np.int32]
    place: NDArray[np.int32]
    tied: bool


def check_columns(
    y: ArrayLike, p: ArrayLike, weight: ArrayLike | None, draws: Draws, *, probability: bool = False
) -> Columns:
    """The door of the bootstrap. `weight` is one for each row, or one for each row and label."""
    labels = as_labels(y, masked=True)
    raw = np.asarray(p, dtype=object) if isinstance(p, (list, tuple)) else np.asarray(p)
    scores = raw if raw.dtype.kind == "f" else as_scores(p, masked=True)
    if np.shape(scores) != labels.shape:
        raise InputError(f"y has shape {labels.shape} but p has shape {np.shape(scores)}; they must be equal")
    missing = np.isnan(labels)
    scores = np.where(missing, 0.0, scores)
    scores = as_probabilities(scores, masked=True) if probability else as_scores(scores, masked=True)
    same_length(y=labels, draws=draws.unit)
    weights = _weights(weight, labels, missing)
    if labels.ndim == 1:
        return Columns(labels[:, None], scores[:, None], weights.reshape(-1, 1), True)
    return Columns(labels, scores, weights, False)


def _weights(weight: ArrayLike | None, labels: Floats, missing: NDArray[np.bool_]) -> Floats:
    """A weight for each label, whatever was given."""
    if weight is None or np.ndim(weight) != 2:
        weights = as_weights(weight, len(labels))
        return weights if labels.ndim == 1 else np.broadcast_to(weights[:, None], labels.shape)
    if np.shape(weight) != labels.shape:
        raise InputError(
            f"weight has shape {np.shape(weight)}, allowed: one for each of {len(labels)} rows, or the shape of y, "
            f"{labels.shape}"
        )
    given = as_scores(np.where(missing, 0.0, np.asarray(weight)), "weight", masked=True)
    if (given < 0).any():
        row, label = np.argwhere(given < 0)[0]
        raise InputError(f"weight[{row}, {label}] is {float(given[row, label])!r}, allowed: finite numbers >= 0")
    return given


def sort_label(columns: Columns, label: int, draws: Draws) -> LabelRows:
    """One label's rows by score."""
    valid = np.flatnonzero(~np.isnan(columns.y[:, label]))
    order = valid[np.argsort(columns.p[valid, label], kind="stable")]
    y, p = columns.y[order, label], columns.p[order, label]
    last = np.ones(len(p), dtype=np.bool_)
    last[:-1] = p[1:] != p[:-1]
    return LabelRows(order, y, p, y == 1, columns.weight[order, label], last, draws.unit[order])


def check_pretest(pretest: ArrayLike | None, labels: Floats, metric: str) -> Floats:
    """Pre-test probabilities of the labels' shape; given one for each row, or one for each row and label."""
    if pretest is None:
        raise InputError(f"{metric} needs pretest, the pre-test probability of each row (and label)")
    q = np.asarray(pretest, dtype=np.float64)
    q = np.broadcast_to(q[:, None], labels.shape) if q.ndim == 1 else q
    if q.shape != labels.shape:
        raise InputError(f"y has shape {labels.shape} but pretest has shape {q.shape}; they must be equal")
    return as_probabilities(np.where(np.isnan(labels), 0.0, q), "pretest", masked=True)


def sort_context(rows: LabelRows, pretest: Floats) -> LabelContext:
    """Rows of one label by pre-test probability."""
    own = pretest[rows.origin]
    order = np.lexsort((rows.positive, own))
    q, side = own[order], rows.positive[order]
    tied = bool(((q[1:] == q[:-1]) & (side[1:] == side[:-1])).any())
    return LabelContext(q, side, rows.unit[order], order.astype(np.int32), tied)
