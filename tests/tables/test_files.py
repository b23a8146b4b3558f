"""What is written is read back; broken files are named, never half read."""

from __future__ import annotations

import gzip
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cxrhf import schema
from cxrhf.errors import TableError
from cxrhf.schema import PREDICTION, RESULT
from cxrhf.tables.checks import check, table_of
from cxrhf.tables.files import ENDINGS, file_format, read_table, write_atomically, write_table
from tests.refusals import refused


def some_predictions(n: int = 200) -> pa.Table:
    rng = np.random.default_rng(0)
    some = lambda values: [None if rng.random() < 0.2 else each for each in values]  # noqa: E731
    return check(
        pa.table(
            {
                "image_id": [f'im,"{i}" é\n' if i == 3 else f"{i:05d}" for i in range(n)],
                "study_id": some([f"s{i}" for i in range(n)]),
                "patient_id": [f"{i // 3:04d}" for i in range(n)],
                "model": ["m"] * n,
                "seed": some(list(range(n))),
                "finding": ["edema", "mass"] * (n // 2),
                "label": some([int(each) for each in rng.integers(0, 2, n)]),
                "prob": some([float(each) for each in rng.random(n) ** 9]),
                "pretest": rng.random(n) * 1e-300,
                "mention": some([bool(each) for each in rng.integers(0, 2, n)]),
                "age": some([float(each) for each in rng.integers(0, 90, n)]),
                "sex": some(["", "M"] * (n // 2)),
            }
        ),
        PREDICTION,
    )


@pytest.mark.parametrize("ending", sorted(ENDINGS))
def test_read_back_equal(tmp_path: Path, ending: str) -> None:
    table = some_predictions()
    path = write_table(table, tmp_path / "deep" / f"predictions{ending}")
    again = read_table(path, PREDICTION)
    assert again.combine_chunks().equals(table.combine_chunks())
    assert [each.name for each in path.parent.iterdir()] == [path.name]  # no draft left


@pytest.mark.parametrize("ending", [".csv.gz", ".jsonl.gz"])
def test_equal_tables_give_equal_files(tmp_path: Path, ending: str) -> None:
    first, second = (write_table(some_predictions(), tmp_path / f"{name}{ending}") for name in "ab")
    assert first.read_bytes() == second.read_bytes()


def test_nan_in_results(tmp_path: Path) -> None:
    rows = [{"audit": "a", "metric": "m", "slice": "all", "value": value} for value in (float("nan"), None, 0.25)]
    table = table_of(rows, RESULT)
    for ending in (".parquet", ".csv"):
        values = read_table(write_table(table, tmp_path / f"results{ending}"), RESULT)["value"].to_pylist()
        assert np.isnan(values[0])
        assert values[1:] == [None, 0.25]
    lines = write_table(table, tmp_path / "results.jsonl")
    assert "NaN" not in lines.read_text()  # not JSON
    assert read_table(lines, RESULT)["value"].to_pylist() == [None, None, 0.25]


def test_nested_tables(tmp_path: Path) -> None:
    table = table_of([{"image_id": "a", "model": "m", "vector": [0.5, 1.5]}], schema.EMBEDDING)
    for ending in (".parquet", ".jsonl"):
        assert read_table(write_table(table, tmp_path / f"e{ending}"), schema.EMBEDDING).equals(table)
    with refused(TableError, '"vector"', fix=".parquet"):
        write_table(table, tmp_path / "e.csv")
    images = check(
        pa.table({"image": [{"bytes": b"1", "path": "p"}], "image_id": ["a"], "patient_id": ["p"]}), schema.IMAGE
    )
    assert read_table(write_table(images, tmp_path / "i.parquet"), schema.IMAGE).equals(images)
    with refused(TableError, "bytes", fix=".parquet"):
        write_table(images, tmp_path / "i.jsonl")
    assert not (tmp_path / "i.jsonl").exists()


def test_a_failed_write_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "t.txt"
    path.write_text("old")

    def fail(file: object) -> None:
        file.write(b"half")  # type: ignore[attr-defined]
        raise RuntimeError("disk")

    with pytest.raises(RuntimeError):
        write_atomically(path, fail)
    assert path.read_text() == "old"
    assert len(list(tmp_path.iterdir())) == 1


def test_unknown_endings() -> None:
    for name, hint in (("a.xlsx", "CSV"), ("a.json", ".jsonl"), ("a", "without an ending"), ("a.gz", ".csv.gz")):
        with refused(TableError, name, hint):
            file_format(Path(name))


def test_not_there_and_not_a_file(tmp_path: Path) -> None:
    write_table(some_predictions(), tmp_path / "predictions.csv")
    with refused(TableError, "does not exist", fix="'predictions.csv'"):
        read_table(tmp_path / "prediction.csv")
    with refused(TableError, str(tmp_path), got="a folder"):
        read_table(tmp_path)


@pytest.mark.parametrize("cut", [-1, -9, 30])
def test_cut_gzip(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "p.csv.gz"
    path.write_bytes(gzip.compress(b"id,label,score\n" + b"1,0,.5\n" * 100)[:cut])
    with refused(TableError, "p.csv.gz", "damaged"):
        read_table(path)


def test_damaged_gzip_and_parquet(tmp_path: Path) -> None:
    (tmp_path / "a.csv.gz").write_bytes(b"id,label\n1,2\n")
    with refused(TableError, "a.csv.gz is text, not gzipped", fix=f"`mv {tmp_path}/a.csv.gz {tmp_path}/a.csv`"):
        read_table(tmp_path / "a.csv.gz")
    for content in (b"", b"PAR1", b"not parquet at all"):
        (tmp_path / "a.parquet").write_bytes(content)
        with refused(TableError, "a.parquet", "Parquet"):
            read_table(tmp_path / "a.parquet")


def test_parquet_with_text_that_is_not_utf8_is_refused_where_it_is_read(tmp_path: Path) -> None:
    """It passed, and ended in a UnicodeDecodeError wherever the text was first used."""
    ends, letters = (pa.py_buffer(each) for each in (np.array([0, 1, 3], np.int32).tobytes(), b"a\xff\xfe"))
    pq.write_table(
        pa.table({"text": pa.Array.from_buffers(pa.string(), 2, [None, ends, letters])}), tmp_path / "a.parquet"
    )
    with refused(TableError, "a.parquet", "UTF8"):
        read_table(tmp_path / "a.parquet")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "empty"),
        (b"  \n\n", "empty"),
        (b'{"a": 1}\n{"a": \n', "line 2"),
        (b'{"a": 1}\n{"a": "x"}\n', "line 2"),
        (b'[{"a": 1}]', "line 1"),
        (b'{"a": "\xe9"}\n', "UTF-8"),
        (b'{"a": 1, "a": 2}\n', "twice"),
    ],
)
def test_bad_json_lines(tmp_path: Path, content: bytes, words: str) -> None:
    path = tmp_path / "p.jsonl"
    path.write_bytes(content)
    with refused(TableError, "p.jsonl", words):
        read_table(path)


def test_dates_in_json_lines_stay_text(tmp_path: Path) -> None:
    path = tmp_path / "p.jsonl"
    path.write_text('{"id": "2020-01-01", "n": 1}\n{"id": "2020-01-02", "n": 2}\n')
    assert read_table(path)["id"].to_pylist() == ["2020-01-01", "2020-01-02"]


_READ = """
import sys
from cxrhf.errors import TableError
from cxrhf.tables.predictions import load_predictions
try:
    load_predictions(sys.argv[1])
except TableError as error:
    print(error)
with open("/proc/self/status") as status:  # getrusage would count what the parent held when it was forked
    print(next(int(line.split()[1]) // 1024 for line in status if line.startswith("VmHWM")))
"""


def test_a_gzip_bomb_is_refused_in_little_memory(tmp_path: Path) -> None:
    member = gzip.compress(b"0" * (64 << 20), 9)
    path = tmp_path / "bomb.csv.gz"
    path.write_bytes(gzip.compress(b"image_id,label,prob\n") + 32 * member)  # 2 GB in 2 MB
    done = subprocess.run([sys.executable, "-c", _READ, path], capture_output=True, text=True, check=True)
    said, peak = done.stdout.strip().rsplit("\n", 1)
    assert "bomb.csv.gz" in said
    assert "gunzip -k" in said
    assert int(peak) < 300


def test_a_gzip_file_that_is_merely_well_packed_is_read(tmp_path: Path) -> None:
    path = tmp_path / "p.csv.gz"
    path.write_bytes(gzip.compress(b"image_id,label,prob\n" + b"".join(b"i%d,1,0.5\n" % at for at in range(50_000)), 9))
    assert read_table(path).num_rows == 50_000
