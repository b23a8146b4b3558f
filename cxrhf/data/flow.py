"""The steps of a build -> a flow picture in the manner of CONSORT: who came in, who was left out and why, as SVG."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from cxrhf.data.attrition import COUNTS

_WIDTH, _BOX, _SIDE, _LEFT = 880, 390, 350, 40
_LINE, _PAD, _GAP = 17, 9, 30
_MOST = 48  # letters in a line of a side box


def flow(rows: Sequence[Mapping[str, Any]], title: str) -> str:
    """One picture from the rows of the attrition table."""
    sources = [row for row in rows if row["images"] is None]
    chain = [row for row in rows if row["images"] is not None and not row["step"].startswith("split ")]
    parts = [row for row in rows if row["step"].startswith("split ")]
    drawn: list[str] = []
    y = 44.0
    if sources:
        lines = [f"{row['step']}: {_counted(row)}" for row in sources]
        height = _box(drawn, _LEFT, y, _WIDTH - 2 * _LEFT, ["Published tables", *lines])
        y += height + _GAP
        if chain or parts:
            _arrow(drawn, _LEFT + _BOX / 2, y - _GAP, y)
    before: Mapping[str, Any] | None = None
    above: float | None = None  # where the box before ended
    for row in chain:
        side = _left_out(before, row)
        if side:
            height = _box(drawn, _WIDTH - _LEFT - _SIDE, y, _SIDE, side, light=True)
            middle = y + height / 2
            drawn.append(f'<path d="M{_LEFT + _BOX / 2} {middle}H{_WIDTH - _LEFT - _SIDE}" class="line"/>')
            y += height + _GAP / 2
        if above is not None:
            _arrow(drawn, _LEFT + _BOX / 2, above, y)
        y += _box(drawn, _LEFT, y, _BOX, [row["step"], *_wrapped(_counted(row))])
        above = y
        y += _GAP
        before = row
    if parts and above is not None:
        _arrow(drawn, _LEFT + _BOX / 2, above, y)
    if parts:
        width = (_WIDTH - 2 * _LEFT - 24 * (len(parts) - 1)) / len(parts)
        tallest = 0.0
        for at, row in enumerate(parts):
            lines = [row["step"].removeprefix("split "), *_counted(row).split(", ")]
            tallest = max(tallest, _box(drawn, _LEFT + at * (width + 24), y, width, lines))
        y += tallest
    height = y + (24 if parts else 0)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height:.0f}" width="{_WIDTH}" '
        f'height="{height:.0f}" role="img" aria-label="{escape(title)}">'
        "<style>text{font:13px system-ui,sans-serif;fill:#1c2733}.head{font-weight:600}.title{font-size:16px;"
        "font-weight:600}.box{fill:#fff;stroke:#46627f;stroke-width:1.2}.light{fill:#f5f2ec;stroke:#a08b64}"
        ".line{fill:none;stroke:#46627f;stroke-width:1.2}.tip{fill:#46627f}</style>"
        f'<rect width="{_WIDTH}" height="{height:.0f}" fill="#fcfcfa"/>'
        f'<text x="{_LEFT}" y="28" class="title">{escape(title)}</text>{"".join(drawn)}</svg>\n'
    )


def _counted(row: Mapping[str, Any]) -> str:
    return ", ".join(
        f"{row[name]:,} {name if row[name] != 1 else _one(name)}" for name in COUNTS if row[name] is not None
    )


def _one(name: str) -> str:
    return "study" if name == "studies" else name.removesuffix("s")


def _left_out(before: Mapping[str, Any] | None, row: Mapping[str, Any]) -> list[str]:
    """What a step took away, and what it has to say."""
    lines = []
    if before is not None:
        lost = {name: (before[name] or 0) - (row[name] or 0) for name in ("images", "studies", "patients")}
        gone = [
            f"{n:,} {name if n != 1 else _one(name)}" for name, n in lost.items() if n > 0 and row[name] is not None
        ]
        if gone:
            lines = ["Excluded", *_wrapped(", ".join(gone))]
    return [*lines, *_wrapped(row["note"] or "")]


def _wrapped(text: str) -> list[str]:
    """Lines that fit into a box; a number stays with its noun."""
    lines, line = [], ""
    for word in re.sub(r"(?<=\d) (?=[a-z])", "\u00a0", text).split(" "):
        if line and len(line) + 1 + len(word) > _MOST:
            lines.append(line)
            line = ""
        line = f"{line} {word}".strip(" ")
    return [*lines, line] if line else lines


def _box(drawn: list[str], x: float, y: float, width: float, lines: Sequence[str], *, light: bool = False) -> float:
    height = len(lines) * _LINE + 2 * _PAD
    kind = "box light" if light else "box"
    drawn.append(f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height}" rx="5" class="{kind}"/>')
    for at, text in enumerate(lines):
        look = ' class="head"' if at == 0 else ""
        drawn.append(f'<text x="{x + 12:.1f}" y="{y + _PAD + 13 + at * _LINE:.1f}"{look}>{escape(str(text))}</text>')
    return height


def _arrow(drawn: list[str], x: float, top: float, bottom: float) -> None:
    drawn.append(f'<path d="M{x} {top}V{bottom - 6}" class="line"/>')
    drawn.append(f'<path d="M{x - 4} {bottom - 7}L{x + 4} {bottom - 7}L{x} {bottom}Z" class="tip"/>')
