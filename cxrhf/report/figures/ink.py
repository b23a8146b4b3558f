"""Numbers -> the strokes that all pictures share: marks with intervals, text, frames. SVG as text.

Every picture is `role="img"` with a title and a description, takes its colours from `templates/figure.css` (light and
dark) and tells its marks apart by shape as well as by colour. All text goes through `escape`; nothing else is trusted.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape

from cxrhf.report.numbers import known

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


def at(value: float) -> str:
    """A place in a picture, to a tenth."""
    return f"{value:.1f}".removesuffix(".0")


def picture(width: float, height: float, title: str, about: str, parts: Iterable[str], *, ident: str) -> Markup:
    """The frame that every picture shares. `ident` must be unique on the page."""
    name = escape(ident)
    return Markup(
        f'<svg viewBox="0 0 {at(width)} {at(height)}" role="img" aria-labelledby="{name}-t {name}-d">'
        f'<title id="{name}-t">{escape(title)}</title><desc id="{name}-d">{escape(about)}</desc>{"".join(parts)}</svg>'
    )


def line(x1: float, y1: float, x2: float, y2: float, style: str) -> str:
    """A straight stroke, in few bytes: a page has thousands."""
    end = f"H{at(x2)}" if y1 == y2 else f"V{at(y2)}" if x1 == x2 else f"L{at(x2)} {at(y2)}"
    return f'<path class="{style}" d="M{at(x1)} {at(y1)}{end}"/>'


def text(x: float, y: float, words: str, style: str = "", anchor: str = "start") -> str:
    """Words, escaped."""
    where = "" if anchor == "start" else f' text-anchor="{anchor}"'
    return f'<text class="{style}" x="{at(x)}" y="{at(y)}"{where}>{escape(words)}</text>'


def turned(x: float, y: float, words: str) -> str:
    """Words that read upwards, centred."""
    place = f"translate({at(x)} {at(y)}) rotate(-90)"
    return f'<text class="tick" text-anchor="middle" transform="{place}">{escape(words)}</text>'


def mark_shape(kind: str, x: float, y: float, size: float = 5.5, style: str = "mark", said: str = "") -> str:
    """Circle, diamond, square, triangle up or down, cross, by kind. `said` shows when the pointer rests on it."""
    title = f"<title>{escape(said)}</title>" if said else ""
    if kind == OVERALL:
        name, where = "circle", f'cx="{at(x)}" cy="{at(y)}" r="{at(size)}"'
    elif kind in _CORNERS:
        points = " ".join(f"{at(x + a * size)},{at(y + b * size)}" for a, b in _CORNERS[kind])
        name, where = "polygon", f'points="{points}"'
    else:
        half = size * 0.9
        name, where = (
            "rect",
            f'x="{at(x - half)}" y="{at(y - half)}" width="{at(2 * half)}" height="{at(2 * half)}"',
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
    found = [value for value in values if known(value)]
    low = min([least, *(math.floor(value / step + 1e-9) * step for value in found)])
    high = max([most, *(math.ceil(value / step - 1e-9) * step for value in found)])
    return round(low, 10), round(high, 10)
