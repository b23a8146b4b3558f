"""`cxrhf train`, `predict`, `embed`, `calibrate`: from a build to tables, and what is said when it cannot be done."""

from __future__ import annotations

import json
import os
import random
import select
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing, suppress
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
import torch

from cxrhf import cli
from cxrhf.data.load import load_images
from cxrhf.errors import CxrhfError
from cxrhf.models.saved import load_saved
from cxrhf.schema import PREDICTION, RESULT
from cxrhf.tables.files import read_table
from cxrhf.tables.predictions import load_predictions
from tests.locked import held

ROOT = Path(__file__).resolve().parents[2]
TINY = [
    "--backbone", "test_resnet", "--weights", "random", "--channels", "1", "--pixels", "half", "--size", "32",
    "--fit", "squash", "--batch-size", "16", "--learning-rate", "0.003", "--device", "cpu", "--workers", "0",
]  # fmt: skip


FEW = [*TINY, "--max-images", "64"]  # where it does not matter what is learned


def run(*words: object) -> int:
    return cli.main([str(word) for word in words])


@pytest.fixture(scope="module")
def trained(twin: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two seeds of a network with two tasks, predicted."""
    folder = tmp_path_factory.mktemp("trained") / "run"
    words = ["--findings", "edema,pleural_effusion,support_devices", "--tasks", "findings,sex", "--seeds", "0-1"]
    assert run("train", twin, "--out", folder, *TINY, *words, "--epochs", "2", "--name", "net") == 0
    assert run("predict", folder, "--build", twin, "--out", folder) == 0
    return folder


def test_the_run_holds_models_that_others_can_load(trained: Path) -> None:
    from transformers import AutoModelForImageClassification

    assert sorted(path.name for path in (trained / "models").iterdir()) == ["seed-0", "seed-1"]
    record = json.loads((trained / "run.json").read_text())
    assert record["verb"] == "train"
    assert record["finished"]
    model, about = load_saved(trained / "models/seed-1")
    assert (about["name"], about["seed"]) == ("net", 1)
    assert [task["name"] for task in about["tasks"]] == ["findings", "sex"]
    theirs = AutoModelForImageClassification.from_pretrained(trained / "models/seed-1").eval()
    pixels = torch.randn(3, 1, 32, 32)
    with torch.no_grad():
        assert torch.equal(theirs(pixels).logits, model(pixels))
    text = "".join(path.read_text() for path in trained.rglob("*.json*"))
    assert str(trained.parent) not in text


def test_predictions_are_complete_and_follow_from_the_logits(trained: Path, twin: Path) -> None:
    rows = read_table(trained / "predictions.parquet", PREDICTION)
    held = [load_images(twin, split=split) for split in ("validate", "test")]
    images = pa.concat_tables(held)
    keys = rows.group_by(["image_id", "finding", "seed"]).aggregate([([], "count_all")])
    assert keys.num_rows == rows.num_rows == images.num_rows * 3 * 2
    assert set(rows["finding"].to_pylist()) == {"edema", "pleural_effusion", "support_devices"}
    np.testing.assert_allclose(rows["prob"], 1 / (1 + np.exp(-np.asarray(rows["logit"]))), rtol=1e-12)
    truth = dict(zip(images["image_id"].to_pylist(), images["edema"].to_pylist(), strict=True))
    edema = rows.filter(pc.equal(rows["finding"], "edema"))
    assert [truth[each] for each in edema["image_id"].to_pylist()] == edema["label"].to_pylist()
    others = read_table(trained / "characteristics.parquet", PREDICTION)
    assert set(others["finding"].to_pylist()) == {"sex=F", "sex=M"}
    assert others.num_rows == images.num_rows * 2 * 2
    both = others.group_by(["image_id", "seed"]).aggregate([("prob", "sum"), ("label", "sum")])
    np.testing.assert_allclose(both["prob_sum"], 1)
    assert set(both["label_sum"].to_pylist()) == {1}
    loaded = load_predictions(trained)  # as `cxrhf audit RUN` reads it
    assert loaded.table.num_rows == rows.num_rows


def test_predicting_twice_changes_nothing_and_more_splits_add(trained: Path, twin: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(trained, folder)
    before = read_table(folder / "predictions.parquet", PREDICTION)
    assert run("predict", folder, "--build", twin, "--batch-size", "7", "--splits", "test", "--seeds", "0") == 0
    after = read_table(folder / "predictions.parquet", PREDICTION)
    order = [("seed", "ascending"), ("finding", "ascending"), ("image_id", "ascending")]
    np.testing.assert_allclose(before.sort_by(order)["logit"], after.sort_by(order)["logit"], atol=1e-5)
    assert run("predict", folder, "--build", twin, "--splits", "train", "--seeds", "1") == 0
    more = read_table(folder / "predictions.parquet", PREDICTION)
    assert more.num_rows == before.num_rows + 3 * load_images(twin, split="train").num_rows


@pytest.mark.slow
def test_another_build_gets_a_run_of_its_own(trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from cxrhf.data.build import build
    from cxrhf.data.settings import BuildConfig
    from cxrhf.twin import write

    write("nih", tmp_path / "raw", n_patients=12, seed=5, size=64)
    build(BuildConfig("nih_chestxray14", root=(str(tmp_path / "raw"),), out=str(tmp_path / "nih"), size=64))
    monkeypatch.chdir(tmp_path)
    assert run("predict", trained, "--build", "nih", "--splits", "all") == 0
    rows = read_table(tmp_path / "runs/run-on-nih/predictions.parquet", PREDICTION)
    images = load_images(tmp_path / "nih")
    assert rows.num_rows == images.num_rows * 3 * 2
    of = {name: rows.filter(pc.equal(rows["finding"], name)) for name in ("edema", "support_devices")}
    assert of["edema"]["label"].null_count == 0
    assert of["support_devices"]["label"].null_count == of["support_devices"].num_rows  # NIH has no such label
    assert set(rows["dataset"].to_pylist()) == set(images["dataset"].to_pylist())


def test_a_network_of_the_sex_alone_is_audited(twin: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`predict` said next: audit; `audit` said next: predict."""
    folder = tmp_path / "run"
    assert run("train", twin, "--out", folder, *FEW, "--tasks", "sex", "--epochs", "1", "--name", "net") == 0
    assert run("predict", folder, "--build", twin) == 0
    assert not (folder / "predictions.parquet").exists()
    assert run("audit", folder, "--n-resamples", "20") == 0
    found = read_table(folder / "results.parquet", RESULT)
    rows = found.filter(pc.equal(found["metric"], "auroc")).to_pylist()
    own = [row for row in rows if row["audit"] == "overview" and row["finding"] == "sex=F"]
    assert own
    assert 0 < own[0]["value"] < 1
    assert "Sex (F)" in (folder / "report.html").read_text()


def test_embeddings(trained: Path, twin: Path, tmp_path: Path) -> None:
    out = tmp_path / "vectors"
    assert run("embed", trained, "--build", twin, "--splits", "test", "--out", out) == 0
    rows = pq.read_table(out / "embeddings.parquet")
    n = load_images(twin, split="test").num_rows
    assert rows.num_rows == 2 * n
    assert set(zip(rows["model"].to_pylist(), rows["seed"].to_pylist(), strict=True)) == {("net", 0), ("net", 1)}
    model, _ = load_saved(trained / "models/seed-0")
    one = rows.filter(pc.equal(rows["seed"], 0))
    vectors = torch.tensor(np.stack(one["vector"].to_pylist()), dtype=torch.float32)
    from cxrhf.models.backbone import last_layer

    got = last_layer(model)(vectors).detach().numpy()[:, 0]
    given = read_table(trained / "predictions.parquet", PREDICTION)
    given = given.filter(pc.and_(pc.equal(given["finding"], "edema"), pc.equal(given["seed"], 0)))
    by_id = dict(zip(given["image_id"].to_pylist(), given["logit"].to_pylist(), strict=True))
    np.testing.assert_allclose(got, [by_id[each] for each in one["image_id"].to_pylist()], atol=1e-5)
    assert pq.read_table(out / "images.parquet").num_rows == n
    held = load_images(twin, split="validate").num_rows
    assert run("embed", trained, "--build", twin, "--splits", "validate", "--seeds", "0", "--out", out) == 0  # adds
    assert pq.read_table(out / "embeddings.parquet").num_rows == 2 * n + held
    assert pq.read_table(out / "images.parquet").num_rows == n + held


def test_calibration_is_saved_and_applied(trained: Path, twin: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(trained, folder)
    raw = read_table(folder / "predictions.parquet", PREDICTION)
    # On train, where there are enough patients for it; the note of the run says what that is worth.
    assert run("calibrate", folder, "--build", twin, "--method", "platt", "--split", "train") == 0
    assert (folder / "models/seed-0/calibration.json").is_file()
    order = [("seed", "ascending"), ("finding", "ascending"), ("image_id", "ascending")]

    def held() -> pa.Table:
        rows = read_table(folder / "predictions.parquet", PREDICTION)
        return rows.filter(pc.not_equal(rows["split"], "train")).sort_by(order)

    raw, done = raw.sort_by(order), held()
    np.testing.assert_allclose(raw["logit"], done["logit"], atol=1e-5)
    devices = pc.equal(done["finding"], "support_devices")
    moved = np.asarray(done.filter(devices)["prob"]) - np.asarray(raw.filter(devices)["prob"])
    assert np.abs(moved).max() > 0.01
    assert run("predict", folder, "--build", twin, "--splits", "test") == 0
    again = held()
    np.testing.assert_allclose(again["prob"], done["prob"], atol=1e-5)
    assert run("predict", folder, "--build", twin, "--splits", "test,validate", "--raw") == 0
    back = held()
    np.testing.assert_allclose(back["prob"], raw["prob"], atol=1e-5)


def test_a_model_folder_is_calibrated_too(
    trained: Path, twin: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(trained / "models/seed-0", tmp_path / "net")
    monkeypatch.chdir(tmp_path)
    assert run("calibrate", "net", "--build", twin, "--method", "platt", "--split", "train") == 0
    assert (tmp_path / "net/calibration.json").is_file()
    rows = read_table(tmp_path / f"runs/net-on-{twin.name}/predictions.parquet", PREDICTION)
    assert rows.num_rows == 3 * load_images(twin, split="train").num_rows


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["train", "nowhere"], "build.json"),
        (["train", "{twin}", "--backbone", "resnet50x"], "got resnet50x"),
        (["train", "{twin}", "--findings", "edma"], "Did you mean 'edema'?"),
        (["train", "{twin}", "--train-split", "trian"], "Did you mean 'train'?"),
        (["train", "{twin}", "--only", "sex=X"], "--only sex=X: expected F, M"),
        (["train", "{twin}", "--device", "cuda"], "no GPU"),
        (["train", "{twin}", "--config", "quik"], "quik"),
        (["train", "{twin}", "--batch-size", "4", "--accumulate", "8"], "accumulate"),
        (["train", "{twin}", "--weights", "nowhere"], "nowhere"),
        (["predict", "nowhere"], "cxrhf train BUILD --out nowhere"),
        (["predict", "{run}", "--build", "{twin}", "--splits", "tset"], "Did you mean 'test'?"),
        (["predict", "{run}", "--build", "{twin}", "--seeds", "7"], "--seeds 7"),
        (["predict", "{run}"], "ame the build: cxrhf predict"),
        (["calibrate", "{run}"], "ame the build: cxrhf calibrate"),
        (["calibrate", "{run}", "--split", "test"], "split"),
        (["train", "{twin}", "--out", "{run}", *TINY], "holds a training run with other settings"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(
    words: list[str], said: str, twin: Path, trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    assert run(*(word.format(twin=twin, run=trained) for word in words)) == 2
    lines = capsys.readouterr().err.splitlines()
    assert lines[-1].startswith("error: ")
    assert said in lines[-1]
    assert "Traceback" not in "\n".join(lines)


@pytest.mark.parametrize("changes", [{"tasks": None}, {"name": None}, {"seed": "x"}, {"look": {"size": 20_000}}])
def test_a_strangers_network_is_refused_in_one_line(
    changes: dict[str, object], twin: Path, trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "net"
    shutil.copytree(trained / "models/seed-0", folder)
    about = {**json.loads((folder / "cxrhf.json").read_text()), **changes}
    kept = {name: each for name, each in about.items() if each is not None}
    (folder / "cxrhf.json").write_text(json.dumps(kept))
    for verb in ("predict", "embed", "calibrate"):
        assert run(verb, folder, "--build", twin, *([] if verb == "calibrate" else ["--out", tmp_path / "out"])) == 2
        lines = capsys.readouterr().err.splitlines()
        assert lines[-1].startswith("error: ")
        assert "cxrhf.json" in lines[-1]
    assert not (tmp_path / "out").exists()


def test_a_finding_without_positives_is_left_out_and_said(
    twin: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(twin, folder)
    for path in (folder / "images").glob("train-*.parquet"):
        table = pq.read_table(path)
        blank = pa.array(np.zeros(table.num_rows), pa.int8())
        table = table.set_column(table.column_names.index("edema"), "edema", blank)
        pq.write_table(table, path)
    words = ["--findings", "edema,support_devices", "--epochs", "1"]
    assert run("train", folder, "--out", tmp_path / "run", *TINY, *words) == 0
    assert "note: edema is excluded: none of" in capsys.readouterr().out
    _, about = load_saved(tmp_path / "run/models/seed-0")
    assert about["outputs"] == ["support_devices"]
    assert run("train", folder, "--out", tmp_path / "other", *TINY, "--findings", "edema") == 2
    assert "edema is excluded" in capsys.readouterr().err


def test_a_validation_split_without_labels_chooses_nothing(
    twin: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(twin, folder)
    for path in (folder / "images").glob("validate-*.parquet"):
        table = pq.read_table(path)
        for name in ("edema", "no_finding"):  # an image without any finding has no edema
            unknown = pa.nulls(table.num_rows, pa.int8())
            table = table.set_column(table.column_names.index(name), name, unknown)
        pq.write_table(table, path)
    words = ["--findings", "edema", "--epochs", "1", "--labels", "masked"]
    assert run("train", folder, "--out", tmp_path / "run", *FEW, *words) == 0
    said = capsys.readouterr().out
    assert "note: no validation image is labelled" in said
    assert "kept the last weights" in said


@pytest.mark.parametrize("memory", ["0", "1"])
def test_a_missing_picture_is_named(
    memory: str, twin: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(twin, folder)
    path = min((folder / "images").glob("train-*.parquet"))
    table = pq.read_table(path)
    pictures = table["image"].to_pylist()
    pictures[3] = {"bytes": pictures[3]["bytes"][:200], "path": pictures[3]["path"]}
    column = pa.array(pictures, table.schema.field("image").type)
    table = table.set_column(table.column_names.index("image"), table.schema.field("image"), column)
    pq.write_table(table, path, compression=dict.fromkeys(["image.bytes"], "NONE"), use_dictionary=False)
    words = ["--out", tmp_path / "run", *TINY, "--findings", "edema", "--epochs", "1", "--memory", memory]
    assert run("train", folder, *words) == 2
    said = capsys.readouterr().err.splitlines()[-1]
    assert "row 4" in said
    assert path.name in said
    assert "build" in said


def test_the_same_command_goes_on_and_then_leaves_it(
    twin: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["train", twin, "--out", tmp_path / "run", *FEW, "--findings", "edema", "--epochs", "1"]
    assert run(*words) == 0
    weights = (tmp_path / "run/models/seed-0/model.safetensors").stat().st_mtime_ns
    assert run(*words) == 0
    assert "seed 0 is already trained" in capsys.readouterr().err
    assert (tmp_path / "run/models/seed-0/model.safetensors").stat().st_mtime_ns == weights
    assert run(*words, "--seeds", "0,2") == 0
    assert (tmp_path / "run/models/seed-2").is_dir()
    assert not (tmp_path / "run/checkpoints").exists(), "nothing goes on from them"
    assert run("predict", tmp_path / "run", "--build", twin, "--splits", "test") == 0
    assert json.loads((tmp_path / "run/run.json").read_text())["tables"]
    assert run(*words[:-1], "2", "--overwrite") == 0
    assert sorted(each.name for each in (tmp_path / "run").iterdir()) == ["history-0.jsonl", "models", "run.json"]
    assert not (tmp_path / "run/models/seed-2").exists()
    assert json.loads((tmp_path / "run/run.json").read_text())["tables"] == {}, "those of before are gone"
    epochs = [json.loads(line)["epoch"] for line in (tmp_path / "run/history-0.jsonl").read_text().splitlines()]
    assert sorted(set(epochs)) == [1, 2]


# A process that has imported everything; for every line it is given, the command in a new process of its own.
TRAININGS = """
import os, runpy, sys
import cxrhf.models.train_run, cxrhf.models.train, cxrhf.models.weights
for _ in sys.stdin:
    child = os.fork()
    if not child:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # what it prints is not what is said here
        try:
            runpy.run_module("cxrhf.models.train", run_name="__main__", alter_sys=True)
        except SystemExit as end:
            os._exit(end.code or 0)
        os._exit(1)
    print(child, flush=True)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


@pytest.mark.slow
def test_kill_9_at_a_random_step(twin: Path, tmp_path: Path) -> None:
    """The process is gone without a word, at a moment nobody chose; the loss curve continues exactly."""
    words = [twin, *FEW, "--findings", "edema,support_devices", "--epochs", "6", "--save-every", "3"]
    words += ["--flip", "0.5", "--rotation", "10"]
    env = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    assert run("train", *words, "--out", tmp_path / "whole") == 0
    last = json.loads((tmp_path / "whole/history-0.jsonl").read_text().splitlines()[-1])["step"]
    command = [sys.executable, "-c", TRAININGS, *map(str, words), "--out", str(tmp_path / "parts")]
    chance = random.Random(os.environ.get("PYTEST_XDIST_TESTRUNUID", "0"))
    history = tmp_path / "parts/history-0.jsonl"
    # Without a buffer, so that select sees all that can be read.
    with subprocess.Popen(
        command, env=env, bufsize=0, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as trainings:
        assert trainings.stdin is not None
        assert trainings.stdout is not None
        ends = []
        for at in (chance.randrange(4, last), None):
            trainings.stdin.write(b"\n")
            process = int(trainings.stdout.readline())
            assert process > 1
            end = time.monotonic() + (120 if at else 200)
            while not select.select([trainings.stdout], [], [], 0.005)[0] and time.monotonic() < end:
                seen = history.read_text().splitlines() if at and history.is_file() else []
                if seen and json.loads(seen[-1])["step"] >= at - 3:
                    time.sleep(chance.random() * 0.15)
                    break
            if at or time.monotonic() >= end:
                with suppress(ProcessLookupError):  # it may have come to its end meanwhile
                    os.kill(process, signal.SIGKILL)
            ends.append(int(trainings.stdout.readline()))
    assert ends[0] in (0, -signal.SIGKILL)
    assert ends[1] == 0
    assert history.read_bytes() == (tmp_path / "whole/history-0.jsonl").read_bytes()
    weights = [(tmp_path / name / "models/seed-0/model.safetensors").read_bytes() for name in ("whole", "parts")]
    assert weights[0] == weights[1]


@pytest.mark.slow
def test_kill_9_while_something_is_being_written(twin: Path, tmp_path: Path) -> None:
    """Killed as soon as a file is seen; the same command ends with the same bytes and leaves no draft and no worker."""
    words = [twin, *FEW, "--findings", "edema", "--epochs", "3", "--save-every", "2", "--flip", "0.5", "--memory", "0"]
    words[words.index("--workers") + 1] = "1"
    env = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    assert run("train", *words, "--out", tmp_path / "whole") == 0
    folder, said = tmp_path / "parts", []
    moments = ("checkpoints/seed-0/.*.tmp", "checkpoints/seed-0/best-*", "models/.seed-0-*.part/*", "models/seed-0/*")
    command = [sys.executable, "-c", TRAININGS, *map(str, words), "--out", str(folder)]
    with subprocess.Popen(
        command, env=env, bufsize=0, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as trainings:
        assert trainings.stdin is not None
        assert trainings.stdout is not None
        for pattern in (*moments, None):
            trainings.stdin.write(b"\n")
            process = int(trainings.stdout.readline())
            workers: set[int] = set()
            end = time.monotonic() + 100
            while not select.select([trainings.stdout], [], [], 0.001)[0] and time.monotonic() < end:
                with suppress(OSError):
                    children = Path(f"/proc/{process}/task/{process}/children")
                    workers |= {int(each) for each in children.read_text().split()}
                if pattern is not None and next(folder.glob(pattern), None) is not None:
                    break
            if pattern is not None:
                with suppress(ProcessLookupError):  # it may have come to its end meanwhile
                    os.kill(process, signal.SIGKILL)
            said.append(int(trainings.stdout.readline()))
            time.sleep(1)
            for worker in workers:
                with suppress(OSError):  # gone, or waiting to be counted by whoever inherited it
                    assert Path(f"/proc/{worker}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    assert said[0] == -signal.SIGKILL
    assert said[-1] == 0
    for name in ("history-0.jsonl", "models/seed-0/model.safetensors"):
        assert (folder / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    assert not list(folder.rglob(".*"))
    assert sorted(each.name for each in folder.iterdir()) == ["history-0.jsonl", "models", "run.json"]


@pytest.mark.slow
def test_curves_for_tensorboard_stay_on_the_disk(
    twin: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--findings", "edema", "--epochs", "1", "--tracker", "tensorboard"]
    assert run("train", twin, "--out", tmp_path / "run", *FEW, *words) == 0
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    event = next(path for path in (tmp_path / "run").rglob("events.out.tfevents*") if path.parent.name == "cxrhf")
    curves = EventAccumulator(str(event.parent))
    curves.Reload()
    assert {"train/loss", "validate/loss", "validate/auroc"} <= set(curves.Tags()["scalars"])
    assert f"curves: tensorboard --logdir {tmp_path / 'run/cxrhf'}" in capsys.readouterr().out
    words[words.index("1")] = "2"
    assert run("train", twin, "--out", tmp_path / "run", *FEW, *words, "--overwrite") == 0
    assert not event.exists(), "curves of the training before"


@pytest.mark.slow
def test_curves_for_trackio_stay_on_the_disk(twin: Path, tmp_path: Path) -> None:
    """In a process of its own: trackio keeps threads, and a folder that it chooses once."""
    words = ["train", twin, "--out", tmp_path / "run", *TINY, "--findings", "edema", "--epochs", "1"]
    command = [sys.executable, "-m", "cxrhf", *map(str, words), "--tracker", "trackio"]
    done = subprocess.run(command, check=True, timeout=300, capture_output=True, text=True)
    assert f"curves: TRACKIO_DIR={tmp_path / 'run/trackio'} trackio show --project cxrhf" in done.stdout
    assert "Uploading" not in done.stdout + done.stderr
    env = {**os.environ, "TRACKIO_DIR": str(tmp_path / "run/trackio")}
    shown = [str(Path(sys.executable).with_name("trackio")), "list", "projects"]
    assert "cxrhf" in subprocess.run(shown, check=True, timeout=100, capture_output=True, text=True, env=env).stdout
    with closing(sqlite3.connect(tmp_path / "run" / "trackio" / "cxrhf.db")) as curves:
        told = [json.loads(row[0]) for row in curves.execute("select metrics from metrics")]
    assert {"train/loss", "validate/loss", "validate/auroc"} <= {name for each in told for name in each}


def test_python_can_do_the_same(twin: Path, tmp_path: Path) -> None:
    import cxrhf

    options = {"backbone": "test_resnet", "weights": "random", "size": 32, "epochs": 1, "findings": ("edema",)}
    options |= {"max_images": 64}
    done = cxrhf.train(twin, out=tmp_path / "run", config="quick", **options)
    assert done.path == tmp_path / "run"
    written = cxrhf.predict(tmp_path / "run", build=twin, splits=("test",), out=tmp_path / "run")
    assert written.path == tmp_path / "run"
    with pytest.raises(CxrhfError, match="unknown key 'epoch'"):
        cxrhf.train(twin, epoch=3)


@pytest.mark.slow
def test_an_audit_does_not_make_a_run_forget_its_training(
    trained: Path, twin: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(twin.parent)  # where the build lies as it was named
    folder = tmp_path / "run"
    words = ["train", twin.name, "--out", folder, *FEW, "--findings", "support_devices", "--epochs", "1"]
    assert run(*words) == 0
    assert run("predict", folder) == 0
    for _ in range(2):
        assert run("audit", folder, "--n-resamples", "20", "--only", "overview") == 0
        assert json.loads((folder / "run.json").read_text())["verb"] == "audit"
        assert run("predict", folder, "--splits", "test") == 0  # still knows its build
    assert run(*words, "--seeds", "0-1") == 0  # and its settings
    assert run(*words, "--epochs", "3") == 2
    assert (folder / "models/seed-1").is_dir()
    assert run("predict", folder) == 0


@pytest.mark.slow
def test_labels_of_the_training_are_those_of_its_predictions(twin: Path, tmp_path: Path) -> None:
    words = ["--findings", "edema", "--epochs", "1", "--labels", "masked"]
    assert run("train", twin, "--out", tmp_path / "run", *FEW, *words) == 0
    assert run("predict", tmp_path / "run", "--build", twin, "--splits", "test") == 0
    rows = read_table(tmp_path / "run/predictions.parquet", PREDICTION)
    masked = load_images(twin, split="test", labels="masked")
    assert rows["label"].null_count == masked["edema"].null_count > 0


@pytest.mark.slow
def test_a_build_may_be_named_otherwise(
    twin: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--out", tmp_path / "run", *FEW, "--findings", "edema", "--epochs", "1"]
    assert run("train", twin, *words) == 0
    monkeypatch.chdir(twin)
    assert run("train", ".", *words) == 0
    assert "is already trained" in capsys.readouterr().err
    assert run("train", ".", *words, "--max-images", "50") == 2


def test_a_calibration_that_was_stopped_is_never_taken_for_one(
    trained: Path, twin: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stopped before each of its writes: a card says raw, or is refused, and the same command ends with the same."""
    from cxrhf.models import calibration as calibrating
    from cxrhf.report.card_facts import calibration_facts

    class Killed(BaseException):
        pass

    def state(folder: Path) -> bool | str | None:
        try:
            found = calibration_facts(folder / "models/seed-0", folder)
        except CxrhfError:
            return "refused"
        return None if found is None else found["applied"]

    words = ["--build", twin, "--split", "train", "--method"]
    whole = tmp_path / "whole"
    shutil.copytree(trained, whole)
    assert state(whole) is None  # no calibration.json
    seen: list[tuple[object, ...]] = []
    real = calibrating.looked

    def once(asked: object, place: calibrating.PredictionPlace, show: object, **named: object) -> object:
        """What the networks say, computed once for all folders."""
        if not seen:
            seen.extend(rest for _, *rest in real(asked, place, show, **named))  # type: ignore[arg-type]
        return ((model, *rest) for model, rest in zip(place.models, seen, strict=True))

    monkeypatch.setattr(calibrating, "looked", once)
    assert run("calibrate", whole, *words, "platt") == 0
    assert state(whole) is True
    wanted = read_table(whole / "predictions.parquet", PREDICTION)
    states = set()
    replace, left = Path.replace, [0]

    def counted(*given: object, **named: object) -> None:
        if not left[0]:
            raise Killed
        left[0] -= 1
        replace(*given, **named)  # type: ignore[arg-type]

    for before in ("raw", "isotonic"):
        for at in range(6):  # two calibrations, run.json (no longer finished), two tables, run.json
            folder = tmp_path / f"{before}-{at}"
            shutil.copytree(trained, folder)
            if before != "raw":
                assert run("calibrate", folder, *words, before) == 0
            left[0] = at
            with monkeypatch.context() as patched:
                patched.setattr(Path, "replace", counted)
                with pytest.raises(Killed):
                    run("calibrate", folder, *words, "platt")
            states.add((before, at, state(folder)))
            assert run("calibrate", folder, *words, "platt") == 0
            assert state(folder) is True
            assert read_table(folder / "predictions.parquet", PREDICTION).equals(wanted)
    assert states == {
        ("raw", 0, None), ("raw", 1, False), ("raw", 2, False), ("raw", 3, False), ("raw", 4, True), ("raw", 5, True),
        ("isotonic", 0, True), ("isotonic", 1, "refused"), ("isotonic", 2, "refused"), ("isotonic", 3, "refused"),
        ("isotonic", 4, True), ("isotonic", 5, True),
    }  # fmt: skip
    assert run("predict", folder, "--build", twin, "--splits", "validate,test,train", "--raw") == 0
    assert state(folder) is False


def test_a_run_that_is_being_written_is_refused(
    trained: Path, twin: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "run"
    with held(folder):
        assert run("train", twin, "--out", folder, *FEW, "--overwrite") == 2
    assert "cxrhf train, process" in capsys.readouterr().err
    assert not folder.exists()
    shutil.copytree(trained, folder)
    for asked in (folder, folder / "models/seed-0"):
        with held(folder):
            assert run("calibrate", asked, "--build", twin, "--method", "platt") == 2
        assert "is being written by another process" in capsys.readouterr().err
    assert not list(folder.rglob("calibration.json"))


# Imports everything once, and starts a process for each command that it is given, all at the same time.
AT_ONCE = """
import json, os, sys
import cxrhf.models.train_run, cxrhf.models.train, cxrhf.models.weights
from cxrhf.cli import main
waiting, start = os.pipe()
children = []
for words in json.loads(sys.argv[1]):
    child = os.fork()
    if not child:
        os.close(start)
        os.read(waiting, 1)  # ends when the last writer is gone
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        os._exit(main(words))
    children.append(child)
os.close(start)
print(json.dumps([os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]))
"""


@pytest.mark.slow
def test_of_eight_trainings_into_one_folder_one_is_done(twin: Path, tmp_path: Path) -> None:
    rates = [0.001 * each for each in range(1, 9)]
    words = ["train", twin, "--out", tmp_path / "run", *FEW, "--findings", "edema", "--epochs", "1", "--learning-rate"]
    commands = [[*map(str, words), str(rate)] for rate in rates]
    env = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", AT_ONCE, json.dumps(commands)],
        env=env,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    codes = json.loads(done.stdout.splitlines()[-1])
    assert sorted(codes) == [0, *[2] * 7], done.stderr
    rate = rates[codes.index(0)]
    _, about = load_saved(tmp_path / "run/models/seed-0")
    record = json.loads((tmp_path / "run/run.json").read_text())
    assert about["settings"]["learning_rate"] == record["config"]["learning_rate"] == rate
    assert json.loads((tmp_path / "run/history-0.jsonl").read_text().splitlines()[0])["learning_rate"] == rate


@pytest.mark.slow
def test_all_processes_of_a_launcher_hear_of_a_refusal(twin: Path, tmp_path: Path) -> None:
    words = [twin, "--out", tmp_path / "run", *FEW, "--findings", "edema", "--epochs", "1"]
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node", "2", "-m", "cxrhf.models.train"]
    env = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    with held(tmp_path / "run"):
        done = subprocess.run(
            [*command, *map(str, words)], env=env, capture_output=True, text=True, timeout=120, check=False
        )
    assert done.returncode != 0
    assert done.stderr.count("error: ") >= 1
    assert "is being written by another process" in done.stderr
    assert not (tmp_path / "run").exists()
