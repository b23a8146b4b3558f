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
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from cxrhf.metrics.checks import InputError, as_count, as_texts, one_of
from cxrhf.metrics.compiled import compiled

Integers = NDArray[np.int64]
Floats = NDArray[np.float64]


# Tokens of texts -> numbered n-grams; matched n-grams -> BLEU. What self-BLEU and BLEU against a reference share.

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


# The main part.

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
    corpus = [corpus[i] for i in sample_texts(len(corpus), sample, seed)]
    if len(corpus) < 2:
        return float("nan")
    rows, tokens, _ = token_ids(corpus)
    length = np.diff(rows)
    document = np.repeat(np.arange(len(corpus)), length)
    matches = np.array(
        [_clipped(document[start], gram, len(corpus)) for _, start, gram in numbered_ngrams(rows, tokens, order)]
    )
    return float(smoothed_bleu(matches, length, _closest(length), smoothing).mean())


def sample_texts(n: int, sample: int | None, seed: int) -> NDArray[np.int64]:
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


# The fixed stop list of the word metrics: English function words that say nothing about a chest.
#
# Left out of the list on purpose, so that they stay words:
# - negations (no, not, without, nor, never, none, neither, cannot): they carry the finding;
# - places (left, right, above, below, over, under, between, behind, within, near, along): they carry the location;
# - words that name a person's sex (male, woman, ...): a report that names the sex is a finding of the audit.
# Single letters are in it: they are left over from "x-ray", "T-spine", list marks and measures ("2 x 3 cm").

STOP_WORDS: frozenset[str] = frozenset(
    """
    a b c d e f g h i j k l m n o p q r s t u v w x y z
    an the this that these those such same other another each every either both all any some most more much many few
    less least own several enough
    and or but if then than so because since while whereas although though unless until whether as
    of in on at to for from by with into onto upon toward towards through during via per about against among
    amongst beside besides except
    he she it they we you me him her them us his hers its their theirs our ours your yours my mine
    himself herself itself themselves ourselves yourself myself who whom whose which what when where why how there here
    is are was were be been being am has have had having do does did doing done
    can could may might must shall should will would ought
    also again too very just only even still yet already once ever often however therefore thus hence otherwise
    rather quite almost else etc please
    """.split()  # noqa: SIM905 (prose is easier to read and to correct than 200 quoted strings)
)


# References and generated reports -> how many words they share: ROUGE-1, ROUGE-L and BLEU, a number a report.
#
# All count the tokens of `language.tokenize` (lower-case words; numbers, punctuation and marks are none; stop words
# stay), so tools that cut otherwise give other numbers: where full stops count as words, BLEU is a third larger on
# real reports, ROUGE a hundredth smaller. All run from 0 (nothing in common) to 1 (the same words), higher is closer.
# None knows what is true: a template of frequent sentences earns much of all three, and "no effusion" is close to
# "effusion". An empty generated report scores 0, an empty reference gives NaN.
#
# Known gaps: one reference a report; no stemming; ROUGE-L of the whole report (not by sentence, which others call
# Lsum).

PARTS = ("f1", "precision", "recall")
_OVERLAP_WORD = 64  # bits that the kernel moves at once


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
        flat = np.full((size + _OVERLAP_WORD - 1) // _OVERLAP_WORD, full, np.uint64)
        match = np.zeros(flat.shape[0], np.uint64)
        for at in range(rows[long], rows[long + 1]):
            place = head[tokens[at]]
            if place < 0:
                continue
            while place >= 0:
                match[place // _OVERLAP_WORD] |= one << np.uint64(place % _OVERLAP_WORD)
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
            if (flat[place // _OVERLAP_WORD] >> np.uint64(place % _OVERLAP_WORD)) & one == none:
                common += 1
        for place in range(size):
            head[tokens[begin + place]] = -1
        found[pair] = common
