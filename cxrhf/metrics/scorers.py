"""Name of a metric -> a scikit-learn scorer with the right sign, fed with probabilities where it needs them.

    cross_validate(model, X, y, groups=patient, cv=StratifiedGroupKFold(5), scoring=scorer("brier_skill_score"))

One finding at a time, labels 0 and 1. scikit-learn maximises, so a metric whose lower values are better comes back with
a minus, as from scikit-learn's own "neg_" scorers. A fold in which a metric is undefined scores NaN, and a warning says
why. What scikit-learn makes of it: the mean over folds is NaN, and as all candidates of a grid search share their
folds, all of them are NaN, all rank first, and the first is called the best. Use folds that hold both classes
(StratifiedGroupKFold), or pool out-of-fold predictions.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from cxrhf.metrics.calibration import (
    adaptive_calibration_error,
    balanced_brier,
    brier,
    brier_negative,
    brier_positive,
    brier_skill_score,
    expected_calibration_error,
)
from cxrhf.metrics.catalogue import METRICS, find_metric
from cxrhf.metrics.checks import InputError, undefined
from cxrhf.metrics.matching import matched_auroc
from cxrhf.metrics.operating import Rates, net_benefit, rates_at, sensitivity_at_specificity
from cxrhf.metrics.ranking import auprc_trapezoid, auroc, average_precision
from cxrhf.metrics.reliability import pav_decomposition

_FUNCTIONS: dict[str, Callable[..., Any]] = {
    each.__name__: each
    for each in (
        auroc,
        average_precision,
        auprc_trapezoid,
        brier,
        brier_positive,
        brier_negative,
        balanced_brier,
        brier_skill_score,
        adaptive_calibration_error,
        expected_calibration_error,
        sensitivity_at_specificity,
        net_benefit,
        matched_auroc,
    )
} | dict.fromkeys(Rates._fields, rates_at)
_FUNCTIONS |= dict.fromkeys(("pav_calibration", "pav_refinement"), pav_decomposition)
# One field of what the function returns.
_FIELDS = {
    "sensitivity_at_specificity": "sensitivity",
    "pav_calibration": "calibration",
    "pav_refinement": "refinement",
} | {name: name for name in Rates._fields}


def scorer(metric: str, **options: Any) -> Any:
    """Create a scikit-learn scorer for cross_validate, GridSearchCV and similar; higher is better.

    `metric` is a name in METRICS that has a better direction; metrics for which lower is better are negated. `options`
    are those of its function (`specificity=0.9`, `bins=15`, `threshold=0.2`). Probability metrics and rates at a
    threshold use `predict_proba`; ranking metrics use `decision_function` if the estimator has one. Undefined values
    are NaN with a warning.

    Pass weights as `sample_weight`, and the pre-test probability of "matched_auroc" as `pretest`. Both require metadata
    routing and a request such as `scorer("matched_auroc").set_score_request(pretest=True)`.

    >>> from sklearn.linear_model import LogisticRegression
    >>> X, y = [[0.0], [1.0], [2.0], [3.0]], [0, 1, 0, 1]
    >>> model = LogisticRegression().fit(X, y)
    >>> scorer("auroc")(model, X, y)
    0.75
    >>> scorer("balanced_brier")(model, X, y) == -balanced_brier(y, model.predict_proba(X)[:, 1])
    True
    """
    entry = find_metric(metric)
    allowed = [name for name in METRICS if name in _FUNCTIONS]
    if metric not in _FUNCTIONS:
        why = "chooses its threshold on the rows it scores" if entry.higher_is_better else "has no better direction"
        why = "is only available in the bootstrap" if entry.matched else why
        raise InputError(f"metric: expected {', '.join(allowed)}, got {metric!r}, which {why}")
    if entry.option is not None and np.isfinite(entry.default):
        options = {entry.option: entry.default} | options
    known = [name for name in inspect.signature(_FUNCTIONS[metric]).parameters if name not in _ROWS]
    for name in options:
        if name not in known:
            raise InputError(f"options of {metric}: expected {', '.join(known) or 'none'}, got {name!r}")
    matched = metric == "matched_auroc"
    # A bad value is refused now, by the function itself, and not fold by fold.
    _FUNCTIONS[metric]([0, 1], [0.25, 0.75], **({"pretest": [0.5, 0.5]} if matched else {}), **options)

    from sklearn.metrics import make_scorer

    return make_scorer(
        context_score if matched else catalogue_score,
        greater_is_better=bool(entry.higher_is_better),
        response_method="predict_proba"
        if entry.probability or entry.option == "threshold"
        else ("decision_function", "predict_proba"),
        metric=metric,
        **options,
    )


_ROWS = ("y", "p", "weight", "pretest")


# Two functions, because scikit-learn reads from the signature which metadata a scorer can take; at the top of the
# module, so that scorers can be sent to other processes.
def catalogue_score(
    y_true: ArrayLike, y_score: ArrayLike, *, metric: str, sample_weight: ArrayLike | None = None, **options: Any
) -> float:
    """A metric of the catalogue, in the words of scikit-learn."""
    return _value(metric, y_true, y_score, {"weight": sample_weight}, options)


def context_score(
    y_true: ArrayLike, y_score: ArrayLike, *, metric: str, pretest: ArrayLike | None = None, **options: Any
) -> float:
    """A metric that needs the pre-test probability of each row."""
    if pretest is None:
        raise InputError(
            f"{metric} requires pretest for the rows it scores. Call sklearn.set_config(enable_metadata_routing=True) "
            f"and scorer({metric!r}).set_score_request(pretest=True), and pass params={{'pretest': ...}}."
        )
    return _value(metric, y_true, y_score, {"pretest": pretest}, options)


def _value(
    metric: str, y: ArrayLike, p: ArrayLike, rows: dict[str, ArrayLike | None], options: dict[str, Any]
) -> float:
    found = _FUNCTIONS[metric](y, p, **rows, **options)
    value = float(getattr(found, _FIELDS[metric]) if metric in _FIELDS else found)
    if np.isnan(value):
        from sklearn.exceptions import UndefinedMetricWarning

        reason = undefined(metric, y, rows.get("weight")) or f"{metric} is undefined on these {np.size(y)} rows"
        warnings.warn(reason, UndefinedMetricWarning, stacklevel=2)
    return value
