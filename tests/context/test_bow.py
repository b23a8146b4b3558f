"""Words are counted as they stand; the pre-test probability finds what is planted, and never from its own labels."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from scipy import sparse
from scipy.special import expit

from cxrhf.context.bow import (
    FOLDS,
    Bag,
    association,
    cross_fit,
    deal,
    distinct_rows,
    fit_ridge,
    make_bag,
    notes_pretest,
    too_few,
)
from cxrhf.context.settings import ENOUGH
from cxrhf.context.words import count_words
from cxrhf.metrics import auroc, calibration_line


def test_counts_are_those_of_scikit_learn():
    from sklearn.feature_extraction.text import CountVectorizer

    rng = np.random.default_rng(0)
    pieces = ["No edema", "no", "NOT", "edema,", "b12", "a", "x-ray", "\N{LATIN SMALL LETTER E WITH ACUTE}t\u00e9",
              "___", "40", "heart\nfailure"]  # fmt: skip
    texts = [" ".join(rng.choice(pieces, 8)) for _ in range(1203)]
    ours = count_words(pa.chunked_array([texts[:700], texts[700:]]), np.arange(len(texts)), min_patients=1)
    theirs = CountVectorizer(token_pattern=r"(?u)\b[^\W_][^\W_]+\b")
    counts = theirs.fit_transform(texts)
    words = [word for word in theirs.get_feature_names_out() if not word.isdigit()]
    assert ours.words == sorted(words)
    assert {"no", "not"} <= set(ours.words)
    assert (ours.counts.toarray() == counts[:, [theirs.vocabulary_[word] for word in ours.words]].toarray()).all()


def test_words_of_few_patients_are_left_out():
    texts = pa.array(["rare rare", "rare common", "common", "common often often", "often often"])
    patients = np.array([0, 0, 1, 2, 2])
    found = count_words(texts, patients, min_patients=2)
    assert found.words == ["common"]  # rare: two notes of one patient
    assert found.n_patients.tolist() == [3]
    every = count_words(texts, patients, min_patients=1, max_words=2)
    assert every.words == ["common", "often"]  # the commonest; rare and common tie at 3: the alphabet decides
    order = np.array([4, 2, 0, 3, 1])
    again = count_words(texts.take(pa.array(order)), patients[order], min_patients=1, max_words=2)
    assert again.words == every.words
    assert (again.counts.toarray() == every.counts.toarray()[order]).all()
    nothing = count_words(pa.array([None, "", "7 8"], pa.string()), np.array([0, 1, 2]))
    assert nothing.counts.shape == (3, 0)
    assert count_words(pa.array([], pa.string()), np.zeros(0, dtype=np.int64)).counts.shape == (0, 0)


def test_ridge_is_that_of_scikit_learn(monkeypatch):
    from sklearn.linear_model import LogisticRegression

    monkeypatch.setattr("cxrhf.context.bow.CLOSE", 1e-12)
    rng = np.random.default_rng(1)
    design = sparse.random_array((500, 60), density=0.2, rng=rng, format="csr")
    y = (rng.random(500) < expit(design @ rng.standard_normal(60) * 2 - 1)).astype(float)
    for penalty in (0.1, 3.0, 100.0):
        found, intercept = fit_ridge(design, y, 1 - y, penalty)
        theirs = LogisticRegression(C=1 / penalty, tol=1e-12, max_iter=10_000).fit(design, y)
        assert found == pytest.approx(theirs.coef_[0], abs=1e-4)
        assert intercept == pytest.approx(theirs.intercept_[0], abs=1e-4)
    twice = sparse.csr_array(sparse.vstack([design, design[:200]]))
    doubled = fit_ridge(twice, np.r_[y, y[:200]], 1 - np.r_[y, y[:200]], 3.0)
    times = np.r_[np.full(200, 2.0), np.ones(300)]
    assert fit_ridge(design, times * y, times * (1 - y), 3.0)[0] == pytest.approx(doubled[0], abs=1e-5)


def chart(seed: int, n_patients: int = 400, shift: float = 1.5, noise: int = 300):
    """Labels, links, texts and patients: a third of the patients have the word `sign`, which raises the log odds."""
    rng = np.random.default_rng(seed)
    sign = rng.random(n_patients) < 1 / 3
    n_notes = rng.integers(0, 4, n_patients)
    owner = np.repeat(np.arange(n_patients), n_notes)
    filler = np.array([f"word{at:03d}" for at in range(noise)])
    texts = [" ".join([*rng.choice(filler, 30), *["sign"] * int(sign[at])]) for at in owner]
    first = np.cumsum(n_notes) - n_notes
    patients = np.sort(rng.integers(0, n_patients, 4 * n_patients))
    count = rng.integers(0, n_notes[patients] + 1)
    indices = np.concatenate([np.arange(first[p], first[p] + c) for p, c in zip(patients, count, strict=True)])
    ends = np.r_[0, np.cumsum(count)]
    links = sparse.csr_array((np.ones(len(indices)), indices.astype(np.int64), ends), shape=(len(count), len(texts)))
    truth = expit(-1 + shift * sign[patients])
    y = (rng.random(len(truth)) < truth).astype(float)
    return y[:, None], links, pa.array(texts), patients, truth


def test_finds_what_is_planted_and_is_calibrated():
    y, links, texts, patients, truth = chart(0)
    found = notes_pretest(y, links, texts, patients, findings=["edema"], seed=0)
    noted = np.diff(links.indptr) > 0
    assert np.isnan(found.pretest[~noted]).all()
    p = found.pretest[noted, 0]
    assert ((p > 0) & (p < 1)).all()
    assert auroc(y[noted, 0], p) > auroc(y[noted, 0], truth[noted]) - 0.03
    line = calibration_line(y[noted, 0], p)
    assert 0.75 < line.slope < 1.35
    assert abs(line.in_the_large) < 0.1
    assert found.n_words == 301
    assert found.reasons == {}


def test_finds_nothing_where_nothing_is():
    values = []
    for seed in range(4):
        y, links, texts, patients, _ = chart(seed, shift=0.0)
        found = notes_pretest(y, links, texts, patients, findings=["edema"], seed=seed)
        noted = np.diff(links.indptr) > 0
        values.append(auroc(y[noted, 0], found.pretest[noted, 0]))
    assert all(0.42 < value < 0.58 for value in values)
    assert abs(np.mean(values) - 0.5) < 0.04


def test_order_of_notes_does_not_matter():
    y, links, texts, patients, _ = chart(1, n_patients=150)
    first = notes_pretest(y, links, texts, patients, findings=["edema"], seed=3)
    order = np.random.default_rng(0).permutation(len(texts))
    place = np.argsort(order)
    moved = sparse.csr_array((links.data, place[links.indices], links.indptr), shape=links.shape)
    again = notes_pretest(y, moved, texts.take(pa.array(order)), patients, findings=["edema"], seed=3)
    assert np.array_equal(first.pretest, again.pretest, equal_nan=True)
    other = notes_pretest(y, links, texts, patients, findings=["edema"], seed=4)
    assert not np.array_equal(first.pretest, other.pretest, equal_nan=True)


def bag_of(seed: int) -> tuple[Bag, np.ndarray]:
    y, links, texts, patients, _ = chart(seed, n_patients=150)
    noted = np.flatnonzero(np.diff(links.indptr) > 0)
    who = np.unique(patients[noted], return_inverse=True)[1]
    row, first = distinct_rows(links[noted])
    words = count_words(texts, np.zeros(len(texts), dtype=np.int64), min_patients=1)
    return make_bag(links[noted][first] @ words.counts, words.n_patients, who[first], row), y[noted, 0]


def test_no_label_of_a_fold_plays_a_part_in_its_probabilities():
    bag, y = bag_of(5)
    who = bag.patient[bag.row]
    fold = deal(y, who, seed=0)
    before = cross_fit(bag, y, fold)
    for held in range(FOLDS):
        mine = fold == held
        for labels in (np.where(mine, 1 - y, y), np.where(mine, np.nan, y), np.where(mine, 1.0, y)):
            after = cross_fit(bag, labels, fold)
            assert np.array_equal(after[mine], before[mine])
            assert not np.array_equal(after[~mine], before[~mine])


def test_folds_hold_whole_patients_and_even_labels():
    rng = np.random.default_rng(0)
    patients = np.unique(np.sort(rng.geometric(0.02, 3000)), return_inverse=True)[1]
    y = (rng.random(3000) < 0.1 + 0.3 * (patients % 3 == 0)).astype(float)
    fold = deal(y, patients, seed=0)
    assert all(len(np.unique(fold[patients == each])) == 1 for each in np.unique(patients))
    assert set(fold) == set(range(FOLDS))
    assert np.std([y[fold == at].mean() for at in range(FOLDS)]) < 0.02
    assert (deal(y, patients, seed=0) == fold).all()
    assert (deal(y, patients, seed=1) != fold).any()
    some = np.where(patients % 4 == 0, np.nan, y)  # whole patients without a label
    again = deal(some, patients, seed=0)
    assert all(len(np.unique(again[patients == each])) == 1 for each in np.unique(patients))
    assert set(again[np.isnan(some)]) == set(range(FOLDS))


def test_images_with_the_same_notes_are_one_row():
    links = sparse.csr_array(np.array([[1, 1, 0], [0, 1, 0], [1, 1, 0], [0, 1, 0], [0, 0, 1]], dtype=float))
    row, first = distinct_rows(links)
    assert row.tolist() == [0, 1, 0, 1, 2]
    assert first.tolist() == [0, 1, 4]


def test_association_counts_patients():
    """A patient with a hundred sets of notes weighs no more words than one with a single set."""
    bag, y = bag_of(6)
    known = np.bincount(bag.row, y, minlength=bag.features.shape[0])
    rows = np.arange(bag.features.shape[0])
    total = np.bincount(bag.row, minlength=len(rows)).astype(float)
    z = association(bag, rows, known, total - known)
    assert np.abs(z).argmax() == 0  # "sign" comes first in the alphabet
    rng = np.random.default_rng(0)
    nulls = []
    for _ in range(40):
        swapped = rng.permutation(len(np.unique(bag.patient)))
        share = np.bincount(bag.patient, known) / np.bincount(bag.patient, total)
        made = total * share[swapped][bag.patient]
        nulls.append(association(bag, rows, made, total - made))
    assert 0.8 < np.std(nulls) < 1.2


def test_too_few():
    patients = np.repeat(np.arange(60), 5)
    y = (patients < ENOUGH - 1).astype(float)
    assert too_few(y, patients) == "prior notes exist for 19 patients with the finding; at least 20 are required"
    assert too_few(1 - y, patients) == "prior notes exist for 19 patients without the finding; at least 20 are required"
    assert too_few((patients < ENOUGH).astype(float), patients) is None
    assert too_few(y, patients, 19) is None
    y, links, texts, patients, _ = chart(2, n_patients=120)
    rare = np.where(patients < 12, 1.0, 0.0)[:, None]
    one_class = np.zeros_like(y)
    blank = np.full_like(y, np.nan)
    found = notes_pretest(np.hstack([rare, y, one_class, blank]), links, texts, patients, findings=list("abcd"), seed=0)
    assert set(found.reasons) == {"a", "c", "d"}
    assert np.isnan(found.pretest[:, [0, 2, 3]]).all()
    assert not np.isnan(found.pretest[np.diff(links.indptr) > 0, 1]).any()
    empty = sparse.csr_array(links.shape)
    nobody = notes_pretest(y, empty, texts, patients, findings=["a"], seed=0)
    assert nobody.reasons == {"a": "no image has a prior note"}


def test_images_without_a_label_are_predicted():
    """As well as the planted word allows, on the mean of six charts: in one the difference has an SE of some .02."""
    gaps = []
    for seed in range(6):
        y, links, texts, patients, truth = chart(seed)
        hidden = np.where(np.random.default_rng(seed).random(len(y)) < 0.4, np.nan, y[:, 0])[:, None]
        found = notes_pretest(hidden, links, texts, patients, findings=["a"], seed=seed)
        asked = np.isnan(hidden[:, 0]) & (np.diff(links.indptr) > 0)
        gaps.append(auroc(y[asked, 0], truth[asked]) - auroc(y[asked, 0], found.pretest[asked, 0]))
    assert np.mean(gaps) < 0.05


def test_notes_without_any_common_word():
    y, links, _, patients, _ = chart(4, n_patients=120)
    texts = pa.array([f"only{at}x" for at in range(links.shape[1])])
    found = notes_pretest(y, links, texts, patients, findings=["a"], seed=0)
    noted = np.diff(links.indptr) > 0
    assert found.n_words == 0
    assert found.pretest[noted, 0] == pytest.approx(np.full(noted.sum(), y[noted].mean()), abs=0.05)
