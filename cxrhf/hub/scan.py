"""An artefact -> what in it must not leave: secrets, absolute paths, notes, pictures, rows and ids of patients.

Every piece is looked into before anything is sent: its name, its text, and what lies in tables, weights and drawings. A
format that cannot be looked into is refused. What a dataset's terms allow it to hold (`may_hold`) is not looked for in
its Parquet files, and ids and rows not in the files of a recipe; secrets and paths are looked for everywhere, and a
card may never hold notes or ids. Messages say where and why, and never show what was found.
"""

from __future__ import annotations

import functools
import re
import socket
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from cxrhf.errors import CxrhfError
from cxrhf.hub.artefact import Artefact, Piece
from cxrhf.hub.scan_notes import passages
from cxrhf.hub.scan_people import (
    ID,
    NOTE,
    ROWS,
    Found,
    Watch,
    ids,
    is_id_column,
    known_in,
    secrets,
    tables_in,
    traces,
    watch_for,
    why_rows,
)
from cxrhf.hub.scan_text import (
    PICTURE,
    UNREADABLE,
    Structure,
    View,
    addresses,
    as_text,
    content_of,
    csv_header,
    decoded_runs,
    drawing_text,
    pictures_in_drawing,
    rows_of_json,
    views,
)
from cxrhf.hub.scan_weights import (
    cell_views,
    columns_of,
    is_table,
    metadata_views,
    open_piece,
    safetensors_views,
    skops_views,
    ubj_views,
)

RECIPE = frozenset({"ids", "rows"})
# What a recipe's tables may consist of, and the table of counts that stands beside it.
RECIPE_COLUMNS = frozenset({"image_id", "study_id", "patient_id", "dataset", "split"})
_KINDS = {"text": NOTE, "ids": ID, "rows": ROWS, "pixels": PICTURE}  # what may_hold calls them
_FEW, _LISTED = 3, 10  # places shown of one kind in one file; leaks listed in an error
_CARDS = (".md", ".markdown", ".html", ".htm")


class Leak(NamedTuple):
    """Something that must not leave: in which file, what it is, where in it, and why not."""

    path: str
    what: str
    where: str
    why: str

    def __str__(self) -> str:
        return f"{self.path}, {self.where}: {self.what} ({self.why})"


class ScanError(CxrhfError):
    """An artefact holds what must not leave; `leaks` are all that were found."""

    def __init__(self, artefact: Artefact, leaks: list[Leak]) -> None:
        self.leaks = leaks
        more = [f"and {len(leaks) - _LISTED} more"] if len(leaks) > _LISTED else []
        listed = [str(leak) for leak in leaks[:_LISTED]] + more
        places = "1 place" if len(leaks) == 1 else f"{len(leaks)} places"
        super().__init__(
            f"nothing was uploaded, because this {artefact.kind} holds sensitive content in {places}:\n  "
            + "\n  ".join(listed),
            next_step="remove it at the source and push again; revoke any token that is listed",
        )


def check(artefact: Artefact) -> None:
    """Raise a ScanError that lists what must not leave, if there is any."""
    if leaks := scan(artefact):
        raise ScanError(artefact, leaks)


def scan(artefact: Artefact) -> list[Leak]:
    """Everything in an artefact that must not leave."""
    watch = _watch(artefact)
    return [leak for piece in artefact.pieces for leak in _leaks(piece, artefact, watch)]


def _watch(artefact: Artefact) -> Watch:
    """Known ids, and what of the known texts the artefact has: its words go first, the texts run past them."""
    if not artefact.known.texts and not artefact.known.ids:
        return Watch(np.empty(0, np.uint64), {})
    seen = [np.empty(0, np.uint64)]
    if artefact.known.texts:
        for piece in artefact.pieces:
            if "text" not in _allowed_kinds(piece, artefact):
                for each in _views(piece, artefact):
                    if isinstance(each, View) and not each.bare:
                        seen += [traces(text) for text in each.words_only()]
    return watch_for(artefact.known, np.unique(np.concatenate(seen)))


