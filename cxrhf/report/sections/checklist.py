"""Reporting checklists -> which part of this page answers an item, and which items only the user can answer.

Topics are in our words; item numbers are those of CLAIM (2024 update, 44 items), TRIPOD+AI (2024, 27 items) and the
model card that the FDA's draft guidance on AI-enabled device software (January 2025) describes, which has no numbers.
Development items that no audit of predictions can touch stand together in one row.
"""

from __future__ import annotations

from collections.abc import Sequence

from cxrhf.report.blocks import Column, Entry, Table, words_entry
from cxrhf.report.book import Book

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
