"""Files (Parquet, CSV, TSV, JSON lines, also gzipped) <-> Arrow tables.

`open_raw` learns a file's columns first, so that only the columns that are needed are parsed; every complaint names the
file and the line. `write_table` writes beside the target and renames, so a table is there whole or not at all.
Known limits: a text file is held in memory once while it is read, so a gzip file may hold 2 GB at most; JSON lines have
no NaN, so NaN is written as null; CSV holds no lists or structs.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import itertools
import json
import os
import shlex
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa

from cxrhf.errors import TableError, did_you_mean
from cxrhf.schema import check
from cxrhf.tables.kinds import check_kind

Format = Literal["parquet", "csv", "jsonl"]
Kind = Literal["text", "number"]
# Tables shrink 3 to 30 times when gzipped, never a hundred times; a bomb of zeros, a thousand times.
MOST_INFLATED, SMALL, MOST_RATIO = 2 << 30, 64 << 20, 100
ENDINGS: dict[str, Format] = {
    ".parquet": "parquet",
    ".pq": "parquet",
    ".csv": "csv",
    ".csv.gz": "csv",
    ".tsv": "csv",
    ".tsv.gz": "csv",
    ".jsonl": "jsonl",
    ".jsonl.gz": "jsonl",
    ".ndjson": "jsonl",
}


@dataclass(frozen=True, slots=True)
class RawTable:
    """A file whose columns are known and whose cells are not read yet."""

    name: str
    columns: tuple[str, ...]
    load: Callable[[Mapping[int, Kind]], list[pa.ChunkedArray]]  # column position -> how to read it
    place: Callable[[int], str]  # row index -> where a person finds it
    nested: frozenset[int] = frozenset()  # positions of pictures, lists and structs: no cells to be read


def file_format(path: Path) -> Format:
    """The format a file's name promises; an unknown ending is an error."""
    name = path.name.lower()
    for ending in sorted(ENDINGS, key=len, reverse=True):
        if name.endswith(ending):
            return ENDINGS[ending]
    sheet = "save the sheet as CSV"
    hints = {
        ".xlsx": sheet,
        ".xls": sheet,
        ".json": "write one object per line and name the file .jsonl",
        ".zip": "unzip it",
        ".txt": "rename it to .csv, or to .tsv if the separators are tabs",
        ".pkl": "write the table as Parquet with pandas.DataFrame.to_parquet",
    }
    raise TableError(
        f"{path.name}: unknown file type",
        got=path.suffix or "a name without an ending",
        allowed=f"a name that ends in {', '.join(ENDINGS)}",
        next_step=hints.get(path.suffix.lower(), "convert or rename the file"),
    )


def existing_file(path: Path) -> Path:
    """The path itself if it is a file that can be read."""
    if path.is_dir():
        raise TableError(str(path), got="a folder", allowed="a file", next_step="name a file in the folder")
    if str(path) == "-" or path.is_fifo() or path.is_char_device():
        raise TableError(
            f"{path}: cxrhf does not read standard input or pipes",
            next_step="write the table to a file and name that file",
        )
    if not path.exists():
        folder = path.parent
        beside = [each.name for each in folder.iterdir() if each.is_file()] if folder.is_dir() else []
        raise TableError(f"{path} does not exist", next_step=did_you_mean(path.name, beside) or "check the path")
    return path


def _promised(path: Path) -> Format:
    """The format of a file that is there and is what its name says."""
    form = file_format(existing_file(path))
    check_kind(path, form)
    return form


def read_bytes(path: Path) -> bytes:
    """The bytes of a text file, unzipped when its name ends in .gz; a cut or damaged archive is an error."""
    try:
        existing_file(path)
        return _inflated(path) if path.name.lower().endswith(".gz") else path.read_bytes()
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise TableError(
            f"{path.name}: the gzip file is truncated or damaged ({error})", next_step="copy or download it again"
        ) from None
    except OSError as error:
        said = error.strerror or error
        raise TableError(f"{path} cannot be read ({said})", next_step="check the path and its permissions") from None


def _inflated(path: Path) -> bytes:
    """What a gzip file holds, read in pieces: a small file may hold more than fits in memory."""
    out = io.BytesIO()
    with path.open("rb") as packed, gzip.GzipFile(fileobj=packed) as file:
        while piece := file.read(1 << 20):
            out.write(piece)
            made, used = out.tell(), packed.tell()
            if made > MOST_INFLATED or (made > SMALL and made > MOST_RATIO * used):
                raise TableError(
                    f"{path.name}: the gzip file expands to more than a table of its size would",
                    got=f"{made >> 20:,} MB from its first {used:,} bytes",
                    allowed=f"at most {MOST_INFLATED >> 20:,} MB, and at most {MOST_RATIO} times its size on disk",
                    next_step="if you trust the file, unzip it and pass the result: "
                    f"`gunzip -k {shlex.quote(str(path))}`",
                )
    return out.getvalue()


