"""Generated and reference reports with groups -> the words whose association with a group the model erased or moved."""

import datasets
import evaluate

from cxrhf.metrics.module import ModuleInputs
from cxrhf.metrics.words import bootstrap_words, cad_corpora
from cxrhf.metrics.words_measured import cad_result, two_groups

_DESCRIPTION = """
Clinical association displacement (CAD): for every word, the log ratio of its frequency between two groups of patients
in the reference reports and in the generated reports, and the standardised difference between the two. Each word gets a
category: its association is omitted, neutralised, new, flipped, amplified, weakened or preserved.
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
    rule: the test of association with a group in the references. "either" (default, as in `cxrhf audit`): by "score" or
        by "exact". "score": the z score, which does not detect words that only one group has. "exact": an exact test on
        patients. These three correct by Benjamini-Hochberg and test omission on pooled counts. "paper": the printed
        bands without correction, which do not detect words that are never generated.
    alpha, p_star, z_neutral, z_strong, min_count: smoothing 0.1, level 0.05, bands 1 and 2, least reference count 10.
    max_words: largest number of displaced words to list (50).
    n_resamples: bootstrap replicates over patients for the intervals of displacements; 0 (default) gives none.
    seed, level: seed (0) and level (0.95) of the intervals.
Returns a dict:
    cad: erased words (omitted or neutralised) as a share of the words associated with a group in the references; 0 to
        1, lower is better. NaN with cad_note if no word is associated. By the rule "paper", a word is associated if
        |z_ref| > z_strong.
    cad_erased, cad_associated, cad_words: numbers of words; cad_categories: words by category; cad_paper: words by the
        printed categories, for comparison.
    cad_omitted_mass: share of reference tokens in words that the model omits, whatever their association.
    cad_delta_dir: tokens of the second group over the first, predictions minus references.
    cad_moved: the displaced or erased words, most displaced first, with counts, z scores, q value and category; with
        n_resamples also the displacement (difference of log ratios) and its interval.
    cad_groups: the two groups, of which the first is positive.
Examples:
    >>> import cxrhf, evaluate
    >>> metric = evaluate.load(cxrhf.metric_path("cad"))
    >>> usual = "The heart size is normal. The lungs are clear. No pleural effusion or pneumothorax."
    >>> written = [usual + " Mastectomy."] * 40 + [usual] * 160
    >>> sex = ["F"] * 100 + ["M"] * 100

    A model that writes the same sentence for everyone loses a word that only women's reports had. The published rule
    does not detect it.

    >>> out = metric.compute(predictions=[usual] * 200, references=written, groups=sex)
    >>> out["cad_erased"], [word["word"] for word in out["cad_moved"] if word["category"] == "omitted"]
    (1, ['mastectomy'])
    >>> out["cad_paper"]["erasure"]
    0

    A faithful model erases nothing.

    >>> out = metric.compute(predictions=written, references=written, groups=sex)
    >>> out["cad"], out["cad_categories"]["preserved"]
    (0.0, 1)
"""

_CITATION = """
@article{parikh_measuring,
  title = {Measuring What VLMs Don't Say: Validation Metrics Hide Clinical Terminology Erasure in Radiology Report
           Generation},
  author = {Parikh, Aditya and Feragen, Aasa and Das, Sneha and Frank, Stella}
}
"""


@evaluate.utils.file_utils.add_start_docstrings(_DESCRIPTION, _KWARGS_DESCRIPTION)
class Cad(ModuleInputs, evaluate.Metric):
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
        rule="either",
        alpha=0.1,
        p_star=0.05,
        z_neutral=1.0,
        z_strong=2.0,
        min_count=10,
        max_words=50,
        n_resamples=0,
        seed=0,
        level=0.95,
    ):
        texts = two_groups(references, predictions, groups, clusters, pair=pair, group=group)
        bands = {"p_star": p_star, "z_neutral": z_neutral, "z_strong": z_strong, "min_count": min_count}
        found = cad_corpora(texts, rule=rule, alpha=alpha, **bands)
        drawn = bootstrap_words(texts, alpha=alpha, n_resamples=n_resamples, seed=seed) if n_resamples else None
        return cad_result(found, drawn, max_words=max_words, level=level)
