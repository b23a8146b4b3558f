"""Reports (lists of str) -> tokens, sparse word counts, and how varied the language is.

The measures of diversity look at every token; word counts leave out the stop list, because associations of "the" are
not clinical. All are corpus measures: they move with the number of texts, so compare corpora of equal size
(`self_bleu(..., sample=n)`). Higher diversity is not better by itself: noise is diverse too.

Known gaps: one word is one token (no phrases, no negation scope, no spelling variants), and the stop list is English.
"""

from __future__ import annotations

import itertools
import re
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from cxrhf.metrics.checks import InputError, as_count, as_texts
from cxrhf.metrics.ngrams import ORDERS, SMOOTHING, numbered_ngrams, smoothed_bleu
from cxrhf.metrics.stopwords import STOP_WORDS

# De-identification brackets of older MIMIC notes, special tokens of generators, HTML leftovers: marks, not words.
_MARKS = re.compile(r"\[\*\*[^\]]{0,80}\*\*\]|<[^<>\s]{1,20}>|&[a-z]{2,6};")
_NOT = re.compile(r"n't\b")
_CLITIC = re.compile(r"'(?:s|re|ve|ll|d|m|t)\b")
# A word is letters only, bounded by non-word characters: "t12", "2cm", "___f" are not alphabetic. A run of x is the
# de-identification mark of the Indiana reports ("XXXX"), whatever its length from two.
_ASCII_WORD = re.compile(r"\b(?!xx+\b)[a-z]+\b", re.ASCII)
_WORD = re.compile(r"\b(?!xx+\b)[^\W\d_]+\b")


def tokenize(text: str) -> list[str]:
    """Split a report into lower-case alphabetic tokens.

    Hyphens split words ("x-ray" is x, ray), because report models write both "pre-existing" and "pre - existing".
    Possessive and contracted endings are dropped ("patient's" is patient), except that n't becomes not ("isn't" is is,
    not), so that a negation remains a word. Letters of any script are kept, after compatibility normalisation (NFKC).
    Tokens with a digit or underscore, de-identification marks (XXXX, ___, [**...**]), markup (<unk>, &lt;) and numbers
    are dropped.

    >>> tokenize("The patient's x-ray isn't normal: XXXX ___ 2cm T-spine.")
    ['the', 'patient', 'x', 'ray', 'is', 'not', 'normal', 't', 'spine']
    """
    ascii_only = text.isascii()
    text = text.lower() if ascii_only else unicodedata.normalize("NFKC", text).lower().replace("’", "'")
    if "<" in text or "&" in text or "[*" in text:
        text = _MARKS.sub(" ", text)
    if "'" in text:
        text = text.replace("can't", "can not").replace("won't", "will not")
        text = _CLITIC.sub(" ", _NOT.sub(" not", text))
    return (_ASCII_WORD if ascii_only else _WORD).findall(text)


@dataclass(frozen=True, slots=True)
class DocumentTerms:
    """Word counts matrix[document, word], and the words of its columns."""

    matrix: sp.csr_array
    vocabulary: list[str]


def document_terms(texts: Iterable[str], vocabulary: Iterable[str] | None = None, stop: bool = True) -> DocumentTerms:
    """Count the words of every text.

    Without `vocabulary`, the columns are the words of the texts in alphabetical order, without stop words if `stop`.
    With `vocabulary`, they are exactly its words in its order, and any stop words in it are counted.

    >>> document_terms(["No effusion.", "Effusion, effusion"]).matrix.toarray().tolist()
    [[1, 1], [2, 0]]
    """
    rows, tokens, found = token_ids(as_texts(texts))
    if vocabulary is None:
        columns = sorted(word for word in found if not (stop and word in STOP_WORDS))
    else:
        columns = as_texts(vocabulary, "vocabulary")
        if len(set(columns)) < len(columns):
            twice = next(word for i, word in enumerate(columns) if word in columns[:i])
            raise InputError(f"vocabulary: expected each word once, got {twice!r} twice")
    place = {word: column for column, word in enumerate(columns)}
    column_of = np.array([place.get(word, -1) for word in found], dtype=np.int64)
    column = column_of[tokens]
    kept = column >= 0
    n_texts = len(rows) - 1
    document = np.repeat(np.arange(n_texts), np.diff(rows))
    ones = np.ones(int(kept.sum()), dtype=np.int64)
    matrix = sp.coo_array((ones, (document[kept], column[kept])), shape=(n_texts, len(columns))).tocsr()
    matrix.sort_indices()
    return DocumentTerms(matrix, columns)


# The number of every word this process has met: a report is cut into words once, however many measures look at it.
_NUMBER: dict[str, int] = {}
_WORD_OF: dict[int, str] = {}
_NEXT = itertools.count()


