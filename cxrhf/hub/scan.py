"""An artefact -> what in it must not leave: secrets, absolute paths, notes, pictures, rows and ids of patients.

Every piece is looked into before anything is sent: its name, its text, and what lies in tables, weights and drawings. A
format that cannot be looked into is refused. What a dataset's terms allow it to hold (`may_hold`) is not looked for in
its Parquet files, and ids and rows not in the files of a recipe; secrets and paths are looked for everywhere, and a
card may never hold notes or ids. Messages say where and why, and never show what was found.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from cxrhf.errors import CxrhfError
from cxrhf.hub.artefact import Artefact, Piece
from cxrhf.hub.scan_known import NOTE, Watch, known_in, traces, watch_for
from cxrhf.hub.scan_notes import passages
from cxrhf.hub.scan_paths import paths
from cxrhf.hub.scan_people import ID, ROWS, ids, is_id_column, tables_in, why_rows
from cxrhf.hub.scan_pictures import (
    PICTURE,
    addresses,
    content_of,
    decoded_runs,
    drawing_text,
    pictures_in_drawing,
)
from cxrhf.hub.scan_secrets import Found, secrets
from cxrhf.hub.scan_tables import cell_views, columns_of, is_table, metadata_views
from cxrhf.hub.scan_text import UNREADABLE, Structure, View, as_text, csv_header, rows_of_json, views
from cxrhf.hub.scan_weights import open_piece, safetensors_views, skops_views, ubj_views

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
            if "text" not in _allowed(piece, artefact):
                for each in _views(piece, artefact):
                    if isinstance(each, View) and not each.bare:
                        seen += [traces(text) for text in each.words_only()]
    return watch_for(artefact.known, np.unique(np.concatenate(seen)))


def _allowed(piece: Piece, artefact: Artefact) -> frozenset[str]:
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
    shown = _shown(piece.path, watch)
    name = View(piece.path.encode("utf-8", "replace"), lambda _at: "file name", prose=False)
    for found in _found_in(name, frozenset(), watch):
        yield Leak(shown, found.what, "file name", found.why)
    allowed = _allowed(piece, artefact)
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
                yield Leak(shown, found.what, _shown(where, watch), found.why)


def _places(each: View | Structure, off: frozenset[str], watch: Watch) -> Iterator[tuple[Found, str]]:
    """What must not leave in a view, or the structure itself, with its place; of one kind in one view the first few."""
    if isinstance(each, Structure):
        if not any(each.what == what for kind, what in _KINDS.items() if kind in off):
            yield Found(0, 0, each.what, each.why), each.where
        return
    count: Counter[str] = Counter()
    for found in _found_in(each, off, watch):
        if count[found.what] < _FEW:
            count[found.what] += 1
            yield found, each.place(found.start)


def _shown(text: str, watch: Watch) -> str:
    """A name or key that can be shown: what in it must not leave is left out."""
    view = View(text.encode("utf-8", "replace"), lambda _at: "")
    leaks = list(_found_in(view, frozenset(), watch))
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


def _found_in(view: View, allowed: frozenset[str], watch: Watch) -> Iterator[Found]:
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
    allowed = _allowed(piece, artefact)
    path = piece.path.lower()
    if is_table(piece):
        yield from _table(piece, artefact, allowed)
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


def _table(piece: Piece, artefact: Artefact, allowed: frozenset[str]) -> Iterator[View | Structure]:
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
