"""Probabilities and labels -> squared error among positives plus squared error among negatives."""

import datasets
import evaluate

from cxrhf.metrics.estimates import flat, labels_of, study
from cxrhf.metrics.module import ModuleInputs

_DESCRIPTION = """
Balanced Brier score: the Brier score of the positives plus that of the negatives; 0 to 2, lower is better. It shows the
error on the rare class, which the majority class hides in the Brier score. It is not a proper scoring rule: an honest
forecast of a rare finding scores worse than an inflated one, so do not use it to rank calibration.
"""

_KWARGS_DESCRIPTION = """
Inputs:
    predictions: probabilities, 0 to 1. One per row, or a list per row (several labels).
    references: 1, 0 or null (missing, excluded for that label), in the same shape.
    sample_weight (optional): one weight >= 0 per row.
    clusters (optional): the patient of each row; intervals then resample patients instead of rows.
Options:
    n_resamples: number of bootstrap replicates; 0 (default) gives no intervals.
    seed, level: seed (0) and level (0.95) of the intervals.
    label_names: names of the labels; results by label are then dicts.
Returns a dict:
    balanced_brier: 0 to 2, lower is better; the mean over labels if there are several.
    balanced_brier_positive, balanced_brier_negative: its two parts (Brier+ and Brier-, 0 to 1 each).
    balanced_brier_plain: the Brier score, 0 to 1.
    Each with _ci_low, _ci_high, _ci_method with n_resamples, and _per_label with several labels.
    balanced_brier_note: only if undefined (NaN: a class is missing), with the reason; likewise for the parts.
Examples:
    >>> import cxrhf, evaluate
    >>> metric = evaluate.load(cxrhf.metric_path("balanced_brier"))

    If positives are rare, a model that always predicts 0 has a good Brier score, but a balanced one of 1.

    >>> out = metric.compute(predictions=[0, 0, 0, 0], references=[1, 0, 0, 0])
    >>> out["balanced_brier"], out["balanced_brier_positive"], out["balanced_brier_plain"]
    (1.0, 1.0, 0.25)
    >>> out = metric.compute(predictions=[[0.8, 0.1], [0.3, 0.5], [0.1, 0.2]], references=[[1, 0], [0, None], [0, 0]])
    >>> round(out["balanced_brier_per_label"][0], 6), out["balanced_brier_note"]
    (0.09, 'mean of 1 of 2 labels; undefined for label 1: no positives among 2 rows')
"""

_CITATION = """
@article{mosquera_impact,
  title = {Impact of class imbalance on chest x-ray classifiers: towards better evaluation practices for
           discrimination and calibration performance},
  author = {Mosquera, Candelaria and Ferrer, Luciana and Milone, Diego and Luna, Daniel and Ferrante, Enzo}
}
"""


@evaluate.utils.file_utils.add_start_docstrings(_DESCRIPTION, _KWARGS_DESCRIPTION)
class BalancedBrier(ModuleInputs, evaluate.Metric):
    """See above."""

    optional = ("sample_weight", "clusters")
    probability = True

    def _info(self):
        return evaluate.MetricInfo(
            description=_DESCRIPTION,
            citation=_CITATION,
            inputs_description=_KWARGS_DESCRIPTION,
            features=self.declared(datasets),
        )

    def _measure(
        self,
        predictions,
        references,
        sample_weight=None,
        clusters=None,
        *,
        n_resamples=0,
        seed=0,
        level=0.95,
        label_names=None,
    ):
        rows = labels_of(references, predictions, sample_weight, probability=True)
        names = ("balanced_brier", "brier_positive", "brier_negative", "brier")
        keys = ("balanced_brier", "balanced_brier_positive", "balanced_brier_negative", "balanced_brier_plain")
        found = study(names, rows, clusters=clusters, n_resamples=n_resamples, seed=seed, progress=self.ticking)
        out = {}
        for name, key in zip(names, keys, strict=True):
            out |= flat(key, found[name], level=level, label_names=label_names)
        return out
