"""A published CSV file, gzipped or not -> Arrow batches of text, with errors that name file, line and remedy.

Files stream: only one block is in memory. Everything is read as text, because ids with leading zeros, times and labels
are each parsed where their meaning is known. What is damaged is an error and never a shorter table: a cut archive, a
renamed column, a quotation mark that is not closed, and any record that Arrow did not return.
"""

from __future__ import annotations

import csv
import io
import sys
import time
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, cast

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.csv as pcsv

from cxrhf.errors import SourceError, did_you_mean
from cxrhf.metrics.compiled import compiled
from cxrhf.tables.checks import quoted

if TYPE_CHECKING:
    from numpy.typing import NDArray


_BOM = b"\xef\xbb\xbf"  # a mark that some editors put before the first letter
_BLOCK = 8 << 20  # bytes handed to the parser at a time; a cell must fit into one
_PATIENCE = 5.0  # seconds that Arrow's threads get to drop a file


class _Damaged(Exception):
    """What was found wrong while Arrow was asking for more bytes."""


def open_bytes(path: Path) -> IO[bytes]:
    """The bytes of a file, unzipped when its name ends in .gz, by the fastest reader that is installed."""
    if not path.name.endswith(".gz"):
        return path.open("rb")
    try:
        from isal import igzip_threaded
    except ImportError:  # an optional wheel: the standard library gives the same bytes, slower
        import gzip

        return cast("IO[bytes]", gzip.open(path, "rb"))
    return cast("IO[bytes]", igzip_threaded.open(str(path), "rb", threads=1, block_size=_BLOCK))


class _Watched(io.RawIOBase):
    """A byte stream that looks at every quotation mark on its way to the parser."""

    def __init__(self, path: Path, stream: IO[bytes]) -> None:
        self.path, self.stream, self.watch = path, stream, new_watch()
        self.said, self.stopped = "", False
        self.given: list[bytes] = []

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def read(self, size: int = -1) -> bytes:
        if self.stopped:
            return b""
        data = self._read(size)
        if data:
            mark = len(_BOM) if self.watch[BYTES] == 0 and data.startswith(_BOM) else 0
            self.watch[BYTES] += mark
            if not watch_block(data[mark:] if mark else data, self.watch):
                self.fail(f"line {self._line()}: a quotation mark is not closed")
        elif not is_closed(self.watch):
            self.fail(f"line {self._line()}: a quotation mark is not closed before the end of the file")
        self.given = [*self.in_use(), data] if data else self.in_use()
        return data

    def in_use(self) -> list[bytes]:
        """Blocks that Arrow has not dropped yet: it keeps the very bytes it was given, without a copy."""
        alone = max(sys.getrefcount(each) for each in [bytearray()])  # counted as the blocks are
        return [each for each in self.given if sys.getrefcount(each) > alone]

    def _line(self) -> int:
        """The line of the mark that is wrong: a second look at the file, only after an error."""
        return line_at(self.path, int(self.watch[OPENED]))

    def _read(self, size: int) -> bytes:
        try:
            return self.stream.read(size)
        except (EOFError, zlib.error, OSError, ValueError) as error:
            self.fail(f"the gzip file is truncated or damaged ({error})")
            raise

    def fail(self, said: str) -> None:
        self.said = self.said or said
        raise _Damaged(said)


def line_at(path: Path, position: int) -> int:
    """The number of the line that a byte of an unzipped file stands on."""
    line, left = 1, position
    with open_bytes(path) as stream:
        while left > 0 and (data := stream.read(min(left, _BLOCK))):
            line += data.count(b"\n")
            left -= len(data)
    return line


def header(path: Path) -> list[str]:
    """The column names of a CSV file."""
    try:
        with open_bytes(path) as stream:
            line = stream.readline(1 << 20)
    except (EOFError, zlib.error, OSError) as error:
        damaged = path.name.endswith(".gz") and path.is_file()
        what = "the gzip file is truncated or damaged" if damaged else "the file cannot be read"
        raise SourceError(f"{path.name}: {what} ({error})", next_step=f"copy {path} again") from None
    try:
        text = line.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise SourceError(
            f"{path.name}, line 1",
            got="other bytes",
            allowed="UTF-8 text",
            next_step=f"copy {path} again",
        ) from None
    if not text.strip():
        raise SourceError(f"{path.name} is empty", next_step=f"copy {path} again")
    return next(csv.reader([text]))


def columns_of(path: Path, names: Sequence[str]) -> list[str]:
    """The header, checked to hold these columns."""
    found = header(path)
    for name in names:
        if name not in found:
            hint = did_you_mean(name, found)
            raise SourceError(
                path.name,
                allowed=f'a column "{name}"',
                got=f"columns {', '.join(found)}",
                next_step=(f"{hint} Was it renamed? " if hint else "") + f"download {path} again",
            )
    twice = [name for name in names if found.count(name) > 1]
    if twice:
        raise SourceError(
            f"{path.name}: column {quoted(twice[0])} appears {found.count(twice[0])} times",
            next_step=f"download {path} again",
        )
    return found


