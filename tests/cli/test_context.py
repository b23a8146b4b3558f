"""`cxrhf context` in the hands of users: what an older run keeps, what is refused, what is said and where."""

from __future__ import annotations

import errno
import importlib.util
import json
import os
import shutil
import warnings
from pathlib import Path

import numpy as np
import pyarrow.compute as pc
import pytest

from cxrhf import cli
from cxrhf.context import material as packages
from cxrhf.context import store
from cxrhf.context import sweep as cluster
from cxrhf.context.run import fit_context, fit_run, load_context
from cxrhf.context.settings import ContextFitConfig
from cxrhf.errors import ConfigError, CxrhfError, CxrhfWarning
from cxrhf.tables.files import read_table, write_table
from tests.context.forging import change, seal
from tests.locked import held
from tests.pretest_twin import make_twin

WORDS = ("--features", "words", "--findings", "cardiomegaly", "--workers", "1", "--n-resamples", "20")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_twin(tmp_path_factory.mktemp("twin"), 500, 3).built


@pytest.fixture(scope="module")
def fitted(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("fitted") / "context"
    fit_context(built, out=out, features=["words"], findings=["cardiomegaly"], workers=1, n_resamples=20)
    return out


@pytest.fixture
def run(fitted: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(fitted, tmp_path / "run"))


@pytest.fixture
def model(fitted: Path, tmp_path: Path) -> Path:
    """Predictions of an image model: the test images of the run, under another name."""
    rows = read_table(fitted / "predictions.parquet")
    rows = rows.filter(pc.equal(rows["split"], "test")).drop_columns(["model", "mention"])
    return write_table(rows, tmp_path / "its file.parquet")


def files(folder: Path) -> dict[str, bytes]:
    return {str(each.relative_to(folder)): each.read_bytes() for each in folder.rglob("*") if each.is_file()}


def test_a_fit_that_fails_leaves_an_older_run_as_it_was(run, built, capsys):
    before = files(run)
    assert (
        cli.main(["context", "fit", str(built), "--out", str(run), *WORDS, "--overwrite", "--min-patients", "9999"])
        == 2
    )
    assert "--min-patients" in capsys.readouterr().err
    assert files(run) == before


def test_another_fit_replaces_a_finished_run_only_if_asked_to(run, built, capsys):
    before = files(run)
    other = [each if each != "cardiomegaly" else "edema" for each in WORDS]
    assert cli.main(["context", "fit", str(built), "--out", str(run), *other]) == 2
    said = capsys.readouterr().err
    assert str(run) in said
    assert "cardiomegaly" in said
    assert "--overwrite" in said
    assert files(run) == before
    assert cli.main(["context", "fit", str(built), "--out", str(run), *other, "--overwrite"]) == 0
    assert list(load_context(run).choices["findings"]) == ["edema"]
    record = json.loads((run / "run.json").read_text())
    assert record["started"] <= record["finished"]
    assert "images of train, validate are not" in capsys.readouterr().out


def test_a_finished_fit_stays_as_it_is(run, built, capsys):
    (run / "search" / "edema--words").mkdir(parents=True)  # a stop while it was removed
    before = {name: data for name, data in files(run).items() if not name.startswith("search")}
    assert cli.main(["context", "fit", str(built), "--out", str(run), *WORDS, "--cache", "off"]) == 0
    said = capsys.readouterr()
    assert str(run) in said.err
    assert str(run / "report.html") in said.out
    assert files(run) == before
    assert not (run / "search").exists()


def test_a_finished_run_of_another_verb_is_left_alone(run, built, capsys):
    record = json.loads((run / "run.json").read_text()) | {"verb": "train"}
    (run / "run.json").write_text(json.dumps(record))
    before = files(run)
    assert cli.main(["context", "fit", str(built), "--out", str(run), *WORDS]) == 2
    said = capsys.readouterr().err
    assert str(run) in said
    assert "--overwrite" in said
    assert files(run) == before


@pytest.mark.parametrize("place", ["page", "families", "models", "examples"])
def test_a_fit_that_cannot_write_is_not_finished_and_goes_on(built, fitted, tmp_path, monkeypatch, capsys, place):
    """A full disk: the run says so, nothing takes it for whole, and the same command ends with the same tables."""

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    where = {"page": "cxrhf.report.files.write_figures", "families": "cxrhf.tables.files.write_table",
             "models": "cxrhf.context.store.save_calibrator", "examples": "cxrhf.context.explain._write"}  # fmt: skip
    words = ["context", "fit", str(built), "--out", str(tmp_path / "run"), *WORDS]
    if place == "models":  # calibrators are saved for the checkpoint, too
        real = store.save_calibrator
        monkeypatch.setattr(where[place], lambda *a: full() if a[2] != "model" else real(*a))
    else:
        monkeypatch.setattr(where[place], full)
    assert cli.main(words) == 2
    assert "No space left" in capsys.readouterr().err
    assert json.loads((tmp_path / "run" / "run.json").read_text())["finished"] is None
    assert not (tmp_path / "run" / "context.json").exists()
    monkeypatch.undo()
    assert cli.main(words) == 0
    assert "before" in capsys.readouterr().err
    assert_same(tmp_path / "run", fitted)


def assert_same(run: Path, other: Path) -> None:
    """Equal tables and models, but for the seconds that fits took."""
    assert {*files(run)} == {*files(other)}
    for name, data in files(other).items():
        if name.endswith((".parquet", ".csv", ".safetensors")):
            assert (run / name).read_bytes() == data, name
    assert not [each for each in run.rglob(".*") if each.name != ".gitignore"]


def test_one_writer_a_run(run, built, model, tmp_path, capsys):
    before = files(run)
    out = tmp_path / "other"
    commands = {
        run: [["context", "fit", str(built), "--out", str(run), *WORDS, "--overwrite"],
              ["context", "explain", str(run), "--build", str(built)]],
        out: [["context", "predict", str(run), "--build", str(built), "--out", str(out)]],
    }  # fmt: skip
    for folder, each in commands.items():
        with held(folder):
            for words in each:
                assert cli.main(words) == 2
                said = capsys.readouterr().err
                assert "cxrhf train, process " in said
                assert str(folder) in said
    assert files(run) == before
    assert not out.exists()
    assert cli.main(["context", "predict", str(run), "--onto", str(model)]) == 0  # a file, written at once


def test_encoders_are_opened_before_the_first_note_is_read(built, tmp_path, monkeypatch, capsys):
    bad = tmp_path / "bad"
    bad.mkdir()
    (bad / "config.json").write_text("{}")
    (bad / "tokenizer.json").write_text("{}")
    (bad / "pytorch_model.bin").write_bytes(b"")
    monkeypatch.setattr("cxrhf.context.run.read_build", lambda *_: pytest.fail("notes were read"))
    words = ["context", "fit", str(built), "--out", str(tmp_path / "run"), "--features", "encoder"]
    assert cli.main([*words, "--encoders", f"minilm,{bad}"]) == 2
    assert "only .bin weights" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_an_audit_does_not_replace_the_results_of_a_context_run(run, capsys):
    before = files(run)
    assert cli.main(["audit", str(run), "--n-resamples", "20"]) == 2
    assert "--context" in capsys.readouterr().err
    assert files(run) == before


def test_an_audit_that_overwrites_a_context_run_leaves_nothing_of_it(run, model, capsys):
    (run / "mine.txt").write_text("kept")
    assert cli.main(["audit", str(model), "--out", str(run), "--n-resamples", "20", "--overwrite"]) == 0
    left = files(run)
    assert left["mine.txt"] == b"kept"
    assert not [name for name in left if name.startswith(("context.json", "families", "models", "tables", "search"))]
    assert "local/examples.csv" not in left
    assert cli.main(["context", "explain", str(run)]) == 2


def test_audit_takes_finished_context_runs_only(run, model, tmp_path, capsys):
    words = ["audit", str(model), "--out", str(tmp_path / "audited"), "--n-resamples", "20", "--context"]
    (tmp_path / "empty").mkdir()
    assert cli.main([*words, str(tmp_path / "empty")]) == 2
    assert "cxrhf context fit BUILD" in capsys.readouterr().err
    record = json.loads((run / "run.json").read_text()) | {"finished": None}
    (run / "run.json").write_text(json.dumps(record))
    assert cli.main([*words, str(run)]) == 2
    assert "was not finished" in capsys.readouterr().err


def test_examples_come_from_the_build_of_the_run(run, built, tmp_path, capsys):
    other = Path(shutil.copytree(built, tmp_path / "other"))
    record = json.loads((other / "build.json").read_text()) | {"seed": 77}
    (other / "build.json").write_text(json.dumps(record))
    before = files(run / "local")
    assert cli.main(["context", "explain", str(run), "--build", str(other)]) == 2
    assert str(other) in capsys.readouterr().err
    assert files(run / "local") == before
    assert cli.main(["context", "explain", str(run), "--build", str(built)]) == 0
    assert (run / "local" / "examples.txt").stat().st_mode & 0o077 == 0


@pytest.mark.parametrize(
    "edit",
    [
        lambda c: "[" * 100_000,
        lambda c: "",
        lambda c: [],
        lambda c: c | {"format": "1"},
        lambda c: c | {"findings": {"edema": 3}},
        lambda c: c | {"splits": {"learned": 5}},
        lambda c: c | {"findings": {"edema": {**c["findings"]["cardiomegaly"], "chosen": "none of these"}}},
        lambda c: c | {"findings": {"edema": {**c["findings"]["cardiomegaly"], "n": float("nan")}}},
        lambda c: c | {"dataset": "\ud800"},
        lambda c: {key: value for key, value in c.items() if key != "splits"},
    ],
)
@pytest.mark.parametrize("verb", ["explain", "predict"])
def test_a_damaged_record_is_one_line(run, model, edit, verb, capsys):
    made = edit(json.loads((run / "context.json").read_text()))
    (run / "context.json").write_text(made if isinstance(made, str) else json.dumps(made))
    onto = ["--onto", str(model)] if verb == "predict" else []
    assert cli.main(["context", verb, str(run), *onto]) == 2
    said = capsys.readouterr().err
    assert "context.json cannot be read" in said
    assert said.count("\n") == 1


def test_a_record_of_a_newer_version_says_so(run, capsys):
    record = json.loads((run / "context.json").read_text()) | {"format": 2}
    (run / "context.json").write_text(json.dumps(record))
    assert cli.main(["context", "explain", str(run)]) == 2
    said = capsys.readouterr().err
    assert "newer version of cxrhf" in said
    assert "pip install --upgrade cxrhf" in said


def changed_at_random(run: Path, model: Path, built: Path, seeds: range) -> None:
    """context.json and the models' records with odd values: refused in a line, or of no harm."""
    rest = run.parent / "rest"
    for seed in seeds:
        rng = np.random.default_rng(seed)
        shutil.rmtree(rest, ignore_errors=True)
        shutil.copytree(run, rest)
        name = ("context.json", "contents.json", "manifest.json", "words-words.json")[seed % 4]
        path = rest / name if seed % 4 == 0 else rest / "models" / "context" / name
        record = json.loads(path.read_text())
        change(record, rng)
        data = json.dumps(record).encode()
        path.write_bytes(data)
        if seed % 4 in (1, 3):
            seal(path.parent, name, data)
        for words in (["explain"], ["predict", "--onto", str(model)], ["predict", "--build", str(built)]):
            out = ["--out", str(run.parent / ("o.parquet" if "--onto" in words else "o")), "--overwrite"]
            assert cli.main(["context", words[0], str(rest), *words[1:], *(out if words[1:] else [])]) in (0, 2), seed


def test_records_that_were_changed_are_refused_or_harmless(run, model, built, capsys):
    changed_at_random(run, model, built, range(8))
    assert "error: unexpected" not in capsys.readouterr().err


@pytest.mark.slow
def test_hundreds_of_changed_records(run, model, built, capsys):
    changed_at_random(run, model, built, range(8, 400))
    assert "error: unexpected" not in capsys.readouterr().err


def test_a_build_without_notes_says_which_have_some(built, tmp_path, capsys):
    bare = Path(shutil.copytree(built, tmp_path / "bare"))
    shutil.rmtree(bare / "notes")
    assert cli.main(["context", "fit", str(bare), "--out", str(tmp_path / "out"), *WORDS]) == 2
    said = capsys.readouterr().err
    assert "has no notes" in said
    assert "mimic_cxr_context" in said
    assert not (tmp_path / "out").exists()


def test_joined_rows_are_counted_and_the_next_command_can_be_typed(run, model, capsys):
    assert cli.main(["context", "predict", str(run), "--onto", str(model)]) == 0
    said = capsys.readouterr().out
    n = read_table(model).num_rows
    assert f"{n:,} of {n:,} rows are in the context run" in said
    assert f"next: cxrhf audit '{model.parent / 'its file_context.parquet'}'" in said


def test_drafts_of_a_killed_join_go(run, model, tmp_path, capsys):
    out = tmp_path / "joined.parquet"
    ours, others = tmp_path / ".joined.parquet.4194999.tmp", tmp_path / f".joined.parquet.{os.getpid()}0.x.tmp"
    for each in (ours, others):
        each.write_bytes(b"ids")
    assert cli.main(["context", "predict", str(run), "--onto", str(model), "--out", str(out)]) == 0
    assert (out.exists(), ours.exists(), others.exists()) == (True, False, True)
    capsys.readouterr()


def test_packages_are_looked_for_before_anything_is_done(monkeypatch):
    there = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *_: None if name in ("xgboost", "torch") else there(name)
    )
    packages.check_packages(["words"])
    with pytest.raises(CxrhfError, match=r"boosted needs .* xgboost.*pip install 'cxrhf\[context\]'.*--features words"):
        packages.check_packages(["words", "boosted"])
    with pytest.raises(CxrhfError, match=r"encoder needs .*not installed: torch"):
        fit_run(ContextFitConfig("nowhere"), lambda _: None)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *_: None)
    with pytest.raises(CxrhfError, match=r"skops.*pip install 'cxrhf\[words\]'"):
        packages.check_packages(["words"])
    with pytest.raises(CxrhfError, match=r"pip install 'cxrhf\[context\]'"):  # one install brings all of it
        packages.check_packages(["words", "encoder"])


