"""Word vectors -> WEAT: whether two sets of words lie closer to one of two sets of attributes.

A baseline only: it looks at fixed vectors, so it cannot see what decoding does to the text.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from cxrhf.metrics.checks import InputError, as_count
from cxrhf.metrics.language import document_terms


@dataclass(frozen=True, slots=True)
class Weat:
    """`statistic` (the sum form), `effect_size` (-2 to 2) and `p_value` (one-sided, by permuting the targets)."""

    statistic: float
    effect_size: float
    p_value: float


def weat(
    first: ArrayLike,
    second: ArrayLike,
    attributes_first: ArrayLike,
    attributes_second: ArrayLike,
    n_permutations: int = 10_000,
    seed: int = 0,
) -> Weat:
    """WEAT (Caliskan et al. 2017) of two target and two attribute sets, from word embeddings with one row per word.

    s(w) is the mean cosine with the first attributes minus that with the second. The statistic is the sum of s over the
    first targets minus that over the second. The effect size is the difference of the means over the standard deviation
    of s over all targets (with n, not n - 1, as in WEFE, which the paper cites); NaN if that is 0. Positive values
    associate the first targets with the first attributes. p = (1 + #) / (1 + permutations).
    """
    sets = {"first": first, "second": second, "attributes_first": attributes_first}
    x, y, a, b = (_unit(v, name) for name, v in {**sets, "attributes_second": attributes_second}.items())
    s = np.concatenate([x, y]) @ (a.mean(axis=0) - b.mean(axis=0))
    n = len(x)
    spread = s.std()
    statistic = s[:n].sum() - s[n:].sum()
    if not spread > 0:
        return Weat(float(statistic), float("nan"), float("nan"))
    rng = np.random.default_rng(np.random.SeedSequence(seed))
    shuffled = rng.permuted(np.tile(s, (as_count(n_permutations, "n_permutations"), 1)), axis=1)
    null = shuffled[:, :n].sum(axis=1) - shuffled[:, n:].sum(axis=1)
    p_value = (1 + (null >= statistic - 1e-12).sum()) / (1 + n_permutations)
    return Weat(float(statistic), float((s[:n].mean() - s[n:].mean()) / spread), float(p_value))


def _unit(vectors: ArrayLike, name: str) -> NDArray[np.float64]:
    rows = np.asarray(vectors, dtype=np.float64)
    if rows.ndim != 2 or not len(rows) or not np.isfinite(rows).all():
        raise InputError(
            f"{name}: expected a finite 2-D array with one row per word and at least one word, got shape {rows.shape}"
        )
    size = np.linalg.norm(rows, axis=1, keepdims=True)
    if not size.all():
        raise InputError(f"{name}[{int(np.argmin(size))}]: expected a non-zero vector, got zeros")
    return rows / size


# Texts -> vectors of their words, from which words stand together in a report: for WEAT without any encoder.
#
# Positive pointwise mutual information of two words in one report, cut to its first directions (truncated SVD).
# Unlike the fixed vectors of an encoder these change with what a model writes.

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
