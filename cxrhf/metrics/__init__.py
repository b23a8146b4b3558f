"""The numbers: pure functions over arrays, float64, `weight=` wherever it makes sense.

Names are fetched on first use (numba and scipy cost half a second), so importing the package is free.
"""

from __future__ import annotations

import importlib
from typing import Any

_FILES = {
    "checks": (
        "InputError",
        "as_labels",
        "as_probabilities",
        "as_scores",
        "as_weights",
        "undefined",
    ),
    "ranking": (
        "auprc_trapezoid",
        "auroc",
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
        "correct_prevalence",
        "expected_ace",
        "expected_calibration_error",
    ),
    "reliability": (
        "calibration_line",
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
    "prevalence": (
        "average_precision_at_prevalence",
        "brier_at_prevalence",
        "net_benefit_at_prevalence",
        "npv_at_prevalence",
        "precision_at_prevalence",
        "threshold_for_risk",
    ),
    "weighting": (
        "att_weights",
        "balance",
        "effective_sample_size",
        "ipw_weights",
        "quantile_groups",
        "rescale_to_prevalence",
    ),
    "matching": (
        "match_pairs",
        "match_weights",
        "matched_auroc",
        "pair_summary",
        "pairs_of",
    ),
    "catalogue": ("METRICS",),
    "resample": (
        "bootstrap",
        "bootstrap_auroc",
        "bootstrap_many",
        "draw",
    ),
    "bands": (
        "pr_band",
        "roc_band",
    ),
    "intervals": (
        "benjamini_hochberg",
        "benjamini_yekutieli",
        "bonferroni",
        "count_units",
        "difference_interval",
        "holm",
        "interval",
        "max_t",
    ),
    "estimates": (
        "flat",
        "labels_of",
        "mean_over",
        "study",
    ),
    "subgroups": (
        "bootstrap_subgroups",
        "measure_subgroups",
        "subgroup_rates",
    ),
    "balancing": (
        "age_bins",
        "balancing_weights",
        "disease_groups",
    ),
    "two_groups": (
        "enrichment",
        "mean_gap",
    ),
    "module": ("scorer",),
    "permutation": (
        "groups_permutation_test",
        "models_permutation_test",
    ),
    "language": (
        "corpus_bleu",
        "corpus_bleu_of",
        "document_terms",
        "lexical_diversity",
        "overlap_scores",
        "rouge1",
        "rougeL",
        "self_bleu",
        "semantic_diversity",
        "sentence_bleu",
        "template_diversity",
        "tokenize",
        "type_token_ratio",
        "vocabulary_shift",
    ),
    "diversity": (
        "measure_diversity",
        "measure_diversity_pair",
    ),
    "words": (
        "bootstrap_words",
        "cad",
        "cad_corpora",
        "cad_each",
        "cad_texts",
        "delta_dir",
        "delta_wae",
        "omitted_mass",
        "permute_groups",
        "split_half",
        "summary",
        "swap_corpora",
        "sweep",
        "wae",
    ),
    "words_corpora": ("corpora",),
    "word_embedding": ("weat",),
}

_WHERE = {name: file for file, names in _FILES.items() for name in names}
__all__ = sorted(_WHERE)  # noqa: PLE0605


def __getattr__(name: str) -> Any:
    if name in _WHERE:
        return getattr(importlib.import_module(f"cxrhf.metrics.{_WHERE[name]}"), name)
    if name in _FILES:
        return importlib.import_module(f"cxrhf.metrics.{name}")
    raise AttributeError(f"module 'cxrhf.metrics' has no attribute {name!r}")


def __dir__() -> list[str]:
    return list(__all__)
