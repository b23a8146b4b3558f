"""Numbers -> the strokes that all pictures share: marks with intervals, text, frames. SVG as text.

Every picture is `role="img"` with a title and a description, takes its colours from `templates/figure.css` (light and
dark) and tells its marks apart by shape as well as by colour. All text goes through `escape`; nothing else is trusted.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from markupsafe import Markup, escape

from cxrhf.report.numbers import is_finite, text_width

# Style class of a mark -> its shape. The first three are those of the headline picture.
OVERALL, CONTEXT, REMAINS, FOURTH, FIFTH, SIXTH, SEVENTH = KINDS = (
    "overall", "context", "remains", "fourth", "fifth", "sixth", "seventh",
)  # fmt: skip
# Corners of the shapes that are polygons, as multiples of the size; the others are a circle and a square.
_CORNERS = {
    CONTEXT: ((0, -1.2), (1.2, 0), (0, 1.2), (-1.2, 0)),
    FOURTH: ((0, -1.15), (1.15, 0.9), (-1.15, 0.9)),
    FIFTH: ((0, 1.15), (1.15, -0.9), (-1.15, -0.9)),
    SIXTH: (
        (-0.4, -1.2), (0.4, -1.2), (0.4, -0.4), (1.2, -0.4), (1.2, 0.4), (0.4, 0.4), (0.4, 1.2), (-0.4, 1.2),
        (-0.4, 0.4), (-1.2, 0.4), (-1.2, -0.4), (-0.4, -0.4),
    ),
    SEVENTH: (
        (0, -1.35), (0.4, -0.4), (1.35, 0), (0.4, 0.4), (0, 1.35), (-0.4, 0.4), (-1.35, 0), (-0.4, -0.4),
    ),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Mark:
    """A value with its interval; NaN where there is none."""

    value: float = math.nan
    low: float = math.nan
    high: float = math.nan


@dataclass(frozen=True, slots=True)
class Line:
    """Points of a curve in order, with a band where `low` and `high` are finite."""

    x: Sequence[float]
    y: Sequence[float]
    low: Sequence[float] = ()
    high: Sequence[float] = ()


def format_coordinate(value: float) -> str:
    """A place in a picture, to a tenth."""
    return f"{value:.1f}".removesuffix(".0")


def picture(width: float, height: float, title: str, about: str, parts: Iterable[str], *, ident: str) -> Markup:
    """The frame that every picture shares. `ident` must be unique on the page."""
    name = escape(ident)
    return Markup(
        f'<svg viewBox="0 0 {format_coordinate(width)} {format_coordinate(height)}" '
        f'role="img" aria-labelledby="{name}-t {name}-d">'
        f'<title id="{name}-t">{escape(title)}</title><desc id="{name}-d">{escape(about)}</desc>{"".join(parts)}</svg>'
    )


def line(x1: float, y1: float, x2: float, y2: float, style: str) -> str:
    """A straight stroke, in few bytes: a page has thousands."""
    end = (
        f"H{format_coordinate(x2)}"
        if y1 == y2
        else f"V{format_coordinate(y2)}"
        if x1 == x2
        else f"L{format_coordinate(x2)} {format_coordinate(y2)}"
    )
    return f'<path class="{style}" d="M{format_coordinate(x1)} {format_coordinate(y1)}{end}"/>'


def text(x: float, y: float, words: str, style: str = "", anchor: str = "start") -> str:
    """Words, escaped."""
    where = "" if anchor == "start" else f' text-anchor="{anchor}"'
    return f'<text class="{style}" x="{format_coordinate(x)}" y="{format_coordinate(y)}"{where}>{escape(words)}</text>'


def vertical_text(x: float, y: float, words: str) -> str:
    """Words that read upwards, centred."""
    place = f"translate({format_coordinate(x)} {format_coordinate(y)}) rotate(-90)"
    return f'<text class="tick" text-anchor="middle" transform="{place}">{escape(words)}</text>'


def mark_shape(kind: str, x: float, y: float, size: float = 5.5, style: str = "mark", said: str = "") -> str:
    """Circle, diamond, square, triangle up or down, cross, by kind. `said` shows when the pointer rests on it."""
    title = f"<title>{escape(said)}</title>" if said else ""
    if kind == OVERALL:
        name, where = "circle", f'cx="{format_coordinate(x)}" cy="{format_coordinate(y)}" r="{format_coordinate(size)}"'
    elif kind in _CORNERS:
        points = " ".join(
            f"{format_coordinate(x + a * size)},{format_coordinate(y + b * size)}" for a, b in _CORNERS[kind]
        )
        name, where = "polygon", f'points="{points}"'
    else:
        half = size * 0.9
        name, where = (
            "rect",
            f'x="{format_coordinate(x - half)}" y="{format_coordinate(y - half)}" '
            f'width="{format_coordinate(2 * half)}" height="{format_coordinate(2 * half)}"',
        )
    inside = f">{title}</{name}>" if title else "/>"
    return f'<{name} class="{style} {kind}" {where}{inside}'


def key_mark(kind: str) -> Markup:
    """A mark, a part of a bar, a tick or a line on its own, for the legend."""
    strokes = {"chance": (1, 8, 15, 8), "tick-null": (8, 2, 8, 14), "tick-flat": (2, 8, 14, 8)}
    if kind in strokes:
        inside = line(*strokes[kind], kind if kind == "chance" else "null")
    elif kind.startswith("line-"):
        inside = line(0, 8, 16, 8, f"curve {kind}")
    elif kind in KINDS:
        inside = mark_shape(kind, 8, 8)
    elif kind == "still-word":
        inside = f'<circle class="{kind}" cx="8" cy="8" r="3"/>'
    else:
        inside = f'<rect class="part {kind}" x="1" y="3" width="14" height="10"/>'
    return Markup(f'<svg class="key" viewBox="0 0 16 16" aria-hidden="true">{inside}</svg>')


def ticks(low: float, high: float, most: int = 8) -> list[float]:
    """Round values within the range, at most about `most` of them."""
    span = high - low
    for step in (0.01, 0.02, 0.05, 0.1, 0.2, 0.25, 0.5, 1.0):
        if span / step <= most:
            break
    first = math.ceil(low / step - 1e-9)
    return [round(k * step, 10) for k in range(first, math.floor(high / step + 1e-9) + 1)]


def scale(low: float, high: float, left: float, right: float) -> Callable[[float], float]:
    """Maps [low, high] to [left, right]; what lies outside is drawn at the edge."""
    span = high - low or 1.0
    return lambda value: left + (min(max(value, low), high) - low) / span * (right - left)


def extent(values: Iterable[float], *, least: float, most: float, step: float = 0.1) -> tuple[float, float]:
    """Round ends that hold all values and at least [least, most]."""
    found = [value for value in values if is_finite(value)]
    low = min([least, *(math.floor(value / step + 1e-9) * step for value in found)])
    high = max([most, *(math.ceil(value / step - 1e-9) * step for value in found)])
    return round(low, 10), round(high, 10)


# Points with names -> where each name stands without covering another, or that it has no room.

HEIGHT = 13.0  # of a name
LETTER = 6.9  # width of one, about
GAP = 5.0  # between two names


class Box(NamedTuple):
    """Left, top, right, bottom."""

    left: float
    top: float
    right: float
    bottom: float


class Spot(NamedTuple):
    """Where a name starts and stands, and whether it is so far off that a line must lead to it."""

    x: float
    y: float
    far: bool


def mark_box(x: float, y: float, size: float) -> Box:
    """The place that a mark takes."""
    return Box(x - size, y - size, x + size, y + size)


def overlap(a: Box, b: Box) -> float:
    """The area that two boxes share."""
    return max(0.0, min(a.right, b.right) - max(a.left, b.left)) * max(0.0, min(a.bottom, b.bottom) - max(a.top, b.top))


def spot(taken: list[Box], x: float, y: float, name: str, inside: Box, reach: int = 5) -> Spot | None:
    """The nearest free place for the name of the point at (x, y), which is then taken; None where there is none."""
    width = text_width(name) * LETTER + GAP
    places = [(x + 8, y + 4, False), (x - width - 8, y + 4, False)]
    for step in range(reach):
        off, far = 10 + 13 * step, step > 0
        for below in (-off, off + 8):
            places += [(x - width / 2, y + below, far), (x + 5, y + below, far), (x - width - 5, y + below, far)]
    for left, base, far in places:
        box = Box(left, base - HEIGHT + 3, left + width, base + 3)
        if box.left < inside.left or box.right > inside.right or box.top < inside.top or box.bottom > inside.bottom:
            continue
        if not any(overlap(box, other) for other in taken):
            taken.append(box)
            return Spot(left, base, far)
    return None


def leader(x: float, y: float, found: Spot, name: str) -> tuple[float, float]:
    """Where the line from a far name to its point starts: at the nearest edge of the name."""
    width = text_width(name) * LETTER
    return min(max(x, found.x), found.x + width), found.y + 3 if found.y < y else found.y - HEIGHT + 3


def count_ticks(end: float, most: int = 6) -> list[int]:
    """Whole numbers from 0 to `end`, at most about so many of them."""
    size = 1
    while True:
        for step in (size, 2 * size, 5 * size):
            if end / step <= most:
                return list(range(0, int(end) + 1, step))
        size *= 10
