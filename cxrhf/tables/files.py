"""Files (Parquet, CSV, TSV, JSON lines, also gzipped) <-> Arrow tables.

`open_raw` learns a file's columns first, so that only the columns that are needed are parsed; every complaint names the
file and the line. `write_table` writes beside the target and renames, so a table is there whole or not at all.
Known limits: a text file is held in memory once while it is read, so a gzip file may hold 2 GB at most; JSON lines have
no NaN, so NaN is written as null; CSV holds no lists or structs.
"""

from __future__ import annotations

import contextlib
import csv
import gzip
import io
import itertools
import json
import math
import os
import shlex
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pyarrow.csv as pcsv

from cxrhf.errors import CxrhfError, RunError, TableError, did_you_mean
from cxrhf.tables.checks import check, quoted

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
        return open_csv(path)
    if form == "jsonl":
        return raw_table(_read_jsonl(path, None), path.name, lambda row: f"line {_jsonl_line(path, row)}")
    return _open_parquet(path)


def _open_parquet(path: Path) -> RawTable:
    """Only the wanted columns are read: a table may hold pictures and reports beside its predictions."""
    import pyarrow.parquet as pq

    with _explain_parquet_errors(path):
        schema = pq.read_schema(path)
    names = schema.names

    def load(wanted: Mapping[int, Kind]) -> list[pa.ChunkedArray]:
        chosen = [names[position] for position in wanted]
        if len(set(names)) < len(names):
            return raw_table(_read_parquet(path), path.name).load(wanted)
        table = _read_parquet(path, chosen)
        return [table.column(name) for name in chosen]

    return RawTable(path.name, tuple(names), load, lambda row: f"row {row + 1}", _nested_columns(schema))


def _jsonl_line(path: Path, row: int) -> int:
    filled = (at for at, line in enumerate(read_bytes(path).splitlines(), start=1) if line.strip())
    return next(itertools.islice(filled, row, None), row + 1)


def raw_table(table: pa.Table, name: str, place: Callable[[int], str] = lambda row: f"row {row + 1}") -> RawTable:
    """A table in memory as a RawTable; rows count from 1."""

    def load(wanted: Mapping[int, Kind]) -> list[pa.ChunkedArray]:
        return [table.column(position) for position in wanted]

    return RawTable(name, tuple(table.column_names), load, place, _nested_columns(table.schema))


def _nested_columns(schema: pa.Schema) -> frozenset[int]:
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
def _explain_parquet_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except (pa.ArrowException, OSError, ValueError) as error:
        raise TableError(
            f"{path.name}: the file cannot be read as Parquet ({str(error).splitlines()[0]})",
            next_step="write or copy it again",
        ) from None


def _read_parquet(path: Path, columns: Sequence[str] | None = None) -> pa.Table:
    import pyarrow.parquet as pq

    with _explain_parquet_errors(path):
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
    encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, default=_as_text).encode
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


def _as_text(value: object) -> str:
    if isinstance(value, bytes):
        raise TableError("JSON lines cannot hold bytes", next_step="write the table as .parquet")
    return str(value)


# The first bytes of a file -> whether it is what its name says; if not, what it is and how to put it right.
#
# A spreadsheet renamed to .csv, a log-in page saved as .csv, a pointer of git LFS: each would otherwise be said to
# lack some column.

_HEAD = 512
_SHEET = "open it with a spreadsheet program and save the sheet as CSV"
# First bytes -> what such a file is, and what to do with it; None: it only has the wrong name.
_STARTS: tuple[tuple[bytes, str, str | None], ...] = (
    (b"PK\x03\x04", "a spreadsheet or a zip archive", f"{_SHEET}, or unzip it"),
    (b"\xd0\xcf\x11\xe0", "an old spreadsheet (.xls)", _SHEET),
    (b"\x1f\x8b", "gzipped", None),
    (b"PAR1", "a Parquet file", None),
    (b"version https://git-lfs", "a git LFS pointer", "run `git lfs pull`"),
    (b"<!doctype", "a web page", "download it again; the site may require a login"),
    (b"<html", "a web page", "download it again; the site may require a login"),
    (b"\x80\x04", "a Python pickle", "write the table as Parquet with pandas.DataFrame.to_parquet"),
    (b"\x80\x05", "a Python pickle", "write the table as Parquet with pandas.DataFrame.to_parquet"),
)
_KINDS = {"parquet": "a readable Parquet file", "csv": "a CSV file", "jsonl": "JSON lines"}


