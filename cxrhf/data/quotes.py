"""Blocks of a CSV file -> the line where its quotation marks go wrong, and how many records it holds.

Arrow's reader forgives: where a closing mark is missing it joins two notes into one without a word. So every byte is
looked at once, in compiled code, while it is handed to Arrow, and the records Arrow returns are counted against these.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from cxrhf.metrics.compiled import compiled

if TYPE_CHECKING:
    from numpy.typing import NDArray

_MARK, _COMMA, _NEWLINE, _RETURN = 34, 44, 10, 13  # bytes: a quotation mark, and what ends cells and lines
_START, _PLAIN, _QUOTED, _CLOSED = 0, 1, 2, 3  # where in a cell the last byte was
# What a watch carries from block to block: state, bytes read, records, whether the line is empty so far, and the byte
# at which the last cell with a quotation mark began.
STATE, BYTES, RECORDS, EMPTY, OPENED = 0, 1, 2, 3, 4
_ONES, _HIGHS = np.uint64(0x0101010101010101), np.uint64(0x8080808080808080)
_MARKS = np.uint64(0x2222222222222222)  # eight quotation marks


def new_watch() -> NDArray[np.int64]:
    """The state before the first byte: no record, at the start of an empty line."""
    return np.array([_START, 0, 0, 1, 0], dtype=np.int64)


def watch_block(data: bytes, watch: NDArray[np.int64]) -> bool:
    """Read a block; False where a quotation mark stands that CSV does not allow: `watch[OPENED]` is then its byte."""
    words = np.frombuffer(data, np.uint64, count=len(data) // 8)
    return bool(_watched(np.frombuffer(data, np.uint8), words, watch))


@compiled
def _watched(block: NDArray[np.uint8], words: NDArray[np.uint64], watch: NDArray[np.int64]) -> bool:
    state, start, records, empty, opened = watch[0], watch[1], watch[2], watch[3], watch[4]
    good = True
    at, n = 0, len(block)
    while at < n:
        if state == _QUOTED:
            # Most of a notes file is inside marks, where only the next mark matters: eight bytes at a time.
            while at < n and block[at] != _MARK:
                if at & 7 == 0:
                    word = at >> 3
                    while word < len(words):
                        apart = words[word] ^ _MARKS
                        if (apart - _ONES) & ~apart & _HIGHS:  # some byte of it is zero: a mark
                            break
                        word += 1
                    if word << 3 > at:
                        at = word << 3
                        continue
                at += 1
            if at >= n:
                break
            state = _CLOSED
            at += 1
            continue
        byte = block[at]
        if byte == _NEWLINE:
            if empty == 0:
                records += 1
            empty = 1
            state = _START
        elif byte == _MARK:
            if state == _START:
                state = _QUOTED
                opened = start + at
            elif state == _CLOSED:  # a doubled mark inside a cell
                state = _QUOTED
            else:
                good = False
                opened = start + at
                break
            empty = 0
        elif byte == _COMMA:
            state = _START
            empty = 0
        elif byte != _RETURN:
            if state == _CLOSED:
                good = False
                break
            state = _PLAIN
            empty = 0
        at += 1
    watch[0], watch[1], watch[2], watch[3], watch[4] = state, start + n, records, empty, opened
    return good


def closed(watch: NDArray[np.int64]) -> bool:
    """Whether the file may end here: no cell is open."""
    return bool(watch[STATE] != _QUOTED)


def record_count(watch: NDArray[np.int64]) -> int:
    """Records so far, the last one without its line end included."""
    return int(watch[RECORDS]) + int(watch[EMPTY] == 0)