def open_raw(source: Any) -> RawTable:
    """A path, an Arrow table, or anything Arrow can take (DataFrame, dictionary of columns, list of rows)."""
    if not isinstance(source, (str, os.PathLike)):
        return raw_table(_as_table(source), "table")
    path = Path(source)
    form = _promised(path)
    if form == "csv":
        from cxrhf.tables.delimited import open_csv

        return open_csv(path)
    if form == "jsonl":
        return raw_table(_read_jsonl(path, None), path.name, lambda row: f"line {_jsonl_line(path, row)}")
    return _open_parquet(path)


def _open_parquet(path: Path) -> RawTable:
    """Only the wanted columns are read: a table may hold pictures and reports beside its predictions."""
    import pyarrow.parquet as pq

    with _explained(path):
        schema = pq.read_schema(path)
    names = schema.names

    def load(wanted: Mapping[int, Kind]) -> list[pa.ChunkedArray]:
        chosen = [names[position] for position in wanted]
        if len(set(names)) < len(names):
            return raw_table(_read_parquet(path), path.name).load(wanted)
        table = _read_parquet(path, chosen)
        return [table.column(name) for name in chosen]

    return RawTable(path.name, tuple(names), load, lambda row: f"row {row + 1}", _nested(schema))


def _jsonl_line(path: Path, row: int) -> int:
    filled = (at for at, line in enumerate(read_bytes(path).splitlines(), start=1) if line.strip())
    return next(itertools.islice(filled, row, None), row + 1)


def raw_table(table: pa.Table, name: str, place: Callable[[int], str] = lambda row: f"row {row + 1}") -> RawTable:
    """A table in memory as a RawTable; rows count from 1."""

    def load(wanted: Mapping[int, Kind]) -> list[pa.ChunkedArray]:
        return [table.column(position) for position in wanted]

    return RawTable(name, tuple(table.column_names), load, place, _nested(table.schema))


def _nested(schema: pa.Schema) -> frozenset[int]:
    return frozenset(at for at, field in enumerate(schema) if pa.types.is_nested(field.type))


def _as_table(source: Any) -> pa.Table:
    if isinstance(source, pa.Table):
        return source
    try:
        if isinstance(source, Sequence):
            return pa.Table.from_pylist([dict(row) for row in source])
        if hasattr(source, "with_format") and hasattr(source, "column_names"):  # a datasets.Dataset
            source = source.with_format("arrow")[:]
        return pa.table(source)
    except (TypeError, ValueError, pa.ArrowException) as error:
        raise TableError(
            "the input cannot be read as a table",
            got=f"{type(source).__name__} ({error})",
            allowed="a path, an Arrow table, a DataFrame, a dictionary of columns or a list of rows",
        ) from None


@contextlib.contextmanager
def _explained(path: Path) -> Iterator[None]:
    try:
        yield
    except (pa.ArrowException, OSError, ValueError) as error:
        raise TableError(
            f"{path.name}: the file cannot be read as Parquet ({str(error).splitlines()[0]})",
            next_step="write or copy it again",
        ) from None


def _read_parquet(path: Path, columns: Sequence[str] | None = None) -> pa.Table:
    import pyarrow.parquet as pq

    with _explained(path):
        table = pq.ParquetFile(path).read(columns=None if columns is None else list(columns))
        table.validate(full=True)  # text that is not UTF-8 passes the reader and fails wherever it is first used
        return table


def _read_jsonl(path: Path, schema: pa.Schema | None) -> pa.Table:
    import pyarrow.json as pj

    data = read_bytes(path)
    if not data.strip():
        raise TableError(f"{path.name}: the file is empty", next_step="check how the file was made")
    try:
        data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise not_utf8(path, data, error.start) from None
    # One block, so that row numbers in messages count from the file's start and types are not decided block by block.
    options = pj.ReadOptions(block_size=min(max(len(data) + 1, 1 << 16), (1 << 31) - 1))
    try:
        table = pj.read_json(pa.BufferReader(data), options, pj.ParseOptions(explicit_schema=schema))
        stamps = [field.name for field in table.schema if pa.types.is_timestamp(field.type)]
        if stamps and schema is None:  # text that looks like a date is still the text the user wrote
            texts = pa.schema([(name, pa.string()) for name in stamps])
            table = pj.read_json(pa.BufferReader(data), options, pj.ParseOptions(explicit_schema=texts))
    except (pa.ArrowException, ValueError) as error:
        said = str(error).splitlines()[0].removeprefix("JSON parse error: ")
        head, _, row = said.rpartition(" in row ")
        where = f", line {int(row) + 1}" if head and row.isdigit() else ""
        raise TableError(
            f"{path.name}{where}",
            got=(head or said).rstrip("."),
            allowed="JSON lines, with one object per line and one type per column",
            next_step="fix the line",
        ) from None
    return table


