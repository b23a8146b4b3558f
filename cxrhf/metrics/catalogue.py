"""Metric name -> its compiled kernel and what the engine must know of it (range, direction, what it may be drawn by).

The kernels are those of the metric functions themselves; this file only lets the resampling engine call one by
number inside a compiled loop, because compiled code that takes functions as arguments cannot be cached on disk.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit

from cxrhf.metrics.calibration import (
    ace_exact_sorted,
    brier_skill_sorted,
    brier_sorted,
    ece_sorted,
)
from cxrhf.metrics.checks import InputError
from cxrhf.metrics.operating import best_sorted, conservative_sorted, net_benefit_sorted, rates_sorted
from cxrhf.metrics.ranking import auprc_trapezoid_sorted, average_precision_sorted
from cxrhf.metrics.reliability import calibration_line_sorted


class Metric(NamedTuple):
    """`conditional`: a function of the scores within each class, whatever the prevalence; such a metric may be
    resampled with the number of positive patients held fixed. `option` names the one number it takes."""

    code: int
    higher_is_better: bool | None
    bounds: tuple[float, float]
    conditional: bool
    probability: bool
    option: str | None = None
    default: float = np.nan


_UNIT = (0.0, 1.0)
_LINE = (-np.inf, np.inf)

METRICS: dict[str, Metric] = {
    "auroc": Metric(0, True, _UNIT, True, False),
    "average_precision": Metric(1, True, _UNIT, False, False),
    "auprc_trapezoid": Metric(2, True, _UNIT, False, False),
    "brier": Metric(3, False, _UNIT, False, True),
    "brier_positive": Metric(4, False, _UNIT, True, True),
    "brier_negative": Metric(5, False, _UNIT, True, True),
    "balanced_brier": Metric(6, False, (0.0, 2.0), True, True),
    "brier_skill_score": Metric(7, True, (-np.inf, 1.0), False, True, "prevalence"),
    "adaptive_calibration_error": Metric(8, False, _UNIT, False, True, "bins", 10),
    "expected_calibration_error": Metric(9, False, _UNIT, False, True, "bins", 10),
    "calibration_slope": Metric(10, None, _LINE, False, True),
    "calibration_intercept": Metric(11, None, _LINE, False, True),
    "calibration_in_the_large": Metric(12, None, _LINE, False, True),
    "sensitivity_at_specificity": Metric(13, True, _UNIT, True, False, "specificity", 0.95),
    "tpr": Metric(14, True, _UNIT, True, False, "threshold", 0.5),
    "fpr": Metric(15, False, _UNIT, True, False, "threshold", 0.5),
    "precision": Metric(16, True, _UNIT, False, False, "threshold", 0.5),
    "npv": Metric(17, True, _UNIT, False, False, "threshold", 0.5),
    "f1": Metric(18, True, _UNIT, False, False, "threshold", 0.5),
    "mcc": Metric(19, True, (-1.0, 1.0), False, False, "threshold", 0.5),
    "j": Metric(20, True, (-1.0, 1.0), True, False, "threshold", 0.5),
    "max_f1": Metric(21, True, _UNIT, False, False),
    "youden": Metric(22, True, _UNIT, True, False),
    "net_benefit": Metric(23, True, _LINE, False, True, "threshold", 0.5),
    "prevalence": Metric(24, None, _UNIT, False, False),
    "matched_auroc": Metric(25, True, _UNIT, True, False, "caliper", np.inf),
}

AUROC = METRICS["auroc"].code
MATCHED = METRICS["matched_auroc"].code


def find_metric(name: str) -> Metric:
    """The entry of a metric, or an error that lists them."""
    if name not in METRICS:
        raise InputError(f"metric is {name!r}, allowed: {', '.join(METRICS)}, or a function (y, p, weight) -> float")
    return METRICS[name]


@njit(cache=True, nogil=True)
def evaluate_sorted(code: int, y: Any, p: Any, w: Any, option: float) -> float:
    """One metric of rows sorted by ascending score (AUROC and matched AUROC have loops of their own)."""
    if code == 1:
        return average_precision_sorted(y, p, w)
    if code == 2:
        return auprc_trapezoid_sorted(y, p, w)
    if code == 3:
        return brier_sorted(y, p, w, -1)
    if code == 4:
        return brier_sorted(y, p, w, 1)
    if code == 5:
        return brier_sorted(y, p, w, 0)
    if code == 6:
        return brier_sorted(y, p, w, 1) + brier_sorted(y, p, w, 0)
    if code == 7:
        return brier_skill_sorted(y, p, w, option)
    if code == 8:
        return ace_exact_sorted(y, p, w, int(option))
    if code == 9:
        return ece_sorted(y, p, w, int(option))
    if code == 10:
        return calibration_line_sorted(y, p, w, True)[1]
    if code == 11:
        return calibration_line_sorted(y, p, w, True)[0]
    if code == 12:
        return calibration_line_sorted(y, p, w, False)[0]
    if code == 13:
        return conservative_sorted(y, p, w, 1 - option, 0.0)[1]
    if 14 <= code <= 20:
        tpr, fpr, precision, npv, f1, mcc, j = rates_sorted(y, p, w, option)
        if code == 14:
            return tpr
        if code == 15:
            return fpr
        if code == 16:
            return precision
        if code == 17:
            return npv
        if code == 18:
            return f1
        return mcc if code == 19 else j
    if code == 21:
        return best_sorted(y, p, w, False)[1]
    if code == 22:
        return best_sorted(y, p, w, True)[1]
    if code == 23:
        return net_benefit_sorted(y, p, w, option)
    total = w.sum()
    return (w * y).sum() / total if total > 0 else np.nan
