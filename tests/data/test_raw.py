"""Published CSV files: read whole, or an error that names file and line; never a shorter table."""

from __future__ import annotations

import csv
import gzip
import io
import itertools
import subprocess
import sys
from datetime import datetime

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cxrhf.data.raw import header, is_closed, new_watch, numbers, read_csv, record_count, stream_csv, times, watch_block
from cxrhf.errors import SourceError
from tests.refusals import refused

HEAD = "note_id,subject_id,text\n"


def written(folder, name, text):
    path = folder / name
    data = text if isinstance(text, bytes) else text.encode()
    path.write_bytes(gzip.compress(data, mtime=0) if name.endswith(".gz") and isinstance(text, str) else data)
    return path


@pytest.mark.parametrize("name", ["a.csv", "a.csv.gz"])
def test_quotes_newlines_and_empty_cells(tmp_path, name):
    path = written(tmp_path, name, HEAD + '1,2,"a\nb ""q"", c"\n2,2,\n3,,"x"\n')
    got = read_csv(path, ["note_id", "text"], optional=["storetime", "subject_id"])
    assert got.rows() == [("1", 'a\nb "q", c', None, "2"), ("2", None, None, "2"), ("3", "x", None, None)]


CELLS = st.text(st.characters(codec="utf-8", exclude_characters="\r\0"), max_size=12)


@settings(max_examples=150, deadline=None)
@given(rows=st.lists(st.tuples(CELLS, CELLS), min_size=1, max_size=8))
def test_what_python_writes_is_read_back(rows, tmp_path_factory):
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([("a", "b"), *[("k" + a, b) for a, b in rows]])
    path = written(tmp_path_factory.mktemp("csv"), "t.csv", text.getvalue())
    got = read_csv(path, ["a", "b"])
    assert got.rows() == [("k" + a, b or None) for a, b in rows]


@pytest.mark.parametrize(
    ("text", "facts"),
    [
        (HEAD + '1,2,"a\n2,2,"b"\n3,4,"x"\n', ["line 2: a quotation mark"]),
        (HEAD + '1,2,"a"\n2,2,"b\n3,4,x\n', ["line 3: a quotation mark", "end of the file"]),
        (HEAD + '1,2,a"b\n', ["line 2: a quotation mark"]),
        (HEAD + "1,2,a\n1,2,3,4\n", ["line 3", "4", "3 cells"]),
        (HEAD + "1,2,a\n1,2\n", ["line 3", "2", "3 cells"]),
        ("note_id,subject_id,txt\n1,2,a\n", ['a column "text"', "columns note_id, subject_id, txt"]),
        ("note_id,text,text\n1,2,a\n", ['"text"', "2 times"]),
        ("", ["is empty"]),
        ("\n\n", ["is empty"]),
    ],
)
def test_damage_is_said(tmp_path, text, facts):
    for name in ("t.csv", "t.csv.gz"):
        path = written(tmp_path, name, text)
        with refused(SourceError, name, *facts):
            read_csv(path, ["note_id", "text"])


def test_renamed_column_gets_a_hint(tmp_path):
    with refused(SourceError, '"charttime"', fix="'chart_time'"):
        read_csv(written(tmp_path, "t.csv", "note_id,chart_time\n1,2\n"), ["charttime"])


def test_a_cut_archive_is_never_a_shorter_table(tmp_path):
    rows = HEAD + "".join(f'{i},{i % 7},"{"word " * 50}{i}"\n' for i in range(30_000))
    whole = gzip.compress(rows.encode(), 1, mtime=0)
    for share in (0.1, 0.5, 0.9, 0.999):
        path = written(tmp_path, "t.csv.gz", whole[: int(len(whole) * share)])
        with refused(SourceError, "t.csv.gz", "damaged"):
            read_csv(path, ["note_id", "text"])
    assert read_csv(written(tmp_path, "t.csv.gz", whole), ["note_id"]).height == 30_000
    with refused(SourceError, "t.csv.gz", "damaged"):
        header(written(tmp_path, "t.csv.gz", b"no archive at all"))


