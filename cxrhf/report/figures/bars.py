"""Parts of a whole per finding -> stacked bars."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape

from cxrhf.report.figures.dots import WIDTH
from cxrhf.report.figures.ink import at, line, picture, scale, text, ticks
from cxrhf.report.numbers import known, number, short


@dataclass(frozen=True, slots=True)
class Bar:
    """One finding: the parts of its bar from left to right, and a tick to compare the bar with."""

    name: str
    parts: Sequence[float]
    null: float
    beside: str = ""
    finding: str = ""


def stacked(bars: Sequence[Bar], kinds: Sequence[tuple[str, str]], *, label: str, ident: str, title: str) -> Markup:
    """A panel of bars; `kinds` = style class and name of each part."""
    longest = max(
        (max(sum(p for p in bar.parts if known(p)), bar.null if known(bar.null) else 0) for bar in bars), default=1.0
    )
    end = next((each for each in (0.02, 0.05, 0.1, 0.15, 0.2, 0.25, 0.5, 1.0) if longest <= each), longest)
    place = scale(0.0, end, 10, WIDTH - 14)
    parts, body, y = list[str](), list[str](), 6.0
    for k, bar in enumerate(bars):
        if k:
            body.append(line(0, y, WIDTH, y, "rule"))
        inside = [text(6, y + 16, short(bar.name, 26), "name"), text(WIDTH - 6, y + 16, bar.beside, "tick", "end")]
        start = 0.0
        for (kind, name), size in zip(kinds, bar.parts, strict=True):
            if known(size) and size > 0:
                x, width = place(start), place(start + size) - place(start)
                said = escape(f"{bar.finding or bar.name}, {name}: {number(size, 4)}")
                inside.append(
                    f'<rect class="part {kind}" x="{at(x)}" y="{at(y + 23)}" width="{at(max(width, 0.5))}" height="12">'
                    f"<title>{said}</title></rect>"
                )
                start += size
        if known(bar.null):
            inside.append(line(place(bar.null), y + 20, place(bar.null), y + 38, "null"))
        body.append(f'<g data-finding="{escape((bar.finding or bar.name).lower())}">{"".join(inside)}</g>')
        y += 45
    for value in ticks(0.0, end, 5):
        parts.append(line(place(value), 6, place(value), y, "grid"))
        parts.append(text(place(value), y + 15, f"{value:g}", "tick", "middle"))
    parts += [*body, text(WIDTH / 2, y + 32, label, "tick", "middle")]
    about = "; ".join(
        f"{bar.finding or bar.name}: "
        + ", ".join(f"{name} {number(size, 4)}" for (_, name), size in zip(kinds, bar.parts, strict=True))
        + f", no skill {number(bar.null, 4)}"
        for bar in bars
    )
    return picture(WIDTH, y + 40, title, about, parts, ident=ident)
