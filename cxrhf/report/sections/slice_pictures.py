"""Traits of the worst and best slices, and the gap statistic -> pictures."""

from __future__ import annotations

from collections.abc import Sequence

from cxrhf.report.blocks import Figure, finding_name
from cxrhf.report.figures import CONTEXT, OVERALL, REMAINS, Axis, Dot, DotRow, Mark, by_count, dots
from cxrhf.report.numbers import known
from cxrhf.report.sections.slice_shelf import AUDIT, Cut, Slice, trait_name
from cxrhf.report.sections.view import View

_ROWS = 8
_LEGEND = ((REMAINS, "worst slice"), (OVERALL, "best slice"), (CONTEXT, "rest of the class"))


def made_of(view: View, found: Sequence[Cut], file: str) -> Figure | None:
    """How frequent attributes and other findings are in the worst against the best slice, a panel a class."""
    panels = []
    for cut in found:
        rows = _rows(cut)
        if not rows:
            continue
        side = "present" if cut.side == "positive" else "absent"
        title = f"{finding_name(cut.finding)} {side} ({cut.method})"
        axis = Axis("share of the images", 0.0, 1.0, floor=0.0, ceiling=1.0)
        ident = f"{view.ident}-made-{'c' if file else 'o'}-{_slug(cut)}"
        panels.append((title, dots(rows, axis, ident=ident, title=title, lane=15)))
    caption = "On held-out patients. The figure shows attributes that were over-represented when the slices were found."
    return Figure("Attributes of the worst and best slices", panels, _LEGEND, caption, file=file) if panels else None


def _slug(cut: Cut) -> str:
    name = f"{cut.finding}-{cut.method}-{cut.side}"
    return "".join(letter if letter.isascii() and letter.isalnum() else f"-{ord(letter):x}-" for letter in name)


def _rows(cut: Cut) -> list[DotRow]:
    """One row an attribute, those that differ most first."""
    ends = [("worst", REMAINS, cut.worst), ("best", OVERALL, cut.best)]
    names = dict.fromkeys(trait.name for _, _, each in ends if each for trait in each.frequent)
    scored = []
    for name in names:
        lanes, most = [], 0.0
        for role, kind, each in ends:
            marks = _marks(each, name, kind, role) if each else []
            if marks:
                lanes.append((role, marks))
                most = max(most, abs(marks[0].mark.value - marks[-1].mark.value))
        if lanes:
            scored.append((-most, DotRow(trait_name(name), lanes, finding=finding_name(cut.finding))))
    return [row for _, row in sorted(scored, key=lambda each: each[0])[:_ROWS]]


def _marks(each: Slice, name: str, kind: str, role: str) -> list[Dot]:
    trait = next((trait for trait in each.traits if trait.name == name), None)
    if trait is None or not known(trait.inside.value):
        return []
    shown = trait_name(name)
    found = [Dot(kind, trait.inside.mark, f"{shown}, {role} slice")]
    if known(trait.rest.value):
        found.append(Dot(CONTEXT, Mark(trait.rest.value), f"{shown}, rest of the class"))
    return found


def clusters(view: View, finding: str) -> Figure | None:
    """Whether the vectors of a class fall into clusters at all."""
    panels = []
    for side in ("positive", "negative"):
        curve = view.line(finding, "gap_statistic", side)
        if curve is None:
            continue
        chosen = view.get(AUDIT, finding, "gap_statistic.k", slice=side).value
        words = f"Gap statistic, finding {'present' if side == 'positive' else 'absent'}"
        about = f"{chosen:.0f} clusters" if known(chosen) else "no number of clusters"
        ident = f"{view.ident}-gap-{side}-{view.book.findings.index(finding)}"
        title = f"{words}: {about}"
        panels.append((title, by_count(curve, chosen=chosen, up="gap", ident=ident, title=title, about=about)))
    caption = "How much tighter clusters are than in embeddings without clusters. Dashed: the chosen number (1 = none)."
    return Figure("", panels, (), caption, size="small") if panels else None
