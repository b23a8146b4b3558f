"""The vocabulary comes from learning notes alone, is scikit-learn's where it says so, and survives its JSON."""

from __future__ import annotations

import json
import math
from collections import Counter, defaultdict
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from scipy import sparse

from cxrhf.context.bow import distinct_rows, make_bag
from cxrhf.context.families import count, learn_vocabulary, vocabulary_from_json, word_features
from cxrhf.context.material import CARRIED_COLUMNS, Material
from cxrhf.context.words import clean, count_all, count_words

STYLES = ("default", "paper")
ODD = [
    "No",
    "the",
    "without",
    "12",
    "2024",
    "___",
    "a_b",
    "caf\u00e9",
    "\u0394\u03a3",
    "\u4e2d\u6587",
    "x-ray",
    "b12",
    "x",
    "\U0001fac1",
]


def chart(seed: int, n_patients: int = 60, n_words: int = 120, length: int = 25) -> tuple[Material, np.ndarray]:
    """Patients with up to 4 notes and 5 images, each image with the first few notes; three in five are learned from."""
    rng = np.random.default_rng(seed)
    pool = np.array([f"Word{at}" for at in range(n_words)] + ODD, dtype=object)
    share = 1 / (3 + rng.permutation(len(pool)))
    texts, patients, rows = [], [], []
    for patient in range(n_patients):
        first, some = len(texts), int(rng.integers(0, 5))
        texts += [" ".join(rng.choice(pool, length, p=share / share.sum())) + "." for _ in range(some)]
        for _ in range(int(rng.integers(1, 6))):
            patients.append(patient)
            rows.append(np.arange(first, first + int(rng.integers(0, some + 1))))
    learn = np.array([patient % 5 < 3 for patient in patients])
    return assembled(texts, np.array(patients), rows), learn


def assembled(texts: list[str], patients: np.ndarray, rows: list[np.ndarray]) -> Material:
    ends = np.r_[0, np.cumsum([len(row) for row in rows])]
    links = sparse.csr_array((np.ones(ends[-1]), np.concatenate(rows), ends), shape=(len(rows), len(texts)))
    noted = np.diff(links.indptr) > 0
    set_of = np.full(len(rows), -1)
    set_of[noted], first = distinct_rows(links[np.flatnonzero(noted)])
    sets = sparse.csr_array(links[np.flatnonzero(noted)][first])
    images = pa.table({name: pa.nulls(len(rows), pa.string()) for name in CARRIED_COLUMNS})
    notes = pa.table({"text": pa.array(texts, pa.string())})
    return Material(images, (), np.zeros((len(rows), 0)), patients, links, notes, noted, set_of, sets)


def texts_of(material: Material) -> list[str]:
    return material.notes["text"].to_pylist()


def joined(material: Material, images: np.ndarray) -> list[str]:
    """One document an image."""
    texts, links = texts_of(material), material.links
    return ["\n".join(texts[at] for at in links.indices[links.indptr[i] : links.indptr[i + 1]]) for i in images]


def learned(material: Material, learn: np.ndarray, style: str, recipe: str = "plain", **options):
    counted = count_all(clean(material.notes["text"], recipe), style)
    return counted, learn_vocabulary(counted, material, learn, style, recipe, **options)


@pytest.mark.parametrize("recipe", ["plain", "oberst"])
@pytest.mark.parametrize("seed", range(6))
def test_paper_is_scikit_learn(seed, recipe):
    from sklearn.feature_extraction.text import CountVectorizer

    material, learn = chart(seed)
    if recipe == "oberst":
        cleaned = clean(material.notes["text"], recipe)
        material = replace(material, notes=pa.table({"text": cleaned}))
    counted = count_all(material.notes["text"], "paper")  # not lower-cased by a recipe: counting does it
    images, every = np.flatnonzero(learn & material.noted), np.flatnonzero(material.noted)
    theirs = CountVectorizer(max_features=8192, max_df=0.9, min_df=5, stop_words="english")
    theirs.fit(joined(material, images))
    ours = learn_vocabulary(counted, material, learn, "paper", recipe)
    assert list(ours.words) == theirs.get_feature_names_out().tolist()
    assert len(ours.words) > 80
    found = word_features(ours, counted, material.sets)[material.set_of[every]]
    assert found.dtype == np.float32
    assert (found.toarray() == theirs.transform(joined(material, every)).toarray()).all()
    assert (ours.weights == 1).all()


