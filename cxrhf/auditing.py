"""Anybody's predictions -> audits, from the command line, a script or a notebook: `cxrhf.audit(table, ...)`.

The way is always the same: read, add what is known of the patient before the image (`--pretest from:...`, `--context`,
`--notes`), audit, write. The command line does it with a run folder; `audit` does it in memory and returns results that
display themselves.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from cxrhf.config import AuditConfig, to_mapping

if TYPE_CHECKING:
    import pyarrow as pa

    from cxrhf.audits import AuditOutput
    from cxrhf.representations.looking import Looked
    from cxrhf.run import Input, Run
    from cxrhf.schema import Loaded

Progress = Callable[[str], None]
NOTES = 16  # lines of notes that `repr` shows


@dataclass(frozen=True, slots=True)
class Prepared:
    """PREDICTION rows with what is known before the image, how they were read, what must be said, what was fitted."""

    table: pa.Table
    reading: list[str]
    notes: list[str]
    fitted: dict[str, Any]


def prepare(loaded: Loaded, config: AuditConfig, progress: Progress, folder: Path | None = None) -> Prepared:
    """Add the pre-test probability and the mentions that the config asks for. `folder`: a run that may know times."""
    table, notes, fitted = loaded.table, list(loaded.notes), dict[str, Any]()
    reading = [line for each in loaded.readings for line in each.lines()]
    times = loaded.times if loaded.times is not None else _times_of(folder)
    if sources := config.pretest_sources():
        from cxrhf.audits.pretest import fit_pretest

        found = fit_pretest(table, sources, times=times, seed=config.seed, progress=progress)
        table, fitted["pretest"] = found.table, found.about
        notes += found.notes
    if config.context is not None:
        from cxrhf.context.predict import join_context

        context = join_context(table, _context_rows(config.context))
        table, fitted["context"] = context.table, context.about
        notes += context.notes
    if config.notes is not None:
        from cxrhf.context.join import join_notes
        from cxrhf.context.phrases import Rule

        prior = _prior_notes(config.notes, table, times)
        want = not sources and config.context is None
        rule = cast(Rule, config.mention_rule)
        joined = join_notes(table, prior, want_pretest=want, seed=config.seed, progress=progress, rule=rule)
        table, fitted["notes"] = joined.table, joined.about
        notes += joined.notes
    return Prepared(table, reading, notes, fitted)


def _times_of(folder: Path | None) -> pa.Table | None:
    """Image times of a run folder that holds its dataset's images."""
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    path = None if folder is None else folder / "images.parquet"
    if path is None or not path.is_file():
        return None
    images = pq.read_table(path, columns=["image_id", "patient_id", "study_time"])
    days = pc.divide(pc.cast(images["study_time"].cast(pa.timestamp("us")).cast(pa.int64()), pa.float64()), 86_400e6)
    times = images.drop_columns(["study_time"]).append_column("time", days)
    return times.replace_schema_metadata({"unit": "days since 1970"})


def _context_rows(folder: str) -> pa.Table:
    """The pre-test probabilities of a context run."""
    from cxrhf.errors import RunError
    from cxrhf.run import read_run

    again = f"cxrhf context fit BUILD --out {folder}"
    if not (Path(folder) / "run.json").is_file():
        raise RunError(f"{folder} is no context run", next_step=f"make one: {again}")
    run = read_run(folder)
    if not run.record.get("finished"):
        raise RunError(f"{folder} was not finished", next_step=f"the same command goes on where it was: {again}")
    table = run.table("predictions")
    if "context" not in table["model"].unique().to_pylist():
        raise RunError(f"{folder} is no context run", next_step=f"make one: {again}")
    return table


def _prior_notes(source: str, table: pa.Table, times: pa.Table | None) -> Any:
    """The notes that were known before each image: of a build, which linked them, or of a file by time."""
    from cxrhf.context.prior import of_build, of_file

    if Path(source).is_dir():
        from cxrhf.data.load import load_images, load_notes

        images = load_images(source, columns=["image_id", "prior_note_ids", "study_time"])
        return of_build(images, load_notes(source), predictions=table)
    return of_file(source, times=times, predictions=table)


def audit(
    table: Any,
    *,
    patient: str | None = None,
    label: str | None = None,
    score: str | None = None,
    pretest: str | None = None,
    progress: bool | Progress = False,
    workers: int | None = None,
    **options: Any,
) -> Audit:
    """Audit predictions: a DataFrame, an Arrow table, a dictionary of columns, a list of rows, or a file.

    Columns are found by their usual names or named here; `pretest` may also be "from:age,sex,view,prior_labels".
    `options` are those of `cxrhf audit`, with underscores (n_resamples=500, only="overview", notes="notes.parquet",
    embeddings="vectors.parquet").
    The result displays itself in a notebook; `.results` is the RESULT table, `.save(folder)` writes a run and its page.

    >>> import cxrhf
    >>> rows = {"id": range(40), "label": [0, 1] * 20, "score": [k % 7 / 7 for k in range(40)]}
    >>> found = cxrhf.audit(rows, patient="id", label="label", score="score", n_resamples=50, only="overview")
    >>> found.value("auroc")
    0.49375
    """
    from cxrhf.audits import run_audits
    from cxrhf.config import from_mapping
    from cxrhf.representations.looking import look_beside
    from cxrhf.run import fingerprint
    from cxrhf.schema import load_predictions

    named = {"patient": patient, "label": label, "score": score, "pretest": pretest}
    is_file = isinstance(table, (str, Path))
    given = {"predictions": [str(table) if is_file else "table in memory"], **named, **options}
    config = from_mapping(AuditConfig, given, source="audit")
    say: Progress = progress if callable(progress) else (progress_line() if progress else lambda _: None)
    loaded = load_predictions(table, findings=config.findings, columns=config.columns())
    prepared = prepare(loaded, config, say, Path(table) if is_file and Path(table).is_dir() else None)
    looked = look_beside(config, [Path(table)] if is_file else [], prepared.table)
    output = run_audits(prepared.table, config, say, workers=workers, material=looked.material)
    inputs = [fingerprint(table)] if is_file and Path(table).is_file() else [in_memory(prepared.table)]
    return Audit(config, prepared, output, inputs, looked)


