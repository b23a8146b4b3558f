"""A metric's result, its card, an error -> what its page shows: the main number, tables, JSON, Python that gives it.

Goes into every Space beside widget.py: the standard library only.
"""

from __future__ import annotations

import json
import math
import pprint
import re
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from cxrhf.hub.widget_inputs import Column

# Longer inputs are read from a file in the code that is shown.
CODE_ROWS = 40
SHOWN_ROWS = 200


def plain(value: Any) -> Any:
    """A result as JSON can hold it: arrays become lists, numpy scalars numbers, NaN None, infinity a word.

    >>> plain({"a": (1, float("nan"))})
    {'a': [1, None]}
    """
    if isinstance(value, Mapping):
        return {str(key): plain(each) for key, each in value.items()}
    if hasattr(value, "tolist"):
        return plain(value.tolist())
    if isinstance(value, (list, tuple)):
        return [plain(each) for each in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else ("infinity" if value > 0 else "-infinity")
    return value if isinstance(value, (bool, int, float, str, type(None))) else str(value)


def shown(value: Any) -> str:
    """A value of a result as text: numbers to 6 digits, None as 'undefined'.

    >>> [shown(each) for each in (2 / 3, 12, None, "exact")]
    ['0.666667', '12', 'undefined', 'exact']
    """
    if value is None:
        return "undefined"
    if isinstance(value, float):
        return f"{value:.6g}"
    return json.dumps(value, ensure_ascii=False) if isinstance(value, (dict, list)) else str(value)


def headline(name: str, result: Mapping[str, Any], level: float | None = None) -> str:
    """The main number with its interval and the notes that explain it, as HTML.

    The main number is `name`; where that is a table, the first single number of the result.
    """
    single = [key for key, value in result.items() if isinstance(value, (int, float))]
    if name not in result or isinstance(result[name], (dict, list)):
        name = single[0] if single else ""
    value = shown(result[name]) if name else "Done"
    parts = [f'<div class="name">{escape(name)}</div>'] if name else []
    parts.append(f'<div class="value">{escape(value)}</div>')
    low, high = result.get(f"{name}_ci_low"), result.get(f"{name}_ci_high")
    if low is not None and high is not None:
        percent = f"{100 * level:g}% interval" if level else "interval"
        parts.append(f'<div class="range">{percent} {shown(low)} to {shown(high)}</div>')
    for key, note in result.items():
        if isinstance(note, str) and note and key.endswith(("note", "notes", "reason", "warning")):
            whose = key.rpartition("_")[0]
            text = note if whose in ("", name) else f"{whose}: {note}"
            parts.append(f'<div class="note">{escape(text)}</div>')
    return "".join(parts)


def _table(head: Sequence[str], rows: Sequence[Sequence[Any]], caption: str = "") -> str:
    def cells(row: Sequence[Any]) -> str:
        # Long names may break after an underscore.
        first = escape(shown(row[0])).replace("_", "_<wbr>")
        return f'<th scope="row">{first}</th>' + "".join(f"<td>{escape(shown(c))}</td>" for c in row[1:])

    names = "".join(f'<th scope="col">{escape(name)}</th>' for name in head)
    body = "".join(f"<tr>{cells(row)}</tr>" for row in rows[:SHOWN_ROWS])
    title = f"<caption>{escape(caption)}</caption>" if caption else ""
    top = f"<thead><tr>{names}</tr></thead>" if head else ""
    kind = "grid" if head else "pairs"
    more = f'<p class="quiet">{len(rows) - SHOWN_ROWS} more rows are in the JSON.</p>' if len(rows) > SHOWN_ROWS else ""
    return f'<div class="wide"><table class="{kind}">{title}{top}<tbody>{body}</tbody></table></div>{more}'


def tables(result: Mapping[str, Any]) -> str:
    """A plain result as HTML: single values in one table, every dict or list in one of its own."""
    parts = []
    if single := [(key, value) for key, value in result.items() if not isinstance(value, (dict, list))]:
        parts.append(_table((), single))
    for key, value in result.items():
        if not isinstance(value, (dict, list)):
            continue
        entries = list(value.items() if isinstance(value, dict) else enumerate(value, 1))
        named = isinstance(value, dict)
        if not entries:
            parts.append(f'<p class="quiet">{escape(key)}: none</p>')
        elif all(isinstance(each, dict) for _, each in entries):
            head = list(dict.fromkeys(inner for _, each in entries for inner in each))
            rows = [[name] * named + [each.get(inner, "") for inner in head] for name, each in entries]
            parts.append(_table([""] * named + head, rows, key))
        else:
            parts.append(_table((), entries, key))
    return "".join(parts)


def code(source: str, columns: Sequence[Column], inputs: Mapping[str, list[Any]], options: Mapping[str, Any]) -> str:
    """Python that gives the result on the page; a long table is read from table.csv. `source` is what is loaded.

    >>> print(code('"someone/x"', [Column("references", False, True)], {"references": [0.5, 1.0, None]}, {"seed": 0}))
    import evaluate
    <BLANKLINE>
    metric = evaluate.load("someone/x")
    result = metric.compute(
        references=[0.5, 1, None],
        seed=0,
    )
    print(result)
    """
    short = all(len(values) <= CODE_ROWS for values in inputs.values())
    lines = ["import csv", ""] * (not short) + ["import cxrhf"] * source.startswith("cxrhf.") + ["import evaluate", ""]
    if not short:
        lines += [
            "# The table of this page, saved as a CSV file with the same column names.",
            'with open("table.csv", newline="", encoding="utf-8-sig") as file:',
            "    rows = list(csv.DictReader(file))",
        ]
    lines += [f"metric = evaluate.load({source})", "result = metric.compute("]
    for column in columns:
        if column.name not in inputs:
            continue
        values = [int(v) if isinstance(v, float) and v.is_integer() else v for v in inputs[column.name]]
        cell = f'row["{column.name}"]'
        number = f"float({cell}) if {cell} else None" if None in values else f"float({cell})"
        listed = pprint.pformat(values, width=90, compact=True).replace("\n", "\n" + " " * (5 + len(column.name)))
        whole = listed if short else f"[{cell if column.text else number} for row in rows]"
        lines.append(f"    {column.name}={whole},")
    lines += [f"    {name}={value!r}," for name, value in options.items()]
    return "\n".join([*lines, ")", "print(result)"])


def read_card(text: str) -> tuple[str, str]:
    """A card -> its title ('' without one) and its Markdown without YAML front matter and without the first heading.

    >>> read_card("---\\ntitle: X\\n---\\n\\n# X\\n\\nWords.\\n")
    ('X', 'Words.')
    """
    front = re.match(r"\A---\s*\n(.*?)\n---\s*(?:\n|\Z)", text, re.DOTALL)
    body = (text[front.end() :] if front else text).strip()
    named = re.search(r"^title:\s*[\"']?(.+?)[\"']?\s*$", front.group(1), re.MULTILINE) if front else None
    heading = re.match(r"# +(.+)(?:\n|\Z)", body)
    title = named.group(1) if named else heading.group(1).strip() if heading else ""
    return title, (body[heading.end() :] if heading else body).strip()


def explain(error: Exception, columns: Sequence[Column]) -> str:
    """An error as text for the page; a position of the message, which counts from 0, as the table's row."""
    if not isinstance(error, (ValueError, TypeError, KeyError)):
        return f"The metric could not be computed ({type(error).__name__}): {error}"[:2000]
    text = (str(error) if not isinstance(error, KeyError) else f"missing: {error}")[:2000]
    place = re.search(rf"\b({'|'.join(re.escape(column.name) for column in columns)})\[(\d+)", text)
    return f"{text}\n{place[1]}[{place[2]}] is row {int(place[2]) + 1} of the table." if place else text
