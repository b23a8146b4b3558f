"""RESULT rows -> a short table for a terminal: a line for each model and finding; of reports, for each strategy."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from cxrhf.report.book import MACRO, MOST, REPORTS, open_books
from cxrhf.report.notes import printable
from cxrhf.report.numbers import known, letters, number, percent, short
from cxrhf.report.sections.reports_said import first_pair
from cxrhf.report.sections.reports_shelf import Writer, writers
from cxrhf.report.sections.reports_table import reports_of

# The short table: what is left when context is controlled if that is known, else other views of the same scores.
CONTEXT = ("auroc", "auroc_context", "auroc_att", "matched_auroc")
PLAIN = ("auroc", "average_precision", "brier")
# What a newcomer cannot guess of the columns.
MEANT = {
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
    metrics = [name for name in (CONTEXT if "auroc_att" in there else PLAIN) if name in there]
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
        name = printable(": ".join(short(part, LETTERS) for part in (*whose, finding)))
        values = [shown_value(by_metric.get(metric)) for metric in metrics]
        table.append([name, _count(any_row["n"]), _count(any_row["n_pos"]), *values])
    head = f"Whole sample, with {100 * level:.4g}% intervals (patient-level bootstrap):"
    meant = "; ".join(f"{name}: {MEANT[name]}" for name in metrics if name in MEANT)
    more = [f"... and {hidden:,} more findings in results.parquet"] if hidden else []
    return [head, *aligned(table), *more, *([meant] if meant else []), *written]


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
            name = printable(": ".join(short(part, LETTERS) for part in (*whose, book.strategy)))
            kinds, n = model.get(book, "n_templates").value, reports_of(book)
            different = f"{kinds:,.0f} ({percent(kinds / n)})" if known(kinds) and n else ""
            row = [name, f"{n:,}", different, *(number(model.get(book, each).value) for each in likeness)]
            if pairs:
                total = model.get(book, "n_associated", pair).value if pair else math.nan
                counts = [
                    model.get(book, each, pair).value if pair else math.nan for each in ("erasure", "new", "flip")
                ]
                of = f" of {total:,.0f}" if known(total) else ""
                row += [f"{number(counts[0], 0)}{of}", *(number(value, 0) for value in counts[1:])]
            table.append(row)
    words = f"; words associated with {printable(pairs[0].people)}" if pairs else ""
    return [f"Generated reports{words}:", *aligned(table)]


def aligned(table: Sequence[Sequence[str]]) -> list[str]:
    """Rows of words -> lines in which columns stand below each other."""
    widths = [max(letters(row[at]) for row in table) for at in range(len(table[0]))]
    return [
        "  ".join(cell + " " * (width - letters(cell)) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in table
    ]


def _count(value: int | None) -> str:
    return "" if value is None else f"{value:,}"


def shown_value(row: dict[str, Any] | None) -> str:
    """A RESULT row as `0.712 (0.690-0.734)`."""
    if row is None:
        return ""
    value, low, high = (math.nan if row[name] is None else row[name] for name in ("value", "ci_low", "ci_high"))
    if math.isnan(value):
        return "undefined"
    return f"{value:.3f}" if math.isnan(low + high) else f"{value:.3f} ({low:.3f}-{high:.3f})"
