"""Notes of a run -> few lines for a terminal, grouped as the page's warnings are."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from cxrhf.report.sections.warnings import Warned, grouped

WIDTH = 110
_STEERING = frozenset(map(chr, (*range(32), *range(127, 160), *range(0x202A, 0x202F), *range(0x2066, 0x206A))))


def note_lines(notes: Sequence[str], results: Iterable[Mapping[str, Any]], width: int = WIDTH) -> list[str]:
    """What a reader must know, under the name of what it concerns; of notes that differ only in numbers the first."""
    models, findings = dict[str, None](), dict[str, None]()
    for row in results:
        models[str(row["model"] or "")] = None
        findings[str(row["finding"] or "")] = None
    lines = []
    for kind, warned in grouped(list(dict.fromkeys(notes)), list(models), list(findings)):
        lines.append(f"{kind}:")
        for each in warned:
            lines += textwrap.wrap(_words(each), width, initial_indent="  - ", subsequent_indent="    ")
    return [printable(line) for line in lines]


def _words(warned: Warned) -> str:
    if not warned.each:
        return f"{warned.who}: {warned.words[:1].lower()}{warned.words[1:]}" if warned.who else warned.words
    more = len(warned.each) - 1
    return warned.each[0] + (f" (and {more} more like this; see the page)" if more else "")


def printable(words: str) -> str:
    """Words without what would steer a terminal: control characters, and marks that turn the direction of writing."""
    return "".join("\N{REPLACEMENT CHARACTER}" if each in _STEERING else each for each in words)
