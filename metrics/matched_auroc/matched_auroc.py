"""Scores, labels and pre-test probabilities -> AUROC on positives and negatives of the same context."""

import datasets
import evaluate

from cxrhf.metrics.estimates import study
from cxrhf.metrics.labels import labels_of
from cxrhf.metrics.matching import pair_summary, pairs_of
from cxrhf.metrics.module_inputs import ModuleInputs
from cxrhf.metrics.results import described, flat

_DESCRIPTION = """
Matched AUROC: every member of the rarer class is paired with its own member of the other, so that the total difference
in pre-test probability (`context`) is exactly minimal, and the AUROC is taken on the matched rows. It says how much
ranking is left when the patient's history cannot tell the classes apart; 0 to 1, higher is better.
"""

_KWARGS_DESCRIPTION = """
Inputs:
    predictions: scores, higher = more likely positive; any finite numbers. One a row, or a list a row (several labels).
    references: 1, 0 or null (missing, left out for that label), of the same shape.
    context: pre-test probability, 0 to 1: what is known before the image is seen; one a row, or one for each label.
    clusters (optional): the patient of each row; intervals then draw patients instead of rows.
Options:
    caliper: the widest difference in pre-test probability that a pair may have; none by default.
    n_resamples: bootstrap replicates behind the intervals; 0 (default) gives none.
    seed, level: of the intervals (0, .95).
    label_names: names of the labels; results by label are then dicts.
Returns a dict:
    matched_auroc: 0 to 1, higher is better; the mean over labels when there are several.
    matched_auroc_unmatched: the AUROC of all rows; matched_auroc_drop: unmatched less matched, paired.
    matched_auroc_pairs: number of pairs; matched_auroc_mean_difference, _largest_difference: what matching left.
    matched_auroc_same_patient: share of pairs with one patient on both sides (with clusters): above a tenth the number
        says how images of one patient are ranked.
    With _ci_low, _ci_high, _ci_method with n_resamples (the matching is redone in every replicate), and _per_label with
    several labels.
    matched_auroc_note: only when undefined (NaN: a class is missing, or no pair within the caliper), with the reason.
Examples:
    >>> import cxrhf, evaluate
    >>> metric = evaluate.load(cxrhf.metric_path("matched_auroc"))
    >>> y, p, q = [1, 1, 0, 0, 0], [0.9, 0.4, 0.5, 0.1, 0.2], [0.7, 0.3, 0.7, 0.3, 0.0]
    >>> out = metric.compute(predictions=p, references=y, context=q)
    >>> out["matched_auroc"], out["matched_auroc_pairs"], out["matched_auroc_mean_difference"]
    (0.75, 2, 0.0)

    A model that only repeats the chart ranks at random among matched rows.

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
        out |= described("matched_auroc_pairs", [each.n_pairs for each in summaries], rows, label_names)
        for key in ("mean_difference", "largest_difference"):
            out |= described(f"matched_auroc_{key}", [getattr(each, key) for each in summaries], rows, label_names)
        if clusters is not None:
            shares = [each.same_patient_share for each in summaries]
            out |= described("matched_auroc_same_patient", shares, rows, label_names)
        return out
