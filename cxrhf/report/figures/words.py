"""Words with their effect -> bars: to the right where a word speaks for the finding, to the left where against."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from markupsafe import Markup, escape

from cxrhf.report.figures.dots import WIDTH
from cxrhf.report.figures.ink import at, line, picture, scale, text
from cxrhf.report.numbers import known, letters, short

MORE, LESS, SOME = "more", "less", "some"  # for, against, no direction known
_LETTER, _ROW, _MOST = 8.2, 21, 20  # width of a letter, height of a row, letters of a word that are shown


class Word(NamedTuple):
    """A word and how strongly it moves the probability; above 0 where its model knows no direction."""

    word: str
    effect: float


def words(found: Sequence[Word], *, signed: bool, finding: str, ident: str, title: str) -> Markup:
    """A panel of bars, the strongest word first. Lengths are compared within a panel only, so there is no axis."""
    shown = [each for each in found if known(each.effect)]
    left = 14 + _LETTER * max((_long(short(each.word, _MOST)) for each in shown), default=0.0)
    low, high = (end((0.0, *(each.effect for each in shown))) for end in (min, max))
    place = scale(low, high, left, WIDTH - 12)
    body, y = list[str](), 4.0
    for each in shown:
        kind = SOME if not signed else LESS if each.effect < 0 else MORE
        x, width = min(place(0.0), place(each.effect)), abs(place(each.effect) - place(0.0))
        body.append(text(left - 10, y + 15, short(each.word, _MOST), "word", "end"))
        body.append(
            f'<rect class="part {kind}" x="{at(x)}" y="{at(y + 4)}" width="{at(max(width, 1.5))}" height="13">'
            f"<title>{escape(_said(each, signed))}</title></rect>"
        )
        y += _ROW
    parts = [*body, line(place(0.0), 2, place(0.0), y + 2, "null")]
    about = "; ".join(_said(each, signed) for each in shown)
    inside = f'<g data-finding="{escape(finding.lower())}">{"".join(parts)}</g>'
    return picture(WIDTH, y + 6, title, about, [inside], ident=ident)


def _long(word: str) -> float:
    """Letters of a word, the wide ones counted for what they are in the widest usual typeface."""
    return letters(word) + 0.6 * sum(each in "mwMW" for each in word)


def _said(each: Word, signed: bool) -> str:
    return f"{each.word}: {'against' if each.effect < 0 else 'for'}" if signed else each.word
