"""Metric name -> its compiled kernel and what the engine must know of it (range, direction, what it may be drawn by).

The kernels are those of the metric functions themselves; this file only lets the resampling engine call one by
number inside a compiled loop, because compiled code that takes functions as arguments cannot be cached on disk.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from cxrhf.metrics.calibration import ace_exact_sorted
from cxrhf.metrics.checks import InputError
from cxrhf.metrics.compiled import compiled
from cxrhf.metrics.operating import best_sorted, conservative_sorted
from cxrhf.metrics.ranking import pr_area_sorted
from cxrhf.metrics.reliability import calibration_line_sorted, pav_sorted


class Metric(NamedTuple):
    """`conditional`: a function of the scores within each class, whatever the prevalence; such a metric may be
    resampled with the number of positive patients held fixed. `option` names the one number it takes. `matched`: of the
    matched set, which also takes a `caliper`; what it is there has the same `code`."""

    code: int
    higher_is_better: bool | None
    bounds: tuple[float, float]
    conditional: bool
    probability: bool
    option: str | None = None
    default: float = np.nan
    matched: bool = False


_UNIT = (0.0, 1.0)
_LINE = (-np.inf, np.inf)

SUMS = -1  # no kernel: a function of sums (sums.py)
AUROC = 0
PR_STEPS, PR_TRAPEZOID = 1, 2
ACE = 3
SLOPE, INTERCEPT, IN_THE_LARGE = 4, 5, 6
SENSITIVITY = 7
MAX_F1, YOUDEN = 8, 9
PAV_CALIBRATION, PAV_REFINEMENT = 10, 11
CODES = 12

METRICS: dict[str, Metric] = {
    "auroc": Metric(AUROC, True, _UNIT, True, False),
    "average_precision": Metric(PR_STEPS, True, _UNIT, False, False),
    "auprc_trapezoid": Metric(PR_TRAPEZOID, True, _UNIT, False, False),
    "brier": Metric(SUMS, False, _UNIT, False, True),
    "brier_positive": Metric(SUMS, False, _UNIT, True, True),
    "brier_negative": Metric(SUMS, False, _UNIT, True, True),
    "balanced_brier": Metric(SUMS, False, (0.0, 2.0), True, True),
    "brier_skill_score": Metric(SUMS, True, (-np.inf, 1.0), False, True, "prevalence"),
    "adaptive_calibration_error": Metric(ACE, False, _UNIT, False, True, "bins", 10),
    "expected_calibration_error": Metric(SUMS, False, _UNIT, False, True, "bins", 10),
    "observed_minus_predicted": Metric(SUMS, None, (-1.0, 1.0), False, True),
    "calibration_slope": Metric(SLOPE, None, _LINE, False, True),
    "calibration_intercept": Metric(INTERCEPT, None, _LINE, False, True),
    "calibration_in_the_large": Metric(IN_THE_LARGE, None, _LINE, False, True),
    "pav_calibration": Metric(PAV_CALIBRATION, False, _UNIT, False, True),
    "pav_refinement": Metric(PAV_REFINEMENT, False, (0.0, 0.25), False, True),
    "sensitivity_at_specificity": Metric(SENSITIVITY, True, _UNIT, True, False, "specificity", 0.95),
    "tpr": Metric(SUMS, True, _UNIT, True, False, "threshold", 0.5),
    "fpr": Metric(SUMS, False, _UNIT, True, False, "threshold", 0.5),
    "precision": Metric(SUMS, True, _UNIT, False, False, "threshold", 0.5),
    "npv": Metric(SUMS, True, _UNIT, False, False, "threshold", 0.5),
    "f1": Metric(SUMS, True, _UNIT, False, False, "threshold", 0.5),
    "mcc": Metric(SUMS, True, (-1.0, 1.0), False, False, "threshold", 0.5),
    "j": Metric(SUMS, True, (-1.0, 1.0), True, False, "threshold", 0.5),
    "max_f1": Metric(MAX_F1, True, _UNIT, False, False),
    "youden": Metric(YOUDEN, True, _UNIT, True, False),
    "net_benefit": Metric(SUMS, True, _LINE, False, True, "threshold", 0.5),
    "prevalence": Metric(SUMS, None, _UNIT, False, False),
    # Of the set matched 1:1 on pre-test probability, which has a prevalence of its own: one half.
    "matched_auroc": Metric(AUROC, True, _UNIT, True, False, "caliper", np.inf, matched=True),
    "matched_sensitivity": Metric(SENSITIVITY, True, _UNIT, True, False, "specificity", 0.95, matched=True),
}


def find_metric(name: str) -> Metric:
    """The entry of a metric, or an error that lists them."""
    if name not in METRICS:
        raise InputError(f"metric: expected {', '.join(METRICS)} or a function (y, p, weight) -> float, got {name!r}")
    return METRICS[name]


@compiled
def evaluate_sorted(code: int, y: Any, p: Any, w: Any, option: float) -> float:
    """One metric of rows sorted by ascending score: those that are neither sums nor AUROC, which have their own way."""
    if code in (PR_STEPS, PR_TRAPEZOID):
        return pr_area_sorted(y, p, w, code == PR_TRAPEZOID)
    if code == ACE:
        return ace_exact_sorted(y, p, w, int(option))
    if code == SLOPE:
        return calibration_line_sorted(y, p, w, True)[1]
    if code == INTERCEPT:
        return calibration_line_sorted(y, p, w, True)[0]
    if code == IN_THE_LARGE:
        return calibration_line_sorted(y, p, w, False)[0]
    if code == SENSITIVITY:
        return conservative_sorted(y, p, w, 1 - option, 0.0)[1]
    if code == PAV_CALIBRATION:
        return pav_sorted(y, p, w)[0]
    if code == PAV_REFINEMENT:
        return pav_sorted(y, p, w)[1]
    return best_sorted(y, p, w, code == YOUDEN)[1]
