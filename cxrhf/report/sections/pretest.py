"""RESULT rows of the audit "pretest" -> what prior notes alone can tell of each finding, and how far to believe it.

The books of this audit are the families ("words", "boosted", encoders) and "context", the chosen one of each finding.
They are kept apart from the books of image models, so that a page of both does not take a text model for one of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from cxrhf.report.blocks import (
    Block,
    Column,
    Entry,
    Figure,
    Multiples,
    Section,
    Table,
    Text,
    count_entry,
    difference,
    entry,
    finding_name,
    finding_table,
    fold_block,
    words_entry,
)
from cxrhf.report.book import EMPTY, MACRO, PRETEST, Book, Cell, Lines, line_of
from cxrhf.report.figures import CONTEXT, FIFTH, FOURTH, OVERALL, REMAINS, Axis, Dot, DotRow, dots, reliability
from cxrhf.report.figures.dots import LESS, MORE, SOME, Word, words
from cxrhf.report.numbers import format_number, is_finite, join_names, shorten
from cxrhf.report.sections.provenance import Facts
from cxrhf.report.sections.view import FEW_PATIENTS, interval_caption

# Marks of the families, in their order; more than these are in the table alone.
_MARKS = (OVERALL, REMAINS, FOURTH, FIFTH, CONTEXT)
_PANELS = (
    ("auroc", "AUROC", Axis("AUROC of the notes alone; dashed: chance", 0.5, 0.8, reference=0.5, floor=0.3)),
    ("calibration_slope", "Calibration slope",
     Axis("1 = calibrated, below 1 = too extreme", 0.5, 1.5, reference=1.0, floor=-0.5, ceiling=2.5, step=0.5,
          cap=2.5)),
    ("adaptive_calibration_error", "Calibration error",
     Axis("tick: what a calibrated model would show", 0.0, 0.05, floor=0.0, ceiling=0.5, step=0.05)),
)  # fmt: skip
_CAVEATS = (
    "The probabilities hold for these notes, this hospital and these labels. Words are associated with a finding; "
    "they need not cause it, and a word may stand for a ward, a template or a style of writing. Only words in the "
    "notes of at least five patients are shown. The cross-validation and validation AUROCs were used to choose the "
    "model and are slightly optimistic. All other numbers come from images that were not used, unless a warning "
    "states otherwise."
)


def pretest(books: Sequence[Book], lines: Lines, level: str) -> list[Section]:
    """A section for each dataset that has rows of the audit."""
    found = group_families(books, lines, level)
    out = []
    for shelf in found:
        where = f" on {shelf.chosen.dataset}" if len(found) > 1 else ""
        title = f"Pre-test probability from prior notes{where}"
        out.append(Section(shelf.ident, title, f"Prior notes{where}", _summary(shelf), _blocks(shelf)))
    return out


def pretest_facts(books: Sequence[Book]) -> Facts:
    """Data, images, patients and findings that the numbers rest on, where there is nothing else on the page."""
    facts: Facts = []
    names = list(dict.fromkeys(book.dataset for book in books if book.dataset))
    facts += [("Datasets" if len(names) > 1 else "Data", join_names(names, 4))] if names else []
    for shelf in group_families(books, {}, "")[:1]:
        counts = shelf.get(MACRO, "auroc")
        facts += [("Images", f"{counts.n:,}"), ("Patients", f"{counts.n_patients:,}")] if counts.n else []
        facts.append(("Findings", f"{len(shelf.fitted)} of {len(shelf.chosen.findings)} fitted"))
        facts += [("Note models", join_names([book.model for book in shelf.families], 4))] if shelf.families else []
    return facts


def _summary(shelf: DatasetFamilies) -> list[str]:
    solid = [each for each in shelf.measured if not shelf.get(each, "verdict").value < FEW_PATIENTS]
    if not solid:
        return ["How well prior notes predict the findings could not be measured: no finding has enough patients."]
    few = [finding_name(each) for each in shelf.measured if each not in solid]
    doubt = f" Too few patients: {join_names(few)}." if few else ""
    aurocs = {each: shelf.get(each, "auroc") for each in solid}
    slopes = {each: shelf.get(each, "calibration_slope") for each in solid}
    start = "Prior notes alone, without the image, reach an AUROC of "
    if len(solid) == 1:
        (only,) = solid
        said = "is above" if aurocs[only].low > 0.5 else "is not wholly above"
        return [
            f"{start}{aurocs[only].with_interval(shelf.level + ' CI ')} for {finding_name(only)}.",
            f"The interval {said} 0.5 (chance). The calibration slope is {slopes[only].with_interval()}; 1 means "
            f"calibrated.{doubt}",
        ]
    low, high = (end(aurocs, key=lambda each: aurocs[each].value) for end in (min, max))
    ends = (f"{format_number(aurocs[each].value, 2)} ({finding_name(each)})" for each in (low, high))
    mean = shelf.get(MACRO, "auroc")
    over = f" over all {len(shelf.measured)}" if few else ""
    average = f", {mean.with_interval(shelf.level + ' CI ')} on average{over}" if is_finite(mean.value) else ""
    above = sum(cell.low > 0.5 for cell in aurocs.values())
    right = sum(cell.low <= 1 <= cell.high for cell in slopes.values())
    return [
        f"{start}{' to '.join(ends)} over {len(solid)} findings{average}.",
        f"The interval is above 0.5 (chance) for {above} of {len(solid)} findings. The interval of the calibration "
        f"slope includes 1 (calibrated) for {right} of {len(solid)}.{doubt}",
    ]


def _blocks(shelf: DatasetFamilies) -> list[Block]:
    made: list[Block | None] = [*_missing_counts(shelf), _figure(shelf), _choices(shelf), _reliability(shelf)]
    made += [_calibration(shelf), bars_of_words(shelf), fold_block(side_by_side(shelf)), fold_block(differences(shelf))]
    return [block for block in (*made, Text(_CAVEATS, "muted")) if block is not None]


def _missing_counts(shelf: DatasetFamilies) -> list[Block]:
    """Images that have no note, and findings that have no model or no number."""
    said: list[Block] = []
    without = shelf.get(MACRO, "images_without_notes")
    if without.value > 0:
        of = f" of {without.n_patients:,} patients" if without.n_patients else ""
        said.append(Text(f"{without.value:,.0f} images{of} have no prior note; they are {without.note}.", "plain"))
    reasons = [
        f"{finding_name(each)} ({shelf.get(each, 'auroc').note or 'no reason recorded'})"
        for each in shelf.chosen.findings
        if each not in shelf.measured
    ]
    if reasons:
        said.append(Text(f"No result for {'; '.join(reasons)}.", "warnings"))
    return said


def _figure(shelf: DatasetFamilies) -> Figure | None:
    families = shelf.families or (shelf.chosen,)
    chosen_for = Counter(each.model for finding in shelf.fitted if (each := shelf.family(finding)) is not None)

    def first(book: Book) -> tuple[int, float]:
        mean = book.get(PRETEST, MACRO, "auroc").value
        return -chosen_for[book.model], -mean if is_finite(mean) else 0.0

    names = {book.model for book in sorted(families, key=first)[: len(_MARKS)]}
    drawn = list(zip((book for book in families if book.model in names), _MARKS, strict=False))
    panels = []
    for metric, shown, axis in _PANELS:
        rows = []
        for finding in shelf.everyone:
            lanes = []
            for book, kind in drawn:
                null = book.get(PRETEST, finding, "expected_ace").value if "error" in metric else float("nan")
                lanes.append(("", [Dot(kind, book.get(PRETEST, finding, metric).mark, book.model, null)]))
            if any(is_finite(dot.mark.value) for _, (dot,) in lanes):
                chosen, name = shelf.family(finding), finding_name(finding)
                several = chosen is not None and len(families) > 1 and metric == "auroc"
                rows.append(
                    DotRow(name, lanes, f"chosen: {shorten(chosen.model, 14)}" if several and chosen else "", name)
                )
        if rows:
            title = f"{shown} by finding, from prior notes alone"
            panels.append((shown, dots(rows, axis, ident=f"{shelf.ident}-{metric}", title=title, lane=12)))
    if not panels:
        return None
    legend = [(kind, shorten(book.model, 40)) for book, kind in drawn]
    left = [book.model for book in families if book.model not in names]
    caption = interval_caption(shelf.level) + (f" Only in the table: {join_names(left)}." if left else "")
    return Figure("AUROC and calibration of prior notes alone", panels, legend, caption, file="pretest")


def _choices(shelf: DatasetFamilies) -> Table | None:
    doubts = any(not shelf.get(each, "verdict").note.startswith("enough") for each in shelf.fitted)
    rows: dict[str, list[Entry]] = {}
    for finding in [*shelf.fitted, *([MACRO] if len(shelf.fitted) > 1 else [])]:
        family = shelf.family(finding)
        auroc, verdict = shelf.get(finding, "auroc"), shelf.get(finding, "verdict")
        data, _, why = verdict.note.partition(":")
        chosen = [Entry("", words=True), Entry(""), Entry("")]
        if family is not None:
            how = family.get(PRETEST, finding, "chosen").note
            numbers = [entry(family.get(PRETEST, finding, name)) for name in ("cv_auroc", "validation_auroc")]
            chosen = [words_entry(family.model, hint=how, below=how.partition("(")[0].partition(";")[0]), *numbers]
        rows[finding] = [
            entry(auroc),
            *chosen,
            *(entry(shelf.get(finding, name)) for name in ("average_precision", "prevalence")),
            count_entry(auroc.n, f"{auroc.n_pos:,} positive") if auroc.n else Entry("–"),
            *([Entry(data[:1].upper() + data[1:], why.split(";")[0].strip(), words=True)] if doubts else []),
        ]
    columns = [
        Column("AUROC", "On the evaluated images, which were not used to choose the model; 0.5 = chance"),
        Column(
            "Note model", "Features of the notes (words, or embeddings of a language model) and the classifier", True
        ),
        Column("CV AUROC", "Mean over folds of the training images; used to choose the model"),
        Column("Validation AUROC", "On the validation images; used to choose the model, so slightly optimistic"),
        Column("Average precision", "Chance level is the prevalence"),
        Column("Prevalence", "Share of images with the finding"),
        Column("Images", "Evaluated images with a label, and how many are positive"),
        *([Column("Data", "Whether there are enough patients", True)] if doubts else []),
    ]
    return finding_table(shelf.chosen, "AUROC by finding, and the chosen note model", columns, rows) if rows else None


def _reliability(shelf: DatasetFamilies) -> Multiples | None:
    pictures = []
    for k, finding in enumerate(shelf.measured):
        curve = line_of(shelf.lines, shelf.chosen, finding, "reliability")
        if curve is None:
            continue
        error, expected = (shelf.get(finding, name) for name in ("adaptive_calibration_error", "expected_ace"))
        slope = format_number(shelf.get(finding, "calibration_slope").value, 2)
        below = f"slope {slope}, error {format_number(error.value)} (calibrated: {format_number(expected.value)})"
        pairs = zip(curve.x, curve.y, strict=True)
        about = "predicted and observed: " + ", ".join(f"{format_number(x)} and {format_number(y)}" for x, y in pairs)
        title = f"Reliability of the pre-test probability, {finding_name(finding)}"
        picture = reliability(curve, ident=f"{shelf.ident}-reliability-{k}", title=title, about=about)
        pictures.append((finding, below, picture))
    about = (
        "Observed share of positives against the pre-test probability, in ten groups of equal size. A calibrated model "
        "follows the dashed line. The axes end where the data end."
    )
    return Multiples("Reliability of the pre-test probability", about, pictures) if pictures else None


def _calibration(shelf: DatasetFamilies) -> Table | None:
    names = ("brier", "brier_skill_score", "adaptive_calibration_error", "expected_ace", "calibration_slope",
             "calibration_intercept", "calibration_in_the_large")  # fmt: skip
    there = shelf.everyone
    rows = {each: [entry(shelf.get(each, name)) for name in names] for each in there}
    columns = [
        Column("Brier score", "Mean squared error of the probability; lower is better"),
        Column("Skill", "Brier skill score: 0 = no better than always predicting the prevalence, 1 = perfect"),
        Column("Calibration error", "Adaptive calibration error, ten groups of equal size; lower is better"),
        Column(
            "…\u00a0if calibrated", "Calibration error that a perfectly calibrated model would show on these images"
        ),
        Column("Slope", "Calibration slope: 1 = calibrated, below 1 = too extreme"),
        Column("Intercept", "Of the same line, in log-odds: 0 = calibrated"),
        Column("In the large", "Calibration in the large: 0 = right on average, above 0 = probabilities too low"),
    ]
    caption = "Calibration of the pre-test probability"
    return finding_table(shelf.chosen, caption, columns, rows) if rows else None


# Ways to read the notes -> their AUROC side by side, and paired differences.


def side_by_side(shelf: DatasetFamilies) -> Table | None:
    """A column a family, with the chosen one marked; None where there is one."""
    if len(shelf.families) < 2:
        return None
    rows: dict[str, list[Entry]] = {}
    for finding in shelf.everyone:
        chosen = shelf.family(finding)
        made = [(book, entry(book.get(PRETEST, finding, "auroc"))) for book in shelf.families]
        rows[finding] = [each._replace(tail="chosen", strong=True) if book is chosen else each for book, each in made]
    columns = [Column(shorten(book.model, 30)) for book in shelf.families]
    about = "The note model was chosen without these images, so it need not be the best of its row."
    return finding_table(shelf.chosen, "AUROC of every note model", columns, rows, about)


def differences(shelf: DatasetFamilies) -> Table | None:
    """The first family less each other."""
    pairs = [
        (book, versus)
        for book in shelf.families
        for versus in dict.fromkeys(key[4] for key in book.keys(PRETEST) if key[4])
    ]
    rows: dict[str, list[Entry]] = {}
    for finding in shelf.everyone:
        cells = [book.get(PRETEST, finding, "auroc", versus) for book, versus in pairs]
        if any(is_finite(cell.value) for cell in cells):
            rows[finding] = [difference(cell) for cell in cells]
    columns = [
        Column(f"{shorten(book.model, 30)} minus {shorten(versus.removeprefix('model='), 30)}")
        for book, versus in pairs
    ]
    about = (
        "On the same resamples of patients. Bold p values are below 0.05 after correction; intervals are not corrected."
    )
    return (
        finding_table(shelf.chosen, "Differences in AUROC between note models", columns, rows, about) if rows else None
    )


# Books of the audit "pretest" -> a shelf a dataset: the chosen family of each finding, and the families beside it.

CHOSEN = "context"


@dataclass(frozen=True, slots=True)
class DatasetFamilies:
    """The books of this audit on one dataset: the chosen one, and the families beside it."""

    chosen: Book
    families: tuple[Book, ...]
    level: str
    lines: Lines
    ident: str

    def get(self, finding: str, metric: str) -> Cell:
        """A number of the chosen family of a finding."""
        return self.chosen.get(PRETEST, finding, metric)

    def family(self, finding: str) -> Book | None:
        """The family that was chosen for a finding."""
        return next((each for each in self.families if each.get(PRETEST, finding, "chosen").value == 1), None)

    @property
    def fitted(self) -> list[str]:
        """Findings that have a model."""
        return [each for each in self.chosen.findings if self.family(each) or is_finite(self.get(each, "auroc").value)]

    @property
    def measured(self) -> list[str]:
        """Findings with an AUROC."""
        return [each for each in self.chosen.findings if is_finite(self.get(each, "auroc").value)]

    @property
    def everyone(self) -> list[str]:
        """They, and their mean where there are several."""
        return [*self.measured, *([MACRO] if len(self.measured) > 1 else [])]


def group_families(books: Sequence[Book], lines: Lines, level: str) -> list[DatasetFamilies]:
    """One for each dataset, in the order of the rows."""
    found = []
    for k, dataset in enumerate(dict.fromkeys(book.dataset for book in books)):
        own = [book for book in books if book.dataset == dataset]
        chosen = next((book for book in own if book.model == CHOSEN), own[0])
        families = tuple(book for book in own if book is not chosen)
        found.append(DatasetFamilies(chosen, families, level, lines, f"pretest{k or ''}"))
    return found


# Words that context models go by -> bars, a panel a finding. Words alone: no text and no id of a note.


def bars_of_words(shelf: DatasetFamilies) -> Figure | None:
    """Of the chosen family where it reads words, else of the bag of words beside it, as the paper has it."""
    panels, signs, beside = [], set[bool](), list[str]()
    for k, finding in enumerate(shelf.fitted):
        chosen = shelf.family(finding)
        order = [*([chosen] if chosen else []), *shelf.families]
        book = next((each for each in order if words_of(each, finding)), None)
        if book is None:
            continue
        signed = any(key[1] == finding and key[2] == "feature_weight" for key in book.keys(PRETEST))
        signs.add(signed)
        name, classifier = finding_name(finding), book.get(PRETEST, finding, "chosen").note
        if chosen is not None and chosen is not book:
            beside.append(name)
        title = f"Words behind the pre-test probability, {name}"
        drawn = words(words_of(book, finding), signed=signed, finding=name, ident=f"{shelf.ident}-w{k}", title=title)
        panels.append((f"{name} ({book.model}, {classifier.partition('(')[0].partition(',')[0]})", drawn))
    if not panels:
        return None
    legend = [(MORE, "raises the probability"), (LESS, "lowers the probability")] if True in signs else []
    legend += [(SOME, "direction unknown")] if False in signs else []
    caption = "Strongest first. Compare lengths within a finding only."
    if beside:
        caption += (
            " Embeddings of a language model have no words, so the words of a bag-of-words model are shown for "
            f"{join_names(beside)}."
        )
    return Figure("Words that move the pre-test probability", panels, legend, caption, file="pretest-words")


def words_of(book: Book, finding: str) -> list[Word]:
    """The words of a family for a finding, by rank; the effect where it is known, else weight or importance."""
    found: dict[str, dict[str, Cell]] = {}
    for _, whose, metric, slice, _ in book.keys(PRETEST):
        if whose == finding and slice.startswith("word=") and metric.startswith("feature_"):
            cell = book.get(PRETEST, finding, metric, slice=slice)
            found.setdefault(slice.removeprefix("word="), {})[metric] = cell
    return [
        Word(word, cells.get("feature_effect", next(iter(cells.values()), EMPTY)).value)
        for word, cells in found.items()
    ]
