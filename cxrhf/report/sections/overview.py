"""Every metric of the whole sample: verdicts, ranking, operating point, calibration; ROC, PR and reliability curves."""

from __future__ import annotations

from markupsafe import Markup

from cxrhf.report.blocks import (
    Block,
    Column,
    Entry,
    Figure,
    Fold,
    Multiples,
    Section,
    Sentences,
    Table,
    Text,
    count_entry,
    difference,
    entry,
    finding_name,
    finding_table,
    fold_block,
)
from cxrhf.report.book import MACRO, Book, Cell, find, seed_of
from cxrhf.report.figures import CONTEXT, OVERALL, REMAINS, Fall, Line, precision_recall, reliability, roc, waterfall
from cxrhf.report.numbers import format_number, is_finite, join_names
from cxrhf.report.sections.view import FEW_PATIENTS, View, drop_label, finding_sentence, headline

_KINDS = (
    ("roc", "ROC curves", "Sensitivity against false positive rate. Dot: 95% specificity. Band: pointwise interval. "
     "Dashed: chance."),
    ("pr", "Precision-recall curves", "Precision (PPV) against recall (sensitivity). Dashed: the prevalence, which "
     "is the precision expected by chance."),
    ("reliability", "Reliability", "Observed share of positives against the predicted probability, in ten groups of "
     "equal size. A calibrated model follows the dashed line. The axes end where the data end."),
)  # fmt: skip


# How a verdict starts -> what it means for the reader.
_VERDICTS = {
    "enough": "",
    "poor overlap": "Enough for the whole sample, but too little overlap in context to hold it equal",
    "few": "Few patients, so read the interval rather than the number",
    "too few": "Too few patients to quote a number",
}


def overview(view: View) -> Section | None:
    """The section, or None without the audit."""
    if not view.book.has("overview"):
        return None
    tables = _tables(view)
    curves = {kind: _multiples(view, kind, title, about) for kind, title, about in _KINDS}
    blocks: list[Block | None] = [tables[0], curves["roc"], fold_block(curves["pr"])]
    blocks += [*tables[1:-1], fold_block(curves["reliability"]), fold_block(tables[-1])]
    kept = [block for block in blocks if block is not None]
    return Section(
        f"{view.ident}-overview",
        "Ranking, operating point and calibration by finding",
        "Overview",
        _summary(view),
        kept,
    )


def short_table(view: View) -> Table:
    """AUROC and average precision with the sensitivity at 95% specificity, for a summary."""
    names = ("auroc", "average_precision", "sensitivity_at_specificity")
    there = [f for f in view.book.everyone() if is_finite(view.book.overall(f).value)]
    rows = {f: [entry(view.get("overview", f, name)) for name in names] for f in there}
    columns = [Column("AUROC"), Column("Average precision"), Column("Sensitivity at 95% specificity")]
    return finding_table(view.book, "Whole sample", columns, rows)


def _summary(view: View) -> list[str]:
    """How many findings can be judged, and what stands in the way of the others."""
    found: dict[str, list[str]] = {}
    for finding in view.book.findings:
        note = view.get("overview", finding, "verdict").note
        kind = next((name for name in _VERDICTS if note.startswith(name)), "no")
        found.setdefault(kind, []).append(finding_name(finding))
    total = len(view.book.findings)
    words = [f"{len(found.get('enough', []))} of {total} findings have enough data for every number on this page."]
    words += [
        f"{_VERDICTS[kind]}: {join_names(found[kind])}." for kind in _VERDICTS if kind != "enough" and kind in found
    ]
    words += [f"No conclusion is possible for {join_names(found['no'])}."] if "no" in found else []
    return [" ".join(words)]


