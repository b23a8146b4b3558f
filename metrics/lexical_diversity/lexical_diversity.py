"""Generated reports, and those of radiologists if given -> how varied the language is."""

import datasets
import evaluate

from cxrhf.metrics.diversity import measure_diversity, measure_diversity_pair
from cxrhf.metrics.module import ModuleInputs

_DESCRIPTION = """
Lexical diversity of generated reports: 1 - self-BLEU (how different the reports are from each other), the share of
distinct reports, and distinct words over all words. With the reference reports, also their values, the differences, and
the kept, lost and new words. More is not better as such, because noise is diverse too. The target is the diversity of
the references.
"""

_KWARGS_DESCRIPTION = """
Inputs:
    predictions: generated reports, one str per row.
    references (optional): the radiologists' reports of the same images.
    clusters (optional): the patient of each row; intervals then split patients instead of rows.
Options:
    sample: number of reports to draw before self-BLEU, which increases with it; for corpora of different sizes. None
        (default) uses all.
    n_resamples: how often patients are split into quarters, whose spread gives the intervals; 0 (default) gives none.
        Use 100 or more; requires 12 patients. (This is not a bootstrap, in which repeated reports would look alike.)
    seed, level: seed (0) of the sample and the intervals, and level (0.95) of the intervals.
Returns a dict:
    lexical_diversity: 1 - self-BLEU, 0 (all equal) to 1, without a better direction. NaN with fewer than two reports.
    lexical_diversity_self_bleu, _template_diversity (share of distinct reports), _type_token_ratio, 0 to 1 each.
    lexical_diversity_n_texts, _n_empty, _n_tokens, _n_types.
    With _ci_low, _ci_high, _ci_method with n_resamples; _note if undefined.
    With references also lexical_diversity_reference (the same values for them), lexical_diversity_difference
    (generated minus reference, with its interval) and lexical_diversity_vocabulary (kept_share, lost_mass, new_mass,
    n_lost, n_new).
Examples:
    >>> import cxrhf, evaluate
    >>> metric = evaluate.load(cxrhf.metric_path("lexical_diversity"))
    >>> out = metric.compute(predictions=["The lungs are clear."] * 4)
    >>> out["lexical_diversity"], out["lexical_diversity_template_diversity"]
    (0.0, 0.25)

    Compared with what radiologists wrote, the model lost most of the words.

    >>> written = ["The lungs are clear.", "Small left effusion.", "The heart is enlarged.", "Clips after mastectomy."]
    >>> out = metric.compute(predictions=["The lungs are clear."] * 4, references=written)
    >>> out["lexical_diversity_reference"]["template_diversity"], out["lexical_diversity_vocabulary"]["n_lost"]
    (1.0, 8)
"""

_CITATION = """
@article{parikh_measuring,
  title = {Measuring What VLMs Don't Say: Validation Metrics Hide Clinical Terminology Erasure in Radiology Report
           Generation},
  author = {Parikh, Aditya and Feragen, Aasa and Das, Sneha and Frank, Stella}
}
"""


@evaluate.utils.file_utils.add_start_docstrings(_DESCRIPTION, _KWARGS_DESCRIPTION)
class LexicalDiversity(ModuleInputs, evaluate.Metric):
    """See above."""

    required = ("predictions",)
    optional = ("references", "clusters")
    texts = True

    def _info(self):
        return evaluate.MetricInfo(
            description=_DESCRIPTION,
            citation=_CITATION,
            inputs_description=_KWARGS_DESCRIPTION,
            features=self.declared(datasets),
        )

    def _measure(self, predictions, references=None, clusters=None, *, sample=None, n_resamples=0, seed=0, level=0.95):
        settings = {"clusters": clusters, "sample": sample, "n_resamples": n_resamples, "seed": seed, "level": level}
        if references is None:
            return named(measure_diversity(predictions, **settings))
        both = measure_diversity_pair(predictions, references, **settings)
        return named(both["generated"]) | {
            "lexical_diversity_reference": both["reference"],
            "lexical_diversity_difference": both["difference"],
            "lexical_diversity_vocabulary": both["vocabulary"],
        }


def named(found):
    """1 - self-BLEU under the metric's name, the other numbers behind it."""
    main = "self_bleu_diversity"
    first = {f"lexical_diversity{key.removeprefix(main)}": found[key] for key in found if key.startswith(main)}
    return first | {f"lexical_diversity_{key}": found[key] for key in found if not key.startswith(main)}
