"""`cxrhf audit`: predictions -> a run folder with results, curves, run.json and report.html."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cxrhf.config import AuditConfig

if TYPE_CHECKING:
    import pyarrow as pa

    from cxrhf.run import Run

ABOUT = """Audit predictions: metrics with patient-level intervals, what remains when context is controlled, one page.

PREDICTIONS is Parquet, CSV, TSV or JSON lines (also .gz). Understood without flags:
  wide   image_id, patient_id, Edema, prob_Edema, Pneumonia, prob_Pneumonia, ... (label_<finding>, score_<finding> too)
  long   image_id, patient_id, finding, label, prob
  one    id, patient, label, score

A column pretest (or pretest_<finding>) adds the audits of context. Columns with other names are named by flags.

examples:
  cxrhf audit predictions.csv --out runs/mine
  cxrhf audit vendor.csv --patient PID --label truth --score ai_score --finding pneumothorax
  cxrhf audit a.parquet b.parquet --only overview --findings edema,pneumonia
  cxrhf audit runs/mine --n-resamples 10000"""

# The short table: what is left when context is controlled if that is known, else other views of the same scores.
CONTEXT = ("auroc", "auroc_context", "auroc_att", "matched_auroc")
PLAIN = ("auroc", "average_precision", "brier")


def main(args: Sequence[str]) -> int:
    """Read, audit, write, and end with the path of the page."""
    from cxrhf.cli.flags import parse

    config = parse(AuditConfig, args, verb="audit", about=ABOUT)
    from cxrhf.config import to_mapping
    from cxrhf.run import fingerprint, open_run
    from cxrhf.schema import load_predictions

    sources = [Path(each) for each in config.predictions]
    folder = Path(config.out) if config.out else default_out(sources)
    inside = len(sources) == 1 and sources[0].is_dir() and folder.resolve() == sources[0].resolve()
    loaded = load_predictions(sources, findings=config.findings, columns=config.columns())
    for reading in loaded.readings:
        print("\n".join(reading.lines()))
    files = [each / "predictions.parquet" if each.is_dir() else each for each in sources]
    run = open_run(
        folder,
        verb="audit",
        config=to_mapping(config),
        inputs=None if inside else [fingerprint(each) for each in files],
        overwrite=config.overwrite,
    )
    if not inside:
        run.add("predictions", loaded.table)
    reading_lines = [line for reading in loaded.readings for line in reading.lines()]
    page = audit_into(run, loaded.table, config, reading_lines, notes=loaded.notes)
    print(page)
    return 0


def default_out(sources: Sequence[Path]) -> Path:
    """A run folder audits into itself, a file into runs/<its name>."""
    first = sources[0]
    return first if first.is_dir() else Path("runs") / (first.name.split(".")[0] or "audit")


def audit_into(
    run: Run, predictions: pa.Table, config: AuditConfig, reading: Sequence[str], *, notes: Sequence[str] = ()
) -> Path:
    """Run the audits, write their tables and the page into an open run, print a summary."""
    from cxrhf.audits import run_audits
    from cxrhf.report import write_report
    from cxrhf.schema import RESULT, table_of

    output = run_audits(predictions, config, progress=progress_line())
    results: Any = output.results
    table = results if hasattr(results, "column_names") else table_of(results, RESULT, source="results")
    run.add("results", table)
    run.add("curves", output.curves)
    said = list(dict.fromkeys([*notes, *output.notes]))
    run.finish(reading=list(reading), notes=said)
    page = write_report(run.path)
    print()
    print("\n".join(summary_lines(table, config.level)))
    for note in output.notes:
        print(f"note: {note}")
    print()
    return Path(page)


def progress_line() -> Callable[[str], None]:
    """A function that shows what is being done, on stderr: one changing line on a terminal, lines elsewhere."""
    start = time.monotonic()
    live = sys.stderr.isatty()

    def show(text: str) -> None:
        line = f"[{time.monotonic() - start:5.1f} s] {text}"
        print(f"\r\x1b[2K{line}" if live else line, end="" if live else "\n", file=sys.stderr, flush=True)

    return show


def summary_lines(results: pa.Table, level: float) -> list[str]:
    """The whole-sample results as a short table: a row for each model and finding."""
    rows = [row for row in results.to_pylist() if row["slice"] == "all" and not row["versus"]]
    there = {row["metric"] for row in rows}
    metrics = [name for name in (CONTEXT if "auroc_att" in there else PLAIN) if name in there]
    if not metrics:
        return ["No whole-sample results."]
    cells: dict[tuple[str, str], dict[str, Any]] = {}
    for row in rows:
        if row["metric"] in metrics:
            cells.setdefault((row["model"] or "", row["finding"] or ""), {}).setdefault(row["metric"], row)
    several = len({model for model, _ in cells}) > 1
    table = [["finding", "images", "positive", *metrics]]
    for (model, finding), by_metric in cells.items():
        any_row = next(iter(by_metric.values()))
        name = f"{model}: {finding}" if several else finding
        values = [_value(by_metric.get(metric)) for metric in metrics]
        table.append([name, _count(any_row["n"]), _count(any_row["n_pos"]), *values])
    widths = [max(len(row[at]) for row in table) for at in range(len(table[0]))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in table]
    return [f"Whole sample, with {100 * level:.4g}% intervals from resampled patients:", *lines]


def _count(value: int | None) -> str:
    return "" if value is None else f"{value:,}"


def _value(row: dict[str, Any] | None) -> str:
    if row is None:
        return ""
    value, low, high = (math.nan if row[name] is None else row[name] for name in ("value", "ci_low", "ci_high"))
    if math.isnan(value):
        return "undefined"
    return f"{value:.3f}" if math.isnan(low + high) else f"{value:.3f} ({low:.3f}-{high:.3f})"
