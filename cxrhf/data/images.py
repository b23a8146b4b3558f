"""A picture file (JPEG, PNG, DICOM) -> the grey JPEG that a shard keeps, and that JPEG -> pixels.

Grey levels: 8-bit pictures keep theirs. A 16-bit PNG does not say how many of its bits are used (12 is usual), so its
own lowest and highest value become black and white, linearly; no percentiles, nothing is clipped. Colour becomes
luma, transparency is ignored (some NIH files are RGBA with equal channels). EXIF orientation is applied.
Known limits: 16-bit colour PNGs are cut to their high bytes by Pillow; a JPEG whose missing rows were replaced by an
end marker decodes without complaint (libjpeg only warns) and cannot be told from a whole one.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from cxrhf.errors import CxrhfError, need_packages, shorten

if TYPE_CHECKING:
    from PIL.Image import Image


KINDS = ("missing", "empty", "not an image", "truncated", "unreadable", "too large")
SIDE_LIMIT = 20_000
QUALITY = 95

_JPEG, _PNG, _DICOM = b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n", b"DICM"
_PREAMBLE = 128  # bytes before DICOM's own mark
_ORIENTATION = 0x0112
# What to do with a picture of each EXIF orientation, named as in PIL.Image.Transpose.
_UPRIGHT = {
    2: "FLIP_LEFT_RIGHT",
    3: "ROTATE_180",
    4: "FLIP_TOP_BOTTOM",
    5: "TRANSPOSE",
    6: "ROTATE_270",
    7: "TRANSVERSE",
    8: "ROTATE_90",
}
_CUT = ("truncated", "less than expected", "end of file")  # how Pillow and pydicom say it


class BadImage(CxrhfError):
    """A picture that cannot be used: `kind` is one of KINDS, `said` is the reason, without the file's name."""

    def __init__(self, kind: str, said: str) -> None:
        self.kind, self.said = kind, said
        super().__init__(f"{kind}: {said}")

    def __reduce__(self) -> tuple[Any, ...]:  # two arguments do not survive the default
        return (BadImage, (self.kind, self.said))


def stored(path: Path, size: int) -> bytes:
    """The picture as a shard keeps it: grey JPEG of quality 95, longest side at most `size`, never enlarged.

    A file that already is an upright 8-bit grey baseline JPEG within `size` keeps its coded pixels bit for bit; only
    what else it carries (comments, EXIF and the like, which may name people) is taken off.
    """
    data = _read(path)
    if _looks_like_dicom(path, data):
        from PIL import Image

        picture = Image.fromarray(grey(data))
        return _jpeg(_resize_picture(picture, _fit_sides(picture.size, size)))
    with explain_decoding_errors():
        return _stored(data, size)


def check_packages() -> None:
    """Pictures need packages that the light core does not bring: said before any picture is called damaged."""
    need_packages("images", ("PIL", "pydicom"), "data", ", or build tables only with --no-pixels")


def decode_picture(data: bytes, side: int | None = None) -> NDArray[np.uint8]:
    """The grey levels of a stored picture, rows x columns; with `side`, resized to side x side (bilinear)."""
    from PIL.Image import Resampling

    with explain_decoding_errors():
        picture = _open_picture(data)
        shown = picture if picture.mode == "L" else picture.convert("L")
        if side is not None and shown.size != (side, side):
            shown = shown.resize((side, side), Resampling.BILINEAR)
        return np.asarray(shown, dtype=np.uint8)


def stretch_levels(values: NDArray[Any], low: int, high: int) -> NDArray[np.uint8]:
    """Integers from `low` (black) to `high` (white) as 8 bits, linearly; one level only is black."""
    steps = np.arange(high - low + 1) * (255.0 / max(high - low, 1))
    return np.rint(steps).astype(np.uint8)[values - low]


def check_sides(width: int, height: int) -> None:
    """Refuse a picture that would fill the memory, before any of it is decoded."""
    if max(width, height) > SIDE_LIMIT:
        raise BadImage("too large", f"{width} x {height} pixels; cxrhf reads at most {SIDE_LIMIT:,} x {SIDE_LIMIT:,}")


@contextmanager
def explain_decoding_errors() -> Iterator[None]:
    """Turn what a decoder raises into BadImage.

    A damaged file can raise anything at all, and one of 300,000 must not end the build; the reason goes into the
    quarantine, so nothing is lost silently. Lack of memory is not the picture's fault.
    """
    try:
        yield
    except (BadImage, MemoryError):
        raise
    except Exception as error:
        said = shorten(str(error).strip() or type(error).__name__)
        cut = isinstance(error, (EOFError, struct.error)) or any(word in said.lower() for word in _CUT)
        raise BadImage("truncated" if cut else "unreadable", said) from None


