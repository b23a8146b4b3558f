"""RESULT rows -> a short piece of HTML for a notebook: headline, waterfall, short table. No script, no style sheet."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup, escape

from cxrhf.report.blocks import Entry, Figure, Grid, Table, finding_name
from cxrhf.report.book import PRETEST, REPORTS, Subject, open_books, shown_findings, subjects, without_hidden
from cxrhf.report.figures.sheet import Group, sheet
from cxrhf.report.page import Rows, level_of
from cxrhf.report.sections.opening import controlled_table, opening
from cxrhf.report.sections.overview import short_table
from cxrhf.report.sections.pretest import pretest
from cxrhf.report.sections.reports import reports
from cxrhf.report.sections.view import View, correction_of, sources_of

_CELL = "padding:3px 9px;text-align:right;border-top:1px solid #8884;white-space:nowrap"
_MODELS = 4  # shown; the page has all


def summary_html(results: Rows, record: Mapping[str, Any]) -> str:
    """What `cxrhf.audit(...)` shows of itself in a notebook."""
    books = open_books(results)
    shown = shown_findings(books)
    found = subjects([without_hidden(book, shown) for book in books])
    if not found:
        return _from_notes(results, level_of(record)) or _of_reports(results, record) or "<p>No results.</p>"
    datasets = len({subject.book.dataset for subject in found}) > 1
    names = [subject.name(datasets) if len(found) > 1 else "" for subject in found]
    how = level_of(record), correction_of(record), sources_of(record)
    parts = [_of(subject, *how, name) for subject, name in zip(found[:_MODELS], names, strict=False)]
    if len(found) > _MODELS:
        parts.append(Markup("<p>{} more models are in .html() and .save(folder).</p>").format(len(found) - _MODELS))
    return str(Markup('<div style="max-width:980px">{}</div>').format(Markup("").join(parts)))


def _from_notes(results: Rows, level: str) -> str:
    """The same of context models, where there is nothing else."""
    parts: list[Markup] = []
    for section in pretest(open_books(results, apart=PRETEST), {}, level):
        parts += [Markup("<p>{}</p>").format(words) for words in section.lead]
        table = next((block for block in section.blocks if isinstance(block, Table)), None)
        if table is not None:
            rows = [*table.rows, *([table.mean] if table.mean else [])]
            parts.append(_table([column.title for column in table.columns], rows))
    return str(Markup('<div style="max-width:980px">{}</div>').format(Markup("").join(parts))) if parts else ""


def _of_reports(results: Rows, record: Mapping[str, Any]) -> str:
    """The same of generated reports: what is said of them, and the table of strategies."""
    parts: list[Markup] = []
    for section in reports(open_books(results, apart=REPORTS), (), (), record, level_of(record)):
        parts += [Markup("<p>{}</p>").format(words) for words in section.lead]
        for grid in (block for block in section.blocks if isinstance(block, Grid)):
            rows = [row for _, group in grid.groups for row in group]
            parts.append(_table([column.title for column in grid.columns], rows))
    return str(Markup('<div style="max-width:980px">{}</div>').format(Markup("").join(parts))) if parts else ""


def _of(subject: Subject, level: str, correction: str, sources: tuple[str, ...], name: str) -> Markup:
    view = View(subject, {}, level, "s", correction=correction, sources=sources)
    section = opening(view)
    parts = [Markup('<p style="font-weight:600;margin:14px 0 2px">{}</p>').format(name)] if name else []
    parts += [Markup("<p>{}</p>").format(words) for words in section.lead]
    figure = next((block for block in section.blocks if isinstance(block, Figure)), None)
    if figure is not None and view.book.findings:
        picture = sheet("AUROC", [Group("", figure.panels, figure.legend)])
        data = base64.b64encode(picture.encode()).decode()
        about = "; ".join(_plain(finding, view) for finding in view.book.findings)
        parts.append(
            Markup('<img style="max-width:100%;background:#fff" alt="{}" src="data:image/svg+xml;base64,{}">').format(
                about, data
            )
        )
    table = controlled_table(view)
    table = table if table.rows else short_table(view)
    rows = [*table.rows, *([table.mean] if table.mean else [])]
    if rows:
        parts.append(_table([column.title for column in table.columns], rows))
    return Markup("").join(parts)


def _plain(finding: str, view: View) -> str:
    return f"{finding_name(finding)}: AUROC {view.book.overall(finding).with_interval()}"


def _table(titles: Sequence[str], rows: Sequence[Sequence[Entry]]) -> Markup:
    top = _CELL.replace("nowrap", "normal")
    head = Markup("").join(Markup('<th style="{}">{}</th>').format(top, title) for title in titles)
    body = []
    for row in rows:
        cells = [Markup('<th style="{};text-align:left">{}</th>').format(_CELL, row[0].text)]
        for entry in row[1:]:
            below = f"<br><small>{escape(entry.below)}</small>" if entry.below else ""
            tail = f"<br><small>{escape(entry.tail)}</small>" if entry.tail else ""
            cells.append(Markup('<td style="{}">{}{}{}</td>').format(_CELL, entry.text, Markup(below), Markup(tail)))
        body.append(Markup("<tr>{}</tr>").format(Markup("").join(cells)))
    style = "border-collapse:collapse;font-size:90%;font-variant-numeric:tabular-nums"
    return Markup(
        '<div style="overflow-x:auto"><table style="{}"><thead><tr>{}</tr></thead><tbody>{}</tbody></table></div>'
    ).format(style, head, Markup("").join(body))
