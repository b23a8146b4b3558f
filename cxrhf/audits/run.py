"""Anybody's predictions or generated reports -> audits, for the command line and notebooks: `cxrhf.audit(table, ...)`.

The way is always the same: read, add what is known of the patient before the image (`--pretest from:...`, `--context`,
`--notes`), audit, write. The command line does it with a run folder; `audit` does it in memory and returns results that
display themselves.
"""

from __future__ import annotations

import hashlib
import math
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cxrhf.errors import as_arguments, in_python
from cxrhf.settings import AuditConfig, to_mapping

if TYPE_CHECKING:
    import pyarrow as pa

    from cxrhf.audits.plan import AuditOutput
    from cxrhf.audits.representations import Representations
    from cxrhf.audits.sources import Prepared
    from cxrhf.run import Input, Run


Progress = Callable[[str], None]
NOTES = 16  # lines of notes that `repr` shows
_STDERR = threading.Lock()  # several threads may say what they do


def run_all(
    prepared: Prepared, config: AuditConfig, looked: Representations, say: Progress, workers: int | None = None
) -> AuditOutput:
    """The audits of predictions and of reports, as far as there are any and they are asked for."""
    import pyarrow as pa

    from cxrhf.audits.plan import run_audits
    from cxrhf.audits.reports import AUDITS as OF_REPORTS
    from cxrhf.errors import ConfigError

    of_reports = tuple(name for name in config.only if name in OF_REPORTS)
    others = tuple(name for name in config.only if name not in OF_REPORTS)
    output = words = None
    if prepared.table is not None and (others or not of_reports):
        of_predictions = config if not of_reports else replace(config, only=others)
        known = prepared.fitted.get("context", {}).get("train_prevalence", {})
        material = replace(looked.material, prevalence=known)
        output = run_audits(prepared.table, of_predictions, say, workers=workers, material=material)
    if prepared.reports is not None and (of_reports or not others):
        from cxrhf.audits.reports.audit import audit_reports

        words = audit_reports(prepared.reports.tables, config, say, may_show=looked.terms.may_show, only=of_reports)
    found = output or words
    if found is None:
        what = "predictions" if prepared.table is None else "generated reports"
        raise ConfigError(f"only: there are no {what} to audit", got=", ".join(config.only),
                          next_step="omit --only, or name other audits")  # fmt: skip
    if words is None or output is None:
        return found
    return replace(
        output,
        results=pa.concat_tables([output.results, words.results]),
        curves=pa.concat_tables([output.curves, words.curves]),
        notes=list(dict.fromkeys([*output.notes, *words.notes])),
        words=words.words,
    )


