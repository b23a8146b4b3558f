"""One point per finding -> a scatter plot with names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape

from cxrhf.report.figures.ink import OVERALL, Mark, extent, line, mark_shape, picture, scale, text, ticks, turned
from cxrhf.report.figures.labels import HEIGHT, Box, around, overlap
from cxrhf.report.numbers import known, letters, number, short

_WIDTH, _HEIGHT = 400, 400
_LEFT, _RIGHT, _TOP, _BOTTOM = 46, 12, 10, 42


@dataclass(frozen=True, slots=True)
class Point:
    """A finding: across, up, and its chance level (a tick below the point)."""

    name: str
    across: Mark
    up: Mark
    null: float


def scatter(points: Sequence[Point], *, across: str, up: str, ident: str, title: str, about: str) -> Markup:
    """Points with intervals both ways; the tick straight below a point is what a coin toss would reach."""
    shown = [point for point in points if known(point.across.value, point.up.value)]
    low, high = extent([v for p in shown for v in (p.across.value, p.across.low)], least=0.5, most=1.0)
    _, end = extent([v for p in shown for v in (p.up.value, p.up.high)], least=0.0, most=0.1)
    x = scale(low, high, _LEFT, _WIDTH - _RIGHT)
    y = scale(0.0, min(end, 1.0), _HEIGHT - _BOTTOM, _TOP)
    parts = []
    for value in ticks(low, high, 6):
        parts.append(line(x(value), y(0), x(value), _TOP, "grid"))
        parts.append(text(x(value), y(0) + 15, f"{value:g}", "tick", "middle"))
    for value in ticks(0.0, min(end, 1.0), 6):
        parts.append(line(_LEFT, y(value), _WIDTH - _RIGHT, y(value), "grid"))
        parts.append(text(_LEFT - 6, y(value) + 4, f"{value:g}", "tick", "end"))
    taken = [around(x(p.across.value), y(p.up.value), 6) for p in shown]
    marks, names = list[str](), list[str]()
    for point in shown:
        here, there = x(point.across.value), y(point.up.value)
        said = f"{point.name}: {number(point.across.value)}, {number(point.up.value)}, chance {number(point.null)}"
        inside = []
        if known(point.null):
            inside.append(line(here, there, here, y(point.null), "fall"))
            inside.append(line(here - 5, y(point.null), here + 5, y(point.null), "null"))
        if known(point.across.low, point.across.high):
            inside.append(line(x(point.across.low), there, x(point.across.high), there, f"span {OVERALL}"))
        if known(point.up.low, point.up.high):
            inside.append(line(here, y(point.up.low), here, y(point.up.high), f"span {OVERALL}"))
        inside.append(mark_shape(OVERALL, here, there, 4.5, said=said))
        finding = escape(point.name.lower())
        marks.append(f'<g data-finding="{finding}">{"".join(inside)}</g>')
        label = short(point.name, 20)
        spot = _free(taken, here, there, letters(label) * 7.4)
        names.append(f'<g data-finding="{finding}">{text(*spot, label, "label")}</g>')
    parts += [*marks, *names]
    parts.append(text((_LEFT + _WIDTH - _RIGHT) / 2, _HEIGHT - 8, across, "tick", "middle"))
    parts.append(turned(13, (_HEIGHT - _BOTTOM + _TOP) / 2, up))
    return picture(_WIDTH, _HEIGHT, title, about, parts, ident=ident)


def _free(taken: list[Box], x: float, y: float, width: float) -> tuple[float, float]:
    """Where a name beside a point collides with nothing placed before, or the least bad place: all are named."""
    best, least = (x + 9, y + 4), float("inf")
    places = [(x + 9, y + 4), (x - width - 9, y + 4)]
    places += [(x + side, y + up) for up in (-9, 16, -20, 27, -31, 38) for side in (-width / 2, 6, -width - 6)]
    for left, base in places:
        box = Box(left, base - HEIGHT + 2, left + width, base + 2)
        outside = max(0.0, _LEFT - box.left) + max(0.0, box.right - _WIDTH) + max(0.0, _TOP - box.top)
        outside += max(0.0, box.bottom - (_HEIGHT - _BOTTOM))
        cost = 1000 * outside + sum(overlap(box, other) for other in taken)
        if cost < least:
            best, least = (left, base), cost
    taken.append(Box(best[0], best[1] - HEIGHT + 2, best[0] + width, best[1] + 2))
    return best
