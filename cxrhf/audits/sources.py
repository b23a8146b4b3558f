"""What was given to `cxrhf.audit` -> its sources by name; several sources -> the tables of several models."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from cxrhf.errors import ConfigError, TableError
from cxrhf.settings import AuditConfig

if TYPE_CHECKING:
    import pyarrow as pa

    from cxrhf.audits.reports.written import Tables
    from cxrhf.tables.generations import GenerationColumns
    from cxrhf.tables.predictions import Loaded

Progress = Callable[[str], None]


ALLOWED = (
    "a DataFrame, an Arrow table, a dictionary of columns, a list of rows, a file, a run folder; or several of them as "
    "models: a list, or a dictionary from names to them"
)
WHOLE = "table"  # what one table in memory is called


class Source(NamedTuple):
    """A path or a table; `name` is the model's where the user gave one, `label` what messages call it."""

    value: Any
    name: str | None
    label: str


def sources_of(given: Any, more: Sequence[Any] = ()) -> list[Source]:
    """The sources in what `cxrhf.audit` was given."""
    if more:
        raise ConfigError(
            "cxrhf.audit",
            got=f"{1 + len(more)} unnamed arguments",
            allowed="one input",
            next_step='pass columns as cxrhf.audit({"label": labels, "score": scores}) and several models as '
            'cxrhf.audit({"first": table, "second": table})',
        )
    if is_path(given):
        path = Path(given).expanduser()
        return [Source(path, None, str(path))]
    if isinstance(given, Mapping):
        return _of_mapping(given)
    if isinstance(given, (list, tuple)) and given and not _is_row(given[0]):
        return _of_list(given)
    if hasattr(given, "ndim") and not hasattr(given, "columns"):
        raise ConfigError(
            "values without columns", got=type(given).__name__, allowed=ALLOWED,
            next_step='pass columns as cxrhf.audit({"label": labels, "score": scores})',
        )  # fmt: skip
    return [Source(given, None, WHOLE)]


def _of_mapping(given: Mapping[Any, Any]) -> list[Source]:
    """A dictionary of columns is one table; of paths and tables, several models."""
    models = [name for name, value in given.items() if is_path(value) or _is_table(value)]
    if not models:
        return [Source(given, None, WHOLE)]
    if len(models) < len(given):
        other = next(name for name in given if name not in models)
        raise ConfigError(
            f'a dictionary with the model "{models[0]}", entry "{other}"', got=type(given[other]).__name__,
            allowed="a table, a file or a run folder", next_step="pass the columns of one table, or several models",
        )  # fmt: skip
    if wrong := [name for name in given if not isinstance(name, str) or not name.strip()]:
        raise ConfigError("the name of a model", got=repr(wrong[0]), allowed="text")
    found = []
    for name, value in given.items():
        source = Path(value).expanduser() if is_path(value) else value
        found.append(Source(source, name, name))
    return found


def _of_list(given: Sequence[Any]) -> list[Source]:
    found = []
    for at, each in enumerate(given, start=1):
        if is_path(each):
            path = Path(each).expanduser()
            found.append(Source(path, None, str(path)))
        elif _is_table(each):
            found.append(Source(each, None, WHOLE if len(given) == 1 else f"table {at}"))
        else:
            raise ConfigError(
                f"a list of inputs, item {at}", got=type(each).__name__, allowed="a row (dictionary), a table or a "
                                                                                 "file",
                next_step='pass columns as cxrhf.audit({"label": labels, "score": scores})',
            )  # fmt: skip
    return found


def is_path(value: Any) -> bool:
    return isinstance(value, (str, os.PathLike))


def _is_row(value: Any) -> bool:
    """Whether a dictionary is one row of a table, not a table of columns."""
    return isinstance(value, Mapping) and not any(
        hasattr(each, "__len__") and not isinstance(each, (str, bytes)) for each in value.values()
    )


