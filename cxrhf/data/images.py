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

        from cxrhf.data.dicom import grey

        picture = Image.fromarray(grey(data))
        return _jpeg(_resized(picture, _fitted(picture.size, size)))
    with explained():
        return _stored(data, size)


def check_packages() -> None:
    """Pictures need packages that the light core does not bring: said before any picture is called damaged."""
    need_packages("images", ("PIL", "pydicom"), "data", ", or build tables only with --no-pixels")


def decoded(data: bytes, side: int | None = None) -> NDArray[np.uint8]:
    """The grey levels of a stored picture, rows x columns; with `side`, resized to side x side (bilinear)."""
    from PIL.Image import Resampling

    with explained():
        picture = _opened(data)
        shown = picture if picture.mode == "L" else picture.convert("L")
        if side is not None and shown.size != (side, side):
            shown = shown.resize((side, side), Resampling.BILINEAR)
        return np.asarray(shown, dtype=np.uint8)


def stretched(values: NDArray[Any], low: int, high: int) -> NDArray[np.uint8]:
    """Integers from `low` (black) to `high` (white) as 8 bits, linearly; one level only is black."""
    steps = np.arange(high - low + 1) * (255.0 / max(high - low, 1))
    return np.rint(steps).astype(np.uint8)[values - low]


def check_sides(width: int, height: int) -> None:
    """Refuse a picture that would fill the memory, before any of it is decoded."""
    if max(width, height) > SIDE_LIMIT:
        raise BadImage("too large", f"{width} x {height} pixels; cxrhf reads at most {SIDE_LIMIT:,} x {SIDE_LIMIT:,}")


@contextmanager
def explained() -> Iterator[None]:
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


def _opened(data: bytes) -> Any:
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

    picture = _opened(data)
    turn = picture.getexif().get(_ORIENTATION, 1)
    fits = max(picture.size) <= size
    if fits and picture.mode == "L" and turn not in _UPRIGHT and (plain := _baseline(data)) is not None:
        picture.load()  # a truncated one must not slip through
        return plain
    target = _fitted(picture.size, size)
    # libjpeg decodes at 1/2, 1/4 or 1/8 for less; twice the wanted size leaves the rest to a good filter.
    drafted = picture.draft("L", (2 * target[0], 2 * target[1]))
    picture.load()
    if picture.mode.startswith("I"):
        values = np.asarray(picture).astype(np.int32)
        picture = Image.fromarray(stretched(values, int(values.min()), int(values.max())))
    grey = picture if picture.mode == "L" else picture.convert("L")
    grey = _resized(grey, target, drafted and drafted[1])
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


def _fitted(sides: tuple[int, int], size: int) -> tuple[int, int]:
    width, height = sides
    longest = max(sides)
    if longest <= size:
        return width, height
    return max(1, round(width * size / longest)), max(1, round(height * size / longest))


def _resized(picture: Image, target: tuple[int, int], box: tuple[float, float, float, float] | None = None) -> Image:
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