def audit(
    table: Any,
    *more: Any,
    patient: str | None = None,
    label: str | None = None,
    score: str | None = None,
    pretest: str | None = None,
    progress: bool | Progress = False,
    workers: int | None = None,
    **options: Any,
) -> Audit:
    """Audit predictions or generated reports.

    The input is a DataFrame, an Arrow table, a dictionary of columns, a list of rows, a file or a run folder. To
    compare models, pass several inputs as a list, or as a dictionary from model names to inputs.
    cxrhf finds columns by their usual names; name others here. `pretest` is a column, or
    "from:age,sex,view,prior_labels" to fit a pre-test probability. For reports, name the columns with
    `generated="hyp", reference="ref"`.
    `options` are the flags of `cxrhf audit` with underscores (n_resamples=500, only="overview", notes="notes.parquet",
    embeddings="embeddings.parquet").
    The result displays itself in a notebook. `.results` is the RESULT table; `.save(folder)` writes a run folder with
    its page.

    >>> import cxrhf
    >>> rows = {"id": range(40), "label": [0, 1] * 20, "score": [k % 7 / 7 for k in range(40)]}
    >>> found = cxrhf.audit(rows, patient="id", label="label", score="score", n_resamples=50, only="overview")
    >>> found.value("auroc")
    0.49375
    """
    from cxrhf.audits.representations import load_representations
    from cxrhf.audits.sources import (
        holds_predictions,
        holds_reports,
        is_path,
        load_models,
        prepare,
        prepare_reports,
        read_models,
        sources_of,
    )
    from cxrhf.run import fingerprint
    from cxrhf.settings import from_mapping

    sources = sources_of(table, more)
    paths = [each.value for each in sources if is_path(each.value)]
    files = [str(each.value) if is_path(each.value) else "table in memory" for each in sources]
    named = {"patient": patient, "label": label, "score": score, "pretest": pretest}
    config = from_mapping(AuditConfig, {"predictions": files, **named, **options}, source="audit")
    say: Progress = progress if callable(progress) else (progress_line() if progress else lambda _: None)
    prepared: Prepared | None = None
    has_reports = [holds_reports(each.value, config) for each in sources]
    of_reports = [each for each, found in zip(sources, has_reports, strict=True) if found]
    of_predictions = [
        each for each, found in zip(sources, has_reports, strict=True) if holds_predictions(each.value, reports=found)
    ]
    if of_predictions:
        folder = paths[0] if paths and paths[0].is_dir() else None
        prepared = prepare(load_models(of_predictions, config), config, say, folder)
    if of_reports:
        prepared = prepare_reports(read_models(of_reports, config), prepared)
    assert prepared is not None
    reports = None if prepared.reports is None else prepared.reports.tables.generations
    looked = load_representations(config, paths, prepared.table, reports)
    output = run_all(prepared, config, looked, say, workers)
    tables = [each for each in (prepared.table, reports) if each is not None]
    is_file = len(paths) == len(sources) and all(path.is_file() for path in paths)
    inputs = [fingerprint(path) for path in paths] if is_file else [fingerprint_table(each) for each in tables]
    return Audit(config, prepared, output, inputs, looked)


def fingerprint_table(table: pa.Table) -> Input:
    """The fingerprint of a table that came from no file."""
    from cxrhf.run import Input

    digest, size = hashlib.sha256(), 0
    for batch in table.combine_chunks().to_batches():
        for column in batch.columns:
            for buffer in column.buffers():
                if buffer is not None:
                    digest.update(memoryview(buffer))
                    size += buffer.size
    return Input("table in memory", digest.hexdigest(), size)


@dataclass(frozen=True, slots=True, repr=False)
class Audit:
    """Results of `cxrhf.audit`. Displays itself in a notebook."""

    config: AuditConfig
    prepared: Prepared
    output: AuditOutput
    inputs: Sequence[Input]
    looked: Representations

    @property
    def results(self) -> pa.Table:
        """RESULT rows, one for each reported number."""
        return self.output.results

    @property
    def curves(self) -> pa.Table:
        """CURVE rows: ROC, PR, reliability and others."""
        return self.output.curves

    @property
    def notes(self) -> list[str]:
        """Warnings about the results."""
        notes = [*self.prepared.notes, *self.looked.notes, *self.output.notes]
        return [as_arguments(each) for each in dict.fromkeys(notes)]

    def value(self, metric: str, finding: str | None = None, **where: Any) -> float:
        """Return one number, of the whole sample unless `slice` is given. `where` filters the other columns."""
        from cxrhf.errors import ConfigError, TableError, did_you_mean

        names = self.results.column_names
        if unknown := [name for name in where if name not in names]:
            raise ConfigError(
                f'no column "{unknown[0]}"', allowed=", ".join(names), next_step=did_you_mean(unknown[0], names)
            )
        where = {"slice": "all", "versus": None, **where, "metric": metric}
        if finding is not None:
            where["finding"] = finding
        rows = [row for row in self.results.to_pylist() if all(row[name] == each for name, each in where.items())]
        single = [row for row in rows if row["finding"] != "macro"]
        if finding is None and len({row["finding"] for row in single}) == 1:
            rows = single  # of one finding the mean says nothing more
        values = {row["value"] for row in rows}
        if not rows or (len(values) > 1 and not all(math.isnan(each) for each in values)):
            metrics = self.results["metric"].unique().to_pylist()
            raise TableError(
                f'value("{metric}")',
                allowed="one row",
                got=f"{len(rows)} rows for " + ", ".join(f"{name}={each!r}" for name, each in where.items()),
                next_step=(None if metric in metrics else did_you_mean(metric, metrics))
                or "choose one with finding=, model=, strategy=, audit=, slice= or versus=; .results has all rows",
            )
        return float(rows[0]["value"])

    def to_pandas(self) -> Any:
        """The RESULT rows as a DataFrame."""
        return self.results.to_pandas()

    @in_python
    def save(self, folder: str | Path, *, overwrite: bool = False) -> Path:
        """Write a run folder (tables, page, figures), like `cxrhf audit --out`. Returns the path of the page."""
        from cxrhf.run import open_run
        from cxrhf.tables.folders import one_writer

        settings = to_mapping(self.config)
        with one_writer(folder, "audit"):
            run = open_run(folder, verb="audit", config=settings, inputs=self.inputs, overwrite=overwrite)
            add_sources(run, self.prepared)
            return write(run, self.prepared, self.output, self.looked, self.config)

    def html(self) -> str:
        """The page as an HTML string."""
        from cxrhf.report.html import render

        points = [] if self.output.points is None else self.output.points.to_pylist()
        words = [] if self.output.words is None else self.output.words.to_pylist()
        return render(self.results.to_pylist(), self.curves.to_pylist(), self._record(), points=points, words=words)

    def _record(self) -> dict[str, Any]:
        from cxrhf.run import new_record

        record = new_record("audit", to_mapping(self.config), self.inputs) | {
            "notes": self.notes,
            "reading": self.prepared.reading,
            "may_show": self.looked.terms.may_show,
        }
        del record["finished"]  # there is no run that could be unfinished
        return record

    def _repr_html_(self) -> str:
        from cxrhf.report import summary_html

        return summary_html(self.results.to_pylist(), self._record())

    def __repr__(self) -> str:
        from cxrhf.report.lines import note_lines, summary_lines

        lines = summary_lines(self.results, self.config.level)
        said = note_lines(self.notes, self.results.select(["model", "finding"]).to_pylist())
        more = [*said[:NOTES], *(["  ... more in .notes"] if len(said) > NOTES else [])]
        return "\n".join([*lines, *more, "Next: .save('runs/mine') writes the page; .results has every number."])


