"""A book of numbers -> the tables of the page: columns, cells with what to sort them by."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from cxrhf.report.book import MACRO, Book, Cell
from cxrhf.report.figures import known, number
from cxrhf.schema import display_name


class Column(NamedTuple):
    """A heading and what it means."""

    title: str
    about: str = ""
    words: bool = False


class Entry(NamedTuple):
    """One cell: main text, small text below, what the column sorts by ("" = last), and a hint."""

    text: str
    below: str = ""
    key: str = ""
    hint: str = ""
    words: bool = False


class Table(NamedTuple):
    """A caption, columns and rows; the first entry of a row is its name. `mean` is the last row, never sorted away."""

    caption: str
    columns: list[Column]
    rows: list[list[Entry]]
    mean: list[Entry] | None = None
    folded: bool = False


def _entry(cell: Cell, digits: int = 3) -> Entry:
    if not known(cell.value):
        return Entry("–", hint=cell.note)
    return Entry(number(cell.value, digits), cell.span, f"{cell.value:.9g}", cell.note)


def _count(value: int) -> Entry:
    return Entry(f"{value:,}", key=str(value))


def _percent(value: float, hint: str = "") -> Entry:
    return Entry(f"{100 * value:.1f}%", key=f"{value:.9g}", hint=hint) if known(value) else Entry("–", hint=hint)


def _name(finding: str) -> Entry:
    shown = "Mean of findings" if finding == MACRO else display_name(finding)
    return Entry(shown, key=shown.lower())


def _all(book: Book) -> list[str]:
    return [*book.findings, *([MACRO] if len(book.findings) > 1 else [])]


def _table(
    book: Book, caption: str, columns: Sequence[Column], rows: dict[str, list[Entry]], folded: bool = False
) -> Table:
    body = [[_name(finding), *rows[finding]] for finding in book.findings if finding in rows]
    mean = [_name(MACRO), *rows[MACRO]] if MACRO in rows else None
    return Table(caption, [Column("Finding"), *columns], body, mean, folded)


def overview_tables(book: Book) -> list[Table]:
    """Ranking and operating point; calibration; everything else, folded."""

    def metrics(finding: str, *names: str) -> list[Entry]:
        return [_entry(book.get("overview", finding, name)) for name in names]

    ranking, calibration, more = dict[str, list[Entry]](), dict[str, list[Entry]](), dict[str, list[Entry]]()
    for finding in _all(book):
        auroc = book.get("overview", finding, "auroc")
        verdict = book.get("overview", finding, "verdict")
        data, _, why = verdict.note.partition(":")
        ranking[finding] = [
            Entry(data.capitalize() or "", why.split(";")[0].strip(), f"{verdict.value:.9g}", verdict.note, True),
            _count(auroc.n),
            _count(auroc.n_pos),
            *metrics(
                finding, "auroc", "average_precision", "prevalence", "sensitivity_at_specificity", "precision", "npv"
            ),
        ]
        calibration[finding] = [
            *metrics(finding, "brier", "brier_skill_score", "adaptive_calibration_error", "expected_ace"),
            *metrics(finding, "calibration_slope", "calibration_in_the_large"),
        ]
        names = ("auprc_trapezoid", "brier_positive", "brier_negative", "balanced_brier", "expected_calibration_error")
        more[finding] = metrics(finding, *names, "j", "f1")
    tables = [
        _table(
            book,
            "How well it ranks, and what a threshold at 95% specificity gives",
            [
                Column("Data", "Whether there are enough patients", True),
                Column("Images", "Images with a label"),
                Column("Positive", "Images with the finding"),
                Column("AUROC", "Chance that an image with the finding scores above one without; 0.5 = coin toss"),
                Column("Average precision", "Area under the precision-recall curve; its coin toss is the prevalence"),
                Column("Prevalence", "Share of images with the finding"),
                Column("Sensitivity", "At 95% specificity on these images"),
                Column("PPV", "Positive predictive value at that threshold and this prevalence"),
                Column("NPV", "Negative predictive value at that threshold and this prevalence"),
            ],
            ranking,
        )
    ]
    probabilities = [f for f in book.findings if known(book.get("overview", f, "brier").value)]
    if probabilities:
        kept = {f: row for f, row in calibration.items() if f in probabilities or f == MACRO}
        columns = [
            Column("Brier score", "Mean squared error of the probability; lower is better"),
            Column("Skill", "Brier skill score: 0 = no better than always saying the prevalence, 1 = perfect"),
            Column("Calibration error", "Adaptive calibration error, ten groups of equal size; lower is better"),
            Column("…\u00a0if calibrated", "What the calibration error of a perfectly calibrated model would be here"),
            Column("Slope", "Calibration slope: 1 = calibrated, below 1 = too extreme"),
            Column("In the large", "0 = right on average, above 0 = probabilities too low"),
        ]
        tables.append(_table(book, "How far its probabilities can be believed", columns, kept))
        columns = [
            Column("AUPRC", "Area under the precision-recall curve by trapezoids"),
            Column("Brier+", "Brier score among positives"),
            Column("Brier−", "Brier score among negatives"),
            Column("Brier+ plus Brier−", "A sum, 0 to 2; not a proper score"),
            Column("ECE", "Expected calibration error, ten bins of equal width"),
            Column("Best J", "Youden's J at the best threshold of these images: optimistic"),
            Column("Best F1", "F1 at the best threshold of these images: optimistic"),
        ]
        kept = {f: row for f, row in more.items() if f in probabilities or f == MACRO}
        tables.append(_table(book, "More numbers", columns, kept, folded=True))
    return tables


def context_tables(book: Book) -> list[Table]:
    """The AUROCs side by side; and what they rest on."""
    names = ("auroc", "auroc_context", "auroc_att", "matched_auroc", "auroc_ipw")
    numbers = {
        finding: [
            *(_entry(book.get("matched", finding, name)) for name in names),
            _entry(book.get("matched", finding, "auroc_drop", "auroc_att")),
            _p(book.get("matched", finding, "auroc_drop", "auroc_att")),
        ]
        for finding in _all(book)
        if known(book.get("matched", finding, "auroc").value)
    }
    first = _table(
        book,
        "AUROC with and without patient context",
        [
            Column("Overall", "Every image"),
            Column("Context alone", "The pre-test probability as the score, without the image"),
            Column("Context equal (ATT)", "Negatives weighted to the context of the positives: the headline"),
            Column("Matched pairs", "Each positive against its nearest negative in context; a gap may remain"),
            Column("Context independent (IPW)", "Both classes weighted to the context of everybody: another question"),
            Column("Drop", "Overall minus context equal (ATT), on the same resamples"),
            Column("p", "Of no drop; for findings corrected for their number (Bonferroni)"),
        ],
        numbers,
    )
    return [first, _diagnostics(book)]


def _p(cell: Cell) -> Entry:
    if not known(cell.p_value):
        return Entry("–")
    return Entry("<0.001" if cell.p_value < 0.001 else number(cell.p_value), key=f"{cell.p_value:.9g}")


def _diagnostics(book: Book) -> Table:
    rows = {}
    for finding in book.findings:

        def get(metric: str, finding: str = finding) -> Cell:
            return book.get("matched", finding, metric)

        size = get("effective_sample_size_att.negative")
        if not known(size.value):
            continue
        negatives = size.n - size.n_pos
        positives = get("effective_sample_size_ipw.positive")
        rows[finding] = [
            Entry(
                get("verdict").note.partition(":")[0].partition(" (")[0].capitalize(),
                hint=get("verdict").note,
                words=True,
            ),
            Entry(f"{size.value:,.0f}", f"of {negatives:,}", f"{size.value:.9g}"),
            Entry(f"{positives.value:,.0f}", f"of {size.n_pos:,}", f"{positives.value:.9g}"),
            _entry(get("balance.standardised_difference"), 2),
            _entry(get("balance_att.standardised_difference"), 2),
            _entry(get("balance_matched.standardised_difference"), 2),
            _percent(get("balance.overlap").value),
            _entry(get("pair_summary.mean_difference")),
            _percent(get("pair_summary.same_patient_share").value),
            _percent(get("pair_summary.high_pretest_share").value),
            _entry(get("pretest_calibration_slope"), 2),
        ]
    columns = [
        Column("Verdict", "Whether the classes share enough context to be compared", True),
        Column("Effective negatives (ATT)", "What the weighted negatives are worth; below 30% or 100 be careful"),
        Column("Effective positives (IPW)", "What the weighted positives are worth; below 30% or 100 be careful"),
        Column("Imbalance before", "Standardised difference of context between the classes; 0 = equal"),
        Column("…\u00a0after ATT", "The same after weighting"),
        Column("…\u00a0after matching", "The same after matching"),
        Column("Overlap", "Share of context that both classes have in common, before weighting"),
        Column("Gap in pairs", "Mean difference of pre-test probability left in matched pairs"),
        Column("Same patient", "Share of matched pairs with one patient on both sides"),
        Column("Pre\u2011test >\u00a00.5", "Share of positives that context alone makes more likely than not"),
        Column("Slope of context", "Calibration slope of the pre-test probability; should be 1"),
    ]
    return _table(book, "What the comparison rests on", columns, rows)


def attrition_table(steps: Sequence[Mapping[str, Any]]) -> Table:
    """What every step of the dataset's build left, with the published count below where there is one."""
    counts = ("images", "studies", "patients", "admissions", "notes")
    used = [name for name in counts if any(step[name] is not None for step in steps)]
    noted = any(step["note"] for step in steps)
    rows = []
    for at, step in enumerate(steps):
        cells = []
        for name in used:
            here, public = step[name], step[f"expected_{name}"]
            below = "" if public is None else f"published {public:,}"
            cells.append(Entry("" if here is None else f"{here:,}", below, "" if here is None else str(here)))
        said = [Entry(step["note"] or "", words=True)] if noted else []
        rows.append([Entry(step["step"], key=f"{at:04d}"), *cells, *said])
    columns = [
        Column("Step"),
        *(Column(name.capitalize()) for name in used),
        *([Column("Note", words=True)] if noted else []),
    ]
    return Table("What every step left", columns, rows)
