"""Attributes that may stand for a finding (drains, wires) -> do they explain gaps between groups, and what they do."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from markupsafe import Markup

from cxrhf.report.blocks import (
    CHANCE,
    LONG,
    Block,
    Column,
    Entry,
    Figure,
    Fold,
    Section,
    Sentences,
    Table,
    Text,
    difference,
    entry,
    finding_name,
    fold_block,
    name_entry,
    percent_entry,
    words_entry,
)
from cxrhf.report.book import EMPTY, Book, Cell, seed_of
from cxrhf.report.figures import FOURTH, OVERALL, REMAINS, Axis, Box, BoxRow, Dot, DotRow, Mark, boxes, dots
from cxrhf.report.figures.ink import CONTEXT, FIFTH, SIXTH, Line
from cxrhf.report.numbers import format_number, format_percent, is_finite, join_names
from cxrhf.report.sections.slices import trait_name
from cxrhf.report.sections.view import Sentence, View, corrected, interval_caption

_FEW = 3  # questions whose pictures stand open
_MOST_TOLD = 3


def shortcut(view: View) -> Section | None:
    """The section, or None without the audit."""
    asked = questions(view.book)
    if not asked:
        return None
    blocks: list[Block | None] = [aurocs(view, asked)]
    if view.subject.mean is not None:
        blocks.append(
            Text(f"Sentences, tables and boxes describe the first run ({seed_of(view.book.model)}).", "muted")
        )
    said = [answer(view.book, each) for each in asked if each.groups]
    blocks.append(
        Sentences("Each attribute in words", said)
        if view.first
        else Fold("Each attribute in words", [Sentences("", said)])
    )
    gaps = _gaps(view, asked)
    blocks.append(gaps if gaps is None or len(gaps.rows) <= LONG else fold_block(gaps))
    pictures = confidences(view, asked) if view.first else None
    blocks.append(pictures if len(asked) <= _FEW else fold_block(pictures))
    blocks += [fold_block(_levels(view, asked)), fold_block(_shares(view, asked))]
    blocks.append(Text(
        "Equally frequent: among images with the finding, and among those without, weights give the attribute the "
        "same frequency in both groups, recomputed in every resample; nothing else changes. An attribute that "
        "explains a gap is not necessarily what the network uses: sicker patients get drains, and their disease is "
        "easier to see.",
        "muted",
    ))  # fmt: skip
    kept = [block for block in blocks if block is not None]
    return Section(
        f"{view.ident}-shortcut", "Shortcuts behind gaps between subgroups", "Shortcuts", _summary(view, asked), kept
    )


def _summary(view: View, asked: Sequence[Question]) -> list[str]:
    told = [words for each in asked if (words := lead_words(view.book, each))]
    if told:
        more = len(told) - _MOST_TOLD
        return [
            *told[:_MOST_TOLD],
            *([f"{more} more gap{'s are' if more > 1 else ' is'} explained; see the list below."] if more > 0 else []),
        ]
    if not any(each.groups for each in asked):
        return []
    names = list(dict.fromkeys(each.name for each in asked))
    if len(names) > 1:
        return [f"None of {join_names(names)} significantly explains a gap between subgroups."]
    return [f"{names[0][:1].upper()}{names[0][1:]} does not significantly explain a gap between subgroups."]


def _gaps(view: View, asked: Sequence[Question]) -> Table | None:
    rows, tested = list[list[Entry]](), _tests_over_runs(view)
    for each in asked:
        found = [gap_of(view.book, each, metric) for metric in (NATURAL, EQUAL, EXPLAINED)]
        first = next((gap for gap in found if gap), None)
        if first is None:
            continue
        row = [name_entry(each.finding), words_entry(each.name), words_entry(f"{first.first} minus {first.second}")]
        row += [difference(gap.cell) if gap else Entry("–") for gap in found]
        mean = view.subject.mean
        for metric in tested:
            gap = gap_of(mean, each, metric) if mean else None
            # Its p is no p of this page: it stands in the note, which says why.
            below = gap.cell.note.partition(";")[0] if gap else ""
            row.append(Entry(format_number(gap.cell.value), below, hint=gap.cell.note) if gap else Entry("–"))
        rows.append(row)
    columns = [
        Column("Finding"), Column("Attribute", "", True), Column("Groups", "", True),
        Column("Gap", "AUROC gap as observed, on images with a known attribute"),
        Column("Gap, equally frequent", "With the attribute equally frequent in both groups within each class"),
        Column("Explained", "The gap minus the gap when equally frequent, on the same resamples"),
        *(Column(_TESTS[metric], "AUROCs of the runs, one group against the other: U / (n1 n2). Runs share patients, "
                 "so the test finds a gap where there is none in 35 of 100 cases") for metric in tested),
    ]  # fmt: skip
    about = f"Bold p values are below 0.05 {corrected(view.correction, scope=True)}."
    return Table("Gaps in AUROC between groups", columns, rows, about=about) if rows else None


_TESTS = {
    "mann_whitney": "Mann-Whitney over runs",
    "mann_whitney_equalised": "Mann-Whitney over runs, equally frequent",
}


def _tests_over_runs(view: View) -> list[str]:
    mean = view.subject.mean
    return [metric for metric in _TESTS if mean and any(key[2] == metric for key in mean.keys(AUDIT))]


def _levels(view: View, asked: Sequence[Question]) -> Table | None:
    """AUROC of every group."""
    rows = []
    for each in asked:
        for group in ("", *each.groups):
            cells = [view.get(AUDIT, each.finding, metric, slice=each.where(group)) for metric in (NATURAL, EQUAL)]
            if any(is_finite(cell.value) for cell in cells):
                who = words_entry(value_of(group) if group else "everybody")
                rows.append([name_entry(each.finding), words_entry(each.name), who, *map(entry, cells)])
    columns = [
        Column("Finding"), Column("Attribute", "", True), Column("Group", "", True), Column("AUROC"),
        Column("AUROC, equally frequent"),
    ]  # fmt: skip
    return Table("AUROC of every subgroup", columns, rows) if rows else None


def _shares(view: View, asked: Sequence[Question]) -> Table | None:
    """How frequent the attribute is, by group and class."""
    heads = list(dict.fromkeys((part.group, part.label) for each in asked for part in each.parts))
    rows = []
    for each in asked:
        for trait in dict.fromkeys(part.trait for part in each.parts):
            cells = {
                (part.group, part.label): view.get(AUDIT, each.finding, "share", slice=part.name)
                for part in each.parts
                if part.trait == trait
            }
            if any(is_finite(cell.value) for cell in cells.values()):
                shown = [_share(cells.get(head)) for head in heads]
                rows.append([name_entry(each.finding), words_entry(trait_name(trait)), *shown])
    columns = [
        Column("Finding"), Column("Attribute", "", True),
        *(Column(f"{value_of(group)}, finding {'present' if label == '1' else 'absent'}") for group, label in heads),
    ]  # fmt: skip
    about = "Share of images with the attribute, by group and by presence of the finding."
    return Table("Frequency of the attribute", columns, rows, about=about) if rows else None


def _share(cell: Cell | None) -> Entry:
    if cell is None or not is_finite(cell.value):
        return Entry("–")
    span = f"{format_percent(cell.low)} to {format_percent(cell.high)}" if is_finite(cell.low, cell.high) else ""
    return percent_entry(cell.value)._replace(below=span)


# RESULT rows of the audit "shortcut" -> questions: does an attribute explain the gap between groups for a finding?

AUDIT = "shortcut"
NATURAL, EQUAL, EXPLAINED = "auroc", "auroc_equalised", "auroc_gap_explained"
_KNOWN_SLICE = re.compile(r"^(?P<attribute>.+) known(?: & (?P<group>.+))?$", re.DOTALL)
_PART = re.compile(r"^(?P<group>.+) & label=(?P<label>[01]) & (?P<trait>.+)$", re.DOTALL)


class Part(NamedTuple):
    """Images of one group with or without the finding and the attribute: `sex=F & label=1 & drain=1`."""

    name: str
    group: str
    label: str
    trait: str

    @property
    def words(self) -> str:
        """`F, drain`."""
        return f"{value_of(self.group)}, {trait_name(self.trait)}"


class Question(NamedTuple):
    """One attribute and one finding: the groups and the parts that there are numbers of."""

    finding: str
    attribute: str
    groups: list[str]
    parts: list[Part]

    def where(self, group: str = "") -> str:
        """The slice of a group, or of everybody whose attribute is known."""
        return f"{self.attribute} known & {group}" if group else f"{self.attribute} known"

    @property
    def name(self) -> str:
        """The attribute as people read it."""
        return self.attribute.replace("_", " ")


class Gap(NamedTuple):
    """A difference between two groups, the first less the second."""

    first: str
    second: str
    cell: Cell


def value_of(group: str) -> str:
    """`sex=F` -> `F`."""
    return group.partition("=")[2] or group


def questions(book: Book) -> list[Question]:
    """All of a book, in the order of the rows."""
    found: dict[tuple[str, str], Question] = {}
    keys = book.keys(AUDIT)
    for _, finding, _, part, _ in keys:
        if parsed := _KNOWN_SLICE.match(part):
            question = found.setdefault((finding, parsed["attribute"]), Question(finding, parsed["attribute"], [], []))
            if parsed["group"] and parsed["group"] not in question.groups:
                question.groups.append(parsed["group"])
    for _, finding, _, part, _ in keys:
        if parsed := _PART.match(part):
            attribute = parsed["trait"].rpartition("=")[0]
            question = found.setdefault((finding, attribute), Question(finding, attribute, [], []))
            here = Part(part, parsed["group"], parsed["label"], parsed["trait"])
            if here not in question.parts:
                question.parts.append(here)
    return list(found.values())


def gap_of(book: Book, question: Question, metric: str) -> Gap | None:
    """The gap in a number between the two groups that the audit compares."""
    start = f"{question.attribute} known & "
    for key in book.keys(AUDIT):
        _, finding, name, part, versus = key
        if versus and name == metric and finding == question.finding and part.startswith(start):
            first, second = (value_of(each.removeprefix(start)) for each in (part, versus))
            return Gap(first, second, book.cells[key])
    return None


def answer(book: Book, question: Question) -> Sentence:
    """One question in plain words."""

    def said(words: str, tag: str, tone: str = "plain") -> Sentence:
        return Sentence(question.finding, f"{question.name}: {words}", tag, tone)

    natural, equal, explained = (gap_of(book, question, metric) for metric in (NATURAL, EQUAL, EXPLAINED))
    if natural is None or not is_finite(natural.cell.value):
        why = natural.cell.note if natural and natural.cell.note else "no gap could be computed"
        return said(f"no conclusion: {why}.", "undefined", "doubt")
    words = f"the AUROC of {natural.first} minus that of {natural.second} is {natural.cell.with_interval()}"
    rest, moved = (gap.cell if gap else EMPTY for gap in (equal, explained))
    if not is_finite(rest.value):
        return said(f"{words}. {rest.note}".strip(), "")
    words += f", and {rest.with_interval()} with the attribute equally frequent in both."
    if not is_finite(natural.cell.p_value, moved.p_value):
        note = next((each.note for each in (natural.cell, moved) if each.note), "")
        return said(f"{words} {note[:1].upper()}{note[1:]}".strip(), "not tested", "doubt")
    if natural.cell.p_value >= CHANCE:
        more = f" Equal frequency changes it by {moved.with_interval()}." if moved.p_value < CHANCE else ""
        return said(f"{words} There is no significant gap to explain.{more}", "no clear gap")
    if moved.p_value >= CHANCE:
        return said(f"{words} It does not explain the gap significantly.", "not explained")
    if abs(rest.value) >= abs(natural.cell.value):
        return said(f"{words} The gap is then no smaller, so the attribute does not explain it.", "not explained")
    if is_finite(rest.p_value) and rest.p_value < CHANCE:
        return said(f"{words} The attribute explains part of the gap.", "explains part of it", "strong")
    return said(f"{words} The attribute explains the gap.", "explains it", "strong")


def lead_words(book: Book, question: Question) -> str:
    """`Pneumothorax: the gap of 0.024 in AUROC between F and M is 0.000 once drain is as frequent in both: ...`."""
    natural, equal = gap_of(book, question, NATURAL), gap_of(book, question, EQUAL)
    said = answer(book, question)
    if natural is None or equal is None or said.tone != "strong":
        return ""
    gap, rest = abs(natural.cell.value), equal.cell.value * (1 if natural.cell.value >= 0 else -1)
    return (
        f"{finding_name(question.finding)}: the gap of {format_number(gap)} in AUROC between {natural.first} and "
        f"{natural.second} is {format_number(rest)} with {question.name} equally frequent in both: "
        f"{question.name} {said.tag}."
    )


# Groups with and without an attribute -> pictures: AUROC as it is and equally frequent, confidence, error.

_MARKS = (OVERALL, REMAINS, FOURTH, FIFTH, SIXTH, CONTEXT)
_WAYS = ((NATURAL, "as observed"), (EQUAL, "equally frequent"))
_LEVELS = (0.05, 0.25, 0.5, 0.75, 0.95)


def aurocs(view: View, asked: Sequence[Question]) -> Figure | None:
    """AUROC of every group, as it is and with the attribute equally frequent; with several runs a dot a run."""
    panels = []
    groups = list(dict.fromkeys(group for each in asked for group in each.groups))[: len(_MARKS)]
    for k, attribute in enumerate(dict.fromkeys(each.attribute for each in asked)):
        rows = []
        for each in asked:
            lanes = _lanes(view, each, groups) if each.attribute == attribute else []
            if lanes:
                rows.append(DotRow(finding_name(each.finding), lanes, "", finding_name(each.finding)))
        if rows:
            shown = [dot.mark.value for row in rows for _, lane in row.lanes for dot in lane]
            axis = Axis("AUROC within the group", min(shown), max(shown), floor=0.4, ceiling=1.0, step=0.05)
            title = f"AUROC by group, {attribute.replace('_', ' ')}"
            about = "The numbers are in the tables below." if len(rows) > 4 else ""
            ident = f"{view.ident}-shortcut-{k}"
            panels.append((title, dots(rows, axis, ident=ident, title=title, about=about, lane=17)))
    legend = [(mark, value_of(group)) for mark, group in zip(_MARKS, groups, strict=False)]
    caption = f"{_bars(view)} Equally frequent: reweighted to the same frequency in both groups of a class."
    title = "AUROC of subgroups, as observed and with the attribute equally frequent"
    return Figure(title, panels, legend, caption, file="shortcut") if panels else None


def _bars(view: View) -> str:
    if view.subject.mean is None:
        return interval_caption(view.level)
    return f"Marks without a bar are the {len(view.subject.runs)} runs; a mark with a bar is their mean ±1 SD."


def _lanes(view: View, each: Question, groups: Sequence[str]) -> list[tuple[str, list[Dot]]]:
    lanes: list[tuple[str, list[Dot]]] = []
    for metric, words in _WAYS:
        if view.subject.mean is None:
            marks = [
                Dot(
                    mark,
                    view.get(AUDIT, each.finding, metric, slice=each.where(group)).mark,
                    f"{value_of(group)}, {words}",
                )
                for mark, group in zip(_MARKS, groups, strict=False)
            ]
            there = [dot for dot in marks if is_finite(dot.mark.value)]
            lanes += [(words, there)] if there else []
            continue
        for mark, group in zip(_MARKS, groups, strict=False):
            name = f"{value_of(group)}, {words}"
            several = _over_runs(view, each.finding, metric, each.where(group), mark, name)
            # The full name does not fit beside a picture.
            lanes += [(label.replace("equally frequent", "equal"), marks) for label, marks in several]
    return lanes


def _over_runs(view: View, finding: str, metric: str, slice: str, kind: str, name: str) -> list[tuple[str, list[Dot]]]:
    """Two lanes: the mean of the runs with its SD, and every run."""
    mean = view.subject.mean
    assert mean is not None
    middle = mean.get(AUDIT, finding, metric, slice=slice).value
    spread = mean.get(AUDIT, finding, f"{metric}.sd", slice=slice).value
    runs = [
        Dot(kind, Mark(run.get(AUDIT, finding, metric, slice=slice).value), f"{name}, {seed_of(run.model)}")
        for run in view.subject.runs
    ]
    there = [dot for dot in runs if is_finite(dot.mark.value)]
    if not there and not is_finite(middle):
        return []
    span = Mark(middle, middle - spread, middle + spread) if is_finite(middle, spread) else Mark(middle)
    return [(name, [Dot(kind, span, f"{name}, mean of runs")]), ("", there)]


def confidences(view: View, asked: Sequence[Question]) -> Figure | None:
    """Distribution of the probability, and the mean squared error, by group, class and attribute."""
    panels: list[tuple[str, Markup]] = []
    for k, attribute in enumerate(dict.fromkeys(each.attribute for each in asked)):
        own = [each for each in asked if each.attribute == attribute]
        words = attribute.replace("_", " ")
        rows = [row for each in own for label in ("1", "0") if (row := _boxes(view, each, label))]
        if rows:
            title = f"Predicted probability, {words}"
            ident = f"{view.ident}-confidence-{k}"
            panels.append((title, boxes(rows, label="probability of the finding", ident=ident, title=title)))
        errors = [dot for each in own for label in ("1", "0") if (dot := _errors(view, each, label))]
        if errors:
            title = f"Brier score, {words}"
            axis = Axis("mean squared error; lower is better", 0.0, 0.3, floor=0.0, ceiling=1.0)
            about = "The numbers are in results.parquet." if len(errors) > 8 else ""
            ident = f"{view.ident}-error-{k}"
            panels.append((title, dots(errors, axis, ident=ident, title=title, about=about, lane=15)))
    traits = list(dict.fromkeys(part.trait for each in asked for part in each.parts))
    legend = [(_kind(trait), trait_name(trait)) for trait in traits][: len(_MARKS)]
    caption = (
        "Boxes span the middle half of the images, lines nine tenths; the stroke is the median. "
        f"{'Brier score: ' if view.subject.mean else ''}{_bars(view)} If a network relies on the attribute, images "
        "without it get low probabilities although they have the finding."
    )
    title = "Confidence and error by group, finding and attribute"
    return Figure(title, panels, legend, caption, file="shortcut") if panels else None


def _kind(trait: str) -> str:
    return OVERALL if trait.endswith("=0") else REMAINS


def _class_name(each: Question, label: str) -> str:
    return f"{finding_name(each.finding)} {'present' if label == '1' else 'absent'}"


def _parts_with_label(each: Question, label: str) -> list[Part]:
    return [part for part in each.parts if part.label == label]


def _boxes(view: View, each: Question, label: str) -> BoxRow | None:
    lanes = []
    for part in _parts_with_label(each, label):
        curve = view.line(each.finding, "confidence", part.name)
        if curve is not None:
            lanes.append((part.words, Box(_kind(part.trait), part.words, _box_quantiles(curve))))
    return BoxRow(_class_name(each, label), lanes, finding_name(each.finding)) if lanes else None


def _box_quantiles(curve: Line) -> tuple[float, float, float, float, float]:
    """The five quantiles of a box, NaN where the curve has none."""
    at = {round(x, 6): y for x, y in zip(curve.x, curve.y, strict=True)}
    low, first, middle, third, high = (at.get(level, float("nan")) for level in _LEVELS)
    return low, first, middle, third, high


def _errors(view: View, each: Question, label: str) -> DotRow | None:
    lanes: list[tuple[str, list[Dot]]] = []
    for part in _parts_with_label(each, label):
        if view.subject.mean is not None:
            lanes += _over_runs(view, each.finding, "brier", part.name, _kind(part.trait), part.words)
            continue
        cell: Cell = view.get(AUDIT, each.finding, "brier", slice=part.name)
        if is_finite(cell.value):
            lanes.append((part.words, [Dot(_kind(part.trait), cell.mark, part.words)]))
    return DotRow(_class_name(each, label), lanes, "", finding_name(each.finding)) if lanes else None
