"""Findings with groups or strata -> dot plots: a name above its lanes, a mark with its interval in each lane.

One panel is drawn for a phone's width; the page sets several side by side where there is room.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from markupsafe import Markup, escape

from cxrhf.report.figures.ink import (
    CONTEXT,
    OVERALL,
    REMAINS,
    Mark,
    count_ticks,
    extent,
    format_coordinate,
    line,
    mark_shape,
    picture,
    scale,
    text,
    ticks,
)
from cxrhf.report.numbers import format_number, is_finite, shorten, text_width

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


def dots_description(rows: Sequence[DotRow], digits: int = 3) -> str:
    """What a dot plot shows, in words: `Edema: bottom 0.910, top 0.780; ...`."""
    return "; ".join(
        f"{row.finding or row.name}: "
        + ", ".join(
            f"{dot.name} {format_number(dot.mark.value, digits)}".strip() for _, lane in row.lanes for dot in lane
        )
        for row in rows
    )


def dots(rows: Sequence[DotRow], axis: Axis, *, ident: str, title: str, about: str = "", lane: float = 13) -> Markup:
    """A panel of rows; `about` is all its numbers if not given."""
    marks = [dot for row in rows for _, each in row.lanes for dot in each]
    ends = [v for d in marks for v in (d.mark.low, d.mark.high, d.null) if is_finite(v)]
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
        inside = [text(6, y + 16, shorten(row.name, 26 if row.beside else 36), "name")]
        if row.beside:
            inside.append(text(WIDTH - 6, y + 16, row.beside, "tick", "end"))
        y += 22
        for label, several in row.lanes:
            here = y + lane / 2
            if label:
                inside.append(text(left - 8, here + 4, shorten(label, 16), "tick", "end"))
            for j, dot in enumerate(several):
                shift = (j - (len(several) - 1) / 2) * min(9.0, lane / max(len(several), 1))
                inside += _dot(dot, here + shift, place, (low, high), row.finding or row.name)
            y += lane
        y += 9
        whose = "" if row.other else f' data-finding="{escape((row.finding or row.name).lower())}"'
        body.append(f"<g{whose}>{''.join(inside)}</g>")
    for value in ticks(low, high, 6):
        parts.append(line(place(value), top, place(value), y, "grid"))
        parts.append(text(place(value), y + 15, format_number(value, 2).rstrip("0").rstrip("."), "tick", "middle"))
    if is_finite(axis.reference):
        parts.append(line(place(axis.reference), top, place(axis.reference), y, "chance"))
    parts += [*body, text((left + WIDTH - right) / 2, y + 32, axis.label, "tick", "middle")]
    return picture(WIDTH, y + 40, title, about or dots_description(rows), parts, ident=ident)


def _dot(dot: Dot, y: float, place: Callable[[float], float], ends: tuple[float, float], finding: str) -> list[str]:
    mark, parts = dot.mark, list[str]()
    if is_finite(dot.null):
        parts.append(line(place(dot.null), y - 6, place(dot.null), y + 6, "null"))
    if not is_finite(mark.value):
        return parts
    said = f"{finding}{', ' if dot.name else ''}{dot.name}: {format_number(mark.value)}"
    if is_finite(mark.low, mark.high):
        parts.append(line(place(mark.low), y, place(mark.high), y, f"span {dot.kind}"))
        for end, beyond, side in ((ends[0], mark.low < ends[0], -1), (ends[1], mark.high > ends[1], 1)):
            if beyond:
                parts.append(_tip(dot.kind, place(end), y, side))
        said += f" ({format_number(mark.low)} to {format_number(mark.high)})"
    if mark.value > ends[1]:
        parts.append(_tip(dot.kind, place(ends[1]) + 5, y, 1))
    parts.append(mark_shape(dot.kind, place(mark.value), y, 4.2, said=said))
    return parts


def _tip(kind: str, x: float, y: float, side: int) -> str:
    """A point that says: further this way."""
    corners = ((x, y - 4), (x + 6 * side, y), (x, y + 4))
    outline = "L".join(f"{format_coordinate(across)} {format_coordinate(down)}" for across, down in corners)
    return f'<path class="{kind}" d="M{outline}Z"/>'


# AUROC overall, of context alone, and what remains, per finding -> the headline picture.

# Widths of a letter of a name and of the words beside it, in a wide font: the reader's fonts are not known.
_NAME, _BESIDE = 9.2, 6.8


@dataclass(frozen=True, slots=True)
class Fall:
    """One finding of the headline picture; `beside` is what stands to its right."""

    name: str
    overall: Mark
    context: Mark
    remains: Mark
    beside: str = ""


def waterfall(rows: Sequence[Fall], *, width: int = 960, ident: str, title: str, about: str) -> Markup:
    """Per finding: overall, what context alone reaches, what remains when context is held equal, with intervals.

    Below 600 units wide the name stands above its marks instead of beside them, and what stands beside it below it
    where both do not fit.
    """
    narrow = width < 600
    names = [shorten(row.name, 34 if narrow else 28) for row in rows]
    longest = max(map(text_width, names), default=0)
    left, right, top = (12, 12, 8) if narrow else (max(round(longest * _NAME) + 18, 140), 210, 8)
    room = (width - left - right - 10) if narrow else math.inf
    pairs = zip(names, rows, strict=True)
    two_lines = any(text_width(name) * _NAME + len(row.beside) * _BESIDE > room for name, row in pairs if row.beside)
    head, lane, gap = (24 + 15 * two_lines if narrow else 4), 15, 12
    ends = [
        v for row in rows for m in (row.overall, row.context, row.remains) for v in (m.value, m.low) if is_finite(v)
    ]
    least = min(ends, default=0.5)
    low, high = (0.5, 1.0) if least >= 0.5 else (math.floor(least * 10 - 1e-9) / 10, 1.0)
    place = scale(low, high, left, width - right)
    has_context = any(is_finite(value) for row in rows for value in (row.context.value, row.remains.value))
    lanes = (OVERALL, CONTEXT, REMAINS) if has_context else (OVERALL,)
    tall = head + lane * len(lanes) + gap
    bottom = top + tall * len(rows)
    parts = []
    for value in ticks(low, high):
        parts.append(line(place(value), top, place(value), bottom, "grid"))
        parts.append(text(place(value), bottom + 16, f"{value:g}", "tick", "middle"))
    parts.append(line(place(0.5), top, place(0.5), bottom, "chance"))
    for k, row in enumerate(rows):
        start = top + k * tall
        if k:
            parts.append(line(0, start, width, start, "rule"))
        middle = start + head + lane * len(lanes) / 2 + gap / 2
        inside = _marks(row, lanes, start + head + gap / 2 + lane / 2, lane, place)
        if narrow:
            inside.append(text(left, start + 17, names[k], "name"))
            under = (left, start + 32, row.beside, "tick tight")
            inside.append(
                text(*under) if two_lines else text(width - right, start + 17, row.beside, "tick tight", "end")
            )
        else:
            inside.append(text(left - 14, middle + 4, names[k], "name", "end"))
            inside.append(text(width - right + 14, middle + 4, row.beside, "tick"))
        parts.append(f'<g data-finding="{escape(row.name.lower())}">{"".join(inside)}</g>')
    parts.append(text((left + width - right) / 2, bottom + 33, "AUROC (0.5 = chance, 1 = perfect)", "tick", "middle"))
    return picture(width, bottom + 42, title, about, parts, ident=ident)


def _marks(row: Fall, lanes: Sequence[str], y: float, lane: float, place: Callable[[float], float]) -> list[str]:
    marks = {OVERALL: row.overall, CONTEXT: row.context, REMAINS: row.remains}
    names = {OVERALL: "overall", CONTEXT: "context alone", REMAINS: "context held equal"}
    parts = []
    first, last = row.overall.value, row.remains.value
    if is_finite(first, last) and len(lanes) == 3:
        x1, x2, below = place(first), place(last), y + 2 * lane
        parts.append(
            f'<path class="fall" d="M{format_coordinate(x1)} {format_coordinate(y)}'
            f'V{format_coordinate(below)}H{format_coordinate(x2)}"/>'
        )
    for k, kind in enumerate(lanes):
        mark, here = marks[kind], y + k * lane
        if not is_finite(mark.value):
            continue
        said = f"{row.name}, {names[kind]}: {format_number(mark.value)}"
        if is_finite(mark.low, mark.high):
            parts.append(line(place(mark.low), here, place(mark.high), here, f"span {kind}"))
            said += f" ({format_number(mark.low)} to {format_number(mark.high)})"
        parts.append(mark_shape(kind, place(mark.value), here, said=said))
    return parts


# Quantiles of a number in parts of a sample -> box plots that lie on their side, one a lane.

_LANE = 20.0


class Box(NamedTuple):
    """The 5th, 25th, 50th, 75th and 95th percentile of one part, its mark and its name."""

    kind: str
    name: str
    ends: tuple[float, float, float, float, float]


class BoxRow(NamedTuple):
    """A name above its lanes, each a label and a box."""

    name: str
    lanes: Sequence[tuple[str, Box]]
    finding: str = ""


def boxes(rows: Sequence[BoxRow], *, label: str, ident: str, title: str) -> Markup:
    """A panel over 0..1: boxes hold the middle half, lines nine tenths, the stroke is the median."""
    longest = min(max((len(name) for row in rows for name, _ in row.lanes), default=0), 18)
    left = 12 + longest * _LETTER
    place = scale(0.0, 1.0, left, WIDTH - 14)
    parts, body, y = list[str](), list[str](), 6.0
    for k, row in enumerate(rows):
        if k:
            body.append(line(0, y, WIDTH, y, "rule"))
        inside = [text(6, y + 16, shorten(row.name, 36), "name")]
        y += 22
        for name, box in row.lanes:
            inside.append(text(left - 8, y + _LANE / 2 + 4, shorten(name, 18), "tick", "end"))
            if is_finite(*box.ends):
                low, first, middle, third, high = (place(each) for each in box.ends)
                centre = y + _LANE / 2
                said = escape(
                    f"{row.finding or row.name}, {box.name}: median {format_number(box.ends[2])}, "
                    f"middle half {format_number(box.ends[1])} to {format_number(box.ends[3])}"
                )
                inside += [
                    line(low, centre, high, centre, f"span {box.kind}"),
                    f'<rect class="box {box.kind}" x="{format_coordinate(first)}" y="{format_coordinate(centre - 6)}" '
                    f'width="{format_coordinate(max(third - first, 0.5))}" height="12"><title>{said}</title></rect>',
                    line(middle, centre - 6, middle, centre + 6, "median"),
                ]
            y += _LANE
        y += 9
        body.append(f'<g data-finding="{escape((row.finding or row.name).lower())}">{"".join(inside)}</g>')
    for value in ticks(0.0, 1.0, 6):
        parts.append(line(place(value), 6, place(value), y, "grid"))
        parts.append(text(place(value), y + 15, f"{value:g}", "tick", "middle"))
    parts += [*body, text((left + WIDTH - 14) / 2, y + 32, label, "tick", "middle")]
    about = "; ".join(
        f"{row.finding or row.name}: "
        + ", ".join(f"{box.name} median {format_number(box.ends[2])}" for _, box in row.lanes if is_finite(*box.ends))
        for row in rows
    )
    return picture(WIDTH, y + 40, title, about, parts, ident=ident)


# Parts of a whole per finding -> stacked bars.


@dataclass(frozen=True, slots=True)
class Bar:
    """One finding: the parts of its bar from left to right, and a tick to compare the bar with."""

    name: str
    parts: Sequence[float]
    null: float
    beside: str = ""
    finding: str = ""


def stacked(bars: Sequence[Bar], kinds: Sequence[tuple[str, str]], *, label: str, ident: str, title: str) -> Markup:
    """A panel of bars; `kinds` = style class and name of each part."""
    longest = max(
        (max(sum(p for p in bar.parts if is_finite(p)), bar.null if is_finite(bar.null) else 0) for bar in bars),
        default=1.0,
    )
    end = next((each for each in (0.02, 0.05, 0.1, 0.15, 0.2, 0.25, 0.5, 1.0) if longest <= each), longest)
    place = scale(0.0, end, 10, WIDTH - 14)
    parts, body, y = list[str](), list[str](), 6.0
    for k, bar in enumerate(bars):
        if k:
            body.append(line(0, y, WIDTH, y, "rule"))
        inside = [text(6, y + 16, shorten(bar.name, 26), "name"), text(WIDTH - 6, y + 16, bar.beside, "tick", "end")]
        start = 0.0
        for (kind, name), size in zip(kinds, bar.parts, strict=True):
            if is_finite(size) and size > 0:
                x, width = place(start), place(start + size) - place(start)
                said = escape(f"{bar.finding or bar.name}, {name}: {format_number(size, 4)}")
                inside.append(
                    f'<rect class="part {kind}" x="{format_coordinate(x)}" y="{format_coordinate(y + 23)}" '
                    f'width="{format_coordinate(max(width, 0.5))}" height="12">'
                    f"<title>{said}</title></rect>"
                )
                start += size
        if is_finite(bar.null):
            inside.append(line(place(bar.null), y + 20, place(bar.null), y + 38, "null"))
        body.append(f'<g data-finding="{escape((bar.finding or bar.name).lower())}">{"".join(inside)}</g>')
        y += 45
    for value in ticks(0.0, end, 5):
        parts.append(line(place(value), 6, place(value), y, "grid"))
        parts.append(text(place(value), y + 15, f"{value:g}", "tick", "middle"))
    parts += [*body, text(WIDTH / 2, y + 32, label, "tick", "middle")]
    about = "; ".join(
        f"{bar.finding or bar.name}: "
        + ", ".join(f"{name} {format_number(size, 4)}" for (_, name), size in zip(kinds, bar.parts, strict=True))
        + f", no skill {format_number(bar.null, 4)}"
        for bar in bars
    )
    return picture(WIDTH, y + 40, title, about, parts, ident=ident)


# Counts of parts of a whole -> stacked bars, a name above each.


class Tally(NamedTuple):
    """One bar: its name, the counts of its parts from left to right, words at its right."""

    name: str
    parts: Sequence[float]
    beside: str = ""


def tally(
    bars: Sequence[Tally], kinds: Sequence[tuple[str, str]], *, tick: float, label: str, ident: str, title: str
) -> Markup:
    """A panel of bars; `kinds` = style class and name of each part, `tick` = a count to compare them with."""
    whole = [sum(part for part in bar.parts if is_finite(part)) for bar in bars]
    end = max([1.0, *whole, *([tick] if is_finite(tick) else [])])
    place = scale(0.0, end, 10, WIDTH - 14)
    parts, body, y = list[str](), list[str](), 6.0
    for bar in bars:
        body.append(text(10, y + 14, shorten(bar.name, 24), "name"))
        body.append(text(WIDTH - 8, y + 14, bar.beside, "tick", "end"))
        start = 0.0
        for (kind, name), size in zip(kinds, bar.parts, strict=True):
            if is_finite(size) and size > 0:
                x, width = place(start), place(start + size) - place(start)
                body.append(
                    f'<rect class="part {kind}" x="{format_coordinate(x)}" y="{format_coordinate(y + 20)}" '
                    f'width="{format_coordinate(max(width, 0.8))}" height="13">'
                    f"<title>{escape(f'{bar.name}: {size:,.0f} {name}')}</title></rect>"
                )
                start += size
        if is_finite(tick):
            body.append(line(place(tick), y + 17, place(tick), y + 36, "null"))
        y += 42
    for value in count_ticks(end, 5):
        parts += [
            line(place(value), 4, place(value), y, "grid"),
            text(place(value), y + 14, f"{value:,}", "tick", "middle"),
        ]
    about = "; ".join(f"{bar.name}: {_tally_title(bar, kinds)}" for bar in bars)
    return picture(
        WIDTH, y + 38, title, about, [*parts, *body, text(WIDTH / 2, y + 31, label, "tick", "middle")], ident=ident
    )


def _tally_title(bar: Tally, kinds: Sequence[tuple[str, str]]) -> str:
    return ", ".join(f"{size:,.0f} {name}" for (_, name), size in zip(kinds, bar.parts, strict=True) if is_finite(size))


# Words with their effect -> bars: to the right where a word speaks for the finding, to the left where against.

MORE, LESS, SOME = "more", "less", "some"  # for, against, no direction known
_WORD_LETTER, _ROW, _MOST = 8.2, 21, 20  # width of a letter, height of a row, letters of a word that are shown


class Word(NamedTuple):
    """A word and how strongly it moves the probability; above 0 where its model knows no direction."""

    word: str
    effect: float


def words(found: Sequence[Word], *, signed: bool, finding: str, ident: str, title: str) -> Markup:
    """A panel of bars, the strongest word first. Lengths are compared within a panel only, so there is no axis."""
    shown = [each for each in found if is_finite(each.effect)]
    left = 14 + _WORD_LETTER * max((_word_width(shorten(each.word, _MOST)) for each in shown), default=0.0)
    low, high = (end((0.0, *(each.effect for each in shown))) for end in (min, max))
    place = scale(low, high, left, WIDTH - 12)
    body, y = list[str](), 4.0
    for each in shown:
        kind = SOME if not signed else LESS if each.effect < 0 else MORE
        x, width = min(place(0.0), place(each.effect)), abs(place(each.effect) - place(0.0))
        body.append(text(left - 10, y + 15, shorten(each.word, _MOST), "word", "end"))
        body.append(
            f'<rect class="part {kind}" x="{format_coordinate(x)}" y="{format_coordinate(y + 4)}" '
            f'width="{format_coordinate(max(width, 1.5))}" height="13">'
            f"<title>{escape(_word_title(each, signed))}</title></rect>"
        )
        y += _ROW
    parts = [*body, line(place(0.0), 2, place(0.0), y + 2, "null")]
    about = "; ".join(_word_title(each, signed) for each in shown)
    inside = f'<g data-finding="{escape(finding.lower())}">{"".join(parts)}</g>'
    return picture(WIDTH, y + 6, title, about, [inside], ident=ident)


def _word_width(word: str) -> float:
    """Letters of a word, the wide ones counted for what they are in the widest usual typeface."""
    return text_width(word) + 0.6 * sum(each in "mwMW" for each in word)


def _word_title(each: Word, signed: bool) -> str:
    return f"{each.word}: {'against' if each.effect < 0 else 'for'}" if signed else each.word
