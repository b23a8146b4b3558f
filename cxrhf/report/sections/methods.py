"""How the numbers were made and what they cannot say, audit by audit, in short."""

from __future__ import annotations

from collections.abc import Sequence

from cxrhf.report.book import Book
from cxrhf.report.sections.view import ASKED

_ALWAYS = (
    ("Uncertainty", "Values are computed on all images. Intervals come from the patient-level bootstrap, which "
     "resamples patients with all their images. Every number uses the same resamples, so differences are paired. "
     "With few positive patients, the interval is built on the log-odds scale with Student's t instead of "
     "percentiles; the results table names the method of each."),
)  # fmt: skip
_CORRECTED = {
    "bonferroni": "Every p value is corrected for all tests of one model on this page (Bonferroni). All "
    "differences of an audit form one family, and the audits with tests share the 5% equally. If there is no true "
    "difference, the probability of any significant result on the page is at most 5%.",
    "holm": "Every p value is corrected for all tests of one model on this page (Holm within an audit; the audits "
    "share the 5% equally).",
    "max_t": "Every p value is corrected for all tests of one model on this page (maximum statistic over the same "
    "resamples within an audit; the audits share the 5% equally).",
    "bh": "P values are corrected within each audit: at most 5% of the significant results are expected to be false "
    "(Benjamini-Hochberg).",
    "by": "P values are corrected within each audit: at most 5% of the significant results are expected to be false, "
    "under any dependence (Benjamini-Yekutieli).",
    "none": "P values are NOT corrected for multiple testing, as requested: of a hundred comparisons without a true "
    "difference, about five look significant.",
}
# Of a page that was asked something beforehand: the families, then what each rule promises.
_FAMILIES = (
    "Primary differences (--primary, or the attributes of --shortcuts) form one family over all models. Exploratory "
    "differences are corrected separately, so that neither family reduces the power of the other. "
)
_PROMISED = {
    "holds": "Each family has its own 5% ({name}; exploratory differences of one audit of one model are corrected "
    "together, and the audits share the 5% equally). If there is no true difference, the probability of any "
    "significant result is at most 5% among primary differences, and 5% among exploratory ones.",
    "share": "At most 5% of the significant results are expected to be false, among primary differences and within "
    "each exploratory audit ({name}).",
}
_RULES = {
    "bonferroni": ("holds", "Bonferroni"),
    "holm": ("holds", "Holm"),
    "max_t": ("holds", "maximum statistic over the same resamples"),
    "bh": ("share", "Benjamini-Hochberg"),
    "by": ("share", "Benjamini-Yekutieli"),
}
_APART = (
    "Maps and slices are exploratory searches: their p values are corrected separately, within each "
    "(Benjamini-Yekutieli for maps, Benjamini-Hochberg for slices)."
)
_AUDITS = (
    (("pretest",), "Pre-test probability from prior notes", "Classifiers are fitted to the notes of training images "
     "and chosen by cross-validation over patients and on the validation images; the numbers come from other "
     "patients. The intervals do not include the uncertainty of the fit. Calibration error is above zero even for a "
     "calibrated model, so the page also shows what a calibrated model would reach. Words are ranked by how far they "
     "move the probability; they are associations, not causes."),
    (("overview",), "Overview", "The threshold for 95% specificity is chosen on these images; expect slightly less on "
     "others. Calibration error is above zero even for a calibrated model, so the page also shows what a calibrated "
     "model would reach. Best J and best F1 are chosen on the evaluated images."),
    (("context",), "Context", "Strata are the bottom quarter, middle half and top quarter of the pre-test "
     "probability (ties stay together), and whether a prior note mentions the finding. They are the same in every "
     "resample. Calibration error grows as a stratum shrinks, so only its excess over the null is compared. Skill "
     "and calibration differ between strata even for a score that ignores context, because the prevalence differs."),
    (("reweighted", "matched"), "Context held equal", "ATT: negatives are weighted by q / (1 − q), where q is the "
     "pre-test probability, so that their context matches that of the positives. Matching answers the same question "
     "with pairs of least total difference in q, redone in every resample; if too few negatives have a high q, a "
     "difference remains. IPW estimates what would be seen if context and finding were independent in all images; "
     "this is a different question, so the numbers differ. Errors in q change the controlled numbers, and the "
     "intervals do not include the uncertainty of q."),
    (("reweighted", "matched"), "What a drop means", "A drop is the part of the ranking that goes with what was "
     "known before the image. It does not prove that the model reads context from the image, and equal context does "
     "not make the classes equal in other respects."),
    (("imbalance",), "Imbalance", "Another prevalence means the same scores among positives and among negatives in a "
     "different ratio. If the disease also looks different, the numbers will differ too. Balanced Brier is not a "
     "proper score. The decomposition by isotonic recalibration is fitted to the evaluated images."),
    (("subgroups",), "Subgroups", "Balanced: every subgroup is weighted to the same prevalence and the same ages, "
     "recomputed in every resample; the warnings list empty cells. A gap is the highest minus the lowest subgroup; "
     "its p value is multiplied by the number of pairs, because the extremes are selected. Race and sex are used as "
     "given in the table."),
    (("encoding",), "Characteristics in embeddings", "SPLIT: the network is frozen and a new linear layer learns a "
     "characteristic from its embeddings, on patients other than those it is evaluated on. It shows whether "
     "something can be read, not whether it is used. Networks are compared on the same patients; the differences are "
     "not tested."),
    (("features",), "Maps", "PCA and t-SNE (seeded) of the embeddings of at most 5,000 patients, one image each. "
     "t-SNE preserves neighbours, not distances: sizes of clusters and gaps between them have no meaning. Groups are "
     "compared along single directions (Kolmogorov-Smirnov), with the p values of one model corrected together "
     "(Benjamini-Yekutieli). Groups may also differ because their prevalence and ages differ."),
    (("slices",), "Slices", "Images with and without a finding are sliced separately. Slices are found on one half of "
     "the patients, then described and confirmed on the other. Odds ratios compare a slice with the rest of its class. "
     "The p value of a pair of slice and attribute is the larger of two (over-represented; different error). The false "
     "discovery rate among confirmed pairs is 5% (Benjamini-Hochberg). Only recorded attributes can be confirmed."),
    (("shortcut",), "Shortcuts", "Groups are compared on images with a known attribute, as observed and with the "
     "attribute weighted to one frequency within each class, recomputed in every resample of patients."),
    (("compare",), "Comparison", "Differences are computed within each resample of patients. Whole-sample "
     "differences are tested; differences in strata and subgroups have intervals only."),
)  # fmt: skip
_REPORTS = (
    ("Generated reports", "Similarity is the mean over reports, each against its own reference. Words are lower-case "
     "and alphabetic, without a fixed list of stop words. Intervals resample patients with all their reports, "
     "references and generated reports together, so that differences between strategies and from the references are "
     "paired. Template diversity and the type-token ratio fall as a corpus grows: compare them only between "
     "strategies on the same images."),
    ("Words associated with a group", "The association of a word is the log ratio of its frequency in two groups "
     "(counts smoothed by a small constant), in the references and in the generated reports. z divides it by its "
     "standard error; the displacement is the difference of the two, divided by its own. A word counts as erased "
     "only if its association in the references is significant after correction (Benjamini-Hochberg), and it is then "
     "generated at less than half the rate (exact binomial test: omitted) or displaced to neutral (neutralised). New "
     "and flipped associations must be displaced after correction."),
    ("The published rule", "Displaced beyond the level without correction, then bands of z (neutral below 1, strong "
     "above 2). A word that is never generated has such a large standard error that this rule calls it stable, and "
     "in a large vocabulary dozens of words pass by chance. The page shows both counts with those expected by "
     "chance, when group labels are shuffled between patients."),
    ("WAE and other sums", "WAE is the mean squared displacement over the vocabulary, weighted by the counts of "
     "either corpus. It has no direction: 0 for identical text, about 1 for faithful text by another author, low "
     "again if all reports are one template. Its null is the references split into two halves by patient. There are "
     "two permutation tests: exchanging reference and generated report within patients (no displacement), and "
     "exchanging groups between patients (no association). ΔWAE is WAE over words of the first group minus that of "
     "the second. WEAT depends on the word embeddings and word sets named in the results table."),
    ("Limits of counting words", "Counts ignore negation (\"no effusion\" counts as effusion) and meaning. Only a "
     "clinician can judge whether a lost word matters to a patient. Groups differ in their diseases, so words "
     "associated with one of them are expected. The q values of single words assume independent tokens and are "
     "corrected within one strategy and pair of groups. The p values of WAE, counts and differences exchange whole "
     "patients and are corrected together within one audit and model (Benjamini-Hochberg), women against men "
     "separately from other groups."),
)  # fmt: skip
_LIMITS = (
    "Labels are taken as true. If a program extracted them from reports, its errors affect every number. Nothing here "
    "shows how the model would change what a clinician does. Intervals are not corrected for multiple comparisons"
)


def methods(books: Sequence[Book], correction: str, reports: Sequence[Book] = ()) -> list[tuple[str, str]]:
    """Paragraphs with their names, of the audits that were run; `reports`: books of generated reports."""
    said = list(_ALWAYS)
    if any(cell.p_value == cell.p_value for book in books for cell in book.cells.values()):
        apart = f" {_APART}" if any(book.has("features", "slices") for book in books) else ""
        said.append(("Many comparisons", _corrected(correction) + apart))
    said += [(name, words) for audits, name, words in _AUDITS if any(book.has(*audits) for book in books)]
    said += _REPORTS if reports else ()
    limits = f"{_LIMITS}{'.' if correction.removesuffix(ASKED) == 'none' else '; p values are.'}"
    return [*said, *([("Limits", limits)] if books or not reports else [])]


def _corrected(correction: str) -> str:
    """How p values are corrected, by the rule as `view.correction_of` names it."""
    name = correction.removesuffix(ASKED)
    if name == correction or name not in _RULES:
        return _CORRECTED.get(name, _CORRECTED["bonferroni"])
    promise, shown = _RULES[name]
    return _FAMILIES + _PROMISED[promise].format(name=shown)
