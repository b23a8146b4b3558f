"""Rows -> a few weighted sums -> Brier scores, skill, calibration in bins and in the large, prevalence, rates.

Each of these metrics is a function of sums over rows, and is defined here once, in two steps: what each row adds
(`row_sums`) and the value of the sums (`value_of`). The value of a sample sums its rows; a bootstrap replicate adds up
its patients' sums as often as they were drawn, a permutation those of the patients dealt to each side, so neither
looks at rows again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cxrhf.metrics.checks import Floats

# Rows whose sums are held at once.
_ROWS = 1 << 16

Sums = NDArray[np.float64]  # (..., columns); the first two are always the weight of positives and of negatives


def _ratio(top: Floats, bottom: Floats) -> Floats:
    """top / bottom, NaN where there is nothing to divide by."""
    return np.divide(top, bottom, out=np.full(np.shape(top), np.nan), where=bottom > 0)


# What a row adds: (y, p, option) -> columns, before its weight.


def _classes(y: Floats, p: Floats, option: float) -> list[Floats]:
    return [y, 1 - y]


def _squared(y: Floats, p: Floats, option: float) -> list[Floats]:
    return [y, 1 - y, y * (p - 1) ** 2, (1 - y) * p**2]


def _excess(y: Floats, p: Floats, option: float) -> list[Floats]:
    return [y, 1 - y, y - p]


def _called_columns(y: Floats, p: Floats, threshold: float) -> list[Floats]:
    called = (p >= threshold).astype(np.float64)
    return [y, 1 - y, y * called, (1 - y) * called]


def equal_width_bins(p: Floats, n: int) -> NDArray[np.int64]:
    """The place of each probability among n bins [k/n, (k+1)/n); the last one takes 1.

    .29 * 100 is 28.999... in floating point, so the edges themselves decide.
    """
    return np.asarray(np.searchsorted(np.arange(1, n) / n, p, side="right"), dtype=np.int64)


def _gaps(y: Floats, p: Floats, bins: float) -> Iterator[Floats]:
    n = int(bins)
    place = equal_width_bins(p, n)
    yield from (y, 1 - y)
    yield from (np.where(place == cell, p - y, 0.0) for cell in range(n))


# What the sums say: (sums, option) -> value, over any leading axes.


def _prevalence(s: Sums, option: float) -> Floats:
    return _ratio(s[..., 0], s[..., 0] + s[..., 1])


def _brier(s: Sums, option: float) -> Floats:
    return _ratio(s[..., 2] + s[..., 3], s[..., 0] + s[..., 1])


def _brier_positive(s: Sums, option: float) -> Floats:
    return _ratio(s[..., 2], s[..., 0])


def _brier_negative(s: Sums, option: float) -> Floats:
    return _ratio(s[..., 3], s[..., 1])


def _balanced_brier(s: Sums, option: float) -> Floats:
    return _brier_positive(s, option) + _brier_negative(s, option)


def _brier_skill(s: Sums, prevalence: float) -> Floats:
    """1 - Brier / Brier of a constant forecast: the sample's own prevalence unless one is given."""
    positives, negatives = s[..., 0], s[..., 1]
    constant = _prevalence(s, 0.0) if np.isnan(prevalence) else prevalence
    reference = positives * (1 - constant) ** 2 + negatives * constant**2
    both = (positives > 0) & (negatives > 0)
    return 1 - _ratio(s[..., 2] + s[..., 3], np.where(both, reference, 0.0))


def _gap(s: Sums, option: float) -> Floats:
    return _ratio(np.abs(s[..., 2:]).sum(axis=-1), s[..., 0] + s[..., 1])


def _signed_gap(s: Sums, option: float) -> Floats:
    return _ratio(s[..., 2], s[..., 0] + s[..., 1])


def _tpr(s: Sums, option: float) -> Floats:
    return _ratio(s[..., 2], s[..., 0])


def _fpr(s: Sums, option: float) -> Floats:
    return _ratio(s[..., 3], s[..., 1])


def _precision(s: Sums, option: float) -> Floats:
    return _ratio(s[..., 2], s[..., 2] + s[..., 3])