def test_not_utf8(tmp_path):
    with refused(SourceError, "t.csv", "UTF-8"):
        read_csv(written(tmp_path, "t.csv", HEAD.encode() + b"1,2,caf\xe9\n"), ["text"])


def test_blank_lines_and_a_missing_last_line_end(tmp_path):
    path = written(tmp_path, "t.csv", HEAD + "1,2,a\n\n2,2,b")
    assert read_csv(path, ["text"]).get_column("text").to_list() == ["a", "b"]
    assert read_csv(written(tmp_path, "h.csv", HEAD), ["text"]).height == 0


def test_byte_order_mark_and_carriage_returns(tmp_path):
    path = written(tmp_path, "t.csv", b"\xef\xbb\xbfnote_id,text\r\n1,a\r\n2,b\r\n")
    assert read_csv(path, ["note_id", "text"]).rows() == [("1", "a"), ("2", "b")]


def test_a_byte_order_mark_before_a_quoted_header(tmp_path):
    path = written(tmp_path, "t.csv", b'\xef\xbb\xbf"note_id","text"\n"1","a"\n')
    assert read_csv(path, ["note_id", "text"]).rows() == [("1", "a")]


def test_the_line_that_is_not_utf8(tmp_path):
    rows = b"".join(b"%d,2,%s\n" % (i, b"caf\xe9" if i == 700 else b"x" * 50) for i in range(9000))
    with refused(SourceError, "line 702", "UTF-8"):
        read_csv(written(tmp_path, "t.csv", HEAD.encode() + rows), ["text"])


@pytest.mark.slow
def test_a_reader_that_stops_early_ends_quietly(tmp_path):
    """Arrow's threads must not be left behind: they abort the process at its end."""
    path = written(tmp_path, "t.csv.gz", HEAD + "".join(f'{i},1,"{"x" * 3000}"\n' for i in range(8_000)))
    code = (
        "import sys; from pathlib import Path; from cxrhf.data.raw import stream_csv, check_start\n"
        "path = Path(sys.argv[1]); check_start(path); next(iter(stream_csv(path, ['text']))); sys.exit(7)"
    )
    words = [sys.executable, "-c", code, str(path)]
    # At once: on busy cores a thread is left behind more often.
    children = [subprocess.Popen(words, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    for child in children:
        said = child.communicate()[1]
        assert child.returncode == 7, said


def test_streams_in_blocks(tmp_path):
    body = "".join(f"{i},1,{'x' * 2000}\n" for i in range(12_000))
    path = written(tmp_path, "t.csv.gz", HEAD + body)
    batches = list(stream_csv(path, ["note_id", "text"]))
    assert len(batches) > 1
    assert sum(batch.num_rows for batch in batches) == 12_000


def test_numbers_and_times(tmp_path):
    frame = pl.DataFrame(
        {"a": ["1.0", "-1.0", None], "b": ["1", "x", "2"], "t": ["2180-05-06 22:23:00", "2180-05-06", "?"]}
    )
    path = tmp_path / "t.csv"
    assert numbers(frame, "a", pl.Int8, path).to_list() == [1, -1, None]
    with refused(SourceError, 't.csv, column "b", row 2', got="x"):
        numbers(frame, "b", pl.Int8, path)
    assert frame.select(times("t")).to_series().to_list() == [datetime(2180, 5, 6, 22, 23), datetime(2180, 5, 6), None]


@settings(max_examples=150, deadline=None)
@given(
    text=st.text(st.sampled_from('ab",\n'), max_size=60),
    cuts=st.lists(st.integers(0, 60), max_size=6),
)
def test_quotation_marks_against_pythons_strict_reader(text, cuts):
    """The watch says what csv's strict reader says, however the bytes are cut into blocks, records counted alike."""
    data = text.encode()
    edges = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    watch = new_watch()
    good = all(watch_block(data[a:b], watch) for a, b in itertools.pairwise(edges) if b > a) and is_closed(watch)
    try:
        rows = [row for row in csv.reader(io.StringIO(text, newline=""), strict=True) if row]
    except csv.Error:
        assert not good
        return
    if good:  # we refuse a mark inside a cell without marks, which csv lets pass
        assert record_count(watch) == len(rows)
