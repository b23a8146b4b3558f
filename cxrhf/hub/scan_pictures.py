"""Bytes -> the picture, array or archive that they are; text -> the pictures that are written into it.

Files are known by their first bytes, whatever they are called. In text, `data:image/...` and runs of base64 or of
hexadecimal digits are read: what decodes to a picture or an archive is one, what decodes to text is given back to be
looked at like any other. Pictures of numbers that a push draws itself are allowed: their PNG may hold nothing but the
picture (words in it are looked at), their SVG no <image>.
"""

from __future__ import annotations

import base64
import binascii
import re
import string
import zlib
from collections.abc import Iterator
from typing import NamedTuple

from cxrhf.hub.scan_secrets import Found

PICTURE, ARCHIVE = "an image", "an archive or a pickle"
_WHY_PICTURE = "it may show a patient"
_WHY_ARCHIVE = "its content cannot be checked"
_BEGINNINGS: tuple[tuple[bytes, int, str, str], ...] = (
    (b"\x89PNG\r\n\x1a\n", 0, PICTURE, "PNG"),
    (b"\xff\xd8\xff", 0, PICTURE, "JPEG"),
    (b"GIF87a", 0, PICTURE, "GIF"),
    (b"GIF89a", 0, PICTURE, "GIF"),
    (b"II*\0", 0, PICTURE, "TIFF"),
    (b"MM\0*", 0, PICTURE, "TIFF"),
    (b"II+\0", 0, PICTURE, "TIFF"),
    (b"WEBP", 8, PICTURE, "WebP"),
    (b"DICM", 128, PICTURE, "DICOM"),
    (b"\0\0\0\x0cjP  \r\n\x87\n", 0, PICTURE, "JPEG 2000"),
    (b"\xffO\xffQ", 0, PICTURE, "JPEG 2000"),
    (b"\0\0\0\x0cJXL ", 0, PICTURE, "JPEG XL"),
    (b"\xff\n", 0, PICTURE, "JPEG XL"),
    (b"ftypavif", 4, PICTURE, "AVIF"),
    (b"ftyphei", 4, PICTURE, "HEIF"),
    (b"8BPS", 0, PICTURE, "Photoshop"),
    (b"n+1\0", 344, PICTURE, "NIfTI"),
    (b"ni1\0", 344, PICTURE, "NIfTI"),
    (b"\x5c\x01\0\0", 0, PICTURE, "NIfTI"),
    (b"NRRD000", 0, PICTURE, "NRRD"),
    (b"ObjectType = Image", 0, PICTURE, "MetaImage"),
    (b"\x93NUMPY", 0, PICTURE, "NumPy array"),
    (b"\x89HDF\r\n\x1a\n", 0, PICTURE, "HDF5"),
    (b"MATLAB 5.0", 0, PICTURE, "MATLAB"),
    (b"%PDF-", 0, PICTURE, "PDF"),
    (b"PK\x03\x04", 0, ARCHIVE, "zip"),
    (b"PK\x05\x06", 0, ARCHIVE, "zip"),
    (b"\x1f\x8b", 0, ARCHIVE, "gzip"),
    (b"BZh", 0, ARCHIVE, "bzip2"),
    (b"\xfd7zXZ\0", 0, ARCHIVE, "xz"),
    (b"7z\xbc\xaf\x27\x1c", 0, ARCHIVE, "7z"),
    (b"Rar!\x1a\x07", 0, ARCHIVE, "rar"),
    (b"\x28\xb5\x2f\xfd", 0, ARCHIVE, "zstandard"),
    (b"\x04\x22\x4d\x18", 0, ARCHIVE, "lz4"),
    (b"ustar", 257, ARCHIVE, "tar"),
    (b"SQLite format 3\0", 0, ARCHIVE, "SQLite"),
)
_PICKLE = re.compile(rb"\x80[\x02-\x05](?:\x95.{8}|[\x8a\x8c}\]cq(X(])", re.DOTALL)
_BITMAP = re.compile(rb"BM.{4}\0\0\0\0", re.DOTALL)
_DATA_ADDRESS = re.compile(
    rb"data:(?:image|video|application/(?:dicom|octet-stream|zip|gzip|pdf))[\w/+.-]*[;,]", re.IGNORECASE
)
_BASE64 = re.compile(rb"[A-Za-z0-9+/_-]{40,}(?:(?:\\[nr]|\s){1,8}[A-Za-z0-9+/_-]{20,})*={0,2}")
_ESCAPED = re.compile(rb"(?:\\x[0-9a-fA-F]{2}){20,}")
_RUN = b"A" * 40
_SHAPE = bytes(65 if chr(code) in string.ascii_letters + string.digits + "+/_-" else 32 for code in range(256))
_PLAIN = bytes.maketrans(b"-_", b"+/")
_SVG_PICTURE = re.compile(rb"<\s*(?:\w+:)?(?:image|foreignObject|script|iframe|object|embed)\b", re.IGNORECASE)
_MOST_DECODED = 1 << 22
# What a drawing may consist of; text has its own chunks.
_PNG_PARTS = frozenset(
    {b"IHDR", b"PLTE", b"IDAT", b"IEND", b"tRNS", b"gAMA", b"cHRM", b"sRGB", b"pHYs", b"bKGD", b"sBIT"}
)
_PNG_TEXT = frozenset({b"tEXt", b"zTXt", b"iTXt", b"eXIf", b"tIME"})


