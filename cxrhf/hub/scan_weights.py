"""Files of models (.safetensors, .skops, .ubj) -> the text in them, and what does not belong into weights.

safetensors: names and `__metadata__` of the header, and runs of readable letters between the numbers, for a note pasted
into a weight is a note. Refused: 8-bit tensors (our models are saved as floats; 8-bit weights of others look like
pictures, and pictures like them), tensors that are called pixels, images or patient_id, bytes that no tensor owns.
skops: a zip with `schema.json` and arrays; XGBoost's .ubj: letters between numbers. Both only in a model.
"""

from __future__ import annotations

import io
import itertools
import json
import math
import re
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cxrhf.hub.artefact import Piece
from cxrhf.hub.scan_people import ROWS, is_id_column
from cxrhf.hub.scan_text import ARCHIVE, PICTURE, UNREADABLE, Structure, View, content_of, is_text

_LONGEST_HEADER = 100 << 20
_BLOCK = 1 << 24
_FEW_BYTES = 64  # an 8-bit tensor of fewer is a flag or a state of a quantiser
_PICTURE_NAMES = {
    "pixels", "pixel_values", "image", "images", "thumbnail", "thumbnails", "film", "films", "radiographs", "scans",
    "x_train", "x_test", "inputs",
}  # fmt: skip
_TEXT_NAMES = {"notes", "reports", "texts", "sentences", "impressions"}
_INTEGERS = {"I64": np.int64, "I32": np.int32, "U64": np.uint64, "U32": np.uint32}
_READABLE = np.zeros(256, np.bool_)
_READABLE[[9, 10, 13, *range(32, 127)]] = True
_STEP, _STEPS = 16, 5  # every 16th byte readable five times in a row: a run of some 64 letters may be there
_RUN = re.compile(rb"[\t\n\r -~]{48,}")
_SKOPS_GROWTH = 200 << 20  # unpacked bytes of one member


class Tensor(NamedTuple):
    """One entry of a safetensors header."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int


def open_piece(piece: Piece) -> IO[bytes]:
    """A piece's bytes as a file."""
    return piece.content.open("rb") if isinstance(piece.content, Path) else io.BytesIO(piece.content)


def safetensors_views(piece: Piece) -> Iterator[View | Structure]:
    """Header and readable runs of a safetensors file, and what its tensors tell."""
    with open_piece(piece) as file:
        size = int.from_bytes(file.read(8), "little")
        header = _header(file.read(size)) if 0 < size <= min(_LONGEST_HEADER, piece.size) else None
        if header is None:
            yield Structure("the header", UNREADABLE, "it is not a safetensors file")
            return
        metadata, tensors = header
        for name, value in metadata.items():
            yield View(f"{name}\x1f\n{value}".encode("utf-8", "replace"), _metadata_place(name))
        names = "\x1f\n".join(tensor.name for tensor in tensors)
        yield View(names.encode("utf-8", "replace"), lambda _at: "a tensor name", prose=False)
        yield from _odd_tensors(tensors)
        if _unowned(tensors, piece.size - 8 - size):
            yield Structure("between or after the tensors", UNREADABLE, "bytes that belong to no tensor")
        for tensor in tensors:
            if tensor.dtype in _INTEGERS and 1 < math.prod(tensor.shape) <= 1 << 24:
                file.seek(8 + size + tensor.begin)
                numbers = np.frombuffer(file.read(tensor.end - tensor.begin), _INTEGERS[tensor.dtype])
                yield View(_numbers(numbers), _tensor_place(tensor.name), prose=False)
        file.seek(8 + size)
        yield from _readable_runs(file)


def _metadata_place(name: str) -> Any:
    return lambda _at: f"__metadata__, key {name}"


def _tensor_place(name: str) -> Any:
    return lambda _at: f"tensor {name}"


def _header(data: bytes) -> tuple[dict[str, str], list[Tensor]] | None:
    try:
        read = json.loads(data)
        metadata = {str(name): str(value) for name, value in read.pop("__metadata__", {}).items()}
        tensors = [
            Tensor(name, str(each["dtype"]), tuple(map(int, each["shape"])), *map(int, each["data_offsets"]))
            for name, each in read.items()
        ]
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None
    return metadata, tensors


def _odd_tensors(tensors: list[Tensor]) -> Iterator[Structure]:
    for tensor in tensors:
        own = re.split(r"[./]", tensor.name)[-1].lower()
        count = math.prod(tensor.shape)
        if is_id_column(own) or own in _TEXT_NAMES:
            yield Structure(f"tensor {tensor.name}", ROWS, "its name suggests ids or texts of patients")
        elif own in _PICTURE_NAMES and count > 1:
            yield Structure(f"tensor {tensor.name}", PICTURE, "its name suggests images")
        elif tensor.dtype in {"U8", "I8"} and count >= _FEW_BYTES:
            why = "an 8-bit tensor may be an image or text; weights of cxrhf models are floats"
            yield Structure(f"tensor {tensor.name}", PICTURE, why)


