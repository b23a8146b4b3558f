"""Tokens of texts -> numbered n-grams; matched n-grams -> BLEU. What self-BLEU and BLEU against a reference share."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.int64]
Floats = NDArray[np.float64]

# Of BLEU, unless asked otherwise: runs of one to four words; what an order without a match counts as.
ORDERS = 4
SMOOTHING = 0.1


def numbered_ngrams(rows: Integers, tokens: Integers, max_order: int) -> Iterator[tuple[int, Integers, Integers]]:
    """For each order n: n, the places where an n-gram starts, and its number there (equal n-grams, equal numbers).

    `rows` points to the first token of each text in `tokens`; no n-gram reaches into the next text.

    >>> [gram.tolist() for _, _, gram in numbered_ngrams(np.array([0, 3, 5]), np.array([0, 1, 0, 0, 1]), 2)]
    [[0, 1, 0, 0, 1], [0, 1, 0]]
    """
    length = np.diff(rows)
    left = np.repeat(rows[1:], length) - np.arange(len(tokens))  # tokens from here to the end of the text
    gram = tokens
    for n in range(1, max_order + 1):
        start = np.flatnonzero(left >= n)
        if n > 1:  # the (n-1)-gram that starts here, followed by one more token
            key = gram[start] * (int(tokens.max(initial=0)) + 1) + tokens[start + n - 1]
            gram = np.zeros(len(tokens), dtype=np.int64)
            gram[start] = np.unique(key, return_inverse=True)[1]
        yield n, start, gram[start]


def smoothed_bleu(matches: NDArray[np.floating], length: Integers, reference: NDArray, smoothing: float) -> Floats:
    """BLEU of each text: matches[order - 1, text], its length, and the length of its (closest) reference.

    An order without a match counts as `smoothing` matches; a text without one common word scores 0. Orders longer than
    a text are left out of its mean. Every text has a token.
    """
    log_sum = np.zeros(len(length))
    for n, matched in enumerate(matches, start=1):
        here = length >= n
        with np.errstate(divide="ignore"):
            share = np.where(matched > 0, matched, smoothing) / np.where(here, length - n + 1, 1)
            log_sum[here] += np.log(share[here])
    orders = np.minimum(length, len(matches))
    brevity = np.minimum(0.0, 1.0 - reference / length)
    return np.asarray(np.where(matches[0] > 0, np.exp(log_sum / orders + brevity), 0.0), dtype=np.float64)
