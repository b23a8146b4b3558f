"""Labels, scores, weights and pre-test probabilities of one finding or many -> checked matrices, label by label.

One column or many; NaN marks a missing label, whose row is left out for that label only.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cxrhf.metrics.checks import (
    Floats,
    InputError,
    as_label_weights,
    as_labels,
    as_pretest,
    as_probabilities,
    as_scores,
    one_of,
    where_labelled,
)
from cxrhf.metrics.weighting import LEAST_SHARE, att_weights, effective_sample_size, ipw_weights


class Label(NamedTuple):
    """The labelled rows of one column; `at` are their places."""

    at: NDArray[np.intp]
    y: Floats
    p: Floats
    weight: Floats
    pretest: Floats


@dataclass(frozen=True, slots=True)
class Labels:
    """Checked matrices (rows x labels); `single` if the input had one column."""

    y: Floats
    p: Floats
    weight: Floats | None
    pretest: Floats | None
    single: bool

    def each(self) -> Iterator[Label]:
        """Label after label, without the rows whose label is missing."""
        for k in range(self.y.shape[1]):
            at = np.flatnonzero(~np.isnan(self.y[:, k]))
            weight = np.ones(len(at)) if self.weight is None else self.column(self.weight, k)[at]
            pretest = np.full(len(at), np.nan) if self.pretest is None else self.pretest[at, k]
            yield Label(at, self.y[at, k], self.p[at, k], weight, pretest)

    @staticmethod
    def column(values: Floats, k: int) -> Floats:
        """Column k, or the only one."""
        return values if values.ndim == 1 else values[:, k]


def labels_of(
    y: ArrayLike,
    p: ArrayLike,
    weight: ArrayLike | None = None,
    pretest: ArrayLike | None = None,
    *,
    probability: bool = False,
) -> Labels:
    """Check the shapes and ranges of all inputs; errors use the argument names of the `evaluate` modules."""
    labels = as_labels(y, "references", masked=True)
    single = labels.ndim == 1
    missing = np.isnan(labels)
    scores = where_labelled(p, missing, "predictions", "references")
    scores = (as_probabilities if probability else as_scores)(scores, "predictions", masked=True)
    weights = None if weight is None else as_label_weights(weight, missing, "sample_weight", "references")
    q = None if pretest is None else as_pretest(pretest, missing, "context", "references")
    if single:
        labels, scores, q = labels[:, None], scores[:, None], None if q is None else q[:, None]
    return Labels(labels, scores, weights, q, single)


def reweighted(rows: Labels, weighting: str = "att") -> Labels:
    """The same rows, weighted so that context cannot tell the classes apart ("att" or "ipw", times given weights)."""
    one_of(weighting, "weighting", ("att", "ipw"))
    weight = np.zeros(rows.y.shape)
    for k, label in enumerate(rows.each()):
        if weighting == "att":
            factor = att_weights(label.y, label.pretest)
        else:  # AUROC does not depend on the prevalence: it only scales each class
            factor = ipw_weights(label.y, label.pretest, 0.5)
        weight[label.at, k] = label.weight * factor
    return replace(rows, weight=weight)


def thin_classes(name: str, rows: Labels, label_names: Sequence[str] | None = None) -> dict[str, str]:
    """`name`_warning, when weighting leaves too little of a class to believe the number; else nothing."""
    said = []
    for key, label in zip(label_keys(label_names, rows.y.shape[1]), rows.each(), strict=True):
        size = effective_sample_size(label.weight, label.y)
        for side, effective, there in (
            ("positives", size.positive, int((label.y == 1).sum())),
            ("negatives", size.negative, int((label.y == 0).sum())),
        ):
            if there and effective < LEAST_SHARE * there:
                counted = f"{there:,} {side} count like {effective:,.1f} after weighting"
                said.append(counted if rows.single else f"{key}: {counted}")
    return {f"{name}_warning": "; ".join(said)} if said else {}


def options_by_label(given: Mapping[str, Any], n_labels: int) -> list[dict[str, Any]]:
    """Options of each label, those that are None left out."""
    for name, value in given.items():
        if isinstance(value, (list, tuple, np.ndarray)) and len(value) != n_labels:
            raise InputError(f"{name}: expected one value or one for each of {n_labels} labels, got {len(value)}")
    return [
        {
            name: value[k] if isinstance(value, (list, tuple, np.ndarray)) else value
            for name, value in given.items()
            if value is not None
        }
        for k in range(n_labels)
    ]


def by_label(values: Sequence[Any], label_names: Sequence[str] | None) -> list[Any] | dict[str, Any]:
    """One value a label: a list in the order of the columns, or a dict when the labels have names."""
    return list(values) if label_names is None else dict(zip(label_keys(label_names, len(values)), values, strict=True))


def label_keys(label_names: Sequence[str] | None, n_labels: int) -> list[str]:
    """The given names, checked, or "label 0", "label 1", ..."""
    if label_names is None:
        return [f"label {k}" for k in range(n_labels)]
    names = [str(each) for each in label_names]
    if len(names) != n_labels or len(set(names)) != n_labels:
        raise InputError(
            f"label_names: expected {n_labels} distinct names, got {len(names)} ({len(set(names))} distinct)"
        )
    return names
