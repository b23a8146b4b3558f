"""References and generated reports -> how many words they share: ROUGE-1, ROUGE-L and BLEU, a number a report.

All count the tokens of `language.tokenize` (lower-case words; numbers, punctuation and marks are none; stop words
stay), so tools that cut otherwise give other numbers: where full stops count as words, BLEU is a third larger on real
reports, ROUGE a hundredth smaller. All run from 0 (nothing in common) to 1 (the same words), higher is closer. None
knows what is true: a template of frequent sentences earns much of all three, and "no effusion" is close to "effusion".
An empty generated report scores 0, an empty reference gives NaN.

Known gaps: one reference a report; no stemming; ROUGE-L of the whole report (not by sentence, which others call Lsum).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cxrhf.metrics.checks import InputError, as_count, as_texts, one_of
from cxrhf.metrics.compiled import compiled
from cxrhf.metrics.language import token_ids
from cxrhf.metrics.ngrams import ORDERS, SMOOTHING, numbered_ngrams, smoothed_bleu

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

PARTS = ("f1", "precision", "recall")
_WORD = 64  # bits that the kernel moves at once


@dataclass(frozen=True, slots=True)
class OverlapScores:
    """Arrays with one value per report, in the order of the reports; `corpus_bleu` is for all reports together."""

    rouge1: Floats
    rouge1_precision: Floats
    rouge1_recall: Floats
    rougeL: Floats
    rougeL_precision: Floats
    rougeL_recall: Floats
    bleu: Floats
    corpus_bleu: float
    matches: Floats  # reports x orders 1 to 4: n-grams of the generated report that its reference has too
    n_reference: Integers  # words
    n_generated: Integers


def overlap_scores(references: Iterable[str], generated: Iterable[str], smoothing: float = SMOOTHING) -> OverlapScores:
    """Compute ROUGE-1, ROUGE-L and BLEU together; each distinct report is tokenized and each pair compared once.

    >>> scores = overlap_scores(["The heart is normal. No effusion."], ["The heart is large."])
    >>> [round(float(each[0]), 4) for each in (scores.rouge1, scores.rougeL, scores.bleu)]
    [0.6, 0.6, 0.2412]
    """
    if not 0 <= smoothing <= 1:
        raise InputError(f"smoothing: expected a number from 0 to 1, got {smoothing!r}")
    pairs = _pairs(references, generated)
    matches = _matches(pairs, ORDERS)
    shares = {
        f"{name}{ending}": _part(common, pairs, part)[pairs.row]
        for name, common in (("rouge1", matches[0]), ("rougeL", _longest(pairs)))
        for part, ending in zip(PARTS, ("", "_precision", "_recall"), strict=True)
    }
    n_reference, n_generated = (size[pairs.row] for size in _sizes(pairs))
    found = matches.T[pairs.row]
    return OverlapScores(
        **shares,
        bleu=_bleu(matches, pairs, smoothing)[pairs.row],
        corpus_bleu=corpus_bleu_of(found, n_reference, n_generated),
        matches=found,
        n_reference=n_reference,
        n_generated=n_generated,
    )


def rouge1(references: Iterable[str], generated: Iterable[str], part: str = "f1") -> Floats:
    """ROUGE-1 of each report: common words, each counted at most as often as in the other report; 0 to 1.

    `part` "precision" is their share of the generated words, "recall" that of the reference words, and "f1" (default)
    the harmonic mean of both. NaN if the reference is empty.

    >>> rouge1(["no pleural effusion", "clear lungs", ""], ["no effusion", "", "clear"]).tolist()
    [0.8, 0.0, nan]
    """
    one_of(part, "part", PARTS)
    pairs = _pairs(references, generated)
    return _part(_matches(pairs, 1)[0], pairs, part)[pairs.row]


def rougeL(references: Iterable[str], generated: Iterable[str], part: str = "f1") -> Floats:
    """ROUGE-L of each report: the longest common subsequence of words, gaps allowed; 0 to 1.

    `part` "precision" is its share of the generated words, "recall" that of the reference words, and "f1" (default)
    the harmonic mean of both. NaN if the reference is empty.

    >>> rougeL(["effusion is small", "small effusion"], ["effusion small", "effusion small"]).tolist()
    [0.8, 0.5]
    """
    one_of(part, "part", PARTS)
    pairs = _pairs(references, generated)
    return _part(_longest(pairs), pairs, part)[pairs.row]


def sentence_bleu(
    references: Iterable[str], generated: Iterable[str], max_order: int = ORDERS, smoothing: float = SMOOTHING
) -> Floats:
    """BLEU of each report with its reference, with equal weights for orders 1 to `max_order`; 0 to 1.

    Smoothed like `self_bleu`: an order without a match counts as `smoothing` matches, orders longer than the report are
    excluded, and a report without a common word scores 0. Equal reports therefore score 1, however short.

    >>> sentence_bleu(["The lungs are clear."], ["the lungs are clear"]).tolist()
    [1.0]
    """
    order = as_count(max_order, "max_order")
    if not 0 <= smoothing <= 1:
        raise InputError(f"smoothing: expected a number from 0 to 1, got {smoothing!r}")
    pairs = _pairs(references, generated)
    return _bleu(_matches(pairs, order), pairs, smoothing)[pairs.row]


def corpus_bleu(references: Iterable[str], generated: Iterable[str], max_order: int = ORDERS) -> float:
    """Corpus BLEU without smoothing: matches and lengths are summed over reports first; 0 to 1, higher is better.

    0 if an order has no match in any report. Reports with an empty reference are excluded. NaN if no report remains.

    >>> corpus_bleu(["the heart is not enlarged"], ["the heart is not big"])
    0.668740304976422
    """
    order = as_count(max_order, "max_order")
    pairs = _pairs(references, generated)
    sizes = (size[pairs.row] for size in _sizes(pairs))
    return corpus_bleu_of(_matches(pairs, order).T[pairs.row], *sizes)


def corpus_bleu_of(matches: Floats, n_reference: Integers, n_generated: Integers) -> float:
    """Corpus BLEU from the counts of `overlap_scores`, so that subsets and resamples of a corpus only cost a sum."""
    there = n_reference > 0
    if not there.any():
        return float("nan")
    length = n_generated[there]
    orders = np.arange(matches.shape[1])
    found = matches[there].sum(axis=0)
    possible = np.maximum(length[:, None] - orders, 0).sum(axis=0)
    if (found == 0).any():
        return 0.0
    brevity = min(0.0, 1.0 - float(n_reference[there].sum()) / float(length.sum()))
    return float(np.exp(np.log(found / possible).mean() + brevity))


class _Pairs(NamedTuple):
    """Distinct texts as token numbers, distinct pairs of them, and the pair of each row."""

    rows: Integers
    tokens: Integers
    n_words: int
    reference: Integers
    generated: Integers
    row: Integers


def _pairs(references: Iterable[str], generated: Iterable[str]) -> _Pairs:
    wanted, made = as_texts(references, "references"), as_texts(generated, "generated")
    if len(wanted) != len(made):
        raise InputError(f"generated: expected {len(wanted)} reports as in references, got {len(made)}")
    number: dict[str, int] = {}
    both = [
        np.array([number.setdefault(text, len(number)) for text in texts], dtype=np.int64) for texts in (wanted, made)
    ]
    rows, tokens, words = token_ids(list(number))
    key, row = np.unique(both[0] * max(len(number), 1) + both[1], return_inverse=True)
    return _Pairs(rows, tokens, len(words), key // max(len(number), 1), key % max(len(number), 1), row)


def _sizes(pairs: _Pairs) -> tuple[Integers, Integers]:
    length = np.diff(pairs.rows)
    return length[pairs.reference], length[pairs.generated]


def _part(common: Floats, pairs: _Pairs, part: str) -> Floats:
    """Common words as a share; 0 for an empty generated report, NaN for an empty reference."""
    n_reference, n_generated = _sizes(pairs)
    if part == "f1":
        share = 2 * common / np.maximum(n_reference + n_generated, 1)
    else:
        share = common / np.maximum(n_reference if part == "recall" else n_generated, 1)
    return np.asarray(np.where(n_reference > 0, share, np.nan), dtype=np.float64)


def _bleu(matches: Floats, pairs: _Pairs, smoothing: float) -> Floats:
    n_reference, n_generated = _sizes(pairs)
    score = np.zeros(len(n_reference))
    some = n_generated > 0
    score[some] = smoothed_bleu(matches[:, some], n_generated[some], n_reference[some], smoothing)
    score[n_reference == 0] = np.nan
    return score


def _matches(pairs: _Pairs, max_order: int) -> Floats:
    """matches[order - 1, pair]: n-grams in common, each at most as often as the other text has it."""
    found = np.zeros((max_order, len(pairs.reference)))
    text = np.repeat(np.arange(len(pairs.rows) - 1), np.diff(pairs.rows))
    for n, start, gram in numbered_ngrams(pairs.rows, pairs.tokens, max_order):
        by_text = np.lexsort((gram, text[start]))
        ends = np.concatenate([[0], np.cumsum(np.bincount(text[start], minlength=len(pairs.rows) - 1))])
        _common(ends.astype(np.int64), gram[by_text], pairs.reference, pairs.generated, found[n - 1])
    return found


def _longest(pairs: _Pairs) -> Floats:
    found = np.zeros(len(pairs.reference))
    _subsequences(pairs.rows, pairs.tokens, pairs.reference, pairs.generated, pairs.n_words, found)
    return found


@compiled
def _common(rows: Any, grams: Any, first: Any, second: Any, found: Any) -> None:
    """Size of what two sorted lists share, for every pair of texts."""
    for pair in range(first.shape[0]):
        a, b = rows[first[pair]], rows[second[pair]]
        last_a, last_b = rows[first[pair] + 1], rows[second[pair] + 1]
        common = 0
        while a < last_a and b < last_b:
            if grams[a] == grams[b]:
                common += 1
                a += 1
                b += 1
            elif grams[a] < grams[b]:
                a += 1
            else:
                b += 1
        found[pair] = common


@compiled
def _subsequences(rows: Any, tokens: Any, first: Any, second: Any, n_words: int, found: Any) -> None:
    """Length of the longest common subsequence of every pair of texts, 64 cells of its table at a time.

    A row of the table rises by 0 or 1 from cell to cell, so bits hold it: a 0 where it rises. The next row is an
    addition with carry (Hyyrö 2004). The shorter text lies along the bits; memory grows with its length alone.
    """
    one, none, full = np.uint64(1), np.uint64(0), ~np.uint64(0)
    head = np.full(n_words, -1, np.int64)  # word -> its last place in the shorter text; `before` -> the one before that
    for pair in range(first.shape[0]):
        short, long = first[pair], second[pair]
        if rows[short + 1] - rows[short] > rows[long + 1] - rows[long]:
            short, long = long, short
        begin, size = rows[short], rows[short + 1] - rows[short]
        if size == 0:
            continue
        before = np.empty(size, np.int64)
        for place in range(size):
            before[place] = head[tokens[begin + place]]
            head[tokens[begin + place]] = place
        flat = np.full((size + _WORD - 1) // _WORD, full, np.uint64)
        match = np.zeros(flat.shape[0], np.uint64)
        for at in range(rows[long], rows[long + 1]):
            place = head[tokens[at]]
            if place < 0:
                continue
            while place >= 0:
                match[place // _WORD] |= one << np.uint64(place % _WORD)
                place = before[place]
            carry = none
            for word in range(flat.shape[0]):
                old = flat[word]
                rises = old & match[word]
                added = old + rises
                over = added < old
                total = added + carry
                over = over or total < added
                carry = one if over else none
                flat[word] = total | (old & ~match[word])
                match[word] = none
        common = 0
        for place in range(size):
            if (flat[place // _WORD] >> np.uint64(place % _WORD)) & one == none:
                common += 1
        for place in range(size):
            head[tokens[begin + place]] = -1
        found[pair] = common
