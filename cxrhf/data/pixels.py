"""Parquet shards -> their pictures by row, in any order, as fast as a trainer asks for them.

Parquet gives whole row groups only, a hundred pictures to get one. But where pictures are stored plain (as
`cxrhf.data.shards` does) their bytes lie in the file as they are: the first touch of a row group finds out where, and
from then on a picture is one read of its own bytes. Files are opened for each read, since a set has more shards than a
process may hold open. Shards that others wrote compressed are read by row group through a small cache.
"""

from __future__ import annotations

import re
import threading
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from cxrhf.data.images import BadImage, decoded
from cxrhf.data.stored_times import from_stored
from cxrhf.errors import TableError
from cxrhf.tables.checks import quoted

CACHE_MEGABYTES = 256
_SHARD = re.compile(r"^(?P<split>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})\.parquet$")
_BYTES = "image.bytes"


def open_shards(source: str | Path | Sequence[str | Path], split: str | None = None) -> Pixels:
    """The pictures of a folder of shards (of one split, or of all), or of the files named, in the order of the names.

    A set that is not complete, or mixed from two builds, is an error.
    """
    if not isinstance(source, (str, Path)):
        return Pixels([Path(each) for each in source])
    folder = Path(source)
    if folder.is_file():
        return Pixels([folder])
    named = [(each, _SHARD.match(each.name)) for each in sorted(folder.glob("*.parquet"))]
    counts: dict[str, list[int]] = {}
    for _, match in named:
        if match:
            counts.setdefault(match["split"], []).append(int(match["count"]))
    if not counts or (split is not None and split not in counts):
        raise TableError(
            f"{folder}: found no shards" + (f" of split {quoted(split)}" if split else ""),
            got=f"splits {', '.join(counts)}" if counts else "no file with a name such as train-00000-of-00012.parquet",
            next_step="build the dataset: cxrhf build DATASET --root FOLDER",
        )
    for name, found in counts.items():
        if (split is None or name == split) and found != [len(found)] * len(found):
            raise TableError(
                f"{folder}: the shards of split {quoted(name)} are incomplete",
                got=f"{len(found)} files, of sets of {' and '.join(str(each) for each in sorted(set(found)))}",
                next_step="build again, or remove the files of an older build",
            )
    return Pixels([each for each, match in named if match and (split is None or match["split"] == split)])


class Pixels:
    """Pictures by row over all shards. Threads may share one."""

    def __init__(self, files: Sequence[Path], cache_megabytes: int = CACHE_MEGABYTES) -> None:
        self.files, self.cache_megabytes = tuple(files), cache_megabytes
        self._shards: list[_Shard] = []
        self._length = 0
        for path in self.files:
            self._shards.append(_Shard(path, self._length))
            self._length += len(self._shards[-1].offset)
        self._starts = np.array([shard.start for shard in self._shards], np.int64)
        self._lock = threading.Lock()
        self._groups: OrderedDict[tuple[int, int], pa.Array] = OrderedDict()

    def __len__(self) -> int:
        return self._length

    @cached_property
    def table(self) -> pa.Table:
        """Every column but the pictures; read when it is first asked for, which a worker of a trainer never does."""
        tables = [shard.read_table() for shard in self._shards]
        return pa.concat_tables(tables, promote_options="default") if tables else pa.table({})

    def __reduce__(self) -> tuple[Any, ...]:  # a data loader's worker opens the files itself
        return (Pixels, (self.files, self.cache_megabytes))

    def __getitem__(self, row: int) -> NDArray[np.uint8]:
        """The grey levels of one picture, rows x columns."""
        return self._decoded(row)

    def batch(self, rows: Iterable[int], side: int | None = None) -> list[NDArray[np.uint8]]:
        """Pictures in the order asked for; with `side`, each resized to side x side (bilinear), ready to be stacked."""
        return [self._decoded(int(row), side) for row in rows]

    def _decoded(self, row: int, side: int | None = None) -> NDArray[np.uint8]:
        data = self.encoded(row)
        try:
            return decoded(data, side)
        except BadImage as error:
            shard, within = self._place(row)
            raise TableError(
                f"{shard.path.name}, row {within + 1}: the image is damaged ({error.said})",
                next_step="build again: a build puts damaged images into its quarantine",
            ) from None

    def encoded(self, row: int) -> bytes:
        """The bytes of one picture as they are stored."""
        if not -len(self) <= row < len(self):
            raise IndexError(f"row {row} of {len(self)}")
        shard, within = self._place(row)
        if shard.offset[within] < 0:
            found = self._learnt(self._shards.index(shard), shard, within)
            if found is not None:
                return found
        with shard.path.open("rb", buffering=0) as file:
            file.seek(shard.offset[within])
            data = file.read(shard.length[within])
        if len(data) != shard.length[within]:
            raise TableError(f"{shard.path.name}: the file changed while it was being read", next_step="open it again")
        return data

    def _place(self, row: int) -> tuple[_Shard, int]:
        row %= len(self)
        number = int(np.searchsorted(self._starts, row, side="right")) - 1
        return self._shards[number], row - int(self._starts[number])

    def _learnt(self, number: int, shard: _Shard, within: int) -> bytes | None:
        """The picture from its decoded row group, where the file does not hold it plainly; None where it does."""
        group = shard.group_of(within)
        with self._lock:  # one reader a group: the others wait and find it known
            values = self._groups.get((number, group))
            if values is None and shard.offset[within] < 0:
                values = shard.read_group(group)
                if shard.locate(group, values):
                    return None
                self._groups[number, group] = values
                while len(self._groups) > 1 and self._cached() > self.cache_megabytes * 1e6:
                    self._groups.popitem(last=False)
            if values is None:
                return None
            self._groups.move_to_end((number, group))
        data = values[within - shard.groups[group]].as_py()
        if data is None:
            raise TableError(
                f"{shard.path.name}, row {within + 1}: the row has no image",
                next_step="build again without --no-pixels",
            )
        return bytes(data)

    def _cached(self) -> int:
        return sum(values.nbytes for values in self._groups.values())


