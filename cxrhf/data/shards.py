"""Image rows with the paths of their pictures -> Parquet shards that hold the pictures, and a quarantine of bad ones.

A shard is written beside its place and renamed, so it is there whole or not at all. It carries the fingerprint of the
plan it belongs to: a build that was stopped goes on where it was, and a shard of other settings is written again.
The fingerprint is the caller's; pictures that changed on disk under the same settings are not noticed.
Pictures are stored without compression (zstd takes less than 0.1% off JPEG) and without a dictionary, so
that `cxrhf.data.shards` reads one of them straight from its place in the file; every other column is zstd.
The schema carries Hugging Face features: `datasets.load_dataset("parquet", data_files=...)` shows pictures.
Times are stored as text (stored_times).
"""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePath
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from cxrhf.data.images import BadImage, decode_picture, stored
from cxrhf.data.notes import from_stored, to_stored
from cxrhf.errors import TableError
from cxrhf.schema import IMAGE
from cxrhf.tables.checks import check, quoted
from cxrhf.tables.files import write_atomically

ROWS_PER_SHARD = 500
ROWS_WITHOUT_PIXELS = 100_000
ROWS_PER_GROUP = 100  # some 4 MB of pictures at 512 pixels: what a streaming reader takes at a time
METADATA_KEY = b"cxrhf"
QUARANTINE = pa.schema([(name, pa.string()) for name in ("image_id", "study_id", "patient_id", "path", "kind", "said")])

_IMAGE_TYPE = IMAGE.field("image").type
_ENDINGS = {".png", ".dcm", ".dicom", ".jpg", ".jpeg"}


@dataclass(frozen=True, slots=True)
class ShardPlan:
    """The rows of one split (IMAGE columns without `image`, and `path`), cut into shards in their order."""

    split: str
    rows: pa.Table
    rows_per_shard: int = ROWS_PER_SHARD

    def __post_init__(self) -> None:
        if self.rows_per_shard < 1:
            raise ValueError(f"rows_per_shard: expected at least 1, got {self.rows_per_shard}")
        missing = [name for name in ("image_id", "patient_id", "path") if name not in self.rows.column_names]
        if missing:
            raise TableError(
                f"{self.split}, rows",
                allowed=f'a column "{missing[0]}"',
                got=f"columns {', '.join(self.rows.column_names)}",
            )

    @property
    def names(self) -> list[str]:
        """File names, in order; none where the split has no rows."""
        count = math.ceil(self.rows.num_rows / self.rows_per_shard)
        return [f"{self.split}-{number:05d}-of-{count:05d}.parquet" for number in range(count)]

    def shard(self, number: int) -> pa.Table:
        """The rows of one shard."""
        return self.rows.slice(number * self.rows_per_shard, self.rows_per_shard)


@dataclass(frozen=True, slots=True)
class ShardResult:
    """One shard on disk: how many rows it holds, and the pictures left out (QUARANTINE)."""

    path: Path
    rows: int
    quarantined: pa.Table
    skipped: bool = False  # it was finished before


def write_shards(
    plan: ShardPlan,
    folder: Path,
    *,
    build: Path,
    fingerprint: str,
    size: int | None,
    threads: int = 0,
    metadata: Mapping[str, Any] | None = None,
    progress: bool = True,
) -> list[ShardResult]:
    """Write the shards of a split that are not finished yet; `build` keeps what a later run needs to go on.

    `size` is the longest side of the pictures, None for tables without pixels; `threads` 0 is one a core. Progress goes
    to stderr, on terminals only.
    """
    from tqdm import tqdm

    about = {**(metadata or {}), "fingerprint": fingerprint}
    kept = [build / f"{name.removesuffix('.parquet')}.quarantine.parquet" for name in plan.names]
    results = [
        _resume_shard(folder / name, beside, fingerprint, plan.shard(number).num_rows)
        for number, (name, beside) in enumerate(zip(plan.names, kept, strict=True))
    ]
    total, before = plan.rows.num_rows, sum(each.rows + each.quarantined.num_rows for each in results if each)
    quiet = None if progress else True  # None: where stderr is no terminal
    with tqdm(total=total, initial=before, desc=plan.split, unit=" images", disable=quiet) as bar:
        for number, (name, beside) in enumerate(zip(plan.names, kept, strict=True)):
            if results[number] is None:
                for draft in folder.glob(f".{name}.*.tmp"):
                    draft.unlink()  # of a run that was killed
                rows = plan.shard(number)
                done = write_shard(rows, folder / name, size=size, threads=threads, metadata=about, heard=bar.update)
                _write_quarantine(done.quarantined, beside, about)
                results[number] = done
    return [each for each in results if each is not None]


