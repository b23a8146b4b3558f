"""Scores, labels and pre-test probabilities -> AUROC on positives and negatives of the same context."""

import datasets
import evaluate

from cxrhf.metrics.estimates import description_as_keys, flat, labels_of, study
from cxrhf.metrics.matching import pair_summary, pairs_of
from cxrhf.metrics.module import ModuleInputs

_DESCRIPTION = """
Matched AUROC: the AUROC of positives and negatives matched 1:1 on pre-test probability (`context`), with the smallest
possible total difference. It measures how well the model ranks patients with the same context; 0 to 1, higher is
better.
"""

_KWARGS_DESCRIPTION = """
Inputs:
    predictions: finite scores, higher = more likely positive. One per row, or a list per row (several labels).
    references: 1, 0 or null (missing, excluded for that label), in the same shape.
    context: pre-test probability, 0 to 1, from what is known before the image; one per row, or one per label.
    clusters (optional): the patient of each row; intervals then resample patients instead of rows.
Options:
    caliper: the largest difference in pre-test probability within a pair; no limit by default.
    n_resamples: number of bootstrap replicates; 0 (default) gives no intervals.
    seed, level: seed (0) and level (0.95) of the intervals.
    label_names: names of the labels; results by label are then dicts.
Returns a dict:
    matched_auroc: 0 to 1, higher is better; the mean over labels if there are several.
    matched_auroc_unmatched: the AUROC of all rows; matched_auroc_drop: unmatched minus matched, paired.
    matched_auroc_pairs: number of pairs; matched_auroc_mean_difference, _largest_difference: remaining differences.
    matched_auroc_same_patient: share of pairs within a patient (with clusters). Above 0.1, the value mainly measures
        how images of one patient are ranked.
    Each with _ci_low, _ci_high, _ci_method with n_resamples (every replicate is matched again), and _per_label with
    several labels.
    matched_auroc_note: only if undefined (NaN: a class is missing, or no pair within the caliper), with the reason.
Examples:
    >>> import cxrhf, evaluate
    >>> metric = evaluate.load(cxrhf.metric_path("matched_auroc"))
    >>> y, p, q = [1, 1, 0, 0, 0], [0.9, 0.4, 0.5, 0.1, 0.2], [0.7, 0.3, 0.7, 0.3, 0.0]
    >>> out = metric.compute(predictions=p, references=y, context=q)
    >>> out["matched_auroc"], out["matched_auroc_pairs"], out["matched_auroc_mean_difference"]
    (0.75, 2, 0.0)

    A model that only repeats the context ranks matched rows at random.

    >>> q, y = [0.2] * 5 + [0.8] * 5, [0, 0, 0, 0, 1, 0, 0, 0, 1, 1]
    >>> out = metric.compute(predictions=q, references=y, context=q)
    >>> round(out["matched_auroc_unmatched"], 6), out["matched_auroc"]
    (0.619048, 0.5)
"""

_CITATION = """
@article{wang_revisiting,
  title = {Revisiting Performance Claims for Chest X-Ray Models Using Clinical Context},
  author = {Wang, Andrew and Zhang, Jiashuo and Oberst, Michael}
}
"""


@evaluate.utils.file_utils.add_start_docstrings(_DESCRIPTION, _KWARGS_DESCRIPTION)
class MatchedAuroc(ModuleInputs, evaluate.Metric):
    """See above."""

    required = ("predictions", "references", "context")
    optional = ("clusters",)

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
        context,
        clusters=None,
        *,
        caliper=None,
        n_resamples=0,
        seed=0,
        level=0.95,
        label_names=None,
    ):
        rows = labels_of(references, predictions, pretest=context)
        asked = {"matched_auroc": {"caliper": caliper}, "auroc": {}}
        found = study(asked, rows, clusters=clusters, n_resamples=n_resamples, seed=seed, progress=self.ticking)
        shown = {"level": level, "label_names": label_names}
        out = flat("matched_auroc", found["matched_auroc"], **shown)
        out |= flat("matched_auroc_unmatched", found["auroc"], **shown)
        out |= flat("matched_auroc_drop", found["auroc"].minus(found["matched_auroc"]), **shown)
        summaries = []
        for label, shares in zip(rows.each(), found["matched_auroc"].details, strict=True):
            pairs = pairs_of(label.y, label.pretest, shares)
            owners = None if clusters is None else clusters[label.at]
            summaries.append(pair_summary(pairs, label.y, label.pretest, owners))
        out |= description_as_keys("matched_auroc_pairs", [each.n_pairs for each in summaries], rows, label_names)
        for key in ("mean_difference", "largest_difference"):
            out |= description_as_keys(
                f"matched_auroc_{key}", [getattr(each, key) for each in summaries], rows, label_names
            )
        if clusters is not None:
            shares = [each.same_patient_share for each in summaries]
            out |= description_as_keys("matched_auroc_same_patient", shares, rows, label_names)
        return out