def in_memory(table: pa.Table) -> Input:
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
    """Results of `cxrhf.audit`, which display themselves."""

    config: AuditConfig
    prepared: Prepared
    output: AuditOutput
    inputs: Sequence[Input]
    looked: Looked

    @property
    def results(self) -> pa.Table:
        """RESULT rows: one per reported number."""
        return self.output.results

    @property
    def curves(self) -> pa.Table:
        """CURVE rows: ROC, PR, reliability and others."""
        return self.output.curves

    @property
    def notes(self) -> list[str]:
        """What a reader of the numbers must know."""
        return list(dict.fromkeys([*self.prepared.notes, *self.looked.notes, *self.output.notes]))

    def value(self, metric: str, finding: str | None = None, **where: Any) -> float:
        """One number: of the whole sample unless `slice` is given; `model`, `audit`, `versus`, `dataset` choose too."""
        from cxrhf.errors import ConfigError, TableError, did_you_mean

        names = self.results.column_names
        if unknown := [name for name in where if name not in names]:
            raise ConfigError(
                f"no column {unknown[0]!r}", allowed=", ".join(names), next_step=did_you_mean(unknown[0], names)
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
                f"{len(rows)} rows of {metric!r}",
                got=", ".join(f"{name}={each!r}" for name, each in where.items()),
                next_step=(None if metric in metrics else did_you_mean(metric, metrics))
                or "say which: finding=, model=, audit=, slice=, versus=; .results has all rows",
            )
        return float(rows[0]["value"])

    def to_pandas(self) -> Any:
        """The RESULT rows as a DataFrame."""
        return self.results.to_pandas()

    def save(self, folder: str | Path, *, overwrite: bool = False) -> Path:
        """Write a run folder (tables, page, figures), as `cxrhf audit --out` does; returns the page's path."""
        from cxrhf.run import open_run

        run = open_run(folder, verb="audit", config=to_mapping(self.config), inputs=self.inputs, overwrite=overwrite)
        run.add("predictions", self.prepared.table)
        return write(run, self.prepared, self.output, self.looked, self.config)

    def html(self) -> str:
        """The whole page as text."""
        from cxrhf.report.html import render

        points = [] if self.output.points is None else self.output.points.to_pylist()
        return render(self.results.to_pylist(), self.curves.to_pylist(), self._record(), points=points)

    def _record(self) -> dict[str, Any]:
        from cxrhf.run import new_record

        return new_record("audit", to_mapping(self.config), self.inputs) | {
            "notes": self.notes,
            "reading": self.prepared.reading,
            "may_show": self.looked.terms.may_show,
        }

    def _repr_html_(self) -> str:
        from cxrhf.report.html import summary_html

        return summary_html(self.results.to_pylist(), self._record())

    def __repr__(self) -> str:
        from cxrhf.report.lines import summary_lines
        from cxrhf.report.notes import note_lines

        lines = summary_lines(self.results, self.config.level)
        said = note_lines(self.notes, self.results.select(["model", "finding"]).to_pylist())
        more = [*said[:NOTES], *(["  ... the rest in .notes"] if len(said) > NOTES else [])]
        return "\n".join([*lines, *more, "Next: .save('runs/mine') writes the page; .results has every number."])


def write(
    run: Run,
    prepared: Prepared,
    output: AuditOutput,
    looked: Looked,
    config: AuditConfig,
    progress: Progress = lambda _: None,
) -> Path:
    """Put what was found into an open run, with its page; returns the page's path."""
    from cxrhf.report import write_report
    from cxrhf.representations.looking import with_probes, write_beside

    run.add("results", with_probes(output.results, run.path))
    run.add("curves", output.curves)
    beside = write_beside(run, looked, output, config, progress)
    said = list(dict.fromkeys([*prepared.notes, *looked.notes, *output.notes, *beside]))
    run.finish(reading=prepared.reading, notes=said, **({"fitted": prepared.fitted} if prepared.fitted else {}))
    return Path(write_report(run.path))


def progress_line() -> Progress:
    """A function that shows what is being done, on stderr: one changing line on a terminal, lines elsewhere."""
    import sys
    import time

    from cxrhf.report.notes import printable

    start = time.monotonic()
    live = sys.stderr.isatty()

    def show(text: str) -> None:
        line = printable(f"[{time.monotonic() - start:5.1f} s] {text}")
        print(f"\r\x1b[2K{line}" if live else line, end="" if live else "\n", file=sys.stderr, flush=True)

    return show
