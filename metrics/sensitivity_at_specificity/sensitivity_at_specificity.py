"""Scores and labels -> sensitivity where the specificity is the one asked for, with the threshold that gives it."""

import datasets
import evaluate

from cxrhf.metrics.estimates import description_as_keys, flat, labels_of, study
from cxrhf.metrics.module import ModuleInputs
from cxrhf.metrics.operating import false_positive_rate_to_expect, sensitivity_at_specificity

# Below this many negatives the threshold chosen here promises more than new negatives will keep.
MANY_NEGATIVES = 400

_DESCRIPTION = """
Sensitivity at a specificity: the share of positives found at the lowest threshold that reaches the specificity on these
rows; 0 to 1, higher is better. Also returns the threshold and the specificity reached. The threshold is chosen on the
evaluated rows, so with few negatives the specificity on new patients is lower than requested.
"""

_KWARGS_DESCRIPTION = """
Inputs:
    predictions: finite scores, higher = more likely positive. One per row, or a list per row (several labels).
    references: 1, 0 or null (missing, excluded for that label), in the same shape.
    sample_weight (optional): one weight >= 0 per row.
    clusters (optional): the patient of each row; intervals then resample patients instead of rows.
Options:
    specificity: between 0 and 1 (0.95).
    rule: "conservative" (default): the lowest threshold with an empirical false positive rate of at most 1 -
        specificity. "plus_one": counts one more false positive, which is realistic for new patients if negatives are
        few. "nearest": the ROC point nearest to the requested rate; "nearest_first": as in the paper's code; "interp":
        interpolated between neighbouring points. Intervals of the other rules take longer.
    n_resamples: number of bootstrap replicates; 0 (default) gives no intervals.
    seed, level: seed (0) and level (0.95) of the intervals.
    label_names: names of the labels; results by label are then dicts.
Returns a dict:
    sensitivity_at_specificity: 0 to 1, higher is better; the mean over labels if there are several.
    sensitivity_at_specificity_threshold, _specificity: the threshold (rows with score >= threshold are predicted
        positive), and the specificity reached.
    sensitivity_at_specificity_plus_one: the value by the rule "plus_one", for all labels if any of them has fewer than
        400 negatives.
    sensitivity_at_specificity_expected_specificity: specificity expected on new negatives, by the conservative rule.
    The value with _ci_low, _ci_high, _ci_method with n_resamples, and _per_label with several labels.
    sensitivity_at_specificity_note: only if undefined (NaN: a class is missing), with the reason.
Examples:
    >>> import cxrhf, evaluate
    >>> metric = evaluate.load(cxrhf.metric_path("sensitivity_at_specificity"))
    >>> p, y = [0.1, 0.2, 0.3, 0.6, 0.5, 0.9], [0, 0, 0, 0, 1, 1]
    >>> out = metric.compute(predictions=p, references=y, specificity=0.75)
    >>> out["sensitivity_at_specificity"], out["sensitivity_at_specificity_threshold"]
    (1.0, 0.5)

    With 4 negatives, expect a false positive rate of at least 1 in 5; the rule "plus_one" finds fewer positives.

    >>> out["sensitivity_at_specificity_plus_one"], out["sensitivity_at_specificity_expected_specificity"]
    (0.5, 0.6)
    >>> out = metric.compute(predictions=p, references=y, specificity=0.95, n_resamples=200)
    >>> out["sensitivity_at_specificity"], out["sensitivity_at_specificity_ci_method"]
    (0.5, 'logit-normal')
"""

_CITATION = """
@article{wang_revisiting,
  title = {Revisiting Performance Claims for Chest X-Ray Models Using Clinical Context},
  author = {Wang, Andrew and Zhang, Jiashuo and Oberst, Michael}
}
"""


@evaluate.utils.file_utils.add_start_docstrings(_DESCRIPTION, _KWARGS_DESCRIPTION)
class SensitivityAtSpecificity(ModuleInputs, evaluate.Metric):
    """See above."""

    optional = ("sample_weight", "clusters")

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
        specificity=0.95,
        rule="conservative",
        n_resamples=0,
        seed=0,
        level=0.95,
        label_names=None,
    ):
        rows = labels_of(references, predictions, sample_weight)
        name = "sensitivity_at_specificity"
        asked = {name: {"specificity": specificity, "rule": rule}}
        found = study(asked, rows, clusters=clusters, n_resamples=n_resamples, seed=seed, progress=self.ticking)
        out = flat(name, found[name], level=level, label_names=label_names)
        points = found[name].details
        negatives = [int(((label.y == 0) & (label.weight > 0)).sum()) for label in rows.each()]
        expected = [1 - false_positive_rate_to_expect(n, specificity) for n in negatives]
        out |= description_as_keys(f"{name}_threshold", [point.threshold for point in points], rows, label_names)
        out |= description_as_keys(f"{name}_specificity", [point.specificity for point in points], rows, label_names)
        out |= description_as_keys(f"{name}_expected_specificity", expected, rows, label_names)
        if min(negatives) < MANY_NEGATIVES:
            honest = [
                sensitivity_at_specificity(label.y, label.p, specificity, label.weight, "plus_one").sensitivity
                for label in rows.each()
            ]
            out |= description_as_keys(f"{name}_plus_one", honest, rows, label_names)
        return out
