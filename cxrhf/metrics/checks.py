"""Anything array-like -> checked float64 arrays, and the sentence that explains an undefined number.

Validation happens here, once, at the door of every public metric; the kernels behind it trust their input.
Undefined is not bad input: a group without positives is a fact about the data and gives NaN, for which
`undefined` has the sentence that RESULT.note carries.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]


# Missing values of float, numpy and pandas as text: numpy turns ["F", nan] into text without a word.
_MISSING = frozenset({"nan", "NaT", "<NA>"})


class InputError(ValueError):
    """An invalid argument of a metric. The message names the argument, the position and the value."""


def _rectangular(values: ArrayLike, name: str) -> NDArray[Any]:
    try:
        return np.asarray(values)
    except (ValueError, TypeError) as error:
        raise InputError(f"{name}: expected a rectangular array of numbers ({error})") from None


def _as_array(values: ArrayLike, name: str, ndim: tuple[int, ...]) -> Floats:
    raw = _rectangular(values, name)
    if raw.ndim not in ndim:
        wanted = " or ".join(f"{d}-D" for d in ndim)
        raise InputError(f"{name}: expected a {wanted} array, got shape {raw.shape}")
    if raw.dtype.kind not in "bfiu" and raw.size:
        raw = _numbers_or_complain(raw, name)
    return np.ascontiguousarray(raw, dtype=np.float64)


def _numbers_or_complain(raw: NDArray[Any], name: str) -> NDArray[Any]:
    """Object arrays may hold numbers and None (a null becomes NaN); text never counts as a number."""
    flat = raw.ravel()
    for position, value in enumerate(flat):
        if value is not None and not isinstance(value, (int, float, np.integer, np.floating, np.bool_)):
            where = np.unravel_index(position, raw.shape)
            shown = str(value) if isinstance(value, np.str_) else value
            raise InputError(
                f"{name}{_at(where)}: expected a number, got {shown!r} ({type(shown).__name__}). "
                f"Convert {name} first, for example with numpy.asarray({name}, dtype=float)."
            )
    try:
        numbers: NDArray[Any] = raw.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"{name}: expected numbers ({error})") from None
    return numbers


def _at(where: tuple[Any, ...]) -> str:
    return "[" + ", ".join(str(int(i)) for i in where) + "]"


def _refuse(values: Floats, bad: NDArray[np.bool_], name: str, allowed: str) -> None:
    if bad.any():
        where = np.unravel_index(int(np.argmax(bad)), values.shape)
        more = int(bad.sum()) - 1
        others = f" (and {more} more)" if more else ""
        raise InputError(f"{name}{_at(where)}: expected {allowed}, got {float(values[where])!r}{others}")


def as_labels(y: ArrayLike, name: str = "y", *, masked: bool = False) -> Floats:
    """Check 0/1 labels and convert them to float64. With `masked`, 2-D and missing labels (NaN, None) are allowed."""
    values = _as_array(y, name, (1, 2) if masked else (1,))
    bad = (values != 0) & (values != 1)
    if masked:
        _refuse(values, bad & ~np.isnan(values), name, "0, 1 or null")
    else:
        _refuse(values, bad, name, "0 or 1 (drop or mask missing labels first)")
    return values


def as_scores(p: ArrayLike, name: str = "p", *, masked: bool = False) -> Floats:
    """Check finite scores of any range and convert them to float64. With `masked`, 2-D is allowed."""
    values = _as_array(p, name, (1, 2) if masked else (1,))
    _refuse(values, ~np.isfinite(values), name, "a finite number")
    return values


def as_probabilities(p: ArrayLike, name: str = "p", *, masked: bool = False) -> Floats:
    """Check probabilities in [0, 1] and convert them to float64. With `masked`, 2-D is allowed."""
    values = as_scores(p, name, masked=masked)
    _refuse(values, (values < 0) | (values > 1), name, "a probability from 0 to 1")
    return values


def as_weights(weight: ArrayLike | None, n: int, name: str = "weight") -> Floats:
    """Check finite weights >= 0 and convert them to float64. None means 1 for every row."""
    if weight is None:
        return np.ones(n)
    values = _as_array(weight, name, (1,))
    _refuse(values, ~np.isfinite(values) | (values < 0), name, "a finite number >= 0")
    if len(values) != n:
        raise InputError(f"{name}: expected {n} rows, got {len(values)}")
    return values


def where_labelled(values: ArrayLike, missing: NDArray[np.bool_], name: str, labels: str = "y") -> NDArray[Any]:
    """Values of the labels' shape, 0 beside a missing label: what stands there is never looked at, and may be missing.

    Not checked otherwise: text stays text, for the check that follows to name.
    """
    raw = _rectangular(values, name)
    if raw.shape != missing.shape:
        raise InputError(f"{name}: expected shape {missing.shape} as in {labels}, got {raw.shape}")
    if not missing.any():
        return raw
    return np.where(missing, 0.0, raw.astype(object) if raw.dtype.kind in "US" else raw)


def as_label_weights(weight: ArrayLike, missing: NDArray[np.bool_], name: str = "weight", labels: str = "y") -> Floats:
    """Weights as they were given: one for each row, or one for each row and label."""
    if np.ndim(weight) != 2:
        return as_weights(weight, len(missing), name)
    values = as_scores(where_labelled(weight, missing, name, labels), name, masked=True)
    _refuse(values, values < 0, name, "a finite number >= 0")
    return values


def as_pretest(pretest: ArrayLike, missing: NDArray[np.bool_], name: str = "pretest", labels: str = "y") -> Floats:
    """Pre-test probabilities of the labels' shape; given one for each row, or one for each row and label."""
    raw = _rectangular(pretest, name)
    if raw.ndim == 1 and missing.ndim == 2 and len(raw) == len(missing):
        raw = np.broadcast_to(raw[:, None], missing.shape)
    return as_probabilities(where_labelled(raw, missing, name, labels), name, masked=True)