def check_kind(path: Path, form: str) -> Path:
    """The path itself, unless the file is plainly of another kind than its name says."""
    try:
        with path.open("rb") as file:
            head = file.read(_HEAD)
    except OSError as error:
        said = error.strerror or error
        raise TableError(f"{path} cannot be read ({said})", next_step="check the path and its permissions") from None
    name = path.name.lower()
    expected = b"\x1f\x8b" if name.endswith(".gz") else b"PAR1" if form == "parquet" else b""
    if not head or (expected and head.startswith(expected)):
        return path  # whether it is whole, the reader says
    low = head.lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    found = next((each for each in _STARTS if head.startswith(each[0]) or low.startswith(each[0])), None)
    if found is None and not expected:
        return path
    what, remedy = found[1:] if found else ("text", None) if _is_text(head) else ("something else", "make it again")
    if remedy is None:
        remedy = (
            f"rename the file with `mv {shlex.quote(str(path))} {shlex.quote(str(_expected_name(path, what, form)))}`"
        )
    wanted = "gzipped" if expected == b"\x1f\x8b" else _KINDS[form]
    raise TableError(f"{path.name} is {what}, not {wanted}", next_step=remedy)


def _is_text(head: bytes) -> bool:
    try:
        head.decode("utf-8")
    except UnicodeDecodeError as error:
        return error.start > len(head) - 4  # a letter cut in two
    return b"\0" not in head


def _expected_name(path: Path, what: str, form: str) -> Path:
    """The name that a file of this kind should have."""
    if what == "gzipped":
        return path.with_suffix(".csv.gz") if form == "parquet" else path.with_name(path.name + ".gz")
    plain = path.with_suffix("") if path.suffix.lower() == ".gz" else path
    if what == "a Parquet file":
        return plain.with_suffix(".parquet")
    return plain.with_suffix(".csv") if form == "parquet" else plain


# CSV and TSV files -> Arrow columns, with the line number a person sees for every complaint.
#
# Separators are read from the header (comma, semicolon, tab, |). Cells are read as text or numbers on request and
# never guessed, so that patient 0071 stays 0071. An empty cell, nan, NA, None or null is a missing value.

MISSING = ("", "nan", "NaN", "NAN", "NA", "N/A", "n/a", "#N/A", "None", "none", "null", "NULL", "<NA>")


@dataclass(frozen=True, slots=True)
class _Text:
    path: Path
    data: bytes  # without byte order mark and leading blank lines
    skipped: int  # leading blank lines
    delimiter: str
    header: tuple[str, ...]


def open_csv(path: Path) -> RawTable:
    """The header of a CSV file, and its cells on request."""
    text = _open(path)

    def load(wanted: Mapping[int, Kind]) -> list[pa.ChunkedArray]:
        numbers = {position for position, kind in wanted.items() if kind == "number"}
        # Numbers are parsed at once; where a cell is not a number all are read as text and the caller finds the cell.
        for decimal, parsed in ((".", numbers), (",", numbers), (".", set[int]())):
            if decimal == "," and text.delimiter != ";":
                continue
            try:
                return _convert(text, list(wanted), parsed, decimal)
            except pa.ArrowInvalid as error:
                if "conversion error to double" not in str(error):
                    raise _explain(text, error) from None
        raise AssertionError("text columns cannot fail to convert to double")

    return RawTable(path.name, text.header, load, lambda row: _place(text, row))


