"""Pictures of the page -> one picture on its own, with titles, legends and style, as SVG text."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Collection, Sequence
from functools import cache
from importlib import resources
from typing import NamedTuple

from markupsafe import Markup

from cxrhf.report.figures.ink import format_coordinate, key_mark, text
from cxrhf.report.numbers import shorten

_MARGIN, _GAP = 20.0, 22.0
_LETTER = 6.4  # width of a letter of the legend, about
# What no XML may hold, not even escaped.
_FORBIDDEN = re.compile("[\\x00-\\x08\\x0b\\x0c\\x0e-\\x1f\\ufffe\\uffff]")
_VIEW = re.compile(r'<svg viewBox="0 0 ([\d.]+) ([\d.]+)"')


class Group(NamedTuple):
    """Pictures of one idea: its title ("" = none), each picture with its own, a legend, and how many stand in a row."""

    title: str
    panels: Sequence[tuple[str, Markup]]
    legend: Sequence[tuple[str, str]] = ()
    columns: int = 3

    @property
    def cell(self) -> float:
        """The width of a column."""
        return max((_size(picture)[0] for _, picture in self.panels), default=300.0)

    @property
    def width(self) -> float:
        """The width of a row."""
        columns = max(1, min(self.columns, len(self.panels)))
        return columns * self.cell + (columns - 1) * _GAP


def sheet(title: str, groups: Sequence[Group]) -> str:
    """A standalone SVG: the groups one below the other, their pictures in rows, each below its title."""
    total = max([340.0, *(group.width for group in groups)]) + 2 * _MARGIN
    parts, y = [text(_MARGIN, 30, shorten(title, int((total - 2 * _MARGIN) / 7.6)), "head")], 42.0
    for group in groups:
        if group.title:
            parts.append(text(_MARGIN, y + 14, shorten(group.title, int((total - 2 * _MARGIN) / 7)), "name"))
            y += 22
        keys, y = _legend(group.legend, y, total)
        drawn, y = _panels(group, y)
        parts += [*keys, *drawn]
    height = y + _MARGIN - _GAP
    across, down = format_coordinate(total), format_coordinate(height)
    made = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {across} {down}" width="{across}" '
        f'height="{down}"><style>{figure_style()}</style>'
        f'<rect width="{across}" height="{down}" fill="#ffffff"/>{"".join(parts)}</svg>\n'
    )
    return _FORBIDDEN.sub("\ufffd", made)


def _panels(group: Group, y: float) -> tuple[list[str], float]:
    parts, cell = list[str](), group.cell
    for start in range(0, len(group.panels), group.columns):
        row = group.panels[start : start + group.columns]
        head = 20.0 if any(name for name, _ in row) else 0.0
        for place, (name, picture) in enumerate(row):
            x, (width, height) = _MARGIN + place * (cell + _GAP), _size(picture)
            if name:
                parts.append(text(x, y + 13, shorten(name, int(cell / 7)), "name"))
            # Cutting at the edge, where nothing is, would take the renderer a layer of the whole sheet each.
            where = (
                f'<svg overflow="visible" x="{format_coordinate(x)}" y="{format_coordinate(y + head)}" '
                f'width="{format_coordinate(width)}" height="{format_coordinate(height)}" viewBox='
            )
            parts.append(str(picture).replace("<svg viewBox=", where, 1))
        y += head + max(_size(picture)[1] for _, picture in row) + _GAP
    return parts, y


def _size(picture: Markup) -> tuple[float, float]:
    found = _VIEW.match(str(picture))
    assert found is not None, "every figure starts with its size"
    return float(found[1]), float(found[2])


def _legend(legend: Sequence[tuple[str, str]], y: float, total: float) -> tuple[list[str], float]:
    """Keys with their words in as many lines as they need, and where the next thing may start."""
    parts, x = list[str](), _MARGIN
    for kind, words in legend:
        width = 24 + len(words) * _LETTER + 16
        if x > _MARGIN and x + width > total - _MARGIN:
            x, y = _MARGIN, y + 20
        key = str(key_mark(kind)).replace(
            "<svg ",
            f'<svg overflow="visible" x="{format_coordinate(x)}" y="{format_coordinate(y)}" width="16" height="16" ',
            1,
        )
        parts += [key, text(x + 22, y + 12, words, "tick")]
        x += width
    return parts, y + (28 if legend else 0)


# Files of `templates/` -> style, script and the palette of standalone pictures.


@cache
def asset(name: str) -> str:
    """The text of a file beside the templates."""
    return (resources.files("cxrhf.report") / "templates" / name).read_text(encoding="utf-8").strip()


def page_style() -> str:
    """The page's style sheet."""
    return "\n".join(asset(name) for name in ("palette.css", "style.css", "maps.css", "words.css", "figure.css"))


def page_script(kinds: Collection[str]) -> str:
    """The page's script; that of maps, galleries and plots of words where there are such blocks."""
    used = ["page", *(["marks"] if {"map", "words"} & set(kinds) else [])]
    used += [name for name in ("map", "gallery", "words") if name in kinds]
    return "\n".join(asset(f"{name}.js") for name in used)


def policy(script: str) -> str:
    """The page's content policy: no request to anywhere, no script but this one."""
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return f"default-src 'none'; style-src 'unsafe-inline'; img-src data:; script-src 'sha256-{digest}'"


@cache
def palette(dark: bool = False) -> dict[str, str]:
    """Names of colours -> their values, in the light or the dark scheme."""
    light, _, other = asset("palette.css").partition("@media")
    return dict(re.findall(r"--([\w-]+):\s*(#[0-9a-fA-F]+)", other if dark else light))


@cache
def figure_style() -> str:
    """The style of a picture on its own: light colours, no variables, so that it opens anywhere."""
    colours = palette()
    style = re.sub(r"var\(--([\w-]+)\)", lambda found: _solid(colours[found[1]]), asset("figure.css"))
    return f"svg {{ font-family: Roboto, 'Helvetica Neue', Arial, sans-serif; }}\n{style}"


def _solid(colour: str) -> str:
    """#rrggbbaa as rgba(), which older readers of SVG know too."""
    if len(colour) != 9:
        return colour
    red, green, blue, alpha = (int(colour[k : k + 2], 16) for k in (1, 3, 5, 7))
    return f"rgba({red},{green},{blue},{alpha / 255:.2f})"