def _called_negative(s: Sums) -> tuple[Floats, Floats]:
    """Weight of positives and negatives called negative; what rounding leaves of equal sums is nothing."""
    missed, cleared = s[..., 0] - s[..., 2], s[..., 1] - s[..., 3]
    return np.where(missed > 1e-12 * s[..., 0], missed, 0.0), np.where(cleared > 1e-12 * s[..., 1], cleared, 0.0)


def _npv(s: Sums, option: float) -> Floats:
    missed, cleared = _called_negative(s)
    return _ratio(cleared, missed + cleared)


def _f1(s: Sums, option: float) -> Floats:
    return np.where(s[..., 0] > 0, _ratio(2 * s[..., 2], s[..., 2] + s[..., 3] + s[..., 0]), np.nan)


def _mcc(s: Sums, option: float) -> Floats:
    hits, alarms = s[..., 2], s[..., 3]
    missed, cleared = _called_negative(s)
    scale = np.sqrt(hits + alarms) * np.sqrt(hits + missed) * np.sqrt(cleared + alarms) * np.sqrt(cleared + missed)
    return _ratio(hits * cleared - alarms * missed, scale)


def _j(s: Sums, option: float) -> Floats:
    return _tpr(s, option) - _fpr(s, option)


def _net_benefit(s: Sums, threshold: float) -> Floats:
    return _ratio(s[..., 2] - s[..., 3] * (threshold / (1 - threshold)), s[..., 0] + s[..., 1])


_Columns = Callable[[Floats, Floats, float], Iterable[Floats]]
_Value = Callable[[Sums, float], Floats]

SUM_METRICS: dict[str, tuple[_Columns, _Value]] = {
    "prevalence": (_classes, _prevalence),
    "brier": (_squared, _brier),
    "brier_positive": (_squared, _brier_positive),
    "brier_negative": (_squared, _brier_negative),
    "balanced_brier": (_squared, _balanced_brier),
    "brier_skill_score": (_squared, _brier_skill),
    "expected_calibration_error": (_gaps, _gap),
    "observed_minus_predicted": (_excess, _signed_gap),
    "tpr": (_called_columns, _tpr),
    "fpr": (_called_columns, _fpr),
    "precision": (_called_columns, _precision),
    "npv": (_called_columns, _npv),
    "f1": (_called_columns, _f1),
    "mcc": (_called_columns, _mcc),
    "j": (_called_columns, _j),
    "net_benefit": (_called_columns, _net_benefit),
}


def row_sums(name: str, y: Floats, p: Floats, weight: Floats, option: float) -> Floats:
    """What each row adds to the sums of a metric, shape (rows, columns)."""
    return np.column_stack([column * weight for column in SUM_METRICS[name][0](y, p, option)])


def total_sums(name: str, y: Floats, p: Floats, weight: Floats, option: float) -> Sums:
    """The sums of all rows: those of `row_sums`, without holding what millions of rows add."""
    parts = [slice(start, start + _ROWS) for start in range(0, len(y), _ROWS)] or [slice(0)]
    total = row_sums(name, y[parts[0]], p[parts[0]], weight[parts[0]], option).sum(axis=0)
    for part in parts[1:]:  # row after row, as one sum over all rows adds them: the result is the same to the bit
        total = np.vstack([total, row_sums(name, y[part], p[part], weight[part], option)]).sum(axis=0)
    return total


def value_of(name: str, sums: Sums, option: float) -> Floats:
    """The metric of its sums; leading axes (replicates) are kept."""
    return SUM_METRICS[name][1](sums, option)


def sum_metric(name: str, y: Floats, p: Floats, weight: Floats, option: float = np.nan) -> float:
    """The metric of one sample."""
    return float(value_of(name, total_sums(name, y, p, weight, option), option))


def unit_sums(sums: Floats, unit: NDArray[Any], n_units: int) -> Floats:
    """Sums of each unit (patient) from those of its rows."""
    out = np.zeros((n_units, sums.shape[1]))
    for column in range(sums.shape[1]):
        out[:, column] = np.bincount(unit, sums[:, column], n_units)
    return out


def sums_by_unit(
    name: str, y: Floats, p: Floats, weight: Floats, option: float, unit: NDArray[Any], n_units: int
) -> Floats:
    """The same of a metric, one column of rows at a time."""
    columns = SUM_METRICS[name][0](y, p, option)
    return np.column_stack([np.bincount(unit, column * weight, n_units) for column in columns])
