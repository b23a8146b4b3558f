"""Generated and reference reports with groups -> the words whose association with a group the model erased or moved."""

import datasets
import evaluate

from cxrhf.metrics.association import cad_corpora
from cxrhf.metrics.module_inputs import ModuleInputs
from cxrhf.metrics.words_measured import measured_words, two_groups
from cxrhf.metrics.words_resample import bootstrap_words

_DESCRIPTION = """
Clinical association displacement (CAD): for every word, the log ratio of its frequency between two groups of patients
in the reference reports and in the generated reports, and the standardised difference of the two. Words are sorted into
those whose association the model omits, neutralises, brings in new, flips, amplifies, weakens or preserves.
"""

_KWARGS_DESCRIPTION = """
Inputs:
    predictions: generated reports, one str a row.
    references: the reports that radiologists wrote for the same images.
    groups: the patient's group of each row (sex, age band, ...).
    clusters (optional): the patient of each row; without, every row is a patient of its own.
Options:
    pair: two groups to compare, as ("F", "M"); the first is positive. By default the only two there are, by alphabet.
    group: one group, compared with all others together; for more than two groups.
    rule: how a word is found to be associated with a group in the references. "either" (default, as in `cxrhf audit`):
        by "score" or by "exact". "score": by the z score, which cannot see words that only one group has. "exact": by
        an exact test on patients. These three correct by Benjamini-Hochberg and test omission on pooled counts.
        "paper": the printed bands without correction, which cannot see words that are never generated.
    alpha, p_star, z_neutral, z_strong, min_count: smoothing .1, level .05, bands 1 and 2, least reference count 10.
    max_words: how many displaced words to list, 50.
    n_resamples: bootstrap replicates over patients, for intervals of each word's displacement; 0 (default) gives none.
    seed, level: of the intervals (0, .95).
Returns a dict:
    cad: erased words (omitted or neutralised) as a share of the words associated with a group in the references; 0 to
        1, lower is better. NaN when no word is associated, with cad_note. By rule "paper" a word is associated when
        |z_ref| > z_strong.
    cad_erased, cad_associated, cad_words: numbers of words; cad_categories: words by category; cad_paper: words by the
        printed categories, for comparison.
    cad_omitted_mass: share of reference tokens in words that the model leaves out, whatever their association.
    cad_delta_dir: tokens of the second group over the first, predictions less references.
    cad_moved: the displaced or erased words, most displaced first, with counts, z scores, q value and category; with
        n_resamples also the displacement (difference of log ratios) and its interval.
    cad_groups: the two groups, the first is positive.
Examples:
    >>> import cxrhf, evaluate
    >>> metric = evaluate.load(cxrhf.metric_path("cad"))
    >>> usual = "The heart size is normal. The lungs are clear. No pleural effusion or pneumothorax."
    >>> written = [usual + " Mastectomy."] * 40 + [usual] * 160
    >>> sex = ["F"] * 100 + ["M"] * 100

    A model that writes the same sentence for everybody: a word that only women's reports had is gone. The printed rule
    does not see it.

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
        return measured_words(found, drawn, max_words=max_words, level=level)
