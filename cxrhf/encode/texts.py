"""Texts, or sets of texts, -> distinct contents by their hash. Texts stay where they are and are made one at a time."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from scipy import sparse

from cxrhf.errors import TableError

Integers = NDArray[np.int64]
Texts: TypeAlias = "pa.ChunkedArray | pa.Array | Sequence[str]"

DIGEST = 16  # bytes: that any two of a million notes share a hash has a chance of 1 in 10^26
_JOINT = " "  # between the notes of a set that are read as one text


class Distinct(NamedTuple):
    """The distinct contents of n texts."""

    digests: list[bytes]  # of each content, in the order they are met
    at: Integers  # a text that holds each content
    letters: Integers  # characters of each content
    content: Integers  # of each text; -1 = no text


def as_array(texts: Texts) -> pa.ChunkedArray:
    """Texts as one Arrow column."""
    if isinstance(texts, pa.ChunkedArray):
        found = texts
    elif isinstance(texts, pa.Array):
        found = pa.chunked_array([texts])
    else:
        try:
            found = pa.chunked_array([pa.array(list(texts), pa.large_string())])
        except (pa.ArrowException, UnicodeError) as error:
            said = f"the texts cannot be read as Unicode ({type(error).__name__})"
            raise TableError(said, next_step="save the notes as UTF-8") from None
    if pa.types.is_null(found.type):
        return found.cast(pa.large_string())
    if pa.types.is_dictionary(found.type):
        found = found.cast(found.type.value_type)
    if not (pa.types.is_string(found.type) or pa.types.is_large_string(found.type)):
        raise TableError("the texts", got=found.type, allowed="strings")
    return found


def reader(texts: pa.ChunkedArray) -> Callable[[int], str]:
    """Number of a text -> the text; '' where it is null."""
    ends = np.cumsum([len(chunk) for chunk in texts.chunks], dtype=np.int64)
    starts = ends - np.array([len(chunk) for chunk in texts.chunks], dtype=np.int64)

    def read(number: int) -> str:
        chunk = int(np.searchsorted(ends, number, side="right"))
        return texts.chunk(chunk)[number - int(starts[chunk])].as_py() or ""

    return read


def joined(read: Callable[[int], str], sets: sparse.csr_array) -> Callable[[int], str]:
    """Number of a set -> its texts as one, in the order of the columns; those without a word leave no trace."""

    def text(number: int) -> str:
        notes = np.sort(sets.indices[sets.indptr[number] : sets.indptr[number + 1]])
        return _JOINT.join(text for text in map(read, notes.tolist()) if text.strip())

    return text


def distinct(read: Callable[[int], str], n: int) -> Distinct:
    """Hash n texts. Texts of white space only are no texts."""
    digests: list[bytes] = []
    at: list[int] = []
    letters: list[int] = []
    seen: dict[bytes, int] = {}
    content = np.full(n, -1, dtype=np.int64)
    for number in range(n):
        text = read(number)
        if not text or text.isspace():
            continue
        digest = hashlib.blake2b(text.encode(), digest_size=DIGEST).digest()
        which = seen.get(digest)
        if which is None:
            which = seen[digest] = len(digests)
            digests.append(digest)
            at.append(number)
            letters.append(len(text))
        content[number] = which
    return Distinct(digests, np.array(at, dtype=np.int64), np.array(letters, dtype=np.int64), content)


def members(sets: sparse.csr_array) -> sparse.csr_array:
    """A copy of the sets with 1 for every member and nothing else stored."""
    made = sets.astype(np.float64).tocsr(copy=True)
    made.sum_duplicates()
    made.eliminate_zeros()
    made.data[:] = 1.0
    return made
