"""Places of patients in a map -> a small scatter plot with the distribution of each group above and beside it.

Single patients as dots where they may be shown, else cells of a grid: squares as large as the number of patients in
them, cut into stripes by group.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from markupsafe import Markup

from cxrhf.report.figures.ink import at, picture, text, turned

WIDTH = 240.0
_LEFT, _STRIP, _BOTTOM = 20.0, 34.0, 20.0  # left edge, height of the distributions, below the field
FIELD = WIDTH - _LEFT - _STRIP


class Group(NamedTuple):
    """One group: its mark and name, its patients' places (0..1, up is large), its distributions along both axes."""

    kind: str
    name: str
    places: Sequence[tuple[float, float]]
    across: Sequence[float]
    up: Sequence[float]


class Square(NamedTuple):
    """A cell of the grid: its middle (0..1), its width (1 = a whole cell), and the share of each group."""

    x: float
    y: float
    size: float
    shares: Sequence[float]


def cloud(
    groups: Sequence[Group],
    squares: Sequence[Square] = (),
    cell: float = 0.0,
    *,
    axes: tuple[str, str],
    ident: str,
    title: str,
    about: str,
) -> Markup:
    """The picture; `cell` is the width of a cell of the grid, where there is one."""
    parts = [f'<path class="grid" fill="none" d="M{at(_LEFT)} {at(_STRIP)}h{at(FIELD)}v{at(FIELD)}h{at(-FIELD)}Z"/>']
    for group in groups:
        dots = "".join(f"M{at(_x(x))} {at(_y(y))}h.1" for x, y in group.places)
        parts += [f'<path class="dots {group.kind}" d="{dots}"/>'] if dots else []
    striped = ["".join(_stripe(square, k, cell * (FIELD - 6)) for square in squares) for k in range(len(groups))]
    parts += [f'<path class="{group.kind}" d="{path}"/>' for group, path in zip(groups, striped, strict=True) if path]
    for group in groups:
        parts += _edges(group, max((value for each in groups for value in (*each.across, *each.up)), default=1.0))
    parts.append(text(_LEFT + FIELD / 2, _STRIP + FIELD + 14, axes[0], "tick", "middle"))
    parts.append(turned(14, _STRIP + FIELD / 2, axes[1]))
    return picture(WIDTH, _STRIP + FIELD + _BOTTOM, title, about, parts, ident=ident)


def _x(share: float) -> float:
    return _LEFT + 3 + share * (FIELD - 6)


def _y(share: float) -> float:
    return _STRIP + 3 + (1 - share) * (FIELD - 6)


def _stripe(square: Square, which: int, cell: float) -> str:
    """The part of one group of a square that is cut from left to right, in the order of the legend."""
    if not square.shares[which]:
        return ""
    side = square.size * cell
    left, width = _x(square.x) - side / 2 + sum(square.shares[:which]) * side, square.shares[which] * side
    return f"M{at(left)} {at(_y(square.y) - side / 2)}h{at(width)}v{at(side)}h{at(-width)}z"


def _edges(group: Group, most: float) -> list[str]:
    """Its distributions: above the field, and at its right."""
    parts = []
    for values, upright in ((group.across, True), (group.up, False)):
        if not any(values):
            continue
        step = 1 / len(values)
        places = []
        for k, value in enumerate(values):
            along, out = (k + 0.5) * step, value / (most or 1.0) * (_STRIP - 4)
            x, y = (_x(along), _STRIP - 2 - out) if upright else (_LEFT + FIELD + 2 + out, _y(along))
            places.append(f"{at(x)} {at(y)}")
        parts.append(f'<path class="edge {group.kind}" d="M{"L".join(places)}"/>')
    return parts
