"""An `evaluate` module, an example and its card -> a web page: a table to edit, options, a button, the result.

A staged metric ships this file and the two it imports beside its app.py, where cxrhf is not installed: they import the
standard library and, inside `metric_app`, gradio. Tables are computed in memory; an uploaded file is deleted as soon as
it is read. The page takes one label a row; for several labels at once, use the Python it shows.
"""

from __future__ import annotations

import csv
import inspect
import io
import json
import math
import os
import pprint
import re
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import gradio

__all__ = ["Choice", "Number", "Text", "metric_app"]


WAITING = "Press Compute."
CHANGED = "The inputs have changed. Press Compute."
PRIVATE = (
    "Do not enter patient data: this page may be public. Nothing is stored: "
    "tables are processed in memory, and an uploaded file is deleted once it is read."
)
CSS = """
.wide { overflow-x: auto; max-width: 100%; }
.prose table { display: block; overflow-x: auto; border: 0; }
.prose .katex-display { overflow-x: auto; overflow-y: hidden; }
.prose th, .prose td { overflow-wrap: normal; word-break: normal; }
.quiet, #headline .name, #headline .range { color: var(--body-text-color-subdued); }
#headline, #result, #problem, #uploaded { overflow-wrap: anywhere; }
#headline .value { font-size: 2rem; font-weight: 600; line-height: 1.25; }
#headline .note { margin-top: .5rem; }
#result table { border-collapse: collapse; width: 100%; margin-bottom: 1.25rem; font-size: .9rem; }
#result caption { text-align: left; font-weight: 600; padding: .25rem 0; }
#result th, #result td { text-align: left; vertical-align: top; font-weight: 400; padding: .35rem .75rem .35rem 0;
  border-bottom: 1px solid var(--border-color-primary); font-variant-numeric: tabular-nums; }
#result thead th { font-weight: 600; }
#result td { overflow-wrap: break-word; }
#inputs [role=columnheader] { pointer-events: none; }
#inputs [role=grid] { --df-max-col-width: 18rem !important; }
#inputs [role=columnheader] span { white-space: nowrap; word-break: normal; overflow-wrap: normal; }
#result .grid { overflow-wrap: normal; }
#problem:not(:has([role=alert])), #uploaded:not(:has(p)) { display: none; }
#problem [role=alert] { border-left: 4px solid #c62828; padding: .5rem .75rem; white-space: pre-wrap;
  background: color-mix(in srgb, #c62828 12%, transparent); }
"""
# Brings into sight what a click led to, on screens where it is below.
SHOW_PROBLEM = "() => document.querySelector('#problem [role=alert]')?.scrollIntoView({block: 'nearest'})"
SHOW_RESULT = (
    "() => (document.querySelector('#problem [role=alert]') ?? document.querySelector('#headline'))"
    "?.scrollIntoView({block: 'nearest'})"
)
ADD_ROW = "table => ({...table, data: [...table.data, table.headers.map(() => '')]})"