def read_csv(path: Path, schema: pa.Schema | None) -> pa.Table:
    """A whole CSV file; types from the schema, or guessed by Arrow where there is none."""
    text = _open(path)
    types = {} if schema is None else {field.name: field.type for field in schema}
    nested = [name for name, kind in types.items() if pa.types.is_nested(kind) and name in text.header]
    if nested:
        raise TableError(
            f"{path.name}: CSV cannot hold lists or structs (column {quoted(nested[0])})",
            next_step="write the table as .parquet or .jsonl",
        )
    convert = pcsv.ConvertOptions(column_types=types, null_values=[""], strings_can_be_null=True)
    convert.quoted_strings_can_be_null = False
    try:
        return pcsv.read_csv(
            pa.BufferReader(text.data),
            pcsv.ReadOptions(column_names=text.header, skip_rows_after_names=1, block_size=8 << 20),
            _parse_options(text),
            convert,
        )
    except (pa.ArrowException, UnicodeDecodeError) as error:
        raise _explain(text, error) from None


def _parse_options(text: _Text) -> pcsv.ParseOptions:
    return pcsv.ParseOptions(delimiter=text.delimiter, newlines_in_values=b'"' in text.data)


def _convert(text: _Text, wanted: list[int], numbers: set[int], decimal: str) -> list[pa.ChunkedArray]:
    # Columns go by position: names may be repeated or padded.
    names = [str(position) for position in range(len(text.header))]
    convert = pcsv.ConvertOptions(
        column_types={str(each): pa.float64() if each in numbers else pa.string() for each in wanted},
        include_columns=[str(each) for each in wanted],
        null_values=list(MISSING),
        strings_can_be_null=True,
        decimal_point=decimal,
    )
    read = pcsv.ReadOptions(column_names=names, skip_rows_after_names=1, block_size=8 << 20)
    return pcsv.read_csv(pa.BufferReader(text.data), read, _parse_options(text), convert).columns


def _open(path: Path) -> _Text:
    data = read_bytes(path).removeprefix(b"\xef\xbb\xbf")
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        raise TableError(
            path.name, got="UTF-16", allowed="UTF-8 text", next_step=f"convert the file with `{iconv(path, 'utf-16')}`"
        )
    body = data.lstrip(b"\r\n")
    skipped = data[: len(data) - len(body)].replace(b"\r\n", b"\n").count(b"\n")
    if not body or body.isspace():
        raise TableError(f"{path.name}: the file is empty", next_step="check how the file was made")
    if not body.endswith((b"\n", b"\r")):
        body += b"\n"  # Arrow does not see the end of a lone header otherwise
    if b"\0" in body[:4096]:
        raise TableError(path.name, allowed="text", got="binary data", next_step="check the file and its ending")
    try:
        line = body[: body.find(b"\n")].decode("utf-8")
    except UnicodeDecodeError as error:
        raise not_utf8(path, b"\n" * skipped + body, skipped + error.start) from None
    delimiter = "\t" if ".tsv" in path.name.lower() else max(",;\t|", key=line.count)
    text = _Text(path, body, skipped, delimiter, ())
    try:
        header = next(row for _, row in _records(text, strict=False))
    except (csv.Error, StopIteration) as error:
        raise TableError(
            f"{path.name}, line {skipped + 1}: the header cannot be read as CSV ({error})", next_step="fix the header"
        ) from None
    # Every proper file has an even number of quotes; an odd one may still be an inch mark, so look closely.
    if body.count(b'"') % 2 and (line_number := _broken_quote(text)):
        raise _quote_error(text, line_number)
    return _Text(path, body, skipped, delimiter, tuple(header))


