"""What was given to `cxrhf.audit` -> its sources by name; several sources -> the tables of several models."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from cxrhf.config import AuditConfig
from cxrhf.errors import ConfigError, TableError

if TYPE_CHECKING:
    import pyarrow as pa

    from cxrhf.auditing_reports import ReadReports
    from cxrhf.schema import Loaded

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

    from cxrhf.schema import load_predictions
    from cxrhf.tables.rows import refuse_shared
    from cxrhf.tables.sources import as_runs
    from cxrhf.tables.times import merge_times

    if len(sources) == 1 or all(is_path(each.value) and each.name is None for each in sources):
        values = [each.value for each in sources]
        loaded = load_predictions(
            values[0] if len(values) == 1 else values, findings=config.findings, columns=config.columns()
        )
        return loaded if sources[0].name is None else _named(loaded, sources[0])
    parts = [
        _said_of(each, lambda value: load_predictions(value, findings=config.findings, columns=config.columns()))
        for each in sources
    ]
    parts = [_named(part, each) for part, each in zip(parts, sources, strict=True)]
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


def _named(loaded: Loaded, source: Source) -> Loaded:
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

    from cxrhf.auditing_reports import ReadReports, read_reports
    from cxrhf.tables.generations import SAME
    from cxrhf.tables.rows import first_repeated

    if len(sources) == 1 or all(is_path(each.value) and each.name is None for each in sources):
        found = read_reports([each.value for each in sources], config)
        return found if sources[0].name is None else _named_reports(found, sources[0])
    parts = [_said_of(each, lambda value: read_reports([value], config)) for each in sources]
    parts = [_named_reports(part, each) for part, each in zip(parts, sources, strict=True)]

    def whole(name: str) -> pa.Table | None:
        there = [table for part in parts if (table := getattr(part.tables, name)) is not None]
        return pa.concat_tables(there).combine_chunks() if there else None

    generations = whole("generations")
    assert generations is not None
    if first_repeated([generations[name] for name in SAME]) is not None:
        raise TableError(
            "two inputs have a report of the same image, model and strategy",
            next_step='name the models: cxrhf.audit({"first": table, "second": table})',
        )
    tables = parts[0].tables._replace(generations=generations, scores=whole("scores"), vectors=whole("vectors"))
    return ReadReports(tables, [line for part in parts for line in part.reading],
                       [note for part in parts for note in part.notes])  # fmt: skip


def _named_reports(found: ReadReports, source: Source) -> ReadReports:
    tables = found.tables
    has_own = tables.generations["model"].unique().to_pylist() != ["model"]
    changed = {
        name: _with_model(table, source, has_own)
        for name in ("generations", "scores", "vectors")
        if (table := getattr(tables, name)) is not None
    }
    return found._replace(tables=tables._replace(**changed))


def _said_of(source: Source, load: Callable[[Any], Any]) -> Any:
    """Load a source; an error of a table in memory says which."""
    try:
        return load(source.value)
    except TableError as error:
        if not is_path(source.value):
            error.what = f"{source.label}: {error.what.removeprefix(f'{WHOLE}: ')}"
        raise
