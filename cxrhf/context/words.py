"""Texts of notes -> how often each word stands in each note, as a sparse matrix: a bag of words.

A word is a run of letters and digits, two or more, at least one of them a letter, lower-cased. Nothing is left out as a
stop word, so that no, not and without stay. Each text is read once. Arrow splits and numbers the words: the counts of
scikit-learn's CountVectorizer in about half its time, and no list of Python strings.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from scipy import sparse

Integers = NDArray[np.int64]

# Words held by fewer patients say who somebody is rather than what they have.
MIN_PATIENTS = 5
MAX_WORDS = 8192
BATCH = 500


class Words(NamedTuple):
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
    progress: Callable[[str], None] = lambda _: None,
) -> Words:
    """Count the commonest words that `min_patients` patients or more have in their notes.

    `patients` numbers the patient of each text. Labels play no part in the choice. Memory: 8 bytes for each note and
    different word in it, some 5 kB a discharge note.

    >>> found = count_words(pa.array(["No edema, no.", "edema 3"]), np.array([0, 1]), min_patients=1)
    >>> found.words, found.counts.toarray().tolist()
    (['edema', 'no'], [[1, 2], [1, 0]])
    """
    numbered: dict[str, int] = {}
    parts = []
    for start in range(0, len(texts), BATCH):
        batch = texts.slice(start, BATCH)
        parts.append(_count(batch.combine_chunks() if isinstance(batch, pa.ChunkedArray) else batch, numbered))
        if start and start % (20 * BATCH) == 0:
            progress(f"words of {start:,} of {len(texts):,} notes")
    counts = _stacked(parts, len(numbered))
    held = _holders(counts, patients)
    total = np.bincount(counts.indices, counts.data, minlength=len(numbered))
    words = np.array(list(numbered), dtype=object)
    enough = np.flatnonzero(held >= min_patients)
    common = enough[np.lexsort((words[enough], -total[enough]))][:max_words]  # ties by the alphabet, not by the file
    kept = common[np.argsort(words[common])]
    return Words(sparse.csr_array(counts[:, kept]), words[kept].tolist(), held[kept])


def _count(texts: pa.Array, numbered: dict[str, int]) -> sparse.csr_array:
    """Counts of a few texts; words not met before get the next numbers."""
    split = pc.split_pattern_regex(pc.utf8_lower(texts.fill_null("")), r"[^\pL\pN]+")
    coded = split.flatten().dictionary_encode()
    real = pc.match_substring_regex(coded.dictionary, r"^.*\pL.*$")
    real = pc.and_(real, pc.greater(pc.utf8_length(coded.dictionary), 1)).to_numpy(zero_copy_only=False)
    number = np.full(len(real), -1, dtype=np.int64)
    new = coded.dictionary.filter(pa.array(real)).to_pylist()
    number[real] = [numbered.setdefault(word, len(numbered)) for word in new]
    column = number[coded.indices.to_numpy(zero_copy_only=False)]
    row = pc.list_parent_indices(split).to_numpy(zero_copy_only=False)
    kept = column >= 0
    shape = (len(texts), len(numbered))
    ones = np.ones(int(kept.sum()), dtype=np.int32)
    return sparse.csr_array(sparse.coo_array((ones, (row[kept], column[kept])), shape=shape))


def _stacked(parts: list[sparse.csr_array], n_words: int) -> sparse.csr_array:
    """The batches below each other; the early ones did not know all words yet."""
    indptr = np.concatenate([[0], *(np.diff(part.indptr) for part in parts)]).cumsum()
    none = np.zeros(0, dtype=np.int32)
    indices = np.concatenate([none, *(part.indices for part in parts)])
    data = np.concatenate([none, *(part.data for part in parts)])
    return sparse.csr_array((data, indices, indptr), shape=(len(indptr) - 1, n_words))


def _holders(counts: sparse.csr_array, patients: Integers) -> Integers:
    """How many patients have each word in any of their notes."""
    shape = (int(patients.max(initial=-1)) + 1, len(patients))
    owner = sparse.csr_array(
        (np.ones(len(patients), dtype=np.int32), (patients, np.arange(len(patients)))), shape=shape
    )
    return np.bincount((owner @ counts).indices, minlength=counts.shape[1]).astype(np.int64)