def _allowed_kinds(piece: Piece, artefact: Artefact) -> frozenset[str]:
    """What of single patients this file may hold."""
    if artefact.kind != "dataset":
        return frozenset()
    if piece.path.endswith(".parquet"):
        return artefact.may_hold
    if artefact.may_hold == RECIPE and not piece.path.lower().endswith(_CARDS):
        return artefact.may_hold
    return frozenset()


def _leaks(piece: Piece, artefact: Artefact, watch: Watch) -> Iterator[Leak]:
    """What one file must not hold, its name included."""
    shown = _redact(piece.path, watch)
    name = View(piece.path.encode("utf-8", "replace"), lambda _at: "file name", prose=False)
    for found in _scan_view(name, frozenset(), watch):
        yield Leak(shown, found.what, "file name", found.why)
    allowed = _allowed_kinds(piece, artefact)
    seen: set[tuple[str, str]] = set()
    count: Counter[str] = Counter()
    for each in _views(piece, artefact):
        # A kind that was found often enough in this file is not looked for any further in it.
        off = allowed | {kind for kind, what in _KINDS.items() if count[what] >= _FEW}
        told = set(count) if isinstance(each, View) and each.again else set()
        for found, where in _places(each, off, watch):
            if found.what not in told and count[found.what] < _FEW and (found.what, where) not in seen:
                seen.add((found.what, where))
                count[found.what] += 1
                yield Leak(shown, found.what, _redact(where, watch), found.why)


def _places(each: View | Structure, off: frozenset[str], watch: Watch) -> Iterator[tuple[Found, str]]:
    """What must not leave in a view, or the structure itself, with its place; of one kind in one view the first few."""
    if isinstance(each, Structure):
        if not any(each.what == what for kind, what in _KINDS.items() if kind in off):
            yield Found(0, 0, each.what, each.why), each.where
        return
    count: Counter[str] = Counter()
    for found in _scan_view(each, off, watch):
        if count[found.what] < _FEW:
            count[found.what] += 1
            yield found, each.place(found.start)


def _redact(text: str, watch: Watch) -> str:
    """A name or key that can be shown: what in it must not leave is left out."""
    view = View(text.encode("utf-8", "replace"), lambda _at: "")
    leaks = list(_scan_view(view, frozenset(), watch))
    if any(found.what == NOTE for found in leaks):  # the words around it are of the note too
        return "***"
    data, at, kept = view.data, 0, b""
    for found in sorted(leaks):
        if found.end > at:
            kept += data[at : max(at, found.start)] + b"***"
            at = found.end
    shown = (kept + data[at:]).decode("utf-8", "replace")
    shown = re.sub(r"[^\x20-\x7e]", "?", shown)
    return shown if len(shown) <= 120 else f"{shown[:80]}...({len(shown)} characters)"


# --- one text ------------------------------------------------------------------------------------------------------


def _scan_view(view: View, allowed: frozenset[str], watch: Watch) -> Iterator[Found]:
    """All that must not leave in a text."""
    yield from secrets(view.data, view.bare)
    yield from paths(view.data, view.bare)
    if view.bare:
        return
    if "pixels" not in allowed:
        yield from addresses(view.data)
        for span, decoded in decoded_runs(view.data):
            if content := content_of(decoded):
                yield Found(*span, content.what, f"encoded as text; {content.why}")
    if "ids" not in allowed:
        yield from ids(view.data, prose=view.prose)
    if view.prose and "rows" not in allowed:
        yield from tables_in(view.data)
    for text in view.words_only():
        yield from known_in(text, watch, texts="text" not in allowed, ids="ids" not in allowed)
        if view.prose and "text" not in allowed:
            for passage in passages(text):
                yield Found(passage.start, passage.end, NOTE, "it reads like one")


# --- one file ------------------------------------------------------------------------------------------------------