def _read(path: Path) -> bytes:
    try:
        data = path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        raise BadImage("missing", "the file does not exist") from None
    except IsADirectoryError:
        raise BadImage("not an image", "the path is a folder") from None
    except OSError as error:
        raise BadImage("unreadable", error.strerror or str(error)) from None
    if not data:
        raise BadImage("empty", "the file is empty")
    return data


def _looks_like_dicom(path: Path, data: bytes) -> bool:
    return path.suffix.lower() in {".dcm", ".dicom"} or data[_PREAMBLE : _PREAMBLE + 4] == _DICOM


def _open_picture(data: bytes) -> Any:
    """A JPEG or PNG whose header is read and whose pixels are not.

    Pillow's classes are called directly: `Image.open` would try every format it knows, by content, and warns above
    its own limit of pixels where ours is stated as an error.
    """
    from PIL.JpegImagePlugin import JpegImageFile
    from PIL.PngImagePlugin import PngImageFile

    picture: Any
    if data.startswith(_JPEG):
        picture = JpegImageFile(io.BytesIO(data))
    elif data.startswith(_PNG):
        # Pillow accepts a PNG whose last rows are gone, as an interrupted copy leaves it.
        if data.rfind(b"IEND") < data.rfind(b"IDAT") or b"IDAT" not in data:
            raise BadImage("truncated", "the PNG file has no end marker")
        picture = PngImageFile(io.BytesIO(data))
    else:
        raise BadImage("not an image", f"neither JPEG, PNG nor DICOM; it starts with {data[:8]!r}")
    check_sides(*picture.size)
    return picture


def _stored(data: bytes, size: int) -> bytes:
    from PIL import Image

    picture = _open_picture(data)
    turn = picture.getexif().get(_ORIENTATION, 1)
    fits = max(picture.size) <= size
    if fits and picture.mode == "L" and turn not in _UPRIGHT and (plain := _baseline(data)) is not None:
        picture.load()  # a truncated one must not slip through
        return plain
    target = _fit_sides(picture.size, size)
    # libjpeg decodes at 1/2, 1/4 or 1/8 for less; twice the wanted size leaves the rest to a good filter.
    drafted = picture.draft("L", (2 * target[0], 2 * target[1]))
    picture.load()
    if picture.mode.startswith("I"):
        values = np.asarray(picture).astype(np.int32)
        picture = Image.fromarray(stretch_levels(values, int(values.min()), int(values.max())))
    grey = picture if picture.mode == "L" else picture.convert("L")
    grey = _resize_picture(grey, target, drafted and drafted[1])
    if turn in _UPRIGHT:
        grey = grey.transpose(Image.Transpose[_UPRIGHT[turn]])
    return _jpeg(grey)


def _baseline(data: bytes) -> bytes | None:
    """A baseline JPEG without its comments and application data; None where the frame is of another kind.

    Progressive pictures decode slower, others not everywhere. What stands behind the end marker is cut off.
    """
    kept, at, baseline = [data[:2]], 2, False
    while at + 4 <= len(data) and data[at] == 0xFF:
        marker = data[at + 1]
        if marker == 0xFF:  # padding
            at += 1
            continue
        if marker == 0xDA:  # the coded pixels, to the end
            return b"".join([*kept, data[at : data.rfind(b"\xff\xd9") + 2]]) if baseline else None
        end = at + 2 + int.from_bytes(data[at + 2 : at + 4], "big")
        if 0xC0 <= marker <= 0xCF and marker not in {0xC4, 0xC8, 0xCC}:
            baseline = marker == 0xC0
        if marker != 0xFE and not 0xE1 <= marker <= 0xEF:
            kept.append(data[at:end])
        at = end
    return None


def _fit_sides(sides: tuple[int, int], size: int) -> tuple[int, int]:
    width, height = sides
    longest = max(sides)
    if longest <= size:
        return width, height
    return max(1, round(width * size / longest)), max(1, round(height * size / longest))


def _resize_picture(
    picture: Image, target: tuple[int, int], box: tuple[float, float, float, float] | None = None
) -> Image:
    """`box` is the part that holds the picture, where libjpeg rounded its size up."""
    from PIL.Image import Resampling

    if picture.size == target:
        return picture
    return picture.resize(target, Resampling.LANCZOS, box=box, reducing_gap=3.0)


