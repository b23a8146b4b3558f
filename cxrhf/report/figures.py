"""Numbers with intervals -> small SVG pictures as text, without a plotting library.

Every picture is `role="img"` with a title and a description, takes its colours from the page's style sheet (light and
dark) and tells its marks apart by shape as well as by colour. All text goes through `escape`; nothing else is trusted.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape

# Shape and style class of the three numbers in the headline picture.
OVERALL, CONTEXT, REMAINS = "overall", "context", "remains"
_SIDE = 200  # a small multiple's width and height, in its own units
_ROOM = (46, 8, 8, 32)  # left, right, top, bottom of a small multiple's frame


@dataclass(frozen=True, slots=True)
class Mark:
    """A value with its interval; NaN where there is none."""

    value: float = math.nan
    low: float = math.nan
    high: float = math.nan


@dataclass(frozen=True, slots=True)
class Fall:
    """One finding of the headline picture; `beside` is what stands to its right."""

    name: str
    overall: Mark
    context: Mark
    remains: Mark
    beside: str = ""


@dataclass(frozen=True, slots=True)
class Line:
    """Points of a curve in order, with a band where `low` and `high` are finite."""

    x: Sequence[float]
    y: Sequence[float]
    low: Sequence[float] = ()
    high: Sequence[float] = ()


def number(value: float, digits: int = 3) -> str:
    """A number for people: three decimals, a true minus sign, never "-0.000"; a dash where there is none."""
    if value is None or not math.isfinite(value):
        return "–"
    text = f"{value:.{digits}f}"
    return text.replace("-", "−") if float(text) != 0 else text.lstrip("-")


def known(*values: float) -> bool:
    """All are numbers."""
    return all(math.isfinite(value) for value in values)


def _at(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


def picture(width: float, height: float, title: str, about: str, parts: Iterable[str], *, ident: str) -> Markup:
    """The frame that every picture shares. `ident` must be unique on the page."""
    name = escape(ident)
    return Markup(
        f'<svg viewBox="0 0 {_at(width)} {_at(height)}" role="img" aria-labelledby="{name}-t {name}-d">'
        f'<title id="{name}-t">{escape(title)}</title><desc id="{name}-d">{escape(about)}</desc>{"".join(parts)}</svg>'
    )


def _line(x1: float, y1: float, x2: float, y2: float, style: str) -> str:
    return f'<line class="{style}" x1="{_at(x1)}" y1="{_at(y1)}" x2="{_at(x2)}" y2="{_at(y2)}"/>'


def _text(x: float, y: float, words: str, style: str = "", anchor: str = "start") -> str:
    where = "" if anchor == "start" else f' text-anchor="{anchor}"'
    return f'<text class="{style}" x="{_at(x)}" y="{_at(y)}"{where}>{escape(words)}</text>'


def mark_shape(kind: str, x: float, y: float, size: float = 5.5) -> str:
    """Circle = overall, diamond = context alone, square = what remains."""
    if kind == OVERALL:
        return f'<circle class="mark {kind}" cx="{_at(x)}" cy="{_at(y)}" r="{_at(size)}"/>'
    if kind == REMAINS:
        half = size * 0.9
        return (
            f'<rect class="mark {kind}" x="{_at(x - half)}" y="{_at(y - half)}" '
            f'width="{_at(2 * half)}" height="{_at(2 * half)}"/>'
        )
    reach = size * 1.2
    points = " ".join(f"{_at(x + a * reach)},{_at(y + b * reach)}" for a, b in ((0, -1), (1, 0), (0, 1), (-1, 0)))
    return f'<polygon class="mark {kind}" points="{points}"/>'


def key_mark(kind: str) -> Markup:
    """A mark on its own, for the legend."""
    return Markup(f'<svg class="key" viewBox="0 0 16 16" aria-hidden="true">{mark_shape(kind, 8, 8)}</svg>')


def ticks(low: float, high: float, most: int = 8) -> list[float]:
    """Round values within the range, at most about `most` of them."""
    span = high - low
    for step in (0.01, 0.02, 0.05, 0.1, 0.2, 0.25, 0.5, 1.0):
        if span / step <= most:
            break
    first = math.ceil(low / step - 1e-9)
    return [round(k * step, 10) for k in range(first, math.floor(high / step + 1e-9) + 1)]


def waterfall(rows: Sequence[Fall], *, width: int = 960, ident: str, title: str, about: str) -> Markup:
    """Per finding: overall, what context alone reaches, what remains when context is held equal, with intervals.

    Below 600 units wide the name stands above its marks instead of beside them.
    """
    narrow = width < 600
    left, right, top = (12, 12, 8) if narrow else (200, 190, 8)
    head, lane, gap = (24 if narrow else 4), 15, 12
    ends = [v for row in rows for m in (row.overall, row.context, row.remains) for v in (m.value, m.low) if known(v)]
    low = min(0.5, math.floor(min(ends, default=0.5) * 10 - 1e-9) / 10) if min(ends, default=1.0) < 0.5 else 0.5
    high = 1.0

    def place(value: float) -> float:
        return left + (min(max(value, low), high) - low) / (high - low) * (width - left - right)

    has_context = any(known(row.context.value) for row in rows)
    lanes = (OVERALL, CONTEXT, REMAINS) if has_context else (OVERALL,)
    tall = head + lane * len(lanes) + gap
    bottom = top + tall * len(rows)
    parts = []
    for value in ticks(low, high):
        parts.append(_line(place(value), top, place(value), bottom, "grid"))
        parts.append(_text(place(value), bottom + 16, f"{value:g}", "tick", "middle"))
    parts.append(_line(place(0.5), top, place(0.5), bottom, "chance"))
    for at, row in enumerate(rows):
        start = top + at * tall
        if at:
            parts.append(_line(0, start, width, start, "rule"))
        middle = start + head + lane * len(lanes) / 2 + gap / 2
        if narrow:
            parts.append(_text(left, start + 17, row.name, "name"))
            parts.append(_text(width - right, start + 17, row.beside, "tick", "end"))
        else:
            parts.append(_text(left - 14, middle + 4, row.name, "name", "end"))
            parts.append(_text(width - right + 14, middle + 4, row.beside, "tick"))
        parts += _marks(row, lanes, start + head + gap / 2 + lane / 2, lane, place)
    label = "AUROC (0.5 = coin toss, 1 = perfect)"
    parts.append(_text((left + width - right) / 2, bottom + 33, label, "tick", "middle"))
    return picture(width, bottom + 42, title, about, parts, ident=ident)


def _marks(row: Fall, lanes: Sequence[str], y: float, lane: float, place: Callable[[float], float]) -> list[str]:
    marks = {OVERALL: row.overall, CONTEXT: row.context, REMAINS: row.remains}
    parts = []
    first, last = row.overall.value, row.remains.value
    if known(first, last) and len(lanes) == 3:
        x1, x2, below = place(first), place(last), y + 2 * lane
        parts.append(f'<path class="fall" d="M{_at(x1)} {_at(y)}V{_at(below)}H{_at(x2)}"/>')
    for at, kind in enumerate(lanes):
        mark, here = marks[kind], y + at * lane
        if not known(mark.value):
            continue
        if known(mark.low, mark.high):
            parts.append(_line(place(mark.low), here, place(mark.high), here, f"span {kind}"))
        parts.append(mark_shape(kind, place(mark.value), here))
    return parts


@dataclass(frozen=True, slots=True)
class Frame:
    """Maps data from [0, x_end] x [0, y_end] into a small multiple."""

    x_end: float = 1.0
    y_end: float = 1.0

    def x(self, value: float) -> float:
        """Across."""
        left, right = _ROOM[0], _ROOM[1]
        return left + min(max(value / self.x_end, 0), 1) * (_SIDE - left - right)

    def y(self, value: float) -> float:
        """Down: 0 is at the bottom."""
        top, bottom = _ROOM[2], _ROOM[3]
        return _SIDE - bottom - min(max(value / self.y_end, 0), 1) * (_SIDE - top - bottom)

    def axes(self, across: str, up: str) -> list[str]:
        """Grid, ticks and the names of both axes."""
        parts = []
        for end, is_x in ((self.x_end, True), (self.y_end, False)):
            for value in (0.0, end / 2, end):
                words = f"{value:.3g}"
                if is_x:
                    parts.append(_line(self.x(value), self.y(0), self.x(value), self.y(self.y_end), "grid"))
                    anchor, shift = ("end", 4) if value == end else ("middle", 0)
                    parts.append(_text(self.x(value) + shift, self.y(0) + 12, words, "tick", anchor))
                else:
                    parts.append(_line(self.x(0), self.y(value), self.x(self.x_end), self.y(value), "grid"))
                    parts.append(_text(self.x(0) - 4, self.y(value) + 4, words, "tick", "end"))
        middle = (self.y(0) + self.y(self.y_end)) / 2
        parts.append(_text((self.x(0) + self.x(self.x_end)) / 2, _SIDE - 5, across, "tick", "middle"))
        turned = f"translate(10 {_at(middle)}) rotate(-90)"
        parts.append(f'<text class="tick" text-anchor="middle" transform="{turned}">{escape(up)}</text>')
        return parts

    def path(self, x: Sequence[float], y: Sequence[float]) -> str:
        """Straight lines through the points that are numbers."""
        points = [(a, b) for a, b in zip(x, y, strict=True) if known(a, b)]
        return "".join(f"{'M' if k == 0 else 'L'}{_at(self.x(a))} {_at(self.y(b))}" for k, (a, b) in enumerate(points))

    def band(self, line: Line) -> str:
        """The area between low and high, as a closed path."""
        both = [point for point in zip(line.x, line.low, line.high, strict=True) if known(*point)]
        if len(both) < 2:
            return ""
        x, low, high = zip(*both, strict=True)
        back = self.path(x[::-1], low[::-1]).replace("M", "L")
        return f'<path class="band" d="{self.path(x, high)}{back}Z"/>'


def roc(line: Line, *, ident: str, title: str, about: str, point: tuple[float, float] | None = None) -> Markup:
    """A ROC curve; `point` = (false positive rate, sensitivity) of the operating point."""
    frame = Frame()
    parts = frame.axes("1 − specificity", "sensitivity")
    parts.append(_line(frame.x(0), frame.y(0), frame.x(1), frame.y(1), "chance"))
    if line.low:
        parts.append(frame.band(line))
    parts.append(f'<path class="curve" d="{frame.path(line.x, line.y)}"/>')
    if point is not None and known(*point):
        parts.append(mark_shape(OVERALL, frame.x(point[0]), frame.y(point[1]), 4))
    return picture(_SIDE, _SIDE, title, about, parts, ident=ident)


def precision_recall(line: Line, *, prevalence: float, ident: str, title: str, about: str) -> Markup:
    """A precision-recall curve; the dashed line is the prevalence, what a coin toss reaches."""
    frame = Frame()
    parts = frame.axes("recall (sensitivity)", "precision (PPV)")
    if known(prevalence):
        parts.append(_line(frame.x(0), frame.y(prevalence), frame.x(1), frame.y(prevalence), "chance"))
    if line.low:
        parts.append(frame.band(line))
    parts.append(f'<path class="curve" d="{frame.path(line.x, line.y)}"/>')
    return picture(_SIDE, _SIDE, title, about, parts, ident=ident)


def reliability(line: Line, *, ident: str, title: str, about: str) -> Markup:
    """Observed share of positives against the mean probability, one dot per bin; on the diagonal = calibrated."""
    end = nice_end([*line.x, *line.y])
    frame = Frame(end, end)
    parts = frame.axes("predicted", "observed")
    parts.append(_line(frame.x(0), frame.y(0), frame.x(end), frame.y(end), "chance"))
    for at, (x, y) in enumerate(zip(line.x, line.y, strict=True)):
        if not known(x, y):
            continue
        if line.low and known(line.low[at]):
            here = frame.x(x)
            parts.append(_line(here, frame.y(line.low[at]), here, frame.y(line.high[at]), f"span {OVERALL}"))
        parts.append(mark_shape(OVERALL, frame.x(x), frame.y(y), 3.2))
    return picture(_SIDE, _SIDE, title, about, parts, ident=ident)


def nice_end(values: Iterable[float]) -> float:
    """A round end of the axis that holds all values: rare findings would vanish in the corner of 0..1."""
    most = max((v for v in values if known(v)), default=1.0)
    return next((end for end in (0.02, 0.04, 0.1, 0.2, 0.4, 0.6, 0.8) if most <= end), 1.0)
