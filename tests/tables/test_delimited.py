"""CSV: ids stay as written, and every complaint has the line an editor shows."""

from __future__ import annotations

from pathlib import Path

import pytest

from cxrhf.errors import TableError
from cxrhf.tables.files import open_csv, read_table
from cxrhf.tables.predictions import read_predictions
from tests.refusals import refused


def opened(tmp_path: Path, content: str | bytes, name: str = "p.csv") -> Path:
    path = tmp_path / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def test_ids_stay_as_written(tmp_path: Path) -> None:
    path = opened(tmp_path, "id,patient,label,score\n0071,007,1,.5\n0072,7,0,1e-3\n")
    table = read_predictions(path)
    assert table["image_id"].to_pylist() == ["0071", "0072"]
    assert table["patient_id"].to_pylist() == ["007", "7"]
    assert table["prob"].to_pylist() == [0.5, 0.001]


@pytest.mark.parametrize(
    "content",
    [
        "\ufeffid,patient,label,score\na,p,1,0.5\nb,q,0,0.25\n",
        "id;patient;label;score\na;p;1;0.5\nb;q;0;0.25\n",
        "id;patient;label;score\na;p;1;0,5\nb;q;0;0,25\n",
        "id\tpatient\tlabel\tscore\na\tp\t1\t0.5\nb\tq\t0\t0.25\n",
        "\n\r\nid,patient,label,score\r\na,p,1,0.5\r\n\r\nb,q,0,0.25\r\n",
        '"id","patient","label","score"\n"a","p","1","0.5"\n" b ","q"," 0"," 0.25 "\n',
        'id,patient,label,score,report\na,p,1,0.5,"two\nlines, and a ""quote"""\nb,q,0,0.25,\n',
        'id,patient,label,score,size\na,p,1,0.5,5" tube\nb,q,0,0.25,\n',
        "id,patient,label,score\na,p,1,0.5\nb,q,0,0.25",
        "id , patient,Label, SCORE\na,p,True,0.5\nb,q,False,0.25\n",
        ",id,patient,label,score\n0,a,p,1.0,0.5\n1,b,q,0.0,0.25\n",
    ],
    ids=[
        "bom",
        "semicolon",
        "decimal comma",
        "tab",
        "blank lines",
        "quotes",
        "text",
        "inch",
        "no end",
        "header",
        "index",
    ],
)
def test_ways_to_write_the_same_table(tmp_path: Path, content: str) -> None:
    table = read_predictions(opened(tmp_path, content))
    assert table["image_id"].to_pylist() == ["a", "b"]
    assert table["patient_id"].to_pylist() == ["p", "q"]
    assert table["label"].to_pylist() == [1, 0]
    assert table["prob"].to_pylist() == [0.5, 0.25]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", ["empty"]),
        (b"\n \n", ["empty"]),
        (b"\xff\xfei\x00d\x00", ["UTF-16"]),
        (b"\x00\x01\x02,\x03\n", ["binary"]),
        (b"id,patient,label,score\na,p,1,.5\nb,q\n", ["line 3", "2", "4 cells"]),
        (b"id,patient,label,score\na,p,1,.5,9\n", ["line 2", "5", "4 cells"]),
        (b'id,patient,label,score\na,"p,1,.5\nb,q,0,.5\n', ["line 2", "quotation mark"]),
        (b'id,patient,label,score,note\na,p,1,.5,"open\nb,q,0,.5,x\n', ["line 2", "quotation mark"]),
        (b"id,patient,label,score\na,p,1,.5\n\xe9,q,0,.5\n", ["line 3", "UTF-8", "0xe9", "iconv"]),
        (b"\nid\xe9,patient,label,score\n", ["line 2", "UTF-8"]),
        (b"id,patient,label,score\n", ["no rows"]),
        (b"id,patient,label,score", ["no rows"]),
    ],
)
def test_broken_files(tmp_path: Path, content: bytes, words: list[str]) -> None:
    with refused(TableError, "p.csv", *words):
        read_predictions(opened(tmp_path, content))


def test_bad_bytes_in_an_unused_column_do_no_harm(tmp_path: Path) -> None:
    table = read_predictions(opened(tmp_path, b"id,patient,label,score,report\na,p,1,.5,\xe9\n"))
    assert table.num_rows == 1


def test_lines_are_counted_as_an_editor_does(tmp_path: Path) -> None:
    content = '\nid,patient,label,score,text\na,p,1,.5,"two\nlines"\n\nb,q,2,.5,\n'
    with refused(TableError, '"label"', "line 6", got="2"):
        read_predictions(opened(tmp_path, content))


@pytest.mark.parametrize("last", ["id", "sex"])
def test_a_name_that_swallowed_lines(tmp_path: Path, last: str) -> None:
    content = f'patient,label,score,{last}\np,1,.5,"a\nq,0,.5,b"\nr,0,.5,c\n'
    with refused(TableError, "line 2", f'"{last}"', "line break"):
        read_predictions(opened(tmp_path, content))


def test_only_needed_columns_are_parsed(tmp_path: Path) -> None:
    raw = open_csv(opened(tmp_path, "a,b,b\n1,x,\n2,nan,3\n"))
    assert raw.columns == ("a", "b", "b")
    number, word = raw.load({2: "number", 1: "text"})
    assert number.to_pylist() == [None, 3.0]
    assert word.to_pylist() == ["x", None]


def test_a_whole_table_without_schema(tmp_path: Path) -> None:
    assert read_table(opened(tmp_path, "a\tb\n1\tx\n", "t.tsv")).to_pylist() == [{"a": 1, "b": "x"}]
    with refused(TableError, "line 3"):
        read_table(opened(tmp_path, "a,b\n1,2\n3\n"))
