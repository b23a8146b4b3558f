"""RESULT rows -> a short table for a terminal: a line for each model and finding; of reports, for each strategy."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from cxrhf.report.book import MACRO, MOST, REPORTS, open_books
from cxrhf.report.numbers import format_number, format_percent, is_finite, shorten, text_width
from cxrhf.report.sections.methods import GroupedWarning, group_warnings
from cxrhf.report.sections.reports import first_pair
from cxrhf.report.sections.reports_table import Writer, reports_of, writers

# The short table: what is left when context is controlled if that is known, else other views of the same scores.
CONTEXT = ("auroc", "auroc_context", "auroc_att", "matched_auroc")
BASIC_METRICS = ("auroc", "average_precision", "brier")
# What a newcomer cannot guess of the columns.
METRIC_MEANINGS = {
    "auroc_context": "context alone, without the image",
    "auroc_att": "context held equal by weights",
    "matched_auroc": "context held equal in matched pairs",
}
LIKENESS = ("bertscore_f1", "rougeL", "bleu")
LETTERS = 40  # of a name


def summary_lines(results: pa.Table, level: float) -> list[str]:
    """The whole-sample results as a short table: a row for each model and finding, and for each strategy of reports."""
    everything = results.to_pylist()
    written = report_lines(writers(open_books(everything, apart=REPORTS), (), ()))
    rows = [row for row in everything if row["slice"] == "all" and not row["versus"] and not row.get("strategy")]
    there = {row["metric"] for row in rows}
    metrics = [name for name in (CONTEXT if "auroc_att" in there else BASIC_METRICS) if name in there]
    if not metrics:
        return written or ["No whole-sample results."]
    cells: dict[tuple[str, str, str], dict[str, Any]] = {}
    for row in rows:
        if row["metric"] in metrics:
            cells.setdefault((row["dataset"] or "", row["model"] or "", row["finding"] or ""), {}).setdefault(
                row["metric"], row
            )
    datasets, models, findings = (set(each) for each in zip(*cells, strict=True))
    single = len(findings) == 2  # of one finding the mean says nothing more
    shown = {MACRO, *list(dict.fromkeys(finding for *_, finding in cells if finding != MACRO))[:MOST]}
    hidden = len(findings - shown)
    table = [["finding", "images", "positive", *metrics]]
    for (dataset, model, finding), by_metric in cells.items():
        if (single and finding == MACRO and len(cells) > 1) or finding not in shown:
            continue
        any_row = next(iter(by_metric.values()))
        whose = ([dataset] if len(datasets) > 1 else []) + ([model] if len(models) > 1 else [])
        name = printable(": ".join(shorten(part, LETTERS) for part in (*whose, finding)))
        values = [format_result(by_metric.get(metric)) for metric in metrics]
        table.append([name, _count(any_row["n"]), _count(any_row["n_pos"]), *values])
    head = f"Whole sample, with {100 * level:.4g}% intervals (patient-level bootstrap):"
    meant = "; ".join(f"{name}: {METRIC_MEANINGS[name]}" for name in metrics if name in METRIC_MEANINGS)
    more = [f"... and {hidden:,} more findings in results.parquet"] if hidden else []
    return [head, *align_columns(table), *more, *([meant] if meant else []), *written]


def report_lines(models: Sequence[Writer]) -> list[str]:
    """Generated reports: a line for each model and strategy; of words those of the first pair of groups."""
    if not models:
        return []
    pairs = list(dict.fromkeys(pair for model in models if (pair := first_pair(model))))
    likeness = [name for name in LIKENESS if any(model.has(name) for model in models)]
    head = ["strategy", "reports", "different", *likeness]
    table = [[*head, *(["erased", "new", "flipped"] if pairs else [])]]
    several = len({(model.dataset, model.model) for model in models}) > 1
    for model in models:
        pair = first_pair(model)
        for book in model.strategies:
            whose = [part for part in (model.dataset, model.model) if part] if several else []
            name = printable(": ".join(shorten(part, LETTERS) for part in (*whose, book.strategy)))
            kinds, n = model.get(book, "n_templates").value, reports_of(book)
            different = f"{kinds:,.0f} ({format_percent(kinds / n)})" if is_finite(kinds) and n else ""
            row = [name, f"{n:,}", different, *(format_number(model.get(book, each).value) for each in likeness)]
            if pairs:
                total = model.get(book, "n_associated", pair).value if pair else math.nan
                counts = [
                    model.get(book, each, pair).value if pair else math.nan for each in ("erasure", "new", "flip")
                ]
                of = f" of {total:,.0f}" if is_finite(total) else ""
                row += [f"{format_number(counts[0], 0)}{of}", *(format_number(value, 0) for value in counts[1:])]
            table.append(row)
    words = f"; words associated with {printable(pairs[0].people)}" if pairs else ""
    return [f"Generated reports{words}:", *align_columns(table)]


def align_columns(table: Sequence[Sequence[str]]) -> list[str]:
    """Rows of words -> lines in which columns stand below each other."""
    widths = [max(text_width(row[at]) for row in table) for at in range(len(table[0]))]
    return [
        "  ".join(cell + " " * (width - text_width(cell)) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in table
    ]


def _count(value: int | None) -> str:
    return "" if value is None else f"{value:,}"


def format_result(row: dict[str, Any] | None) -> str:
    """A RESULT row as `0.712 (0.690-0.734)`."""
    if row is None:
        return ""
    value, low, high = (math.nan if row[name] is None else row[name] for name in ("value", "ci_low", "ci_high"))
    if math.isnan(value):
        return "undefined"
    return f"{value:.3f}" if math.isnan(low + high) else f"{value:.3f} ({low:.3f}-{high:.3f})"


# Notes of a run -> few lines for a terminal, grouped as the page's warnings are.

WIDTH = 110
_STEERING = frozenset(map(chr, (*range(32), *range(127, 160), *range(0x202A, 0x202F), *range(0x2066, 0x206A))))


def note_lines(notes: Sequence[str], results: Iterable[Mapping[str, Any]], width: int = WIDTH) -> list[str]:
    """What a reader must know, under the name of what it concerns; of notes that differ only in numbers the first."""
    models, findings = dict[str, None](), dict[str, None]()
    for row in results:
        models[str(row["model"] or "")] = None
        findings[str(row["finding"] or "")] = None
    lines = []
    for kind, warned in group_warnings(list(dict.fromkeys(notes)), list(models), list(findings)):
        lines.append(f"{kind}:")
        for each in warned:
            lines += textwrap.wrap(_words(each), width, initial_indent="  - ", subsequent_indent="    ")
    return [printable(line) for line in lines]


def _words(warned: GroupedWarning) -> str:
    if not warned.each:
        return f"{warned.who}: {warned.words[:1].lower()}{warned.words[1:]}" if warned.who else warned.words
    more = len(warned.each) - 1
    return warned.each[0] + (f" (and {more} more like this; see the page)" if more else "")


def printable(words: str) -> str:
    """Words without what would steer a terminal: control characters, and marks that turn the direction of writing."""
    return "".join("\N{REPLACEMENT CHARACTER}" if each in _STEERING else each for each in words)
