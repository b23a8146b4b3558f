"""A text file -> views of it that are looked through: as it stands, and with what is folded into it unfolded.

JSON and JSON lines are also read: their strings, each on its own, without escapes. Entities, percent signs, unusual
letters (full width, invisible) and runs of base64 or hexadecimal digits that stand for text are undone. `place` says
where in the file a byte of a view comes from.
"""

from __future__ import annotations

import base64
import binascii
import bisect
import html
import json
import re
import string
import unicodedata
import zlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple
from urllib.parse import unquote_to_bytes

from cxrhf.hub.scan_people import ROWS, Found, rows_in, why_rows

_MARKUP = (".html", ".htm", ".svg", ".xml", ".md", ".markdown")
_TAG = re.compile(rb"<[^<>]{1,2000}>")
_ENTITY = re.compile(rb"&#?\w{1,8};")
_ESCAPE = re.compile(rb"\\(?:[nrt]|u[0-9a-fA-F]{4})")
_INVISIBLE = dict.fromkeys([0xAD, 0x200B, 0x200C, 0x200D, 0x2060, 0xFEFF])
_MOST_YAML = 1 << 20
_SMALLEST_PICTURE = 28  # rows and columns of numbers that could be one
_UNIT_END = "\x1f\n"
UNREADABLE = "content that cannot be checked"


class View(NamedTuple):
    """Text to be looked through. `prose`: whether it can be read for what it says; data and code folded up cannot."""

    data: bytes
    place: Callable[[int], str]
    prose: bool = True
    markup: bool = False
    again: bool = False  # another form of a view: of a kind that was found there nothing more is told
    bare: bool = False  # bytes with words in them: only what no bytes have by chance is looked for

    def words_only(self) -> Iterator[bytes]:
        """The text with escapes, and in a second form tags and entities, made blank: bytes keep their places."""
        plain = _ESCAPE.sub(_blank, self.data) if b"\\" in self.data else self.data
        yield plain
        if self.markup and b"<" in plain:
            yield _ENTITY.sub(_blank, _TAG.sub(_cell_end, plain))


def _blank(match: re.Match[bytes]) -> bytes:
    return b" " * len(match[0])


def _cell_end(match: re.Match[bytes]) -> bytes:
    return b"|" + b" " * (len(match[0]) - 1)


class Structure(NamedTuple):
    """What the structure of a file tells: where, what it is, why it may not leave."""

    where: str
    what: str
    why: str


def as_text(data: bytes) -> bytes | None:
    """A file's text as UTF-8, or None where it is not text."""
    for mark, name in ((b"\xef\xbb\xbf", "utf-8"), (b"\xff\xfe", "utf-16"), (b"\xfe\xff", "utf-16")):
        if data.startswith(mark):
            try:
                return data.decode(name).removeprefix("\ufeff").encode()
            except UnicodeDecodeError:
                return None
    return data if is_text(data) else None


def views(name: str, data: bytes) -> Iterator[View | Structure]:
    """Every view of a text file, and what its structure tells."""
    read = _read_json(name, data)
    if isinstance(read, _Twice):
        yield Structure(
            "the whole file", UNREADABLE, "an object has the same key twice, and the second hides the first"
        )
        read = None
    elif read is not None:
        yield from _structure(read)
    elif name.endswith((".csv", ".tsv")):
        yield from _header(name, data)
    elif name.endswith((".yaml", ".yml", ".md")) and len(data) <= _MOST_YAML:
        yield from _structure(_read_yaml(name, data))
    markup = name.endswith(_MARKUP)
    if read is not None:
        yield _strings(read)
    folded = read is not None
    raw = View(data, lambda at: f"line {line_of(data, at)}", prose=not folded, markup=markup, again=folded)
    yield raw
    yield from (view._replace(again=True) for view in _decoded_views(raw))


def line_of(data: bytes, at: int) -> int:
    """The line that a byte stands on, counted from 1."""
    return data.count(b"\n", 0, at) + 1


def _decoded_views(raw: View) -> Iterator[View]:
    """What is written in another alphabet."""
    data = raw.data
    if data.count(b"&#") > 8:
        yield View(html.unescape(data.decode("utf-8", "replace")).encode("utf-8", "replace"), _somewhere("entities"))
    if len(re.findall(rb"%[0-9A-Fa-f]{2}", data)) > 8:
        yield View(unquote_to_bytes(data), _somewhere("percent encoding"))
    if not data.isascii():
        text = data.decode("utf-8", "replace")
        plain = unicodedata.normalize("NFKC", text.translate(_INVISIBLE))
        if plain != text:
            yield View(plain.encode("utf-8", "replace"), _somewhere("unusual characters"), raw.prose, raw.markup)
    for span, decoded in decoded_runs(data):
        if is_text(decoded):
            place = raw.place(span[0])
            yield View(decoded, lambda _at, place=place: f"{place}, encoded as base64 or hexadecimal digits")  # type: ignore[misc]


def _somewhere(how: str) -> Callable[[int], str]:
    return lambda _at: f"written with {how}"


# --- JSON ----------------------------------------------------------------------------------------------------------

_Key = tuple[Any, Any] | None  # (key of what holds it, own key)


class _Twice(Exception):
    """A key stands twice in one object."""


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    held = dict(pairs)
    if len(held) < len(pairs):
        raise _Twice
    return held


def _read_json(name: str, data: bytes) -> Any:
    """What a JSON file or JSON lines hold; None for other files and broken ones; _Twice where a key hides another."""
    if not name.endswith((".json", ".jsonl", ".ndjson", ".ipynb", ".geojson")):
        return None
    for parts in ([data], data.splitlines()):
        try:
            read = [json.loads(part, object_pairs_hook=_once) for part in parts if part.strip()]
            return read[0] if len(parts) == 1 and read else read
        except (ValueError, RecursionError):
            continue
        except _Twice as twice:
            return twice
    return None


