"""CSV and TSV files -> Arrow columns, with the line number a person sees for every complaint.

Separators are read from the header (comma, semicolon, tab, |). Cells are read as text or numbers on request and never
guessed, so that patient 0071 stays 0071. An empty cell, nan, NA, None or null is a missing value.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as pcsv

from cxrhf.errors import TableError
from cxrhf.tables.checks import quoted
from cxrhf.tables.files import Kind, RawTable, iconv, not_utf8, read_bytes

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
