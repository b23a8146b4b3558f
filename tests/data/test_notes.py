"""Notes files of any shape: streamed into the same files whatever the blocks, with a quarantine that names the rest."""

from __future__ import annotations

import gzip

import polars as pl
import pyarrow as pa
import pytest

from cxrhf.data import notes as module
from cxrhf.data.notes import keep_linked, read_notes, stage_notes, write_notes
from cxrhf.errors import SourceError
from cxrhf.schema import NOTE
from tests.refusals import refused

HEAD = "note_id,subject_id,hadm_id,note_type,note_seq,charttime,storetime,text\n"
ADMISSIONS = pl.DataFrame(
    {
        "subject_id": ["1", "1", "2"],
        "hadm_id": ["11", "12", "21"],
        "dischtime": ["2150-01-02 10:00:00", "2151-01-01 00:00:00", None],
    }
).with_columns(pl.col("dischtime").str.to_datetime("%Y-%m-%d %H:%M:%S", time_unit="us"))
LATEST = pl.DataFrame({"patient_id": ["1"], "latest": ["2150-06-01 00:00:00"]}).with_columns(
    pl.col("latest").str.to_datetime("%Y-%m-%d %H:%M:%S", time_unit="us")
)


def written(folder, *rows):
    path = folder / "discharge.csv.gz"
    path.write_bytes(gzip.compress((HEAD + "".join(f"{row}\n" for row in rows)).encode(), mtime=0))
    return path


def test_what_is_kept_and_what_is_said(tmp_path):
    path = written(
        tmp_path,
        '1-DS-1,1,11,DS,1,2150-01-01 00:00:00,,"early, ""quoted""\nnote"',
        '1-DS-2,1,12,DS,2,2150-12-31 00:00:00,,"after the last image"',
        '1-DS-3,1,11,DS,3,,,"no chart time"',
        '1-DS-4,1,99,DS,4,2150-01-01 00:00:00,,"no such admission"',
        '1-DS-5,1,11,DS,5,2150-01-01 00:00:00,,"  "',
        "1-DS-6,1,11,DS,6,2150-01-01 00:00:00,,",
        '2-DS-1,2,21,DS,1,2150-01-01 00:00:00,,"discharge unknown"',
        '3-DS-1,3,31,DS,1,2150-01-01 00:00:00,,"a patient without images"',
    )
    staged = stage_notes(path, ADMISSIONS, LATEST, tmp_path / "staged")
    assert staged.index["note_id"].to_list() == ["1-DS-1"]
    (table,) = read_notes(tmp_path / "staged")
    assert table["text"].to_pylist() == ['early, "quoted"\nnote']
    assert str(table["available_at"][0]) == "2150-01-02 10:00:00"
    assert dict(staged.quarantine.select("id", "kind").rows()) == {
        "1-DS-3": "note without time", "1-DS-4": "note without time", "1-DS-5": "note without text",
        "1-DS-6": "note without text", "2-DS-1": "note without time", "3-DS-1": "note without time",
    }  # fmt: skip
    assert dict(staged.quarantine.select("id", "said").rows())["1-DS-4"] == "no dischtime"
    assert staged.seen.height == 5
    everything = stage_notes(path, ADMISSIONS, None, tmp_path / "all")
    assert everything.index["note_id"].to_list() == ["1-DS-1", "1-DS-2"]


def test_equal_texts_have_equal_hashes(tmp_path):
    rows = [f'1-DS-{i},1,11,DS,{i},2150-01-01 00:00:00,,"{text}"' for i, text in enumerate(["same", "same", "other"])]
    hashes = stage_notes(written(tmp_path, *rows), ADMISSIONS, None, tmp_path / "s").index["text_hash"].to_list()
    assert hashes[0] == hashes[1] != hashes[2]


def test_an_id_that_stands_twice(tmp_path):
    rows = [f'1-DS-1,1,11,DS,1,2150-01-01 00:00:00,,"{text}"' for text in "ab"]
    with refused(SourceError, "more than once", "1 note id"):
        stage_notes(written(tmp_path, *rows), ADMISSIONS, None, tmp_path / "s")


def tables(*sizes):
    at = 0
    for size in sizes:
        ids = [f"n{i}" for i in range(at, at + size)]
        at += size
        columns = {"note_id": ids, "patient_id": ["p"] * size, "available_at": pa.nulls(size, pa.timestamp("us")),
                   "kind": ["d"] * size, "text": [f"text {i}" for i in ids]}  # fmt: skip
        yield pa.table(columns, schema=NOTE)


@pytest.mark.parametrize("sizes", [(25,), (1, 2, 3, 19), (7, 7, 7, 4), (0, 25, 0)])
def test_files_do_not_depend_on_the_blocks(tmp_path, monkeypatch, sizes):
    monkeypatch.setattr(module, "ROW_GROUP", 4)
    monkeypatch.setattr(module, "NOTES_PER_FILE", 8)
    assert write_notes(tables(25), tmp_path / "one") == 25
    assert write_notes(tables(*sizes), tmp_path / "other") == 25
    names = sorted(path.name for path in (tmp_path / "one").iterdir())
    assert names == [f"notes-0000{i}.parquet" for i in range(4)]
    for name in names:
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "other" / name).read_bytes()


def test_only_linked_notes_stay(tmp_path):
    write_notes(tables(25), tmp_path / "staged")
    assert keep_linked(tmp_path / "staged", tmp_path / "some", pl.Series(["n3", "n3", "n20"])) == 2
    assert [each for table in read_notes(tmp_path / "some") for each in table["note_id"].to_pylist()] == ["n3", "n20"]
    everything = pl.Series([f"n{i}" for i in range(25)])
    for _ in range(2):  # a second try after a kill
        assert keep_linked(tmp_path / "staged", tmp_path / "all", everything) == 25
    assert (tmp_path / "all" / "notes-00000.parquet").read_bytes() == (
        tmp_path / "staged" / "notes-00000.parquet"
    ).read_bytes()
    assert keep_linked(tmp_path / "staged", tmp_path / "none", pl.Series([], dtype=pl.String)) == 0
