"""Texts of notes -> how often each word stands in each note, as a sparse matrix: a bag of words.

What a word is, by style:
default: a run of letters and digits, two or more, at least one of them a letter, lower-cased.
paper: what scikit-learn's CountVectorizer takes for one: a run of letters, digits and underscores, two or more,
lower-cased. Numbers are words, and so is the ___ of MIMIC's notes.
Nothing is left out as a stop word here, so that no, not and without stay. Each text is read once. Arrow splits and
numbers the words: the counts of CountVectorizer in about half its time, and no list of Python strings. 10,000 notes of
10 kB on one core: 5 s, in either style.
"""

from __future__ import annotations

import re
import string
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from itertools import filterfalse
from typing import Any, Literal, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from scipy import sparse

from cxrhf.encode.settings import RECIPES
from cxrhf.settings import check_one_of

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Progress = Callable[[str], None]


Style = Literal["default", "paper"]

# Words held by fewer patients say who somebody is rather than what they have.
MIN_PATIENTS = 5
MAX_WORDS = 8192
# Patients or sets of notes whose words are added up at a time, so that no product over all words is ever held.
GROUPS = 2_000


class WordCounts(NamedTuple):
    """Notes x words, counted. Words in the order in which they were met: take them by name, never by number."""

    counts: sparse.csr_array  # int32
    words: list[str]
    style: Style


class FrequentWords(NamedTuple):
    """Notes x words, counted. Words in alphabetical order; `n_patients` = how many patients' notes hold each."""

    counts: sparse.csr_array
    words: list[str]
    n_patients: Integers


def count_words(
    texts: pa.ChunkedArray | pa.Array,
    patients: Integers,
    *,
    max_words: int = MAX_WORDS,
    min_patients: int = MIN_PATIENTS,
    progress: Progress = lambda _: None,
) -> FrequentWords:
    """Count the commonest words that `min_patients` patients or more have in their notes.

    `patients` numbers the patient of each text. Labels play no part in the choice. Memory: 8 bytes for each note and
    different word in it, some 5 kB a discharge note.

    >>> found = count_words(pa.array(["No edema, no.", "edema 3"]), np.array([0, 1]), min_patients=1)
    >>> found.words, found.counts.toarray().tolist()
    (['edema', 'no'], [[1, 2], [1, 0]])
    """
    counted = count_all(texts, progress=progress)
    shape = (int(patients.max(initial=-1)) + 1, len(patients))
    ones = np.ones(len(patients), dtype=np.int32)
    held, total = sums(sparse.csr_array((ones, (patients, np.arange(len(patients)))), shape=shape), counted.counts)
    words = np.array(counted.words, dtype=object)
    kept = commonest_words(words, total, held >= min_patients, max_words)
    return FrequentWords(sparse.csr_array(counted.counts[:, kept]), words[kept].tolist(), held[kept])


def count_all(
    texts: pa.ChunkedArray | pa.Array,
    style: Style = "default",
    *,
    known: Sequence[str] | None = None,
    progress: Progress = lambda _: None,
) -> WordCounts:
    """Count every word of every text, or only those that are `known`. A missing text holds no word.

    >>> found = count_all(pa.array(["BP 120/80 ___", None]), "paper")
    >>> found.words, found.counts.toarray().tolist()
    (['bp', '120', '80', '___'], [[1, 1, 1, 1], [0, 0, 0, 0]])
    """
    numbered = {} if known is None else {word: at for at, word in enumerate(known)}
    parts = []
    for at, batch in enumerate(batches(texts)):
        parts.append(_count(batch, style, numbered, grow=known is None))
        if at and at % 20 == 0:
            progress(f"words of {at * BATCH:,} of {len(texts):,} notes")
    return WordCounts(stack_batches(parts, len(numbered)), list(numbered), style)


def commonest_words(words: NDArray[Any], total: Integers, allowed: NDArray[np.bool_], limit: int) -> Integers:
    """Numbers of the `limit` commonest words among the allowed, by the alphabet; so are ties, not by the file."""
    some = np.flatnonzero(allowed)
    kept = some[np.lexsort((words[some], -total[some]))][:limit]
    return np.asarray(kept[np.argsort(words[kept])], dtype=np.int64)


