"""The headline: what the model reaches overall, from context alone, and with context held equal; table and words."""

from __future__ import annotations

from cxrhf.report.blocks import (
    Block,
    Column,
    Entry,
    Figure,
    Fold,
    Said,
    Section,
    Table,
    Text,
    difference,
    entry,
    finding_name,
    finding_table,
)
from cxrhf.report.book import MACRO, Book, find, seed_of
from cxrhf.report.figures import CONTEXT, OVERALL, REMAINS, Fall, waterfall
from cxrhf.report.numbers import known, number
from cxrhf.report.sections.view import View
from cxrhf.report.words import FEW_PATIENTS, beside, headline, sentence

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
    said = [sentence(book, finding, view.level, view.correction) for finding in book.findings]
    blocks.append(
        Said("Each finding in words", said) if view.first else Fold("Each finding in words", [Said("", said)])
    )
    return Section(f"{view.ident}-headline", title, "Headline", _lead(view), blocks)


def _lead(view: View) -> list[str]:
    """The headline; of several runs their mean before that of the first."""
    name = view.subject.model if len(view.others) > 1 else ""
    said = headline(view.book, view.level, view.correction, view.sources, name)
    mean = view.subject.mean
    cut = [hidden_words(view.book)] if view.book.hidden else []
    if mean is None:
        return [said, *cut]
    finding = MACRO if len(mean.findings) > 1 else mean.findings[0]
    parts = []
    for metric, name in (("auroc", "AUROC"), ("auroc_att", "AUROC with context held equal")):
        value, spread = (find(mean, finding, each).value for each in (metric, f"{metric}.sd"))
        if known(value):
            parts.append(f"{name} {number(value, 2)} (SD between runs {number(spread)})")
    whole = f"Mean of {len(view.subject.runs)} training runs: {', '.join(parts)}." if parts else ""
    first = f"First run ({seed_of(view.book.model)}), shown below in detail: {said[:1].lower()}{said[1:]}"
    return [each for each in (whole, first, *cut) if each]


def hidden_words(book: Book) -> str:
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
        f"{fall.name}: overall {number(fall.overall.value)}"
        + (
            f", context alone {number(fall.context.value)}, context held equal {number(fall.remains.value)}"
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
        if not known(overall.value) or patients < FEW_PATIENTS:
            if finding != MACRO:
                missing.append(name + (" (too few patients)" if known(overall.value) else " (undefined)"))
            continue
        if finding == MACRO and len(book.findings) < 2:
            continue
        said = beside(drop) if has_context else overall.with_interval()
        context, remains = book.held(finding, "auroc_context").mark, book.remains(finding).mark
        size = drop.value if known(drop.value) else -1.0
        fall = Fall(name, overall.mark, context, remains, said)
        shown.append((finding == MACRO, -size, fall))
    return [fall for *_, fall in sorted(shown, key=lambda each: each[:2])], missing


def controlled_table(view: View) -> Table:
    """The AUROCs side by side, with the drop to the headline one."""
    book = view.book
    names = ("auroc", "auroc_context", "auroc_att", "matched_auroc", "auroc_ipw")
    rows: dict[str, list[Entry]] = {}
    for finding in book.everyone():
        if known(book.held(finding, "auroc").value):
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