def _tables(view: View) -> list[Table]:
    """Ranking and operating point; calibration; everything else."""
    book = view.book

    def metrics(finding: str, *names: str) -> list[Entry]:
        return [entry(book.get("overview", finding, name)) for name in names]

    ranking, calibration, more = dict[str, list[Entry]](), dict[str, list[Entry]](), dict[str, list[Entry]]()
    for finding in book.everyone():
        auroc = book.get("overview", finding, "auroc")
        verdict = book.get("overview", finding, "verdict")
        data, _, why = verdict.note.partition(":")
        ranking[finding] = [
            Entry(
                data[:1].upper() + data[1:],
                why.split(";")[0].strip(),
                f"{verdict.value:.9g}" if is_finite(verdict.value) else "",
                verdict.note,
                True,
            ),
            *(count_entry(n) if finding != MACRO else Entry("") for n in (auroc.n, auroc.n_pos)),
            *metrics(finding, "auroc", "average_precision", "prevalence"),
            *metrics(finding, "sensitivity_at_specificity", "precision", "npv"),
        ]
        calibration[finding] = [
            *metrics(finding, "brier", "brier_skill_score", "adaptive_calibration_error", "expected_ace"),
            *metrics(finding, "calibration_slope", "calibration_in_the_large"),
        ]
        names = ("auprc_trapezoid", "brier_positive", "brier_negative", "balanced_brier", "expected_calibration_error")
        more[finding] = metrics(finding, *names, "j", "f1")
    columns = [
        Column("Data", "Whether there are enough patients", True),
        Column("Images", "Images with a label"),
        Column("Positive", "Images with the finding"),
        Column("AUROC", "Probability that an image with the finding scores higher than one without; 0.5 = chance"),
        Column("Average precision", "Area under the precision-recall curve; chance level is the prevalence"),
        Column("Prevalence", "Share of images with the finding"),
        Column("Sensitivity", "At 95% specificity on these images"),
        Column("PPV", "Positive predictive value at that threshold and this prevalence"),
        Column("NPV", "Negative predictive value at that threshold and this prevalence"),
    ]
    caption = "Ranking, and the operating point at 95% specificity"
    tables = [finding_table(book, caption, columns, ranking)]
    probabilities = {f for f in book.findings if is_finite(book.get("overview", f, "brier").value)}
    if probabilities:
        kept = {f: row for f, row in calibration.items() if f in probabilities or f == MACRO}
        columns = [
            Column("Brier score", "Mean squared error of the probability; lower is better"),
            Column("Skill", "Brier skill score: 0 = no better than always predicting the prevalence, 1 = perfect"),
            Column("Calibration error", "Adaptive calibration error, ten groups of equal size; lower is better"),
            Column(
                "…\u00a0if calibrated", "Calibration error that a perfectly calibrated model would show on these images"
            ),
            Column("Slope", "Calibration slope: 1 = calibrated, below 1 = too extreme"),
            Column("In the large", "Calibration in the large: 0 = right on average, above 0 = probabilities too low"),
        ]
        tables.append(finding_table(book, "Calibration of the probabilities", columns, kept))
    columns = [
        Column("AUPRC", "Area under the precision-recall curve by the trapezoidal rule"),
        Column("Brier+", "Brier score among positives"),
        Column("Brier−", "Brier score among negatives"),
        Column("Brier+ plus Brier−", "A sum, 0 to 2; not a proper score"),
        Column("ECE", "Expected calibration error, ten bins of equal width"),
        Column("Best J", "Youden's J at the best threshold on these images; optimistic"),
        Column("Best F1", "F1 at the best threshold on these images; optimistic"),
    ]
    tables.append(finding_table(book, "More metrics of the whole sample", columns, more))
    return tables


def _multiples(view: View, kind: str, title: str, about: str) -> Multiples | None:
    pictures = []
    for k, finding in enumerate(view.book.findings):
        curve = view.line(finding, kind)
        if curve is not None:
            pictures.append((finding, *_small(view, finding, kind, curve, f"{view.ident}-{kind}-{k}")))
    return Multiples(title, about, pictures, file="overview" if kind == "roc" else "") if pictures else None