def _views(piece: Piece, artefact: Artefact) -> Iterator[View | Structure]:
    """A file as text to be looked through, and what its structure tells."""
    allowed = _allowed_kinds(piece, artefact)
    path = piece.path.lower()
    if is_table(piece):
        yield from _table_views(piece, artefact, allowed)
    elif path.endswith(".safetensors"):
        yield from safetensors_views(piece)
    elif path.endswith(".skops") and artefact.kind == "model":
        yield from skops_views(piece)
    elif path.endswith(".ubj") and artefact.kind == "model":
        yield from ubj_views(piece)
    else:
        yield from _plain_file(piece, path, allowed, artefact)


def _plain_file(piece: Piece, path: str, allowed: frozenset[str], artefact: Artefact) -> Iterator[View | Structure]:
    with open_piece(piece) as file:
        content = content_of(file.read(400))
    if content and piece.drawn and content.format == "PNG":
        for chunk, words in drawing_text(piece.read()):
            if words is None:
                yield Structure(f"chunk {chunk}", PICTURE, "more than a figure holds")
            else:
                yield View(words, lambda _at, chunk=chunk: f"chunk {chunk}")  # type: ignore[misc]
        return
    if content:
        yield Structure("the whole file", content.what, content.why)
        return
    text = as_text(piece.read())
    if text is None:
        yield Structure("the whole file", UNREADABLE, "an unknown format")
        return
    if artefact.may_hold == RECIPE and allowed:
        yield from _recipe_text(path, text)
    if path.endswith(".svg") or text.lstrip()[:200].lower().find(b"<svg") >= 0:
        for found in pictures_in_drawing(text):
            yield Structure(f"byte {found.start}", found.what, found.why)
    yield from views(path, text)


def _table_views(piece: Piece, artefact: Artefact, allowed: frozenset[str]) -> Iterator[View | Structure]:
    """A Parquet or Arrow file: columns, metadata, cells."""
    columns = columns_of(piece)
    if columns is None:
        yield Structure("the whole file", UNREADABLE, "not a readable table")
        return
    why = why_rows([name.rsplit(".", 1)[-1] for name in columns])
    if why and "rows" not in allowed:
        yield Structure("its columns", ROWS, why)
    if artefact.may_hold == RECIPE:
        yield from _recipe_columns(columns)
    yield from metadata_views(piece)
    yield from cell_views(piece, "pixels" in allowed, "ids" not in allowed)


def _recipe_columns(columns: list[str]) -> Iterator[Structure]:
    """A recipe has ids and splits alone: no labels, no groups, no times, no text."""
    from cxrhf.schema import ATTRITION

    more = sorted(set(columns) - RECIPE_COLUMNS)
    if more and not set(columns) <= set(ATTRITION.names):
        yield Structure(
            f"column {more[0]}", "more than a recipe holds", f"its columns are {', '.join(sorted(RECIPE_COLUMNS))}"
        )


def _recipe_text(path: str, text: bytes) -> Iterator[Structure]:
    """Rows in a recipe's text files keep to the same columns."""
    if path.endswith((".csv", ".tsv")):
        yield from _recipe_columns(csv_header(path, text))
    for row in rows_of_json(path, text):
        if any(is_id_column(name) for name in row):
            yield from _recipe_columns(list(row))


# Text -> the absolute paths in it: of home folders, mounts and shares, and names of this user and this computer.
#
# A path begins where no letter, dot, colon or slash stands before it, so addresses (`https://host/home/x`), `and/or`,
# fractions and the inside of relative paths are none. `/usr/bin/env` and its like are the same on every computer, and
# `~/.cache` names no one; a path of three parts and more that begins otherwise is taken for one of this computer,
# unless it begins like an address without its host (`/api/models/x`, `/resolve/main/x`).