def is_missing(value: Any) -> bool:
    """Whether a name (of a group, of a patient) is None, NaN or a missing value of pandas, or such a value as text."""
    return value is None or str(value) in _MISSING


def as_clusters(clusters: ArrayLike) -> NDArray[Any]:
    """The patient of each row, of any type; every row needs one."""
    raw: NDArray[Any] = np.asarray(clusters)
    if raw.ndim != 1:
        raise InputError(f"clusters: expected one patient per row, got shape {raw.shape}")
    if raw.dtype.kind == "f":
        missing = np.flatnonzero(np.isnan(raw))[:1].tolist()
    elif raw.dtype.kind in "biu":
        missing = []
    else:
        missing = [position for position, value in enumerate(raw.tolist()) if is_missing(value)][:1]
    for position in missing:
        raise InputError(f"clusters[{position}]: expected a patient in every row, got {raw.tolist()[position]!r}")
    return raw


def as_fraction(value: float, name: str) -> float:
    """A number strictly between 0 and 1."""
    if not (isinstance(value, (int, float, np.number)) and 0 < value < 1):
        raise InputError(f"{name}: expected a number between 0 and 1, got {value!r}")
    return float(value)


def as_count(value: int, name: str, least: int = 1) -> int:
    """A whole number of at least `least`."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < least:
        raise InputError(f"{name}: expected a whole number >= {least}, got {value!r}")
    return int(value)


def one_of(value: str, name: str, allowed: tuple[str, ...]) -> str:
    """One of the named options."""
    if value not in allowed:
        raise InputError(f"{name}: expected {' or '.join(map(repr, allowed))}, got {value!r}")
    return value


def as_texts(texts: Iterable[str], name: str = "texts") -> list[str]:
    """A list of str, or an InputError that names the first entry that is none."""
    if isinstance(texts, (str, bytes)):
        raise InputError(f"{name}: expected a list of str, one per report, got {type(texts).__name__} {texts[:40]!r}")
    rows = list(texts)
    for position, text in enumerate(rows):
        if not isinstance(text, str):
            raise InputError(
                f"{name}[{position}]: expected str, got {text!r:.60} ({type(text).__name__}). "
                "Drop the row, or pass '' for an empty report."
            )
    return rows


def same_length(**arrays: NDArray[Any]) -> None:
    """All arrays have as many rows as the first."""
    (first, reference), *rest = arrays.items()
    for name, values in rest:
        if len(values) != len(reference):
            raise InputError(f"{name}: expected {len(reference)} rows as in {first}, got {len(values)}")


def binary_input(
    y: ArrayLike, p: ArrayLike, weight: ArrayLike | None, *, probability: bool = False
) -> tuple[Floats, Floats, Floats]:
    """The door of every metric of labels and scores."""
    labels = as_labels(y)
    scores = as_probabilities(p) if probability else as_scores(p)
    same_length(y=labels, p=scores)
    return labels, scores, as_weights(weight, len(labels))


# What each metric needs before it is a number. Metrics that are not listed need only some weight.
_BOTH = frozenset(
    {
        "auroc",
        "average_precision",
        "auprc_trapezoid",
        "balanced_brier",
        "brier_skill_score",
        "calibration_slope",
        "calibration_intercept",
        "calibration_in_the_large",
        "calibration_line",
        "youden_threshold",
        "j",
        "sensitivity_at_specificity",
        "youden",
        "mcc",
        "matched_auroc",
        "matched_sensitivity",
        "delong",
    }
)
_POSITIVES = frozenset({"brier_positive", "tpr", "f1", "max_f1", "max_f1_threshold"})
_NEGATIVES = frozenset({"brier_negative", "fpr", "threshold_at_fpr"})


def undefined(metric: str, y: ArrayLike, weight: ArrayLike | None = None) -> str | None:
    """Explain why `metric` is NaN on these labels. None if the labels alone do not make it undefined.

    >>> undefined("auroc", [0, 0, 0])
    'auroc is undefined: no positives among 3 rows'
    """
    labels = as_labels(y)
    weights = as_weights(weight, len(labels))
    if len(labels) == 0:
        return f"{metric} is undefined: no rows"
    if weights.sum() == 0:
        return f"{metric} is undefined: all {len(labels)} rows have weight 0"
    lacks = []
    if metric in _BOTH | _POSITIVES and weights[labels == 1].sum() == 0:
        lacks.append("positives")
    if metric in _BOTH | _NEGATIVES and weights[labels == 0].sum() == 0:
        lacks.append("negatives")
    if lacks:
        return f"{metric} is undefined: no {' and no '.join(lacks)} among {len(labels)} rows"
    return None


# A proportion and the number of independent trials behind it -> Wilson's interval, which stays within 0 and 1.


def wilson(share: float, trials: float, quantile: float) -> tuple[float, float]:
    """Where the share lies `quantile` standard errors away, with the standard error that a share there would have.

    `trials` need not be whole. 1.96, or Student's t where the trials are themselves an estimate.

    >>> [round(end, 4) for end in wilson(0.0, 10, 1.96)]
    [0.0, 0.2775]
    """
    z = quantile**2 / trials
    centre = (share + z / 2) / (1 + z)
    half = math.sqrt(z * share * (1 - share) + z * z / 4) / (1 + z)
    return max(centre - half, 0.0), min(centre + half, 1.0)