def add_sources(run: Run, prepared: Prepared) -> None:
    """What was audited, into an open run, so that it can be audited again on its own."""
    if prepared.table is not None:
        run.add("predictions", prepared.table)
    if prepared.reports is not None:
        tables = prepared.reports.tables
        run.add("generations", tables.generations)
        for name, each in (("scores", tables.scores), ("report_vectors", tables.vectors)):
            if each is not None:
                run.add(name, each)


def write(
    run: Run,
    prepared: Prepared,
    output: AuditOutput,
    looked: Representations,
    config: AuditConfig,
    progress: Progress = lambda _: None,
) -> Path:
    """Put what was found into an open run, with its page; returns the page's path."""
    from cxrhf.audits.representations import add_probe_results, write_representations
    from cxrhf.report import PAGE, write_report

    run.add("results", add_probe_results(output.results, run.path))
    run.add("curves", output.curves)
    if output.words is not None:
        run.add("words", output.words)
    beside = write_representations(run, looked, output, config, progress)
    said = list(dict.fromkeys([*prepared.notes, *looked.notes, *output.notes, *beside]))
    fitted = {"fitted": prepared.fitted} if prepared.fitted else {}
    run.finish(write_report, reading=prepared.reading, notes=said, **fitted)
    return run.path / PAGE


def progress_line(every: float = 0) -> Progress:
    """A function that shows what is being done, on stderr: one changing line on a terminal, lines elsewhere.

    `every`: elsewhere at most one line in so many seconds.
    """
    import shutil
    import sys
    import time

    from cxrhf.report.lines import printable

    start = time.monotonic()
    live = sys.stderr.isatty()
    last = -every

    def show(text: str) -> None:
        nonlocal last
        with _STDERR:
            now = time.monotonic() - start
            line = printable(f"[{now:5.1f} s] {text}")
            if live:  # a line that wraps would leave its first part behind
                line = line[: shutil.get_terminal_size().columns - 1]
                print(f"\r\x1b[2K{line}", end="", file=sys.stderr, flush=True)
            elif now - last >= every:
                last = now
                print(f"{line}\n", end="", file=sys.stderr, flush=True)  # one write: others write there too

    return show
