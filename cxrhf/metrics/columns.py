"""Labels, scores, weights and pre-test probabilities -> checked columns, sorted once for all replicates.

One column or many. NaN marks a missing label: its row is left out for that label only, and what stands beside it is
never looked at and may be missing too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cxrhf.metrics.checks import (
    Floats,
    as_label_weights,
    as_labels,
    as_probabilities,
    as_scores,
    same_length,
    where_labelled,
)
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
    missing = np.isnan(labels)
    scores = where_labelled(p, missing, "p")
    scores = as_probabilities(scores, masked=True) if probability else as_scores(scores, masked=True)
    same_length(y=labels, draws=draws.unit)
    weights = np.ones(len(labels)) if weight is None else as_label_weights(weight, missing)
    if labels.ndim == 1:
        return Columns(labels[:, None], scores[:, None], weights[:, None], True)
    wide = weights if weights.ndim == 2 else np.broadcast_to(weights[:, None], labels.shape)
    return Columns(labels, scores, wide, False)


def sort_label(columns: Columns, label: int, draws: Draws) -> LabelRows:
    """One label's rows by score."""
    valid = np.flatnonzero(~np.isnan(columns.y[:, label]))
    order = valid[np.argsort(columns.p[valid, label], kind="stable")]
    y, p = columns.y[order, label], columns.p[order, label]
    last = np.ones(len(p), dtype=np.bool_)
    last[:-1] = p[1:] != p[:-1]
    return LabelRows(order, y, p, y == 1, columns.weight[order, label], last, draws.unit[order])


def sort_context(rows: LabelRows, pretest: Floats) -> LabelContext:
    """Rows of one label by pre-test probability."""
    own = pretest[rows.origin]
    order = np.lexsort((rows.positive, own))
    q, side = own[order], rows.positive[order]
    tied = bool(((q[1:] == q[:-1]) & (side[1:] == side[:-1])).any())
    return LabelContext(q, side, rows.unit[order], order.astype(np.int32), tied)