@pytest.mark.parametrize("limit", [1, 7, 20, 40, 60])
def test_paper_at_the_edge_of_max_features(limit):
    """Words above the edge are scikit-learn's; of those that tie there, the first in the alphabet."""
    from sklearn.feature_extraction.text import CountVectorizer

    material, learn = chart(1, length=12)
    counted, ours = learned(material, learn, "paper", max_words=limit)
    documents = joined(material, np.flatnonzero(learn & material.noted))
    theirs = CountVectorizer(max_features=limit, max_df=0.9, min_df=5, stop_words="english").fit(documents)
    every = CountVectorizer(max_df=0.9, min_df=5, stop_words="english")
    total = dict(
        zip(every.fit(documents).get_feature_names_out(), every.transform(documents).sum(axis=0).flat, strict=True)
    )
    best = sorted(total, key=lambda word: (-total[word], word))
    assert list(ours.words) == sorted(best[:limit])
    edge = total[best[limit - 1]]
    assert limit != 40 or total[best[limit]] == edge  # a tie was tested
    chosen = set(theirs.get_feature_names_out())
    assert {word for word in ours.words if total[word] > edge} == {word for word in chosen if total[word] > edge}
    assert all(total[word] >= edge for word in chosen)
    assert len(chosen) == len(ours.words) == limit
    assert word_features(ours, counted, material.sets).shape[1] == limit


@pytest.mark.parametrize("n_images", [4, 5, 6, 10, 20, 30])
def test_paper_at_the_edges_of_min_df_and_max_df(n_images):
    """Word k stands in the first k documents: those of 5 to .9 of all are in, both included."""
    from sklearn.feature_extraction.text import CountVectorizer

    texts = [" ".join(f"word{k:02d}" for k in range(at + 1, n_images + 1)) for at in range(n_images)]
    material = assembled(texts, np.arange(n_images), [np.array([at]) for at in range(n_images)])
    _, ours = learned(material, np.ones(n_images, dtype=bool), "paper")
    assert list(ours.words) == [f"word{k:02d}" for k in range(5, n_images + 1) if k <= 0.9 * n_images]
    theirs = CountVectorizer(max_features=8192, max_df=0.9, min_df=5, stop_words="english")
    if ours.words:
        assert list(ours.words) == theirs.fit(texts).get_feature_names_out().tolist()
    else:
        with pytest.raises(ValueError, match=r"max_df corresponds to|no terms remain"):
            theirs.fit(texts)


@pytest.mark.parametrize("max_words", [15, 8192])
def test_default_is_its_slow_twin(max_words):
    material, learn = chart(3)
    counted, ours = learned(material, learn, "default", max_words=max_words)
    holders, total, owner = defaultdict(set), Counter(), {}
    for image in np.flatnonzero(learn & material.noted):
        for note in material.links[[image]].indices:
            owner[note] = material.patients[image]
    bags = {at: words_of(text) for at, text in enumerate(texts_of(material))}
    for note, patient in owner.items():
        total += bags[note]
        for word in bags[note]:
            holders[word].add(patient)
    allowed = sorted((-total[word], word) for word in total if len(holders[word]) >= 5)[:max_words]
    assert list(ours.words) == sorted(word for _, word in allowed)
    assert ours.n_patients.tolist() == [len(holders[word]) for word in ours.words]
    everybody = len(set(owner.values()))
    assert ours.weights.tolist() == pytest.approx([1 + math.log(everybody / len(holders[w])) for w in ours.words])
    assert {"no", "the", "without"} <= set(learned(material, learn, "default")[1].words)  # negations stay
    found = word_features(ours, counted, material.sets)
    for row in range(material.sets.shape[0]):
        bag = sum((bags[note] for note in material.sets[[row]].indices), Counter())
        slow = np.array([math.log1p(bag[w]) * weight for w, weight in zip(ours.words, ours.weights, strict=True)])
        assert found[[row]].toarray()[0] == pytest.approx(slow / max(np.linalg.norm(slow), 1e-9), rel=1e-5)