def _strings(read: Any) -> View:
    """All strings of a JSON file, keys too, each different one once; sentences in a row of one list are one text."""
    texts: dict[str, _Key] = {}
    waiting: list[tuple[Any, _Key]] = [(read, None)]  # no recursion: files may be deep
    while waiting:
        value, key = waiting.pop()
        if isinstance(value, str):
            texts.setdefault(value, key)
        elif isinstance(value, dict):
            for name in value:
                texts.setdefault(name, key)
            waiting += [(held, (key, name)) for name, held in reversed(value.items()) if _has_text(held, texts)]
        elif isinstance(value, list):
            waiting += [(held, (key, at)) for at, held in enumerate(value) if _has_text(held, texts)][::-1]
    keys = list(texts.values())
    parts: list[bytes] = []
    starts: list[int] = []
    length = 0
    for at, text in enumerate(texts):
        starts.append(length)
        sentence = (
            text.rstrip().endswith((".", "!", "?")) and at + 1 < len(keys) and _neighbours(keys[at], keys[at + 1])
        )
        part = (text + ("\n" if sentence else _UNIT_END)).encode("utf-8", "replace")
        parts.append(part)
        length += len(part)
    return View(b"".join(parts), lambda at: _key_path(keys[bisect.bisect_right(starts, at) - 1]))


def _has_text(held: Any, known: Mapping[str, Any]) -> bool:
    return held not in known if isinstance(held, str) else isinstance(held, dict | list)


def _neighbours(one: _Key, other: _Key) -> bool:
    """Whether two strings follow each other in the same list."""
    return one is not None and other is not None and one[0] is other[0] and isinstance(one[1], int)


def _key_path(key: _Key) -> str:
    names: list[str] = []
    while key is not None:
        key, own = key
        names.append(f"[{own}]" if isinstance(own, int) else f".{own}")
    return f"key {''.join(reversed(names)).removeprefix('.') or 'at the top'}"


# --- structure -----------------------------------------------------------------------------------------------------


def _header(name: str, data: bytes) -> Iterator[Structure]:
    """Rows of patients by the first line of a CSV file."""
    lines = data.lstrip().split(b"\n", 2)
    if len(lines) > 1 and lines[1].strip():
        header = csv_header(name, data)
        if why := why_rows(header):
            yield Structure("line 1", ROWS, why)


def csv_header(name: str, data: bytes) -> list[str]:
    """The names of the columns of a CSV or TSV file."""
    line = data.lstrip().split(b"\n", 1)[0].decode("utf-8", "replace")
    sign = "\t" if name.endswith(".tsv") or "\t" in line else ";" if ";" in line else ","
    return [cell.strip().strip('"') for cell in line.split(sign)]


def rows_of_json(name: str, data: bytes) -> Iterator[dict[str, Any]]:
    """Objects of JSON files and JSON lines, however deep."""
    waiting = [_read_json(name, data)]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            yield value
        if isinstance(value, dict | list):
            waiting += [held for held in (value.values() if isinstance(value, dict) else value) if held]


def _structure(read: Any) -> Iterator[Structure]:
    """Rows of patients, and pictures as numbers, by what JSON or YAML hold."""
    try:
        for where, why in rows_in(read):
            yield Structure(f"key {where}", ROWS, why)
        for where in _number_pictures(read, ""):
            yield Structure(f"key {where or 'at the top'}", PICTURE, "rows of numbers from 0 to 255")
    except RecursionError:
        yield Structure("the whole file", UNREADABLE, "hundreds of nested lists")


def _read_yaml(name: str, data: bytes) -> Any:
    import yaml  # type: ignore[import-untyped]

    text = data.decode("utf-8", "replace")
    if name.endswith(".md"):
        found = re.match(r"---\n(.*?)\n---\s*(?:\n|$)", text, re.DOTALL)
        text = found[1] if found else ""
    try:
        return yaml.load(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except (yaml.YAMLError, ValueError):
        return None


def _number_pictures(value: Any, where: str) -> Iterator[str]:
    """Lists of lists of small whole numbers, as wide and high as a thumbnail."""
    if isinstance(value, dict):
        for name, held in value.items():
            if isinstance(held, dict | list):
                yield from _number_pictures(held, f"{where}.{name}" if where else str(name))
    elif isinstance(value, list) and value and isinstance(value[0], list):
        rows = value[: 2 * _SMALLEST_PICTURE]
        if (
            len(rows) >= _SMALLEST_PICTURE
            and all(
                isinstance(row, list) and len(row) >= _SMALLEST_PICTURE and len(row) == len(rows[0]) for row in rows
            )
            and all(isinstance(each, int) and 0 <= each <= 255 for row in rows for each in row)
        ):
            yield where
        else:
            for at, held in enumerate(value):
                yield from _number_pictures(held, f"{where}[{at}]")
    elif isinstance(value, list):
        for at, held in enumerate(value):
            if isinstance(held, dict | list):
                yield from _number_pictures(held, f"{where}[{at}]")


# Bytes -> the picture, array or archive that they are; text -> the pictures that are written into it.
#
# Files are known by their first bytes, whatever they are called. In text, `data:image/...` and runs of base64 or of
# hexadecimal digits are read: what decodes to a picture or an archive is one, what decodes to text is given back to
# be looked at like any other. Pictures of numbers that a push draws itself are allowed: their PNG may hold nothing
# but the picture (words in it are looked at), their SVG no <image>.

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
