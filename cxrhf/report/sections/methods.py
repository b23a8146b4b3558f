"""How the numbers were made and what they cannot say, audit by audit, in short."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from cxrhf.report.blocks import Block, Column, Entry, Gallery, Map, Table, Words, finding_name, words_entry
from cxrhf.report.book import Book
from cxrhf.report.numbers import join_names
from cxrhf.report.sections.features import LEAST
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
        said.append(("Many comparisons", _correction_sentence(correction) + apart))
    said += [(name, words) for audits, name, words in _AUDITS if any(book.has(*audits) for book in books)]
    said += _REPORTS if reports else ()
    limits = f"{_LIMITS}{'.' if correction.removesuffix(ASKED) == 'none' else '; p values are.'}"
    return [*said, *([("Limits", limits)] if books or not reports else [])]


def _correction_sentence(correction: str) -> str:
    """How p values are corrected, by the rule as `view.correction_of` names it."""
    name = correction.removesuffix(ASKED)
    if name == correction or name not in _RULES:
        return _CORRECTED.get(name, _CORRECTED["bonferroni"])
    promise, shown = _RULES[name]
    return _FAMILIES + _PROMISED[promise].format(name=shown)


# Reporting checklists -> which part of this page answers an item, and which items only the user can answer.
#
# Topics are in our words; item numbers are those of CLAIM (2024 update, 44 items), TRIPOD+AI (2024, 27 items) and the
# model card that the FDA's draft guidance on AI-enabled device software (January 2025) describes, which has no
# numbers. Development items that no audit of predictions can touch stand together in one row.

YES, PART, NO = "answered here", "in part", "up to you"
# Item, topic, audits that answer it (() = always there), how far, what this page gives or what is missing.
Item = tuple[str, str, tuple[str, ...], str, str]

_CLAIM: tuple[Item, ...] = (
    ("1–4", "Title, abstract, background, aims", (), NO, "what the model is for and why it was tested"),
    ("5–6", "Design and goal of the study", (), PART, "retrospective audit of given predictions; explain why"),
    ("7", "Sources of data", (), PART, "file names and hashes (Provenance); state their origin and dates"),
    ("8", "Inclusion and exclusion", (), PART, "counts; the flow of the dataset if cxrhf built it"),
    ("9–11", "Preparation, subsets, de-identification of data", (), NO, "how images and labels were prepared"),
    ("12", "Missing data", (), PART, "unlabelled images are excluded and counted; explain why labels are missing"),
    ("13", "How images were taken", (), NO, "scanners, protocols, sites"),
    ("14–18", "Reference standard, its sources and agreement", (), NO, "labels are taken as true here"),
    ("19–20", "Split of the data, at which level", (), PART, "patients are the unit of resampling; describe how the "
     "data were split"),
    ("21", "Sample size", ("overview",), PART, "verdict per finding on whether there is enough data; no planning"),
    ("22–27", "Model, software, training, selection, ensembles", (), NO, "a table of predictions does not contain "
                                                                         "this"),
    ("28", "Metrics of performance", ("overview",), YES, "Overview, with what each number means"),
    ("29", "Statistical uncertainty and significance", (), YES, "Methods: patients resampled, p values"),
    ("30", "Robustness or sensitivity analysis", ("context", "reweighted", "matched", "imbalance"), YES,
     "Context, context controlled, other prevalences"),
    ("31", "Explainability", ("features", "slices"), PART, "maps of the embeddings and slices; no single images"),
    ("32", "Internal testing", ("overview",), PART, "state whether these images come from the sources of the model"),
    ("33", "External testing", ("overview",), PART, "state whether they do not; across datasets if several were given"),
    ("34", "Registration of a trial", (), NO, "if there was one"),
    ("35", "Numbers included and excluded", (), PART, "images, patients, positives per finding"),
    ("36", "Who the patients are, per partition", ("subgroups",), PART, "counts by subgroup if the table has them"),
    ("37–38", "Performance and its precision", ("overview",), YES, "Headline and Overview, intervals everywhere"),
    ("39", "Failure analysis", ("context", "subgroups", "slices"), PART, "strata, subgroups and slices where it fails; "
     "also inspect images"),
    ("40", "Limitations", (), PART, "Methods and limits; add the limitations of your study"),
    ("41", "Meaning for practice", (), NO, "intended use and clinical role"),
    ("42–43", "Protocol; access to software, model and data", (), PART, "software and versions (Provenance)"),
    ("44", "Funding", (), NO, "and the role of funders"),
)  # fmt: skip
_TRIPOD: tuple[Item, ...] = (
    ("1–4", "Title, abstract, background, inequalities, objectives", (), NO, "why, for whom, which inequalities"),
    ("5a–5b", "Sources and dates of data", (), PART, "file names and hashes; state sites and dates"),
    ("6a–6c", "Setting, eligibility, treatment", (), NO, "of the study"),
    ("7", "Preparation of data", (), PART, "how cxrhf read the table (Provenance)"),
    ("8a–8c", "Outcome, assessors, blinding", (), NO, "how each finding was labelled"),
    ("9a–9c", "Predictors", (), NO, "the image; for the pre-test probability, its inputs (Provenance)"),
    ("10", "Sample size", ("overview",), PART, "verdict per finding; no planning"),
    ("11", "Missing data", (), PART, "excluded and counted; explain why they are missing"),
    ("12a–12d", "Use of data, model building, heterogeneity", (), NO, "of development"),
    ("12e", "Measures of performance", ("overview",), YES, "discrimination, calibration and utility with intervals"),
    ("12f", "Updating of the model", (), NO, "recalibration is measured (Brier decomposition), not applied"),
    ("12g", "How predictions were calculated", (), PART, "used as given; describe how they were computed"),
    ("13", "Class imbalance", ("imbalance",), YES, "Rare findings and other prevalences"),
    ("14", "Fairness", ("subgroups",), YES, "Subgroups, as observed and balanced"),
    ("15", "Output of the model and thresholds", ("overview",), PART, "probability or score, thresholds per finding"),
    ("16", "Differences between development and evaluation data", (), NO, "only you know the development data"),
    ("17–19", "Ethics, funding, conflicts, protocol, sharing, patients' part", (), NO, "of the study"),
    ("20a–20c", "Participants: flow, characteristics, comparison", ("subgroups",), PART, "counts and groups; flow of a "
     "built dataset"),
    ("21–22", "Model development and specification", (), NO, "of the model"),
    ("23a", "Performance with intervals, also in groups", ("overview", "subgroups"), YES, "Overview, Subgroups"),
    ("23b", "Heterogeneity across sites or clusters", (), PART, "across datasets, if several were given"),
    ("24", "Results of updating", (), NO, "no updating was done"),
    ("25", "Interpretation, fairness included", (), PART, "sentences per finding; interpretation is up to you"),
    ("26", "Limitations", (), PART, "Methods and limits"),
    ("27a–27c", "Use in care: poor inputs, users, next steps", (), NO, "of the intended use"),
)  # fmt: skip
_FDA: tuple[Item, ...] = (
    ("–", "That AI is used, name, version, maker, status", (), PART, "name of the model as in the table"),
    ("–", "Intended use, users, place in the workflow", (), NO, "indications, setting, who acts on the output"),
    ("–", "Inputs and outputs", (), PART, "findings and kind of score; state compatible devices and views"),
    ("–", "Degree of automation, installation, customisation", (), NO, "of the device"),
    ("–", "Architecture and development data", (), NO, "who was included, how it was labelled"),
    ("–", "Performance data: source, size, reference standard", (), PART, "size and hashes; state sites and "
                                                                          "reference standard"),
    ("–", "Performance measures with confidence intervals", ("overview",), YES, "Headline and Overview"),
    ("–", "Performance in subgroups", ("subgroups",), YES, "sex, race, age, view and intersections"),
    ("–", "Operating points and their trade-offs", ("overview", "imbalance"), YES, "95% specificity; largest F1; any "
     "prevalence"),
    ("–", "Limitations and known failure", (), PART, "warnings and limits; add clinical ones"),
    ("–", "Risks and how they are managed; monitoring in use", (), NO, "this page covers one point in time; repeat it"),
)  # fmt: skip
LISTS = (("CLAIM, 2024 update", _CLAIM), ("TRIPOD+AI, 2024", _TRIPOD), ("FDA model card, draft guidance of 2025", _FDA))


def checklists(books: Sequence[Book]) -> list[Table]:
    """One table a checklist; an item whose audit left nothing is not called answered."""
    return [_table(name, items, books) for name, items in LISTS]


def _table(name: str, items: Sequence[Item], books: Sequence[Book]) -> Table:
    rows = []
    for at, (item, topic, audits, how, words) in enumerate(items):
        there = not audits or any(book.has(*audits) for book in books)
        given = how if there else NO
        said = words if given != NO else f"not on this page: {words}"
        said = said if there else f"the audit was not run ({', '.join(audits)})"
        order = {YES: "0", PART: "1", NO: "2"}[given]
        answer = Entry(given.capitalize(), "", order, "", True, strong=given == YES)
        rows.append([Entry(item, key=f"{at:03d}"), words_entry(topic), answer, words_entry(said)])
    yes, part, no = (sum(row[2].key == order for row in rows) for order in "012")
    columns = [
        Column("Item"),
        Column("Topic", "", True),
        Column("This page", "", True),
        Column("Where, or what to add", "", True),
    ]
    about = f"{yes} items answered here, {part} in part, {no} only you can answer."
    return Table(name, columns, rows, about=about, by_finding=False)


# The parts of a page -> a sentence that says what of patients it holds.


def privacy_words(blocks: Iterable[Block], some_words: bool, reports: bool = False, may_show: bool = False) -> str:
    """What the foot of the page says: true of this page, whatever is in it.

    `reports`: it is of generated reports; where they may be shown it has the text of the most frequent ones.
    """
    found = list(blocks)
    thumbnails = sum(block.n for block in found if isinstance(block, Gallery))
    maps = [block for block in found if isinstance(block, Map)]
    single = sum(block.n for block in maps if not block.one_at_a_time)
    words_shown = [block for block in found if isinstance(block, Words)]
    everything = reports and may_show
    lacks = [] if everything else ["no whole report"] if reports else ["no text"]
    lacks = lacks if thumbnails else ["no image", *lacks, "no id"]
    has = []
    if thumbnails:
        has.append(f"{thumbnails:,} thumbnails of images with their ids, for labelling sheets")
    if single:
        has.append(f"the positions of {single:,} patients in maps, with disease, sex, race and age band but no id")
    if any(block.one_at_a_time for block in maps):
        has.append(f"counts of patients in map cells, each of at least {LEAST}")
    if words_shown:
        few = "" if everything else ", each of at least five patients"
        has.append(f"single words of reports{few}")
    has += ["the most frequently generated reports"] if everything else []
    words = f"This page holds {join_names(lacks) or 'nothing more'} of any patient"
    words += " (single words of notes, if at least five patients have them)" if some_words else ""
    words += f"; it holds {join_names(has)}" if has else ""
    may = " Its data may be shown; anyone with the page has these too."
    may = may if thumbnails or single or everything else ""
    return f"{words}. It loads nothing from the network.{may}"


# Notes of the audits -> warnings grouped by what they say, so that fourteen findings do not make a wall of text.

_NUMBER = re.compile(r"\d[\d,.]*\d|\d")
# A grouping of patients, as `sex`, or `sex & age`; or an audit's name: what a note may start with, after the model.
_PLACE = re.compile(
    r"^(?:sex|race|age|view|context|matched|reweighted|imbalance|subgroups|features|slices|shortcut)(?: & \w+)*$"
)
_DATASET = re.compile(r" \(dataset (.+)\)$")
# Where a note belongs, by a word in it; the first that fits.
_KINDS = (
    ("Subgroups", r"\bgroups?\b|\bgaps?\b"),
    ("Patient context", r"overlap|ATT|IPW|pairs|pre-test|pretest|earlier note|prior note|mention|context|weighting"),
    ("Embeddings and slices", r"\bembeddings?\b|\bvectors?\b|\bslices?\b|\bmaps?\b|\bshortcut|\battribute"),
    ("Comparison and runs", r" against | runs \(|compared"),
    ("Scores and thresholds", r"threshold|probabilit|Brier|scores|calibrat"),
)


class GroupedWarning(NamedTuple):
    """One thing to know: whom it concerns, what it says, and each of its sentences where there are several."""

    who: str
    words: str
    each: list[str]


class _Note(NamedTuple):
    model: str
    dataset: str
    who: tuple[str, ...]
    words: str


def group_warnings(
    notes: Sequence[str], models: Sequence[str], findings: Sequence[str]
) -> list[tuple[str, list[GroupedWarning]]]:
    """Warnings under the name of what they concern; notes that differ only in numbers, model or finding are one."""
    names = {each.lower(): finding_name(each) for each in findings}
    by_length = sorted((each for each in models if each), key=len, reverse=True)
    parted = [_parts(note, by_length, names) for note in notes]
    # The same sentence with an ending says more.
    whose: dict[tuple[str, str, tuple[str, ...]], list[_Note]] = {}
    for note in parted:
        whose.setdefault(note[:3], []).append(note)
    parted = [
        one
        for one in parted
        if not any(two.words.startswith(f"{one.words};") for two in whose[one[:3]] if two is not one)
    ]
    alike: dict[str, list[_Note]] = {}
    listing = _listing(names)
    for note in parted:
        words = listing.sub("…", note.words) if listing else note.words
        alike.setdefault(_NUMBER.sub("…", words), []).append(note)
    places = list(dict.fromkeys(note.dataset for note in parted if note.dataset))
    # The mean of several runs has few notes of its own: what all runs say is said of all models.
    models = [each for each in models if not any(other.startswith(f"{each} (seed ") for other in models)]
    out: dict[str, list[GroupedWarning]] = {}
    for skeleton, several in alike.items():
        out.setdefault(_kind(skeleton), []).append(_make_warning(skeleton, several, models, places))
    # Context first: "Subgroups" stands before it in _KINDS only because its words are the surer sign.
    order = [*(name for name, _ in _KINDS[1::-1]), *(name for name, _ in _KINDS[2:])]
    return sorted(out.items(), key=lambda each: order.index(each[0]) if each[0] in order else -1)


def _make_warning(
    skeleton: str, several: Sequence[_Note], models: Sequence[str], places: Sequence[str]
) -> GroupedWarning:
    whom = list(dict.fromkeys(name for note in several for name in note.who))
    whose = list(dict.fromkeys(note.model for note in several if note.model))
    where = list(dict.fromkeys(note.dataset for note in several if note.dataset))
    who = [join_names(whom)] if whom else []
    who += [join_names(whose)] if not set(models) <= set(whose) and whose else []
    who += [join_names(where)] if where and (len(where) < len(places) or len(places) == 1) else []
    said = list(dict.fromkeys(note.words for note in several))
    if len(said) == 1:
        return GroupedWarning(", ".join(who), _sentence(said[0]), [])
    each = []
    for note in dict.fromkeys(several):
        model = [note.model] if note.model and len(models) > 1 else []
        head = ", ".join([*note.who, *model, *([note.dataset] if note.dataset else [])])
        each.append(f"{head}: {note.words}" if head else note.words)
    return GroupedWarning(", ".join(who), _sentence(skeleton), each)


def _parts(note: str, models: Sequence[str], findings: dict[str, str]) -> _Note:
    """`model: finding: words (dataset name)` taken apart; what is not there is empty. `models`: the longest first."""
    found = _DATASET.search(note)
    dataset = found[1] if found else ""
    note = note[: found.start()] if found else note
    model = next((each for each in models if note.startswith(f"{each}: ")), "")
    words = note[len(model) + 2 :] if model else note
    head, colon, rest = words.partition(": ")
    if colon and rest:
        named = [part.strip().lower() for part in head.split(",")]
        if all(part in findings for part in named):
            return _Note(model, dataset, tuple(findings[part] for part in named), rest)
        if _PLACE.match(head):
            return _Note(model, dataset, (head[:1].upper() + head[1:],), rest)
    return _Note(model, dataset, (), words)


def _listing(findings: dict[str, str]) -> re.Pattern[str] | None:
    """A pattern of names of findings: lists of them differ from model to model and group to group."""
    if not findings:
        return None
    names = "|".join(re.escape(name) for name in sorted(findings, key=len, reverse=True))
    return re.compile(rf"\b(?:{names})\b(?:, (?:{names})\b)*")


def _kind(words: str) -> str:
    return next((name for name, pattern in _KINDS if re.search(pattern, words)), "Data")


def _sentence(words: str) -> str:
    return words[:1].upper() + words[1:]