def check_start(path: Path) -> None:
    """Look at the first block of a file too large to be read whole: it unzips, and its quotation marks are in order."""
    with open_bytes(path) as stream:
        source = _Watched(path, stream)
        try:
            source.read(_BLOCK)
        except _Damaged:
            raise _explain(path, source, _Damaged(source.said), 0) from None


def stream_csv(
    path: Path,
    columns: Sequence[str],
    *,
    optional: Sequence[str] = (),
) -> Iterator[pa.RecordBatch]:
    """Batches of the named columns as text, in the order named; empty cells are null, absent optional ones all null."""
    found = columns_of(path, columns)
    there = [*columns, *(name for name in optional if name in found)]
    wanted = pa.schema([pa.field(name, pa.string()) for name in (*columns, *optional)])
    names = [name if found.count(name) == 1 else f"{name}\0{at}" for at, name in enumerate(found)]
    rows = 0
    with open_bytes(path) as stream:
        source = _Watched(path, stream)
        held = sys.getrefcount(source)
        reader: Any = None
        try:
            reader = pcsv.open_csv(
                pa.PythonFile(source, mode="r"),
                pcsv.ReadOptions(column_names=names, skip_rows=1, block_size=_BLOCK),
                pcsv.ParseOptions(newlines_in_values=True),
                pcsv.ConvertOptions(
                    column_types={name: pa.string() for name in names},
                    include_columns=there,
                    null_values=[""],
                    strings_can_be_null=True,
                    quoted_strings_can_be_null=True,
                ),
            )
            for batch in reader:
                rows += batch.num_rows
                absent = pa.nulls(batch.num_rows, pa.string())
                parts = [batch.column(name) if name in there else absent for name in wanted.names]
                yield pa.RecordBatch.from_arrays(parts, schema=wanted)
        except GeneratorExit:
            # Arrow reads ahead in threads of its own that call back into Python: left alone they abort the process
            # when it ends. There is no way to stop them but to let them come to the end.
            source.stopped = True
            if reader is not None:
                for _ in reader:
                    pass
            reader = None
            _wait_for_release(source, held)
            raise
        except (_Damaged, pa.ArrowException, UnicodeDecodeError) as error:
            raise _explain(path, source, error, len(found)) from None
        reader = None
        _wait_for_release(source, held)
        expected = record_count(source.watch) - 1  # without the header
        if rows != expected:
            raise SourceError(
                path.name,
                allowed=f"{expected:,} rows",
                got=f"{rows:,}",
                next_step=f"copy {path} again",
            )


def _wait_for_release(source: _Watched, held: int) -> None:
    """Wait until Arrow's threads have dropped a file of ours, of which there were `held` references, and its blocks.

    The last batch may be handed over before the threads are done. One that drops a Python object while the interpreter
    ends is ended by force, and takes the process with it (1 in 30 on busy cores).
    """
    end = time.monotonic() + _PATIENCE
    while time.monotonic() < end:
        # One reference more: the argument of this function.
        if sys.getrefcount(source) <= held + 1 and not source.in_use():
            source.given = []
            return
        time.sleep(0.001)


def read_csv(path: Path, columns: Sequence[str], *, optional: Sequence[str] = ()) -> pl.DataFrame:
    """A whole CSV file as text columns."""
    schema = pa.schema([pa.field(name, pa.string()) for name in (*columns, *optional)])
    table = pa.Table.from_batches(list(stream_csv(path, columns, optional=optional)), schema=schema)
    frame = pl.from_arrow(table)
    assert isinstance(frame, pl.DataFrame)
    return frame


def numbers(frame: pl.DataFrame, column: str, kind: Any, path: Path) -> pl.Series:
    """A text column as numbers; a cell that is neither a number nor empty is an error that names its record."""
    text = frame.get_column(column)
    parsed = text.str.strip_chars().cast(pl.Float64, strict=False)
    bad = parsed.is_null() & text.is_not_null()
    if bad.any():
        at = int(bad.arg_max() or 0)
        raise SourceError(
            f'{path.name}, column "{column}", row {at + 1}',
            got=quoted(text[at]),
            allowed="a number",
            next_step=f"fix the cell, or copy {path} again",
        )
    return parsed.cast(kind)


def times(column: str) -> pl.Expr:
    """A text column of `2180-05-06 22:23:00`, or of bare dates, as times; what is neither becomes null."""
    text = pl.col(column).str.strip_chars()
    full = text.str.to_datetime("%Y-%m-%d %H:%M:%S%.f", strict=False, time_unit="us")
    return pl.coalesce(full, text.str.to_datetime("%Y-%m-%d", strict=False, time_unit="us")).alias(column)


