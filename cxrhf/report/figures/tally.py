"""Counts of parts of a whole -> stacked bars, a name above each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from markupsafe import Markup, escape

from cxrhf.report.figures.dots import WIDTH
from cxrhf.report.figures.ink import at, line, picture, scale, text
from cxrhf.report.figures.labels import count_ticks
from cxrhf.report.numbers import known, short


class Tally(NamedTuple):
    """One bar: its name, the counts of its parts from left to right, words at its right."""

    name: str
    parts: Sequence[float]
    beside: str = ""


def tally(
    bars: Sequence[Tally], kinds: Sequence[tuple[str, str]], *, tick: float, label: str, ident: str, title: str
) -> Markup:
    """A panel of bars; `kinds` = style class and name of each part, `tick` = a count to compare them with."""
    whole = [sum(part for part in bar.parts if known(part)) for bar in bars]
    end = max([1.0, *whole, *([tick] if known(tick) else [])])
    place = scale(0.0, end, 10, WIDTH - 14)
    parts, body, y = list[str](), list[str](), 6.0
    for bar in bars:
        body.append(text(10, y + 14, short(bar.name, 24), "name"))
        body.append(text(WIDTH - 8, y + 14, bar.beside, "tick", "end"))
        start = 0.0
        for (kind, name), size in zip(kinds, bar.parts, strict=True):
            if known(size) and size > 0:
                x, width = place(start), place(start + size) - place(start)
                body.append(
                    f'<rect class="part {kind}" x="{at(x)}" y="{at(y + 20)}" width="{at(max(width, 0.8))}" height="13">'
                    f"<title>{escape(f'{bar.name}: {size:,.0f} {name}')}</title></rect>"
                )
                start += size
        if known(tick):
            body.append(line(place(tick), y + 17, place(tick), y + 36, "null"))
        y += 42
    for value in count_ticks(end, 5):
        parts += [
            line(place(value), 4, place(value), y, "grid"),
            text(place(value), y + 14, f"{value:,}", "tick", "middle"),
        ]
    about = "; ".join(f"{bar.name}: {_said(bar, kinds)}" for bar in bars)
    return picture(
        WIDTH, y + 38, title, about, [*parts, *body, text(WIDTH / 2, y + 31, label, "tick", "middle")], ident=ident
    )


def _said(bar: Tally, kinds: Sequence[tuple[str, str]]) -> str:
    return ", ".join(f"{size:,.0f} {name}" for (_, name), size in zip(kinds, bar.parts, strict=True) if known(size))
