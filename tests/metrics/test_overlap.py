"""Overlap of words against the definitions, on examples worked by hand, and under what must not change it."""

from __future__ import annotations

import math
import time
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cxrhf.metrics import corpus_bleu, corpus_bleu_of, overlap_scores, rouge1, rougeL, self_bleu, sentence_bleu
from cxrhf.metrics.checks import InputError
from cxrhf.metrics.language import tokenize

WORDS = ("lung", "heart", "no", "effusion", "clear", "normal")
reports = st.lists(st.sampled_from(WORDS), max_size=90).map(" ".join)
pairs = st.lists(st.tuples(reports, reports), min_size=1, max_size=6)


def grams(tokens: list[str], n: int) -> Counter[tuple[str, ...]]:
    return Counter(tuple(tokens[k : k + n]) for k in range(len(tokens) - n + 1))


def slow_longest(a: list[str], b: list[str]) -> int:
    """The table of the textbook."""
    table = [[0] * (len(b) + 1) for _ in range(len(a) + 1)]
    for i, x in enumerate(a):
        for j, y in enumerate(b):
            table[i + 1][j + 1] = table[i][j] + 1 if x == y else max(table[i][j + 1], table[i + 1][j])
    return table[-1][-1]


def slow_rouge(reference: str, generated: str, longest: bool) -> tuple[float, float, float]:
    r, g = tokenize(reference), tokenize(generated)
    if not r:
        return (math.nan,) * 3
    if not g:
        return (0.0,) * 3
    common = slow_longest(r, g) if longest else sum((grams(r, 1) & grams(g, 1)).values())
    precision, recall = common / len(g), common / len(r)
    return (2 * precision * recall / (precision + recall) if common else 0.0), precision, recall


def slow_bleu(reference: str, generated: str, max_order: int = 4, smoothing: float = 0.1) -> float:
    r, g = tokenize(reference), tokenize(generated)
    if not r:
        return math.nan
    if not set(r) & set(g):
        return 0.0
    logs = []
    for n in range(1, min(max_order, len(g)) + 1):
        matches = sum((grams(r, n) & grams(g, n)).values())
        logs.append(math.log((matches or smoothing) / (len(g) - n + 1)))
    return math.exp(sum(logs) / len(logs)) * (1.0 if len(g) > len(r) else math.exp(1 - len(r) / len(g)))


def slow_corpus_bleu(references: list[str], generated: list[str]) -> float:
    both = [(tokenize(r), tokenize(g)) for r, g in zip(references, generated, strict=True) if tokenize(r)]
    if not both:
        return math.nan
    product = 1.0
    for n in range(1, 5):
        matches = sum(sum((grams(r, n) & grams(g, n)).values()) for r, g in both)
        if matches == 0:
            return 0.0
        product *= matches / sum(max(len(g) - n + 1, 0) for _, g in both)
    n_reference, n_generated = (sum(len(each[k]) for each in both) for k in (0, 1))
    return product**0.25 * (1.0 if n_generated > n_reference else math.exp(1 - n_reference / n_generated))


@settings(max_examples=60, deadline=None)
@given(pairs)
def test_definitions(both: list[tuple[str, str]]) -> None:
    references, generated = ([each[k] for each in both] for k in (0, 1))
    found = overlap_scores(references, generated)
    for name, longest in (("rouge1", False), ("rougeL", True)):
        expected = np.array([slow_rouge(r, g, longest) for r, g in both])
        ours = np.stack([getattr(found, name + part) for part in ("", "_precision", "_recall")], axis=1)
        np.testing.assert_allclose(ours, expected, atol=1e-12)
    np.testing.assert_allclose(found.bleu, [slow_bleu(r, g) for r, g in both], atol=1e-12)
    np.testing.assert_allclose(found.corpus_bleu, slow_corpus_bleu(references, generated), atol=1e-12)
    assert found.n_reference.tolist() == [len(tokenize(r)) for r in references]
    # The single functions are the same numbers.
    for measure, name in ((rouge1, "rouge1"), (rougeL, "rougeL")):
        np.testing.assert_array_equal(measure(references, generated), getattr(found, name))
        np.testing.assert_array_equal(measure(references, generated, "recall"), getattr(found, f"{name}_recall"))
    np.testing.assert_array_equal(sentence_bleu(references, generated), found.bleu)
    np.testing.assert_array_equal(corpus_bleu(references, generated), found.corpus_bleu)


def test_worked_by_hand() -> None:
    reference, generated = ["The cat sat on the mat."], ["the the cat on mat"]
    found = overlap_scores(reference, generated)
    # In common: the x 2, cat, on, mat = 5; in order: the cat on mat = 4. Bigrams of the generated: none but "the cat".
    assert found.rouge1[0] == pytest.approx(10 / 11)
    assert (found.rouge1_precision[0], found.rouge1_recall[0]) == (1.0, pytest.approx(5 / 6))
    assert found.rougeL[0] == pytest.approx(8 / 11)
    assert found.matches.tolist() == [[5, 1, 0, 0]]
    assert found.bleu[0] == pytest.approx((1 * 1 / 4 * 0.1 / 3 * 0.1 / 2) ** 0.25 * math.exp(1 - 6 / 5))
    assert sentence_bleu(reference, generated, max_order=1, smoothing=0)[0] == pytest.approx(math.exp(1 - 6 / 5))
    assert sentence_bleu(reference, generated, smoothing=0)[0] == found.corpus_bleu == 0


