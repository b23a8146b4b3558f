"""The numbers: pure functions over arrays, float64, `weight=` wherever it makes sense.

Names are fetched on first use (numba and scipy cost half a second), so importing the package is free.
"""

from __future__ import annotations

import importlib
from typing import Any

_FILES = {
    "checks": ("InputError", "as_labels", "as_probabilities", "as_scores", "as_weights", "undefined"),
    "ranking": (
        "auroc",
        "auprc_trapezoid",
        "average_precision",
        "delong",
        "pr_curve",
        "roc_curve",
    ),
    "calibration": (
        "adaptive_calibration_error",
        "balanced_brier",
        "brier",
        "brier_negative",
        "brier_positive",
        "brier_skill_score",
        "calibration_line",
        "correct_prevalence",
        "expected_ace",
        "expected_calibration_error",
        "pav_decomposition",
        "reliability_table",
    ),
    "operating": (
        "max_f1_threshold",
        "net_benefit",
        "rates_at",
        "sensitivity_at_specificity",
        "threshold_at_fpr",
        "youden_threshold",
    ),
    "weighting": ("att_weights", "balance", "effective_sample_size", "ipw_weights", "quantile_groups"),
    "matching": ("match_pairs", "match_weights", "matched_auroc", "pair_summary"),
    "resample": ("bootstrap", "bootstrap_auroc", "draw"),
    "intervals": ("difference_interval", "interval"),
    "multiplicity": ("benjamini_hochberg", "benjamini_yekutieli", "bonferroni", "holm", "max_t"),
}

_WHERE = {name: file for file, names in _FILES.items() for name in names}
__all__ = sorted(_WHERE)  # noqa: PLE0605


def __getattr__(name: str) -> Any:
    if name in _WHERE:
        return getattr(importlib.import_module(f"cxrhf.metrics.{_WHERE[name]}"), name)
    if name in _FILES or name in ("language", "association"):
        return importlib.import_module(f"cxrhf.metrics.{name}")
    raise AttributeError(f"module 'cxrhf.metrics' has no attribute {name!r}")


def __dir__() -> list[str]:
    return list(__all__)
