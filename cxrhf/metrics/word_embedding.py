"""Word vectors -> WEAT: whether two sets of words lie closer to one of two sets of attributes.

A baseline only: it looks at fixed vectors, so it cannot see what decoding does to the text.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cxrhf.metrics.checks import InputError, as_count


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
