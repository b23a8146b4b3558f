"""`cxrhf context` killed at any moment: the same command ends with the same tables, and nothing is left behind."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from cxrhf.context.run import fit_context
from tests.killing import contents
from tests.pretest_twin import make_twin

ROOT = Path(__file__).resolve().parents[1]
WORDS = ("--features", "words", "--findings", "cardiomegaly", "--workers", "1", "--n-resamples", "10")
IMPORTS = (
    "cxrhf.context.run", "cxrhf.context.predict", "cxrhf.context.fit", "cxrhf.report.html", "cxrhf.report.files",
    "cxrhf.context.tables", "cxrhf.metrics", "skops.io", "sklearn.model_selection",
)  # fmt: skip


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_twin(tmp_path_factory.mktemp("twin"), 300, 3).built


def killed(folder: Path, words: list[str], every: int, most: int = 1000) -> None:
    """Kill a command before every so many of its writes; see killing.py."""
    given = {"words": words, "imports": IMPORTS if "fit" in words else IMPORTS[:2], "every": every, "most": most}
    (folder / "commands.json").write_text(json.dumps(given))
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "tests.killing", str(folder)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=3000, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]


@pytest.mark.slow
def test_fit_killed_before_each_write(built, tmp_path):
    killed(tmp_path, ["context", "fit", str(built), "--out", str(tmp_path / "work" / "run"), *WORDS], every=4)


def test_predict_killed_before_its_first_writes(built, tmp_path):
    predict_killed(built, tmp_path, onto=True, most=2)


@pytest.mark.slow
@pytest.mark.parametrize("onto", [False, True])
def test_predict_killed_before_each_write(built, tmp_path, onto):
    predict_killed(built, tmp_path, onto)


def predict_killed(built: Path, tmp_path: Path, onto: bool, most: int = 1000) -> None:
    run = fit_context(built, out=tmp_path / "run", features=["words"], findings=["edema"], workers=1, n_resamples=10)
    onto_words = ["--onto", str(run.path / "predictions.parquet"), "--overwrite"]
    out = tmp_path / "work" / ("joined.parquet" if onto else "run")
    how = onto_words if onto else ["--build", str(built)]
    killed(tmp_path, ["context", "predict", str(run.path), *how, "--out", str(out)], every=1, most=most)


@pytest.mark.slow
def test_fit_killed_at_random(built, tmp_path):
    """kill -9 at eight random moments, with two processes that fit, each time the same command again."""
    fit = [sys.executable, "-m", "cxrhf", "context", "fit", str(built), "--features", "words,boosted", "--findings",
           "cardiomegaly,edema", "--workers", "2", "--n-resamples", "10", "--out"]  # fmt: skip
    quiet: dict[str, Any] = {
        "env": {**os.environ, "PYTHONPATH": str(ROOT)}, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL,
    }  # fmt: skip

    def start(out: Path) -> subprocess.Popen[bytes]:
        child = subprocess.Popen([*fit, str(out)], **quiet)
        while not (out / "run.json").exists() and child.poll() is None:  # imports are most of a short run
            time.sleep(0.005)
        return child

    child = start(tmp_path / "whole" / "run")
    begun = time.monotonic()
    assert child.wait() == 0
    seconds = time.monotonic() - begun
    moments = random.Random(0)
    out = tmp_path / "killed" / "run"
    for _ in range(8):
        child = start(out)
        time.sleep(moments.uniform(0, 0.5) * seconds)
        child.send_signal(signal.SIGKILL)
        child.wait()
    assert start(out).wait() == 0
    assert contents(out.parent) == contents(tmp_path / "whole")
