"""Mean hidden state of each window -> a vector for each note -> a vector for each set of notes.

tokens (default): windows weigh by the tokens of the note they hold; a note's vector has length 1; the notes of a set
are averaged, and the mean has length 1. The windows carry the model's special tokens, as the models were trained.
paper: windows weigh alike, a note's vector has length 1, notes are averaged. No special tokens, as in the public code.
code: all notes of a set are one text (see notes.encode_sets), each window's mean has length 1, windows are averaged.
Sums are float64 whatever the model's precision. Notes without text have no vector and do not count in the mean of a
set; a set of such notes alone has the zero vector.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

Vectors = NDArray[np.float32]
Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

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