def words_of(text: str) -> Counter:
    apart = "".join(letter if letter.isalnum() else " " for letter in text.replace("\u03a3", "\u03c2").lower())
    return Counter(word for word in apart.split() if len(word) > 1 and any(letter.isalpha() for letter in word))


def test_default_where_all_learn_is_the_bag_of_the_audit():
    """The words, weights and features of `cxrhf audit --notes`."""
    material, _ = chart(4)
    counted, ours = learned(material, np.ones(len(material.noted), dtype=bool), "default")
    noted = np.flatnonzero(material.noted)
    who = np.unique(material.patients[noted], return_inverse=True)[1]
    used = np.unique(material.links.indices)
    owners = np.zeros(material.links.shape[1], dtype=np.int64)
    owners[material.links.indices] = np.repeat(material.patients, np.diff(material.links.indptr))
    words = count_words(material.notes["text"].take(pa.array(used)), np.unique(owners[used], return_inverse=True)[1])
    assert words.words == list(ours.words)
    row, first = distinct_rows(material.links[noted])
    bag = make_bag(material.links[noted][first][:, used] @ words.counts, words.n_patients, who[first], row)
    assert abs(bag.features - word_features(ours, counted, material.sets)).max() < 1e-6


@pytest.mark.parametrize("style", STYLES)
def test_only_learning_notes_are_looked_at(style):
    material, learn = chart(5)
    _, before = learned(material, learn, style)
    seen = np.unique(material.links[np.flatnonzero(learn)].indices)
    texts = ["word3 word4 something else" * 50] * material.notes.num_rows
    for at in seen:
        texts[at] = texts_of(material)[at]
    assert len(seen) < len(texts)
    _, after = learned(replace(material, notes=pa.table({"text": texts})), learn, style)
    assert_same(before, after)
    _, other = learned(material, ~learn, style)
    assert other.words != before.words


@pytest.mark.parametrize("style", STYLES)
def test_order_of_notes_and_images_does_not_matter(style):
    material, learn = chart(6)
    counted, before = learned(material, learn, style, max_words=60)
    of_image = word_features(before, counted, material.sets)[material.set_of[material.noted]].toarray()
    rng = np.random.default_rng(0)
    notes, images = rng.permutation(material.notes.num_rows), rng.permutation(len(learn))
    place = np.argsort(notes)
    rows = [place[material.links[[image]].indices] for image in images]
    people = rng.permutation(1000)[material.patients[images]]  # other numbers for the same patients
    moved = assembled([texts_of(material)[at] for at in notes], people, rows)
    again, after = learned(moved, learn[images], style, max_words=60)
    assert_same(before, after)
    here = word_features(after, again, moved.sets)[moved.set_of[moved.noted]].toarray()
    at = np.cumsum(material.noted)[images][moved.noted] - 1
    assert np.array_equal(here, of_image[at])  # to the bit


@pytest.mark.parametrize("style", STYLES)
def test_notes_of_another_build(style):
    """Counted over known words alone or over all, the features are the same; strangers are dropped."""
    material, learn = chart(7)
    _, known = learned(material, learn, style)
    other, _ = chart(8, n_patients=9)
    texts = [*texts_of(other), "quite unheard", "___", "", "zz word1"]
    other = assembled(
        texts, np.arange(5), [np.arange(3), *(np.array([at]) for at in range(len(texts) - 4, len(texts)))]
    )
    cleaned = clean(other.notes["text"], known.recipe)
    few, many = count(known, cleaned), count_all(cleaned, style)
    assert len(few.words) < len(many.words) + len(known.words)
    found = word_features(known, few, other.sets)
    assert np.array_equal(found.toarray(), word_features(known, many, other.sets).toarray())
    assert found.indices.dtype == found.indptr.dtype == np.int32  # liblinear takes no other
    dense = found.toarray()
    assert np.isfinite(dense).all()
    unknown = [1, 3] if style == "paper" and "___" in known.words else [1, 2, 3]
    assert not dense[unknown].any()
    assert np.flatnonzero(dense[4]).tolist() == [known.words.index("word1")]
    if style == "default":
        assert np.linalg.norm(dense, axis=1) == pytest.approx([1, 0, 0, 0, 1])


