"""Words behind a classifier: the spread counts, rare words stay hidden, order does not matter."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from cxrhf.context.explain import spread, top_features

WORDS = ("ankles", "bumetanide", "curb", "diastolic", "edema", "furosemide")


def features(seed: int = 0, n: int = 200) -> sparse.csr_array:
    random = np.random.default_rng(seed)
    share = np.array([0.5, 0.4, 0.02, 0.3, 0.2, 0.1])
    return sparse.csr_array(((random.random((n, 6)) < share) * random.random((n, 6))).astype(np.float32))


MANY = np.full(6, 50)


def test_spread_is_the_standard_deviation_sparse_and_dense() -> None:
    made = features()
    slow = made.toarray().astype(np.float64).std(axis=0)
    np.testing.assert_allclose(spread(made), slow, rtol=1e-12)
    np.testing.assert_allclose(spread(made.toarray()), slow, rtol=1e-12)
    large = sparse.csr_array(np.array([[1e6], [1e6 + 1], [1e6 + 2]]))
    assert spread(large)[0] == pytest.approx(np.sqrt(2 / 3))  # no sum of squares that loses it
    assert spread(made[:0]).tolist() == [0.0] * 6


def test_a_large_weight_on_a_rare_word_moves_little() -> None:
    weights = np.array([0.0, 1.0, 1.5, -0.8, 0.1, 0.0])
    found = top_features(weights, WORDS, MANY, features(), top=3)
    assert [each["word"] for each in found] == ["bumetanide", "diastolic", "curb"]
    assert [each["rank"] for each in found] == [1, 2, 3]
    assert [each["value"] for each in found] == [1.0, -0.8, 1.5]
    sd = spread(features())
    assert [each["effect"] for each in found] == pytest.approx([sd[1], -0.8 * sd[3], 1.5 * sd[2]])
    paper = top_features(weights, WORDS, MANY, features(), top=3, by_spread=False)
    assert [each["word"] for each in paper] == ["curb", "bumetanide", "diastolic"]
    assert all(each["effect"] == each["value"] for each in paper)


def test_words_of_few_patients_are_never_shown() -> None:
    weights, counts = np.ones(6), np.array([50, 4, 5, 0, 50, 1])
    found = top_features(weights, WORDS, counts, features(), top=10)
    assert {each["word"] for each in found} == {"ankles", "curb", "edema"}


def test_nothing_is_said_of_words_without_weight() -> None:
    weights = np.array([0.0, np.nan, np.inf, 0.5, 0.0, 0.0])
    assert [each["word"] for each in top_features(weights, WORDS, MANY, features(), top=10)] == ["diastolic"]
    assert top_features(np.zeros(6), WORDS, MANY, features(), top=10) == []
    assert top_features(np.ones(6), WORDS, MANY, features(), top=0) == []


def test_ties_go_by_the_alphabet_and_order_of_columns_does_not_matter() -> None:
    same = np.ones((10, 6), dtype=np.float32) * np.arange(10)[:, None]
    assert [each["word"] for each in top_features(np.ones(6), WORDS[::-1], MANY, same, top=2)] == [
        "ankles",
        "bumetanide",
    ]
    weights, made = np.array([0.3, 1.0, 3.0, -0.8, 0.1, 0.2]), features()
    order = np.array([3, 1, 5, 0, 4, 2])
    again = top_features(weights[order], [WORDS[k] for k in order], MANY[order], made[:, order], top=4)
    assert again == top_features(weights, WORDS, MANY, made, top=4)


def test_what_is_kept_is_plain_json() -> None:
    (first,) = top_features(np.ones((1, 6), dtype=np.float32), WORDS, MANY, features(), top=1)
    assert {name: type(value) for name, value in first.items()} == {
        "word": str, "value": float, "rank": int, "effect": float
    }  # fmt: skip


def test_columns_that_do_not_fit_are_an_error() -> None:
    with pytest.raises(ValueError, match="5 values, 6 words"):
        top_features(np.ones(5), WORDS, MANY, features(), top=1)


def test_planted_words_are_found_better_with_the_spread() -> None:
    """A chart where ten common words go with the label, among 400 that mostly few patients have."""
    from sklearn.linear_model import LogisticRegression

    random = np.random.default_rng(5)
    n, planted = 600, 10
    share = np.concatenate([np.full(planted, 0.3), random.uniform(0.01, 0.05, 390)])
    chart = (random.random((n, 400)) < share).astype(np.float32)
    y = random.random(n) < 1 / (1 + np.exp(3.0 - chart[:, :planted].sum(axis=1)))
    words = [f"w{k:03d}" for k in range(400)]
    weights = LogisticRegression(C=10, max_iter=500).fit(chart, y).coef_[0]
    hits = {
        by: sum(int(each["word"][1:]) < planted for each in top_features(
            weights, words, chart.sum(axis=0).astype(np.int64), chart, top=10, by_spread=by))
        for by in (True, False)
    }  # fmt: skip
    assert hits[True] >= 8
    assert hits[True] > hits[False]
