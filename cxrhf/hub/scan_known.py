"""Run and build folders -> the ids and texts of their patients; and those, found again in text that is to leave.

A note is found by any eight words in a row that stand in it, a short text (four to seven words) where it stands alone
on a line, in quotes or in a cell; marks, case and line breaks do not matter. An id is found as whole words, in any
spelling of its dashes and slashes. Ids without a digit, of fewer than five characters, or plain numbers of fewer than
seven digits are left to the names of columns (`scan_people`): in prose they are ordinary words and counts.

Texts may be many: a hospital's notes are gigabytes. So the words of the artefact, which are few, are kept as numbers,
and the known texts run past them block by block from their files: memory does not grow with the notes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, overload

import numpy as np
from numpy.typing import NDArray

from cxrhf.hub.artefact import Known
from cxrhf.hub.scan_people import ID, is_id_column
from cxrhf.hub.scan_secrets import Found
from cxrhf.hub.scan_words import Hashes, look_up, offsets_of, segments, windows, words_of

NOTE = "text of a clinical note or report"
ROW_OF_WORDS, FEWEST_WORDS = 8, 4
TEXT_COLUMNS = frozenset({"text", "indication", "comparison", "findings", "impression", "reference", "generated"})
_APART = b"\x1f"
_SHORTEST_ID, _SHORTEST_NUMBER, _MOST_WORDS = 5, 7, 8
_TOGETHER = 2_000  # texts that are joined to one block
# Where a short text stands alone: lines, quotes, cells, values.
_EDGES = b"\n\r\t|\"'`<>[]{}\x1f:"
_COUNTED = re.compile(
    rb"[\"']?(?:\w*size|n|n_\w+|num_\w+|\w*total\w*|\w*parameters|bytes|\w*steps?|seed|length)[\"']?\s*[:=]\s*$"
)


class StoredTexts(Sequence[str]):
    """Text columns of Parquet files, read when they are looked at."""

    def __init__(self, columns: Iterable[tuple[Path, str]]) -> None:
        self._columns = tuple(columns)

    def batches(self) -> Iterator[list[str]]:
        """All texts, many at a time."""
        for file, column in self._columns:
            for batch in _batches(file, [column]):
                yield [text for text in batch.column(0).to_pylist() if text]

    def __iter__(self) -> Iterator[str]:
        for batch in self.batches():
            yield from batch

    def __bool__(self) -> bool:  # without reading them all, as len would
        return bool(self._columns)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[str]: ...
    def __getitem__(self, index: int | slice) -> str | Sequence[str]:
        return list(self)[index]


def known_of(folders: Iterable[Path]) -> Known:
    """Ids of patients, studies, images and notes, and texts about them, of all tables in run and build folders."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    ids: set[str] = set()
    texts: list[tuple[Path, str]] = []
    for file in sorted({file for folder in folders for file in _tables(Path(folder))}):
        schema = pq.read_schema(file)
        named = [field.name for field in schema if is_id_column(field.name)]
        texts += [
            (file, field.name)
            for field in schema
            if field.name in TEXT_COLUMNS and (pa.types.is_string(field.type) or pa.types.is_large_string(field.type))
        ]
        for batch in _batches(file, named) if named else ():
            for column in batch.columns:
                flat = column.flatten() if pa.types.is_nested(column.type) else column
                ids.update(str(value) for value in flat.unique().to_pylist() if value is not None)
    return Known(frozenset(ids), StoredTexts(texts))


def _tables(folder: Path) -> list[Path]:
    if folder.is_file():
        return [folder] if folder.suffix == ".parquet" else []
    return [file for file in folder.rglob("*.parquet") if not any(part.startswith(".") for part in file.parts[-3:])]


def _batches(file: Path, columns: list[str]) -> Iterator[Any]:
    import pyarrow.parquet as pq

    yield from pq.ParquetFile(file).iter_batches(columns=columns, batch_size=_TOGETHER)


# --- what is looked for --------------------------------------------------------------------------------------------


class Watch(NamedTuple):
    """What of the known is in an artefact: hashes of rows of words of known texts, and of ids by number of words."""

    texts: Hashes
    ids: dict[int, Hashes]


def traces(data: bytes) -> Hashes:
    """What a text could share with a known one: hashes of eight words in a row, and of short texts that stand alone."""
    return np.unique(_rows_of_words(data, _EDGES))


def watch_for(known: Known, seen: Hashes) -> Watch:
    """The known ids, and those of the traces `seen` in an artefact that are traces of a known text too."""
    return Watch(_shared(known.texts, seen), _id_hashes(known.ids))