@lru_cache(maxsize=2**15)
def _numbers(text: str) -> NDArray[np.int64]:
    """The words of one text by their numbers in this process."""
    found = []
    for word in tokenize(text):
        number = _NUMBER.get(word)
        if number is None:
            # Two threads may both come here: one number wins, the other is never used. The word is noted before its
            # number can be seen.
            number = next(_NEXT)
            _WORD_OF[number] = word
            number = _NUMBER.setdefault(word, number)
        found.append(number)
    return np.array(found, dtype=np.int64)


def token_ids(texts: list[str]) -> tuple[NDArray[np.int64], NDArray[np.int64], list[str]]:
    """Row pointers, the token numbers of all texts in one array, and the word of each number, as they first appear."""
    parts = [_numbers(text) for text in texts]
    rows = np.cumsum([0, *(len(part) for part in parts)], dtype=np.int64)
    tokens = np.concatenate([np.zeros(0, dtype=np.int64), *parts])
    kinds, first, which = np.unique(tokens, return_index=True, return_inverse=True)
    order = np.argsort(first)
    place = np.empty(len(kinds), dtype=np.int64)
    place[order] = np.arange(len(kinds))
    return rows, place[which], [_WORD_OF[number] for number in kinds[order].tolist()]


def template_diversity(texts: Iterable[str]) -> float:
    """Number of distinct reports over the number of reports; 0 to 1, higher means more diverse.

    1 if all reports are distinct and 1/n if all are equal. Case and punctuation matter; runs of white space count as
    one space. NaN without texts.
    """
    rows = as_texts(texts)
    return len({template_of(text) for text in rows}) / len(rows) if rows else float("nan")


def template_of(text: str) -> str:
    """What two reports must have in common to count as one: all but the amount of white space."""
    return " ".join(text.split())


def type_token_ratio(texts: Iterable[str]) -> float:
    """Number of distinct words over the number of words in the corpus, including stop words; 0 to 1.

    Decreases with the length of the corpus, so compare only corpora of about equal size. NaN without tokens.
    """
    _, tokens, found = token_ids(as_texts(texts))
    return len(found) / len(tokens) if len(tokens) else float("nan")


def self_bleu(
    texts: Iterable[str],
    max_order: int = ORDERS,
    smoothing: float = SMOOTHING,
    sample: int | None = None,
    seed: int = 0,
) -> float:
    """Self-BLEU: mean BLEU of each text with all other texts as references; 0 to 1, higher means less diverse.

    This is the exact definition (sentence BLEU, n-grams up to `max_order` with equal weights): an n-gram matches at
    most as often as in the other text that has it most often, and the reference length is the closest among the other
    texts, the shorter one of a tie. This requires only the two largest counts of each n-gram, so the cost is linear in
    the number of tokens.

    An order without a match counts as `smoothing` matches (0.1 is "method 1" of Chen and Cherry 2014); a text without
    a common word scores 0. Orders longer than a text are excluded from its mean, so a corpus of one short template
    scores 1. (Other tools give such orders the smoothing value and report short templates as diverse.) Texts without
    tokens are excluded. NaN with fewer than two texts.

    Self-BLEU increases with the number of texts. To compare corpora of different sizes, `sample` first draws that many
    texts, with `seed`.
    """
    order = as_count(max_order, "max_order")
    if not 0 <= smoothing <= 1:
        raise InputError(f"smoothing: expected a number from 0 to 1, got {smoothing!r}")
    corpus = [text for text in as_texts(texts) if len(_numbers(text))]
    corpus = [corpus[i] for i in drawn_texts(len(corpus), sample, seed)]
    if len(corpus) < 2:
        return float("nan")
    rows, tokens, _ = token_ids(corpus)
    length = np.diff(rows)
    document = np.repeat(np.arange(len(corpus)), length)
    matches = np.array(
        [_clipped(document[start], gram, len(corpus)) for _, start, gram in numbered_ngrams(rows, tokens, order)]
    )
    return float(smoothed_bleu(matches, length, _closest(length), smoothing).mean())


def drawn_texts(n: int, sample: int | None, seed: int) -> NDArray[np.int64]:
    """Which of n texts are looked at, in their order: all, or `sample` of them drawn by the seed."""
    if sample is None or as_count(sample, "sample", 2) >= n:
        return np.arange(n)
    rng = np.random.default_rng(np.random.SeedSequence(seed))
    return np.sort(rng.choice(n, sample, replace=False))


def _clipped(document: NDArray[Any], gram: NDArray[Any], n_texts: int) -> NDArray[np.float64]:
    """Matches of each text: for each of its n-grams the smaller of its count and the largest count elsewhere."""
    pair, count = np.unique(gram * n_texts + document, return_counts=True)
    gram, document = pair // n_texts, pair % n_texts
    by_count = np.lexsort((-count, gram))
    first = np.flatnonzero(np.diff(gram[by_count], prepend=-1))
    best = count[by_count][first]
    second = np.zeros_like(best)
    several = np.diff(first, append=len(gram)) > 1
    second[several] = count[by_count][first[several] + 1]
    which = np.cumsum(np.diff(gram, prepend=-1) != 0) - 1
    # A text that holds the maximum alone meets the second best elsewhere; if it shares it, the two are equal.
    elsewhere = np.where(count == best[which], second[which], best[which])
    return np.asarray(np.bincount(document, np.minimum(count, elsewhere), n_texts), dtype=np.float64)


