"""AUROC with weights: given ones, or those that take the patient's context out of the comparison."""

import datasets
import evaluate

from cxrhf.metrics.estimates import description_as_keys, flat, labels_of, reweight_labels, study, thin_classes
from cxrhf.metrics.module import ModuleInputs
from cxrhf.metrics.weighting import effective_sample_size

_DESCRIPTION = """
Weighted AUROC: the probability that a positive scores above a negative. Ties count half, and pairs count by the product
of their rows' weights. With `context` (the probability of the finding before the image), the weights are computed so
that positives and negatives have the same context, and the value measures what the image adds.
"""

_KWARGS_DESCRIPTION = """
Inputs:
    predictions: finite scores, higher = more likely positive. One per row, or a list per row (several labels).
    references: 1, 0 or null (missing, excluded for that label), in the same shape.
    sample_weight (optional): one weight >= 0 per row.
    context (optional): pre-test probability, 0 to 1; one per row, or one per label.
    clusters (optional): the patient of each row; intervals then resample patients instead of rows.
Options:
    weighting: how weights are computed from `context`. "att" (default): negatives are weighted to the context of the
        positives, the question that matching answers. "ipw": both classes are weighted to the context of all patients,
        which is another question.
    n_resamples: number of bootstrap replicates; 0 (default) gives no interval.
    seed, level: seed (0) and level (0.95) of the interval.
    label_names: names of the labels; results by label are then dicts.
Returns a dict:
    weighted_auroc: 0 to 1, higher is better; the mean over labels if there are several.
    weighted_auroc_ci_low, _ci_high, _ci_method: with n_resamples.
    weighted_auroc_per_label (and its interval): with several labels.
    weighted_auroc_note: only if undefined (NaN: a class is missing), with the reason.
    With `context` also weighted_auroc_unweighted, weighted_auroc_drop (unweighted minus weighted, paired),
    weighted_auroc_effective_positives and _effective_negatives (effective numbers of rows),
    and weighted_auroc_warning if weighting leaves little of a class.
Examples:
    >>> import cxrhf, evaluate
    >>> metric = evaluate.load(cxrhf.metric_path("weighted_auroc"))
    >>> y, p = [0, 0, 1, 1], [0.1, 0.4, 0.35, 0.8]
    >>> metric.compute(predictions=p, references=y)
    {'weighted_auroc': 0.75}
    >>> metric.compute(predictions=p, references=y, sample_weight=[1, 3, 1, 1])
    {'weighted_auroc': 0.625}

    A model that only repeats the context: AUROC 0.8, and 0.5 with context held equal.

    >>> q, y = [0.2] * 5 + [0.8] * 5, [0, 0, 0, 0, 1, 0, 1, 1, 1, 1]
    >>> out = metric.compute(predictions=q, references=y, context=q)
    >>> round(out["weighted_auroc_unweighted"], 6), round(out["weighted_auroc"], 6)
    (0.8, 0.5)

    Two labels, one of them missing in the third row, and patients a to d.

    >>> p2, y2 = [[0.9, 0.2], [0.1, 0.7], [0.8, 0.5], [0.3, 0.4]], [[1, 0], [0, 1], [1, None], [0, 1]]
    >>> out = metric.compute(predictions=p2, references=y2, clusters=list("abcd"), n_resamples=200)
    >>> out["weighted_auroc"], out["weighted_auroc_per_label"]
    (1.0, [1.0, 1.0])
"""

_CITATION = """
@article{wang_revisiting,
  title = {Revisiting Performance Claims for Chest X-Ray Models Using Clinical Context},
  author = {Wang, Andrew and Zhang, Jiashuo and Oberst, Michael}
}
"""


@evaluate.utils.file_utils.add_start_docstrings(_DESCRIPTION, _KWARGS_DESCRIPTION)
class WeightedAuroc(ModuleInputs, evaluate.Metric):
    """See above."""

    optional = ("sample_weight", "context", "clusters")

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
        context=None,
        clusters=None,
        *,
        weighting="att",
        n_resamples=0,
        seed=0,
        level=0.95,
        label_names=None,
    ):
        rows = labels_of(references, predictions, sample_weight, context)
        drawn = {"clusters": clusters, "n_resamples": n_resamples, "seed": seed, "progress": self.ticking}
        shown = {"level": level, "label_names": label_names}
        if context is None:
            return flat("weighted_auroc", study(["auroc"], rows, **drawn)["auroc"], **shown)
        even = reweight_labels(rows, weighting)
        plain, held = (study(["auroc"], each, **drawn)["auroc"] for each in (rows, even))
        out = flat("weighted_auroc", held, **shown)
        out |= flat("weighted_auroc_unweighted", plain, **shown)
        out |= flat("weighted_auroc_drop", plain.minus(held), **shown)
        sizes = [effective_sample_size(label.weight, label.y) for label in even.each()]
        out |= description_as_keys(
            "weighted_auroc_effective_positives", [size.positive for size in sizes], rows, label_names
        )
        out |= description_as_keys(
            "weighted_auroc_effective_negatives", [size.negative for size in sizes], rows, label_names
        )
        return out | thin_classes("weighted_auroc", even, label_names)
