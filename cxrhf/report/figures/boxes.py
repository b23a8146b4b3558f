"""Quantiles of a number in parts of a sample -> box plots that lie on their side, one a lane."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from markupsafe import Markup, escape

from cxrhf.report.figures.dots import WIDTH
from cxrhf.report.figures.ink import at, line, picture, scale, text, ticks
from cxrhf.report.numbers import known, number, short

_LETTER = 7.2
_LANE = 20.0


class Box(NamedTuple):
    """The 5th, 25th, 50th, 75th and 95th percentile of one part, its mark and its name."""

    kind: str
    name: str
    ends: tuple[float, float, float, float, float]


class BoxRow(NamedTuple):
    """A name above its lanes, each a label and a box."""

    name: str
    lanes: Sequence[tuple[str, Box]]
    finding: str = ""


def boxes(rows: Sequence[BoxRow], *, label: str, ident: str, title: str) -> Markup:
    """A panel over 0..1: boxes hold the middle half, lines nine tenths, the stroke is the median."""
    longest = min(max((len(name) for row in rows for name, _ in row.lanes), default=0), 18)
    left = 12 + longest * _LETTER
    place = scale(0.0, 1.0, left, WIDTH - 14)
    parts, body, y = list[str](), list[str](), 6.0
    for k, row in enumerate(rows):
        if k:
            body.append(line(0, y, WIDTH, y, "rule"))
        inside = [text(6, y + 16, short(row.name, 36), "name")]
        y += 22
        for name, box in row.lanes:
            inside.append(text(left - 8, y + _LANE / 2 + 4, short(name, 18), "tick", "end"))
            if known(*box.ends):
                low, first, middle, third, high = (place(each) for each in box.ends)
                centre = y + _LANE / 2
                said = escape(
                    f"{row.finding or row.name}, {box.name}: median {number(box.ends[2])}, "
                    f"middle half {number(box.ends[1])} to {number(box.ends[3])}"
                )
                inside += [
                    line(low, centre, high, centre, f"span {box.kind}"),
                    f'<rect class="box {box.kind}" x="{at(first)}" y="{at(centre - 6)}" '
                    f'width="{at(max(third - first, 0.5))}" height="12"><title>{said}</title></rect>',
                    line(middle, centre - 6, middle, centre + 6, "median"),
                ]
            y += _LANE
        y += 9
        body.append(f'<g data-finding="{escape((row.finding or row.name).lower())}">{"".join(inside)}</g>')
    for value in ticks(0.0, 1.0, 6):
        parts.append(line(place(value), 6, place(value), y, "grid"))
        parts.append(text(place(value), y + 15, f"{value:g}", "tick", "middle"))
    parts += [*body, text((left + WIDTH - 14) / 2, y + 32, label, "tick", "middle")]
    about = "; ".join(
        f"{row.finding or row.name}: "
        + ", ".join(f"{box.name} median {number(box.ends[2])}" for _, box in row.lanes if known(*box.ends))
        for row in rows
    )
    return picture(WIDTH, y + 40, title, about, parts, ident=ident)
