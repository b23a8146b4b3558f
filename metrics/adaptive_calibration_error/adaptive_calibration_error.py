"""Probabilities and labels -> how far they differ in bins of equal weight, beside what chance alone would show."""

import datasets
import evaluate

from cxrhf.metrics.calibration import expected_ace_of
from cxrhf.metrics.estimates import study
from cxrhf.metrics.labels import labels_of
from cxrhf.metrics.module_inputs import ModuleInputs
from cxrhf.metrics.results import flat, mean_of

_DESCRIPTION = """
Adaptive calibration error: the mean of |mean probability - share of positives| over bins that hold equal weight; 0 to
1, lower is better. It is above 0 for a perfectly calibrated model, and more so the fewer rows there are: read it beside
`adaptive_calibration_error_expected`, what these probabilities would show if they were true.
"""

_KWARGS_DESCRIPTION = """
Inputs:
    predictions: probabilities, 0 to 1. One a row, or a list a row (several labels).
    references: 1, 0 or null (missing, left out for that label), of the same shape.
    sample_weight (optional): one weight >= 0 a row.
    clusters (optional): the patient of each row; intervals then draw patients instead of rows.
Options:
    bins: number of bins, 10.
    method: "exact" (default): bins of exactly equal weight, equal probabilities pooled and split across an edge, so
        that row order does not matter. "array_split": the paper's code. "whole_rows": no row is split.
    n_simulations: simulations behind the expected value, 100; 0 leaves it out.
    n_resamples: bootstrap replicates behind the intervals; 0 (default) gives none.
    seed, level: of the intervals (0, .95).
    label_names: names of the labels; results by label are then dicts.
Returns a dict:
    adaptive_calibration_error: 0 to 1, lower is better; the mean over labels when there are several.
    adaptive_calibration_error_expected: its mean if the probabilities were perfectly calibrated.
    With _ci_low, _ci_high, _ci_method with n_resamples, and _per_label with several labels.
    adaptive_calibration_error_note: only when undefined (NaN: no rows), with the reason.
Examples:
    >>> import cxrhf, evaluate
    >>> metric = evaluate.load(cxrhf.metric_path("adaptive_calibration_error"))
    >>> four = {"predictions": [0.1, 0.2, 0.7, 0.8], "references": [0, 0, 1, 1]}
    >>> out = metric.compute(**four, bins=2, n_simulations=5000)
    >>> round(out["adaptive_calibration_error"], 6), round(out["adaptive_calibration_error_expected"], 2)
    (0.2, 0.25)

    An error of 0.2 on four rows is less than a calibrated model would show: no evidence against it. The same rows a
    hundred times over are evidence.

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
