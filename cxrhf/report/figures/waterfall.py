"""AUROC overall, of context alone, and what remains, per finding -> the headline picture."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape

from cxrhf.report.figures.ink import CONTEXT, OVERALL, REMAINS, Mark, at, line, mark_shape, picture, scale, text, ticks
from cxrhf.report.numbers import known, letters, number, short

# Widths of a letter of a name and of the words beside it, in a wide font: the reader's fonts are not known.
_NAME, _BESIDE = 9.2, 6.8


@dataclass(frozen=True, slots=True)
class Fall:
    """One finding of the headline picture; `beside` is what stands to its right."""

    name: str
    overall: Mark
    context: Mark
    remains: Mark
    beside: str = ""


def waterfall(rows: Sequence[Fall], *, width: int = 960, ident: str, title: str, about: str) -> Markup:
    """Per finding: overall, what context alone reaches, what remains when context is held equal, with intervals.

    Below 600 units wide the name stands above its marks instead of beside them, and what stands beside it below it
    where both do not fit.
    """
    narrow = width < 600
    names = [short(row.name, 34 if narrow else 28) for row in rows]
    longest = max(map(letters, names), default=0)
    left, right, top = (12, 12, 8) if narrow else (max(round(longest * _NAME) + 18, 140), 210, 8)
    room = (width - left - right - 10) if narrow else math.inf
    pairs = zip(names, rows, strict=True)
    two_lines = any(letters(name) * _NAME + len(row.beside) * _BESIDE > room for name, row in pairs if row.beside)
    head, lane, gap = (24 + 15 * two_lines if narrow else 4), 15, 12
    ends = [v for row in rows for m in (row.overall, row.context, row.remains) for v in (m.value, m.low) if known(v)]
    least = min(ends, default=0.5)
    low, high = (0.5, 1.0) if least >= 0.5 else (math.floor(least * 10 - 1e-9) / 10, 1.0)
    place = scale(low, high, left, width - right)
    has_context = any(known(value) for row in rows for value in (row.context.value, row.remains.value))
    lanes = (OVERALL, CONTEXT, REMAINS) if has_context else (OVERALL,)
    tall = head + lane * len(lanes) + gap
    bottom = top + tall * len(rows)
    parts = []
    for value in ticks(low, high):
        parts.append(line(place(value), top, place(value), bottom, "grid"))
        parts.append(text(place(value), bottom + 16, f"{value:g}", "tick", "middle"))
    parts.append(line(place(0.5), top, place(0.5), bottom, "chance"))
    for k, row in enumerate(rows):
        start = top + k * tall
        if k:
            parts.append(line(0, start, width, start, "rule"))
        middle = start + head + lane * len(lanes) / 2 + gap / 2
        inside = _marks(row, lanes, start + head + gap / 2 + lane / 2, lane, place)
        if narrow:
            inside.append(text(left, start + 17, names[k], "name"))
            under = (left, start + 32, row.beside, "tick tight")
            inside.append(
                text(*under) if two_lines else text(width - right, start + 17, row.beside, "tick tight", "end")
            )
        else:
            inside.append(text(left - 14, middle + 4, names[k], "name", "end"))
            inside.append(text(width - right + 14, middle + 4, row.beside, "tick"))
        parts.append(f'<g data-finding="{escape(row.name.lower())}">{"".join(inside)}</g>')
    parts.append(text((left + width - right) / 2, bottom + 33, "AUROC (0.5 = chance, 1 = perfect)", "tick", "middle"))
    return picture(width, bottom + 42, title, about, parts, ident=ident)


def _marks(row: Fall, lanes: Sequence[str], y: float, lane: float, place: Callable[[float], float]) -> list[str]:
    marks = {OVERALL: row.overall, CONTEXT: row.context, REMAINS: row.remains}
    names = {OVERALL: "overall", CONTEXT: "context alone", REMAINS: "context held equal"}
    parts = []
    first, last = row.overall.value, row.remains.value
    if known(first, last) and len(lanes) == 3:
        x1, x2, below = place(first), place(last), y + 2 * lane
        parts.append(f'<path class="fall" d="M{at(x1)} {at(y)}V{at(below)}H{at(x2)}"/>')
    for k, kind in enumerate(lanes):
        mark, here = marks[kind], y + k * lane
        if not known(mark.value):
            continue
        said = f"{row.name}, {names[kind]}: {number(mark.value)}"
        if known(mark.low, mark.high):
            parts.append(line(place(mark.low), here, place(mark.high), here, f"span {kind}"))
            said += f" ({number(mark.low)} to {number(mark.high)})"
        parts.append(mark_shape(kind, place(mark.value), here, said=said))
    return parts
