"""Findings with groups or strata -> dot plots: a name above its lanes, a mark with its interval in each lane.

One panel is drawn for a phone's width; the page sets several side by side where there is room.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape

from cxrhf.report.figures.ink import Mark, at, extent, line, mark_shape, picture, scale, text, ticks
from cxrhf.report.numbers import known, number, short

WIDTH = 350
_LETTER = 7.2  # width of a letter of a lane's label, about


@dataclass(frozen=True, slots=True)
class Dot:
    """One mark: its kind (shape and colour), its name for the pointer; `null` = a tick to compare it with."""

    kind: str
    mark: Mark
    name: str = ""
    null: float = math.nan


@dataclass(frozen=True, slots=True)
class DotRow:
    """One finding: its lanes from top to bottom, each a label ("" = none) and its dots. `other`: it is no finding."""

    name: str
    lanes: Sequence[tuple[str, Sequence[Dot]]]
    beside: str = ""
    finding: str = ""
    other: bool = False


@dataclass(frozen=True, slots=True)
class Axis:
    """What runs across: its words, the least range shown, a dashed line, and how far intervals may stretch it.

    An interval that ends beyond `floor` or `ceiling` is cut there, with a point at its end; a value beyond `cap` stands
    at the edge beside such a point.
    """

    label: str
    low: float = 0.5
    high: float = 1.0
    reference: float = math.nan
    floor: float = -math.inf
    ceiling: float = math.inf
    step: float = 0.1
    cap: float = math.inf


def spoken(rows: Sequence[DotRow], digits: int = 3) -> str:
    """What a dot plot shows, in words: `Edema: bottom 0.910, top 0.780; ...`."""
    return "; ".join(
        f"{row.finding or row.name}: "
        + ", ".join(f"{dot.name} {number(dot.mark.value, digits)}".strip() for _, lane in row.lanes for dot in lane)
        for row in rows
    )


def dots(rows: Sequence[DotRow], axis: Axis, *, ident: str, title: str, about: str = "", lane: float = 13) -> Markup:
    """A panel of rows; `about` is all its numbers if not given."""
    marks = [dot for row in rows for _, each in row.lanes for dot in each]
    ends = [v for d in marks for v in (d.mark.low, d.mark.high, d.null) if known(v)]
    values = [min(d.mark.value, axis.cap) for d in marks] + [min(max(v, axis.floor), axis.ceiling) for v in ends]
    low, high = extent(values, least=axis.low, most=axis.high, step=axis.step)
    labels = [label for row in rows for label, _ in row.lanes]
    longest = min(max((len(label) for label in labels), default=0), 16)
    left, right, top = 12 + longest * _LETTER, 14, 6
    place = scale(low, high, left, WIDTH - right)
    parts, body, y = list[str](), list[str](), float(top)
    for k, row in enumerate(rows):
        if k:
            body.append(line(0, y, WIDTH, y, "rule"))
        inside = [text(6, y + 16, short(row.name, 26 if row.beside else 36), "name")]
        if row.beside:
            inside.append(text(WIDTH - 6, y + 16, row.beside, "tick", "end"))
        y += 22
        for label, several in row.lanes:
            here = y + lane / 2
            if label:
                inside.append(text(left - 8, here + 4, short(label, 16), "tick", "end"))
            for j, dot in enumerate(several):
                shift = (j - (len(several) - 1) / 2) * min(9.0, lane / max(len(several), 1))
                inside += _dot(dot, here + shift, place, (low, high), row.finding or row.name)
            y += lane
        y += 9
        whose = "" if row.other else f' data-finding="{escape((row.finding or row.name).lower())}"'
        body.append(f"<g{whose}>{''.join(inside)}</g>")
    for value in ticks(low, high, 6):
        parts.append(line(place(value), top, place(value), y, "grid"))
        parts.append(text(place(value), y + 15, number(value, 2).rstrip("0").rstrip("."), "tick", "middle"))
    if known(axis.reference):
        parts.append(line(place(axis.reference), top, place(axis.reference), y, "chance"))
    parts += [*body, text((left + WIDTH - right) / 2, y + 32, axis.label, "tick", "middle")]
    return picture(WIDTH, y + 40, title, about or spoken(rows), parts, ident=ident)


def _dot(dot: Dot, y: float, place: Callable[[float], float], ends: tuple[float, float], finding: str) -> list[str]:
    mark, parts = dot.mark, list[str]()
    if known(dot.null):
        parts.append(line(place(dot.null), y - 6, place(dot.null), y + 6, "null"))
    if not known(mark.value):
        return parts
    said = f"{finding}{', ' if dot.name else ''}{dot.name}: {number(mark.value)}"
    if known(mark.low, mark.high):
        parts.append(line(place(mark.low), y, place(mark.high), y, f"span {dot.kind}"))
        for end, beyond, side in ((ends[0], mark.low < ends[0], -1), (ends[1], mark.high > ends[1], 1)):
            if beyond:
                parts.append(_tip(dot.kind, place(end), y, side))
        said += f" ({number(mark.low)} to {number(mark.high)})"
    if mark.value > ends[1]:
        parts.append(_tip(dot.kind, place(ends[1]) + 5, y, 1))
    parts.append(mark_shape(dot.kind, place(mark.value), y, 4.2, said=said))
    return parts


def _tip(kind: str, x: float, y: float, side: int) -> str:
    """A point that says: further this way."""
    return f'<path class="{kind}" d="M{at(x)} {at(y - 4)}L{at(x + 6 * side)} {at(y)}L{at(x)} {at(y + 4)}Z"/>'
