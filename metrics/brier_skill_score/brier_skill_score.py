"""Probabilities and labels -> the share of a constant forecast's squared error that the model removes."""

import datasets
import evaluate

from cxrhf.metrics.estimates import flat, labels_of, study
from cxrhf.metrics.module import ModuleInputs

_DESCRIPTION = """
Brier skill score: 1 - Brier score / Brier score of a constant forecast. 1 is perfect, 0 is no better than the constant,
and negative values are worse. By default, the constant is the (weighted) prevalence of the evaluated rows.
"""

_KWARGS_DESCRIPTION = """
Inputs:
    predictions: probabilities, 0 to 1. One per row, or a list per row (several labels).
    references: 1, 0 or null (missing, excluded for that label), in the same shape.
    sample_weight (optional): one weight >= 0 per row.
    clusters (optional): the patient of each row; intervals then resample patients instead of rows.
Options:
    prevalence: the constant forecast, between 0 and 1, instead of the prevalence of these rows; for example that of the
        training set, as in the paper. One for all labels or a list. Another constant forecast can then have skill.
    n_resamples: number of bootstrap replicates; 0 (default) gives no intervals.
    seed, level: seed (0) and level (0.95) of the intervals.
    label_names: names of the labels; results by label are then dicts.
Returns a dict:
    brier_skill_score: at most 1, higher is better; the mean over labels if there are several.
    brier_skill_score_brier: the Brier score.
    Each with _ci_low, _ci_high, _ci_method with n_resamples, and _per_label with several labels.
    brier_skill_score_note: only if undefined (NaN: a class is missing), with the reason.
Examples:
    >>> import cxrhf, evaluate
    >>> metric = evaluate.load(cxrhf.metric_path("brier_skill_score"))
    >>> metric.compute(predictions=[0.9, 0.2, 0.1, 0.2], references=[1, 0, 0, 0])["brier_skill_score"]
    0.8666666666666667

    Always predicting the prevalence has no skill, unless it is compared with another one.

    >>> metric.compute(predictions=[0.25] * 4, references=[1, 0, 0, 0])["brier_skill_score"]
    0.0
    >>> out = metric.compute(predictions=[0.25] * 4, references=[1, 0, 0, 0], prevalence=0.5)
    >>> out["brier_skill_score"]
    0.25
"""

_CITATION = """
@article{wang_revisiting,
  title = {Revisiting Performance Claims for Chest X-Ray Models Using Clinical Context},
  author = {Wang, Andrew and Zhang, Jiashuo and Oberst, Michael}
}
"""


@evaluate.utils.file_utils.add_start_docstrings(_DESCRIPTION, _KWARGS_DESCRIPTION)
class BrierSkillScore(ModuleInputs, evaluate.Metric):
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
        prevalence=None,
        n_resamples=0,
        seed=0,
        level=0.95,
        label_names=None,
    ):
        rows = labels_of(references, predictions, sample_weight, probability=True)
        asked = {"brier_skill_score": {"prevalence": prevalence}, "brier": {}}
        found = study(asked, rows, clusters=clusters, n_resamples=n_resamples, seed=seed, progress=self.ticking)
        out = flat("brier_skill_score", found["brier_skill_score"], level=level, label_names=label_names)
        return out | flat("brier_skill_score_brier", found["brier"], level=level, label_names=label_names)
