"""Generated and reference reports with groups -> how far associations of words with groups moved, beside its null."""

import datasets
import evaluate

from cxrhf.metrics.module import ModuleInputs
from cxrhf.metrics.words_measured import two_groups, wae_result

_DESCRIPTION = """
Weighted association erasure (WAE): the mean squared displacement (z_disp of CAD) over all words, weighted by how often
they occur. It has no better direction: it is 0 for identical corpora, about 1 for faithful but independent text, and
low again if a model collapses to one sentence. Read it together with its null and the omitted mass.
"""

_KWARGS_DESCRIPTION = """
Inputs:
    predictions: generated reports, one str per row.
    references: the radiologists' reports of the same images.
    groups: the group of each row's patient (sex, age band, ...).
    clusters (optional): the patient of each row; without it, every row counts as a patient.
Options:
    pair: two groups to compare, such as ("F", "M"); the first is positive. By default the only two, alphabetically.
    group: one group to compare with all others; for more than two groups.
    weights: "prediction" (default) or "reference", the corpus in which words are counted.
    alpha: smoothing (0.1).
    n_null: random halvings of the reference reports for the null (200); 0 omits it.
    n_resamples: bootstrap replicates over patients for the intervals, and random exchanges for the p value; 0 (default)
        gives neither.
    seed, level: seed (0) and level (0.95) of the intervals.
Returns a dict:
    wae: >= 0, without a better direction. NaN with wae_note if a group has no words.
    wae_null, wae_null_low, wae_null_high: mean and range of WAE between two halves of the reference reports.
    wae_omitted_mass: share of reference tokens in words that the model omits, which WAE does not detect.
    wae_by_group: WAE over the words of each group; wae_delta: that of the first group minus that of the second. NaN
        with wae_delta_note if no word is associated with a group there.
    wae_groups: the two groups, of which the first is positive.
    With n_resamples also wae_ci_low, _ci_high, _ci_method (and for wae_delta), and wae_p_value of the test of no
    displacement, by exchanging references and predictions within patients.
Examples:
    >>> import cxrhf, evaluate
    >>> metric = evaluate.load(cxrhf.metric_path("wae"))
    >>> usual = "The heart size is normal. The lungs are clear. No pleural effusion or pneumothorax."
    >>> written = [usual + " Mastectomy."] * 40 + [usual] * 160
    >>> sex = ["F"] * 100 + ["M"] * 100

    Identical corpora give 0. A model that writes the usual words for everyone and never "mastectomy" stays close to 0;
    the omitted mass shows what is missing.

    >>> out = metric.compute(predictions=written, references=written, groups=sex)
    >>> out["wae"], out["wae_omitted_mass"]
    (0.0, 0.0)
    >>> out = metric.compute(predictions=[usual] * 200, references=written, groups=sex)
    >>> round(out["wae"], 2), round(out["wae_omitted_mass"], 4)
    (0.05, 0.0217)
"""

_CITATION = """
@article{parikh_measuring,
  title = {Measuring What VLMs Don't Say: Validation Metrics Hide Clinical Terminology Erasure in Radiology Report
           Generation},
  author = {Parikh, Aditya and Feragen, Aasa and Das, Sneha and Frank, Stella}
}
"""


@evaluate.utils.file_utils.add_start_docstrings(_DESCRIPTION, _KWARGS_DESCRIPTION)
class Wae(ModuleInputs, evaluate.Metric):
    """See above."""

    required = ("predictions", "references", "groups")
    optional = ("clusters",)
    texts = True

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
        clusters=None,
        *,
        pair=None,
        group=None,
        weights="prediction",
        alpha=0.1,
        n_null=200,
        n_resamples=0,
        seed=0,
        level=0.95,
    ):
        texts = two_groups(references, predictions, groups, clusters, pair=pair, group=group)
        settings = {"alpha": alpha, "seed": seed, "level": level}
        return wae_result(texts, weights=weights, n_null=n_null, n_resamples=n_resamples, **settings)