def sums(
    groups: sparse.csr_array, counts: sparse.csr_array, times: Integers | None = None
) -> tuple[Integers, Integers]:
    """How many groups of notes hold each word, and how often they hold it. `times`: how often each group counts."""
    holding, total = np.zeros(counts.shape[1]), np.zeros(counts.shape[1])  # whole numbers, exact to 2**53
    times = np.ones(groups.shape[0], dtype=np.int64) if times is None else times
    for start in range(0, groups.shape[0], GROUPS):
        part = groups[start : start + GROUPS] @ counts
        weight = np.repeat(times[start : start + GROUPS], np.diff(part.indptr)).astype(np.float64)
        holding += np.bincount(part.indices, weight, minlength=counts.shape[1])
        total += np.bincount(part.indices, weight * part.data, minlength=counts.shape[1])
    return holding.astype(np.int64), total.astype(np.int64)


def weigh_counts(counts: sparse.csr_array, weights: Floats) -> sparse.csr_array:
    """log(1 + count) times the weight of the word, rows of length 1; a row without any word stays a row of zeros."""
    features = sparse.csr_array(counts.astype(np.float64))
    features.sort_indices()  # products come unsorted, and every slice would sort again
    features.data = np.log1p(features.data) * weights[features.indices]
    of_value = np.repeat(np.arange(features.shape[0]), np.diff(features.indptr))
    length = np.sqrt(np.bincount(of_value, features.data**2, minlength=features.shape[0]))
    features.data /= length[of_value]
    return features


def rarity(n_patients: Integers, of_all: int) -> Floats:
    """Inverse patient frequency: words of few patients weigh more, words of all patients 1."""
    return np.asarray(1 + np.log(of_all / n_patients), dtype=np.float64)


def stack_batches(parts: list[sparse.csr_array], n_words: int) -> sparse.csr_array:
    """The batches below each other; the early ones may not have known all words yet."""
    ends = np.concatenate([[0], *(np.diff(part.indptr) for part in parts)]).cumsum()
    kind = np.int32 if ends[-1] <= np.iinfo(np.int32).max else np.int64  # half the memory, and liblinear takes no other
    indices = np.concatenate([np.zeros(0, dtype=kind), *(part.indices.astype(kind, copy=False) for part in parts)])
    data = np.concatenate([part.data for part in parts]) if parts else np.zeros(0, dtype=np.int32)
    return sparse.csr_array((data, indices, ends.astype(kind)), shape=(len(ends) - 1, n_words))


def _count(texts: pa.Array, style: Style, numbered: dict[str, int], *, grow: bool) -> sparse.csr_array:
    """Counts of a few texts; words not met before get the next numbers, or, unless `grow`, are passed over."""
    if style == "paper":
        split = pc.split_pattern_regex(lower_texts(texts), _between_words())
    else:
        split = pc.split_pattern_regex(pc.utf8_lower(texts), r"[^\pL\pN]+")
    coded = split.flatten().dictionary_encode()
    real = pc.greater(pc.utf8_length(coded.dictionary), 1)
    if style == "default":
        real = pc.and_(real, pc.match_substring_regex(coded.dictionary, r"^.*\pL.*$"))
    number = np.full(len(real), -1, dtype=np.int64)
    met = coded.dictionary.filter(real).to_pylist()
    real = real.to_numpy(zero_copy_only=False)
    number[real] = [numbered.setdefault(word, len(numbered)) if grow else numbered.get(word, -1) for word in met]
    column = number[coded.indices.to_numpy(zero_copy_only=False)]
    row = pc.list_parent_indices(split).to_numpy(zero_copy_only=False)
    kept = column >= 0
    shape = (len(texts), len(numbered))
    ones = np.ones(int(kept.sum()), dtype=np.int32)
    return sparse.csr_array(sparse.coo_array((ones, (row[kept], column[kept])), shape=shape))


@lru_cache(maxsize=1)
def _between_words() -> str:
    r"""What Python's \w does not match, as an expression for Arrow, whose own \w knows ASCII alone."""
    everything = "".join(map(chr, range(sys.maxunicode + 1)))
    runs = (run.span() for run in re.finditer(r"\w+", everything))  # the place of a character is its number
    return "[^" + "".join(rf"\x{{{start:x}}}-\x{{{end - 1:x}}}" for start, end in runs) + "]+"