def _unowned(tensors: list[Tensor], size: int) -> bool:
    """Whether the tensors leave bytes between them or after the last."""
    at = 0
    for tensor in sorted(tensors, key=lambda each: (each.begin, each.end)):
        if tensor.begin != at or tensor.end < tensor.begin:
            return True
        at = tensor.end
    return at != size


def _numbers(numbers: NDArray[Any]) -> bytes:
    """Whole numbers that are long enough for ids, as text."""
    large = np.unique(numbers[(numbers >= 1_000_000) & (numbers <= 10**18)])
    return b"\x1f\n".join(str(each).encode() for each in large[:1_000_000].tolist())


def _readable_runs(file: IO[bytes]) -> Iterator[View]:
    """Long runs of letters between numbers. Every 16th byte is enough to see where none can be."""
    tail = b""
    while block := file.read(_BLOCK):
        data = tail + block
        sampled = _READABLE[np.frombuffer(data, np.uint8)[::_STEP]]
        inside = sampled[: len(sampled) - _STEPS + 1].copy() if len(sampled) >= _STEPS else sampled[:0]
        for step in range(1, _STEPS):
            inside &= sampled[step : step + len(inside)]
        done = 0
        for at in (np.flatnonzero(inside) * _STEP).tolist():
            if at < done:
                continue
            run = _RUN.search(data, max(0, at - _STEP), at + 4 * _STEP + 48)
            if run:
                whole = _RUN.match(data, run.start())
                done = whole.end() if whole else run.end()
                yield View(data[run.start() : done], lambda _at: "text between the numbers")
        tail = data[-256:]


def ubj_views(piece: Piece) -> Iterator[View | Structure]:
    """The words of an XGBoost model: names, parameters and whatever else is readable in it."""
    data = piece.read()
    if not data.startswith(b"{"):
        yield Structure("the whole file", UNREADABLE, "it is not an XGBoost model")
        return
    runs = [run[0] for run in re.finditer(rb"[\t\n\r -~]{4,}", data)]
    yield View(b"\x1f\n".join(runs), lambda _at: "text between the numbers")


def skops_views(piece: Piece) -> Iterator[View | Structure]:
    """Names, `schema.json` and arrays of a skops file."""
    try:
        with open_piece(piece) as file, zipfile.ZipFile(file) as packed:
            if packed.comment:
                yield View(packed.comment, lambda _at: "the comment of the archive")
            for member in packed.infolist():
                yield View(member.filename.encode(), lambda _at: "a file name in the archive", prose=False)
                with packed.open(member) as stream:
                    data = stream.read(_SKOPS_GROWTH + 1)  # what the archive says of its sizes proves nothing
                if max(len(data), member.file_size) > _SKOPS_GROWTH:
                    yield Structure(member.filename, UNREADABLE, "too large when unpacked")
                    continue
                yield from _member(member.filename, data)
    except (zipfile.BadZipFile, zlib.error, OSError, ValueError, RuntimeError, EOFError):
        yield Structure("the whole file", UNREADABLE, "it is not a skops file")


def _member(name: str, data: bytes) -> Iterator[View | Structure]:
    from cxrhf.hub.scan_text import as_text, views

    if name.endswith(".npy") and data.startswith(b"\x93NUMPY"):
        try:
            array = np.load(io.BytesIO(data), allow_pickle=False)
        except ValueError:
            yield Structure(name, UNREADABLE, "an array of objects")
            return
        if array.dtype.kind in "US":
            yield View("\x1f\n".join(map(str, array.ravel().tolist())).encode("utf-8", "replace"), lambda _at: name)
        elif array.dtype.kind in "ui" and array.dtype.itemsize == 1 and array.ndim > 1 and array.size >= _FEW_BYTES:
            yield Structure(name, PICTURE, "an 8-bit array may be an image")
        elif array.dtype.kind in "ui":
            yield View(_numbers(array.ravel().astype(np.int64)), lambda _at: name, prose=False)
    elif (text := as_text(data)) is not None:
        for each in views(name, text):
            if isinstance(each, Structure):
                yield each._replace(where=f"{name}, {each.where}")
            else:
                yield each._replace(place=lambda at, place=each.place: f"{name}, {place(at)}")  # type: ignore[misc]
    elif content := content_of(data[:400]):
        yield Structure(name, content.what, content.why)
    else:
        yield Structure(name, UNREADABLE, "neither text nor an array")


