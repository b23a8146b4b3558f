"""One point per finding -> a scatter plot with names."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from markupsafe import Markup, escape

from cxrhf.report.figures.ink import (
    CONTEXT,
    HEIGHT,
    OVERALL,
    REMAINS,
    Box,
    Line,
    Mark,
    count_ticks,
    extent,
    format_coordinate,
    leader,
    line,
    mark_box,
    mark_shape,
    overlap,
    picture,
    scale,
    spot,
    text,
    ticks,
    vertical_text,
)
from cxrhf.report.numbers import format_number, is_finite, shorten, text_width

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
    shown = [point for point in points if is_finite(point.across.value, point.up.value)]
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
    taken = [mark_box(x(p.across.value), y(p.up.value), 6) for p in shown]
    marks, names = list[str](), list[str]()
    for point in shown:
        here, there = x(point.across.value), y(point.up.value)
        values = ", ".join(format_number(each.value) for each in (point.across, point.up))
        said = f"{point.name}: {values}, chance {format_number(point.null)}"
        inside = []
        if is_finite(point.null):
            inside.append(line(here, there, here, y(point.null), "fall"))
            inside.append(line(here - 5, y(point.null), here + 5, y(point.null), "null"))
        if is_finite(point.across.low, point.across.high):
            inside.append(line(x(point.across.low), there, x(point.across.high), there, f"span {OVERALL}"))
        if is_finite(point.up.low, point.up.high):
            inside.append(line(here, y(point.up.low), here, y(point.up.high), f"span {OVERALL}"))
        inside.append(mark_shape(OVERALL, here, there, 4.5, said=said))
        finding = escape(point.name.lower())
        marks.append(f'<g data-finding="{finding}">{"".join(inside)}</g>')
        label = shorten(point.name, 20)
        spot = _free(taken, here, there, text_width(label) * 7.4)
        names.append(f'<g data-finding="{finding}">{text(*spot, label, "label")}</g>')
    parts += [*marks, *names]
    parts.append(text((_LEFT + _WIDTH - _RIGHT) / 2, _HEIGHT - 8, across, "tick", "middle"))
    parts.append(vertical_text(13, (_HEIGHT - _BOTTOM + _TOP) / 2, up))
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


# Places of patients in a map -> a small scatter plot with the distribution of each group above and beside it.
#
# Single patients as dots where they may be shown, else cells of a grid: squares as large as the number of patients in
# them, cut into stripes by group.

WIDTH = 240.0
_CLOUD_LEFT, _STRIP, _CLOUD_BOTTOM = 20.0, 34.0, 20.0  # left edge, height of the distributions, below the field
FIELD = WIDTH - _CLOUD_LEFT - _STRIP


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
    start, field = f"{format_coordinate(_CLOUD_LEFT)} {format_coordinate(_STRIP)}", format_coordinate(FIELD)
    parts = [f'<path class="grid" fill="none" d="M{start}h{field}v{field}h{format_coordinate(-FIELD)}Z"/>']
    for group in groups:
        dots = "".join(f"M{format_coordinate(_x(x))} {format_coordinate(_y(y))}h.1" for x, y in group.places)
        parts += [f'<path class="dots {group.kind}" d="{dots}"/>'] if dots else []
    striped = ["".join(_stripe(square, k, cell * (FIELD - 6)) for square in squares) for k in range(len(groups))]
    parts += [f'<path class="{group.kind}" d="{path}"/>' for group, path in zip(groups, striped, strict=True) if path]
    for group in groups:
        parts += _edges(group, max((value for each in groups for value in (*each.across, *each.up)), default=1.0))
    parts.append(text(_CLOUD_LEFT + FIELD / 2, _STRIP + FIELD + 14, axes[0], "tick", "middle"))
    parts.append(vertical_text(14, _STRIP + FIELD / 2, axes[1]))
    return picture(WIDTH, _STRIP + FIELD + _CLOUD_BOTTOM, title, about, parts, ident=ident)


def _x(share: float) -> float:
    return _CLOUD_LEFT + 3 + share * (FIELD - 6)


def _y(share: float) -> float:
    return _STRIP + 3 + (1 - share) * (FIELD - 6)


def _stripe(square: Square, which: int, cell: float) -> str:
    """The part of one group of a square that is cut from left to right, in the order of the legend."""
    if not square.shares[which]:
        return ""
    side = square.size * cell
    left, width = _x(square.x) - side / 2 + sum(square.shares[:which]) * side, square.shares[which] * side
    start = f"{format_coordinate(left)} {format_coordinate(_y(square.y) - side / 2)}"
    return f"M{start}h{format_coordinate(width)}v{format_coordinate(side)}h{format_coordinate(-width)}z"


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
            x, y = (_x(along), _STRIP - 2 - out) if upright else (_CLOUD_LEFT + FIELD + 2 + out, _y(along))
            places.append(f"{format_coordinate(x)} {format_coordinate(y)}")
        parts.append(f'<path class="edge {group.kind}" d="M{"L".join(places)}"/>')
    return parts


# Words with their association in references and in generated reports -> a scatter plot, one against the other.
#
# On the diagonal nothing changed; on the level line through the middle the association is gone. `templates/words.js`
# draws the same plot for the reader to choose from.

DISPLACEMENT_SIDE = 520.0
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
    field = DISPLACEMENT_SIDE - LEFT - RIGHT

    def x(value: float) -> float:
        return LEFT + (place(value) + 1) / 2 * field

    def y(value: float) -> float:
        return TOP + (1 - place(value)) / 2 * field

    parts = [*_bands(end, x, y)]
    for value in ticks:
        parts += [
            line(x(value), TOP, x(value), TOP + field, "grid"),
            text(x(value), TOP + field + 15, format_number(value, 0), "tick", "middle"),
            line(LEFT, y(value), LEFT + field, y(value), "grid"),
            text(LEFT - 5, y(value) + 4, format_number(value, 0), "tick", "end"),
        ]
    parts.append(line(x(-end), y(-end), x(end), y(end), "chance"))
    moved = [each for each in words if each.kind != STILL]
    moved.sort(key=lambda each: -abs(each.z_pred - each.z_ref))
    still = [each for each in words if each.kind == STILL]
    parts += [
        f'<circle class="{STILL}" cx="{format_coordinate(x(each.z_ref))}" '
        f'cy="{format_coordinate(y(each.z_pred))}" r="2"/>'
        for each in still
    ]
    taken = [mark_box(x(each.z_ref), y(each.z_pred), 4) for each in moved]
    inside, names = Box(LEFT, TOP, LEFT + field, TOP + field), list[str]()
    for each in moved[:_LABELS]:
        here, there, label = x(each.z_ref), y(each.z_pred), shorten(each.word, 22)
        if found := spot(taken, here, there, label, inside):
            if found.far:
                names.append(line(here, there, *leader(here, there, found, label), "leader"))
            names.append(text(found.x, found.y, label, "label"))
    parts += [mark_shape(each.kind, x(each.z_ref), y(each.z_pred), 4.2, said=each.said) for each in moved[::-1]]
    parts += names
    first, second = (shorten(each, 16) for each in sides)
    # SVG draws runs of plain spaces as one.
    across, up = (
        f"← {second}\u00a0\u00a0\u00a0{words}\u00a0\u00a0\u00a0{first} →"
        for words in ("association in the references (z)", "in the generated reports (z)")
    )
    parts.append(text(LEFT + field / 2, DISPLACEMENT_SIDE - 8, across, "tick", "middle"))
    parts.append(vertical_text(11, TOP + field / 2, up))
    return picture(DISPLACEMENT_SIDE, DISPLACEMENT_SIDE, title, about, parts, ident=ident)


def _bands(end: float, x: Callable[[float], float], y: Callable[[float], float]) -> list[str]:
    """Where nothing changed (along the diagonal), neutral in the generated reports, strong in the references."""
    steps = [end * (k / 24 - 1) for k in range(49)]

    def edge(shift: float) -> list[str]:
        return [
            f"{format_coordinate(x(value))} {format_coordinate(y(min(max(value + shift, -end), end)))}"
            for value in steps
        ]

    diagonal = "L".join([*edge(BAND), *edge(-BAND)[::-1]])
    low, high, left, right = y(-NEUTRAL), y(NEUTRAL), x(-end), x(end)
    neutral = (
        f"M{format_coordinate(left)} {format_coordinate(high)}H{format_coordinate(right)}"
        f"V{format_coordinate(low)}H{format_coordinate(left)}Z"
    )
    strong = [line(x(side * STRONG), y(-end), x(side * STRONG), y(end), "limit") for side in (-1, 1)]
    return [f'<path class="same" d="M{diagonal}Z"/>', f'<path class="neutral" d="{neutral}"/>', *strong]


# What decoding strategies lose and what they add -> a scatter plot of counts with names, and chance beside each.

_TRADEOFF_WIDTH, _TRADEOFF_HEIGHT = 400, 340
_TRADEOFF_LEFT, _TRADEOFF_RIGHT, _TRADEOFF_TOP, _TRADEOFF_BOTTOM = 50, 16, 12, 44


class Trade(NamedTuple):
    """One strategy: its mark, its name, both counts, and what chance alone gives."""

    kind: str
    name: str
    lost: float
    added: float
    lost_chance: float = math.nan
    added_chance: float = math.nan


def tradeoff(trades: Sequence[Trade], *, across: str, up: str, ident: str, title: str) -> Markup:
    """Counts both ways from 0; grey: what chance alone would give."""
    shown = [each for each in trades if is_finite(each.lost, each.added)]
    ends = [
        max([4.0, *(value for each in shown for value in pair(each) if is_finite(value))])
        for pair in (lambda t: (t.lost, t.lost_chance), lambda t: (t.added, t.added_chance))
    ]
    # Room for marks that stand at the largest count.
    x = scale(0, ends[0] * 1.06, _TRADEOFF_LEFT, _TRADEOFF_WIDTH - _TRADEOFF_RIGHT)
    y = scale(0, ends[1] * 1.06, _TRADEOFF_HEIGHT - _TRADEOFF_BOTTOM, _TRADEOFF_TOP)
    parts = []
    for value in count_ticks(ends[0] * 1.06):
        parts += [
            line(x(value), y(0), x(value), _TRADEOFF_TOP, "grid"),
            text(x(value), y(0) + 15, f"{value:,}", "tick", "middle"),
        ]
    for value in count_ticks(ends[1] * 1.06):
        parts += [
            line(_TRADEOFF_LEFT, y(value), _TRADEOFF_WIDTH - _TRADEOFF_RIGHT, y(value), "grid"),
            text(_TRADEOFF_LEFT - 6, y(value) + 4, f"{value:,}", "tick", "end"),
        ]
    taken = [mark_box(x(each.lost), y(each.added), 6) for each in shown]
    taken += [
        mark_box(x(each.lost_chance), y(each.added_chance), 4)
        for each in shown
        if is_finite(each.lost_chance, each.added_chance)
    ]
    inside = Box(_TRADEOFF_LEFT - 8, 0, _TRADEOFF_WIDTH, _TRADEOFF_HEIGHT - _TRADEOFF_BOTTOM + 2)
    marks, names = list[str](), list[str]()
    for each in shown:
        here, there = x(each.lost), y(each.added)
        said = f"{each.name}: {each.lost:,.0f} lost, {each.added:,.0f} added"
        if is_finite(each.lost_chance, each.added_chance):
            said += (
                f"; expected by chance {format_number(each.lost_chance, 1)} and {format_number(each.added_chance, 1)}"
            )
            by_chance = f"{each.name}, expected by chance"
            marks.append(mark_shape(CONTEXT, x(each.lost_chance), y(each.added_chance), 3.4, said=by_chance))
        marks.append(mark_shape(each.kind, here, there, said=said))
        label = shorten(each.name, 24)
        if found := spot(taken, here, there, label, inside):
            if found.far:
                names.append(line(here, there, *leader(here, there, found, label), "leader"))
            names.append(text(found.x, found.y, label, "label"))
    parts += [*names, *marks]
    parts.append(
        text((_TRADEOFF_LEFT + _TRADEOFF_WIDTH - _TRADEOFF_RIGHT) / 2, _TRADEOFF_HEIGHT - 8, across, "tick", "middle")
    )
    parts.append(vertical_text(13, (_TRADEOFF_HEIGHT - _TRADEOFF_BOTTOM + _TRADEOFF_TOP) / 2, up))
    about = "; ".join(f"{each.name}: {each.lost:,.0f} and {each.added:,.0f}" for each in shown) or "nothing to show"
    return picture(_TRADEOFF_WIDTH, _TRADEOFF_HEIGHT, title, about, parts, ident=ident)


# Counts along a level of significance -> a line for each strategy, the level on a logarithmic scale.

SWEEP_SIDE = 240.0
_SWEEP_LEFT, _SWEEP_RIGHT, _SWEEP_TOP, _SWEEP_BOTTOM = 40.0, 10.0, 8.0, 36.0
STYLES = 6  # of lines in figure.css


class Swept(NamedTuple):
    """One strategy: its name, its line, and the number of its style from 1."""

    name: str
    curve: Line
    style: int


def sweep(lines: Sequence[Swept], *, across: str, up: str, here: float, end: float, ident: str, title: str) -> Markup:
    """Lines of counts from 0 to `end`; the dashed line is the level that was used."""
    levels = [value for each in lines for value in each.curve.x if is_finite(value) and value > 0]
    low, high = min([0.01, *levels]), max([0.1, *levels])
    span = math.log(high / low)

    def x(value: float) -> float:
        return _SWEEP_LEFT + math.log(min(max(value, low), high) / low) / span * (
            SWEEP_SIDE - _SWEEP_LEFT - _SWEEP_RIGHT
        )

    def y(value: float) -> float:
        return SWEEP_SIDE - _SWEEP_BOTTOM - min(max(value / end, 0.0), 1.0) * (SWEEP_SIDE - _SWEEP_BOTTOM - _SWEEP_TOP)

    parts = []
    first, last = math.ceil(math.log10(low) - 1e-9), math.floor(math.log10(high) + 1e-9)
    powers = range(first, last + 1, 1 + (last - first) // 4)
    for value in [10.0**k for k in powers]:
        parts.append(line(x(value), y(0), x(value), y(end), "grid"))
        parts.append(text(x(value), y(0) + 14, f"{value:g}", "tick", "middle"))
    for count in count_ticks(end, 5):
        parts.append(line(_SWEEP_LEFT, y(count), SWEEP_SIDE - _SWEEP_RIGHT, y(count), "grid"))
        parts.append(text(_SWEEP_LEFT - 5, y(count) + 4, f"{count:,}", "tick", "end"))
    if is_finite(here) and low <= here <= high:
        parts.append(line(x(here), y(0), x(here), y(end), "chance"))
    said = []
    for each in lines:
        places = [(a, b) for a, b in zip(each.curve.x, each.curve.y, strict=True) if is_finite(a, b) and a > 0]
        path = "L".join(f"{format_coordinate(x(a))} {format_coordinate(y(b))}" for a, b in places)
        if path:
            name = escape(each.name)
            parts.append(f'<path class="curve line-{each.style}" d="M{path}"><title>{name}</title></path>')
            said.append(
                f"{each.name}: {places[0][1]:,.0f} at {places[0][0]:g}, {places[-1][1]:,.0f} at {places[-1][0]:g}"
            )
    parts.append(text((_SWEEP_LEFT + SWEEP_SIDE - _SWEEP_RIGHT) / 2, SWEEP_SIDE - 6, across, "tick", "middle"))
    parts.append(vertical_text(11, (_SWEEP_TOP + SWEEP_SIDE - _SWEEP_BOTTOM) / 2, up))
    return picture(SWEEP_SIDE, SWEEP_SIDE, title, "; ".join(said) or "nothing to show", parts, ident=ident)


# Three ways in which a finding and a patient group can lie in a network's vectors, as three small drawings.

_SIDE, _MIDDLE, _REACH = 200.0, 104.0, 74.0
# Title; the direction of the finding and of the group, in degrees from "across"; what SPLIT would show.
_WAYS = (
    ("A: nothing shared", 0.0, 90.0, "The network keeps only feature 1: SPLIT near 0.5"),
    ("B: separate directions", 45.0, 135.0, "Both features are kept: SPLIT high"),
    ("C: one direction", 45.0, 57.0, "Both features are kept: SPLIT high"),
)


def scenarios(ident: str) -> list[tuple[str, Markup]]:
    """Titles and pictures: shape = the finding, colour = the group, lines divide each."""
    return [(way[0], _scenario_picture(f"{ident}-{way[0][0].lower()}", *way)) for way in _WAYS]


def _scenario_picture(ident: str, title: str, finding: float, group: float, said: str) -> Markup:
    drawn = random.Random(7)
    parts = [line(20, 184, 190, 184, "grid"), line(20, 184, 20, 14, "grid")]
    parts += [text(_MIDDLE, 198, "feature 1", "tick", "middle"), vertical_text(12, 99, "feature 2")]
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
        return f'<circle class="mark {kind}" cx="{format_coordinate(x)}" cy="{format_coordinate(y)}" r="4.4"/>'
    corner = f'x="{format_coordinate(x - 4)}" y="{format_coordinate(y - 4)}"'
    return f'<rect class="mark {kind}" {corner} width="8" height="8"/>'


# Curves with bands -> small multiples: ROC, precision-recall, reliability, and what changes along prevalence.

SIDE = 200  # a small multiple's width and height, in its own units
_ROOM = (46, 8, 8, 32)  # left, right, top, bottom of a small multiple's frame
# Ends of the prevalence axis, on a logarithmic scale.
RARE, COMMON = 0.001, 0.5


@dataclass(frozen=True, slots=True)
class Frame:
    """Maps data from [0, x_end] x [0, y_end] into a small multiple; `logarithmic`: x from RARE to COMMON."""

    x_end: float = 1.0
    y_end: float = 1.0
    logarithmic: bool = False

    def x(self, value: float) -> float:
        """Across."""
        left, right = _ROOM[0], _ROOM[1]
        share = value / self.x_end
        if self.logarithmic:
            share = math.log(max(value, RARE) / RARE) / math.log(COMMON / RARE)
        return left + min(max(share, 0), 1) * (SIDE - left - right)

    def y(self, value: float) -> float:
        """Down: 0 is at the bottom."""
        top, bottom = _ROOM[2], _ROOM[3]
        return SIDE - bottom - min(max(value / self.y_end, 0), 1) * (SIDE - top - bottom)

    def axes(self, across: str, up: str) -> list[str]:
        """Grid, ticks and the names of both axes."""
        left, right, low, high = self.x(0), SIDE - _ROOM[1], self.y(0), self.y(self.y_end)
        parts = []
        for value in (0.001, 0.01, 0.1, 0.5) if self.logarithmic else (0.0, self.x_end / 2, self.x_end):
            here = self.x(value)
            parts.append(line(here, low, here, high, "grid"))
            anchor, shift = ("end", 4) if here > right - 1 else ("middle", 0)
            parts.append(text(here + shift, low + 13, f"{value:.3g}", "tick", anchor))
        for value in (0.0, self.y_end / 2, self.y_end):
            parts.append(line(left, self.y(value), right, self.y(value), "grid"))
            parts.append(text(left - 4, self.y(value) + 4, f"{value:.3g}", "tick", "end"))
        parts.append(text((left + right) / 2, SIDE - 5, across, "tick", "middle"))
        parts.append(vertical_text(13, (low + high) / 2, up))
        return parts

    def path(self, x: Sequence[float], y: Sequence[float]) -> str:
        """Straight lines through the points that are numbers."""
        points = [(a, b) for a, b in zip(x, y, strict=True) if is_finite(a, b)]
        places = _thinned([(format_coordinate(self.x(a)), format_coordinate(self.y(b))) for a, b in points])
        return "".join(f"{'M' if k == 0 else 'L'}{a} {b}" for k, (a, b) in enumerate(places))

    def band(self, curve: Line) -> str:
        """The area between low and high, as a closed path."""
        both = [point for point in zip(curve.x, curve.low, curve.high, strict=True) if is_finite(*point)]
        if len(both) < 2:
            return ""
        x, low, high = zip(*both, strict=True)
        back = self.path(x[::-1], low[::-1]).replace("M", "L")
        return f'<path class="band" d="{self.path(x, high)}{back}Z"/>'


def _thinned(places: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Without repeated places and without the middle of straight runs across or down: the same stroke, fewer bytes."""
    kept: list[tuple[str, str]] = []
    for place in places:
        if kept and kept[-1] == place:
            continue
        if len(kept) > 1 and any(kept[-2][k] == kept[-1][k] == place[k] for k in (0, 1)):
            kept.pop()
        kept.append(place)
    return kept


