"""Points with names -> where each name stands without covering another, or that it has no room."""

from __future__ import annotations

from typing import NamedTuple

from cxrhf.report.numbers import letters

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


def around(x: float, y: float, size: float) -> Box:
    """The place that a mark takes."""
    return Box(x - size, y - size, x + size, y + size)


def overlap(a: Box, b: Box) -> float:
    """The area that two boxes share."""
    return max(0.0, min(a.right, b.right) - max(a.left, b.left)) * max(0.0, min(a.bottom, b.bottom) - max(a.top, b.top))


def spot(taken: list[Box], x: float, y: float, name: str, inside: Box, reach: int = 5) -> Spot | None:
    """The nearest free place for the name of the point at (x, y), which is then taken; None where there is none."""
    width = letters(name) * LETTER + GAP
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
    width = letters(name) * LETTER
    return min(max(x, found.x), found.x + width), found.y + 3 if found.y < y else found.y - HEIGHT + 3


def count_ticks(end: float, most: int = 6) -> list[int]:
    """Whole numbers from 0 to `end`, at most about so many of them."""
    size = 1
    while True:
        for step in (size, 2 * size, 5 * size):
            if end / step <= most:
                return list(range(0, int(end) + 1, step))
        size *= 10
