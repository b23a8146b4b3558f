"""RESULT rows -> a short table for a terminal: a line for each model and finding."""

from __future__ import annotations

import math
from typing import Any

import pyarrow as pa

from cxrhf.report.notes import printable
from cxrhf.report.numbers import letters, short

# The short table: what is left when context is controlled if that is known, else other views of the same scores.
CONTEXT = ("auroc", "auroc_context", "auroc_att", "matched_auroc")
PLAIN = ("auroc", "average_precision", "brier")
LETTERS = 40  # of a name


def summary_lines(results: pa.Table, level: float) -> list[str]:
    """The whole-sample results as a short table: a row for each model and finding."""
    rows = [row for row in results.to_pylist() if row["slice"] == "all" and not row["versus"]]
    there = {row["metric"] for row in rows}
    metrics = [name for name in (CONTEXT if "auroc_att" in there else PLAIN) if name in there]
    if not metrics:
        return ["No whole-sample results."]
    cells: dict[tuple[str, str, str], dict[str, Any]] = {}
    for row in rows:
        if row["metric"] in metrics:
            cells.setdefault((row["dataset"] or "", row["model"] or "", row["finding"] or ""), {}).setdefault(
                row["metric"], row
            )
    datasets, models, findings = (set(each) for each in zip(*cells, strict=True))
    single = len(findings) < 3  # of one finding the mean says nothing more
    table = [["finding", "images", "positive", *metrics]]
    for (dataset, model, finding), by_metric in cells.items():
        if single and finding == "macro" and len(cells) > 1:
            continue
        any_row = next(iter(by_metric.values()))
        whose = ([dataset] if len(datasets) > 1 else []) + ([model] if len(models) > 1 else [])
        name = printable(": ".join(short(part, LETTERS) for part in (*whose, finding)))
        values = [shown_value(by_metric.get(metric)) for metric in metrics]
        table.append([name, _count(any_row["n"]), _count(any_row["n_pos"]), *values])
    widths = [max(letters(row[at]) for row in table) for at in range(len(table[0]))]
    lines = [
        "  ".join(cell + " " * (width - letters(cell)) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in table
    ]
    return [f"Whole sample, with {100 * level:.4g}% intervals from resampled patients:", *lines]


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
