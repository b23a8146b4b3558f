"""Three ways in which a finding and a patient group can lie in a network's vectors, as three small drawings."""

from __future__ import annotations

import math
import random

from markupsafe import Markup

from cxrhf.report.figures.ink import OVERALL, REMAINS, at, line, picture, text, turned

_SIDE, _MIDDLE, _REACH = 200.0, 104.0, 74.0
# Title; the direction of the finding and of the group, in degrees from "across"; what SPLIT would show.
_WAYS = (
    ("A: nothing shared", 0.0, 90.0, "The network keeps only feature 1: SPLIT near 0.5"),
    ("B: separate directions", 45.0, 135.0, "Both features are kept: SPLIT high"),
    ("C: one direction", 45.0, 57.0, "Both features are kept: SPLIT high"),
)


def scenarios(ident: str) -> list[tuple[str, Markup]]:
    """Titles and pictures: shape = the finding, colour = the group, lines divide each."""
    return [(way[0], _drawn(f"{ident}-{way[0][0].lower()}", *way)) for way in _WAYS]


def _drawn(ident: str, title: str, finding: float, group: float, said: str) -> Markup:
    drawn = random.Random(7)
    parts = [line(20, 184, 190, 184, "grid"), line(20, 184, 20, 14, "grid")]
    parts += [text(_MIDDLE, 198, "feature 1", "tick", "middle"), turned(12, 99, "feature 2")]
    for angle, style in ((finding, "way"), (group, "way group")):
        # A line that divides stands across the direction in which the two sides differ.
        x, y = _REACH * math.cos(math.radians(angle + 90)), _REACH * math.sin(math.radians(angle + 90))
        parts.append(line(_MIDDLE - x, 99 + y, _MIDDLE + x, 99 - y, style))
    for has_finding in (False, True):
        for in_group in (False, True):
            for x, y in _places(drawn, finding, group, has_finding, in_group):
                shape = _shape("circle" if has_finding else "square", OVERALL if in_group else REMAINS, x, y)
                parts.append(shape)
    return picture(_SIDE, 202, title, said, parts, ident=ident)


def _places(
    drawn: random.Random, finding: float, group: float, has_finding: bool, in_group: bool
) -> list[tuple[float, float]]:
    """A few places on the right side of both lines."""
    found: list[tuple[float, float]] = []
    tries = 0
    while len(found) < 7 and tries < 4000:
        tries += 1
        x, y = drawn.uniform(-1, 1), drawn.uniform(-1, 1)
        sides = [x * math.cos(math.radians(angle)) + y * math.sin(math.radians(angle)) for angle in (finding, group)]
        wanted = [1 if each else -1 for each in (has_finding, in_group)]
        apart = all(math.dist((x, y), other) > 0.2 for other in found)
        if apart and all(side * sign > 0.12 for side, sign in zip(sides, wanted, strict=True)):
            found.append((x, y))
    return [(_MIDDLE + x * _REACH, 99 - y * _REACH) for x, y in found]


def _shape(shape: str, kind: str, x: float, y: float) -> str:
    if shape == "circle":
        return f'<circle class="mark {kind}" cx="{at(x)}" cy="{at(y)}" r="4.4"/>'
    return f'<rect class="mark {kind}" x="{at(x - 4)}" y="{at(y - 4)}" width="8" height="8"/>'