def metric_app(
    module: Any,
    columns: Mapping[str, Sequence[Any]],
    options: Sequence[Option] = (),
    card: str | Path | None = None,
) -> gradio.Blocks:
    """The page of an `evaluate` module; `launch()` serves it.

    `columns` names the inputs with an example of each (None or '' where an optional one is left empty), `options` what
    `compute` takes besides, `card` the README.md that is shown below.
    """
    import gradio as gr

    about = columns_of(module, columns)
    title, body = read_card(Path(card).read_text(encoding="utf-8")) if card else ("", "")
    space = os.environ.get("SPACE_ID")
    source = f'"{space}"' if space else f'cxrhf.metric_path("{module.name}")'
    sentence = re.split(r"(?<=[.!?])\s+(?=[A-Z])", " ".join(module.description.split()))[0]
    example = [["" if cell is None else cell for cell in row] for row in zip(*columns.values(), strict=True)]
    defaults = {each.name: each.default for each in options if each.default not in (None, "")}
    start = code(source, about, read_cells(example, about), defaults)
    bars = gr.Progress(track_tqdm=True)  # gradio finds it among the defaults and shows the metric's own progress

    def compute(frame: Any, progress: Any = bars, *values: Any) -> tuple[str, ...]:
        try:
            inputs = read_cells(in_order(list(frame.columns), frame.to_numpy().tolist(), about), about)
            read = {each.name: each.read(value) for each, value in zip(options, values, strict=True)}
            given: dict[str, Any] = {name: value for name, value in read.items() if value is not None}
            # A new instance each time: one whose last call failed still holds its rows. In memory, not on disk.
            fresh = type(module)(config_name=module.config_name, keep_in_memory=True)
            result = plain(fresh.compute(**inputs, **given))
        except Exception as error:
            if not isinstance(error, ValueError):  # a fault of ours; the log gets no values of visitors
                print(type(error).__name__, *traceback.format_tb(error.__traceback__), file=sys.stderr)
            return (_alert(explain(error, about)), "", "", "", "")
        text = json.dumps(result, indent=2, ensure_ascii=False)
        top = headline(module.name, result, given.get("level"))
        return ("", top, tables(result), text, code(source, about, inputs, given))

    def shows(rows: list[list[Any]]) -> dict[str, Any]:
        return {"headers": list(columns), "data": rows}

    def fill(name: str, read: Callable[[], tuple[list[list[Any]], list[str]]]) -> tuple[Any, ...]:
        try:
            rows, ignored = read()
        except Problem as error:
            return (gr.skip(), "", _alert(f"{name}: {error}"), *[gr.skip()] * 4)
        said = f"{name}: {len(rows):,} rows read." + (f" Not used: {', '.join(ignored)}." if ignored else "")
        return (shows(rows), f"<p>{escape(said)}</p>", "", CHANGED, "", "", "")

    def upload(path: str) -> tuple[Any, ...]:
        file = Path(path)
        try:
            return fill(file.name, lambda: read_csv(file.read_bytes(), about))
        finally:
            file.unlink(missing_ok=True)

    def paste(text: str) -> tuple[Any, ...]:
        return fill("Pasted text", lambda: read_text(text or "", about))

    def restore() -> tuple[Any, ...]:
        return (shows(example), "", "", WAITING, "", "", start)

    with _blocks(gr, title or module.name) as page:
        gr.Markdown(f"# {title or module.name}\n\n{sentence}")
        gr.Markdown(PRIVATE, elem_id="privacy", elem_classes="quiet")
        with gr.Row():
            with gr.Column(scale=3, min_width=320):
                # The table has no paste and, in gradio's names, no fixed number of columns: hence the box and the pair.
                shape: dict[str, Any] = {"column_count": (len(about), "fixed")}
                table = gr.Dataframe(
                    example,
                    headers=[column.name for column in about],
                    datatype="str",  # as "number" an empty cell would be shown as 0
                    type="pandas",
                    max_height=360,
                    interactive=True,
                    wrap=True,
                    show_row_numbers=True,
                    label="Inputs",
                    elem_id="inputs",
                    **shape,
                )
                with gr.Row():
                    file = gr.UploadButton("Upload CSV", file_types=[".csv"], size="sm", elem_id="upload", min_width=90)
                    more = gr.Button("Add row", size="sm", elem_id="add-row", min_width=90)
                    again = gr.Button("Example", size="sm", elem_id="example", min_width=90)
                told = gr.HTML("", elem_id="uploaded", elem_classes="quiet", apply_default_css=False)
                with gr.Accordion("Paste rows", open=False):
                    pasted = gr.Textbox(
                        lines=4,
                        max_lines=12,
                        show_label=False,
                        container=False,
                        placeholder=f"From a spreadsheet or CSV, in this order or with a header: {', '.join(columns)}",
                        elem_id="paste",
                    )
                    use = gr.Button("Use these rows", size="sm", elem_id="use-paste")
                with gr.Row():
                    fields = [_field(gr, each) for each in options]
                wrong = gr.HTML("", elem_id="problem", apply_default_css=False)
                button = gr.Button("Compute", variant="primary", elem_id="compute")
            with gr.Column(scale=2, min_width=320):
                top = gr.HTML(WAITING, elem_id="headline", min_height=96, apply_default_css=False)
                found = gr.HTML("", elem_id="result", apply_default_css=False)
                with gr.Accordion("JSON", open=False):
                    full = gr.Code("", language="json", elem_id="json", show_label=False, wrap_lines=True, max_lines=24)
        with gr.Accordion("Code", open=False):
            python = gr.Code(start, language="python", elem_id="code", show_label=False, wrap_lines=True, max_lines=24)
        gr.Markdown(body, elem_id="card")

        outputs = [wrong, top, found, full, python]
        hidden: Any = {"api_visibility": "private"}
        clear = {"js": f"() => {{ ({SHOW_RESULT})(); return ['', '', '', '', ''] }}", "outputs": outputs}
        done = button.click(**clear).then(compute, [table, *fields], outputs, show_progress_on=top, **hidden)
        done.then(js=SHOW_RESULT)
        for event, fn, given in ((file.upload, upload, file), (use.click, paste, pasted), (again.click, restore, None)):
            event(fn, given, [table, told, *outputs], show_progress_on=table, **hidden).then(js=SHOW_PROBLEM)
        more.click(js=ADD_ROW, inputs=table, outputs=table)
        # What is shown must be of the inputs that are shown. In the browser alone: no round trip for every key.
        for each in (table, *fields):
            each.input(js=f"() => ['', {CHANGED!r}, '', '', '']", outputs=outputs)
    return page