def _closest(length: NDArray[Any]) -> NDArray[np.float64]:
    """The length among the other texts that is closest to each text's, the shorter one of a tie."""
    sizes, which, times = np.unique(length, return_inverse=True, return_counts=True)
    below = np.concatenate([[-np.inf], sizes[:-1]])
    above = np.concatenate([sizes[1:], [np.inf]])
    closest = np.where(sizes - below <= above - sizes, below, above)
    return np.asarray(np.where(times > 1, sizes, closest)[which], dtype=np.float64)


@dataclass(frozen=True, slots=True)
class VocabularyShift:
    """Words of the references that the generated texts keep or lose, and words that only the generated texts have.

    Words are ordered by count (of the corpus that has them; the references for kept words), ties alphabetically.
    `lost_mass` is the share of reference tokens in lost words, `new_mass` the share of generated tokens in new words.
    """

    kept: tuple[str, ...]
    lost: tuple[str, ...]
    new: tuple[str, ...]
    n_reference: int
    n_generated: int
    kept_share: float
    lost_mass: float
    new_mass: float


def vocabulary_shift(
    reference_texts: Iterable[str], generated_texts: Iterable[str], stop: bool = True
) -> VocabularyShift:
    """Words that are kept, lost and new in generated texts, without stop words if `stop`.

    Shares of an empty corpus are NaN.
    """
    reference = _totals(document_terms(as_texts(reference_texts, "reference_texts"), stop=stop))
    generated = _totals(document_terms(as_texts(generated_texts, "generated_texts"), stop=stop))

    def ordered(words: Iterable[str], counts: dict[str, int]) -> tuple[str, ...]:
        return tuple(sorted(words, key=lambda word: (-counts[word], word)))

    def mass(words: Iterable[str], counts: dict[str, int]) -> float:
        return sum(counts[word] for word in words) / sum(counts.values()) if counts else float("nan")

    kept = ordered(reference.keys() & generated.keys(), reference)
    lost = ordered(reference.keys() - generated.keys(), reference)
    new = ordered(generated.keys() - reference.keys(), generated)
    share = len(kept) / len(reference) if reference else float("nan")
    sizes = (len(reference), len(generated))
    return VocabularyShift(kept, lost, new, *sizes, share, mass(lost, reference), mass(new, generated))


def _totals(terms: DocumentTerms) -> dict[str, int]:
    return dict(zip(terms.vocabulary, np.asarray(terms.matrix.sum(axis=0)).ravel().tolist(), strict=True))


def semantic_diversity(vectors: ArrayLike) -> float:
    """1 minus the mean cosine over all pairs of report embeddings (rows); 0 (all equal) to 2.

    The mean over pairs follows from the length of the sum of the unit vectors, so the cost is linear. Zero vectors
    have no direction and are excluded. NaN with fewer than two embeddings.
    """
    rows = np.asarray(vectors, dtype=np.float64)
    if rows.ndim != 2 or not np.isfinite(rows).all():
        raise InputError(f"vectors: expected a finite 2-D array with one row per report, got shape {rows.shape}")
    size = np.linalg.norm(rows, axis=1)
    unit = rows[size > 0] / size[size > 0, None]
    n = len(unit)
    return float(1 - (np.sum(unit.sum(axis=0) ** 2) - n) / (n * (n - 1))) if n > 1 else float("nan")


@dataclass(frozen=True, slots=True)
class LexicalDiversity:
    """Diversity metrics of a corpus; `n_empty` counts texts without words."""

    n_texts: int
    n_empty: int
    n_tokens: int
    n_types: int
    template_diversity: float
    type_token_ratio: float
    self_bleu: float


def lexical_diversity(texts: Iterable[str], sample: int | None = None, seed: int = 0) -> LexicalDiversity:
    """Compute all diversity metrics of `texts` that need no encoder. `sample` and `seed` are for self-BLEU."""
    corpus = as_texts(texts)
    rows, tokens, found = token_ids(corpus)
    return LexicalDiversity(
        n_texts=len(corpus),
        n_empty=int((np.diff(rows) == 0).sum()),
        n_tokens=len(tokens),
        n_types=len(found),
        template_diversity=template_diversity(corpus),
        type_token_ratio=len(found) / len(tokens) if len(tokens) else float("nan"),
        self_bleu=self_bleu(corpus, sample=sample, seed=seed),
    )
