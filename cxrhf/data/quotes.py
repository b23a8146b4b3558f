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

_START, _PLAIN, _QUOTED, _CLOSED = 0, 1, 2, 3  # where in a cell the last byte was
STATE, LINE, RECORDS, EMPTY, OPENED = 0, 1, 2, 3, 4  # what `watch` carries from block to block


def new_watch() -> NDArray[np.int64]:
    """The state before the first byte: line 1, no record, at the start of an empty line."""
    return np.array([_START, 1, 0, 1, 0], dtype=np.int64)


@compiled
def watch_block(block: NDArray[np.uint8], watch: NDArray[np.int64], delimiter: int) -> bool:
    """Read a block; False where a quotation mark stands that CSV does not allow, and `watch` then names the line."""
    state, line, records, empty, opened = watch[0], watch[1], watch[2], watch[3], watch[4]
    good = True
    for byte in block:
        if state == _QUOTED:
            if byte == 34:
                state = _CLOSED
            elif byte == 10:
                line += 1
            continue
        if byte == 10:
            if empty == 0:
                records += 1
            empty = 1
            line += 1
            state = _START
        elif byte == 34:
            if state == _START:
                state = _QUOTED
                opened = line
            elif state == _CLOSED:  # a doubled mark inside a cell
                state = _QUOTED
            else:
                good = False
                opened = line
                break
            empty = 0
        elif byte == delimiter:
            state = _START
            empty = 0
        elif byte != 13:
            if state == _CLOSED:
                good = False
                break
            state = _PLAIN
            empty = 0
    watch[0], watch[1], watch[2], watch[3], watch[4] = state, line, records, empty, opened
    return good


def closed(watch: NDArray[np.int64]) -> bool:
    """Whether the file may end here: no cell is open."""
    return bool(watch[STATE] != _QUOTED)


def record_count(watch: NDArray[np.int64]) -> int:
    """Records so far, the last one without its line end included."""
    return int(watch[RECORDS]) + int(watch[EMPTY] == 0)
