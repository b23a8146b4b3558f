"""Files of models (.safetensors, .skops, .ubj) -> the text in them, and what does not belong into weights.

safetensors: names and `__metadata__` of the header, and runs of readable letters between the numbers, for a note pasted
into a weight is a note. Refused: 8-bit tensors (our models are saved as floats; 8-bit weights of others look like
pictures, and pictures like them), tensors that are called pixels, images or patient_id, bytes that no tensor owns.
skops: a zip with `schema.json` and arrays; XGBoost's .ubj: letters between numbers. Both only in a model.
"""

from __future__ import annotations

import io
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
from cxrhf.hub.scan_pictures import PICTURE, content_of
from cxrhf.hub.scan_text import UNREADABLE, Structure, View

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
