"""What a newcomer gets wrong in the first hour: each message says what, what was got, and a next step that works."""

from __future__ import annotations

import gzip
import importlib.util
import os
import re
import signal
import subprocess
import sys
import threading
import zipfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import cxrhf
from cxrhf import cli
from cxrhf.cli import SafeStream
from cxrhf.errors import CxrhfError, TableError, did_you_mean
from cxrhf.metrics.checks import InputError
from cxrhf.metrics.module import _numbers
from cxrhf.tables.folders import describe_path, free_folder_name, suggest_folder
from cxrhf.tables.predictions import load_predictions
from tests.refusals import check_refusal, refused

ROOT = Path(__file__).resolve().parents[2]
# Whoever runs the tests in the background may have made all its children deaf to Ctrl-C.
LISTENING = """import runpy, signal
signal.signal(signal.SIGINT, signal.default_int_handler)
runpy.run_module("cxrhf", run_name="__main__", alter_sys=True)
"""


def table(n: int = 60, yes: object = 1, no: object = 0, race: str = "Other") -> str:
    score = np.random.default_rng(0).random(n).round(3)
    lines = [f"i{k},p{k // 2},edema,{yes if k % 3 == 0 else no},{score[k]},{race}" for k in range(n)]
    return "\n".join(["image_id,patient_id,finding,label,prob,race", *lines]) + "\n"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "good.csv").write_text(table())
    return tmp_path


def error_of(*words: str) -> CxrhfError:
    """The error of a command that must be refused."""
    with refused(CxrhfError) as refusal:
        cli.main([*words, "--debug"])
    return refusal.error


def next_step(*words: str) -> str:
    return error_of(*words).next_step or ""


# Files