# Parquet and Arrow files -> their metadata, names, and cells as text to be looked through, a row group at a time.
#
# Cells are taken as they lie in the file: strings once each, in bulk. Binary cells are pictures, text or refused;
# lists of bytes long enough for a picture are one. Numbers are looked through only where ids may be numbers.

_APART = b"\x1f\n"
_MOST_ROWS, _MOST_READ = 20_000, 64 << 20  # rows and bytes that are read at once
_MOST_BYTES = 4 << 20  # of cells that are joined to one view: what is found in one need not be looked for in the next
_SMALLEST_PICTURE_IN_A_CELL = 784  # numbers in one cell
_HEAD = 400


def is_table(piece: Piece) -> bool:
    """Whether a piece is a Parquet or Arrow file, by its first bytes."""
    with open_piece(piece) as file:
        return file.read(6)[:4] == b"PAR1" or piece.path.endswith((".parquet", ".arrow", ".feather"))


def columns_of(piece: Piece) -> list[str] | None:
    """The names of a table's columns, inner ones too (`image.bytes`), or None where it cannot be read."""
    opened = _open(piece)
    return None if opened is None else [name for field in opened[0] for name, _ in _leaves(field.name, field.type)]


def metadata_views(piece: Piece) -> Iterator[View]:
    """Names of columns, and what the file says about itself."""
    opened = _open(piece)
    if opened is None:
        return
    schema, more, _ = opened
    names = "\x1f\n".join(name for field in schema for name, _ in _leaves(field.name, field.type))
    yield View(names.encode(), lambda _at: "a column name", prose=False)
    said = {**(schema.metadata or {}), **more}
    for field in schema:
        said |= {field.name.encode() + b"." + key: value for key, value in (field.metadata or {}).items()}
    for key, value in said.items():
        if key != b"ARROW:schema":  # the schema again, in Arrow's own binary form, as base64
            place = f"metadata, key {key.decode('utf-8', 'replace')}"
            yield View(key + _APART + value, lambda _at, place=place: place)  # type: ignore[misc]


def cell_views(piece: Piece, pixels: bool, numbers: bool) -> Iterator[View | Structure]:
    """The cells of a table. `pixels`: pictures may be in it. `numbers`: whole numbers are looked through too."""
    opened = _open(piece)
    if opened is None:
        yield Structure("the whole file", UNREADABLE, "the table cannot be read")
        return
    told: set[str] = set()
    row = 0
    for batch in opened[2]():
        for field, column in zip(batch.schema, batch.columns, strict=True):
            for name, cells in _leaf_arrays(field.name, column):
                for each in _cells(name, cells, row, pixels, numbers):
                    if not isinstance(each, Structure):
                        yield each
                    elif f"{name} {each.what}" not in told:  # once a column
                        told.add(f"{name} {each.what}")
                        yield each
        row += batch.num_rows


