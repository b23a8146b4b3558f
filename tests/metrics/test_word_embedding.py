"""WEAT against its definition, and the word vectors that it is given where there is no encoder."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray

from cxrhf.metrics.checks import InputError
from cxrhf.metrics.word_embedding import cooccurrence_vectors, weat


def test_weat_against_its_definition() -> None:
    rng = np.random.default_rng(0)
    x, y, a, b = (rng.normal(size=(n, 6)) + shift for n, shift in ((5, 0.9), (4, -0.9), (6, 0.5), (6, -0.5)))

    def s(w: NDArray[np.float64]) -> float:
        cosine = [[w @ v / np.linalg.norm(w) / np.linalg.norm(v) for v in side] for side in (a, b)]
        return float(np.mean(cosine[0]) - np.mean(cosine[1]))

    first, second = [s(w) for w in x], [s(w) for w in y]
    got = weat(x, y, a, b, n_permutations=500)
    assert got.statistic == pytest.approx(sum(first) - sum(second))
    assert got.effect_size == pytest.approx((np.mean(first) - np.mean(second)) / np.std(first + second))
    assert 0 < got.p_value < 0.2
    assert weat(y, x, a, b).effect_size == pytest.approx(-got.effect_size)
    assert math.isnan(weat(np.ones((2, 3)), np.ones((2, 3)), a[:, :3], b[:, :3]).p_value)
    with pytest.raises(InputError, match=r"second\[0\]: .*got zeros"):
        weat(x, np.zeros((2, 6)), a, b)


def test_word_vectors_put_together_what_stands_together() -> None:
    texts = [
        "large heart effusion",
        "clear lungs normal",
        "large heart",
        "clear normal",
        "heart effusion",
        "lungs normal",
    ]
    # Two halves of one shape: their singular values are equal in pairs, so an odd number would cut a pair in two.
    words, vectors = cooccurrence_vectors(texts * 5, dim=2)
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    cosine = {(a, b): unit[i] @ unit[j] for i, a in enumerate(words) for j, b in enumerate(words)}
    assert cosine["heart", "large"] > 0.5 > cosine["heart", "normal"]
    assert cooccurrence_vectors(["one word"])[0] == []
    many = [" ".join(np.random.default_rng(at).choice(list("abcdefgh"), 4)) for at in range(9)]
    assert len(cooccurrence_vectors(many, min_texts=1)[0]) <= 8