def not_utf8(path: Path, data: bytes, position: int) -> TableError:
    """The error for bytes that are not UTF-8, with the line they stand on."""
    line = data.count(b"\n", 0, position) + 1
    return TableError(
        f"{path.name}, line {line}",
        got=f"byte 0x{data[position]:02x}" if position < len(data) else "other bytes",
        allowed="UTF-8 text",
        next_step=f"convert the file with `{iconv(path, 'latin1')}`",
    )


def iconv(path: Path, encoding: str) -> str:
    """The command that writes a text file again as UTF-8, beside it."""
    names = (shlex.quote(str(each)) for each in (path, path.with_name(f"utf8_{path.name}")))
    return f"iconv -f {encoding} -t utf8 " + " > ".join(names)


def read_table(path: str | os.PathLike[str], schema: pa.Schema | None = None) -> pa.Table:
    """A file as a table; with a schema its columns, types and values are checked."""
    file = Path(path)
    form = _promised(file)
    if form == "parquet":
        table = _read_parquet(file)
    elif form == "jsonl":
        table = _read_jsonl(file, schema)
    else:
        from cxrhf.tables.delimited import read_csv

        table = read_csv(file, schema)
    return table if schema is None else check(table, schema, source=file.name)


def write_table(table: pa.Table, path: str | os.PathLike[str]) -> Path:
    """Write a table in the format the name promises; a reader sees the old file or the new one, never half of it."""
    target = Path(path)
    form = file_format(target)
    if form == "csv":
        nested = [field.name for field in table.schema if pa.types.is_nested(field.type)]
        if nested:
            raise TableError(
                f'{target.name}: CSV cannot hold column "{nested[0]}" ({table.schema.field(nested[0]).type})',
                next_step="write the table as .parquet or .jsonl",
            )
    return write_atomically(target, lambda file: _write(table, file, form, target.name.lower()))


def write_atomically(target: Path, write: Callable[[Any], None]) -> Path:
    """Call `write` with a binary file that becomes `target` only when everything is written."""
    target.parent.mkdir(parents=True, exist_ok=True)
    draft = target.parent / f".{target.name}.{os.getpid()}.tmp"
    try:
        draft.unlink(missing_ok=True)
        with draft.open("xb") as file:  # made anew: a link of that name is not followed
            write(file)
        draft.replace(target)
    finally:
        draft.unlink(missing_ok=True)
    return target


def _write(table: pa.Table, file: Any, form: Format, name: str) -> None:
    if form == "parquet":
        import pyarrow.parquet as pq

        pq.write_table(table, file, compression="zstd")
        return
    # No time stamp and no name inside, so that equal tables give equal files.
    out = gzip.GzipFile("", "wb", 6, file, 0) if name.endswith(".gz") else file
    if form == "csv":
        import pyarrow.csv as pcsv

        tab = "\t" if name.endswith((".tsv", ".tsv.gz")) else ","
        pcsv.write_csv(table, out, pcsv.WriteOptions(delimiter=tab))
    else:
        _write_jsonl(table, out)
    if out is not file:
        out.close()


def _write_jsonl(table: pa.Table, out: Any) -> None:
    encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, default=_plain).encode
    names = table.column_names
    for batch in table.to_batches(max_chunksize=20_000):
        columns = [_without_nan(column).to_pylist() for column in batch.columns]
        lines = [encode(dict(zip(names, row, strict=True))) for row in zip(*columns, strict=True)]
        out.write(("\n".join(lines) + "\n").encode())


def _without_nan(column: pa.Array) -> pa.Array:
    import pyarrow.compute as pc

    if not pa.types.is_floating(column.type):
        return column
    return pc.if_else(pc.is_finite(column), column, pa.scalar(None, column.type))


def _plain(value: object) -> str:
    if isinstance(value, bytes):
        raise TableError("JSON lines cannot hold bytes", next_step="write the table as .parquet")
    return str(value)
