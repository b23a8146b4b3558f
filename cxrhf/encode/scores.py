"""Pairs of texts -> scores of each pair, every distinct pair once, kept by content for the next run.

The cache is the one of cache.py: a hash of both texts and a few numbers, in a folder that names what they were made
with. Texts are nowhere in it. Scores that are not finite are not kept.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cxrhf.encode.cache import Store, cache_folder, open_store
from cxrhf.encode.progress import remark
from cxrhf.encode.texts import DIGEST
from cxrhf.errors import CxrhfError

Scores = NDArray[np.float32]
Integers = NDArray[np.int64]
# Pairs (reference, generated) -> some of their numbers with their scores, until all are done.
Compute = Callable[[list[tuple[str, str]]], Iterable[tuple[Sequence[int], Scores]]]


def score_pairs(
    references: Sequence[str],
    generated: Sequence[str],
    compute: Compute,
    *,
    n_scores: int,
    key: Mapping[str, Any] | None,
    about: Mapping[str, Any],
    cache: str | Path | None = None,
) -> Scores:
    """One row of scores a pair, in the order of the pairs. `compute` hears only of pairs that are not in the cache.

    `key` holds all that a score depends on beside the two texts; None means that scores are not kept.
    """
    digests, at, pair = _distinct(references, generated)
    found = np.full((len(digests), n_scores), np.nan, dtype=np.float32)
    there = np.zeros(len(digests), dtype=bool)
    store = open_kept(cache, key, about, n_scores) if key is not None else None
    if store is not None and digests:
        store.refresh()
        there = store.load(digests, found)
    missing = np.flatnonzero(~there)
    if len(missing):
        with _kept(store):
            for numbers, scores in compute([(references[row], generated[row]) for row in at[missing].tolist()]):
                which = missing[np.asarray(numbers, dtype=np.int64)]
                found[which] = scores
                sure = np.isfinite(scores).all(axis=1)
                if store is not None and sure.any():
                    with best_effort():
                        store.add([digests[each] for each in which[sure]], np.ascontiguousarray(scores[sure]))
    return found[pair]


def _distinct(references: Sequence[str], generated: Sequence[str]) -> tuple[list[bytes], Integers, Integers]:
    """Hash of each distinct pair, a row that holds it, and the pair of each row."""
    seen: dict[bytes, int] = {}
    at: list[int] = []
    pair = np.empty(len(references), dtype=np.int64)
    for row, (reference, made) in enumerate(zip(references, generated, strict=True)):
        first = reference.encode()
        # The length keeps ("a b", "c") and ("a", "b c") apart.
        joined = len(first).to_bytes(8, "little") + first + made.encode()
        digest = hashlib.blake2b(joined, digest_size=DIGEST, person=b"cxrhf pair").digest()
        if digest not in seen:
            seen[digest] = len(at)
            at.append(row)
        pair[row] = seen[digest]
    return list(seen), np.array(at, dtype=np.int64), pair


def open_kept(cache: str | Path | None, key: Mapping[str, Any], about: Mapping[str, Any], width: int) -> Store | None:
    """The folder of a key for rows of `width` numbers, or None without a cache; what is wrong with it is only said."""
    root = cache_folder(cache)
    if root is None:
        return None
    try:
        store = open_store(root, key, about, width)
    except CxrhfError as error:
        remark(f"{error} Scores are computed without a cache.")
        return None
    if not store.writable:
        remark(f"the cache folder {store.folder} is read-only: new scores are not cached")
    return store


@contextlib.contextmanager
def _kept(store: Store | None) -> Iterator[None]:
    """What was scored is written, also when the work ends early."""
    try:
        yield
    finally:
        if store is not None:
            with best_effort():
                store.flush()


@contextlib.contextmanager
def best_effort() -> Iterator[None]:
    """A full disk ends the keeping, not the scoring."""
    try:
        yield
    except CxrhfError as error:
        remark(f"{error} The scoring continues; scores are not cached.")