class _Shard:
    """One file: where its row groups start, and where each picture lies once that is known (-1 before)."""

    def __init__(self, path: Path, start: int) -> None:
        self.path, self.start = path, start
        if not path.is_file():
            raise TableError(f"{path} does not exist", next_step="check the path")
        try:
            self.metadata = pq.read_metadata(path)
        except pa.ArrowInvalid as error:
            raise TableError(
                f"{path.name}: the Parquet file is incomplete or damaged ({error})", next_step="build again"
            ) from None
        self.schema = self.metadata.schema.to_arrow_schema()
        leaves = [self.metadata.schema.column(i).path for i in range(self.metadata.num_columns)]
        if _BYTES not in leaves:
            raise TableError(
                f"{path.name}: found no column of images",
                got=f"columns {', '.join(self.schema.names)}",
                allowed='a column "image" with bytes',
            )
        self.column = leaves.index(_BYTES)
        counts = [self.metadata.row_group(i).num_rows for i in range(self.metadata.num_row_groups)]
        self.groups = np.cumsum([0, *counts])
        self.offset = np.full(self.metadata.num_rows, -1, np.int64)
        self.length = np.zeros(self.metadata.num_rows, np.int64)

    def group_of(self, row: int) -> int:
        return int(np.searchsorted(self.groups, row, side="right")) - 1

    def read_table(self) -> pa.Table:
        """Every column but the pictures."""
        columns = [name for name in self.schema.names if name != "image"]
        with pq.ParquetFile(self.path, metadata=self.metadata) as file:
            return from_stored(file.read(columns=columns, use_threads=False).replace_schema_metadata(None))

    def read_group(self, group: int) -> pa.Array:
        """The pictures of a row group, decoded by Arrow."""
        with pq.ParquetFile(self.path, metadata=self.metadata) as file:
            column = file.read_row_group(group, columns=[_BYTES], use_threads=False).column("image")
        return column.combine_chunks().field("bytes")

    def locate(self, group: int, values: pa.Array) -> bool:
        """Find out where each value of a group lies in the file; False where one is not there as it is."""
        chunk = self.metadata.row_group(group).column(self.column)
        if chunk.compression != "UNCOMPRESSED" or values.null_count:
            return False
        with self.path.open("rb", buffering=0) as file:
            file.seek(chunk.data_page_offset)
            region = file.read(chunk.total_compressed_size)
        offsets, at = np.empty(len(values), np.int64), 0
        for place, value in enumerate(values):
            content = value.as_buffer().to_pybytes()
            # A value follows its length in 4 bytes; only the first of a page stands elsewhere.
            at = at + 4 if region.startswith(content, at + 4) else region.find(content, at)
            if at < 0:
                return False
            offsets[place] = at
            at += len(content)
        rows = slice(self.groups[group], self.groups[group + 1])
        self.length[rows] = [len(value.as_buffer()) for value in values]
        self.offset[rows] = chunk.data_page_offset + offsets  # last: readers take it as the sign that all is known
        return True
