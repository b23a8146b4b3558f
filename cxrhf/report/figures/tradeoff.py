"""What decoding strategies lose and what they add -> a scatter plot of counts with names, and chance beside each."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from markupsafe import Markup

from cxrhf.report.figures.ink import CONTEXT, line, mark_shape, picture, scale, text, turned
from cxrhf.report.figures.labels import Box, around, count_ticks, leader, spot
from cxrhf.report.numbers import known, number, short

_WIDTH, _HEIGHT = 400, 340
_LEFT, _RIGHT, _TOP, _BOTTOM = 50, 16, 12, 44


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
    shown = [each for each in trades if known(each.lost, each.added)]
    ends = [
        max([4.0, *(value for each in shown for value in pair(each) if known(value))])
        for pair in (lambda t: (t.lost, t.lost_chance), lambda t: (t.added, t.added_chance))
    ]
    # Room for marks that stand at the largest count.
    x = scale(0, ends[0] * 1.06, _LEFT, _WIDTH - _RIGHT)
    y = scale(0, ends[1] * 1.06, _HEIGHT - _BOTTOM, _TOP)
    parts = []
    for value in count_ticks(ends[0] * 1.06):
        parts += [
            line(x(value), y(0), x(value), _TOP, "grid"),
            text(x(value), y(0) + 15, f"{value:,}", "tick", "middle"),
        ]
    for value in count_ticks(ends[1] * 1.06):
        parts += [
            line(_LEFT, y(value), _WIDTH - _RIGHT, y(value), "grid"),
            text(_LEFT - 6, y(value) + 4, f"{value:,}", "tick", "end"),
        ]
    taken = [around(x(each.lost), y(each.added), 6) for each in shown]
    taken += [
        around(x(each.lost_chance), y(each.added_chance), 4)
        for each in shown
        if known(each.lost_chance, each.added_chance)
    ]
    inside = Box(_LEFT - 8, 0, _WIDTH, _HEIGHT - _BOTTOM + 2)
    marks, names = list[str](), list[str]()
    for each in shown:
        here, there = x(each.lost), y(each.added)
        said = f"{each.name}: {each.lost:,.0f} lost, {each.added:,.0f} added"
        if known(each.lost_chance, each.added_chance):
            said += f"; expected by chance {number(each.lost_chance, 1)} and {number(each.added_chance, 1)}"
            by_chance = f"{each.name}, expected by chance"
            marks.append(mark_shape(CONTEXT, x(each.lost_chance), y(each.added_chance), 3.4, said=by_chance))
        marks.append(mark_shape(each.kind, here, there, said=said))
        label = short(each.name, 24)
        if found := spot(taken, here, there, label, inside):
            if found.far:
                names.append(line(here, there, *leader(here, there, found, label), "leader"))
            names.append(text(found.x, found.y, label, "label"))
    parts += [*names, *marks]
    parts.append(text((_LEFT + _WIDTH - _RIGHT) / 2, _HEIGHT - 8, across, "tick", "middle"))
    parts.append(turned(13, (_HEIGHT - _BOTTOM + _TOP) / 2, up))
    about = "; ".join(f"{each.name}: {each.lost:,.0f} and {each.added:,.0f}" for each in shown) or "nothing to show"
    return picture(_WIDTH, _HEIGHT, title, about, parts, ident=ident)