def _is_table(value: Any) -> bool:
    if isinstance(value, Mapping):
        return not _is_row(value)
    if isinstance(value, (list, tuple)):
        return bool(value) and _is_row(value[0])
    return hasattr(value, "column_names") or (hasattr(value, "columns") and hasattr(value, "shape"))


def load_models(sources: Sequence[Source], config: AuditConfig) -> Loaded:
    """PREDICTION rows of one source or of several models."""
    import pyarrow as pa

    from cxrhf.tables.predictions import as_runs, load_predictions
    from cxrhf.tables.times import merge_times, refuse_shared

    if len(sources) == 1 or all(is_path(each.value) and each.name is None for each in sources):
        values = [each.value for each in sources]
        loaded = load_predictions(
            values[0] if len(values) == 1 else values, findings=config.findings, columns=config.columns()
        )
        return loaded if sources[0].name is None else _name_models(loaded, sources[0])
    parts = [
        _load_with_source(
            each, lambda value: load_predictions(value, findings=config.findings, columns=config.columns())
        )
        for each in sources
    ]
    parts = [_name_models(part, each) for part, each in zip(parts, sources, strict=True)]
    labels = [each.label for each in sources]
    parts = as_runs(parts, labels, config.model)
    table = pa.concat_tables([part.table for part in parts])
    refuse_shared(table, labels, [part.table.num_rows for part in parts])
    return replace(
        parts[0],
        table=table,
        readings=tuple(reading for part in parts for reading in part.readings),
        times=merge_times([part.times for part in parts], labels),
    )


def _name_models(loaded: Loaded, source: Source) -> Loaded:
    readings = tuple(replace(each, source=source.label) for each in loaded.readings)
    own = {role for reading in readings for role, _ in reading.columns}
    return replace(loaded, table=_with_model(loaded.table, source, "model" in own), readings=readings)


def _with_model(table: pa.Table, source: Source, has_own: bool) -> pa.Table:
    """The user's name for the model of a table; of several in it, before their own."""
    import pyarrow as pa

    if (source.name is None and (has_own or source.label == WHOLE)) or "model" not in table.column_names:
        return table
    own = table["model"].unique().to_pylist()
    name = source.name or (source.value.name.split(".")[0] if is_path(source.value) else source.label)
    named = {each: name if len(own) == 1 else f"{name}: {each}" for each in own}
    # "" is nobody's: the vectors of references.
    column = pa.array([named[each] if each else each for each in table["model"].to_pylist()], pa.string())
    at = table.schema.get_field_index("model")
    return table.set_column(at, table.schema.field(at), column)


def read_models(sources: Sequence[Source], config: AuditConfig) -> ReadReports:
    """Generated reports of one source or of several models, with what `cxrhf score` left beside them."""
    import pyarrow as pa

    from cxrhf.tables.generations import KEY_COLUMNS
    from cxrhf.tables.times import first_repeated

    if len(sources) == 1 or all(is_path(each.value) and each.name is None for each in sources):
        found = read_reports([each.value for each in sources], config)
        return found if sources[0].name is None else _name_report_models(found, sources[0])
    parts = [_load_with_source(each, lambda value: read_reports([value], config)) for each in sources]
    parts = [_name_report_models(part, each) for part, each in zip(parts, sources, strict=True)]

    def whole(name: str) -> pa.Table | None:
        there = [table for part in parts if (table := getattr(part.tables, name)) is not None]
        return pa.concat_tables(there).combine_chunks() if there else None

    generations = whole("generations")
    assert generations is not None
    if first_repeated([generations[name] for name in KEY_COLUMNS]) is not None:
        raise TableError(
            "two inputs have a report of the same image, model and strategy",
            next_step='name the models: cxrhf.audit({"first": table, "second": table})',
        )
    tables = parts[0].tables._replace(generations=generations, scores=whole("scores"), vectors=whole("vectors"))
    return ReadReports(tables, [line for part in parts for line in part.reading],
                       [note for part in parts for note in part.notes])  # fmt: skip