def test_processes_that_have_nothing_to_encode_do_nothing(monkeypatch, built, tmp_path):
    for name, value in {"LOCAL_RANK": "1", "RANK": "1", "WORLD_SIZE": "2"}.items():
        monkeypatch.setenv(name, value)
    config = ContextFitConfig(str(built), out=str(tmp_path / "out"), features=("words",))
    assert fit_run(config, lambda _: None) is None
    assert not (tmp_path / "out").exists()


def test_the_first_process_tells_an_error_at_once_and_another_later(monkeypatch, capsys):
    waited: list[float] = []
    monkeypatch.setattr("time.sleep", waited.append)
    assert cli.main(["context", "ft"]) == 2
    assert not waited
    monkeypatch.setenv("LOCAL_RANK", "1")
    monkeypatch.setenv("RANK", "1")
    assert cli.main(["context", "ft"]) == 2
    assert waited == [5]
    assert "got ft" in capsys.readouterr().err


def test_warnings_are_told_without_the_code_that_gave_them(monkeypatch, capsys):
    def warn(args: list[str]) -> int:
        warnings.warn("the cache is old", CxrhfWarning, stacklevel=1)
        return 0

    monkeypatch.setattr(cli, "_dispatch", warn)
    usual = warnings.formatwarning
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        monkeypatch.setattr(warnings, "showwarning", warnings._showwarning_orig)  # type: ignore[attr-defined]
        monkeypatch.setattr(warnings, "_showwarnmsg_impl", _printed)
        assert cli.main([]) == 0
    assert capsys.readouterr().err == "warning: the cache is old\n"
    assert warnings.formatwarning is usual


def _printed(said: warnings.WarningMessage) -> None:
    import sys

    sys.stderr.write(warnings.formatwarning(said.message, said.category, said.filename, said.lineno, said.line))


@pytest.mark.slow
def test_a_scheduler_without_workers_is_told(monkeypatch):
    import distributed

    monkeypatch.setattr(cluster, "PATIENCE", 1)
    with (
        distributed.LocalCluster(n_workers=0, processes=False, dashboard_address=None) as empty,
        pytest.raises(ConfigError, match="has no workers"),
        cluster.cluster(empty.scheduler_address),
    ):
        pass