@pytest.mark.parametrize("style", STYLES)
def test_blocks_do_not_matter(style, monkeypatch):
    material, learn = chart(9)
    counted, before = learned(material, learn, style)
    whole = word_features(before, counted, material.sets)
    monkeypatch.setattr("cxrhf.context.families.BLOCK", 7)
    monkeypatch.setattr("cxrhf.context.words.GROUPS", 7)
    _, after = learned(material, learn, style)
    assert_same(before, after)
    assert np.array_equal(word_features(after, counted, material.sets).toarray(), whole.toarray())


@pytest.mark.parametrize("style", STYLES)
def test_nothing_to_learn(style):
    material, learn = chart(10)
    counted, nothing = learned(material, learn & False, style)
    assert nothing.words == ()
    assert word_features(nothing, counted, material.sets).shape == (material.sets.shape[0], 0)
    assert vocabulary_from_json(nothing.to_json()).words == ()
    bare = replace(material, notes=pa.table({"text": ["the a 7"] * material.notes.num_rows}))
    words = learned(bare, learn, style)[1].words
    assert words == (("the",) if style == "default" else ())
    empty = assembled([], np.zeros(2, dtype=np.int64), [np.zeros(0, dtype=np.int64)] * 2)
    counted, nothing = learned(empty, np.ones(2, dtype=bool), style)
    assert word_features(nothing, counted, empty.sets).shape == (0, 0)


def test_words_of_one_patient_are_in_the_papers_vocabulary_alone():
    """Five images of one patient are five documents for the paper; only the default never knows such a word."""
    texts = ["secret common"] + ["common cough"] * 8
    rows = [np.array([0])] * 6 + [np.array([at]) for at in range(1, 9)]
    material = assembled(texts, np.r_[np.zeros(6, dtype=int), np.arange(1, 9)], rows)
    _, paper = learned(material, np.ones(14, dtype=bool), "paper")
    assert paper.words == ("cough", "secret")  # common is in more than .9 of the documents
    assert paper.n_patients.tolist() == [8, 1]
    _, default = learned(material, np.ones(14, dtype=bool), "default")
    assert default.words == ("common", "cough")
    assert "secret" not in repr(paper)


def test_styles_are_not_mixed():
    material, learn = chart(11)
    counted, vocabulary = learned(material, learn, "paper")
    with pytest.raises(ValueError, match=r"expected 'paper', .*got 'default'"):
        learn_vocabulary(counted, material, learn, "default", "plain")
    with pytest.raises(ValueError, match=r"expected 'default', .*got 'paper'"):
        word_features(vocabulary, count_all(material.notes["text"]), material.sets)


@pytest.mark.parametrize("style", STYLES)
def test_json_there_and_back(style):
    material, learn = chart(12)
    _, before = learned(material, learn, style, "oberst")
    after = vocabulary_from_json(json.loads(json.dumps(before.to_json(), allow_nan=False)))
    assert_same(before, after)
    assert after.recipe == "oberst"


def assert_same(one, other) -> None:
    assert one.words == other.words
    assert np.array_equal(one.weights, other.weights)
    assert np.array_equal(one.n_patients, other.n_patients)
    assert (one.style, one.recipe) == (other.style, other.recipe)
    assert one.weights.dtype == other.weights.dtype == np.float64
    assert one.n_patients.dtype == other.n_patients.dtype == np.int64
