"""A file, a table or a run with generated reports -> the tables that their audits read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from cxrhf.config import AuditConfig

if TYPE_CHECKING:
    from cxrhf.audits.reports.written import Tables
    from cxrhf.tables.generations import GenerationColumns


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
    from cxrhf.tables.sources import predictions_in

    if isinstance(source, (str, Path)) and Path(source).is_dir():
        return predictions_in(Path(source)) is not None or not reports
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
    from cxrhf.schema import TABLES, read_table
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