def _records(text: _Text, *, strict: bool) -> Iterator[tuple[int, list[str]]]:
    """(line a record starts on, its cells), blank lines left out, as Arrow does."""
    lines = io.TextIOWrapper(io.BytesIO(text.data), "utf-8", "replace", newline="")
    reader = csv.reader(lines, delimiter=text.delimiter, strict=strict)
    start = text.skipped + 1
    for row in reader:
        if row:
            yield start, row
        start = text.skipped + reader.line_num + 1


def _broken_quote(text: _Text) -> int | None:
    line = text.skipped + 1
    try:
        for start, row in _records(text, strict=True):
            line = start + 1 + sum(cell.count("\n") for cell in row)
    except csv.Error as error:
        return None if "field larger" in str(error) else line
    return None


def _quote_error(text: _Text, line: int) -> TableError:
    return TableError(
        f"{text.path.name}, line {line}: a quotation mark is not closed",
        next_step='close it, or double a quotation mark inside a cell ("")',
    )


def _place(text: _Text, row: int) -> str:
    try:
        for index, (start, _) in enumerate(_records(text, strict=False)):
            if index == row + 1:
                return f"line {start}"
    except csv.Error:
        pass
    return f"line {text.skipped + row + 2}"


def _explain(text: _Text, error: Exception) -> TableError:
    """Arrow says what, seldom where: look for the line with Python's own reader."""
    name, said = text.path.name, str(error).splitlines()[0]
    if "UTF8" in said or isinstance(error, UnicodeDecodeError):
        try:
            text.data.decode("utf-8")
        except UnicodeDecodeError as bad:
            return not_utf8(text.path, b"\n" * text.skipped + text.data, text.skipped + bad.start)
    if line := _broken_quote(text):
        return _quote_error(text, line)
    try:
        for start, row in _records(text, strict=False):
            if len(row) != len(text.header):
                return TableError(
                    f"{name}, line {start}",
                    allowed=f"{len(text.header)} cells, as in the header",
                    got=str(len(row)),
                    next_step="fix the line: a cell that contains a separator requires quotation marks",
                )
    except csv.Error:
        pass
    return TableError(f"{name}: the file cannot be read as CSV ({said})", next_step="check how the file was made")


# A JSON file beside a table -> the object it holds (run.json, build.json, cxrhf.json), or one kind of error.

_DEEPEST = 50  # levels of nesting; ours have six, and code that follows them must not run out of stack


def read_object(path: Path, *, next_step: str, error: type[CxrhfError] = RunError) -> dict[str, Any]:
    """The object in a JSON file; a file that is absent, damaged, or holds something else is an error of that kind.

    NaN and infinities, which JSON does not have, are read as null.
    """
    try:
        text = path.read_text(encoding="utf-8")
        found = json.loads(text, parse_constant=lambda _: None, parse_float=_number)
        if not isinstance(found, dict):
            raise ValueError("not an object")
        if _is_too_deep(found):
            raise ValueError(f"nested more than {_DEEPEST} levels deep")
        if "\\u" in text:  # half of a pair that makes one character cannot be written again
            json.dumps(found, ensure_ascii=False).encode()
    except FileNotFoundError:
        raise error(f"{path.parent} has no {path.name}", next_step=next_step) from None
    except RecursionError:
        raise error(f"{path} is damaged (nested too deeply)", next_step=next_step) from None
    except UnicodeEncodeError:
        raise error(f"{path} is damaged (incomplete character)", next_step=next_step) from None
    except (OSError, ValueError) as wrong:
        raise error(f"{path} is damaged ({wrong})", next_step=next_step) from None
    return found


def _number(digits: str) -> float | None:
    value = float(digits)
    return value if math.isfinite(value) else None


def _is_too_deep(found: Any) -> bool:
    level = [found]
    for _ in range(_DEEPEST):
        inside = [each for box in level for each in (box.values() if isinstance(box, dict) else box)]
        level = [each for each in inside if isinstance(each, (dict, list))]
    return bool(level)


def finite(value: Any) -> Any:
    """The same as JSON can hold it: what is no finite number is null."""
    if isinstance(value, Mapping):
        return {str(key): finite(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
