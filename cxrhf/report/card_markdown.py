"""Blocks of a page -> Markdown that the Hub and code hosts show: tables, grids, sentences. Everything is escaped."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from cxrhf.report.blocks import Column, Entry, Grid, Table
from cxrhf.report.notes import printable
from cxrhf.report.numbers import listed

_SPECIAL = re.compile(r"([\\`*_\[\]|~$#])")
_INTERVAL = re.compile(r"^(\S+) to (\S+)$")  # stays on one line, however narrow its column is


def escaped(words: str) -> str:
    """Words that nobody can take for markup, on one line.

    >>> escaped("a_b <i> | *")
    'a\\\\_b &lt;i&gt; \\\\| \\\\*'
    """
    plain = printable(re.sub(r"[\n\t]", " ", words))
    # A sign before a blank (p < 0.001, sex & age) starts nothing and stays readable.
    plain = re.sub(r"&(?=[#\w])", "&amp;", plain)
    return _SPECIAL.sub(r"\\\1", re.sub(r"<(?!\s)", "&lt;", plain).replace(">", "&gt;"))


def paragraphs(words: Iterable[str]) -> list[str]:
    """Each on its own, with an empty line after it."""
    return [line for each in words if each for line in (escaped(each), "")]


def bullets(words: Iterable[str]) -> list[str]:
    """A list, with an empty line after it; nothing of nothing."""
    made = [f"- {each}" for each in words]
    return [*made, ""] if made else []


def table_lines(table: Table) -> list[str]:
    """A table with its caption above; what its columns mean opens on demand."""
    rows = [*table.rows, *([table.mean] if table.mean else [])]
    if not rows:
        return []
    lines = [f"**{escaped(table.caption)}**", ""] if table.caption else []
    lines += [*_head(table.columns), *(_row(row) for row in rows), ""]
    return [*lines, *paragraphs([table.about]), *_meanings(table.columns), *_reasons(table.columns, rows)]


def grid_lines(grid: Grid) -> list[str]:
    """The same of rows in groups; a group's title is a row of its own."""
    lines = [f"**{escaped(grid.caption)}**", "", *_head(grid.columns)]
    for title, rows in grid.groups:
        lines.append(f"| **{escaped(title)}** |" + " |" * (len(grid.columns) - 1))
        lines += [_row(row) for row in rows]
    every = [row for _, rows in grid.groups for row in rows]
    return [*lines, "", *paragraphs([grid.about]), *_meanings(grid.columns), *_reasons(grid.columns, every)]


def folded(summary: str, lines: Sequence[str]) -> list[str]:
    """Lines that open on demand; nothing of nothing."""
    if not lines:
        return []
    return [f"<details><summary>{escaped(summary)}</summary>", "", *lines, "</details>", ""]


def code(language: str, lines: Sequence[str]) -> list[str]:
    """A block of code, with an empty line after it; longer fences where a line could end it."""
    fence = "`" * max([3, *(len(found) + 1 for line in lines for found in re.findall("`+", line))])
    return [f"{fence}{language}", *lines, fence, ""]


def _head(columns: Sequence[Column]) -> list[str]:
    titles = " | ".join(escaped(column.title) for column in columns)
    # Names and words to the left, numbers to the right.
    marks = ["---", *("---" if column.words else "---:" for column in columns[1:])]
    return [f"| {titles} |".replace("|  |", "| |"), f"| {' | '.join(marks)} |"]


def _row(row: Sequence[Entry]) -> str:
    return f"| {' | '.join(map(_cell, row))} |"


def _cell(entry: Entry) -> str:
    """The number, then its interval and what else stands below, a line each."""
    tail = escaped(entry.tail)
    below = [_INTERVAL.sub("\\1\u00a0to\u00a0\\2", escaped(line)) for line in entry.below.split("\n")]
    lines = [escaped(entry.text), *below, f"**{tail}**" if entry.strong and tail else tail]
    return "<br>".join(line for line in lines if line)


def _meanings(columns: Sequence[Column]) -> list[str]:
    said = [f"**{escaped(column.title)}**: {escaped(column.about)}" for column in columns if column.about]
    return folded("What the columns mean", bullets(said))


def _reasons(columns: Sequence[Column], rows: Sequence[Sequence[Entry]]) -> list[str]:
    """Why cells have no number: each reason once, with the cells that it is of."""
    found: dict[str, list[str]] = {}
    for row in rows:
        for column, entry in zip(columns[1:], row[1:], strict=False):
            if entry.text == "–" and entry.hint:
                found.setdefault(entry.hint, []).append(f"{row[0].text} ({column.title})")
    return folded(
        "Why some cells have no number",
        bullets(f"{escaped(listed(cells))}: {escaped(reason)}" for reason, cells in found.items()),
    )
