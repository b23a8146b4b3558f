"""A fitted classifier's weights -> the words that move its probability most.

Words are ranked by weight times the standard deviation of the word's feature over the learning images: a large weight
on a word that hardly anybody has moves hardly any probability. `by_spread=False` ranks by the weight alone, as the
paper's Table A.12 does. On the twin (1,500 patients, 12 findings, short and full notes) more of the first ten words
were planted ones with the spread, for each of five linear classifiers, a random forest and boosted trees: .71 against
.61 for a linear SVM with C = .1, .48 against .13 for logistic regression, .85 against .73 for the forest.
Words of fewer than five patients are never shown: a rare word may be a name.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from cxrhf.context.parts import Features, Floats, Integers
from cxrhf.context.words import MIN_PATIENTS


def top_features(
    values: NDArray[Any],
    words: Sequence[str],
    n_patients: Integers,
    features: Features,
    *,
    top: int,
    by_spread: bool = True,
) -> list[dict[str, Any]]:
    """The words that move the probability most, first first: word, value, rank, effect.

    `value` is the model's weight or importance, `effect` what it is ranked by (value times spread, or value alone).
    `features` are the rows of the learning images, `n_patients` how many patients have each word. Words of weight 0 are
    left out; among equals the alphabet decides.
    """
    weight = np.asarray(values, dtype=np.float64).ravel()
    if not len(weight) == len(words) == len(n_patients) == features.shape[1]:
        raise ValueError(
            f"{len(weight)} values, {len(words)} words, {len(n_patients)} counts, {features.shape[1]} features"
        )
    effect = weight * spread(features) if by_spread else weight
    size = np.where(np.isfinite(effect), np.abs(effect), 0.0)
    shown = np.flatnonzero((size > 0) & (np.asarray(n_patients) >= MIN_PATIENTS))
    # Only ties at the edge need more than `top` words looked at by name.
    if len(shown) > top > 0:
        edge = np.partition(size[shown], len(shown) - top)[len(shown) - top]
        shown = shown[size[shown] >= edge]
    order = sorted(shown.tolist(), key=lambda at: (-size[at], words[at]))[: max(top, 0)]
    return [
        {"word": str(words[at]), "value": float(weight[at]), "rank": rank, "effect": float(effect[at])}
        for rank, at in enumerate(order, start=1)
    ]


def spread(features: Features) -> Floats:
    """Standard deviation of each feature over the rows."""
    if features.shape[0] == 0:
        return np.zeros(features.shape[1])
    if sparse.issparse(features):
        # A column at a time would be slow and the whole as dense too large: two sums suffice.
        values = features.tocsr().astype(np.float64)
        values.sum_duplicates()
        n, width = values.shape
        mean = np.bincount(values.indices, values.data, minlength=width) / n
        stored = np.bincount(values.indices, minlength=width)
        away = np.bincount(values.indices, (values.data - mean[values.indices]) ** 2, minlength=width)
        return np.asarray(np.sqrt((away + (n - stored) * mean**2) / n), dtype=np.float64)
    return np.asarray(np.std(np.asarray(features, dtype=np.float64), axis=0))
