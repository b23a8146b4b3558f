"""RESULT rows of the audit "shortcut" -> questions: does an attribute explain the gap between groups for a finding?"""

from __future__ import annotations

import re
from typing import NamedTuple

from cxrhf.report.blocks import CHANCE, finding_name
from cxrhf.report.book import EMPTY, Book, Cell
from cxrhf.report.numbers import known, number
from cxrhf.report.sections.slice_shelf import trait_name
from cxrhf.report.words import Sentence

AUDIT = "shortcut"
NATURAL, EQUAL, EXPLAINED = "auroc", "auroc_equalised", "auroc_gap_explained"
_KNOWN = re.compile(r"^(?P<attribute>.+) known(?: & (?P<group>.+))?$", re.DOTALL)
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
        if parsed := _KNOWN.match(part):
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
    if natural is None or not known(natural.cell.value):
        why = natural.cell.note if natural and natural.cell.note else "no gap could be computed"
        return said(f"no conclusion: {why}.", "undefined", "doubt")
    words = f"the AUROC of {natural.first} minus that of {natural.second} is {natural.cell.with_interval()}"
    rest, moved = (gap.cell if gap else EMPTY for gap in (equal, explained))
    if not known(rest.value):
        return said(f"{words}. {rest.note}".strip(), "")
    words += f", and {rest.with_interval()} with the attribute equally frequent in both."
    if not known(natural.cell.p_value, moved.p_value):
        note = next((each.note for each in (natural.cell, moved) if each.note), "")
        return said(f"{words} {note[:1].upper()}{note[1:]}".strip(), "not tested", "doubt")
    if natural.cell.p_value >= CHANCE:
        more = f" Equal frequency changes it by {moved.with_interval()}." if moved.p_value < CHANCE else ""
        return said(f"{words} There is no significant gap to explain.{more}", "no clear gap")
    if moved.p_value >= CHANCE:
        return said(f"{words} It does not explain the gap significantly.", "not explained")
    if abs(rest.value) >= abs(natural.cell.value):
        return said(f"{words} The gap is then no smaller, so the attribute does not explain it.", "not explained")
    if known(rest.p_value) and rest.p_value < CHANCE:
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
        f"{finding_name(question.finding)}: the gap of {number(gap)} in AUROC between {natural.first} and "
        f"{natural.second} is {number(rest)} with {question.name} equally frequent in both: {question.name} {said.tag}."
    )
