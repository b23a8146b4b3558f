"""Pictures of generated reports: names apart, axes that hold everything, nothing of the data as markup."""

from __future__ import annotations

import itertools
import math

import pytest

from cxrhf.report.figures import Line, Placed, Swept, Tally, Trade, displacement, sweep, tally, tradeoff
from cxrhf.report.figures.ink import Box, count_ticks, overlap, spot
from cxrhf.report.figures.scatter import axis, reach
from tests.report.made_reports import BAD_WORD


def test_names_never_cover_each_other() -> None:
    taken: list[Box] = []
    inside = Box(0, 0, 300, 300)
    found = [spot(taken, 150 + k % 3, 150 + k // 3, "pneumothorax", inside) for k in range(40)]
    assert 4 < sum(each is not None for each in found) < 40
    assert not any(overlap(a, b) for a, b in itertools.combinations(taken, 2))
    assert all(box.left >= 0 and box.right <= 300 and box.top >= 0 and box.bottom <= 300 for box in taken)


def test_axes_hold_every_score() -> None:
    assert reach([0.2, math.nan]) == 3
    assert reach([-7.9]) == 9
    for end in (4.0, 8.0, 60.0):
        place, ticks = axis(end)
        assert place(end) == pytest.approx(1)
        assert place(-end) == pytest.approx(-1)
        assert place(0) == 0
        assert ticks == sorted(ticks)
        assert {-2.0, 0.0, 2.0} <= set(ticks)
        assert max(ticks) <= end
    assert count_ticks(0.4) == [0]
    assert count_ticks(10) == [0, 2, 4, 6, 8, 10]
    assert len(count_ticks(123456)) <= 7


def test_pictures_escape_and_leave_out_what_is_no_number() -> None:
    trades = [Trade("overall", BAD_WORD, 3, 4, 0.2, 0.1), Trade("overall", "none", math.nan, 1)]
    picture = tradeoff(trades, across="a", up="b", ident="t", title="t")
    assert "<img" not in picture
    assert "none" not in picture
    assert picture.count('class="mark overall"') == 1
    words = [Placed(BAD_WORD, "remains", 5, 0, BAD_WORD), Placed("still", "still-word", 0, 0, "")]
    picture = displacement(words, end=6, sides=("F", "M"), ident="d", title="t", about="a")
    assert "<img" not in picture
    assert picture.count('class="mark remains"') == 1
    assert picture.count('class="still-word"') == 1


def test_counts_along_a_level_and_parts_of_a_vocabulary() -> None:
    lines = [Swept(BAD_WORD, Line([0.001, 0.01, 0.2], [0, 4, 8]), 2), Swept("none", Line([], []), 1)]
    picture = sweep(lines, across="p*", up="words", here=0.05, end=8, ident="s", title="t")
    assert picture.count('class="curve line-2"') == 1
    assert picture.count('class="chance"') == 1
    assert "<img" not in picture
    assert "0 at 0.001, 8 at 0.2" in picture
    bars = [Tally(BAD_WORD, (20, 680, 0)), Tally("half", (350, 350, math.nan))]
    kinds = (("kept", "kept"), ("lost", "lost"), ("added", "new"))
    picture = tally(bars, kinds, tick=700, label="words", ident="v", title="t")
    assert [picture.count(f'class="part {kind}"') for kind, _ in kinds] == [2, 2, 0]
    assert "<img" not in picture
    assert "nan" not in picture
