"""Curves with bands -> small multiples: ROC, precision-recall, reliability, and what changes along prevalence."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from cxrhf.report.figures.ink import OVERALL, Line, at, line, mark_shape, picture, text, turned
from cxrhf.report.numbers import known

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
        parts.append(turned(13, (low + high) / 2, up))
        return parts

    def path(self, x: Sequence[float], y: Sequence[float]) -> str:
        """Straight lines through the points that are numbers."""
        points = [(a, b) for a, b in zip(x, y, strict=True) if known(a, b)]
        places = _thinned([(at(self.x(a)), at(self.y(b))) for a, b in points])
        return "".join(f"{'M' if k == 0 else 'L'}{a} {b}" for k, (a, b) in enumerate(places))

    def band(self, curve: Line) -> str:
        """The area between low and high, as a closed path."""
        both = [point for point in zip(curve.x, curve.low, curve.high, strict=True) if known(*point)]
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
    if point is not None and known(*point):
        parts.append(mark_shape(OVERALL, frame.x(point[0]), frame.y(point[1]), 4))
    return picture(SIDE, SIDE, title, about, parts, ident=ident)


def precision_recall(curve: Line, *, prevalence: float, ident: str, title: str, about: str) -> Markup:
    """A precision-recall curve; the dashed line is the prevalence, what a coin toss reaches."""
    frame = Frame()
    parts = frame.axes("recall (sensitivity)", "precision (PPV)")
    if known(prevalence):
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
        if not known(x, y):
            continue
        if curve.low and known(curve.low[k]):
            here = frame.x(x)
            parts.append(line(here, frame.y(curve.low[k]), here, frame.y(curve.high[k]), f"span {OVERALL}"))
        parts.append(mark_shape(OVERALL, frame.x(x), frame.y(y), 3.2))
    return picture(SIDE, SIDE, title, about, parts, ident=ident)


def along_prevalence(
    curves: Sequence[Line], *, up: str, here: float, ident: str, title: str, about: str, bands: bool = True
) -> Markup:
    """Up to four numbers along prevalence (logarithmic); `here` is the sample's own prevalence, a dashed line."""
    values = [v for curve in curves for v in (*curve.y, *(curve.high if bands else ())) if known(v)]
    frame = Frame(1.0, nice_end(values), logarithmic=True)
    parts = frame.axes("prevalence", up)
    if known(here):
        parts.append(line(frame.x(here), frame.y(0), frame.x(here), frame.y(frame.y_end), "chance"))
    for k, curve in enumerate(curves):
        if bands and curve.low:
            parts.append(frame.band(curve))
        parts.append(f'<path class="curve line-{k + 1}" d="{frame.path(curve.x, curve.y)}"/>')
    return picture(SIDE, SIDE, title, about, parts, ident=ident)


def nice_end(values: Iterable[float]) -> float:
    """A round end of the axis that holds all values: rare findings would vanish in the corner of 0..1."""
    most = max((v for v in values if known(v)), default=1.0)
    return next((end for end in (0.02, 0.04, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0) if most <= end), 2.0 if most <= 2 else most)


def by_count(curve: Line, *, chosen: float, up: str, ident: str, title: str, about: str) -> Markup:
    """A number for each count of clusters, with bars; the dashed line is the count that was chosen."""
    ends = [v for v in (*curve.y, *curve.low, *curve.high) if known(v)]
    low, high = min([0.0, *ends]), max([0.1, *ends])
    most = max([2.0, *(x for x in curve.x if known(x))])
    frame = Frame(most, 1.0)

    def up_to(value: float) -> float:
        return frame.y((value - low) / (high - low))

    parts = [text(frame.x(value), SIDE - 19, f"{value:.3g}", "tick", "middle") for value in (1.0, most)]
    for value in (low, high):
        parts.append(line(frame.x(0), up_to(value), frame.x(most), up_to(value), "grid"))
        parts.append(text(frame.x(0) - 4, up_to(value) + 4, f"{value:.2g}", "tick", "end"))
    parts += [text((frame.x(0) + frame.x(most)) / 2, SIDE - 5, "clusters", "tick", "middle"), turned(13, SIDE / 2, up)]
    if known(chosen):
        parts.append(line(frame.x(chosen), up_to(low), frame.x(chosen), up_to(high), "chance"))
    places = [(frame.x(x), up_to(y)) for x, y in zip(curve.x, curve.y, strict=True) if known(x, y)]
    path = "L".join(f"{at(x)} {at(y)}" for x, y in places)
    parts += [f'<path class="curve" d="M{path}"/>'] if path else []
    for x, y, first, last in zip(curve.x, curve.y, curve.low, curve.high, strict=True):
        if known(x, y, first, last):
            parts.append(line(frame.x(x), up_to(first), frame.x(x), up_to(last), f"span {OVERALL}"))
            parts.append(mark_shape(OVERALL, frame.x(x), up_to(y), 3.2))
    return picture(SIDE, SIDE, title, about, parts, ident=ident)