def _small(view: View, finding: str, kind: str, curve: Line, ident: str) -> tuple[str, Markup]:
    def get(metric: str) -> Cell:
        return view.get("overview", finding, metric)

    shown = finding_name(finding)
    if kind == "roc":
        words = f"AUROC {format_number(get('auroc').value)}"
        point = (1 - get("sensitivity_at_specificity.specificity").value, get("sensitivity_at_specificity").value)
        return words, roc(curve, ident=ident, title=f"ROC curve, {shown}", about=words, point=point)
    if kind == "pr":
        words = f"AP {format_number(get('average_precision').value)}"
        prevalence = get("prevalence").value
        about = (
            f"average precision {format_number(get('average_precision').value)}, prevalence {format_number(prevalence)}"
        )
        title = f"Precision-recall curve, {shown}"
        return words, precision_recall(curve, prevalence=prevalence, ident=ident, title=title, about=about)
    words = f"slope {format_number(get('calibration_slope').value, 2)}"
    pairs = zip(curve.x, curve.y, strict=True)
    about = "predicted and observed: " + ", ".join(f"{format_number(x)} and {format_number(y)}" for x, y in pairs)
    return words, reliability(curve, ident=ident, title=f"Reliability, {shown}", about=about)


# The headline: what the model reaches overall, from context alone, and with context held equal; table and words.

NO_CONTEXT = (
    "The predictions have no pre-test probability, so this page cannot show how much of the AUROC goes with patient "
    "context. Add a column with the probability of each finding before the image and run cxrhf audit … --pretest "
    "COLUMN, or fit one to the columns of the table: --pretest from:age,sex,view,prior_labels."
)


def opening(view: View) -> Section:
    """The headline section of one subject."""
    book = view.book
    has_context = bool(book.way)
    if not book.findings:
        return Section(f"{view.ident}-headline", "AUROC by finding", "Headline", ["No findings were audited."])
    if not book.has("overview", "reweighted", "matched"):
        lead = ["This run did not compute the AUROC of the whole sample. Its other results follow."]
        return Section(f"{view.ident}-headline", "AUROC by finding", "Headline", lead)
    title = "How much of the AUROC goes with patient context" if has_context else "AUROC by finding"
    blocks: list[Block] = [_picture(view, has_context)]
    if has_context:
        blocks.append(controlled_table(view))
    elif view.first:
        blocks.append(Text(NO_CONTEXT, "warnings"))
    said = [finding_sentence(book, finding, view.level, view.correction) for finding in book.findings]
    blocks.append(
        Sentences("Each finding in words", said) if view.first else Fold("Each finding in words", [Sentences("", said)])
    )
    return Section(f"{view.ident}-headline", title, "Headline", _opening_summary(view), blocks)


def _opening_summary(view: View) -> list[str]:
    """The headline; of several runs their mean before that of the first."""
    name = view.subject.model if len(view.others) > 1 else ""
    said = headline(view.book, view.level, view.correction, view.sources, name)
    mean = view.subject.mean
    cut = [hidden_findings_sentence(view.book)] if view.book.hidden else []
    if mean is None:
        return [said, *cut]
    finding = MACRO if len(mean.findings) > 1 else mean.findings[0]
    parts = []
    for metric, name in (("auroc", "AUROC"), ("auroc_att", "AUROC with context held equal")):
        value, spread = (find(mean, finding, each).value for each in (metric, f"{metric}.sd"))
        if is_finite(value):
            parts.append(f"{name} {format_number(value, 2)} (SD between runs {format_number(spread)})")
    whole = f"Mean of {len(view.subject.runs)} training runs: {', '.join(parts)}." if parts else ""
    first = f"First run ({seed_of(view.book.model)}), shown below in detail: {said[:1].lower()}{said[1:]}"
    return [each for each in (whole, first, *cut) if each]


def hidden_findings_sentence(book: Book) -> str:
    """What a page of too many findings leaves out, and where it stands."""
    shown = len(book.findings)
    return (
        f"This page shows {shown:,} of {shown + len(book.hidden):,} findings: those with the most images in the "
        "smaller class. Its sentences and counts refer to these findings; means are over all. Every number for every "
        "finding is in results.parquet and results.json."
    )


