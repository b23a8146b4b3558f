"""Tokens of a text -> windows that an encoder can read.

A text is cut without special tokens. A window takes `max_length` less the room of the special tokens, neighbours share
`overlap` tokens, the last window may be shorter, and no window lies wholly inside the one before.

>>> cut(10, window=6, overlap=2)
[(0, 6), (4, 10)]
>>> cut(11, window=6, overlap=2)
[(0, 6), (4, 10), (8, 11)]
>>> cut(0, window=6, overlap=2)
[]
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from cxrhf.encode.files import SENTENCES
from cxrhf.encode.settings import EncodeConfig
from cxrhf.errors import ConfigError

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Ids = NDArray[np.int64]


# Tokens of a window if nobody asks for others, special tokens included. An encoder reads as many as its own config and
# tokenizer name; the paper's code stops at 4096 with Mistral, which has positions for 32768.
LONGEST = 4096
_UNNAMED = 512  # where neither the config nor the tokenizer names a limit
CODE_ROOM = 2  # the public code leaves room for two special tokens and adds none
# Models that number positions from behind the padding token's, so that their table holds fewer than it has rows.
_SHIFTED = frozenset(
    ("camembert", "data2vec-text", "ibert", "layoutlmv3", "lilt", "longformer", "luke", "markuplm", "mpnet", "roberta",
     "roberta-prelayernorm", "xlm-roberta", "xlm-roberta-xl", "xmod")
)  # fmt: skip


class Frame(NamedTuple):
    """How texts are cut: tokens of a window without the special ones, tokens that neighbours share, special tokens."""

    window: int
    overlap: int
    before: tuple[int, ...] = ()
    after: tuple[int, ...] = ()

    @property
    def room(self) -> int:
        """Special tokens of a window."""
        return len(self.before) + len(self.after)


def frame(config: Any, tokenizer: Any, folder: Path, settings: EncodeConfig) -> Frame:
    """The frame that a model and the settings ask for; a ConfigError if it does not fit."""
    before, after = special_tokens(tokenizer)
    if settings.pooling != "tokens":
        before, after = (), ()
    room = len(before) + len(after) if settings.pooling == "tokens" else CODE_ROOM
    limit = position_limit(config)
    if settings.max_length is not None:
        if limit is not None and settings.max_length > limit:
            raise ConfigError(
                f"encoder {settings.encoder}, --max-length",
                allowed=f"at most {limit:,} tokens",
                got=str(settings.max_length),
                next_step=f"--max-length {min(limit, LONGEST)}; in a fit with several encoders, --max-length "
                f"{settings.encoder}={min(limit, LONGEST)} sets it for this one only",
            )
        length = settings.max_length
    else:
        named = [each for each in (limit, _named_length(tokenizer, folder)) if each is not None]
        length = min(LONGEST, *named) if named else _UNNAMED
    window = length - room
    if settings.overlap >= window:
        raise ConfigError(
            f"encoder {settings.encoder}, --overlap, with windows of {max(window, 0):,} tokens",
            got=str(settings.overlap),
            allowed=f"0 to {window - 1}" if window > 0 else "a larger --max-length",
        )
    return Frame(window, settings.overlap, before, after)


def cut(n_tokens: int, window: int, overlap: int) -> list[tuple[int, int]]:
    """Start and end of each window of a text."""
    if n_tokens <= 0:
        return []
    step = window - overlap
    count = 1 + max(0, -(-(n_tokens - window) // step))
    return [(at * step, min(at * step + window, n_tokens)) for at in range(count)]


def position_limit(config: Any) -> int | None:
    """The most tokens that a model has positions for; None if it has no such limit."""
    text = config.get_text_config() if hasattr(config, "get_text_config") else config
    rows = getattr(text, "max_position_embeddings", None)
    if not isinstance(rows, int) or rows <= 0:
        return None
    if getattr(text, "model_type", "") in _SHIFTED:
        padding = getattr(text, "pad_token_id", None)
        rows -= 1 + (1 if padding is None else int(padding))
    return rows


def special_tokens(tokenizer: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """What the tokenizer puts before and after a text, seen on a short one."""
    bare = list(tokenizer("chest", add_special_tokens=False)["input_ids"])
    full = list(tokenizer("chest", add_special_tokens=True)["input_ids"])
    for at in range(len(full) - len(bare) + 1):
        if full[at : at + len(bare)] == bare:
            return tuple(full[:at]), tuple(full[at + len(bare) :])
    return (), ()


def _named_length(tokenizer: Any, folder: Path) -> int | None:
    """The length that the tokenizer, or the page of a sentence encoder, names; many tokenizers say 1e30."""
    asked = []
    length = getattr(tokenizer, "model_max_length", None)
    if length is not None and 0 < length < 1_000_000:
        asked.append(int(length))
    try:
        length = json.loads((folder / SENTENCES).read_text(encoding="utf-8")).get("max_seq_length")
    except (OSError, ValueError, AttributeError):
        length = None
    if isinstance(length, int) and length > 0:
        asked.append(length)
    return min(asked, default=None)


# Mean hidden state of each window -> a vector for each note -> a vector for each set of notes.
#
# tokens (default): windows weigh by the tokens of the note they hold; a note's vector has length 1; the notes of a
# set are averaged, and the mean has length 1. The windows carry the model's special tokens, as the models were
# trained. paper: windows weigh alike, a note's vector has length 1, notes are averaged. No special tokens, as in the
# public code. code: all notes of a set are one text (see notes.encode_sets), each window's mean has length 1, windows
# are averaged. Sums are float64 whatever the model's precision. Notes without text have no vector and do not count in
# the mean of a set; a set of such notes alone has the zero vector.

Vectors = NDArray[np.float32]

_COLUMNS = 256  # of a product at a time, so that no float64 copy of all vectors is held


def window_means(hidden: Any, mask: Any) -> Vectors:
    """Last hidden state (windows x tokens x dim) and mask, as tensors -> the mean over the tokens of each window."""
    share = mask.float() / mask.sum(dim=1, keepdim=True)
    kept = hidden.float().masked_fill(mask.unsqueeze(2) == 0, 0.0)  # a hidden state of filling may be NaN
    means: Vectors = (share.unsqueeze(1) @ kept).squeeze(1).cpu().numpy()
    return means


def pool_windows(means: Vectors, tokens: Integers, note: Integers, n_notes: int, pooling: str) -> Vectors:
    """Window means, the tokens of text in each and the note each is of -> a vector for each note."""
    summed = np.zeros((n_notes, means.shape[1]))
    weighed = np.zeros(n_notes)
    wide = means.astype(np.float64)
    weight = tokens.astype(np.float64) if pooling == "tokens" else np.ones(len(tokens))
    if pooling == "code":
        wide = unit(wide)
    np.add.at(summed, note, wide * weight[:, None])
    np.add.at(weighed, note, weight)
    pooled = summed / np.maximum(weighed, 1.0)[:, None]
    return (pooled if pooling == "code" else unit(pooled)).astype(np.float32)


def pool_notes(vectors: Vectors, sets: sparse.csr_array, pooling: str) -> Vectors:
    """Vectors of notes and 1 where a note is in a set -> a vector for each set."""
    there: Floats = np.asarray(vectors.any(axis=1), dtype=np.float64)
    count = sets @ there
    pooled = np.empty((sets.shape[0], vectors.shape[1]), dtype=np.float32)
    length = np.zeros(sets.shape[0])
    for start in range(0, vectors.shape[1], _COLUMNS):
        part = slice(start, start + _COLUMNS)
        mean = (sets @ vectors[:, part].astype(np.float64)) / np.maximum(count, 1.0)[:, None]
        length += (mean**2).sum(axis=1)
        pooled[:, part] = mean
    if pooling == "tokens":
        pooled /= np.where(length > 0, np.sqrt(length), 1.0)[:, None].astype(np.float32)
    return pooled


def unit(rows: Floats) -> Floats:
    """Rows of length 1; rows of zeros stay."""
    length = np.sqrt((rows**2).sum(axis=1, keepdims=True))
    return rows / np.where(length > 0, length, 1.0)


# Contents to encode -> blocks that fit into memory -> batches of windows of similar length.
#
# Contents are sorted by length, longest first, so that memory runs out at once if it does, and cut into blocks of a
# few batches. Inside a block the windows of all its texts are sorted by length. Blocks depend on the contents alone,
# not on the order of rows, on time, or on the number of processes, so the same notes meet in the same batches.

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


def batch_windows(windows: Sequence[Window], frame: Frame, batch_tokens: int) -> Iterator[Sequence[Window]]:
    """Windows, longest first -> as many at a time as the padded batch may hold tokens, at least one."""
    at = 0
    while at < len(windows):
        longest = windows[at].end - windows[at].start + frame.room
        size = max(1, batch_tokens // longest)
        yield windows[at : at + size]
        at += size


def pad_batch(tokens: Sequence[Ids], batch: Sequence[Window], frame: Frame, padding: int) -> tuple[Ids, Ids]:
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