def _explain(path: Path, source: _Watched, error: Exception, width: int) -> SourceError:
    again = f"copy {path} again"
    if source.said:
        return SourceError(f"{path.name}{_place(source.said)}", next_step=again)
    said = str(error).splitlines()[0]
    if "UTF8" in said or "utf-8" in said.lower():
        return SourceError(
            f"{path.name}, line {_not_utf8(path)}", got="other bytes", allowed="UTF-8 text", next_step=again
        )
    line = _uneven_line(path, width)
    if line is not None:
        return SourceError(
            f"{path.name}, line {line[0]}",
            got=str(line[1]),
            allowed=f"{width} cells, as in the header",
            next_step=again,
        )
    return SourceError(f"{path.name}: the file cannot be read as CSV ({said})", next_step=again)


def _not_utf8(path: Path) -> int:
    """The first line that is not UTF-8: a slow second look, only after an error."""
    line = 0
    with open_bytes(path) as stream:
        for line, data in enumerate(stream, start=1):
            try:
                data.decode("utf-8")
            except UnicodeDecodeError:
                return line
    return line


def _place(said: str) -> str:
    return f", {said}" if said.startswith("line ") else f": {said}"


def _uneven_line(path: Path, width: int) -> tuple[int, int] | None:
    """The first record with another number of cells than the header: a slow second look, only after an error."""
    csv.field_size_limit(1 << 30)
    with open_bytes(path) as stream:
        reader = csv.reader(io.TextIOWrapper(stream, "utf-8", "replace", newline=""))
        start = 1
        for row in reader:
            if row and len(row) != width:
                return start, len(row)
            start = reader.line_num + 1
    return None


# Blocks of a CSV file -> the line where its quotation marks go wrong, and how many records it holds.
#
# Arrow's reader forgives: where a closing mark is missing it joins two notes into one without a word. So every byte
# is looked at once, in compiled code, while it is handed to Arrow, and the records Arrow returns are counted against
# these.

_MARK, _COMMA, _NEWLINE, _RETURN = 34, 44, 10, 13  # bytes: a quotation mark, and what ends cells and lines
_START, _PLAIN, _QUOTED, _CLOSED = 0, 1, 2, 3  # where in a cell the last byte was
# What a watch carries from block to block: state, bytes read, records, whether the line is empty so far, and the byte
# at which the last cell with a quotation mark began.
STATE, BYTES, RECORDS, EMPTY, OPENED = 0, 1, 2, 3, 4
_ONES, _HIGHS = np.uint64(0x0101010101010101), np.uint64(0x8080808080808080)
_MARKS = np.uint64(0x2222222222222222)  # eight quotation marks


def new_watch() -> NDArray[np.int64]:
    """The state before the first byte: no record, at the start of an empty line."""
    return np.array([_START, 0, 0, 1, 0], dtype=np.int64)


def watch_block(data: bytes, watch: NDArray[np.int64]) -> bool:
    """Read a block; False where a quotation mark stands that CSV does not allow: `watch[OPENED]` is then its byte."""
    words = np.frombuffer(data, np.uint64, count=len(data) // 8)
    return bool(_watched(np.frombuffer(data, np.uint8), words, watch))


@compiled
def _watched(block: NDArray[np.uint8], words: NDArray[np.uint64], watch: NDArray[np.int64]) -> bool:
    state, start, records, empty, opened = watch[0], watch[1], watch[2], watch[3], watch[4]
    good = True
    at, n = 0, len(block)
    while at < n:
        if state == _QUOTED:
            # Most of a notes file is inside marks, where only the next mark matters: eight bytes at a time.
            while at < n and block[at] != _MARK:
                if at & 7 == 0:
                    word = at >> 3
                    while word < len(words):
                        apart = words[word] ^ _MARKS
                        if (apart - _ONES) & ~apart & _HIGHS:  # some byte of it is zero: a mark
                            break
                        word += 1
                    if word << 3 > at:
                        at = word << 3
                        continue
                at += 1
            if at >= n:
                break
            state = _CLOSED
            at += 1
            continue
        byte = block[at]
        if byte == _NEWLINE:
            if empty == 0:
                records += 1
            empty = 1
            state = _START
        elif byte == _MARK:
            if state == _START:
                state = _QUOTED
                opened = start + at
            elif state == _CLOSED:  # a doubled mark inside a cell
                state = _QUOTED
            else:
                good = False
                opened = start + at
                break
            empty = 0
        elif byte == _COMMA:
            state = _START
            empty = 0
        elif byte != _RETURN:
            if state == _CLOSED:
                good = False
                break
            state = _PLAIN
            empty = 0
        at += 1
    watch[0], watch[1], watch[2], watch[3], watch[4] = state, start + n, records, empty, opened
    return good


def is_closed(watch: NDArray[np.int64]) -> bool:
    """Whether the file may end here: no cell is open."""
    return bool(watch[STATE] != _QUOTED)


def record_count(watch: NDArray[np.int64]) -> int:
    """Records so far, the last one without its line end included."""
    return int(watch[RECORDS]) + int(watch[EMPTY] == 0)
