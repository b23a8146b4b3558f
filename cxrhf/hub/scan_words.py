"""Text as bytes -> its words as numbers, in compiled code: where each begins and ends, and a hash of it.

A word is a run of ASCII letters and digits, in lower case; everything else stands between words. So the same words give
the same hashes whatever marks, quotes, line breaks, Markdown or comment signs stand between them. `windows` hashes k
words in a row, which is how sentences of notes, ids with dashes and phrases are compared without a loop over words.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cxrhf.metrics.compiled import compiled

Hashes = NDArray[np.uint64]
Places = NDArray[np.int64]

_BETWEEN = 0
_LETTERS = np.array(
    [ord(chr(code).lower()) if code < 128 and chr(code).isalnum() else _BETWEEN for code in range(256)], np.uint64
)  # what every byte counts as
_START, _PRIME = np.uint64(0xCBF29CE484222325), np.uint64(0x100000001B3)  # FNV-1a
_NEXT, _MIX = np.uint64(0xD6E8FEB86659FD93), np.uint64(0xFF51AFD7ED558CCD)


class Words(NamedTuple):
    """The words of a text: offsets of their first byte and of the byte after the last, and their hashes."""

    start: Places
    end: Places
    hash: Hashes

    def __len__(self) -> int:  # a tuple would say 3
        return len(self.start)


def words_of(data: bytes) -> Words:
    """Every word of a text."""
    text = np.frombuffer(data, np.uint8)
    n = int(_count(text, _LETTERS))
    words = Words(np.empty(n, np.int64), np.empty(n, np.int64), np.empty(n, np.uint64))
    if n:
        _fill(text, _LETTERS, words.start, words.end, words.hash)
    return words


@compiled
def _count(text: NDArray[np.uint8], letters: Hashes) -> int:
    n, inside = 0, False
    for byte in text:
        is_letter = letters[byte] != 0
        n += is_letter and not inside
        inside = is_letter
    return n


@compiled
def _fill(text: NDArray[np.uint8], letters: Hashes, start: Places, end: Places, hashes: Hashes) -> None:
    n, inside, value = 0, False, _START
    for at in range(len(text)):
        letter = letters[text[at]]
        if letter != 0:
            if not inside:
                start[n], value, inside = at, _START, True
            value = (value ^ letter) * _PRIME
        elif inside:
            end[n], hashes[n], inside = at, value, False
            n += 1
    if inside:
        end[n], hashes[n] = len(text), value


class Anchors:
    """Short strings that are all looked for in one pass, where searching for each would read a text many times."""

    def __init__(self, anchors: Iterable[bytes]) -> None:
        self.anchors = tuple(dict.fromkeys(anchors))
        # Anchors by their first two bytes: the first of each in `head`, further ones chained in `next`.
        self._head = np.full(1 << 16, -1, np.int16)
        self._next = np.full(len(self.anchors), -1, np.int16)
        for at, anchor in enumerate(self.anchors):
            key = anchor[0] << 8 | anchor[1]
            self._next[at], self._head[key] = self._head[key], at
        self._ends = np.cumsum([len(anchor) for anchor in self.anchors])
        self._bytes = np.frombuffer(b"".join(self.anchors), np.uint8)

    def present(self, data: bytes) -> frozenset[bytes]:
        """Those that a text has."""
        found = np.zeros(len(self.anchors), np.bool_)
        _look(np.frombuffer(data, np.uint8), self._head, self._next, self._bytes, self._ends, found)
        return frozenset(self.anchors[at] for at in np.flatnonzero(found))


@compiled
def _look(
    text: NDArray[np.uint8],
    head: NDArray[np.int16],
    following: NDArray[np.int16],
    letters: NDArray[np.uint8],
    ends: Places,
    found: NDArray[np.bool_],
) -> None:
    for at in range(len(text) - 1):
        anchor = head[np.int64(text[at]) << 8 | np.int64(text[at + 1])]
        while anchor >= 0:
            if not found[anchor]:
                begin = ends[anchor - 1] if anchor > 0 else 0
                size = ends[anchor] - begin
                same = at + size <= len(text)
                for step in range(2, size):
                    same = same and text[at + step] == letters[begin + step]
                    if not same:
                        break
                found[anchor] = same
            anchor = following[anchor]


def windows(hashes: Hashes, k: int) -> Hashes:
    """One hash for every k words in a row: as many as there are places for them."""
    n = len(hashes) - k + 1
    if n <= 0 or k <= 0:
        return np.empty(0, np.uint64)
    total = hashes[:n].copy()
    for at in range(1, k):
        total *= _NEXT
        total += hashes[at : at + n]
    total ^= total >> np.uint64(29)  # high bits depend on all: tables are addressed by them
    total *= _MIX
    total ^= total >> np.uint64(32)
    return total


def hash_phrase(text: str) -> tuple[int, np.uint64]:
    """How many words a short text has, and the hash that `windows` gives for them."""
    hashes = words_of(text.encode()).hash
    return len(hashes), windows(hashes, len(hashes))[0] if len(hashes) else np.uint64(0)


def segments(words: Words, breaks: Places) -> tuple[Places, Places]:
    """First word and number of words of every run of words with no break (an offset in the text) in it."""
    if not len(words):
        return np.empty(0, np.int64), np.empty(0, np.int64)
    part = np.searchsorted(breaks, words.start)
    first = np.flatnonzero(np.diff(part, prepend=-1))
    return first, np.diff(first, append=len(words))


def offsets_of(data: bytes, marks: bytes) -> Places:
    """Where a text has one of some bytes."""
    table = np.zeros(256, np.bool_)
    table[list(marks)] = True
    return np.flatnonzero(table[np.frombuffer(data, np.uint8)])


def look_up_hashes(known: Hashes, wanted: Hashes) -> tuple[NDArray[np.bool_], Places]:
    """Whether each wanted hash is among the known, which are sorted, and where."""
    if not len(known):
        return np.zeros(len(wanted), np.bool_), np.zeros(len(wanted), np.int64)
    where = np.searchsorted(known, wanted)
    where[where == len(known)] = 0
    return np.asarray(known[where] == wanted), where
