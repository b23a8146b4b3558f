"""Text of unknown origin -> the places where it reads like a radiology report or a clinical note.

The rule, which is a word list and a sum. Every word has points: words that reports and notes are made of have more than
0 (`mediastinum` 4, `effusion` 2, `unchanged` 2, `seen` 1), everyday function words 0, words that are not listed -1,
words of models, metrics and code -3. Some phrases add to that (`year old` 5, `history of present illness` 8, a line
that begins with `IMPRESSION:` 3, a blank `___` 2). The points are summed word by word, never below 0: where the sum
reaches 10, the text reads like a report. Talk about findings does not get there, for its words of models pull it down.

What does not count, since cards and examples are full of it: cells and lines of fewer than four words, lists of four
and more short items (`effusion, opacity, edema, nodule`), names with underscores; and text that is made of nothing but
the sentences of `STOCK`, which stand in the examples of our metrics and are said of no one.

On the half of the public reports that the lists (`scan_lexicon`) were not made from it finds, by two sentences, three,
and the whole text: of the Indiana reports 87%, 97%, 99%; of the written ones 92%, 99%, 100%; of the covid notes 74%,
85%, 91% (on the other half the same within three points). Of made-up discharge notes it finds every whole one, of two
lines of them a quarter. No card, metric or page of this project reads like a report but one that lists prompts, and of
95 MB of other packages four lists do. Gaps: English only; one short sentence is never enough, nor is "No active
disease."; everyday sentences of a note. Notes that are known are found by `scan_known`, however they read.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cxrhf.findings import CHEXPERT, NIH, NIH_LONG_TAIL, display_name
from cxrhf.hub.scan_lexicon import MARKS, PHRASES, POINTS, STOCK
from cxrhf.hub.scan_words import Hashes, Places, Words, look_up, offsets_of, phrase, segments, windows, words_of
from cxrhf.metrics.compiled import compiled

Floats = NDArray[np.float64]
ENOUGH = 10.0  # points in a row that make a report
OF_ITS_OWN, DIFFERENT = 6.0, 2  # of them points, and different words, that are not of stock sentences
_UNLISTED, _NUMBER, _BELOW_ONE = -1.0, -0.25, -2.0
_FEW_WORDS, _SHORT_ITEM, _LONG_LIST = 4, 2, 4

_CELL_ENDS = b"\n|\x1f\"'`[]{}<>"
_SENTENCE_ENDS, _ITEM_ENDS = _CELL_ENDS + b".!?;", _CELL_ENDS + b",;()"
_UNIT_END = 0x1F  # between texts that have nothing to do with each other


class Passage(NamedTuple):
    """A stretch of text that reads like a report: its first byte, and the byte after it."""

    start: int
    end: int


def passages(data: bytes) -> list[Passage]:
    """Where a text reads like a report or a note. The byte 0x1f parts texts that are judged one by one."""
    words = words_of(data)
    if not len(words):
        return []
    points = _points(data, words)
    own = np.where(_stock(data, words), np.minimum(points, 0.0), points)
    begin = np.empty(len(words), np.int64)
    reads = np.empty(len(words), np.bool_)
    _sum_up(points, own, begin, reads)
    at = np.flatnonzero(reads)
    last = at[np.flatnonzero(np.diff(begin[at], append=-1))] if len(at) else at
    return [
        Passage(int(words.start[first]), int(words.end[end]))
        for first, end in zip(begin[last].tolist(), last.tolist(), strict=True)
        if len(np.unique(words.hash[first : end + 1][own[first : end + 1] > 0])) >= DIFFERENT
    ]


@compiled
def _sum_up(points: Floats, own: Floats, begin: Places, reads: NDArray[np.bool_]) -> None:
    """Where the sum of all points, and that of points which are not of stock sentences, are both high enough.

    `begin`: the word at which the second sum left 0. The first is bounded, or a page of examples would lift what
    stands after it.
    """
    total, alone, first = 0.0, 0.0, 0
    for at in range(len(points)):
        if alone <= 0.0:
            first = at
        total = min(max(total + points[at], 0.0), 2.0 * ENOUGH)
        alone = max(alone + own[at], 0.0)
        begin[at] = first
        reads[at] = total >= ENOUGH and alone >= OF_ITS_OWN


def _points(data: bytes, words: Words) -> Floats:
    """What every word counts."""
    keys, values = _lexicon()
    listed, where = look_up(keys, words.hash)
    points = np.where(listed, values[where], _UNLISTED)
    text = np.frombuffer(data, np.uint8)
    number = _is_digit(text[words.start])
    points[~listed & number] = _NUMBER
    # Behind the point of a number below 1: tables and pictures of results are full of them.
    padded = np.concatenate([[32] * 3, text, [32]]).astype(np.uint8)
    before, further = padded[words.start + 2], padded[words.start + 1]
    below_one = ~_is_digit(further) | ((further == ord("0")) & ~_is_digit(padded[words.start]))
    points[number & (before == ord(".")) & below_one] = _BELOW_ONE
    for length, (phrases, worth) in _phrases().items():
        hit, which = look_up(phrases, windows(words.hash, length))
        points[: len(hit)][hit] += worth[which[hit]]
    name = (before == ord("_")) | np.isin(padded[words.end + 3], list(b"_(=\\"))  # pleural_effusion, f(x), n=3
    points[(name | _not_prose(data, words) | _finding_names(data, words)) & (points > 0)] = 0.0
    for letters, mark, extra in MARKS:
        if any(each.encode() in data for each in letters.split()):
            for found in mark.finditer(data):
                at = int(np.searchsorted(words.start, found.start()))
                if at < len(words):
                    points[at] = max(points[at], 0.0) + extra
    ends = np.flatnonzero(text == _UNIT_END)
    at_ends = np.searchsorted(words.start, ends)
    # Down to nothing before the first word of the next text; that word's own points start anew.
    points[at_ends[at_ends > 0] - 1] -= 1e6
    return points


def _is_digit(letters: NDArray[np.uint8]) -> NDArray[np.bool_]:
    return np.asarray((letters >= ord("0")) & (letters <= ord("9")))


def _not_prose(data: bytes, words: Words) -> NDArray[np.bool_]:
    """Words of short cells and lines, and of lists."""
    _, count = segments(words, offsets_of(data, _CELL_ENDS))
    apart = np.repeat(count < _FEW_WORDS, count)
    ends = np.concatenate([offsets_of(data, _ITEM_ENDS), words.start[words.hash == words_of(b"and").hash[0]] - 1])
    _, count = segments(words, np.sort(ends))
    short = np.concatenate([[False], count <= _SHORT_ITEM, [False]])
    edges = np.flatnonzero(np.diff(short))
    begin, end = edges[::2], edges[1::2]
    long = end - begin >= _LONG_LIST
    in_list = np.zeros(len(count) + 1, np.int64)
    np.add.at(in_list, begin[long], 1)
    np.add.at(in_list, end[long], -1)
    return np.asarray(apart | np.repeat(np.cumsum(in_list)[:-1] > 0, count))


def _finding_names(data: bytes, words: Words) -> NDArray[np.bool_]:
    """Words of findings that are named, not seen: `Pleural effusion` with a capital in the middle of a sentence."""
    named = np.zeros(len(words), np.bool_)
    names = tuple(sorted(display_name(name) for name in {*CHEXPERT, *NIH, *NIH_LONG_TAIL}))
    for length, known in _hashes_by_length(names).items():
        for at in np.flatnonzero(look_up(known, windows(words.hash, length))[0]):
            start = int(words.start[at])
            before = data[max(0, start - 40) : start].rstrip(b" *`")[-1:]
            in_a_sentence = before not in (b"", b".", b"!", b"?", b"\n")
            named[at : at + length] |= data[start : start + 1].isupper() and in_a_sentence
    return named


def _stock(data: bytes, words: Words) -> NDArray[np.bool_]:
    """Words of sentences that stand in our examples."""
    stock = np.zeros(len(words), np.bool_)
    first, count = segments(words, offsets_of(data, _SENTENCE_ENDS))
    for length, known in _hashes_by_length(tuple(STOCK.split("."))).items():
        begin = first[count == length]
        if len(begin):
            same = begin[look_up(known, windows(words.hash, length)[begin])[0]]
            stock[(same[:, None] + np.arange(length)).ravel()] = True
    return stock


@functools.cache
def _lexicon() -> tuple[Hashes, Floats]:
    """Sorted hashes of the listed words, and their points."""
    hashes = np.concatenate([words_of(words.encode()).hash for words in POINTS.values()])
    values = np.concatenate([np.full(len(words.split()), points) for points, words in POINTS.items()])
    keys, first = np.unique(hashes, return_index=True)
    return keys, values[first]


@functools.cache
def _phrases() -> dict[int, tuple[Hashes, Floats]]:
    """Number of words -> sorted hashes of the phrases with so many, and their points."""
    made: dict[int, dict[int, float]] = {}
    for points, texts in PHRASES.items():
        for text in texts.split(","):
            length, value = phrase(text)
            made.setdefault(length, {})[int(value)] = points
    return {
        length: (np.array(sorted(of), np.uint64), np.array([of[each] for each in sorted(of)]))
        for length, of in made.items()
    }


@functools.cache
def _hashes_by_length(texts: tuple[str, ...]) -> dict[int, Hashes]:
    """Number of words -> sorted hashes of the texts with so many."""
    made: dict[int, set[int]] = {}
    for text in texts:
        length, value = phrase(text)
        if length:
            made.setdefault(length, set()).add(int(value))
    return {length: np.array(sorted(of), np.uint64) for length, of in made.items()}
