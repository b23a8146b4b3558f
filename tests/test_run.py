"""A run folder: what it holds, what run.json says and keeps to itself, and when it is left alone."""

from __future__ import annotations

import getpass
import hashlib
import json
import socket
from pathlib import Path

import pyarrow as pa
import pytest

from cxrhf.errors import RunError, TableError
from cxrhf.run import Input, fingerprint, fingerprint_settings, open_run, public_path, read_run
from cxrhf.schema import RESULT
from cxrhf.tables.checks import table_of
from tests.refusals import refused

ONE, OTHER = Input("one.csv", "1" * 64, 10), Input("other.csv", "2" * 64, 10)
RESULTS = table_of([{"audit": "overview", "metric": "auroc", "slice": "all", "value": 0.5}], RESULT)


def opened(path: Path, *inputs: Input, overwrite: bool = False) -> object:
    return open_run(path, verb="audit", config={"seed": 3}, inputs=inputs, overwrite=overwrite)


def test_a_run_from_start_to_end(tmp_path: Path) -> None:
    run = open_run(tmp_path / "deep" / "run", verb="audit", config={"seed": 3, "level": 0.9}, inputs=[ONE])
    begun = json.loads((run.path / "run.json").read_text())
    assert begun["finished"] is None
    run.add("results", RESULTS)
    assert run.table("results").equals(RESULTS)
    run.finish(reading=["a line"])
    record = json.loads((run.path / "run.json").read_text())
    assert record["inputs"] == [{"name": "one.csv", "sha256": "1" * 64, "size": 10}]
    assert record["config"] == {"seed": 3, "level": 0.9}
    assert record["seed"] == 3
    assert record["tables"] == {"results": 1}
    assert record["reading"] == ["a line"]
    assert record["started"] <= record["finished"]
    assert record["finished"].endswith("+00:00")
    for name in ("cxrhf", "numpy", "pyarrow"):
        assert record["versions"][name]
    assert "commit" in record
    assert record["python"].startswith("3.")
    assert read_run(run.path).record == record
    assert sorted(each.name for each in run.path.iterdir()) == ["results.parquet", "run.json"]


def test_no_names_and_no_homes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "home" / "ada_lovelace"
    work = home / "work"
    work.mkdir(parents=True)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("USER", "ada_lovelace")
    monkeypatch.chdir(work)
    (work / "data").mkdir()
    (work / "data" / "p.csv").write_text("x")
    (home / "q.csv").write_text("y")
    config = {
        "predictions": [str(work / "data" / "p.csv"), "~/q.csv", "../q.csv", "data/p.csv"],
        "out": str(home / "runs" / "r"),
        "patient": "PatientID",
    }
    inputs = [fingerprint(work / "data" / "p.csv"), fingerprint(home / "q.csv")]
    run = open_run("r", verb="audit", config=config, inputs=inputs)
    text = (run.path / "run.json").read_text()
    record = json.loads(text)
    assert record["config"]["predictions"] == ["data/p.csv", "q.csv", "q.csv", "data/p.csv"]
    assert record["config"]["out"] == "r"
    assert [each["name"] for each in record["inputs"]] == ["data/p.csv", "q.csv"]
    for secret in (str(home), "ada_lovelace", socket.gethostname(), str(tmp_path)):
        assert secret not in text
    assert f'"{getpass.getuser()}"' not in text
    monkeypatch.chdir(home.parent)  # a path below the working folder may still name its owner
    assert public_path("ada_lovelace/data/p.csv") == "p.csv"


def test_fingerprint(tmp_path: Path) -> None:
    file = tmp_path / "x.bin"
    file.write_bytes(b"abc" * 1_000_000)
    found = fingerprint(file)
    assert found == Input("x.bin", hashlib.sha256(b"abc" * 1_000_000).hexdigest(), 3_000_000)
    with pytest.raises(RunError, match="cannot be read"):
        fingerprint(tmp_path / "nothing")
    assert fingerprint_settings("demo", n=1, seed=0) == fingerprint_settings("demo", seed=0, n=1)
    assert fingerprint_settings("demo", n=1).sha256 != fingerprint_settings("demo", n=2).sha256


def test_the_same_inputs_may_run_again(tmp_path: Path) -> None:
    opened(tmp_path / "r", ONE).add("results", RESULTS)  # type: ignore[attr-defined]
    again = opened(tmp_path / "r", ONE)
    assert again.table("results").num_rows == 1  # type: ignore[attr-defined]


def test_other_inputs_are_refused_unless_said(tmp_path: Path) -> None:
    folder = tmp_path / "r"
    run = opened(folder, ONE)
    run.add("results", RESULTS)  # type: ignore[attr-defined]
    run.finish()  # type: ignore[attr-defined]
    (folder / "mine.txt").write_text("keep")
    (folder / "report.html").write_text("old")
    for inputs in ([OTHER], [ONE, OTHER], []):
        with refused(RunError, str(folder), got="one.csv", fix="--overwrite"):
            opened(folder, *inputs)
    assert (folder / "results.parquet").exists()
    opened(folder, OTHER, overwrite=True)
    assert sorted(each.name for each in folder.iterdir()) == ["mine.txt", "run.json"]


def test_a_folder_that_is_no_run_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("x")
    with pytest.raises(RunError, match="not empty and is not a run folder"):
        opened(tmp_path, ONE)
    opened(tmp_path, ONE, overwrite=True)
    assert (tmp_path / "thesis.tex").exists()
    with pytest.raises(RunError, match="is a file"):
        opened(tmp_path / "thesis.tex", ONE)


def test_a_run_may_be_its_own_input(tmp_path: Path) -> None:
    opened(tmp_path / "r", ONE)
    run = open_run(tmp_path / "r", verb="audit", config={}, inputs=None)
    assert run.record["inputs"][0]["name"] == "one.csv"
    bare = tmp_path / "bare"
    bare.mkdir()
    (bare / "predictions.parquet").write_bytes(b"x")
    run = open_run(bare, verb="audit", config={}, inputs=None)
    assert run.record["inputs"][0]["name"] == "predictions.parquet"


def test_damaged_and_missing_runs(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="is not a folder"):
        read_run(tmp_path / "nothing")
    with pytest.raises(RunError, match=r"has no run.json.*cxrhf audit"):
        read_run(tmp_path)
    for content in ("{", "[]", ""):
        (tmp_path / "run.json").write_text(content)
        with pytest.raises(RunError, match="damaged"):
            read_run(tmp_path)
        with pytest.raises(RunError, match="damaged"):
            opened(tmp_path, ONE)
    opened(tmp_path, ONE, overwrite=True)
    with pytest.raises(RunError, match=r"has no results.parquet.*cxrhf audit"):
        read_run(tmp_path).table("results")


def test_only_known_and_checked_tables(tmp_path: Path) -> None:
    run = opened(tmp_path / "r", ONE)
    with refused(RunError, "results", got="result"):
        run.add("result", RESULTS)  # type: ignore[attr-defined]
    with refused(TableError, "results.parquet", "audit"):
        run.add("results", pa.table({"metric": ["auroc"]}))  # type: ignore[attr-defined]
    assert not (tmp_path / "r" / "results.parquet").exists()