def roc(curve: Line, *, ident: str, title: str, about: str, point: tuple[float, float] | None = None) -> Markup:
    """A ROC curve; `point` = (false positive rate, sensitivity) of the operating point."""
    frame = Frame()
    parts = frame.axes("1 − specificity", "sensitivity")
    parts.append(line(frame.x(0), frame.y(0), frame.x(1), frame.y(1), "chance"))
    if curve.low:
        parts.append(frame.band(curve))
    parts.append(f'<path class="curve" d="{frame.path(curve.x, curve.y)}"/>')
    if point is not None and is_finite(*point):
        parts.append(mark_shape(OVERALL, frame.x(point[0]), frame.y(point[1]), 4))
    return picture(SIDE, SIDE, title, about, parts, ident=ident)


def precision_recall(curve: Line, *, prevalence: float, ident: str, title: str, about: str) -> Markup:
    """A precision-recall curve; the dashed line is the prevalence, what a coin toss reaches."""
    frame = Frame()
    parts = frame.axes("recall (sensitivity)", "precision (PPV)")
    if is_finite(prevalence):
        parts.append(line(frame.x(0), frame.y(prevalence), frame.x(1), frame.y(prevalence), "chance"))
    if curve.low:
        parts.append(frame.band(curve))
    parts.append(f'<path class="curve" d="{frame.path(curve.x, curve.y)}"/>')
    return picture(SIDE, SIDE, title, about, parts, ident=ident)


