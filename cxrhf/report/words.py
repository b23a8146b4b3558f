"""Numbers with intervals -> plain sentences that state their uncertainty."""

from __future__ import annotations

from typing import NamedTuple

from cxrhf.report.blocks import CHANCE
from cxrhf.report.book import MACRO, Book, Cell
from cxrhf.report.numbers import known, number
from cxrhf.report.sections.view import corrected

FEW_PATIENTS = 10
UNCLEAR = "unclear"
BACKWARDS = "That is below 0.5, as of scores the wrong way round: check whether higher scores mean disease."


class Sentence(NamedTuple):
    """What is said of one finding: the words, and a short tag with its tone (plain, strong, doubt)."""

    finding: str
    words: str
    tag: str
    tone: str


def headline(book: Book, level: str, correction: str) -> str:
    """The whole page in two or three sentences."""
    several = len(book.findings) > 1
    finding = MACRO if several else book.findings[0]
    over = f"On average over {_mean_of(book, finding)}, the model" if several else "The model"
    overall = book.overall(finding)
    if not known(overall.value):
        return "No AUROC could be computed: no finding has both positives and negatives."
    words = f"{over} reaches an AUROC of {overall.with_interval(level + ' CI ')}."
    if is_backwards(overall):
        words += f" {BACKWARDS}"
    rest, drop = book.remains(finding), book.drop(finding)
    few = sum(0 < book.get("overview", each, "verdict").value < FEW_PATIENTS for each in book.findings)
    if few and several:
        words += f" ({few} of the findings {'rest' if few > 1 else 'rests'} on too few patients.)"
    if not known(rest.value):
        return words
    alone = book.held(finding, "auroc_context")
    context = f" Context alone, without the image, reaches {alone.with_interval()}." if known(alone.value) else ""
    change = f"a drop of {drop.with_interval()}"
    if number(drop.value).startswith("−"):
        change = f"a rise of {number(-drop.value)}"
        change += f" ({number(-drop.high)} to {number(-drop.low)})" if known(drop.low, drop.high) else ""
    how = "matched one to one for" if book.way == "matched_auroc" else "of"
    tag, _, doubt = judgement(drop, False, correction)
    return (
        f"{words}{context} When positives are compared with negatives {how} the same patient context, "
        f"{rest.with_interval()} remains: {change}." + (f" {doubt}" if tag == UNCLEAR else "")
    )


def is_backwards(overall: Cell) -> bool:
    """Whether an AUROC lies below 0.5 with its whole interval."""
    return known(overall.high) and overall.high < 0.5


def _mean_of(book: Book, finding: str) -> str:
    note = book.held(finding, "auroc").note or book.get("overview", finding, "auroc").note
    part = note.split(";")[0].removeprefix("mean of ")
    count, _, rest = part.partition(" of ")
    return f"{count} findings" if rest.startswith(f"{count} ") or not rest else part


def sentence(book: Book, finding: str, level: str, correction: str) -> Sentence:
    """One finding in plain words: overall, context alone, context held equal, the drop."""
    verdict = book.get("overview", finding, "verdict")
    overall = book.overall(finding)
    if not known(overall.value):
        why = (overall.note or verdict.note or "no numbers").removeprefix("auroc is undefined: ")
        return Sentence(finding, f"nothing can be said: {why}.", "undefined", "doubt")
    words = f"AUROC {overall.with_interval(level + ' CI ')} overall"
    few = known(verdict.value) and verdict.value < FEW_PATIENTS
    rest = book.remains(finding)
    if not known(rest.value):
        found = book.get("overview", finding, "sensitivity_at_specificity")
        more = f" At 95% specificity it finds {_share(found)} of the images with the finding." if found.span else ""
        if is_backwards(overall):
            return Sentence(finding, f"{words}. {BACKWARDS}", "wrong way round?", "doubt")
        return Sentence(finding, f"{words}.{more}", "too few patients" if few else "", "doubt" if few else "plain")
    context = book.held(finding, "auroc_context")
    drop = book.drop(finding)
    held = "when pairs are matched for context" if book.way == "matched_auroc" else "when context is held equal"
    words += f"; {rest.with_interval()} {held}; drop {drop.with_interval()}."
    if known(context.value):
        words += f" Context alone, without the image, reaches {context.with_interval()}."
    tag, tone, more = judgement(drop, few, correction)
    if is_backwards(overall):
        tag, tone, more = "wrong way round?", "doubt", BACKWARDS
    overlap = book.held(finding, "verdict").note
    if overlap.startswith("poor overlap"):
        more += f" Read with care, {overlap}."
    return Sentence(finding, f"{words} {more}".strip(), tag, tone)


def _share(cell: Cell) -> str:
    """`28% (22% to 34%)`."""
    return f"{cell.value:.0%} ({cell.low:.0%} to {cell.high:.0%})"


def judgement(drop: Cell, few: bool, correction: str) -> tuple[str, str, str]:
    """Tag, tone and a closing sentence for a drop."""
    if few:
        return "too few patients", "doubt", "Too few patients to draw a conclusion."
    if not known(drop.value, drop.p_value):
        return "", "plain", ""
    if drop.p_value >= CHANCE and (drop.low > 0 or drop.high < 0):
        why = f"The interval leaves out 0, but {corrected(correction, scope=True)} the drop is not beyond chance"
        return UNCLEAR, "plain", f"{why} (p = {number(drop.p_value, 2)})."
    if drop.p_value >= CHANCE:
        within = f"; any drop from {drop.span} fits these data" if drop.span else ""
        return "no clear drop", "plain", f"No drop beyond chance was found{within}."
    if drop.value > 0:
        return "context carries part of it", "strong", ""
    return "better with context equal", "plain", "It ranks better, not worse, when context is held equal."


def beside(drop: Cell) -> str:
    """The words beside a finding in the headline picture."""
    if not known(drop.value):
        return ""
    return f"drop {drop.with_interval()}"