def _blocks(gr: Any, title: str) -> gradio.Blocks:
    """An empty page with our looks."""

    class Page(gr.Blocks):
        def launch(self, *args: Any, **options: Any) -> Any:
            """As in gradio, with this page's looks; no history of runs, no links that lead away."""
            theme = gr.themes.Default(
                primary_hue="blue", font=("system-ui", "sans-serif"), font_mono=("ui-monospace", "monospace")
            ).set(
                # The defaults are too pale to read.
                body_text_color_subdued="*neutral_600",
                body_text_color_subdued_dark="*neutral_300",
                block_info_text_color="*neutral_600",
                block_info_text_color_dark="*neutral_300",
                button_primary_background_fill="*primary_600",
                button_primary_background_fill_hover="*primary_700",
            )
            own = {"theme": theme, "css": CSS, "run_history": False, "footer_links": [], "max_file_size": MAX_BYTES}
            return super().launch(*args, **(own | options))

    return Page(title=title, analytics_enabled=False, delete_cache=(300, 300))


def _alert(text: str) -> str:
    return f'<div role="alert">{escape(text)}</div>'


def _field(gr: Any, option: Option) -> Any:
    known: dict[str, Any] = {"label": option.name, "info": option.help or None, "elem_id": f"option-{option.name}"}
    known["min_width"] = 240
    if isinstance(option, Choice):
        return gr.Radio([str(value) for value in option.allowed], value=str(option.default), **known)
    if isinstance(option, Number) and option.default is None:  # gradio's own field of numbers sends 0 when empty
        return gr.Textbox("", placeholder="not set", max_lines=1, **known)
    if isinstance(option, Number):
        return gr.Number(option.default, step=1 if option.whole else "any", **known)
    return gr.Textbox(option.default, max_lines=1, **known)


# What a visitor gives a metric's page: cells, a file, pasted lines, options -> what `compute` takes, or a `Problem`.
#
# Goes into every Space beside widget.py: the standard library only.

MAX_BYTES = 50 * 2**20
# A browser holds more only with long waits; larger tables belong into Python.
MAX_ROWS = 50_000


class Problem(ValueError):
    """What a visitor can put right, as a sentence for the page."""


@dataclass(frozen=True, slots=True)
class Choice:
    """An option with a few allowed values; None among them means: not given."""

    name: str
    allowed: Sequence[Any]
    default: Any
    help: str = ""

    def read(self, field: Any) -> Any:
        """The value behind what the page shows."""
        for value in self.allowed:
            if str(value) == str(field):
                return value
        raise Problem(f"{self.name}: expected {', '.join(map(str, self.allowed))}, got {field!r}")


