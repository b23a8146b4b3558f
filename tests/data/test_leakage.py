"""The guard finds each planted leak, counts it, writes the ids to a local file, and is silent without one."""

from __future__ import annotations

import pickle
from datetime import datetime, timedelta

import polars as pl
import pyarrow as pa
import pytest

from cxrhf.data.leakage import check_leakage, own_report_pairs
from cxrhf.errors import LeakageError
from cxrhf.schema import NOTE

NOON = datetime(2150, 1, 1, 12)
REPORT = "There is a moderate right pleural effusion with adjacent atelectasis and a small apical line."


def images(**changes):
    frame = {
        "image_id": ["i1", "i2", "i3"],
        "patient_id": ["a", "a", "b"],
        "split": ["train", "train", "test"],
        "study_time": [NOON, NOON + timedelta(days=9), NOON],
        "prior_note_ids": [["n1"], ["n1", "n2"], ["n3"]],
        "findings": [REPORT, None, None],
        "impression": [None, None, None],
    }
    types = {"impression": pl.String, "findings": pl.String, "study_time": pl.Datetime("us")}
    return pl.DataFrame(frame | changes, schema_overrides=types)


def notes(texts=("old news", "later news", "other news"), hours=(-5, 24, -2), owners=("a", "a", "b")):
    known = [NOON + timedelta(hours=hour) for hour in hours]
    table = pa.table(
        {
            "note_id": ["n1", "n2", "n3"],
            "patient_id": list(owners),
            "available_at": pa.array(known, pa.timestamp("us")),
            "kind": ["discharge"] * 3,
            "text": list(texts),
        },
        schema=NOTE,
    )
    return pl.DataFrame(table), [table]


def leak(frame, index, texts, tmp_path):
    with pytest.raises(LeakageError) as caught:
        check_leakage(frame, index, texts, tmp_path / "leakage.csv")
    assert "i1" not in str(caught.value)  # ids stay in the file
    return caught.value, pl.read_csv(tmp_path / "leakage.csv")


def test_nothing_leaks(tmp_path):
    index, texts = notes()
    (tmp_path / "leakage.csv").write_text("of an earlier try")
    assert check_leakage(images(), index, texts, tmp_path / "leakage.csv") == {"patients": 2, "pairs": 4, "reports": 1}
    bare = images(findings=[None] * 3)  # nothing to look for: nothing is said of it
    assert check_leakage(bare, *notes(), tmp_path / "leakage.csv") == {"patients": 2, "pairs": 4}
    assert not (tmp_path / "leakage.csv").exists()


@pytest.mark.parametrize("hour", [0, 3])
def test_a_note_at_or_after_its_image(tmp_path, hour):
    index, texts = notes(hours=(hour, 24, -2))
    error, ids = leak(images(), index, texts, tmp_path)
    assert error.counts == {"time": 1}
    assert ids.select("image_id", "note_id").rows() == [("i1", "n1")]
    assert pickle.loads(pickle.dumps(error)).counts == {"time": 1}


def test_an_image_without_time_has_no_prior_note(tmp_path):
    index, texts = notes()
    error, _ = leak(images(study_time=[None, NOON + timedelta(days=9), NOON]), index, texts, tmp_path)
    assert error.counts == {"time": 1}


def test_a_foreign_or_unknown_note(tmp_path):
    index, texts = notes(owners=("a", "b", "b"))
    assert leak(images(), index, texts, tmp_path)[0].counts == {"patient": 1}
    unknown = images(prior_note_ids=[["n1"], ["n9"], ["n3"]])
    assert leak(unknown, notes()[0], notes()[1], tmp_path)[0].counts == {"patient": 1}


def test_a_patient_in_two_splits(tmp_path):
    error, ids = leak(images(split=["train", "test", "test"]), *notes(), tmp_path)
    assert error.counts == {"split": 1}
    assert ids.get_column("patient_id").to_list() == ["a"]
    error, _ = leak(images(split=["train", "test", "test"]), None, None, tmp_path)
    assert error.counts == {"split": 1}


def test_a_note_with_the_images_own_report(tmp_path):
    words = REPORT.split()
    pasted = f"HOSPITAL COURSE\n  {' '.join(words[:6]).upper()}\n {' '.join(words[6:])} Improved."
    index, texts = notes(texts=(pasted, "x", "y"))
    error, ids = leak(images(), index, texts, tmp_path)
    assert error.counts == {"report": 1}
    assert ids.select("image_id", "note_id").rows() == [("i1", "n1")]


def test_a_quoted_earlier_report_is_no_leak():
    _, texts = notes(texts=("x", f"CXR: {REPORT}", "y"))
    both = images(findings=[REPORT, REPORT, None])  # i1 said it before n2 was written; i2 repeats the words
    assert own_report_pairs(both, texts).height == 0
    only = images(findings=[None, REPORT, None])
    assert own_report_pairs(only, texts).rows() == [("i2", "n2", "a")]


def test_short_sections_are_everybodys_words():
    _, texts = notes(texts=("no acute process", "x", "y"))
    assert own_report_pairs(images(findings=["No acute process", None, None]), texts).height == 0
    own = images().with_columns(own_text=pl.Series(["No acute process", None, None]))  # written about this very image
    assert own_report_pairs(own, texts).rows() == [("i1", "n1", "a")]