def place_shards(results: Sequence[ShardResult], folder: Path, split: str) -> int:
    """Put the shards of a split into their folder, empty ones left out and the others numbered anew; their number.

    They are linked, not moved: a build that is killed here begins this step again and finds all of them.
    """
    full = [each for each in results if each.rows]
    folder.mkdir(parents=True, exist_ok=True)
    for number, each in enumerate(full):
        target = folder / f"{split}-{number:05d}-of-{len(full):05d}.parquet"
        target.unlink(missing_ok=True)
        try:
            os.link(each.path, target)
        except OSError:
            shutil.copyfile(each.path, target)
    return len(full)


def write_shard(
    rows: pa.Table,
    target: Path,
    *,
    size: int | None,
    threads: int = 0,
    metadata: Mapping[str, Any] | None = None,
    heard: Callable[[int], object] | None = None,
) -> ShardResult:
    """Read the pictures of `rows` and write one shard, in the same order, without those that cannot be used.

    `heard` is told how many more pictures are done. Equal rows and pictures give equal bytes, whatever the threads.
    """
    table, quarantined = fill_pictures(rows, size=size, threads=threads, heard=heard, source=target.name)
    _write(table, target, metadata or {}, ROWS_PER_GROUP if size is not None else ROWS_WITHOUT_PIXELS)
    return ShardResult(target, table.num_rows, quarantined)


def fill_pictures(
    rows: pa.Table,
    *,
    size: int | None,
    threads: int = 0,
    heard: Callable[[int], object] | None = None,
    source: str = "images",
) -> tuple[pa.Table, pa.Table]:
    """IMAGE rows with their pictures in the place of `path`, in the same order, and the QUARANTINE of the bad ones."""
    paths = rows.column("path").to_pylist()
    table = check(rows.drop_columns(["path"]), IMAGE, source=source)
    found: list[bytes | BadImage | None] = [None] * len(paths)
    if size is not None:
        with ThreadPoolExecutor(threads or os.cpu_count() or 1) as pool:  # Pillow decodes outside the GIL
            for number, each in enumerate(pool.map(lambda path: _picture(path, size), paths)):
                found[number] = each
                if heard:
                    heard(1)
    elif heard:
        heard(len(paths))
    bad = {number: each for number, each in enumerate(found) if isinstance(each, BadImage)}
    quarantined = _quarantine(table, paths, bad)
    if bad:
        good = [number for number in range(len(paths)) if number not in bad]
        table = table.take(pa.array(good, pa.int64()))
        paths, found = [paths[number] for number in good], [found[number] for number in good]
    if size is not None:
        names = pa.array([shown_name(path) for path in paths], pa.string())
        pictures = pa.StructArray.from_arrays([pa.array(found, pa.binary()), names], fields=list(_IMAGE_TYPE))
        table = table.set_column(table.schema.get_field_index("image"), IMAGE.field("image"), pictures)
    return table, quarantined


def is_finished_shard(target: Path, fingerprint: str) -> bool:
    """Whether a shard is whole and belongs to the plan with this fingerprint."""
    try:
        about = (pq.read_schema(target).metadata or {}).get(METADATA_KEY)
    except (OSError, pa.ArrowInvalid):  # not there, or no Parquet footer at its end
        return False
    return about is not None and json.loads(about).get("fingerprint") == fingerprint


def shown_name(path: str | Path) -> str:
    """The file name a stored picture carries: no folder, and the ending of what its bytes are."""
    name = PurePath(path).name
    ending = PurePath(name).suffix.lower()
    if ending in {".jpg", ".jpeg"}:
        return name
    return f"{name[: -len(ending)] if ending in _ENDINGS else name}.jpg"