def _jpeg(picture: Image) -> bytes:
    out = io.BytesIO()
    picture.info = {}  # Pillow would copy the source's comment
    # Fitted Huffman tables: an eighth fewer bytes, decoded a little faster, for a millisecond here.
    picture.save(out, "JPEG", quality=QUALITY, optimize=True)
    return out.getvalue()


# The bytes of a DICOM file -> grey levels as a viewer shows them, 8 bits, bone white.
#
# In the standard's order: stored value, modality lookup table or rescale, VOI lookup table (taken before a window,
# the first of several) or window (LINEAR, LINEAR_EXACT, SIGMOID), then MONOCHROME1 inverted. Each is a function of
# the stored value alone, so it is worked out once for every value that occurs and the picture is looked up in it;
# pydicom's own functions do the same arithmetic pixel by pixel in 64 bits. Pixels of the padding value are black and
# left out of every range. Without window or table, up to 8 bits keep their levels; above, the picture's lowest and
# highest value become black and white, because many files with 16 bits stored use 12. Known limits: one frame; grey
# or 8-bit RGB; presentation states and overlays are not applied.

_Floats = NDArray[np.float64]


def grey(data: bytes) -> NDArray[np.uint8]:
    """Rows x columns of grey levels, or BadImage."""
    with explain_decoding_errors():
        dataset = _read_dicom(data)
        values = _values(dataset)
        if values.ndim == 3:
            from PIL import Image

            return np.asarray(Image.fromarray(values).convert("L"))
        return _to_grey_levels(dataset, values)


def _read_dicom(data: bytes) -> Any:
    import pydicom
    from pydicom.errors import InvalidDicomError

    try:
        dataset = pydicom.dcmread(io.BytesIO(data))
    except InvalidDicomError:
        raise BadImage("not an image", "the name ends in .dcm, but the content is not DICOM") from None
    if "TransferSyntaxUID" not in dataset.file_meta:
        raise BadImage("truncated", "the DICOM file ends inside its header")
    if "Rows" not in dataset or "Columns" not in dataset:
        raise BadImage("not an image", "the DICOM file has no pixels, or ends before them")
    if "PixelData" not in dataset:
        raise BadImage("truncated", "the DICOM file ends before its pixels")
    check_sides(int(dataset.Columns), int(dataset.Rows))
    frames = int(dataset.get("NumberOfFrames") or 1)
    if frames > 1:
        raise BadImage("unreadable", f"{frames} frames; a radiograph has one")
    return dataset


def _values(dataset: Any) -> NDArray[Any]:
    """The stored values as integers, or 8-bit RGB; a compression that nothing here decodes says what to install."""
    from pydicom.pixels import get_decoder

    syntax = dataset.file_meta.TransferSyntaxUID
    kind, bits = str(dataset.PhotometricInterpretation), int(dataset.BitsAllocated)
    colour = kind == "RGB" or kind.startswith("YBR")
    if not colour and kind not in {"MONOCHROME1", "MONOCHROME2"}:
        raise BadImage("unreadable", f"photometric interpretation {kind}; cxrhf reads grey and RGB")
    if bits not in ({8} if colour else {8, 16}):
        raise BadImage("unreadable", f"{bits} bits allocated; cxrhf reads 8 and 16, and 8 in colour")
    remedy = f"Install a decoder: pip install {_packages(syntax.name)}"
    try:
        if not get_decoder(syntax).is_available:
            raise BadImage("unreadable", f"{syntax.name}: no installed package decodes it. {remedy}")
    except NotImplementedError:
        raise BadImage("unreadable", f"{syntax.name}: pydicom has no decoder for it") from None
    try:
        return np.asarray(dataset.pixel_array)
    except (RuntimeError, NotImplementedError) as error:
        if not syntax.is_encapsulated:
            raise
        said = " ".join(str(error).split())
        raise BadImage(
            "unreadable", f"{syntax.name}: damaged, or not supported by the decoder ({said}). {remedy}"
        ) from None


def _packages(syntax: str) -> str:
    if "JPEG-LS" in syntax:
        return "pyjpegls"
    kind = "rle" if "RLE" in syntax else "openjpeg" if "2000" in syntax else "libjpeg"
    return f"pylibjpeg pylibjpeg-{kind}"


