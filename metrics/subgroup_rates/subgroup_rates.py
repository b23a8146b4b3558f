"""Scores, labels and groups -> rates, predictive values and calibration of every subgroup, with the largest gaps."""

import datasets
import evaluate

from cxrhf.metrics.estimates import labels_of
from cxrhf.metrics.module import ModuleInputs
from cxrhf.metrics.subgroups import measure_labels

_DESCRIPTION = """
Subgroup rates: AUROC, true and false positive rate and Youden's J of every subgroup at one threshold for all, by
default the one with a false positive rate of 0.20 over all rows. Also predictive values, average precision and
calibration. Gaps between groups can come from different prevalence, ages and severity, not only from the model.
"""

_KWARGS_DESCRIPTION = """
Inputs:
    predictions: finite scores, higher = more likely positive. One per row, or a list per row (several labels).
        Calibration requires probabilities: all scores from 0 to 1.
    references: 1, 0 or null (missing, excluded for that label), in the same shape.
    groups: the group of each row (sex, race, age band, ...); name unknown groups, for example "unknown".
    sample_weight (optional): one weight >= 0 per row, for example to give all groups the same ages and prevalence.
    clusters (optional): the patient of each row; intervals then resample patients instead of rows.
Options:
    threshold: one for all groups, for example from validation data; with several labels, one for all or a list with one
        per label. If not given, it is chosen on these rows.
    fpr: the false positive rate over all rows at a threshold chosen on these rows (0.2).
    rule: "nearest" (default, the paper's code): the corner of the ROC curve nearest to fpr; "nearest_all": the nearest
        of all points; "conservative": never above fpr.
    n_resamples: number of bootstrap replicates; 0 (default) gives no intervals.
    seed, level: seed (0) of the intervals and of the simulation for expected_ece; level (0.95) of the intervals.
    label_names: names of the labels; results by label are then dicts.
Returns a dict:
    subgroup_rates: {group: {auroc, tpr, fpr, j, n, n_positive, n_patients}}, with precision (PPV) and npv at the same
        threshold, prevalence and average_precision. If all scores are probabilities, also observed_minus_predicted
        (mean label minus mean score), expected_calibration_error and expected_ece, its mean if calibrated. With
        n_resamples, each has _ci_low, _ci_high and _ci_method, except expected_ece; those of the calibration error are
        NaN, because no interval covers. With several labels: the means over labels where they are defined.
    subgroup_rates_auroc_gap, _tpr_gap, _fpr_gap, _j_gap: highest minus lowest group (0 to 1; J: 0 to 2); the mean over
        labels if there are several.
    subgroup_rates_gaps: {metric: {value, highest, lowest}}. With n_resamples also ci_low, ci_high, p_value and method,
        corrected for the pairs of groups the largest gap was selected from.
    subgroup_rates_overall: the same metrics over all rows; subgroup_rates_threshold, _threshold_source.
    subgroup_rates_per_label: with several labels, all of these for each label (instead of the three above).
    A value is NaN if a group lacks a class, precision if no row is predicted positive, npv if every row is. The entry
    then has a note with the reason.
    subgroup_rates_note: why there is no calibration, or what the means over labels exclude.
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