def test_files_that_are_not_what_their_name_says(here: Path) -> None:
    good = (here / "good.csv").read_bytes()
    with zipfile.ZipFile(here / "sheet.csv", "w") as archive:
        archive.writestr("x", "y")
    (here / "page.csv").write_bytes(b"\n<!DOCTYPE html><html>log in</html>")
    (here / "pointer.parquet").write_bytes(b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n")
    (here / "pickle.csv").write_bytes(b"\x80\x04\x95")
    (here / "a.txt").write_bytes(good)
    (here / "a.zip").write_bytes(b"PK\x03\x04")
    for name, what, how in (
        ("sheet.csv", "zip archive", "unzip"),
        ("page.csv", "web page", "download"),
        ("pointer.parquet", "LFS", "git lfs pull"),
        ("pickle.csv", "pickle", "to_parquet"),
        ("a.txt", "a.txt", ".csv"),
        ("a.zip", "a.zip", "unzip"),
        ("-", "standard input", "file"),
    ):
        check_refusal(error_of("audit", name), what, fix=how)
    assert not (here / "runs").exists()


@pytest.mark.parametrize("name", ["zipped here.csv", "plain.csv.gz", "text.parquet", "binary.csv", "latin.csv"])
def test_the_next_step_is_typed_as_it_stands(here: Path, name: str) -> None:
    """In another folder, with spaces and umlauts: the command that is named makes a file that can be read."""
    folder = here / "Ordner für alles"
    folder.mkdir()
    good = (here / "good.csv").read_bytes()
    pq.write_table(pa.table({"image_id": ["a", "b"], "label": [0, 1], "prob": [0.1, 0.9]}), here / "t.parquet")
    content = {
        "zipped here.csv": gzip.compress(good), "plain.csv.gz": good, "text.parquet": good,
        "binary.csv": (here / "t.parquet").read_bytes(), "latin.csv": table(race="Züricher").encode("latin-1"),
    }[name]  # fmt: skip
    (folder / name).write_bytes(content)
    step = next_step("audit", f"Ordner für alles/{name}", "--only", "overview")
    quoted = re.search(r"`(.+)`", step)
    command = quoted[1] if quoted else step.partition(": ")[2]
    before = set(folder.iterdir())
    subprocess.run(["sh", "-c", command], check=True, cwd=here, timeout=10)
    (made,) = set(folder.iterdir()) - before
    assert load_predictions(made).table.num_rows in (60, 2)


@pytest.mark.parametrize(
    "content",
    ["label prob\n1 .5\n", "# made by a vendor\nlabel,prob\n1,.5\n", "1,.5\n0,.25\n", "1.0e+00,2.2e-01\n0,.3\n"],
)
def test_a_first_line_that_is_no_header(here: Path, content: str) -> None:
    (here / "odd.csv").write_text(content)
    check_refusal(error_of("audit", "odd.csv"), "odd.csv", fix="first line")


def test_columns_apart_by_strokes_and_columns_that_are_taken(here: Path) -> None:
    (here / "strokes.csv").write_text(table().replace(",", "|"))
    assert load_predictions(here / "strokes.csv").table.num_rows == 60
    check_refusal(error_of("audit", "good.csv", "--pretest", "prob"), "score column", "prob (", "pretest)")


@pytest.mark.parametrize(("yes", "no"), [("Yes", "No"), ("pos", "neg"), ("present", "absent"), ("TRUE", "FALSE")])
def test_labels_as_words(here: Path, yes: str, no: str) -> None:
    (here / "words.csv").write_text(table(yes=yes, no=no))
    assert load_predictions(here / "words.csv").table["label"].equals(load_predictions("good.csv").table["label"])


def test_labels_that_say_little(here: Path) -> None:
    (here / "odd.csv").write_text(table(yes="Edema", no="Nothing"))
    check_refusal(error_of("audit", "odd.csv"), "odd.csv", "label", fix="1")
    (here / "signs.csv").write_text(table(no=-1))
    assert any("NO LABEL IS 0" in note and "-1" in note for note in load_predictions("signs.csv").notes)
    (here / "none.csv").write_text(table(yes="", no=""))
    assert "NO LABELS" in " ".join(load_predictions("none.csv").notes)


def test_a_table_with_categories(here: Path) -> None:
    """What pandas makes of text that repeats; also in Parquet."""
    read = load_predictions("good.csv").table
    coded = pa.table({name: read[name] for name in ("image_id", "patient_id", "finding", "label", "prob", "sex")})
    for at, name in enumerate(coded.column_names):
        coded = coded.set_column(at, name, coded[name].combine_chunks().dictionary_encode())
    pq.write_table(coded, here / "coded.parquet")
    for source in (coded, here / "coded.parquet"):
        assert load_predictions(source).table.select(["label", "prob"]).equals(read.select(["label", "prob"]))
    with refused(TableError, "nobody.csv"):
        cxrhf.audit("~/nobody.csv")


def test_words_where_a_metric_wants_numbers() -> None:
    with pytest.raises(InputError, match=r"predictions\[0\].*'a'"):
        _numbers({"references": [0, 1], "predictions": ["a", "b"]}, False)


# Folders


def test_what_a_folder_is_and_what_was_meant(tmp_path: Path) -> None:
    (tmp_path / "data" / "twin").mkdir(parents=True)
    (tmp_path / "data" / "twin" / "build.json").write_text("{}")
    assert describe_path(tmp_path / "data" / "twin") == "a build"
    assert describe_path(tmp_path / "data") not in (
        describe_path(tmp_path / "data" / "twin"),
        describe_path(tmp_path / "nowhere"),
    )
    assert suggest_folder(tmp_path / "data", "build.json") == f"did you mean {str(tmp_path / 'data' / 'twin')!r}?"
    assert (
        suggest_folder(tmp_path / "data" / "twn", "build.json") == f"did you mean {str(tmp_path / 'data' / 'twin')!r}?"
    )
    assert suggest_folder(tmp_path / "data" / "twin", "build.json") is None
    assert free_folder_name(tmp_path / "data", "other") == "other"
    assert free_folder_name("my data", "other") == "'my data'"
    assert did_you_mean("chexpert_", ["chexpert", "chexpert_plus"]) == "did you mean 'chexpert'?"
    assert did_you_mean("che", ["chexpert", "chexpert_plus"]) is None


@pytest.mark.parametrize(
    ("words", "got", "how"),
    [
        (["train", "good.csv"], "a file", "cxrhf build synthetic --out data/twin"),
        (["train", "box"], "a folder with other", "did you mean 'box/twin'?"),
        (["train", "new"], "", "cxrhf build synthetic --out new"),
        (["probe", "net"], "a run with a trained network", "cxrhf build synthetic --out data/twin"),
        (["finetune", "net"], "a run with a trained network", "cxrhf build synthetic --out data/twin"),
        (["generate", "net", "--build", "net"], "a run with a trained network", "--out data/twin"),
        (["predict", "good.csv"], "a file", "cxrhf train BUILD --out runs/network"),
        (["calibrate", "empty"], "an empty folder", "cxrhf train BUILD --out empty"),
        (["audit", "net"], "a run with a trained network", "cxrhf predict net"),
        (["audit", "box/twin"], "a build", "cxrhf train box/twin --config quick --out runs/quick"),
        (["audit", "good.csv", "--context", "net"], "a run with a trained network", "fit BUILD --out runs/context"),
        (["context", "explain", "net"], "a run with a trained network", "cxrhf context fit BUILD --out runs/context"),
        (["report", "good.csv"], "a file", "cxrhf audit good.csv --out runs/mine"),
        (["score", "good.csv"], "", "cxrhf generate --from good.csv --out runs/words"),
        (["build", "mimic"], "mimic", "did you mean 'mimic_cxr_context'?"),
        (["build", "chexpert", "--root", "empty"], "", "cxrhf doctor chexpert --root empty"),
        (["train", "box", "--config", "quik"], "", "did you mean 'quick'?"),
        (["audit", "good.csv", "--notes", "goof.csv"], "", "did you mean 'good.csv'?"),
    ],
)
def test_the_wrong_folder(here: Path, words: list[str], got: str, how: str) -> None:
    (here / "empty").mkdir()
    (here / "box" / "twin").mkdir(parents=True)
    (here / "box" / "twin" / "build.json").write_text("{}")
    (here / "net" / "models").mkdir(parents=True)
    before = sorted(each for each in here.rglob("*") if each.is_file())
    error = error_of(*words)
    check_refusal(error, got=got or None, fix=how)
    assert not str(error).endswith(".")  # a command is copied with whatever follows it
    assert sorted(each for each in here.rglob("*") if each.is_file()) == before
    assert not (here / "data" / "chexpert").exists()


def test_a_folder_that_is_taken_or_closed(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (here / "thesis").mkdir()
    (here / "thesis" / "mine.doc").write_text("mine")
    check_refusal(error_of("build", "synthetic", "--out", "thesis"), "thesis", fix="--out")
    assert [each.name for each in (here / "thesis").iterdir()] == ["mine.doc"]
    closed = here / "closed"
    closed.mkdir(mode=0o555)
    if os.access(closed, os.W_OK):  # for root every folder is open
        may = os.access
        monkeypatch.setattr(os, "access", lambda path, mode: Path(path) != Path("closed") and may(path, mode))
    for words in (["audit", "good.csv"], ["build", "synthetic"]):
        check_refusal(error_of(*words, "--out", "closed/deep/run"), "closed", fix="--out")


def test_the_home_folder_is_found_behind_an_equals_sign(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(here))
    (here / "taken").write_text("")
    check_refusal(error_of("audit", "good.csv", "--out=~/taken"), f"{here}/taken")


# Packages, pipes, Ctrl-C


@pytest.mark.parametrize(
    ("words", "extra"),
    [
        (["calibrate", "net"], "train"),
        (["train", "net", "--tracker", "tensorboard"], "train,track"),
        (["generate", "net", "--build", "net"], "vlm"),
        (["context", "fit", "net"], "context"),
        (["context", "fit", "net", "--features", "words"], "words"),
    ],
)
def test_a_missing_extra_is_named(here: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], extra: str) -> None:
    (here / "net" / "models").mkdir(parents=True)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *_: None)
    assert next_step(*words).startswith(f"pip install 'cxrhf[{extra}]'")