def reliability(curve: Line, *, ident: str, title: str, about: str) -> Markup:
    """Observed share of positives against the mean probability, one dot per bin; on the diagonal = calibrated."""
    end = nice_end([*curve.x, *curve.y])
    frame = Frame(end, end)
    parts = frame.axes("predicted", "observed")
    parts.append(line(frame.x(0), frame.y(0), frame.x(end), frame.y(end), "chance"))
    for k, (x, y) in enumerate(zip(curve.x, curve.y, strict=True)):
        if not is_finite(x, y):
            continue
        if curve.low and is_finite(curve.low[k]):
            here = frame.x(x)
            parts.append(line(here, frame.y(curve.low[k]), here, frame.y(curve.high[k]), f"span {OVERALL}"))
        parts.append(mark_shape(OVERALL, frame.x(x), frame.y(y), 3.2))
    return picture(SIDE, SIDE, title, about, parts, ident=ident)


def along_prevalence(
    curves: Sequence[Line], *, up: str, here: float, ident: str, title: str, about: str, bands: bool = True
) -> Markup:
    """Up to four numbers along prevalence (logarithmic); `here` is the sample's own prevalence, a dashed line."""
    values = [v for curve in curves for v in (*curve.y, *(curve.high if bands else ())) if is_finite(v)]
    frame = Frame(1.0, nice_end(values), logarithmic=True)
    parts = frame.axes("prevalence", up)
    if is_finite(here):
        parts.append(line(frame.x(here), frame.y(0), frame.x(here), frame.y(frame.y_end), "chance"))
    for k, curve in enumerate(curves):
        if bands and curve.low:
            parts.append(frame.band(curve))
        parts.append(f'<path class="curve line-{k + 1}" d="{frame.path(curve.x, curve.y)}"/>')
    return picture(SIDE, SIDE, title, about, parts, ident=ident)


