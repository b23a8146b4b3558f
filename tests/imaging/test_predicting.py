"""`cxrhf predict` and `embed` into a run that is held, stopped half-way, or whose network says strange things."""

from __future__ import annotations

import json
import shutil
import threading
from pathlib import Path
from typing import Any

import pytest

from cxrhf import cli
from cxrhf.run import Run, read_run
from cxrhf.tables.folders import one_writer
from tests.imaging.test_training import FEW


@pytest.fixture(scope="module")
def trained(twin: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trained") / "run"
    assert cli.main(["train", str(twin), "--out", str(folder), *FEW, "--findings", "edema", "--name", "net"]) == 0
    return folder


@pytest.fixture
def place(trained: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(trained, tmp_path / "run"))


def predicted(place: Path, twin: Path, verb: str = "predict") -> int:
    return cli.main([verb, str(place), "--build", str(twin), "--splits", "validate"])


def test_what_cxrhf_json_says_is_checked(place: Path, twin: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = place / "models/seed-0/cxrhf.json"
    about = json.loads(path.read_text())
    for change in ({"tasks": 3}, {"tasks": [3]}, {"tasks": None}, {"name": 3}, {"seed": True}, {"settings": [1]}):
        path.write_text(json.dumps(about | change))
        assert predicted(place, twin) == 2
        assert "cxrhf.json is damaged" in capsys.readouterr().err


@pytest.mark.parametrize("verb", ["predict", "embed"])
def test_a_held_run_is_refused_and_keeps_its_tables(
    place: Path, twin: Path, capsys: pytest.CaptureFixture[str], verb: str
) -> None:
    codes = list[int]()
    with one_writer(place, "train"):
        thread = threading.Thread(target=lambda: codes.append(predicted(place, twin, verb)))
        thread.start()
        thread.join()
    assert codes == [2]
    assert "cxrhf train, process" in capsys.readouterr().err
    assert not list(place.glob("*.parquet"))


def test_a_prediction_that_was_stopped_leaves_no_finished_run(
    place: Path, twin: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    assert read_run(place).record["finished"]
    with monkeypatch.context() as patched:
        patched.setattr(Run, "add", full)
        assert predicted(place, twin) == 2
    assert read_run(place).record["finished"] is None
    assert predicted(place, twin) == 0
    assert read_run(place).record["finished"]