def known_in(data: bytes, watch: Watch, texts: bool = True, ids: bool = True) -> Iterator[Found]:
    """Words of known texts, and known ids, in a text."""
    texts, ids = texts and len(watch.texts) > 0, ids and len(watch.ids) > 0
    if not texts and not ids:
        return
    words = words_of(data)
    if texts:
        why = f"{ROW_OF_WORDS} words in a row, or a whole short text, are in a note or report of the source data"
        rows = np.flatnonzero(_among(watch.texts, windows(words.hash, ROW_OF_WORDS)))
        for first, last in _runs(rows):
            yield Found(int(words.start[first]), int(words.end[last + ROW_OF_WORDS - 1]), NOTE, why)
        starts, count = segments(words, offsets_of(data, _EDGES))
        for length in range(FEWEST_WORDS, ROW_OF_WORDS):
            alone = starts[count == length]
            for at in alone[_among(watch.texts, windows(words.hash, length)[alone])]:
                yield Found(int(words.start[at]), int(words.end[at + length - 1]), NOTE, why)
    for length, hashes in watch.ids.items() if ids else ():
        for at in np.flatnonzero(_among(hashes, windows(words.hash, length))):
            start, end = int(words.start[at]), int(words.end[at + length - 1])
            if not _is_number(data, start, end):
                yield Found(start, end, ID, "it is an id of the source data")


def _is_number(data: bytes, start: int, end: int) -> bool:
    """Digits that are part of a decimal number, or stand under the name of a count: an id only by chance."""
    if not data[start:end].isdigit():
        return False
    before, after = data[max(0, start - 60) : start], data[end : end + 2]
    decimal = re.search(rb"\d[.,]$|^[.]$|(?<!\w)[.]$|[eE][+-]?$", before) or re.match(rb"[.]\d", after)
    return bool(decimal or _COUNTED.search(before))


def _runs(places: NDArray[np.int64]) -> Iterator[tuple[int, int]]:
    """First and last of every row of neighbours."""
    if len(places):
        for run in np.split(places, np.flatnonzero(np.diff(places) > ROW_OF_WORDS) + 1):
            yield int(run[0]), int(run[-1])


def _among(known: Hashes, wanted: Hashes) -> NDArray[np.bool_]:
    return look_up(known, wanted)[0]


def _rows_of_words(data: bytes, edges: bytes) -> Hashes:
    """Hashes of eight words in a row, and of the texts of four to seven words that stand alone between edges."""
    words = words_of(data)
    first, count = segments(words, offsets_of(data, edges))
    alone = [windows(words.hash, length)[first[count == length]] for length in range(FEWEST_WORDS, ROW_OF_WORDS)]
    return np.concatenate([windows(words.hash, ROW_OF_WORDS), *alone])


def _shared(texts: Sequence[str], seen: Hashes) -> Hashes:
    """The hashes of `seen` that known texts have too. A table of bits answers for most words of the texts."""
    if not len(seen):
        return seen
    bits = max(16, min(26, int(np.ceil(np.log2(len(seen)))) + 5))
    table = np.zeros(1 << bits, np.bool_)
    shift = np.uint64(64 - bits)
    table[seen >> shift] = True
    found = [np.empty(0, np.uint64)]
    for block in _text_blocks(texts):
        hashes = _rows_of_words(block, _APART)
        hashes = hashes[table[hashes >> shift]]
        found.append(hashes[_among(seen, hashes)])
    return np.unique(np.concatenate(found))


def _text_blocks(texts: Sequence[str]) -> Iterator[bytes]:
    """The texts, many at a time, with the byte 0x1f after each."""
    cut = (texts[at : at + _TOGETHER] for at in range(0, len(texts), _TOGETHER))
    for batch in texts.batches() if isinstance(texts, StoredTexts) else cut:
        yield b"".join(text.encode("utf-8", "replace") + _APART for text in batch)


def _id_hashes(ids: Iterable[str]) -> dict[int, Hashes]:
    """Number of words -> sorted hashes of the ids with so many that no text has by chance."""
    telling = [each for each in ids if _tells(each)]
    if not telling:
        return {}
    data = b"".join(each.encode("utf-8", "replace") + _APART for each in telling)
    words = words_of(data)
    first, count = segments(words, offsets_of(data, _APART))
    return {
        int(length): np.unique(windows(words.hash, int(length))[first[count == length]])
        for length in np.unique(count)
        if length <= _MOST_WORDS
    }


def _tells(each: str) -> bool:
    if each.isdigit():
        return len(each) >= _SHORTEST_NUMBER
    return len(each) >= _SHORTEST_ID and any(letter.isdigit() for letter in each)