# Texts of notes -> the same texts cleaned by a named recipe, as encoders and word counts read them.
#
# plain: lower case, nothing else. Negations, punctuation and white space stay.
#
# oberst: what the public code of "Revisiting Performance Claims" does, in its order:
# 1. every character of Python's `string.punctuation` is deleted, not replaced: "x-ray" becomes "xray", "___" nothing;
# 2. what white space separates are words; English stop words among them are dropped, capitals mattering, and the rest
#    is joined by single spaces: "no effusion" becomes "effusion", but "No effusion" keeps its "No";
# 3. the header string is deleted wherever it stands. The paper names none ("replacement of repetitive words"). It is
#    what steps 1 and 2 leave of the first lines of every discharge note of MIMIC-IV, with the space behind it: names,
#    numbers and dates are ___ there. Sex, service and all that follows stay;
# 4. the character U+0095, a bullet of old Windows texts, is deleted; spaces around it stay;
# 5. lower case.
#
# The stop words are those of the public code, NLTK's 179 for English: no, nor and not go, without, never and none
# stay. Lower case is Python's `str.lower`, Unicode included. 10,000 notes of 10 kB on one core: plain .2 s, oberst 2
# s; Arrow deletes the punctuation, Python does the rest, which was faster than expressions for hundreds of words.

# Texts cleaned at a time: of all that lies between a text and its cleaned form only so much is ever in memory.
BATCH = 500
HEADER = "Name Unit No Admission Date Discharge Date Date Birth "
BULLET = "\x95"
# NLTK's English list as of 2024, which the public code takes; it is a download there.
STOP_WORDS = frozenset(
    """
    i me my myself we our ours ourselves you you're you've you'll you'd your yours yourself yourselves he him his
    himself she she's her hers herself it it's its itself they them their theirs themselves what which who whom this
    that that'll these those am is are was were be been being have has had having do does did doing a an the and but
    if or because as until while of at by for with about against between into through during before after above
    below to from up down in out on off over under again further then once here there when where why how all any
    both each few more most other some such no nor not only own same so than too very s t can will just don don't
    should should've now d ll m o re ve y ain aren aren't couldn couldn't didn didn't doesn doesn't hadn hadn't hasn
    hasn't haven haven't isn isn't ma mightn mightn't mustn mustn't needn needn't shan shan't shouldn shouldn't wasn
    wasn't weren weren't won won't wouldn wouldn't
    """.split()  # noqa: SIM905 (prose is easier to read and to correct than quoted strings)
)
_PUNCTUATION = f"[{re.escape(string.punctuation)}]+"


def clean(texts: pa.ChunkedArray | pa.Array, recipe: str) -> pa.ChunkedArray:
    """One cleaned text for each text, in order; a missing text becomes an empty one.

    >>> clean(pa.array(["No pneumothorax; no effusion.", None]), "oberst").to_pylist()
    ['no pneumothorax effusion', '']
    """
    check_one_of("recipe", recipe, RECIPES)
    cleaned = lower_texts if recipe == "plain" else _without_stop_words()
    return pa.chunked_array([cleaned(batch) for batch in batches(texts)], type=pa.string())


def batches(texts: pa.ChunkedArray | pa.Array, size: int = BATCH) -> Iterator[pa.Array]:
    """A few texts at a time, as one array of strings without nulls."""
    for start in range(0, len(texts), size):
        batch = texts.slice(start, size)
        whole = batch.combine_chunks() if isinstance(batch, pa.ChunkedArray) else batch
        yield whole.cast(pa.string()).fill_null("")


def lower_texts(texts: pa.Array) -> pa.Array:
    """Lower case as Python has it; Arrow's differs for a few letters (a capital sigma at a word's end, a dotted I)."""
    if pc.all(pc.string_is_ascii(texts)).as_py():
        return pc.ascii_lower(texts)
    return pa.array([text.lower() for text in texts.to_pylist()], pa.string())


def _without_stop_words() -> Callable[[pa.Array], pa.Array]:
    def rest(text: str) -> str:
        kept = " ".join(filterfalse(STOP_WORDS.__contains__, text.split()))
        return kept.replace(HEADER, "").replace(BULLET, "").lower()

    def cleaned(texts: pa.Array) -> pa.Array:
        bare = pc.replace_substring_regex(texts, pattern=_PUNCTUATION, replacement="")
        return pa.array([rest(text) for text in bare.to_pylist()], pa.string())

    return cleaned
