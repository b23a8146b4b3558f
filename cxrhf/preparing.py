"""Predictions and reports as they were read -> the same with what is known of the patient before the image."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from cxrhf.config import AuditConfig

if TYPE_CHECKING:
    import pyarrow as pa

    from cxrhf.auditing_reports import ReadReports
    from cxrhf.schema import Loaded

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Prepared:
    """PREDICTION rows with what is known before the image, how they were read, what must be said, what was fitted.

    `table` is None where there are generated reports alone.
    """

    table: pa.Table | None
    reading: list[str]
    notes: list[str]
    fitted: dict[str, Any]
    reports: ReadReports | None = None


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


def prepare_reports(found: ReadReports, prepared: Prepared | None = None) -> Prepared:
    """Reports alone, or beside predictions."""
    before = prepared or Prepared(None, [], [], {})
    return replace(
        before, reading=[*before.reading, *found.reading], notes=[*before.notes, *found.notes], reports=found
    )


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
    import shlex

    from cxrhf.errors import RunError
    from cxrhf.run import read_run
    from cxrhf.tables.places import free, meant, what_is

    made = f"cxrhf context fit BUILD --out {free(folder, 'runs/context')}"
    other = RunError(
        f"{folder} is not a context run", got=what_is(folder), next_step=meant(folder, "context.json") or made
    )
    if not (Path(folder) / "run.json").is_file():
        raise other
    run = read_run(folder)
    if not run.record.get("finished"):
        again = f"cxrhf context fit BUILD --out {shlex.quote(folder)}"
        raise RunError(f"{folder} was not finished", next_step=f"resume it: {again}")
    table = run.table("predictions")
    if "context" not in table["model"].unique().to_pylist():
        raise other
    return table


def _prior_notes(source: str, table: pa.Table, times: pa.Table | None) -> Any:
    """The notes that were known before each image: of a build, which linked them, or of a file by time."""
    from cxrhf.context.prior import of_build, of_file

    if Path(source).is_dir():
        from cxrhf.data.load import load_images, load_notes

        images = load_images(source, columns=["image_id", "prior_note_ids", "study_time"])
        return of_build(images, load_notes(source), predictions=table)
    from cxrhf.tables.files import existing_file

    existing_file(Path(source))  # whether it is there is said before what else is missing
    return of_file(source, times=times, predictions=table)