def _open(piece: Piece) -> tuple[Any, dict[bytes, bytes], Any] | None:
    """Schema, the file's own metadata, and a function that gives its batches."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    source = pa.BufferReader(piece.content) if isinstance(piece.content, bytes) else str(piece.content)
    try:
        if piece.path.endswith((".arrow", ".feather")):
            try:
                reader = pa.ipc.open_file(source)
                return reader.schema, {}, lambda: (reader.get_batch(at) for at in range(reader.num_record_batches))
            except pa.ArrowInvalid:
                stream = pa.ipc.open_stream(source if isinstance(piece.content, bytes) else pa.memory_map(source))
                return stream.schema, {}, lambda: stream
        file = pq.ParquetFile(source)
        more = {**(file.metadata.metadata or {}), b"created_by": str(file.metadata.created_by).encode()}
        groups = [file.metadata.row_group(at) for at in range(file.metadata.num_row_groups)]
        widest = max((group.total_byte_size / max(1, group.num_rows) for group in groups), default=1.0)
        rows = max(1, min(_MOST_ROWS, int(_MOST_READ / max(1.0, widest))))
        return file.schema_arrow, more, lambda: file.iter_batches(batch_size=rows)
    except (pa.ArrowException, OSError, ValueError):
        return None


def _leaves(name: str, kind: Any) -> Iterator[tuple[str, Any]]:
    """The columns inside a column."""
    import pyarrow as pa

    if isinstance(kind, pa.BaseExtensionType):
        kind = kind.storage_type
    if pa.types.is_struct(kind):
        for field in kind:
            yield from _leaves(f"{name}.{field.name}", field.type)
    elif pa.types.is_nested(kind) and not pa.types.is_union(kind) and not pa.types.is_map(kind):
        yield from _leaves(name, kind.value_type)
    else:
        yield name, kind


def _leaf_arrays(name: str, column: Any, length: float = 0.0) -> Iterator[tuple[str, Any]]:
    """The arrays inside an array, each with the mean length of the lists it stands in (0: in none)."""
    import pyarrow as pa

    kind = column.type
    if isinstance(kind, pa.BaseExtensionType):
        column, kind = column.storage, kind.storage_type
    if pa.types.is_dictionary(kind):
        yield from _leaf_arrays(name, column.dictionary)
    elif pa.types.is_struct(kind):
        for at, field in enumerate(kind):
            yield from _leaf_arrays(f"{name}.{field.name}", column.field(at))
    elif pa.types.is_map(kind):
        yield from _leaf_arrays(f"{name}.key", column.keys)
        yield from _leaf_arrays(f"{name}.value", column.items)
    elif pa.types.is_nested(kind) and not pa.types.is_union(kind):
        inner = column.flatten()
        each = len(inner) / max(1, len(column)) * max(1.0, length)
        yield from _leaf_arrays(name, inner, each) if pa.types.is_nested(inner.type) else [(name, (inner, each))]
    else:
        yield name, (column, 0.0)


def _cells(name: str, held: Any, row: int, pixels: bool, numbers: bool) -> Iterator[View | Structure]:
    import pyarrow as pa
    import pyarrow.compute as pc

    cells, length = held
    kind = cells.type
    where = f"column {name}, from row {row + 1}"
    if pa.types.is_union(kind):
        yield Structure(where, UNREADABLE, "a union of types")
    elif pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        yield from _texts(name, cells, row, length)
    elif pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind):
        yield from _binaries(name, cells.cast(pa.large_binary()), row, pixels)
    elif pa.types.is_integer(kind):
        if kind.bit_width == 8 and length >= _SMALLEST_PICTURE_IN_A_CELL and not pixels:
            yield Structure(where, PICTURE, f"lists of about {length:,.0f} bytes")
        elif numbers and kind.bit_width >= 32 and len(cells):
            large = pc.unique(cells.filter(pc.greater_equal(cells, pa.scalar(1_000_000, kind))))
            if len(large):
                data = _APART.join(str(each).encode() for each in large.to_pylist() if each is not None)
                yield View(data, lambda _at: where, prose=False)


def _texts(name: str, cells: Any, row: int, length: float) -> Iterator[View]:
    """Strings of a column, each different one once."""
    import pyarrow as pa
    import pyarrow.compute as pc

    cells = cells.cast(pa.large_string())
    different = pc.unique(cells).drop_null()
    sizes = np.asarray(pc.binary_length(different))
    for begin, end in _parts(sizes):
        part = different[begin:end]
        starts = np.concatenate([[0], np.cumsum(sizes[begin:end] + len(_APART))])
        data = _APART.join(text.encode("utf-8", "replace") for text in part.to_pylist())

        def place(at: int, part: Any = part, starts: Any = starts) -> str:
            text = part[int(np.searchsorted(starts, at, "right")) - 1]
            first = pc.index(cells, text).as_py()
            return f"column {name}, {'a row from' if length else 'row'} {row + 1 + (0 if length else first)}"

        yield View(data, place)


def _parts(sizes: Any) -> Iterator[tuple[int, int]]:
    """Cells in a row that have some megabytes together: first, and after the last."""
    number = np.cumsum(sizes) // _MOST_BYTES
    edges = [0, *(np.flatnonzero(np.diff(number)) + 1).tolist(), len(sizes)]
    yield from ((begin, end) for begin, end in itertools.pairwise(edges) if end > begin)


def _binaries(name: str, cells: Any, row: int, pixels: bool) -> Iterator[View | Structure]:
    """Bytes of a column: pictures, text, or what cannot be told."""
    import pyarrow.compute as pc

    heads = pc.binary_slice(cells, 0, _HEAD).to_pylist()
    for at, head in enumerate(heads):
        if not head:
            continue
        where = f"column {name}, row {row + at + 1}"
        content = content_of(head)
        if content is None and is_text(whole := cells[at].as_py()):
            yield View(whole, lambda _at, where=where: where)  # type: ignore[misc]
        elif content is None:
            if not pixels:
                yield Structure(where, UNREADABLE, "bytes that are neither text nor an image")
        elif content.what == ARCHIVE or not pixels:
            yield Structure(where, content.what, content.why)
    # Words in the bytes themselves (a comment in a JPEG): looked through for secrets and paths.
    for begin, end in _parts(np.asarray(pc.fill_null(pc.binary_length(cells), 0))):
        data = b"\x1f".join(each for each in cells[begin:end].to_pylist() if each)
        here = f"column {name}, from row {row + begin + 1}, inside the bytes"
        yield View(data, lambda _at, here=here: here, prose=False, bare=True)  # type: ignore[misc]
