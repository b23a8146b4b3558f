"""The folder of a finished build -> IMAGE and NOTE tables, with the label policy that the build recorded.

A build keeps raw labels in images/<split>-*.parquet; build.json says under which policy they are read. Pictures are
large and are read only when `columns` names `image`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from cxrhf.data.fields import NO_FINDING, apply_policy, check_policy
from cxrhf.data.folder import RECORD
from cxrhf.data.notes import from_stored
from cxrhf.data.splits import NAMES
from cxrhf.errors import RunError, TableError, did_you_mean
from cxrhf.schema import NOTE
from cxrhf.tables.checks import quoted
from cxrhf.tables.files import read_object
from cxrhf.tables.folders import describe_path, free_folder_name, suggest_folder

POLICY_KEY = b"label_policy"
RAW = "raw"


def build_record(folder: str | Path) -> dict[str, Any]:
    """What build.json holds; a folder without it is no finished build."""
    path = Path(folder) / RECORD
    if not path.is_file():
        one = f"cxrhf build synthetic --out {free_folder_name(folder, 'data/twin')}"
        how = f"name a folder that cxrhf build made, or make one: {one}"
        raise RunError(
            str(folder),
            got=describe_path(folder),
            allowed=f"a finished build (a folder with {RECORD})",
            next_step=suggest_folder(folder, RECORD) or how,
        )
    record = read_object(path, next_step="build again with --overwrite")
    if "labels" not in record or not isinstance(record.get("findings"), list):
        raise RunError(f"{path} names no labels or no findings", next_step="build again with --overwrite")
    return record


def load_images(
    folder: str | Path, *, split: str | None = None, labels: str | None = None, columns: Sequence[str] | None = None
) -> pa.Table:
    """The images of a build, of one split or of all (train, validate, test), rows in the order they were written.

    The validation split is also found as `validation`.

    labels: the recorded policy if None, another policy by name, or "raw" for 1 / 0 / -1 / null as published. The
    table's schema metadata says which: {b"label_policy": b"masked"}. columns: all but the picture if None, else those
    named, in that order; `image` among them reads the pictures.
    """
    record = build_record(folder)
    policy = record["labels"] if labels is None else labels
    check_policy(policy, RAW)
    files = _image_files(Path(folder), split)
    there = list(dict.fromkeys(name for path in files for name in _schema(path).names))
    wanted = [name for name in there if name != "image"] if columns is None else list(columns)
    for name in wanted:
        if name not in there:
            raise TableError(
                f"images of {folder}: unknown column {quoted(name)}",
                allowed=f"one of {', '.join(there)}",
                next_step=did_you_mean(name, there),
            )
    findings = [name for name in record["findings"] if name in wanted]
    # Policy masked looks at No Finding for the other labels, asked for or not.
    more = [NO_FINDING] if findings and NO_FINDING in there and NO_FINDING not in wanted else []
    table = _read(files, [*wanted, *more])
    if policy != RAW and findings:
        table = _with_labels(table, findings, policy)
    # pyarrow keeps the order of the file, users expect theirs.
    table = table.select(wanted)
    return table.replace_schema_metadata({**(table.schema.metadata or {}), POLICY_KEY: policy.encode()})


def list_splits(folder: str | Path) -> list[str]:
    """The splits a build has images of, train, validate and test first."""
    return list(dict.fromkeys(_split_name(path) for path in _shards(Path(folder), "*")))


def load_notes(folder: str | Path, *, columns: Sequence[str] | None = None) -> pa.Table:
    """The notes of a build, all columns of NOTE or those named."""
    wanted = list(NOTE.names if columns is None else columns)
    for name in wanted:
        if name not in NOTE.names:
            raise TableError(
                f"unknown column {quoted(name)} in the NOTE table",
                allowed=f"one of {', '.join(NOTE.names)}",
                next_step=did_you_mean(name, NOTE.names),
            )
    return _read(_note_files(Path(folder)), wanted).select(wanted)


def _split_name(shard: Path) -> str:
    return shard.name.split("-")[0]


def _shards(folder: Path, split: str) -> list[Path]:
    """Files of a split or of all ("*"): train, validate, test, then any other; within a split by number."""

    def place(shard: Path) -> tuple[int, str]:
        name = _split_name(shard)
        return (*NAMES, name).index(name), shard.name

    return sorted((folder / "images").glob(f"{split}-*.parquet"), key=place)


def _image_files(folder: Path, split: str | None) -> list[Path]:
    # As `datasets` and the Hub spell it; the files of a build say `validate`.
    files = _shards(folder, "validate" if split == "validation" else split or "*")
    if files:
        return files
    there = list_splits(folder)
    if split is not None and there:
        raise RunError(
            f"{folder}: unknown split {quoted(split)}",
            allowed=f"one of {', '.join(there)}",
            next_step=did_you_mean(split, there),
        )
    raise RunError(f"{folder} has no images", next_step=f"cxrhf build DATASET --out {folder} --configuration images")


def _note_files(folder: Path) -> list[Path]:
    build_record(folder)
    files = sorted((folder / "notes").glob("*.parquet"))
    if not files:
        raise RunError(f"{folder} has no notes", next_step=f"cxrhf build DATASET --out {folder} --configuration linked")
    return files


def _open_parquet(path: Path) -> pq.ParquetFile:
    try:
        return pq.ParquetFile(path)
    except (pa.ArrowException, OSError) as error:
        said = str(error).splitlines()[0]
        raise TableError(f"{path.name}: the file cannot be read as Parquet ({said})", next_step="build again") from None


def _schema(path: Path) -> pa.Schema:
    with _open_parquet(path) as file:
        return file.schema_arrow


def _read(files: Sequence[Path], columns: Sequence[str]) -> pa.Table:
    tables = []
    for path in files:
        with _open_parquet(path) as file:
            missing = [name for name in columns if name not in file.schema_arrow.names]
            if missing:
                raise TableError(
                    f"{path.name}: column {quoted(missing[0])} is missing, but other files of the build have it",
                    next_step="build again with --overwrite",
                )
            tables.append(from_stored(file.read(columns=list(columns))))
    return pa.concat_tables(tables)


def _with_labels(table: pa.Table, findings: Sequence[str], policy: str) -> pa.Table:
    """Only the labels go through polars: pictures and texts stay where they are."""
    used = [*findings, *([NO_FINDING] if NO_FINDING in table.column_names and NO_FINDING not in findings else [])]
    frame = pl.from_arrow(table.select(used))
    assert isinstance(frame, pl.DataFrame)
    # On raw labels, all at once: with No Finding replaced first, the others would see another column.
    applied = apply_policy(frame, findings, policy)
    for finding in findings:
        at = table.schema.get_field_index(finding)
        values = pa.chunked_array([applied.get_column(finding).to_arrow()]).cast(pa.int8())
        table = table.set_column(at, pa.field(finding, pa.int8()), values)
    return table
