"""Attributes that may stand for a finding (drains, wires) -> do they explain gaps between groups, and what they do."""

from __future__ import annotations

from collections.abc import Sequence

from cxrhf.report.blocks import (
    LONG,
    Block,
    Column,
    Entry,
    Fold,
    Said,
    Section,
    Table,
    Text,
    difference,
    entry,
    folded,
    name_entry,
    percent_entry,
    words_entry,
)
from cxrhf.report.book import Cell, seed_of
from cxrhf.report.numbers import known, listed, number, percent
from cxrhf.report.sections.shortcut_pictures import aurocs, confidences
from cxrhf.report.sections.shortcut_shelf import (
    AUDIT,
    EQUAL,
    EXPLAINED,
    NATURAL,
    Question,
    answer,
    gap_of,
    lead_words,
    questions,
    value_of,
)
from cxrhf.report.sections.slice_shelf import trait_name
from cxrhf.report.sections.view import View, corrected

_FEW = 3  # questions whose pictures stand open
_TOLD = 3


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
        Said("Each attribute in words", said) if view.first else Fold("Each attribute in words", [Said("", said)])
    )
    gaps = _gaps(view, asked)
    blocks.append(gaps if gaps is None or len(gaps.rows) <= LONG else folded(gaps))
    pictures = confidences(view, asked) if view.first else None
    blocks.append(pictures if len(asked) <= _FEW else folded(pictures))
    blocks += [folded(_levels(view, asked)), folded(_shares(view, asked))]
    blocks.append(Text(
        "Equally frequent: among images with the finding, and among those without, weights give the attribute the "
        "same frequency in both groups, recomputed in every resample; nothing else changes. An attribute that "
        "explains a gap is not necessarily what the network uses: sicker patients get drains, and their disease is "
        "easier to see.",
        "muted",
    ))  # fmt: skip
    kept = [block for block in blocks if block is not None]
    return Section(
        f"{view.ident}-shortcut", "Shortcuts behind gaps between subgroups", "Shortcuts", _lead(view, asked), kept
    )


def _lead(view: View, asked: Sequence[Question]) -> list[str]:
    told = [words for each in asked if (words := lead_words(view.book, each))]
    if told:
        more = len(told) - _TOLD
        return [
            *told[:_TOLD],
            *([f"{more} more gap{'s are' if more > 1 else ' is'} explained; see the list below."] if more > 0 else []),
        ]
    if not any(each.groups for each in asked):
        return []
    names = list(dict.fromkeys(each.name for each in asked))
    if len(names) > 1:
        return [f"None of {listed(names)} significantly explains a gap between subgroups."]
    return [f"{names[0][:1].upper()}{names[0][1:]} does not significantly explain a gap between subgroups."]


def _gaps(view: View, asked: Sequence[Question]) -> Table | None:
    rows, tested = list[list[Entry]](), _tested(view)
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
            row.append(Entry(number(gap.cell.value), below, hint=gap.cell.note) if gap else Entry("–"))
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


def _tested(view: View) -> list[str]:
    mean = view.subject.mean
    return [metric for metric in _TESTS if mean and any(key[2] == metric for key in mean.keys(AUDIT))]


def _levels(view: View, asked: Sequence[Question]) -> Table | None:
    """AUROC of every group."""
    rows = []
    for each in asked:
        for group in ("", *each.groups):
            cells = [view.get(AUDIT, each.finding, metric, slice=each.where(group)) for metric in (NATURAL, EQUAL)]
            if any(known(cell.value) for cell in cells):
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
            if any(known(cell.value) for cell in cells.values()):
                shown = [_share(cells.get(head)) for head in heads]
                rows.append([name_entry(each.finding), words_entry(trait_name(trait)), *shown])
    columns = [
        Column("Finding"), Column("Attribute", "", True),
        *(Column(f"{value_of(group)}, finding {'present' if label == '1' else 'absent'}") for group, label in heads),
    ]  # fmt: skip
    about = "Share of images with the attribute, by group and by presence of the finding."
    return Table("Frequency of the attribute", columns, rows, about=about) if rows else None


def _share(cell: Cell | None) -> Entry:
    if cell is None or not known(cell.value):
        return Entry("–")
    span = f"{percent(cell.low)} to {percent(cell.high)}" if known(cell.low, cell.high) else ""
    return percent_entry(cell.value)._replace(below=span)
