"""Anybody's generated reports (files or tables, long or wide) -> the GENERATION table, and what was understood.

Rules. A report that was generated empty stays, as "", and is counted; a row without a reference cannot be compared with
anything, is left out and counted. Without a patient column each image counts as its own patient; without an image
column rows are numbered. A file that does not name its model is called by its file name, one that does not name its
way of decoding "as given". Sex that is missing or unknown is null. In CSV a cell that only says NA, None or null is
an empty one. Nothing is sent anywhere.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cxrhf.errors import TableError
from cxrhf.schema import GENERATION
from cxrhf.tables import cells
from cxrhf.tables.checks import MOST_GROUP, MOST_ID, check, quoted
from cxrhf.tables.columns import GenerationColumns, GenerationPlan, is_generations, plan_generations
from cxrhf.tables.files import Kind, RawTable, open_raw
from cxrhf.tables.predictions import shorten_list
from cxrhf.tables.times import alike_notes, filled, first_repeated, refuse_ids, refuse_long, two_patients

__all__ = ["GenerationColumns", "LoadedGenerations", "is_generations", "load_generations"]


AS_GIVEN = "as given"
KEY_COLUMNS = ("image_id", "model", "strategy")
_UNKNOWN = ("u", "unknown", "unk", "n", "x", "?", "-", "not known", "not specified", "unspecified", "not stated")


def load_generations(
    source: Any, *, columns: GenerationColumns | None = None, **named: str | None
) -> LoadedGenerations:
    """GENERATION rows of a file, several files, a run folder, a table, a DataFrame, a dictionary or a list of rows.

    Columns are found by their usual names or named:
    `load_generations("theirs.csv", generated="hyp", reference="findings+impression", patient="pid")`, or for several
    ways of decoding side by side `generated="greedy=hyp_greedy,rich=hyp_rich"`.
    """
    given = columns if columns is not None else _columns_of(named)
    sources = _sources(source)
    parts = [_load_one(each, given) for each in sources]
    table = pa.concat_tables([table for table, _ in parts]).combine_chunks()
    readings = tuple(reading for _, reading in parts)
    if len(parts) > 1 and (pair := first_repeated([table[name] for name in KEY_COLUMNS])):
        ends = np.cumsum([part.num_rows for part, _ in parts])
        names = [readings[int(np.searchsorted(ends, row, side="right"))].source for row in pair]
        raise TableError(
            f"{names[0]} and {names[1]} hold a report for the same image, model and strategy",
            next_step="add a model column to each file, or read the files one by one with --model NAME",
        )
    return LoadedGenerations(check(table, GENERATION, source="generations"), readings)


def _columns_of(named: Mapping[str, str | None]) -> GenerationColumns:
    try:
        return GenerationColumns(**named)
    except TypeError:
        from dataclasses import fields

        known = [each.name for each in fields(GenerationColumns)]
        unknown = next(name for name in named if name not in known)
        raise TableError(f"unknown column role {quoted(unknown)}", allowed=f"one of {', '.join(known)}") from None


def _sources(source: Any) -> list[Any]:
    """One path or table, or several paths; a run folder stands for the reports in it."""
    if isinstance(source, (str, os.PathLike)):
        path = Path(source)
        if path.is_dir() and not (path / "generations.parquet").is_file():
            raise TableError(f"{path} has no generations.parquet", next_step="name a file with reports")
        return [path / "generations.parquet" if path.is_dir() else path]
    if isinstance(source, Sequence) and source and all(isinstance(each, (str, os.PathLike)) for each in source):
        return [found for each in source for found in _sources(each)]
    if isinstance(source, Sequence) and not source:
        raise TableError("no file with reports is given", next_step="cxrhf generate --from reports.csv")
    return [source]


def _load_one(source: Any, columns: GenerationColumns) -> tuple[pa.Table, GenerationReading]:
    raw = open_raw(source)
    refuse_long(raw)
    names = ["" if at in raw.nested else name for at, name in enumerate(raw.columns)]
    plan = plan_generations(names, columns, raw.name)
    kinds: dict[int, Kind] = dict.fromkeys(sorted(plan.used()), "text")
    cols = _Cells(raw, dict(zip(kinds, raw.load(kinds), strict=True)))
    if cols.n_rows == 0:
        raise TableError(f"{raw.name}: the table has no rows", next_step="check how the file was made")
    model = Path(source).name.split(".")[0] if isinstance(source, (str, os.PathLike)) else "model"
    shared, notes = _shared_columns(cols, plan, model)
    reference = _reference(cols, plan)
    blocks, used = [], plan.used()
    n_empty = 0
    for strategy, at in plan.generated.items():
        generated = cols.texts(at)
        n_empty += generated.null_count
        block = dict(shared) | {"reference": reference, "generated": generated.fill_null("")}
        if strategy is not None:
            block["strategy"] = pa.repeat(pa.scalar(strategy, pa.string()), cols.n_rows)
        blocks.append(filled(block, GENERATION, cols.n_rows))
    _refuse_repeated(blocks[0], raw)
    table = pa.concat_tables(blocks)
    if n_empty:
        notes.append(f"{n_empty:,} of {table.num_rows:,} generated reports are empty and are kept")
    table = table.filter(pc.not_equal(table["reference"], ""))
    if missing := pc.sum(pc.equal(reference, "")).as_py() or 0:
        notes.append(f"excluded {missing:,} of {cols.n_rows:,} rows without a reference report")
    if not table.num_rows:
        raise TableError(f"{raw.name}: no row has a reference report", next_step="name the column: --reference COLUMN")
    if table["sex"].null_count and "sex" in plan.roles:
        n_images = _n(table.filter(pc.is_null(table["sex"])), "image_id")
        notes.append(f"no known sex for {n_images:,} of {_n(table, 'image_id'):,} images")
    if several := _several_references(table):
        notes.append(f"{several:,} images have different references in different rows")
    return table, GenerationReading(
        source=raw.name,
        columns=_columns_read(cols, plan),
        ignored=tuple(name for at, name in enumerate(raw.columns) if at not in used and name.strip()),
        n_rows=cols.n_rows,
        n_reports=table.num_rows,
        n_images=_n(table, "image_id"),
        n_patients=_n(table, "patient_id"),
        models=tuple(pc.unique(table["model"]).to_pylist()),
        strategies=tuple(pc.unique(table["strategy"]).to_pylist()),
        notes=tuple(notes),
    )


@dataclass(frozen=True, slots=True)
class _Cells:
    """The columns a plan needs, read once, with the place of each cell at hand."""

    raw: RawTable
    columns: Mapping[int, pa.ChunkedArray]

    @property
    def n_rows(self) -> int:
        return len(next(iter(self.columns.values())))

    def at(self, at: int) -> tuple[pa.ChunkedArray, cells.Where]:
        return self.columns[at], cells.Where(self.raw.name, self.raw.columns[at], self.raw.place)

    def texts(self, at: int) -> pa.Array:
        """Reports, trimmed; null where there is none. Numbers are no reports."""
        column, where = self.at(at)
        kind = cells.plain(column).type
        if not (pa.types.is_string(kind) or pa.types.is_null(kind)):
            raise TableError(
                str(where), got=f"a column of type {kind}", allowed="reports as text",
                next_step="name the columns: --generated COLUMN, --reference COLUMN",
            )  # fmt: skip
        words = cells.text(column, where)
        filled = words.drop_null()
        if (
            len(filled)
            and pc.all(pc.match_substring_regex(filled, r"^[-+]?[0-9]*\.?[0-9]+([eE][-+]?[0-9]+)?$")).as_py()
        ):
            raise TableError(
                str(where), got="numbers", allowed="reports as text",
                next_step="name the columns with --generated COLUMN and --reference COLUMN; for predictions of "
                "findings, run cxrhf audit",
            )  # fmt: skip
        return words


def _reference(cols: _Cells, plan: GenerationPlan) -> pa.Array:
    """The reference of each row, "" where it is missing; several columns are joined by a space."""
    parts = [cols.texts(at) for at in plan.reference]
    if len(parts) == 1:
        return parts[0].fill_null("")
    rows = zip(*(part.to_pylist() for part in parts), strict=True)  # Arrow's own join drops rows where all are null
    return pa.array([" ".join(filter(None, row)) for row in rows], pa.string())


def _shared_columns(cols: _Cells, plan: GenerationPlan, model: str) -> tuple[dict[str, pa.Array], list[str]]:
    """Columns that do not depend on the way of decoding."""
    roles, n, notes = plan.roles, cols.n_rows, list[str]()
    out: dict[str, pa.Array] = {}
    if "image" in roles:
        out["image_id"] = cells.identifiers(*cols.at(roles["image"]), notes=notes)
    else:
        out["image_id"] = pc.binary_join_element_wise("row", pa.array(np.arange(1, n + 1)).cast(pa.string()), "-")
        notes.append("no image column: each row counts as one image, and rows are numbered")
    patients = pa.nulls(n, pa.string())
    if "patient" in roles:
        patients = cells.names(*cols.at(roles["patient"]), MOST_ID, notes)
        notes += alike_notes(patients, "patient")
    if "patient" not in roles:
        notes.append(
            "NO PATIENT COLUMN: each image counts as its own patient, so intervals are too narrow if patients have "
            "several reports. Name the column: --patient COLUMN"
        )
    elif patients.null_count:
        rows = f"{patients.null_count:,} row{'s' * (patients.null_count != 1)}"
        notes.append(f"no patient id in {rows}: each such image counts as its own patient")
    out["patient_id"] = pc.coalesce(patients, pc.binary_join_element_wise("image", out["image_id"], ":"))
    for role, default in (("model", model), ("strategy", AS_GIVEN), ("dataset", None)):
        if role in roles:
            refuse_ids(cols.columns[roles[role]], cols.raw.columns[roles[role]], role, cols.raw.name, role)
            out[role] = cells.names(*cols.at(roles[role]))
            out[role] = out[role] if default is None else out[role].fill_null(default)
        else:
            out[role] = pa.repeat(pa.scalar(plan.constants.get(role, default), pa.string()), n)
    if "race" in roles:
        out["race"] = cells.names(*cols.at(roles["race"]), MOST_GROUP)
    if "sex" in roles:
        out["sex"], said = _sexes(*cols.at(roles["sex"]))
        notes += said
    if "age" in roles:
        ages = cells.ages(*cols.at(roles["age"]))
        if ages.n_unknown:
            several = "s" * (ages.n_unknown != 1)
            notes.append(
                f"{ages.n_unknown:,} age{several} could not be read (first: {ages.example!r}): treated as missing"
            )
        out["age"] = pa.array(ages.values, from_pandas=True)
    return out, notes


def _sexes(column: pa.ChunkedArray, where: cells.Where) -> tuple[pa.Array, list[str]]:
    """M and F; words for "not known" are null; other values stay, and are told."""
    coded = cells.sexes(column, where).dictionary_encode()
    meaning = [None if word.lower() in _UNKNOWN else word for word in coded.dictionary.to_pylist()]
    other = [word for word in meaning if word not in (None, "M", "F")]
    notes = (
        [f"column {quoted(where.column)}: {shorten_list(other, 6)} are kept as groups, with M and F"] if other else []
    )
    return pa.array(meaning, pa.string()).take(coded.indices), notes


def _refuse_repeated(table: pa.Table, raw: RawTable) -> None:
    """One report for each image, model and way of decoding; one patient for each image. Rows are named, ids are not."""
    if pair := first_repeated([table[name] for name in KEY_COLUMNS]):
        raise TableError(
            f"{raw.name}, {raw.place(pair.first)} and {raw.place(pair.second)}",
            got="the same image, model and strategy twice",
            allowed="one row per image, model and strategy",
            next_step="remove one row, or name the column that distinguishes them: --image, --model or --strategy",
        )
    if pair := two_patients(table["image_id"], table["patient_id"]):
        raise TableError(
            f"{raw.name}, {raw.place(pair.first)} and {raw.place(pair.second)}",
            got="one image with two patients",
            allowed="one patient per image",
            next_step="fix the patient id, or name the right columns: --image COLUMN --patient COLUMN",
        )


def _columns_read(cols: _Cells, plan: GenerationPlan) -> tuple[tuple[str, str], ...]:
    names = cols.raw.columns
    said = [
        ("generated", ", ".join(f"{names[at]} ({key})" if key else names[at] for key, at in plan.generated.items()))
    ]
    said.append(("reference", " + ".join(names[at] for at in plan.reference)))
    said += [(role, names[at]) for role, at in plan.roles.items()]
    return tuple(said + [(role, repr(value)) for role, value in plan.constants.items()])


def _several_references(table: pa.Table) -> int:
    found = table.group_by("image_id").aggregate([("reference", "count_distinct")])
    return int(pc.sum(pc.greater(found["reference_count_distinct"], 1)).as_py() or 0)


def _n(table: pa.Table, name: str) -> int:
    return int(pc.count_distinct(table[name]).as_py())


# What was understood of a file with generated reports -> a few lines a person can check.


@dataclass(frozen=True, slots=True)
class GenerationReading:
    """What was understood of one source, for people to check."""

    source: str
    columns: tuple[tuple[str, str], ...]  # role, column
    ignored: tuple[str, ...]
    n_rows: int
    n_reports: int
    n_images: int
    n_patients: int
    models: tuple[str, ...]
    strategies: tuple[str, ...]
    notes: tuple[str, ...]

    def lines(self) -> list[str]:
        """A few lines to print."""
        counts = (
            (self.n_rows, "row"),
            (self.n_reports, "report"),
            (self.n_images, "image"),
            (self.n_patients, "patient"),
        )
        said = [f"{self.source}: " + ", ".join(f"{n:,} {noun}{'s' * (n != 1)}" for n, noun in counts)]
        said.append("  columns: " + ", ".join(f"{role} = {column}" for role, column in self.columns))
        said.append(f"  models: {shorten_list(self.models, 6)}; strategies: {shorten_list(self.strategies, 6)}")
        if self.ignored:
            said.append("  not used: " + shorten_list(self.ignored, 12))
        return said + [f"  note: {note}" for note in self.notes]


@dataclass(frozen=True, slots=True)
class LoadedGenerations:
    """GENERATION rows and one reading per source."""

    table: pa.Table
    readings: tuple[GenerationReading, ...]

    @property
    def notes(self) -> tuple[str, ...]:
        """Everything a reader of the numbers should know about the input."""
        return tuple(f"{reading.source}: {note}" for reading in self.readings for note in reading.notes)

    def lines(self) -> list[str]:
        """What was understood, to print."""
        return [line for reading in self.readings for line in reading.lines()]
