"""Texts -> vectors of their words, from which words stand together in a report: for WEAT without any encoder.

Positive pointwise mutual information of two words in one report, cut to its first directions (truncated SVD). Unlike
the fixed vectors of an encoder these change with what a model writes.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from cxrhf.metrics.checks import as_count
from cxrhf.metrics.language import document_terms

DIM = 50


def cooccurrence_vectors(
    texts: Iterable[str], *, dim: int = DIM, min_texts: int = 5, seed: int = 0
) -> tuple[list[str], NDArray[np.float64]]:
    """Words that at least `min_texts` texts hold, in alphabetical order, and a vector for each (rows).

    At most `dim` directions, fewer where there are fewer words. Words that stand with no other more often than by
    chance have no direction and are left out. Of equally strong directions at the cut, which are kept may differ
    between machines; counts of real reports have none.

    >>> words, vectors = cooccurrence_vectors(["large heart", "clear lungs"] * 5, dim=4)
    >>> words, vectors.shape
    (['clear', 'heart', 'large', 'lungs'], (4, 4))
    """
    as_count(dim, "dim")
    as_count(min_texts, "min_texts")
    terms = document_terms(texts)
    present = sp.csr_array((terms.matrix > 0).astype(np.float64))
    holders = np.asarray(present.sum(axis=0)).ravel()
    kept = np.flatnonzero(holders >= min_texts)
    if len(kept) < 2:
        return [], np.zeros((0, 0))
    present, holders = present[:, kept], holders[kept]
    together = sp.coo_array(present.T @ present)
    row, column, count = together.row, together.col, together.data
    with np.errstate(divide="ignore"):
        information = np.log(count * present.shape[0] / (holders[row] * holders[column]))
    apart = (row != column) & (information > 0)
    table = sp.csr_array((information[apart], (row[apart], column[apart])), shape=together.shape)
    vectors = _directions(table, dim, seed)
    known = np.linalg.norm(vectors, axis=1) > 1e-9
    return [terms.vocabulary[kept[i]] for i in np.flatnonzero(known)], vectors[known]


def _directions(table: sp.csr_array, dim: int, seed: int) -> NDArray[np.float64]:
    """The first left singular vectors, scaled by the square roots of their values; signs do not matter to cosines."""
    size = table.shape[0]
    if size <= max(3 * dim, 200):
        left, values, _ = np.linalg.svd(table.toarray())
        left, values = left[:, :dim], values[:dim]
    else:
        from scipy.sparse.linalg import svds

        start = np.random.default_rng(np.random.SeedSequence(seed)).normal(size=size)
        left, values, _ = svds(table, k=dim, v0=start)
    return np.asarray(left * np.sqrt(np.maximum(values, 0.0)))
