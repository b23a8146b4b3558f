"""Probabilities and labels -> how far they differ in bins of equal weight, beside what chance alone would show."""

import datasets
import evaluate

from cxrhf.metrics.calibration import expected_ace_of
from cxrhf.metrics.estimates import flat, labels_of, mean_of, study
from cxrhf.metrics.module import ModuleInputs

_DESCRIPTION = """
Adaptive calibration error: the mean of |mean probability - share of positives| over bins of equal weight; 0 to 1, lower
is better. It is above 0 even for a perfectly calibrated model, and more so with few rows. Compare it with
`adaptive_calibration_error_expected`, its mean if these probabilities were true.
"""

_KWARGS_DESCRIPTION = """
Inputs:
    predictions: probabilities, 0 to 1. One per row, or a list per row (several labels).
    references: 1, 0 or null (missing, excluded for that label), in the same shape.
    sample_weight (optional): one weight >= 0 per row.
    clusters (optional): the patient of each row; intervals then resample patients instead of rows.
Options:
    bins: number of bins (10).
    method: "exact" (default): bins of exactly equal weight, where equal probabilities are pooled and may be split
        between bins, so row order does not matter. "array_split": the paper's code. "whole_rows": no row is split.
    n_simulations: simulations for the expected value (100); 0 omits it.
    n_resamples: number of bootstrap replicates; 0 (default) gives no intervals.
    seed, level: seed (0) and level (0.95) of the intervals.
    label_names: names of the labels; results by label are then dicts.
Returns a dict:
    adaptive_calibration_error: 0 to 1, lower is better; the mean over labels if there are several.
    adaptive_calibration_error_expected: its mean if the probabilities were perfectly calibrated.
    The value with _ci_low, _ci_high, _ci_method with n_resamples, and _per_label with several labels.
    adaptive_calibration_error_note: only if undefined (NaN: no rows), with the reason.
Examples:
    >>> import cxrhf, evaluate
    >>> metric = evaluate.load(cxrhf.metric_path("adaptive_calibration_error"))
    >>> four = {"predictions": [0.1, 0.2, 0.7, 0.8], "references": [0, 0, 1, 1]}
    >>> out = metric.compute(**four, bins=2, n_simulations=5000)
    >>> round(out["adaptive_calibration_error"], 6), round(out["adaptive_calibration_error_expected"], 2)
    (0.2, 0.25)

    An error of 0.2 on four rows is less than expected of a calibrated model, so it is no evidence of miscalibration. On
    the same rows repeated a hundred times, it is.

    >>> out = metric.compute(predictions=[0.1, 0.2, 0.7, 0.8] * 100, references=[0, 0, 1, 1] * 100, bins=2)
    >>> round(out["adaptive_calibration_error"], 6), round(out["adaptive_calibration_error_expected"], 2)
    (0.2, 0.02)
"""

_CITATION = """
@article{wang_revisiting,
  title = {Revisiting Performance Claims for Chest X-Ray Models Using Clinical Context},
  author = {Wang, Andrew and Zhang, Jiashuo and Oberst, Michael}
}
"""


@evaluate.utils.file_utils.add_start_docstrings(_DESCRIPTION, _KWARGS_DESCRIPTION)
class AdaptiveCalibrationError(ModuleInputs, evaluate.Metric):
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
        bins=10,
        method="exact",
        n_simulations=100,
        n_resamples=0,
        seed=0,
        level=0.95,
        label_names=None,
    ):
        rows = labels_of(references, predictions, sample_weight, probability=True)
        asked = {"adaptive_calibration_error": {"bins": bins, "method": method}}
        found = study(asked, rows, clusters=clusters, n_resamples=n_resamples, seed=seed, progress=self.ticking)
        name = "adaptive_calibration_error"
        out = flat(name, found[name], level=level, label_names=label_names)
        if n_simulations:
            chance = [expected_ace_of(each.ranked, bins, method, n_simulations, seed) for each in found[name].details]
            out |= mean_of(f"{name}_expected", chance, rows, label_names)
        return out
