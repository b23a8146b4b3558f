"""Frames -> one gzipped CSV file, the same bytes every time, compressed in a thread while the next frame is made."""

from __future__ import annotations

import gzip
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import TracebackType

import polars as pl

_TIME = "%Y-%m-%d %H:%M:%S"
_LEVEL = 1  # the made-up notes then shrink as much as real ones do
_WAITING = 2  # frames held while the thread is busy


class GzipCsv:
    """`with GzipCsv(path) as file: file.write(frame)`; the first frame brings the header.

    No name and no time are stored in the archive. Nulls are blank cells, times "2180-05-06 22:23:00".
    """

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._raw = path.open("wb")
        self._zip = gzip.GzipFile("", "wb", _LEVEL, self._raw, mtime=0)
        self._pool = ThreadPoolExecutor(1)
        self._busy: list[Future[int]] = []
        self._first = True

    def write(self, frame: pl.DataFrame) -> None:
        """Add the rows of a frame with the columns of the first."""
        text = frame.write_csv(include_header=self._first, datetime_format=_TIME).encode()
        self._first = False
        self._busy.append(self._pool.submit(self._zip.write, text))
        if len(self._busy) > _WAITING:
            self._busy.pop(0).result()

    def __enter__(self) -> GzipCsv:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            for each in self._busy:
                each.result()
            self._zip.close()
        finally:
            self._pool.shutdown()
            self._raw.close()


def write_table(path: Path, frame: pl.DataFrame) -> None:
    """One frame as one gzipped CSV file."""
    with GzipCsv(path) as file:
        file.write(frame)
