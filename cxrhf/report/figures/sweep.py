"""Counts along a level of significance -> a line for each strategy, the level on a logarithmic scale."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from markupsafe import Markup, escape

from cxrhf.report.figures.ink import Line, at, line, picture, text, turned
from cxrhf.report.figures.labels import count_ticks
from cxrhf.report.numbers import known

SIDE = 240.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 40.0, 10.0, 8.0, 36.0
STYLES = 6  # of lines in figure.css


class Swept(NamedTuple):
    """One strategy: its name, its line, and the number of its style from 1."""

    name: str
    curve: Line
    style: int


def sweep(lines: Sequence[Swept], *, across: str, up: str, here: float, end: float, ident: str, title: str) -> Markup:
    """Lines of counts from 0 to `end`; the dashed line is the level that was used."""
    levels = [value for each in lines for value in each.curve.x if known(value) and value > 0]
    low, high = min([0.01, *levels]), max([0.1, *levels])
    span = math.log(high / low)

    def x(value: float) -> float:
        return _LEFT + math.log(min(max(value, low), high) / low) / span * (SIDE - _LEFT - _RIGHT)

    def y(value: float) -> float:
        return SIDE - _BOTTOM - min(max(value / end, 0.0), 1.0) * (SIDE - _BOTTOM - _TOP)

    parts = []
    first, last = math.ceil(math.log10(low) - 1e-9), math.floor(math.log10(high) + 1e-9)
    powers = range(first, last + 1, 1 + (last - first) // 4)
    for value in [10.0**k for k in powers]:
        parts.append(line(x(value), y(0), x(value), y(end), "grid"))
        parts.append(text(x(value), y(0) + 14, f"{value:g}", "tick", "middle"))
    for count in count_ticks(end, 5):
        parts.append(line(_LEFT, y(count), SIDE - _RIGHT, y(count), "grid"))
        parts.append(text(_LEFT - 5, y(count) + 4, f"{count:,}", "tick", "end"))
    if known(here) and low <= here <= high:
        parts.append(line(x(here), y(0), x(here), y(end), "chance"))
    said = []
    for each in lines:
        places = [(a, b) for a, b in zip(each.curve.x, each.curve.y, strict=True) if known(a, b) and a > 0]
        path = "L".join(f"{at(x(a))} {at(y(b))}" for a, b in places)
        if path:
            name = escape(each.name)
            parts.append(f'<path class="curve line-{each.style}" d="M{path}"><title>{name}</title></path>')
            said.append(
                f"{each.name}: {places[0][1]:,.0f} at {places[0][0]:g}, {places[-1][1]:,.0f} at {places[-1][0]:g}"
            )
    parts.append(text((_LEFT + SIDE - _RIGHT) / 2, SIDE - 6, across, "tick", "middle"))
    parts.append(turned(11, (_TOP + SIDE - _BOTTOM) / 2, up))
    return picture(SIDE, SIDE, title, "; ".join(said) or "nothing to show", parts, ident=ident)
