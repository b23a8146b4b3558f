"""Categories by chance, drawn means, semantic spread and word vectors, each against its definition."""

from __future__ import annotations

import numpy as np
import pytest

from cxrhf import metrics
from cxrhf.data.planted_words import word_reports
from cxrhf.metrics.association import cad_corpora, categories
from cxrhf.metrics.checks import InputError
from cxrhf.metrics.drawn_means import mean_replicates, patients_behind
from cxrhf.metrics.draws import draw
from cxrhf.metrics.semantic import semantic_spread
from cxrhf.metrics.word_vectors import cooccurrence_vectors
from cxrhf.metrics.words_chance import category_chance
from cxrhf.metrics.words_corpora import corpora


@pytest.mark.parametrize("chosen", ["default", "exact", "either"])
def test_chance_is_what_cad_says_of_shuffled_groups(chosen: str) -> None:
    """The permutations of the very same stream, one by one through `cad`; a loose level, so that there is something."""
    made = word_reports(150, seed=1)
    texts = corpora(made.reference, made.generated, made.group, made.patient)
    found = cad_corpora(texts, p_star=0.9)
    chance = category_chance(texts, found, rule=chosen, n_resamples=6, seed=9)
    rng = np.random.default_rng(np.random.SeedSequence(9))
    first = np.array([each == "F" for each in made.group])
    shuffles = rng.permuted(np.tile(first, (6, 1)), axis=1)
    for at, labels in enumerate(shuffles):
        groups = np.where(labels, "F", "M").tolist()
        again = cad_corpora(corpora(made.reference, made.generated, groups, made.patient), p_star=0.9)
        for rule in (chosen, "paper"):
            kinds = categories(again, rule=rule).category
            for name in ("omitted", "new", "flip", "preserved") if rule != "paper" else ("erasure", "new", "flip"):
                assert chance.counts[rule][name][at] == (kinds == name).sum()
    assert sum(each.sum() for each in chance.counts[chosen].values()) > 0
    assert chance.p_value("paper", "new", 10**6) == pytest.approx(1 / 7)
    assert chance.p_value("paper", "new", 0) == 1


def test_chance_needs_one_group_a_patient_and_the_same_words() -> None:
    made = word_reports(40, seed=1)
    texts = corpora(made.reference, made.generated, made.group, made.patient)
    found = cad_corpora(texts)
    with pytest.raises(InputError, match="both groups"):
        category_chance(corpora(made.reference, made.generated, made.group, ["one"] * 40), found)
    other = corpora(["a heart"] * 40, made.generated, made.group, made.patient)
    with pytest.raises(InputError, match="they must be the same"):
        category_chance(other, found)


def test_drawn_means_are_means_of_drawn_rows() -> None:
    rng = np.random.default_rng(0)
    patient = rng.integers(0, 9, 40)
    values = rng.random((40, 2))
    values[rng.random((40, 2)) < 0.2] = np.nan
    draws = draw(patient, n_resamples=30, seed=3)
    found = mean_replicates(values, draws)
    times = draws.counts(0, 30, conditional=False)
    for at in range(30):
        rows = np.repeat(np.arange(40), times[draws.unit, at])
        assert found[at] == pytest.approx(np.nanmean(values[rows], axis=0))
    units = patients_behind(values[:, 0], draws)
    assert units.total == len(np.unique(patient[~np.isnan(values[:, 0])]))
    assert 1 < units.effective_total <= units.total
    with pytest.raises(InputError, match="allowed: 40 rows"):
        mean_replicates(values[:5], draws)


def test_semantic_spread_is_a_jackknife_over_patients() -> None:
    rng = np.random.default_rng(1)
    vectors, patient = rng.normal(size=(30, 4)), rng.integers(0, 8, 30)
    found = semantic_spread(vectors, patient)
    assert found.value == metrics.semantic_diversity(vectors)
    names = np.unique(patient)
    without = np.array([metrics.semantic_diversity(vectors[patient != name]) for name in names])
    n = len(names)
    spread = np.sqrt((n - 1) / n * ((without - without.mean()) ** 2).sum())
    assert found.high - found.value == pytest.approx(2.364624 * spread, rel=1e-5)  # Student's t, 7 degrees
    assert np.isnan(semantic_spread(vectors[:3]).low)
    order = rng.permutation(30)
    assert semantic_spread(vectors[order], patient[order]) == pytest.approx(found)


def test_word_vectors_put_together_what_stands_together() -> None:
    texts = [
        "large heart effusion",
        "clear lungs normal",
        "large heart",
        "clear normal",
        "heart effusion",
        "lungs normal",
    ]
    words, vectors = cooccurrence_vectors(texts * 5, dim=3)
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    cosine = {(a, b): unit[i] @ unit[j] for i, a in enumerate(words) for j, b in enumerate(words)}
    assert cosine["heart", "large"] > 0.5 > cosine["heart", "normal"]
    assert cooccurrence_vectors(["one word"])[0] == []
    many = [" ".join(np.random.default_rng(at).choice(list("abcdefgh"), 4)) for at in range(9)]
    assert len(cooccurrence_vectors(many, min_texts=1)[0]) <= 8