@dataclass(frozen=True, slots=True)
class Number:
    """A number between `least` and `most`; may stay empty (not given) when its default is None."""

    name: str
    default: float | None
    whole: bool = False
    least: float | None = None
    most: float | None = None
    help: str = ""

    def read(self, field: float | str | None) -> float | int | None:
        """The number in a field of the page, which is one of text when it may stay empty."""
        if field is None or (isinstance(field, str) and not field.strip()):
            if self.default is None:
                return None
            raise Problem(f"{self.name}: expected {self.allowed}, got nothing")
        if isinstance(field, str):
            written = field.strip()
            try:
                field = float(written)
            except ValueError:
                raise Problem(f"{self.name}: expected {self.allowed}, got {written!r}") from None
        low, high = self.least is not None and field < self.least, self.most is not None and field > self.most
        if not math.isfinite(field) or low or high or (self.whole and field != int(field)):
            raise Problem(f"{self.name}: expected {self.allowed}, got {field:.10g}")
        return int(field) if self.whole else float(field)

    @property
    def allowed(self) -> str:
        """What may stand in the field, in words."""
        ends = {">=": self.least, "<=": self.most}
        bounds = " and ".join(f"{sign} {end:.10g}" for sign, end in ends.items() if end is not None)
        return f"{'a whole number' if self.whole else 'a number'} {bounds}".strip()


@dataclass(frozen=True, slots=True)
class Text:
    """A word, for example the name of a group; empty means: not given."""

    name: str
    default: str = ""
    help: str = ""

    def read(self, field: str | None) -> str | None:
        """The text in a field of the page."""
        return (field or "").strip() or None


Option = Choice | Number | Text


class Column(NamedTuple):
    """One input of the module: text or number, and whether the module can do without."""

    name: str
    text: bool
    required: bool


def columns_of(module: Any, example: Mapping[str, Sequence[Any]]) -> list[Column]:
    """The inputs an example names, with their kinds from the module's features, else from the example's values."""
    declared = module.features if isinstance(module.features, list) else [module.features]
    needed = getattr(module, "required", None) or _without_default(module._compute)
    columns = []
    for name, values in example.items():
        kinds = [kind for each in declared if isinstance(kind := getattr(each.get(name), "dtype", None), str)]
        text = kinds[0] in ("string", "large_string") if kinds else any(isinstance(value, str) for value in values)
        columns.append(Column(name, text, name in needed))
    return columns


def _without_default(function: Callable[..., Any]) -> set[str]:
    given = inspect.signature(function).parameters.items()
    return {name for name, each in given if each.default is inspect.Parameter.empty}


def _empty(cell: Any) -> bool:
    blank = isinstance(cell, str) and not cell.strip()
    return cell is None or blank or (isinstance(cell, float) and math.isnan(cell))


def _text(cell: Any) -> str:
    """Tables turn a patient's number 7 into 7.0; it stays "7"."""
    if _empty(cell):
        return ""
    return str(int(cell)) if isinstance(cell, float) and cell.is_integer() else str(cell)


def _number(cell: Any, row: int, name: str) -> float:
    try:
        value = float(cell)
    except (TypeError, ValueError):
        value = math.nan
    if not math.isfinite(value):
        raise Problem(f'Row {row}, column "{name}": expected a number such as 0.25 or 1e-3, got {cell!r}')
    return value


def read_cells(rows: Sequence[Sequence[Any]], columns: Sequence[Column]) -> dict[str, list[Any]]:
    """Cells, row by row -> what `compute` takes: numbers as float, text as str, columns without any value left out.

    Empty rows at the end are not read. An empty number in `references` is None, a missing label; in a text of
    `references` or `predictions` it is an empty text; anywhere else it is a `Problem`, which names row and column.

    >>> columns = [Column("predictions", False, True), Column("references", False, True)]
    >>> read_cells([["0.5", 1], [0.25, ""], ["", ""]], columns)
    {'predictions': [0.5, 0.25], 'references': [1.0, None]}
    """
    last = max((at for at, row in enumerate(rows, 1) if not all(map(_empty, row))), default=0)
    if not last:
        raise Problem("The table is empty. Type or paste rows, or upload a CSV file")
    if last > MAX_ROWS:
        raise Problem(f"This page accepts at most {MAX_ROWS:,} rows, got {last:,}. For more rows, use Python")
    inputs: dict[str, list[Any]] = {}
    for at, column in enumerate(columns):
        cells = [row[at] if at < len(row) else None for row in rows[:last]]
        if all(map(_empty, cells)):
            if column.required:
                raise Problem(f'Column "{column.name}": expected a value in every row, got an empty column')
            continue
        may_lack = column.name == "references" or (column.text and column.name == "predictions")
        values: list[Any] = []
        for row, cell in enumerate(cells, 1):
            if _empty(cell) and not may_lack:
                none = "" if column.required else " or in none"
                raise Problem(
                    f'Row {row}, column "{column.name}": expected a value in every row{none}, got an empty cell'
                )
            if column.text:
                values.append(_text(cell))
            else:
                values.append(None if _empty(cell) else _number(cell, row, column.name))
        inputs[column.name] = values
    return inputs


