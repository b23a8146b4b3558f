"""Parquet and Arrow files -> their metadata, names, and cells as text to be looked through, a row group at a time.

Cells are taken as they lie in the file: strings once each, in bulk. Binary cells are pictures, text or refused; lists
of bytes long enough for a picture are one. Numbers are looked through only where ids may be numbers.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np

from cxrhf.hub.artefact import Piece
from cxrhf.hub.scan_pictures import ARCHIVE, PICTURE, content_of, is_text
from cxrhf.hub.scan_text import UNREADABLE, Structure, View
from cxrhf.hub.scan_weights import open_piece

_APART = b"\x1f\n"
_MOST_ROWS, _MOST_READ = 20_000, 64 << 20  # rows and bytes that are read at once
_MOST_BYTES = 4 << 20  # of cells that are joined to one view: what is found in one need not be looked for in the next
_SMALLEST_PICTURE = 784  # numbers in one cell
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
        if kind.bit_width == 8 and length >= _SMALLEST_PICTURE and not pixels:
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
