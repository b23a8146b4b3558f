"""Categories when groups mean nothing: the same as CAD of corpora whose groups were shuffled."""

from __future__ import annotations

import numpy as np
import pytest

from cxrhf.metrics.checks import InputError
from cxrhf.metrics.words import cad_corpora, categories, category_chance
from cxrhf.metrics.words_corpora import corpora
from cxrhf.twin.planted_groups import word_reports


@pytest.mark.parametrize("chosen", ["either", "score", "exact"])
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
    with pytest.raises(InputError, match="one group per patient"):
        category_chance(corpora(made.reference, made.generated, made.group, ["one"] * 40), found)
    other = corpora(["a heart"] * 40, made.generated, made.group, made.patient)
    with pytest.raises(InputError, match="found"):
        category_chance(other, found)
