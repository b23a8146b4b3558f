"""The prior-note rule against a brute-force twin, with equal times, missing times and many admissions."""

from __future__ import annotations

from datetime import datetime, timedelta

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cxrhf.data.notes import add_available_at, link, remove_pairs

START = datetime(2150, 1, 1)
TIMES = st.one_of(st.none(), st.integers(0, 6).map(lambda hours: START + timedelta(hours=hours)))
NOTES = st.lists(st.tuples(st.sampled_from("abc"), TIMES, TIMES, TIMES, st.integers(0, 3)), max_size=25)
IMAGES = st.lists(st.tuples(st.sampled_from("abcd"), TIMES), max_size=20)
SCHEMA = {
    "note_id": pl.String,
    "patient_id": pl.String,
    "dischtime": pl.Datetime("us"),
    "charttime": pl.Datetime("us"),
    "storetime": pl.Datetime("us"),
    "text_hash": pl.String,
}


def brute(images, notes, columns):
    """The rule word by word: for each image, look at each note of the patient."""
    lists = []
    for patient, study_time in images:
        found = []
        for at, (owner, *when, text) in enumerate(notes):
            stamps = [when[("dischtime", "charttime", "storetime").index(name)] for name in columns]
            if owner != patient or study_time is None or None in stamps:
                continue
            if all(each < study_time for each in stamps):
                found.append((max(stamps), f"n{at:02d}", text))
        seen, ids = set(), []
        for _, name, text in sorted(found):
            if text not in seen:
                seen.add(text)
                ids.append(name)
        lists.append(ids)
    return lists


def frames(images, notes):
    rows = [(f"n{at:02d}", owner, *times, str(text)) for at, (owner, *times, text) in enumerate(notes)]
    return (
        pl.DataFrame(images, schema={"patient_id": pl.String, "study_time": pl.Datetime("us")}, orient="row"),
        pl.DataFrame(rows, schema=SCHEMA, orient="row"),
    )


@settings(max_examples=150, deadline=None)
@given(images=IMAGES, notes=NOTES, stored=st.booleans(), order=st.randoms(use_true_random=False))
def test_the_rule_is_the_brute_force_rule(images, notes, stored, order):
    columns = ("dischtime", "charttime", "storetime") if stored else ("dischtime", "charttime")
    pictures, texts = frames(images, notes)
    shuffled = texts[order.sample(range(texts.height), texts.height)] if texts.height else texts
    got = link(pictures, add_available_at(shuffled, columns))
    assert got.to_list() == brute(images, notes, columns)
    assert got.dtype == pl.List(pl.String)


def test_equal_times_are_not_prior():
    pictures, texts = frames([("a", START)], [("a", START, START - timedelta(hours=1), None, 0)])
    assert link(pictures, add_available_at(texts)).to_list() == [[]]
    later = pictures.with_columns(study_time=pl.lit(START + timedelta(microseconds=1)))
    assert link(later, add_available_at(texts)).to_list() == [["n00"]]


def moments(rng, n):
    return [START + timedelta(minutes=int(each)) for each in rng.integers(0, 500_000, n)]


def test_many_admissions_at_once():
    rng = np.random.default_rng(0)
    n = 40_000
    owners = rng.integers(0, 2_000, n)
    times = moments(rng, n)
    texts = pl.DataFrame(
        {"note_id": [f"n{i}" for i in range(n)], "patient_id": owners.astype(str), "available_at": times}
    )
    pictures = pl.DataFrame(
        {
            "patient_id": rng.integers(0, 2_100, 5_000).astype(str),
            "study_time": moments(rng, 5_000),
        }
    )
    got = link(pictures, texts)
    joined = (
        pictures.with_row_index("row")
        .join(texts, on="patient_id")
        .filter(pl.col("available_at") < pl.col("study_time"))
    )
    want = dict(joined.sort("row", "available_at", "note_id").group_by("row").agg("note_id").rows())
    assert got.to_list() == [sorted_ids if (sorted_ids := want.get(row)) else [] for row in range(5_000)]


def test_pairs_can_be_taken_out():
    images = pl.DataFrame(
        {"image_id": ["i", "j", "k"], "prior_note_ids": [["a", "b", "c"], ["a"], []]},
        schema_overrides={"prior_note_ids": pl.List(pl.String)},
    )
    pairs = pl.DataFrame({"image_id": ["i", "j"], "note_id": ["b", "a"]})
    out = remove_pairs(images, pairs)
    assert out.get_column("prior_note_ids").to_list() == [["a", "c"], [], []]
    assert out.get_column("image_id").to_list() == ["i", "j", "k"]
    assert remove_pairs(images, pairs.clear()).equals(images)


@pytest.mark.parametrize("rows", [0, 3])
def test_no_notes_at_all(rows):
    pictures, texts = frames([("a", START)] * rows, [])
    assert link(pictures, add_available_at(texts)).to_list() == [[]] * rows
