"""Contents to encode -> blocks that fit into memory -> batches of windows of similar length.

Contents are sorted by length, longest first, so that memory runs out at once if it does, and cut into blocks of a few
batches. Inside a block the windows of all its texts are sorted by length. Blocks depend on the contents alone, not on
the order of rows, on time, or on the number of processes, so the same notes meet in the same batches.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cxrhf.encode.windows import Frame, cut

Integers = NDArray[np.int64]
Ids = NDArray[np.int64]

BATCHES_A_BLOCK = 4
_LETTERS_A_TOKEN = 4  # of English; only shapes blocks


class Window(NamedTuple):
    """A part of a text: which text of the block, from which token to which."""

    text: int
    start: int
    end: int


def blocks(letters: Integers, digests: Sequence[bytes], batch_tokens: int) -> list[list[int]]:
    """Numbers of contents, block by block."""
    order = sorted(range(len(letters)), key=lambda at: (-int(letters[at]), digests[at]))
    budget = BATCHES_A_BLOCK * batch_tokens * _LETTERS_A_TOKEN
    made: list[list[int]] = []
    size = budget
    for at in order:
        if size + int(letters[at]) > budget:
            made.append([])
            size = 0
        made[-1].append(at)
        size += int(letters[at])
    return made


def windows_of(lengths: Sequence[int], frame: Frame) -> list[Window]:
    """All windows of the texts of a block, longest first."""
    found = [
        Window(text, start, end)
        for text, n_tokens in enumerate(lengths)
        for start, end in cut(n_tokens, frame.window, frame.overlap)
    ]
    return sorted(found, key=lambda each: (each.start - each.end, each.text, each.start))


def batched(windows: Sequence[Window], frame: Frame, batch_tokens: int) -> Iterator[Sequence[Window]]:
    """Windows, longest first -> as many at a time as the padded batch may hold tokens, at least one."""
    at = 0
    while at < len(windows):
        longest = windows[at].end - windows[at].start + frame.room
        size = max(1, batch_tokens // longest)
        yield windows[at : at + size]
        at += size


def padded(tokens: Sequence[Ids], batch: Sequence[Window], frame: Frame, padding: int) -> tuple[Ids, Ids]:
    """Token ids with special tokens, filled up on the right, and the mask that hides the filling."""
    width = batch[0].end - batch[0].start + frame.room
    ids = np.full((len(batch), width), padding, dtype=np.int64)
    mask = np.zeros((len(batch), width), dtype=np.int64)
    ids[:, : len(frame.before)] = frame.before
    for row, (text, start, end) in enumerate(batch):
        last = len(frame.before) + end - start
        ids[row, len(frame.before) : last] = tokens[text][start:end]
        ids[row, last : last + len(frame.after)] = frame.after
        mask[row, : last + len(frame.after)] = 1
    return ids, mask
