"""Probabilities and labels -> the share of a constant forecast's squared error that the model removes."""

import datasets
import evaluate

from cxrhf.metrics.estimates import study
from cxrhf.metrics.labels import labels_of
from cxrhf.metrics.module_inputs import ModuleInputs
from cxrhf.metrics.results import flat

_DESCRIPTION = """
Brier skill score: 1 - Brier score / Brier score of a constant forecast. 1 is perfect, 0 is no better than always saying
the prevalence, below 0 is worse than that. By default the constant is the (weighted) prevalence of the evaluated rows.
"""

_KWARGS_DESCRIPTION = """
Inputs:
    predictions: probabilities, 0 to 1. One a row, or a list a row (several labels).
    references: 1, 0 or null (missing, left out for that label), of the same shape.
    sample_weight (optional): one weight >= 0 a row.
    clusters (optional): the patient of each row; intervals then draw patients instead of rows.
Options:
    prevalence: the constant forecast, between 0 and 1, instead of the prevalence of these rows: for example that of the
        training set (the paper's form). One for all labels or a list. A constant forecast can then earn skill.
    n_resamples: bootstrap replicates behind the intervals; 0 (default) gives none.
    seed, level: of the intervals (0, .95).
    label_names: names of the labels; results by label are then dicts.
Returns a dict:
    brier_skill_score: at most 1, higher is better; the mean over labels when there are several.
    brier_skill_score_brier: the Brier score itself.
    Each with _ci_low, _ci_high, _ci_method with n_resamples, and _per_label with several labels.
    brier_skill_score_note: only when undefined (NaN: a class is missing), with the reason.
Examples:
    >>> import cxrhf, evaluate
    >>> metric = evaluate.load(cxrhf.metric_path("brier_skill_score"))
    >>> metric.compute(predictions=[0.9, 0.2, 0.1, 0.2], references=[1, 0, 0, 0])["brier_skill_score"]
    0.8666666666666667

    Always saying the prevalence has no skill, unless it is compared with another one.

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
