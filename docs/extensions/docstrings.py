"""Docstrings as they are written here (Markdown, by and large) -> reStructuredText.

Our docstrings have `code` in single backticks, lists without an empty line before them, indented formulas, and examples
with >>>. Everything else that reStructuredText would read as markup is text.
"""

from __future__ import annotations

import inspect
import re
from typing import Any

from sphinx.application import Sphinx

_ITEM = re.compile(r"(?:[-*]|\d\.) ")
_MARKUP = re.compile(r"([*|\\]|(?<=\w)_(?!\w))")


def to_rest(lines: list[str]) -> list[str]:
    """The lines of one docstring.

    >>> to_rest(["Mean of `p`:", "- a*b", "- c"])
    ['Mean of ``p``:', '', '- a\\\\*b', '- c']
    """
    out: list[str] = []
    example = formula = False
    for line in lines:
        before = out[-1] if out else ""
        example = line.startswith(">>> ") or (example and bool(line.strip()))
        item = bool(_ITEM.match(line))
        if example:
            out.append(line)
            continue
        indented = line.startswith("    ")
        if indented and not formula and not before.strip():
            out += ["::", ""]
        formula = indented and (formula or not before.strip())
        if formula:
            out.append(line)
            continue
        if item and before.strip() and not (_ITEM.match(before) or before.startswith("  ")):
            out.append("")
        elif (
            before.strip()
            and not item
            and not line.startswith(" ")
            and (_ITEM.match(before) or before.startswith("  "))
        ):
            out.append("")  # the list has ended
        out.append(_inline(line))
    return out


def _inline(line: str) -> str:
    """One line of text: what stands in backticks is code, the rest is as it stands."""
    mark = _ITEM.match(line)
    head = "" if mark is None else "- " if mark[0] == "* " else mark[0]
    out = ""
    for at, part in enumerate(re.split(r"`([^`]*)`", line[mark.end() if mark else 0 :])):
        text = f"``{part}``" if at % 2 else _MARKUP.sub(r"\\\1", part)
        beside = out[-1:] if at % 2 else part[:1]  # code that touches a word must be set apart from it
        out += ("\\ " if at and re.fullmatch(r"\w", beside) else "") + text
    return head + out


class _Written(str):
    """An annotation as the source has it: resolved, ArrayLike would be a page of unions."""

    __slots__ = ()
    __repr__ = str.__str__


def _sign(app: Sphinx, what: str, name: str, obj: Any, *_: Any) -> tuple[str, str] | None:
    """The signature of a function or record as it is written; other classes are not made by users."""
    if what == "class" and not obj.__module__.startswith("cxrhf.metrics"):
        return "", ""
    try:
        signature = inspect.signature(obj)
    except (TypeError, ValueError):
        return None
    given = [each.replace(annotation=_written(each.annotation)) for each in signature.parameters.values()]
    given = given[1:] if what == "method" else given
    arguments = str(signature.replace(parameters=given, return_annotation=inspect.Signature.empty))
    returned = signature.return_annotation
    return arguments, "" if what == "class" or returned is inspect.Signature.empty else str(_written(returned))


def _written(annotation: Any) -> Any:
    return _Written(annotation) if isinstance(annotation, str) else annotation


def _convert(app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    lines[:] = to_rest(lines)


def setup(app: Sphinx) -> dict[str, bool]:
    """What Sphinx calls."""
    app.connect("autodoc-process-docstring", _convert)
    app.connect("autodoc-process-signature", _sign)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