def nice_end(values: Iterable[float]) -> float:
    """A round end of the axis that holds all values: rare findings would vanish in the corner of 0..1."""
    most = max((v for v in values if is_finite(v)), default=1.0)
    return next((end for end in (0.02, 0.04, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0) if most <= end), 2.0 if most <= 2 else most)


def by_count(curve: Line, *, chosen: float, up: str, ident: str, title: str, about: str) -> Markup:
    """A number for each count of clusters, with bars; the dashed line is the count that was chosen."""
    ends = [v for v in (*curve.y, *curve.low, *curve.high) if is_finite(v)]
    low, high = min([0.0, *ends]), max([0.1, *ends])
    most = max([2.0, *(x for x in curve.x if is_finite(x))])
    frame = Frame(most, 1.0)

    def up_to(value: float) -> float:
        return frame.y((value - low) / (high - low))

    parts = [text(frame.x(value), SIDE - 19, f"{value:.3g}", "tick", "middle") for value in (1.0, most)]
    for value in (low, high):
        parts.append(line(frame.x(0), up_to(value), frame.x(most), up_to(value), "grid"))
        parts.append(text(frame.x(0) - 4, up_to(value) + 4, f"{value:.2g}", "tick", "end"))
    parts += [
        text((frame.x(0) + frame.x(most)) / 2, SIDE - 5, "clusters", "tick", "middle"),
        vertical_text(13, SIDE / 2, up),
    ]
    if is_finite(chosen):
        parts.append(line(frame.x(chosen), up_to(low), frame.x(chosen), up_to(high), "chance"))
    places = [(frame.x(x), up_to(y)) for x, y in zip(curve.x, curve.y, strict=True) if is_finite(x, y)]
    path = "L".join(f"{format_coordinate(x)} {format_coordinate(y)}" for x, y in places)
    parts += [f'<path class="curve" d="M{path}"/>'] if path else []
    for x, y, first, last in zip(curve.x, curve.y, curve.low, curve.high, strict=True):
        if is_finite(x, y, first, last):
            parts.append(line(frame.x(x), up_to(first), frame.x(x), up_to(last), f"span {OVERALL}"))
            parts.append(mark_shape(OVERALL, frame.x(x), up_to(y), 3.2))
    return picture(SIDE, SIDE, title, about, parts, ident=ident)
