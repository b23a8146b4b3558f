"""What every section is made from: a subject's numbers and curves, and how they are to be named."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from cxrhf.report.blocks import CHANCE, finding_name
from cxrhf.report.book import MACRO, Book, Cell, Lines, Subject, line_of, spellings
from cxrhf.report.figures.ink import Line
from cxrhf.report.numbers import format_number, is_finite, join_names
from cxrhf.report.sections.provenance import mapping

ASKED = " asked"
Rows = Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class View:
    """One subject, as a section sees it. `ident` starts every id of its part of the page."""

    subject: Subject
    lines: Lines
    level: str  # of the intervals, "95%"
    ident: str
    others: tuple[Subject, ...] = ()  # all subjects of the page
    points: Rows = ()  # POINT rows of the page
    gallery: Rows = ()  # GALLERY rows of the page
    may_show: bool = False  # single patients and their images
    because: str = ""  # why they may, or may not, as the record says it
    correction: str = "bonferroni"  # of p values, as `--correction` names it
    sources: tuple[str, ...] = ()  # of a pre-test probability that was fitted, as people name them

    @property
    def first(self) -> bool:
        """Whether it is the first of the page; of the others the longest tables are in results.parquet alone."""
        return not self.others or self.others[0] is self.subject

    @property
    def book(self) -> Book:
        """The numbers shown in detail."""
        return self.subject.book

    @property
    def corrected(self) -> str:
        """How far p values are corrected, in words that end a sentence."""
        return corrected(self.correction)

    def line(self, finding: str, kind: str, slice: str = "all") -> Line | None:
        """A curve."""
        return line_of(self.lines, self.book, finding, kind, slice)

    def own(self, rows: Rows) -> Rows:
        """Those of some rows that are of this model."""
        return [row for row in rows if row["model"] in spellings(self.book)]

    def get(self, audit: str, finding: str, metric: str, versus: str = "", slice: str = "all") -> Cell:
        """A number."""
        return self.book.get(audit, finding, metric, versus, slice)


def correction_of(record: Mapping[str, Any]) -> str:
    """The rule by which p values were corrected for their number, with ASKED where some were asked for beforehand."""
    config = mapping(record.get("config"))
    # Records without `primary` are of a time when what was asked for was corrected together with everything else.
    asked = "primary" in config and (config["primary"] or config.get("shortcuts"))
    return f"{config.get('correction') or 'bonferroni'}{ASKED if asked else ''}"


def sources_of(record: Mapping[str, Any]) -> tuple[str, ...]:
    """What the pre-test probability was fitted to; empty where a column gave it."""
    fitted = mapping(record.get("fitted"))
    if sources := mapping(fitted.get("pretest")).get("sources"):
        return tuple("earlier labels" if each == "prior_labels" else str(each) for each in sources)
    return ("prior notes",) if {"context", "notes"} & set(fitted) else ()


def corrected(rule: str, scope: bool = False) -> str:
    """`after correction`, or that there was none; `scope`: also for what."""
    name = rule.removesuffix(ASKED)
    if name == "none":
        return "without correction"
    within = " within its audit" if name in ("bh", "by") else " for all tests on this page"
    if name != rule:
        within = " within each family (primary, or exploratory)"
    return f"after correction{within if scope else ''}"


def interval_caption(level: str) -> str:
    """The caption that every dot plot needs."""
    return (
        f"Bars are {level} intervals; an arrowhead marks one that continues beyond the axis. A missing mark means "
        "that the number is undefined, most often because one class is missing."
    )


# Numbers with intervals -> plain sentences that state their uncertainty.

FEW_PATIENTS = 10
UNCLEAR = "unclear"
_UNNAMED = "finding"  # what readers call the finding of a file that does not name it
_MODELS = 4  # that the first sentence of a page of several names
REVERSED_SCORES_HINT = (
    "An AUROC below 0.5 suggests scores the wrong way round: check whether higher scores mean disease."
)


class Sentence(NamedTuple):
    """What is said of one finding: the words, and a short tag with its tone (plain, strong, doubt)."""

    finding: str
    words: str
    tag: str
    tone: str


def headline(book: Book, level: str, correction: str, sources: Sequence[str] = (), name: str = "") -> str:
    """The whole page in two or three sentences; `sources`: what the pre-test probability was fitted to."""
    several = len(book.findings) > 1
    finding = MACRO if several else book.findings[0]
    over = "" if finding == _UNNAMED else f"For {finding_name(finding)}, "
    over = f"Averaged over {_mean_sentence(book, finding)}, " if several else over
    who = name or ("this model" if over else "This model")
    overall = book.overall(finding)
    if not is_finite(overall.value):
        return "No AUROC could be computed: no finding has both positives and negatives."
    parts = [f"{over}{who} reaches an AUROC of {_brief(overall, level + ' CI ')}."]
    if is_reversed(overall):
        parts.append(REVERSED_SCORES_HINT)
    rest = book.remains(finding)
    if is_finite(rest.value):
        parts += _with_context(book, finding, correction, sources)
    elif is_finite((found := book.get("overview", finding, "sensitivity_at_specificity")).value):
        parts.append(f"At 95% specificity its {'mean ' if several else ''}sensitivity is {_brief(found)}.")
    few = sum(0 < book.get("overview", each, "verdict").value < FEW_PATIENTS for each in book.findings)
    if few and several:
        parts.append(f"{few} of the findings {'have' if few > 1 else 'has'} too few patients to draw a conclusion.")
    return " ".join(parts)


def headline_of_all(subjects: Sequence[Subject], level: str, several_datasets: bool) -> list[str]:
    """One sentence on several models, with what remains with context held equal."""
    reached = list[tuple[str, Cell, Cell]]()
    for subject in subjects:
        book = subject.mean or subject.book
        finding = MACRO if len(book.findings) > 1 else next(iter(book.findings), MACRO)
        rest = book.remains(finding)
        reached.append((subject.name(several_datasets), book.overall(finding), rest))
    reached = [each for each in reached if is_finite(each[1].value)][:_MODELS]
    if len(reached) < 2:
        return []
    first = subjects[0].book
    over = f"Averaged over {_mean_sentence(first, MACRO)}, the AUROC" if len(first.findings) > 1 else "The AUROC"
    values = join_names(
        [f"{_brief(cell, '' if at else level + ' CI ')} for {name}" for at, (name, cell, _) in enumerate(reached)]
    )
    rests = [f"{_brief(rest)} for {name}" for name, _, rest in reached if is_finite(rest.value)]
    equal = (
        f" Among patients with the same context, {join_names(rests)} {'remain' if len(rests) > 1 else 'remains'}."
        if rests
        else ""
    )
    more = len(subjects) - len(reached)
    return [
        f"{over} is {values}.{equal}"
        + (f" {more} more {'models follow' if more > 1 else 'model follows'}." if more else "")
    ]


def _with_context(book: Book, finding: str, correction: str, sources: Sequence[str]) -> list[str]:
    """What context alone reaches, what remains with context held equal, and the difference."""
    rest, drop, alone = book.remains(finding), book.drop(finding), book.held(finding, "auroc_context")
    among = "pairs of patients matched on" if book.way == "matched_auroc" else "patients with"
    equal = f"among {among} the same context, {_brief(rest)} remains."
    if is_finite(alone.value):
        who = join_names(list(sources)) or "context"
        verb = "reach" if len(sources) > 1 or who.endswith("notes") else "reaches"
        equal = f"{who[:1].upper()}{who[1:]} alone, without the image, {verb} {_brief(alone)}; {equal}"
    parts = [equal[:1].upper() + equal[1:]]
    if not is_finite(drop.value):
        return parts
    if format_number(drop.value, 2).startswith("−"):
        higher = Cell(-drop.value, -drop.high, -drop.low)
        return [*parts, f"That is {_brief(higher)} higher than overall."]
    tag, _, doubt = drop_judgement(drop, False, correction)
    if is_finite(drop.p_value) and drop.p_value >= CHANCE:
        more = f" {doubt}" if tag == UNCLEAR else f" It is not significant {corrected(correction)}."
        return [*parts, f"The drop is {_brief(drop)}.{more}"]
    return [*parts, f"The difference, {_brief(drop)}, goes with what was known before the image."]


def _brief(cell: Cell, level: str = "") -> str:
    """`0.82 (95% CI 0.81 to 0.83)`: two decimals, as people repeat it."""
    value, low, high = (format_number(each, 2) for each in (cell.value, cell.low, cell.high))
    if low == high:  # an interval of no width at two decimals
        value, low, high = (format_number(each) for each in (cell.value, cell.low, cell.high))
    return f"{value} ({level}{low} to {high})" if cell.span else value


def is_reversed(overall: Cell) -> bool:
    """Whether an AUROC lies below 0.5 with its whole interval."""
    return is_finite(overall.high) and overall.high < 0.5


def _mean_sentence(book: Book, finding: str) -> str:
    note = book.held(finding, "auroc").note or book.get("overview", finding, "auroc").note
    part = note.split(";")[0].removeprefix("mean of ")
    count, _, rest = part.partition(" of ")
    return f"{count} findings" if rest.startswith(f"{count} ") or not rest else part


def finding_sentence(book: Book, finding: str, level: str, correction: str) -> Sentence:
    """One finding in plain words: overall, context alone, context held equal, the drop."""
    verdict = book.get("overview", finding, "verdict")
    overall = book.overall(finding)
    if not is_finite(overall.value):
        why = (overall.note or verdict.note or "no numbers").removeprefix("auroc is undefined: ")
        return Sentence(finding, f"no conclusion: {why}.", "undefined", "doubt")
    words = f"AUROC {overall.with_interval(level + ' CI ')} overall"
    few = is_finite(verdict.value) and verdict.value < FEW_PATIENTS
    rest = book.remains(finding)
    if not is_finite(rest.value):
        found = book.get("overview", finding, "sensitivity_at_specificity")
        more = f" At 95% specificity it detects {_share(found)} of the positive images." if found.span else ""
        if is_reversed(overall):
            return Sentence(finding, f"{words}. {REVERSED_SCORES_HINT}", "wrong way round?", "doubt")
        return Sentence(finding, f"{words}.{more}", "too few patients" if few else "", "doubt" if few else "plain")
    context = book.held(finding, "auroc_context")
    drop = book.drop(finding)
    held = "in pairs matched on context" if book.way == "matched_auroc" else "with context held equal"
    words += f" and {rest.with_interval()} {held}, a drop of {drop.with_interval()}."
    if is_finite(context.value):
        words += f" Context alone, without the image, reaches {context.with_interval()}."
    tag, tone, more = drop_judgement(drop, few, correction)
    if is_reversed(overall):
        tag, tone, more = "wrong way round?", "doubt", REVERSED_SCORES_HINT
    overlap = book.held(finding, "verdict").note
    if overlap.startswith("poor overlap"):
        more += f" Interpret with caution: {overlap}."
    return Sentence(finding, f"{words} {more}".strip(), tag, tone)


def _share(cell: Cell) -> str:
    """`28% (22% to 34%)`."""
    return f"{cell.value:.0%} ({cell.low:.0%} to {cell.high:.0%})"


def drop_judgement(drop: Cell, few: bool, correction: str) -> tuple[str, str, str]:
    """Tag, tone and a closing sentence for a drop."""
    if few:
        return "too few patients", "doubt", "Too few patients to draw a conclusion."
    if not is_finite(drop.value, drop.p_value):
        return "", "plain", ""
    if drop.p_value >= CHANCE and (drop.low > 0 or drop.high < 0):
        why = f"The interval excludes 0, but the drop is not significant {corrected(correction, scope=True)}"
        return UNCLEAR, "plain", f"{why} (p = {format_number(drop.p_value, 2)})."
    if drop.p_value >= CHANCE:
        within = f"; the data are compatible with any drop from {drop.span}" if drop.span else ""
        return "no clear drop", "plain", f"The drop is not significant{within}."
    if drop.value > 0:
        return "part goes with context", "strong", ""
    return "higher with context equal", "plain", "The AUROC is higher, not lower, with context held equal."


def drop_label(drop: Cell) -> str:
    """The words beside a finding in the headline picture."""
    if not is_finite(drop.value):
        return ""
    return f"drop {drop.with_interval()}"