def test_the_same_report_scores_one_and_the_order_of_words_is_seen_by_the_longest_subsequence_alone() -> None:
    texts = ["clear", "The lungs are clear.", "No effusion " * 40]
    found = overlap_scores(texts, [text.upper() + " 12 XXXX!" for text in texts])
    for name in ("rouge1", "rouge1_precision", "rougeL", "rougeL_recall", "bleu"):
        np.testing.assert_allclose(getattr(found, name), 1.0)
    assert found.corpus_bleu == pytest.approx(1)
    turned = overlap_scores(["heart lung clear no"], ["no clear lung heart"])
    assert turned.rouge1[0] == 1.0
    assert turned.rougeL[0] == 0.25


@settings(max_examples=30, deadline=None)
@given(pairs, st.randoms())
def test_what_does_not_matter(both: list[tuple[str, str]], rng: object) -> None:
    references, generated = ([each[k] for each in both] for k in (0, 1))
    found = overlap_scores(references, generated)
    # Swapping the sides swaps precision and recall, where both have words.
    full = (found.n_reference > 0) & (found.n_generated > 0)
    swapped = overlap_scores(generated, references)
    np.testing.assert_allclose(found.rougeL[full], swapped.rougeL[full])
    np.testing.assert_allclose(found.rouge1_precision[full], swapped.rouge1_recall[full])
    # Rows do not see each other, and repeated rows are the same.
    order = list(range(len(both))) * 2
    rng.shuffle(order)  # type: ignore[attr-defined]
    mixed = overlap_scores([references[k] for k in order], [generated[k] for k in order])
    np.testing.assert_array_equal(mixed.bleu, found.bleu[order])
    np.testing.assert_array_equal(mixed.rougeL, found.rougeL[order])
    np.testing.assert_allclose(mixed.corpus_bleu, found.corpus_bleu, atol=1e-12)
    half = slice(0, max(1, len(both) // 2))
    part = corpus_bleu_of(found.matches[half], found.n_reference[half], found.n_generated[half])
    np.testing.assert_allclose(part, corpus_bleu(references[half], generated[half]), atol=1e-12)


def test_one_smoothing_for_both_kinds_of_bleu() -> None:
    texts = ["no pleural effusion is seen today", "no effusion or pneumothorax is seen"]
    both = [*sentence_bleu(texts[:1], texts[1:], smoothing=0.3), *sentence_bleu(texts[1:], texts[:1], smoothing=0.3)]
    assert self_bleu(texts, smoothing=0.3) == pytest.approx(np.mean(both))


def test_empty_reports() -> None:
    found = overlap_scores(["clear lungs", "", "12 ---", ""], ["", "clear", "clear", ""])
    for name in ("rouge1", "rouge1_precision", "rouge1_recall", "rougeL", "rougeL_precision", "bleu"):
        np.testing.assert_array_equal(getattr(found, name), [0.0, np.nan, np.nan, np.nan])
    assert found.corpus_bleu == 0
    assert math.isnan(corpus_bleu([], []))
    assert math.isnan(corpus_bleu([""], ["clear lungs are seen"]))
    assert overlap_scores([], []).rouge1.shape == (0,)
    assert overlap_scores([], []).matches.shape == (0, 4)


def test_bad_input() -> None:
    with pytest.raises(InputError, match="generated: expected 2 reports as in references, got 1"):
        overlap_scores(["a", "b"], ["a"])
    with pytest.raises(InputError, match=r"generated\[1\]: .*got None"):
        rougeL(["a", "b"], ["a", None])  # type: ignore[list-item]
    with pytest.raises(InputError, match=r"part: expected 'f1' or 'precision' or 'recall', got 'recal'"):
        rouge1(["a"], ["a"], "recal")
    for bad in (-0.1, 1.5, float("nan")):
        with pytest.raises(InputError, match="smoothing: "):
            sentence_bleu(["a"], ["a"], smoothing=bad)
        with pytest.raises(InputError, match="smoothing: "):
            overlap_scores(["a"], ["a"], smoothing=bad)


def test_long_and_many_reports_take_no_time() -> None:
    """Seconds of this process, not of the clock: the machine may be busy with other tests."""
    overlap_scores(["a"], ["b"])  # compiled now, not below
    rng = np.random.default_rng(0)
    words = np.array([a + b for a in "bcdfghjklm" for b in "aeiou"])

    def report(n: int) -> str:
        return " ".join(rng.choice(words, n))

    long, short = report(50_000), report(500)
    start = time.process_time()
    found = overlap_scores([short, long], [long, long[3:]])
    assert time.process_time() - start < 1.5  # two of them; .2 s on an idle core
    assert found.rougeL_recall[0] == 1.0  # 50 words, 1,000 times over: all of a short report are in there in order
    assert found.rougeL[1] > 0.999
    references = [report(60) for _ in range(500)] * 6
    generated = [report(60) for _ in range(3000)]
    start = time.process_time()
    overlap_scores(references, generated)
    assert time.process_time() - start < 2.5  # a quarter of 2,000 reports x 6 strategies