class Content(NamedTuple):
    """What bytes are: a picture or an archive, by the name of its format."""

    what: str
    format: str

    @property
    def why(self) -> str:
        """Why it may not leave."""
        return f"{self.format}: {_WHY_PICTURE if self.what == PICTURE else _WHY_ARCHIVE}"


def content_of(head: bytes) -> Content | None:
    """The picture or archive that begins like this (some 400 bytes tell), or None."""
    for begin, at, what, name in _BEGINNINGS:
        if head.startswith(begin, at):
            return Content(what, name)
    if _BITMAP.match(head):
        return Content(PICTURE, "bitmap")
    if _PICKLE.match(head):
        return Content(ARCHIVE, "pickle")
    return None


def addresses(data: bytes) -> Iterator[Found]:
    """Pictures that a text holds as `data:image/png;base64,...`."""
    if b"data:" in data or b"DATA:" in data:
        for match in _DATA_ADDRESS.finditer(data):
            yield Found(*match.span(), PICTURE, "it is embedded in the text")
    for begin in (rb"\x89PNG", rb"\xff\xd8\xff"):  # as Python shows bytes
        if (at := data.find(begin)) >= 0:
            yield Found(at, at + len(begin), PICTURE, "it is embedded in the text")


def decoded_runs(data: bytes) -> Iterator[tuple[tuple[int, int], bytes]]:
    """Long runs of base64 and hexadecimal digits in a text, and the bytes that they stand for.

    Words that happen to stand together decode too, to noise: nobody minds noise.
    """
    shape = data.translate(_SHAPE)  # a run is found by memory search; only there the patterns are tried
    at = shape.find(_RUN)
    while at >= 0:
        match = _BASE64.match(data, at)
        if not match:  # cannot be: _RUN is one
            break
        run = re.sub(rb"\\[nr]|\s", b"", match[0])[:_MOST_DECODED].rstrip(b"=")
        yield match.span(), _base64(run)
        if re.fullmatch(rb"[0-9a-fA-F]+", run):
            yield match.span(), binascii.unhexlify(run[: len(run) // 2 * 2])
        at = shape.find(_RUN, match.end())
    if b"\\x" in data:
        for match in _ESCAPED.finditer(data):
            yield match.span(), binascii.unhexlify(match[0].replace(b"\\x", b""))


def is_text(data: bytes) -> bool:
    """Whether bytes are readable: UTF-8, and of the ASCII ones nearly none is a control sign."""
    sample = data[:4096]
    control = sum(byte < 9 or 13 < byte < 32 or byte == 127 for byte in sample)
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return control * 100 <= len(sample)


def _base64(run: bytes) -> bytes:
    run = run.translate(_PLAIN)
    whole = run[: len(run) - (len(run) % 4 == 1)]
    return base64.b64decode(whole + b"=" * (-len(whole) % 4))


def drawing_text(data: bytes) -> Iterator[tuple[str, bytes | None]]:
    """The words in a drawn PNG: (chunk, text); chunks that a drawing has no use for, bytes after it: (chunk, None)."""
    at = 8
    while at + 8 <= len(data):
        size, kind = int.from_bytes(data[at : at + 4], "big"), data[at + 4 : at + 8]
        body = data[at + 8 : at + 8 + size]
        at += 12 + size
        if kind in _PNG_TEXT:
            yield kind.decode(), _chunk_text(kind, body)
        elif kind not in _PNG_PARTS:
            yield repr(kind)[2:-1], None
        if kind == b"IEND":
            break
    if at < len(data):
        yield "after its end", None


def _chunk_text(kind: bytes, body: bytes) -> bytes:
    """A text chunk with its words unpacked."""
    for packed in range(len(body)) if kind in {b"zTXt", b"iTXt"} else ():
        if body[packed : packed + 1] == b"\x78":
            try:
                return body[:packed] + zlib.decompressobj().decompress(body[packed:], _MOST_DECODED)
            except zlib.error:
                continue
    return body


def pictures_in_drawing(data: bytes) -> Iterator[Found]:
    """What an SVG drawing may not hold: pictures and code."""
    for match in _SVG_PICTURE.finditer(data):
        yield Found(*match.span(), PICTURE, "a figure contains no images, pages or code")
