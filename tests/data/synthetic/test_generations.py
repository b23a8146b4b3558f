"""Words of simulated report writers move as planted, and only those."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from cxrhf import metrics
from cxrhf.errors import ConfigError
from cxrhf.schema import GENERATION
from cxrhf.tables.checks import check
from cxrhf.twin.generations import EDITS, _edited, generation_truth, generations
from cxrhf.twin.models import default_ids
from cxrhf.twin.people import people
from cxrhf.twin.texts import report_sections
from tests.refusals import refused


def words_of(table):
    columns = (table.column(name).to_pylist() for name in ("reference", "generated", "sex", "patient_id"))
    found = metrics.cad_texts(*columns)
    return dict(zip(found.words, found.category.tolist(), strict=True)), found


@pytest.fixture(scope="module")
def writers(crowd):
    some = default_ids(crowd).filter(pl.col("image") < 46_000)
    reports = report_sections(crowd)
    return {
        kind: generations(crowd, reports, kind=kind, ids=some, seed=2) for kind in ("faithful", "collapsed", "planted")
    }


def test_generations_keep_to_the_schema(crowd, writers):
    for kind, table in writers.items():
        check(table, GENERATION)
        assert table.column("model").unique().to_pylist() == [kind]
        assert len(set(table.column("patient_id").to_pylist())) == table.num_rows > 5000
        assert all(text.strip() for text in table.column("generated").to_pylist())
    with refused(ConfigError, got="faithfull", fix="'faithful'"):
        generations(crowd, kind="faithfull")
    small = people(30, seed=4)
    every = generations(small, one_per_patient=False)
    assert every.num_rows > len(set(every.column("patient_id").to_pylist()))
    assert every.equals(generations(small, one_per_patient=False))


def test_no_planted_report_is_empty():
    """Left with no sentence of its own, a report gets the references' most frequent other one."""
    texts = ["No pneumothorax."] * 60 + ["Heart size is normal. No effusion."] * 2
    written = _edited(texts, ["F"] * 62, np.random.default_rng(0))
    assert all(written)
    assert written.count("Heart size is normal.") > 20
    assert all(_edited(["No pneumothorax."] * 30, ["F"] * 30, np.random.default_rng(0)))


def test_planted_words_are_found(writers):
    category, found = words_of(writers["planted"])
    at = {word: place for place, word in enumerate(found.words)}
    for word, true in generation_truth("planted").items():
        if true["category"] == "new":  # a sample's reference may have a little association by chance
            sign = 1 if word == "effusion" else -1
            assert sign * found.z_disp[at[word]] > 5
            assert category[word] in ("new", "amplified", "flip")
        else:
            assert category[word] == true["category"], word
    known = {*EDITS, *(word for edit in EDITS.values() for word in edit.moves_with)}
    moved = {word for word, each in category.items() if each not in ("stable", "preserved")}
    assert moved <= known


def test_faithful_words_are_left_alone(writers):
    category, _ = words_of(writers["faithful"])
    assert set(category.values()) <= {"preserved", "stable"}
    assert category["mastectomy"] == category["breast"] == "preserved"
    assert writers["faithful"].column("generated") != writers["faithful"].column("reference")


def test_collapsed_words_are_omitted(writers):
    category, _ = words_of(writers["collapsed"])
    for word, true in generation_truth("collapsed").items():
        assert category[word] == true["category"] == "omitted"
