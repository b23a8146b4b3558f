"""The twin's simulated report writers: their planted words are found; skewed training moves delta WAE."""

from __future__ import annotations

import pyarrow as pa
import pytest

from cxrhf.twin.generations import SKEWED, generation_truth, generations
from cxrhf.twin.people import people
from cxrhf.twin.texts import report_sections
from tests.audits.reports.made import audited, category, rows_of, value

PAIR = {"slice": "sex=F", "versus": "sex=M"}
KINDS = ("faithful", "collapsed", "planted", *SKEWED)


@pytest.fixture(scope="module")
def twin():
    crowd = people(3000, seed=8)
    reports = report_sections(crowd)
    return audited(*(generations(crowd, reports, kind=kind) for kind in KINDS), n_resamples=100, word_groups=("sex",))


def of(output, kind: str) -> dict[str, str]:
    rows = output.words.to_pylist()
    return {row["word"]: row["category"] for row in rows if row["model"] == kind}


@pytest.mark.parametrize("kind", KINDS)
def test_planted_words_are_in_their_categories(twin, kind: str) -> None:
    found = of(twin, kind)
    for word, true in generation_truth(kind).items():
        if true["category"] == "new":  # a sample's references may have a little association by chance
            assert found[word] in ("new", "amplified", "flip"), word
        else:
            assert found[word] == true["category"], word


def test_skewed_training_moves_delta_wae_as_in_the_paper(twin) -> None:
    """Male-skewed: words of women move more, so delta WAE (F - M) rises; female-skewed: it falls. Conventional metrics
    hardly notice."""
    delta = {kind: value(twin, "delta_wae_prediction", model=kind, **PAIR) for kind in ("faithful", *SKEWED)}
    assert delta["mostly_men"] > delta["faithful"] + 1
    assert delta["mostly_women"] < delta["faithful"] - 1
    rouge = [value(twin, "rougeL", model=kind) for kind in SKEWED]
    assert min(rouge) > 0.9


def test_collapse_is_seen(twin) -> None:
    assert value(twin, "n_templates", model="collapsed") == 1
    assert value(twin, "erasure.paper", model="collapsed", **PAIR) < value(twin, "erasure", model="collapsed", **PAIR)
    assert value(twin, "self_bleu_diversity", model="collapsed") == 0
    assert value(twin, "template_diversity", model="faithful") > 0.2


def test_p_values_tell_planted_from_faithful(twin) -> None:
    by = {row["model"]: row for row in rows_of(twin, audit="reports", metric="wae_prediction", **PAIR)}
    assert by["planted"]["p_value"] < 0.05
    assert by["mostly_men"]["p_value"] < 0.05
    assert by["faithful"]["p_value"] > 0.05


def test_models_are_apart(twin) -> None:
    assert set(pa.compute.unique(twin.results["model"]).to_pylist()) == set(KINDS)
    assert set(category(twin, "greedy")) >= {"mastectomy"}