def _to_grey_levels(dataset: Any, values: NDArray[Any]) -> NDArray[np.uint8]:
    padding = _padding(dataset, values)
    seen = values if padding is None else values[~padding]
    if not seen.size:
        return np.zeros(values.shape, np.uint8)
    low, high = int(seen.min()), int(seen.max())
    brightness = _brightness(dataset, np.arange(low, high + 1))
    if dataset.PhotometricInterpretation == "MONOCHROME1":
        brightness = 1 - brightness
    levels = np.rint(255 * brightness).astype(np.uint8)
    index = values.astype(np.int32)
    if padding is None:
        return levels[index - low]
    return np.where(padding, np.uint8(0), levels[np.clip(index, low, high) - low])


def _padding(dataset: Any, values: NDArray[Any]) -> NDArray[np.bool_] | None:
    """Pixels outside the picture proper: one value, or a range of them."""
    first = dataset.get("PixelPaddingValue")
    if first is None:
        return None
    last = dataset.get("PixelPaddingRangeLimit")
    ends = sorted((int(first), int(first if last is None else last)))
    mask = (values >= ends[0]) & (values <= ends[1])
    return mask if mask.any() else None


def _brightness(dataset: Any, stored: NDArray[np.int64]) -> _Floats:
    """0 (the lowest) to 1 for each stored value, before MONOCHROME1."""
    values = _modality(dataset, stored)
    shown = _value_of_interest(dataset, values)
    if shown is not None:
        return shown
    ends = values
    bits = int(dataset.BitsStored)
    if bits <= 8:
        start = -(2 ** (bits - 1)) if dataset.PixelRepresentation else 0
        ends = _modality(dataset, np.array([start, start + 2**bits - 1]))
    low, high = float(ends.min()), float(ends.max())
    return np.clip((values - low) / (high - low), 0, 1) if high > low else np.zeros_like(values)


def _modality(dataset: Any, stored: NDArray[np.int64]) -> _Floats:
    if dataset.get("ModalityLUTSequence"):
        return _looked_up(dataset, dataset.ModalityLUTSequence[0], stored.astype(np.float64))[0]
    slope, intercept = dataset.get("RescaleSlope"), dataset.get("RescaleIntercept")
    if slope is None or intercept is None:
        return stored.astype(np.float64)
    return stored.astype(np.float64) * float(slope) + float(intercept)


def _value_of_interest(dataset: Any, values: _Floats) -> _Floats | None:
    if dataset.get("VOILUTSequence"):
        shown, bits = _looked_up(dataset, dataset.VOILUTSequence[0], values)
        return shown / (2**bits - 1)
    centre, width = _first(dataset.get("WindowCenter")), _first(dataset.get("WindowWidth"))
    if centre is None or width is None:
        return None
    function = str(dataset.get("VOILUTFunction") or "LINEAR").upper()
    if width <= 0 or (function == "LINEAR" and width < 1):
        raise BadImage("unreadable", f"the window has width {width:g}")
    if function == "SIGMOID":
        return np.asarray(expit(4 * (values - centre) / width))
    if function == "LINEAR":  # the standard's half pixel: a window of width 1 is a threshold
        centre, width = centre - 0.5, width - 1
    elif function != "LINEAR_EXACT":
        raise BadImage("unreadable", f"VOI LUT function {function}; cxrhf reads LINEAR, LINEAR_EXACT and SIGMOID")
    if width == 0:
        return (values > centre).astype(np.float64)
    return np.clip((values - centre) / width + 0.5, 0, 1)


def _first(value: Any) -> float | None:
    """The number itself, or the first of several; an empty element has none."""
    from pydicom.multival import MultiValue

    if isinstance(value, MultiValue):
        value = value[0] if len(value) else None
    return None if value is None or value == "" else float(value)


def _looked_up(dataset: Any, item: Any, values: _Floats) -> tuple[_Floats, int]:
    """Values sent through a lookup table, ends repeated; and its bits, as the entries need them.

    Tables are common that claim 16 bits and hold 12, or claim fewer than they hold; the entries are believed.
    """
    entries, first, _ = (int(each) for each in item.LUTDescriptor)
    entries = entries or 2**16
    content = item.LUTData
    if isinstance(content, bytes):
        order = "<" if dataset.file_meta.TransferSyntaxUID.is_little_endian else ">"
        content = np.frombuffer(content, f"{order}u2" if len(content) >= 2 * entries else "u1")
    table = np.asarray(content, dtype=np.int64)[:entries]
    index = np.clip(np.rint(values).astype(np.int64) - first, 0, len(table) - 1)
    return table[index].astype(np.float64), max(1, int(table.max()).bit_length())