WHAT = "an absolute path"
_WHY = "it reveals details of this computer"
# What stands before a path: the pattern begins with the slash itself, which is quick to find.
_FRESH = rb"(?<![\w.:/~<>)\]}&%@+*\\-]/)"
_PART = rb"[\w.@+~%#=-]+"
# Folders that a person has, and those that many computers have.
_PERSONAL = rb"home|Users|root|mnt|media|Volumes|scratch\d*|nethome|nfs\d*|gpfs\d*|lustre\d*"
_USUAL = (
    rb"data\d*|tmp|work\d*|storage\d*|projects?|export|cluster|shared?|workspace|content|kaggle|dbfs|efs|srv|opt|var|"
    rb"private|net|physionet|archive|local|raid\d*"
)
_UNIX = re.compile(
    rb"/(?:(?<![\w./~]/)(?:" + _PERSONAL + rb")/" + _PART + rb"|(?<![\w./~]/)root\b|"
    rb"(?<![\w./~<)\]}&%@+*\\-]/)(?:" + _USUAL + rb")/" + _PART + rb")(?:/" + _PART + rb")*"
)
_DEEP = re.compile(rb"/" + _FRESH + rb"(?P<first>[A-Za-z_][\w.-]+)(?:/" + _PART + rb"){2,}")
# First parts of addresses, of paths that every Unix has, and of paths to fill in (/path/to/file).
_ELSEWHERE = frozenset(
    b"usr bin sbin lib lib64 dev etc sys api resolve raw blob tree spaces models datasets docs papers user org orgs "
    b"issues pull pulls wiki assets static v1 v2 v3 download gradio_api queue proc path your".split()
)
_USER = re.compile(rb"~(?<![\w~/.)\]]~)[A-Za-z][\w-]{2,}/[\w.-]+")
_WINDOWS = re.compile(
    rb":(?<=(?<![\w\\])[A-Za-z]:)(?:(?:\\{1,2}[\w.$ -]{2,}){2,}|\\{1,2}(?:Users|Documents and Settings)\b"
    rb"|/(?:Users|Documents|home|data)/[\w.-]+)"
)
_SHARE = re.compile(
    rb"\\\\(?<![\\\w)\]}+*?.^$|]\\\\)(?:[A-Za-z][\w.-]{2,}\\[\w$.-]{2,}|\\\\[A-Za-z][\w.-]{2,}\\\\[\w$.-]{2,})"
)
_FILE_ADDRESS = re.compile(rb"file:/{1,3}\w[^\s\"'<>)]*", re.IGNORECASE)
_COMMON_NAMES = {
    "root", "user", "users", "ubuntu", "runner", "admin", "home", "work", "demo", "data", "test", "tests", "tester",
    "jovyan", "docker", "debian", "centos", "azureuser", "localhost", "local", "server", "host", "node", "worker",
    "build", "model", "models", "dataset",
}  # fmt: skip


def paths(data: bytes, bare: bool = False) -> Iterator[Found]:
    """Every absolute path in a text; `bare`: in bytes that are no text, where short forms occur by chance."""
    if b"/" in data:
        for match in _UNIX.finditer(data):
            yield _path_leak(match)
    if bare:
        return
    if b"/" in data:
        for match in _DEEP.finditer(data):
            if match["first"] not in _ELSEWHERE:
                yield _path_leak(match)
        if b"file:/" in data or b"FILE:/" in data:
            yield from map(_path_leak, _FILE_ADDRESS.finditer(data))
    if b"~" in data:
        yield from map(_path_leak, _USER.finditer(data))
    if b":\\" in data or b":/" in data:
        yield from map(_path_leak, _WINDOWS.finditer(data))
    if b"\\\\" in data:
        yield from map(_path_leak, _SHARE.finditer(data))
    for pattern in own_names():
        for match in pattern.finditer(data):
            yield Found(*match.span(), "the name of this computer or its user", _WHY)


def _path_leak(match: re.Match[bytes]) -> Found:
    return Found(*match.span(), WHAT, _WHY)


@functools.cache
def own_names() -> tuple[re.Pattern[bytes], ...]:
    """This user as a part of a path, and this computer's name as a word, when they are names that tell something."""
    found = []
    user, host = Path.home().name, socket.gethostname().split(".")[0]
    if len(user) > 3 and user.lower() not in _COMMON_NAMES:
        found.append(re.compile(rb"(?<=[/\\])" + re.escape(user.encode()) + rb"(?=[/\\])"))
    if len(host) > 4 and host.lower() not in _COMMON_NAMES:
        found.append(re.compile(rb"(?<![\w.-])" + re.escape(host.encode()) + rb"(?![\w-])"))
    return tuple(found)
