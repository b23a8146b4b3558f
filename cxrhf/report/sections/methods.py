"""How the numbers were made and what they cannot say, audit by audit, in short."""

from __future__ import annotations

from collections.abc import Sequence

from cxrhf.report.book import Book
from cxrhf.report.sections.view import ASKED

_ALWAYS = (
    ("Uncertainty", "Values are computed on all images; intervals come from drawing patients, with all their images, "
     "again and again. The same draws serve every number, so differences are paired. With few positive patients the "
     "interval is built on the log-odds scale with Student's t instead of percentiles; the results table names the "
     "method of each."),
)  # fmt: skip
_CORRECTED = {
    "bonferroni": "Every p value is corrected for everything this page tests of one model (Bonferroni): all "
    "differences of an audit are one family, and the audits that test anything share the 5% evenly. If nothing is "
    "going on, the chance that anything on the page is called beyond chance is at most 5%.",
    "holm": "Every p value is corrected for everything this page tests of one model (Holm within an audit; the audits "
    "share the 5% evenly).",
    "max_t": "Every p value is corrected for everything this page tests of one model (largest statistic over the same "
    "resamples within an audit; the audits share the 5% evenly).",
    "bh": "P values are corrected within each audit so that among what is called beyond chance at most 5% is expected "
    "to be false (Benjamini-Hochberg).",
    "by": "P values are corrected within each audit so that among what is called beyond chance at most 5% is expected "
    "to be false, whatever their dependence (Benjamini-Yekutieli).",
    "none": "P values are NOT corrected for their number (as asked): of a hundred comparisons without any true "
    "difference about five look significant.",
}
# Of a page that was asked something beforehand: the families, then what each rule promises.
_FAMILIES = (
    "Differences that were asked for beforehand (--primary, or the attributes of --shortcuts) are one family over all "
    "models, and what the page explores on its own is corrected apart from them, so that neither drowns the other. "
)
_PROMISED = {
    "holds": "Each of the two is held at its own 5% ({name}; of what is explored, all differences of an audit of one "
    "model go together and the audits share the 5% evenly): if nothing is going on, the chance that anything is called "
    "beyond chance is at most 5% for what was asked, and again 5% for what is explored.",
    "share": "Among what is called beyond chance at most 5% is expected to be false, in what was asked for and within "
    "each explored audit ({name}).",
}
_RULES = {
    "bonferroni": ("holds", "Bonferroni"),
    "holm": ("holds", "Holm"),
    "max_t": ("holds", "largest statistic over the same resamples"),
    "bh": ("share", "Benjamini-Hochberg"),
    "by": ("share", "Benjamini-Yekutieli"),
}
_APART = (
    "Maps and slices search for what nobody asked about: their p values stand apart, corrected within each "
    "(Benjamini-Yekutieli; Benjamini-Hochberg)."
)
_AUDITS = (
    (("pretest",), "Pre-test probability from prior notes", "Classifiers are fitted to the notes of training images, "
     "chosen by cross-validation over patients and on the validation images; the numbers are of other patients. The "
     "fit is taken as given: its own uncertainty is not in the intervals. Calibration error is above zero even for a "
     "calibrated model, so it stands beside what a calibrated model would show here. Words are ranked by how far they "
     "move the probability; they are associations, not causes."),
    (("overview",), "Overview", "The threshold for 95% specificity is chosen on these images; elsewhere expect "
     "slightly less. Calibration error is above zero even for a calibrated model, so it stands beside what a "
     "calibrated model would show here. Best J and best F1 are chosen on the images they are judged on."),
    (("context",), "Context", "Strata are the bottom quarter, middle half and top quarter of the pre-test probability "
     "(ties stay together) and whether an earlier note mentions the finding. They stay the same in every resample. "
     "Calibration error grows as a stratum shrinks: only what exceeds its null is compared. Skill and calibration "
     "differ between strata even for a score that ignores the chart, because the prevalence does."),
    (("reweighted", "matched"), "Context held equal", "ATT: negatives are weighted by q / (1 − q), where q is the "
     "pre-test probability, so that their context looks like that of the positives. Matching asks the same with pairs "
     "of least total difference in q, matched anew in every resample; where negatives of high q run out a gap "
     "remains. IPW asks what would be seen if context and finding were independent in everybody: another question, so "
     "the numbers differ. q is taken as given: errors in it move the controlled numbers, and its own uncertainty is "
     "not in the intervals."),
    (("reweighted", "matched"), "What a drop means", "It is ranking that goes along with what was known before the "
     "image. It does not prove that the model reads context from the image, and equal context does not make the "
     "classes equal in everything else."),
    (("imbalance",), "Imbalance", "Another prevalence means the same scores among positives and among negatives, only "
     "mixed differently; in a clinic where the disease also looks different the numbers will differ too. Balanced "
     "Brier is no proper score. The split by isotonic recalibration is fitted to the images it is measured on."),
    (("subgroups",), "Patient groups", "Balanced: every group is weighted to the same prevalence and the same ages, "
     "anew in every resample; empty cells are named in the warnings. A gap is the highest less the lowest group; its "
     "p value is multiplied by the number of pairs, for picking the two ends. Race and sex are taken as the table has "
     "them."),
    (("encoding",), "What vectors tell", "SPLIT: the network is frozen and a new linear layer learns a characteristic "
     "from its vectors, on other patients than those it is measured on. It tells whether something can be read, not "
     "whether it is used. Networks are compared on the same patients; those differences are not tested."),
    (("features",), "Maps", "PCA and t-SNE (seeded) of the vectors of at most 5,000 patients, one image each. t-SNE "
     "keeps neighbours, not distances: sizes of clumps and gaps between them mean nothing. Groups are compared along "
     "single directions (Kolmogorov-Smirnov), with the p values of one model corrected together "
     "(Benjamini-Yekutieli). Groups may also differ because their prevalence and ages do."),
    (("slices",), "Slices", "Images with and without a finding are cut into slices apart. They are found on one half "
     "of the patients, described and confirmed on the other. Odds ratios compare a slice with the rest of its class. "
     "The p value of a pair of slice and attribute is the larger of two (over-represented; an error of its own); the "
     "share of false ones among those called confirmed is held at 5% (Benjamini-Hochberg). Only what is written down "
     "of the images can be confirmed."),
    (("shortcut",), "Shortcuts", "Groups are compared on the images whose attribute is known, as they are and with the "
     "attribute weighted to one frequency within each class, anew in every resample of patients."),
    (("compare",), "Comparison", "Differences are taken within each resample of patients. Whole-sample numbers are "
     "tested; numbers of strata and groups have intervals only."),
)  # fmt: skip
_REPORTS = (
    ("Generated reports", "Likeness is the mean over reports, each against its own reference. Words are lower-case and "
     "alphabetic, without a fixed list of stop words. Intervals draw patients with all their reports, references and "
     "generated ones together, so that differences between strategies and from the references are paired. Template "
     "diversity and the type-token ratio fall as a corpus grows: compare them only between strategies on the same "
     "images."),
    ("Words that go with a group", "For every word the log ratio of its frequency between two groups (counts smoothed "
     "by a small constant), in the references and in the generated reports; z is that over its standard error, and the "
     "displacement is the difference of the two over its own. By our rule a word counts as erased only if its "
     "association in the references passes a corrected test (Benjamini-Hochberg), and it is then generated at less "
     "than half the rate (exact binomial test: omitted), or displaced to neutral (neutralised). New and flipped "
     "associations must be displaced after correction."),
    ("The printed rule", "As published: displaced beyond the level without correction, then bands of z (neutral below "
     "1, strong above 2). A word that is never generated has so large a standard error that this rule calls it stable; "
     "and of a large vocabulary dozens of words pass by chance. Both counts stand beside what they give when group "
     "labels are shuffled between patients."),
    ("WAE and other sums", "WAE is the mean squared displacement over the vocabulary, weighted by the counts of either "
     "corpus. It has no direction: 0 for the same text, about 1 for faithful text by another hand, low again when all "
     "reports are one template; its null is the references cut in two halves by patient. Two permutation tests: "
     "exchanging reference and generated report within patients (no displacement), and exchanging groups between "
     "patients (no association). ΔWAE is WAE over words of the first group less that over words of the second. WEAT "
     "depends on the word vectors and sets that the results table names."),
    ("Limits of counting words", "Counts know no negation (\"no effusion\" counts as effusion) and no meaning; whether "
     "a lost word matters to a patient only a clinician can say. Groups differ in their diseases, so words that go "
     "with one of them are expected. Q values of single words hold for independent tokens and are corrected within one "
     "strategy and pair of groups; p values of WAE, counts and differences exchange whole patients, and all of one "
     "audit and model are corrected by Benjamini-Hochberg, women against men apart from other groups."),
)  # fmt: skip
_LIMITS = (
    "Labels are taken as true; where they were read from reports by a program, its errors are in every number. "
    "Nothing here says how the model would change what a clinician does. Intervals are not corrected for their "
    "number"
)


def methods(books: Sequence[Book], correction: str, reports: Sequence[Book] = ()) -> list[tuple[str, str]]:
    """Paragraphs with their names, of the audits that were run; `reports`: books of generated reports."""
    said = list(_ALWAYS)
    if any(cell.p_value == cell.p_value for book in books for cell in book.cells.values()):
        apart = f" {_APART}" if any(book.has("features", "slices") for book in books) else ""
        said.append(("Many comparisons", _corrected(correction) + apart))
    said += [(name, words) for audits, name, words in _AUDITS if any(book.has(*audits) for book in books)]
    said += _REPORTS if reports else ()
    limits = f"{_LIMITS}{'.' if correction.removesuffix(ASKED) == 'none' else ', p values are.'}"
    return [*said, *([("Limits", limits)] if books or not reports else [])]


def _corrected(correction: str) -> str:
    """How p values are corrected, by the rule as `view.correction_of` names it."""
    name = correction.removesuffix(ASKED)
    if name == correction or name not in _RULES:
        return _CORRECTED.get(name, _CORRECTED["bonferroni"])
    promise, shown = _RULES[name]
    return _FAMILIES + _PROMISED[promise].format(name=shown)