def test_a_missing_package_that_nobody_looked_for(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "tyro", None)
    assert cli.main(["audit", "a.csv"]) == 2
    said = capsys.readouterr().err
    assert " tyro " in said
    assert "pip install 'cxrhf[" in said


def test_output_that_nobody_reads_any_more() -> None:
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "w", buffering=1) as stream:
        lasting = SafeStream(stream)
        for _ in range(3):
            print("a line", file=lasting, flush=True)
        assert lasting.fileno() == write


def test_ctrl_c_says_how_to_go_on(here: Path) -> None:
    """A real one, in a real audit: exit code 130, no results, and the same command then does its work."""
    command = ["audit", "good.csv", "--n-resamples", "1000000", "--out", "my run"]
    started = subprocess.Popen(
        [sys.executable, "-c", LISTENING, *command], cwd=here, env={**os.environ, "PYTHONPATH": str(ROOT)}, text=True,
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert started.stderr is not None
    stop = threading.Timer(60, started.kill)
    stop.start()
    lines = []
    for line in started.stderr:
        lines.append(line)
        if "resamples of" in line:
            started.send_signal(signal.SIGINT)
    assert started.wait() == 130, lines
    stop.cancel()
    assert lines[-1].startswith("interrupted. ")
    assert lines[-1].endswith(": cxrhf audit good.csv --n-resamples 1000000 --out 'my run'\n")
    assert sorted(each.name for each in (here / "my run").iterdir()) == ["predictions.parquet", "run.json"]
    again = [*command[:3], "20", "--only", "overview", *command[4:]]
    assert cli.main(again) == 0
    assert (here / "my run" / "report.html").is_file()


def test_ctrl_c_in_a_verb_that_goes_on(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def stopped(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("cxrhf.data.build.build", stopped)
    assert cli.main(["build", "synthetic", "--out", "a b"]) == 130
    said = capsys.readouterr().err
    assert said == "interrupted. To resume, run: cxrhf build synthetic --out 'a b'\n"
    monkeypatch.setenv("LOCAL_RANK", "1")
    monkeypatch.setenv("RANK", "1")
    assert cli.main(["build", "synthetic"]) == 130
    assert capsys.readouterr().err == ""  # one of several processes speaks