def _name_report_models(found: ReadReports, source: Source) -> ReadReports:
    tables = found.tables
    has_own = tables.generations["model"].unique().to_pylist() != ["model"]
    changed = {
        name: _with_model(table, source, has_own)
        for name in ("generations", "scores", "vectors")
        if (table := getattr(tables, name)) is not None
    }
    return found._replace(tables=tables._replace(**changed))


def _load_with_source(source: Source, load: Callable[[Any], Any]) -> Any:
    """Load a source; an error of a table in memory says which."""
    try:
        return load(source.value)
    except TableError as error:
        if not is_path(source.value):
            error.what = f"{source.label}: {error.what.removeprefix(f'{WHOLE}: ')}"
        raise


# A file, a table or a run with generated reports -> the tables that their audits read.


class ReadReports(NamedTuple):
    """Reports with what was said of them, how they were read, and what must be said."""

    tables: Tables
    reading: list[str]
    notes: list[str]


def holds_reports(source: Any, config: AuditConfig) -> bool:
    """Whether a source is, or has, generated reports."""
    if isinstance(source, (str, Path)) and Path(source).is_dir():
        return (Path(source) / "generations.parquet").is_file()
    if config.generated or config.reference:
        return True
    from cxrhf.tables.files import open_raw
    from cxrhf.tables.generations import is_generations

    return is_generations(open_raw(source).columns)


def holds_predictions(source: Any, *, reports: bool) -> bool:
    """Whether a source that has reports, or not, has predictions too: what has neither, its reader must say."""
    from cxrhf.tables.predictions import find_predictions

    if isinstance(source, (str, Path)) and Path(source).is_dir():
        return find_predictions(Path(source)) is not None or not reports
    return not reports


def columns_of(config: AuditConfig) -> GenerationColumns:
    """The columns named by the user."""
    from cxrhf.tables.generations import GenerationColumns

    named = {each.name: getattr(config, each.name, None) for each in fields(GenerationColumns)}
    return GenerationColumns(**named | {"generated": ",".join(config.generated) or None})


def read_reports(sources: Sequence[Any], config: AuditConfig) -> ReadReports:
    """The reports of files, tables and run folders, with scores and vectors where `cxrhf score` left them."""
    import pyarrow as pa

    from cxrhf.audits.reports.written import Tables
    from cxrhf.schema import TABLES
    from cxrhf.tables.files import read_table
    from cxrhf.tables.generations import load_generations

    is_path = all(isinstance(each, (str, Path)) for each in sources)
    loaded = load_generations(list(sources) if is_path else sources[0], columns=columns_of(config))
    folders = [Path(each) for each in sources if isinstance(each, (str, Path)) and Path(each).is_dir()]
    beside: dict[str, pa.Table | None] = {}
    for name in ("scores", "report_vectors"):
        there = [read_table(path, TABLES[name]) for each in folders if (path := each / f"{name}.parquet").is_file()]
        beside[name] = pa.concat_tables(there) if there else None
    tables = Tables(loaded.table, beside["scores"], beside["report_vectors"])
    return ReadReports(tables, loaded.lines(), list(loaded.notes))


# Predictions and reports as they were read -> the same with what is known of the patient before the image.


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
        from cxrhf.context.mentions import Rule

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
    from cxrhf.tables.folders import describe_path, free_folder_name, suggest_folder

    made = f"cxrhf context fit BUILD --out {free_folder_name(folder, 'runs/context')}"
    other = RunError(
        f"{folder} is not a context run",
        got=describe_path(folder),
        next_step=suggest_folder(folder, "context.json") or made,
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
    from cxrhf.context.notes import prior_notes_of_build, prior_notes_of_file

    if Path(source).is_dir():
        from cxrhf.data.load import load_images, load_notes

        images = load_images(source, columns=["image_id", "prior_note_ids", "study_time"])
        return prior_notes_of_build(images, load_notes(source), predictions=table)
    from cxrhf.tables.files import existing_file

    existing_file(Path(source))  # whether it is there is said before what else is missing
    return prior_notes_of_file(source, times=times, predictions=table)
