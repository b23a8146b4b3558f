"""Every verb that writes a folder, killed before some of its writes: the same command ends with the same tables."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
TINY = (
    "--backbone test_resnet --weights random --channels 1 --pixels half --size 32 --fit squash --batch-size 16 "
    "--device cpu --workers 0 --max-images 48 --findings edema,pleural_effusion"
)
AUDIT = "--n-resamples 20 --only overview,imbalance"
# Verb -> what lies in WORK before (of the small demo), the command, and one in how many writes it is killed before.
COMMANDS = {
    "audit": ("", f"audit DEMO/example.csv --out WORK/run {AUDIT}", 7),
    "audit in place": ("run", f"audit WORK/run {AUDIT}", 7),
    "audit over another": ("run", f"audit DEMO/example.csv --out WORK/run --overwrite {AUDIT}", 9),
    "report": ("run", "report WORK/run", 9),
    "build": ("", "build synthetic --out WORK/build --n-patients 24 --size 64", 17),
    "train": ("", f"train DEMO/data --out WORK/run {TINY} --epochs 2", 5),
    "train over another": ("net", f"train DEMO/data --out WORK/net {TINY} --epochs 1 --overwrite", 5),
    "predict": ("net", "predict WORK/net --build DEMO/data --device cpu --workers 0", 1),
    "predict elsewhere": ("", "predict DEMO/network --build DEMO/data --out WORK/run --device cpu --workers 0", 1),
    "embed": ("net", "embed WORK/net --build DEMO/data --device cpu --workers 0", 1),
    "calibrate": ("net", "calibrate WORK/net --build DEMO/data --device cpu", 1),
    "probe": ("", "probe MORE --backbones DEMO/network --device cpu --targets sex --folds 2 --out WORK/run", 3),
    "generate": ("", "generate DEMO/writer/model --build DEMO/data --out WORK/run --strategies greedy --n-images 4 "
                     "--device cpu", 2),
    "finetune": ("", "finetune DEMO/data --config tiny_qwen --out WORK/run --max-steps 4 --save-every 2 "
                     "--validate-every 4 --device cpu --workers 0", 5),
    "score": ("words", "score WORK/words --device cpu", 1),
}  # fmt: skip


@pytest.fixture(scope="module")
def more_patients(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A build from which something can be learned of the sexes."""
    from cxrhf import cli

    folder = tmp_path_factory.mktemp("more") / "build"
    assert cli.main(["build", "synthetic", "--out", str(folder), "--n-patients", "160", "--size", "64"]) == 0
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("verb", COMMANDS)
def test_killed_before_a_write_and_run_again(verb: str, small_demo: Path, more_patients: Path, tmp_path: Path) -> None:
    demo = small_demo / "runs" / "demo"
    start, words, every = COMMANDS[verb]
    if start:
        source = {"run": demo, "net": demo / "network", "words": demo / "writer" / "reports"}[start]
        ignored = shutil.ignore_patterns("data", "context", "network", "writer") if start == "run" else None
        shutil.copytree(source, tmp_path / "start" / start, ignore=ignored)
    places = {"DEMO": str(demo), "MORE": str(more_patients), "WORK": str(tmp_path / "work")}
    given = {
        "words": [_placed(word, places) for word in words.split()], "every": every, "most": 1000, "moments": 8,
        "imports": ["torch", "timm", "cxrhf.report.files", "cxrhf.audits.run"],
        "start": str(tmp_path / "start") if start else None,
    }  # fmt: skip
    (tmp_path / "commands.json").write_text(json.dumps(given))
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "tests.killing", str(tmp_path)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=3000, check=False)
    print(f"\n{verb}: {done.stdout}")
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]


def _placed(word: str, places: dict[str, str]) -> str:
    for name, path in places.items():
        if word == name or word.startswith(f"{name}/"):
            return path + word[len(name) :]
    return word
