"""Words with their association in references and in generated reports -> a scatter plot, one against the other.

On the diagonal nothing changed; on the level line through the middle the association is gone. `templates/words.js`
draws the same plot for the reader to choose from.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from markupsafe import Markup

from cxrhf.report.figures.ink import at, line, mark_shape, picture, text, turned
from cxrhf.report.figures.labels import Box, around, leader, spot
from cxrhf.report.numbers import number, short

SIDE = 520.0
LEFT, TOP, BOTTOM, RIGHT = 46.0, 10.0, 42.0, 14.0
# Two words of as many tokens in both corpora are apart beyond chance (two-sided 5%) if their scores are by this much.
BAND = 1.96 * math.sqrt(2)
STRETCHED = 8.0  # beyond it the axes grow by logarithms
NEUTRAL, STRONG = 1.0, 2.0
_LABELS = 26
STILL = "still-word"  # the style of words that did not move


class Placed(NamedTuple):
    """A word: its mark (STILL where it did not move), both scores, and what the pointer is told."""

    word: str
    kind: str
    z_ref: float
    z_pred: float
    said: str


def reach(scores: Sequence[float]) -> float:
    """The end of both axes: all words are inside."""
    return float(max([3.0, *(math.ceil(abs(value) + 0.25) for value in scores if math.isfinite(value))]))


def axis(end: float) -> tuple[Callable[[float], float], list[float]]:
    """A score -> its place from -1 to 1, and the ticks. Straight up to STRETCHED, else stretched in the middle."""
    if end <= STRETCHED:
        step = 1 if end <= 5 else 2
        return lambda value: value / end, [float(k) for k in range(-int(end), int(end) + 1) if k % step == 0]
    steps = [k for k in (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000) if k <= end]
    whole = math.asinh(end / 2)
    return lambda value: math.asinh(value / 2) / whole, [float(k) for k in (*(-s for s in steps[::-1]), 0, *steps)]


def displacement(
    words: Sequence[Placed], *, end: float, sides: tuple[str, str], ident: str, title: str, about: str
) -> Markup:
    """The plot. `sides`: who the positive and the negative scores go with."""
    place, ticks = axis(end)
    field = SIDE - LEFT - RIGHT

    def x(value: float) -> float:
        return LEFT + (place(value) + 1) / 2 * field

    def y(value: float) -> float:
        return TOP + (1 - place(value)) / 2 * field

    parts = [*_bands(end, x, y)]
    for value in ticks:
        parts += [
            line(x(value), TOP, x(value), TOP + field, "grid"),
            text(x(value), TOP + field + 15, number(value, 0), "tick", "middle"),
            line(LEFT, y(value), LEFT + field, y(value), "grid"),
            text(LEFT - 5, y(value) + 4, number(value, 0), "tick", "end"),
        ]
    parts.append(line(x(-end), y(-end), x(end), y(end), "chance"))
    moved = [each for each in words if each.kind != STILL]
    moved.sort(key=lambda each: -abs(each.z_pred - each.z_ref))
    still = [each for each in words if each.kind == STILL]
    parts += [f'<circle class="{STILL}" cx="{at(x(each.z_ref))}" cy="{at(y(each.z_pred))}" r="2"/>' for each in still]
    taken = [around(x(each.z_ref), y(each.z_pred), 4) for each in moved]
    inside, names = Box(LEFT, TOP, LEFT + field, TOP + field), list[str]()
    for each in moved[:_LABELS]:
        here, there, label = x(each.z_ref), y(each.z_pred), short(each.word, 22)
        if found := spot(taken, here, there, label, inside):
            if found.far:
                names.append(line(here, there, *leader(here, there, found, label), "leader"))
            names.append(text(found.x, found.y, label, "label"))
    parts += [mark_shape(each.kind, x(each.z_ref), y(each.z_pred), 4.2, said=each.said) for each in moved[::-1]]
    parts += names
    first, second = (short(each, 16) for each in sides)
    # SVG draws runs of plain spaces as one.
    across, up = (
        f"← {second}\u00a0\u00a0\u00a0{words}\u00a0\u00a0\u00a0{first} →"
        for words in ("association in the references (z)", "in the generated reports (z)")
    )
    parts.append(text(LEFT + field / 2, SIDE - 8, across, "tick", "middle"))
    parts.append(turned(11, TOP + field / 2, up))
    return picture(SIDE, SIDE, title, about, parts, ident=ident)


def _bands(end: float, x: Callable[[float], float], y: Callable[[float], float]) -> list[str]:
    """Where nothing changed (along the diagonal), neutral in the generated reports, strong in the references."""
    steps = [end * (k / 24 - 1) for k in range(49)]

    def edge(shift: float) -> list[str]:
        return [f"{at(x(value))} {at(y(min(max(value + shift, -end), end)))}" for value in steps]

    diagonal = "L".join([*edge(BAND), *edge(-BAND)[::-1]])
    low, high, left, right = y(-NEUTRAL), y(NEUTRAL), x(-end), x(end)
    neutral = f"M{at(left)} {at(high)}H{at(right)}V{at(low)}H{at(left)}Z"
    strong = [line(x(side * STRONG), y(-end), x(side * STRONG), y(end), "limit") for side in (-1, 1)]
    return [f'<path class="same" d="M{diagonal}Z"/>', f'<path class="neutral" d="{neutral}"/>', *strong]
