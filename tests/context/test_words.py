"""Words are what their style says, and are counted as plain Python counts them."""

from __future__ import annotations

import re
from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy import sparse

from cxrhf.context.words import (
    BATCH,
    commonest_words,
    count_all,
    count_words,
    rarity,
    stack_batches,
    sums,
    weigh_counts,
)

ORDINARY = [
    *("No", "no", "edema", "EDEMA,", "a", "3", "40", "b12", "x-ray", "___", "a_b", "_", "\x00", "\n", "\u00a0"),
    *("caf\u00e9", "CAF\u00c9", "\u0394\u03a3", "e\u0301t\u00e9", "\u4e2d\u6587", "\u0663\u0664", "\u2163b"),
    *("\u00bd\u00bd", "\u2014", "\U0001fac1", "\u00aa\u00ba"),
]
PIECES = [*ORDINARY, "\u0130x"]
TEXTS = st.one_of(st.text(max_size=40), st.lists(st.sampled_from(PIECES), max_size=15).map(" ".join),
                  st.lists(st.sampled_from(PIECES), max_size=15).map("".join))  # fmt: skip


def as_counters(counted) -> list[Counter]:
    """One Counter a text."""
    rows = counted.counts.toarray()
    return [Counter({counted.words[at]: int(row[at]) for at in np.flatnonzero(row)}) for row in rows]


@settings(max_examples=80, deadline=None)
@given(texts=st.lists(st.one_of(st.none(), TEXTS), max_size=5))
@example(texts=["\u039f\u0394\u039f\u03a3 \u0130STANBUL"])
def test_words_of_the_paper_are_those_of_scikit_learn(texts):
    """The token pattern of CountVectorizer, on any text at all."""
    counted = count_all(pa.array(texts, pa.string()), "paper")
    assert as_counters(counted) == [Counter(re.findall(r"(?u)\b\w\w+\b", (text or "").lower())) for text in texts]
    assert counted.style == "paper"


@settings(max_examples=80, deadline=None)
@given(texts=st.lists(st.lists(st.sampled_from(ORDINARY), max_size=15).map(" ".join), max_size=5))
def test_words_by_default(texts):
    """Runs of letters and digits with a letter. Arrow lowers a few letters otherwise, so these are known ones."""

    def words(text: str) -> Counter:
        runs = re.findall(r"[^\W_]+", text.replace("\u03a3", "\u03c3").lower())
        return Counter(run for run in runs if len(run) > 1 and any(letter.isalpha() for letter in run))

    assert as_counters(count_all(pa.array(texts, pa.string()))) == [words(text) for text in texts]


@pytest.mark.parametrize("style", ["default", "paper"])
def test_known_words_alone(style):
    rng = np.random.default_rng(0)
    texts = pa.array([" ".join(rng.choice(PIECES, 9)) for _ in range(1_203)])
    every = count_all(texts, style)
    known = ["zebra", "edema", "no", "caf\u00e9"]
    some = count_all(texts, style, known=known)
    assert some.words == known
    assert not some.counts[:, [0]].toarray().any()
    at = [every.words.index(word) for word in known[1:]]
    assert (some.counts[:, [1, 2, 3]].toarray() == every.counts[:, at].toarray()).all()
    assert every.counts.dtype == np.int32
    assert every.counts.indices.dtype == every.counts.indptr.dtype == np.int32
    assert count_all(texts, style, known=[]).counts.shape == (1_203, 0)


def test_progress_and_long_texts():
    said: list[str] = []
    texts = ["edema " * 33_000, "", None, "x" * 200_000, *["no"] * (21 * BATCH)]
    counted = count_all(pa.array(texts), progress=said.append)
    assert said == [f"words of {20 * BATCH:,} of {len(texts):,} notes"]
    assert counted.counts[[0], :].toarray().tolist() == [[33_000, 0, 0]]
    assert np.diff(counted.counts.indptr)[:5].tolist() == [1, 0, 0, 1, 1]


def test_count_words_is_count_all_and_a_choice():
    rng = np.random.default_rng(1)
    texts = [" ".join(f"w{at}" for at in rng.geometric(0.05, 30)) for _ in range(700)]
    patients = rng.integers(0, 90, 700)
    found = count_words(pa.array(texts), patients, max_words=20)
    total = Counter(word for text in texts for word in text.split())
    holders = {word: {patients[at] for at, text in enumerate(texts) if word in text.split()} for word in total}
    allowed = sorted((-total[word], word) for word in total if len(holders[word]) >= 5)[:20]
    assert found.words == sorted(word for _, word in allowed)
    assert found.n_patients.tolist() == [len(holders[word]) for word in found.words]
    assert found.counts.sum(axis=0).tolist() == [total[word] for word in found.words]


def test_sums_of_groups(monkeypatch):
    monkeypatch.setattr("cxrhf.context.words.GROUPS", 3)
    rng = np.random.default_rng(2)
    groups = (rng.random((10, 40)) < 0.2).astype(np.int32)
    counts = rng.poisson(0.1, (40, 25)).astype(np.int32)
    times = rng.integers(0, 4, 10)
    holding, total = sums(sparse.csr_array(groups), sparse.csr_array(counts), times)
    slow = groups @ counts
    assert (holding == times @ (slow > 0)).all()
    assert (total == times @ slow).all()
    once = sums(sparse.csr_array(groups), sparse.csr_array(counts))
    assert (once[0] == (slow > 0).sum(axis=0)).all()
    assert (once[1] == slow.sum(axis=0)).all()


def test_commonest_breaks_ties_by_the_alphabet():
    words = np.array(["d", "b", "a", "c", "e"], dtype=object)
    total = np.array([2, 2, 1, 2, 9])
    allowed = np.array([True, True, True, True, False])
    assert words[commonest_words(words, total, allowed, 2)].tolist() == ["b", "c"]
    assert words[commonest_words(words, total, allowed, 9)].tolist() == ["a", "b", "c", "d"]
    assert commonest_words(words, total, allowed & False, 2).tolist() == []


def test_weighed_rows():
    counts = np.array([[3, 0, 1], [0, 0, 0], [0, 2, 0]])
    weights = rarity(np.array([1, 2, 4]), 4)
    assert weights.tolist() == [1 + np.log(4), 1 + np.log(2), 1.0]
    found = weigh_counts(sparse.csr_array(counts), weights).toarray()
    slow = np.log1p(counts) * weights
    assert found[0] == pytest.approx(slow[0] / np.linalg.norm(slow[0]))
    assert found[1].tolist() == [0, 0, 0]
    assert found[2].tolist() == [0, 1, 0]


def test_stacked():
    first, second = sparse.csr_array(np.array([[1, 0], [0, 0]])), sparse.csr_array(np.array([[0, 2, 3]]))
    assert stack_batches([first, second], 3).toarray().tolist() == [[1, 0, 0], [0, 0, 0], [0, 2, 3]]
    assert stack_batches([], 4).shape == (0, 4)
