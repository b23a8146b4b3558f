"""An `evaluate` module, an example and its card -> a web page: a table to edit, options, a button, the result.

A staged metric ships this file and the two it imports beside its app.py, where cxrhf is not installed: they import the
standard library and, inside `metric_app`, gradio. Tables are computed in memory; an uploaded file is deleted as soon as
it is read. The page takes one label a row; for several labels at once, use the Python it shows.
"""

from __future__ import annotations

import json
import os
import re
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cxrhf.hub.widget_inputs import (
    MAX_BYTES,
    Choice,
    Number,
    Option,
    Problem,
    Text,
    columns_of,
    in_order,
    read_cells,
    read_csv,
    read_text,
)
from cxrhf.hub.widget_result import code, explain, headline, plain, read_card, tables

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
