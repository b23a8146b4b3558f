"""Scores, labels and groups -> rates, predictive values, calibration of every subgroup at one threshold, and gaps."""

import datasets
import evaluate

from cxrhf.metrics.labels import labels_of
from cxrhf.metrics.module_inputs import ModuleInputs
from cxrhf.metrics.subgroup_labels import measure_labels

_DESCRIPTION = """
Subgroup rates: AUROC, true and false positive rate and Youden's J of every subgroup at one threshold for all, by
default the one with a false positive rate of .20 on all rows; predictive values, average precision and calibration
beside them. Gaps between groups are differences of the model only when the groups have the same prevalence, age and
disease mix: read them as a question, not as the answer.
"""

_KWARGS_DESCRIPTION = """
Inputs:
    predictions: scores, higher = more likely positive; any finite numbers. One a row, or a list a row (several labels).
        Calibration needs probabilities: all scores from 0 to 1.
    references: 1, 0 or null (missing, left out for that label), of the same shape.
    groups: the group of each row (sex, race, age band, ...); call the unknown ones "unknown".
    sample_weight (optional): one weight >= 0 a row, for example to give all groups the same age and disease mix.
    clusters (optional): the patient of each row; intervals then draw patients instead of rows.
Options:
    threshold: one for all groups, for example from validation data; one for all labels or a list. By default, it is
        chosen on these rows.
    fpr: the false positive rate of all rows at that threshold (0.2).
    rule: "nearest" (default, the paper's code: among the corners of the ROC curve), "nearest_all" or "conservative".
    n_resamples: bootstrap replicates behind the intervals; 0 (default) gives none.
    seed, level: of the intervals, and of the simulation behind expected_ece (0, .95).
    label_names: names of the labels; results by label are then dicts.
Returns a dict:
    subgroup_rates: {group: {auroc, tpr, fpr, j, n, n_positive, n_patients}}, and at the same threshold precision (PPV)
        and npv; prevalence, average_precision; of probabilities observed_minus_predicted (mean label less mean score),
        expected_calibration_error and expected_ece, what that would be if calibrated. With n_resamples each with
        _ci_low, _ci_high, _ci_method; the calibration error has no interval (NaN; none holds), expected_ece none. With
        several labels the means over the labels where they are defined.
    subgroup_rates_auroc_gap, _tpr_gap, _fpr_gap, _j_gap: largest less smallest group (0 to 1; J: 0 to 2), the mean over
        labels.
    subgroup_rates_gaps: {number: {value, highest, lowest}}, with n_resamples ci_low, ci_high, p_value, corrected for
        the number of pairs that the largest gap was picked from.
    subgroup_rates_overall: the same numbers for all rows; subgroup_rates_threshold, _threshold_source.
    subgroup_rates_per_label: all of that for each label, with several labels (instead of the three above).
    A number is NaN where a group lacks a class, or where nobody is called; its entry then has a note that says so.
    subgroup_rates_note says why there is no calibration, or what means leave out.
Examples:
    >>> import cxrhf, evaluate
    >>> metric = evaluate.load(cxrhf.metric_path("subgroup_rates"))
    >>> y, p = [0, 0, 1, 1, 0, 0, 1, 1], [0.1, 0.6, 0.7, 0.9, 0.2, 0.3, 0.4, 0.8]
    >>> out = metric.compute(predictions=p, references=y, groups=list("FFFFMMMM"), threshold=0.5)
    >>> out["subgroup_rates"]["M"]["tpr"], out["subgroup_rates_tpr_gap"], out["subgroup_rates_gaps"]["tpr"]["lowest"]
    (0.5, 0.5, 'M')

    A group without positives has no true positive rate.

    >>> out = metric.compute(predictions=p, references=[0, 0, 0, 0, 0, 0, 1, 1], groups=list("FFFFMMMM"), threshold=0.5)
    >>> out["subgroup_rates"]["F"]["tpr"], "no positives among 4 rows" in out["subgroup_rates"]["F"]["note"]
    (nan, True)
"""

_CITATION = """
@article{glocker_algorithmic,
  title = {Algorithmic encoding of protected characteristics in chest X-ray disease detection models},
  author = {Glocker, Ben and Jones, Charles and Bernhardt, M\\'elanie and Winzeck, Stefan}
}
"""


@evaluate.utils.file_utils.add_start_docstrings(_DESCRIPTION, _KWARGS_DESCRIPTION)
class SubgroupRates(ModuleInputs, evaluate.Metric):
    """See above."""

    required = ("predictions", "references", "groups")
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
        groups,
        sample_weight=None,
        clusters=None,
        *,
        threshold=None,
        fpr=0.2,
        rule="nearest",
        n_resamples=0,
        seed=0,
        level=0.95,
        label_names=None,
    ):
        rows = labels_of(references, predictions, sample_weight)
        at = {"threshold": threshold, "fpr": fpr, "rule": rule}
        drawn = {"clusters": clusters, "n_resamples": n_resamples, "seed": seed, "level": level}
        return measure_labels(rows, groups, label_names=label_names, progress=self.ticking, **at, **drawn)