def in_order(names: Sequence[str], rows: Sequence[Sequence[Any]], columns: Sequence[Column]) -> list[list[Any]]:
    """Rows under the names the table shows now -> rows in the order of `columns`: a dropped file may have another.

    >>> in_order(["b", "a"], [[1, 2]], [Column("a", False, True), Column("b", False, True)])
    [[2, 1]]
    """
    known = [column.name for column in columns]
    if sorted(names) != sorted(known):
        raise Problem(f"Columns: expected {', '.join(known)}, got {', '.join(names)}. Press Example to reset them")
    return [[row[names.index(name)] for name in known] for row in rows]


def read_csv(data: bytes, columns: Sequence[Column]) -> tuple[list[list[Any]], list[str]]:
    """A CSV file whose header names the inputs -> rows of the table, and the file's columns that are no inputs.

    >>> score, label = Column("predictions", False, True), Column("references", False, True)
    >>> read_csv(b"id,references,predictions\\n7,1,.5\\n", [score, label])
    ([[0.5, 1.0]], ['id'])
    """
    if len(data) > MAX_BYTES:
        raise Problem(f"This page accepts files up to {MAX_BYTES / 2**20:.0f} MB, got {len(data) / 2**20:.0f} MB")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise Problem(f"The file is not UTF-8 text (byte {error.start}). Save it as CSV UTF-8") from None
    return read_text(text, columns, header=True)


def read_text(text: str, columns: Sequence[Column], header: bool = False) -> tuple[list[list[Any]], list[str]]:
    """Pasted lines, with commas or tabs -> rows of the table, and the names that are no inputs.

    A first line with the name of an input is a header, and with `header` it must be one; else columns are in order.

    >>> read_text("0.5\\t1\\n0.25\\t", [Column("predictions", False, True), Column("references", False, True)])
    ([[0.5, 1.0], [0.25, None]], [])
    """
    first = text.lstrip().partition("\n")[0]
    reader = csv.reader(io.StringIO(text, newline=""), delimiter="\t" if "\t" in first else ",", strict=True)
    try:
        lines = [line for line in reader if line]
    except csv.Error as error:
        raise Problem(f"Line {reader.line_num} is not valid CSV: {error}") from None
    known = [column.name for column in columns]
    names = [name.strip() for name in lines[0]] if lines else []
    if header or set(names) & set(known):
        missing = [column.name for column in columns if column.required and column.name not in names]
        if missing:
            raise Problem(
                f"Header: expected the columns {', '.join(missing)}, got {', '.join(names) or 'an empty line'}"
            )
        twice = [name for name in known if names.count(name) > 1]
        if twice:
            raise Problem(f"Header: expected each column once, got {', '.join(twice)} several times")
        lines = lines[1:]
    else:
        names = known[: max(map(len, lines), default=0)]
    for row, line in enumerate(lines, 1):
        if len(line) != len(names):
            raise Problem(f"Row {row}: expected {len(names)} cells ({', '.join(names)}), got {len(line)}")
    places = [names.index(name) if name in names else None for name in known]
    # The same door as the table's: what cannot be computed is not shown.
    read = read_cells([[None if at is None else line[at] for at in places] for line in lines], columns)
    n = len(next(iter(read.values())))
    filled = [read.get(name, [None] * n) for name in known]
    return [list(row) for row in zip(*filled, strict=True)], [name for name in names if name not in known]


# A metric's result, its card, an error -> what its page shows: the main number, tables, JSON, Python that gives it.
#
# Goes into every Space beside widget.py: the standard library only.

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


def _html_table(head: Sequence[str], rows: Sequence[Sequence[Any]], caption: str = "") -> str:
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
        parts.append(_html_table((), single))
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
            parts.append(_html_table([""] * named + head, rows, key))
        else:
            parts.append(_html_table((), entries, key))
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
