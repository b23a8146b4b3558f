"""Language measures against their definitions, on edge cases, and under reordering."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cxrhf.metrics.checks import InputError
from cxrhf.metrics.language import (
    STOP_WORDS,
    document_terms,
    lexical_diversity,
    self_bleu,
    semantic_diversity,
    template_diversity,
    tokenize,
    type_token_ratio,
    vocabulary_shift,
)

WORDS = ("lung", "heart", "no", "effusion", "clear", "normal")
corpora = st.lists(st.lists(st.sampled_from(WORDS), max_size=9), max_size=7)


def slow_self_bleu(texts: list[str], max_order: int = 4, smoothing: float = 0.1) -> float:
    """The definition: sentence BLEU of each text against the list of all the others."""
    corpus = [tokens for tokens in map(tokenize, texts) if tokens]
    if len(corpus) < 2:
        return float("nan")
    scores = []
    for i, hypothesis in enumerate(corpus):
        references = corpus[:i] + corpus[i + 1 :]
        logs = []
        score = None
        for n in range(1, min(max_order, len(hypothesis)) + 1):
            grams = Counter(tuple(hypothesis[k : k + n]) for k in range(len(hypothesis) - n + 1))
            others = [Counter(tuple(r[k : k + n]) for k in range(len(r) - n + 1)) for r in references]
            matches = sum(min(count, max(other[gram] for other in others)) for gram, count in grams.items())
            if n == 1 and matches == 0:
                score = 0.0
                break
            precision = (matches or smoothing) / sum(grams.values())
            logs.append(math.log(precision) if precision else -math.inf)
        if score is None:
            closest = min((abs(len(r) - len(hypothesis)), len(r)) for r in references)[1]
            penalty = 1.0 if len(hypothesis) > closest else math.exp(1 - closest / len(hypothesis))
            score = penalty * math.exp(sum(logs) / len(logs))
        scores.append(score)
    return sum(scores) / len(scores)


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("Chest X-RAY: no effusion.", ["chest", "x", "ray", "no", "effusion"]),
        ("pre - existing = pre-existing", ["pre", "existing", "pre", "existing"]),
        ("The patient's lungs", ["the", "patient", "lungs"]),
        ("patient’s lungs aren’t clear", ["patient", "lungs", "are", "not", "clear"]),
        ("can't won't doesn't they're", ["can", "not", "will", "not", "does", "not", "they"]),
        ("XXXX xxxx-year-old, x-XXXX", ["year", "old", "x"]),
        ("___ year old, ___F with ___", ["year", "old", "with"]),
        ("[**2151-7-16**] seen by [**Hospital1 18**] staff", ["seen", "by", "staff"]),
        ("a [** stray bracket stays", ["a", "stray", "bracket", "stays"]),
        ("<unk> clear &lt;lungs&gt; size < 3 cm and > 2 cm", ["clear", "lungs", "size", "cm", "and", "cm"]),
        ("T12 l1 5mm 3.5 cm 6th rib", ["cm", "rib"]),
        ("Épanchement pleural droit, größe", ["épanchement", "pleural", "droit", "größe"]),
        ("e\u0301panchement \ufb01brosis", ["épanchement", "fibrosis"]),
        ("  \n\t 12 -- ", []),
        ("", []),
    ],
)
def test_tokenize(text: str, tokens: list[str]) -> None:
    assert tokenize(text) == tokens


def test_stop_list_keeps_negations_places_and_sex() -> None:
    kept = {"no", "not", "without", "nor", "never", "none", "neither", "cannot", "left", "right", "above", "below"}
    assert not STOP_WORDS & (kept | {"male", "female", "woman", "man", "normal", "clear"})
    assert all(tokenize(word) == [word] for word in STOP_WORDS)


def test_document_terms_counts_like_a_counter() -> None:
    texts = ["No effusion. The heart is normal", "", "effusion effusion XXXX", "lungs clear; no, no"]
    terms = document_terms(texts)
    assert terms.vocabulary == sorted(terms.vocabulary)
    assert "the" not in terms.vocabulary
    for text, row in zip(texts, terms.matrix.toarray(), strict=True):
        expected = Counter(word for word in tokenize(text) if word not in STOP_WORDS)
        assert {word: n for word, n in zip(terms.vocabulary, row.tolist(), strict=True) if n} == expected
    assert terms.matrix.dtype == np.int64
    assert "the" in document_terms(texts, stop=False).vocabulary


def test_document_terms_with_a_given_vocabulary() -> None:
    terms = document_terms(["the lung the heart"], vocabulary=["heart", "the", "rib"])
    assert terms.vocabulary == ["heart", "the", "rib"]
    assert terms.matrix.toarray().tolist() == [[1, 2, 0]]
    assert document_terms([]).matrix.shape == (0, 0)
    with pytest.raises(InputError, match=r"vocabulary: .*got 'lung' twice"):
        document_terms(["a"], vocabulary=["lung", "heart", "lung"])


@pytest.mark.parametrize(
    "measure", [document_terms, template_diversity, type_token_ratio, self_bleu, lexical_diversity]
)
def test_bad_input_names_position_and_value(measure: object) -> None:
    with pytest.raises(InputError, match=r"texts\[1\]: expected str, got None \(NoneType\)"):
        measure(["clear", None])  # type: ignore[operator]
    with pytest.raises(InputError, match=r"texts\[0\]: expected str, got nan \(float\)"):
        measure([float("nan")])  # type: ignore[operator]
    with pytest.raises(InputError, match=r"texts: expected a list of str"):
        measure("clear lungs")  # type: ignore[operator]
    with pytest.raises(InputError, match=r"generated_texts\[0\]: expected str, got 3 \(int\)"):
        vocabulary_shift(["a"], [3])  # type: ignore[list-item]


def test_undefined_is_nan() -> None:
    assert math.isnan(template_diversity([]))
    assert math.isnan(type_token_ratio(["", "12"]))
    assert math.isnan(self_bleu(["only one", ""]))
    assert math.isnan(semantic_diversity(np.ones((1, 3))))
    shift = vocabulary_shift([], [])
    assert (shift.kept, shift.lost, shift.new) == ((), (), ())
    assert math.isnan(shift.kept_share)
    assert math.isnan(shift.lost_mass)
    empty = lexical_diversity([])
    assert math.isnan(empty.self_bleu)
    assert empty.n_tokens == 0


def test_template_diversity_and_type_token_ratio() -> None:
    assert template_diversity(["a  b", " a b\n", "A b", "a b."]) == 3 / 4
    assert type_token_ratio(["the lung the", "lung"]) == 2 / 4


@settings(deadline=None, max_examples=150, derandomize=True)
@given(corpora, st.integers(1, 5), st.sampled_from([0.0, 0.1, 1.0]))
def test_self_bleu_equals_its_definition(corpus: list[list[str]], order: int, smoothing: float) -> None:
    texts = [" ".join(tokens) for tokens in corpus]
    fast, slow = self_bleu(texts, order, smoothing), slow_self_bleu(texts, order, smoothing)
    assert fast == pytest.approx(slow, abs=1e-12, nan_ok=True)


def test_self_bleu_on_longer_texts_of_unequal_length() -> None:
    rng = np.random.default_rng(0)
    words = np.array([f"w{'abcdefghijklmnopqrst'[i]}" for i in range(20)])
    texts = [" ".join(words[np.minimum(rng.zipf(1.6, rng.integers(1, 40)), 20) - 1]) for _ in range(40)]
    assert self_bleu(texts) == pytest.approx(slow_self_bleu(texts), abs=1e-12)
    assert self_bleu(texts[::-1]) == pytest.approx(self_bleu(texts), abs=1e-12)


def test_self_bleu_known_values() -> None:
    assert self_bleu(["normal chest"] * 5) == 1.0  # a short template is still a template
    assert self_bleu(["one two three", "four five six"]) == 0.0
    # one text of 2 against one of 4 tokens: 2 of 2 words match, 1 of 1 pairs, penalty exp(1 - 4/2);
    # back: 2 of 4 words, 1 of 3 pairs, 0 of 2 and 0 of 1 longer ones count as .1
    expected = (math.exp(-1) + (2 / 4 * 1 / 3 * 0.1 / 2 * 0.1) ** 0.25) / 2
    assert self_bleu(["left lung", "left lung is clear"]) == pytest.approx(expected)


def test_self_bleu_sample_is_seeded_and_smaller() -> None:
    rng = np.random.default_rng(1)
    texts = [" ".join(rng.choice(["lung", "heart", "clear", "no", "rib"], 6)) for _ in range(200)]
    assert self_bleu(texts, sample=50, seed=3) == self_bleu(texts, sample=50, seed=3)
    assert self_bleu(texts, sample=50) < self_bleu(texts)  # fewer references, fewer matches
    assert self_bleu(texts, sample=500) == self_bleu(texts)
    with pytest.raises(InputError, match=r"sample: .*got 1"):
        self_bleu(texts, sample=1)
    with pytest.raises(InputError, match=r"smoothing: .*got 2"):
        self_bleu(texts, smoothing=2)


def test_vocabulary_shift() -> None:
    shift = vocabulary_shift(["effusion effusion scar", "effusion nodule scar"], ["effusion clear", "clear lungs"])
    assert shift.kept == ("effusion",)
    assert shift.lost == ("scar", "nodule")
    assert shift.new == ("clear", "lungs")
    assert (shift.n_reference, shift.n_generated) == (3, 3)
    assert shift.kept_share == 1 / 3
    assert shift.lost_mass == 3 / 6
    assert shift.new_mass == 3 / 4


def test_semantic_diversity_is_one_less_the_mean_cosine() -> None:
    vectors = np.random.default_rng(0).normal(size=(12, 5))
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    cosine = (unit @ unit.T)[np.triu_indices(12, 1)]
    assert semantic_diversity(vectors) == pytest.approx(1 - cosine.mean(), abs=1e-12)
    assert semantic_diversity(np.ones((4, 3))) == pytest.approx(0, abs=1e-12)


@settings(deadline=None, max_examples=50, derandomize=True)
@given(corpora, st.randoms())
def test_order_of_texts_does_not_matter(corpus: list[list[str]], random: object) -> None:
    texts = [" ".join(tokens) for tokens in corpus]
    mixed = list(texts)
    random.shuffle(mixed)  # type: ignore[attr-defined]
    one, two = lexical_diversity(texts), lexical_diversity(mixed)
    for name in ("n_types", "n_tokens", "n_empty", "template_diversity", "type_token_ratio", "self_bleu"):
        assert getattr(one, name) == pytest.approx(getattr(two, name), abs=1e-12, nan_ok=True)