def _picture(view: View, has_context: bool) -> Figure:
    book, level = view.book, view.level
    falls, not_shown = _falls(book, has_context)
    about = f"AUROC of each finding with its {level} interval: " + "; ".join(
        f"{fall.name}: overall {format_number(fall.overall.value)}"
        + (
            f", context alone {format_number(fall.context.value)}, "
            f"context held equal {format_number(fall.remains.value)}"
            if has_context
            else ""
        )
        for fall in falls
    )
    title = "AUROC overall, from context alone, and with context held equal" if has_context else "AUROC overall"
    legend = [(OVERALL, "overall: all images")]
    caption = f"Bars are {level} intervals."
    if has_context:
        legend += [(CONTEXT, "context alone, without the image"), (REMAINS, "with context held equal")]
        caption += (
            " Context is what was known about the patient before the image, as a pre-test probability. The dotted "
            "line is the drop from overall to context held equal."
        )
    if not_shown:
        caption += f" Not shown: {', '.join(not_shown)}."
    wide, narrow = (
        waterfall(falls, width=width, ident=f"{view.ident}-{name}", title=title, about=about)
        for width, name in ((960, "wide"), (350, "narrow"))
    )
    return Figure("", [("", wide)], legend, caption, file="waterfall", narrow=narrow, size="wide")


def _falls(book: Book, has_context: bool) -> tuple[list[Fall], list[str]]:
    """Rows of the headline picture, the largest drop first, the mean last; and the findings without a number."""
    shown, missing = [], []
    for finding in [*book.findings, MACRO]:
        overall = book.overall(finding)
        drop = book.drop(finding)
        patients = book.get("overview", finding, "verdict").value
        name = finding_name(finding)
        if not is_finite(overall.value) or patients < FEW_PATIENTS:
            if finding != MACRO:
                missing.append(name + (" (too few patients)" if is_finite(overall.value) else " (undefined)"))
            continue
        if finding == MACRO and len(book.findings) < 2:
            continue
        said = drop_label(drop) if has_context else overall.with_interval()
        context, remains = book.held(finding, "auroc_context").mark, book.remains(finding).mark
        size = drop.value if is_finite(drop.value) else -1.0
        fall = Fall(name, overall.mark, context, remains, said)
        shown.append((finding == MACRO, -size, fall))
    return [fall for *_, fall in sorted(shown, key=lambda each: each[:2])], missing


def controlled_table(view: View) -> Table:
    """The AUROCs side by side, with the drop to the headline one."""
    book = view.book
    names = ("auroc", "auroc_context", "auroc_att", "matched_auroc", "auroc_ipw")
    rows: dict[str, list[Entry]] = {}
    for finding in book.everyone():
        if is_finite(book.held(finding, "auroc").value):
            rows[finding] = [entry(book.held(finding, name)) for name in names[:3]]
            matched = book.get("matched", finding, "matched_auroc")
            rows[finding] += [entry(matched), entry(book.held(finding, "auroc_ipw"))]
            rows[finding].append(difference(book.drop(finding)))
    held = "matched pairs" if book.way == "matched_auroc" else "context equal (ATT)"
    columns = [
        Column("Overall", "All images"),
        Column("Context alone", "The pre-test probability used as the score, without the image"),
        Column(
            "Context equal (ATT)", "Negatives reweighted to the context of the positives; the number in the headline"
        ),
        Column("Matched pairs", "Each positive paired with the negative nearest in context; a difference may remain"),
        Column(
            "Context independent (IPW)",
            "Both classes reweighted to the context of all images; answers a different question",
        ),
        Column("Drop", f"Overall minus {held}, on the same resamples; p value for no drop, {view.corrected}"),
    ]
    return finding_table(book, "AUROC with and without patient context", columns, rows)