def features(schema: pa.Schema) -> dict[str, Any]:
    """The features of a schema as `datasets` writes them; `image` decodes to a picture."""
    return {field.name: {"_type": "Image"} if field.type == _IMAGE_TYPE else _feature(field.type) for field in schema}


def _feature(kind: pa.DataType) -> dict[str, Any]:
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return {"feature": _feature(kind.value_type), "_type": "List"}
    if pa.types.is_struct(kind):
        return {field.name: _feature(field.type) for field in kind}
    name = {"double": "float64", "float": "float32", "halffloat": "float16"}.get(str(kind), str(kind))
    return {"dtype": name, "_type": "Value"}


def _picture(path: str | None, size: int) -> bytes | BadImage:
    if path is None:
        return BadImage("missing", "the source names no file")
    try:
        return stored(Path(path), size)
    except BadImage as bad:
        return bad


def _quarantine(table: pa.Table, paths: list[str | None], bad: Mapping[int, BadImage]) -> pa.Table:
    ids = table.select(["image_id", "study_id", "patient_id"]).take(pa.array(list(bad), pa.int64()))
    said = {
        "path": [paths[number] for number in bad],
        "kind": [each.kind for each in bad.values()],
        "said": [each.said for each in bad.values()],
    }
    columns = [*ids.columns, *(pa.array(values, pa.string()) for values in said.values())]
    return pa.Table.from_arrays(columns, schema=QUARANTINE)


def _write(table: pa.Table, target: Path, metadata: Mapping[str, Any], rows_per_group: int) -> None:
    table = to_stored(table)
    table = table.replace_schema_metadata(
        {
            **(IMAGE.metadata or {}),
            b"huggingface": json.dumps({"info": {"features": features(table.schema)}}),
            METADATA_KEY: json.dumps(dict(metadata), sort_keys=True),
        }
    )
    leaves = [leaf for field in table.schema for leaf in _leaves(field.name, field.type)]
    write_atomically(
        target,
        lambda file: pq.write_table(
            table,
            file,
            row_group_size=rows_per_group,
            compression={leaf: "NONE" if leaf == "image.bytes" else "ZSTD" for leaf in leaves},
            use_dictionary=[leaf for leaf in leaves if leaf != "image.bytes"],
        ),
    )


def _leaves(name: str, kind: pa.DataType) -> list[str]:
    """Parquet's names for the parts of a column."""
    if pa.types.is_struct(kind):
        return [leaf for field in kind for leaf in _leaves(f"{name}.{field.name}", field.type)]
    if pa.types.is_list(kind):
        return _leaves(f"{name}.list.element", kind.value_type)
    return [name]


def _write_quarantine(table: pa.Table, target: Path, metadata: Mapping[str, Any]) -> None:
    table = table.replace_schema_metadata({METADATA_KEY: json.dumps(dict(metadata), sort_keys=True)})
    write_atomically(target, lambda file: pq.write_table(table, file, compression="zstd"))


def _resume_shard(target: Path, beside: Path, fingerprint: str, planned: int) -> ShardResult | None:
    """A shard that an earlier run finished, with its quarantine; None where either is missing or of another plan."""
    if not (is_finished_shard(target, fingerprint) and is_finished_shard(beside, fingerprint)):
        return None
    quarantined = _plain_quarantine(beside)
    rows = pq.read_metadata(target).num_rows
    if rows + quarantined.num_rows != planned:
        return None
    return ShardResult(target, rows, quarantined, skipped=True)


def _plain_quarantine(file: Path) -> pa.Table:
    return pq.read_table(file, partitioning=None).replace_schema_metadata(None)


# Parquet shards -> their pictures by row, in any order, as fast as a trainer asks for them.
#
# Parquet gives whole row groups only, a hundred pictures to get one. But where pictures are stored plain (as
# `cxrhf.data.shards` does) their bytes lie in the file as they are: the first touch of a row group finds out where,
# and from then on a picture is one read of its own bytes. Files are opened for each read, since a set has more shards
# than a process may hold open. Shards that others wrote compressed are read by row group through a small cache.

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
            return decode_picture(data, side)
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
