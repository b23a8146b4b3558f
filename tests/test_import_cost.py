"""What an import or a `--help` loads, seen in a fresh interpreter."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
HEAVY = ("numpy", "torch", "scipy.stats", "sklearn", "datasets", "evaluate")


def run(code: str) -> str:
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=env, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def loaded(code: str) -> set[str]:
    last = run(f"{code}\nimport sys, json; print(); print(json.dumps(sorted(sys.modules)))").splitlines()[-1]
    return set(json.loads(last))


@pytest.mark.parametrize(
    ("code", "never"),
    [
        ("import cxrhf", (*HEAVY, "pyarrow", "polars", "tyro", "yaml")),
        ("import cxrhf.metrics", (*HEAVY, "pyarrow", "polars", "tyro")),
        ("import cxrhf.settings", (*HEAVY, "pyarrow", "polars", "tyro", "yaml")),
        ("import cxrhf.cli; cxrhf.cli.main(['--help'])", (*HEAVY, "pyarrow", "polars", "tyro", "yaml")),
        ("import cxrhf.cli; cxrhf.cli.main(['audit', '--help'])", (*HEAVY, "pyarrow", "polars")),
        ("from cxrhf.metrics import auroc", ("sklearn", "scipy.stats", "torch", "datasets", "evaluate", "pyarrow")),
        ("import cxrhf; cxrhf.read_predictions", ("sklearn", "scipy.stats", "torch", "datasets", "evaluate", "polars")),
    ],
)
def test_what_is_loaded(code: str, never: tuple[str, ...]) -> None:
    assert not loaded(code) & set(never)


def test_help_answers_at_once() -> None:
    best = []
    for _ in range(3):
        start = time.perf_counter()
        run("import cxrhf.cli; cxrhf.cli.main(['--help'])")
        best.append(time.perf_counter() - start)
    assert min(best) < 1, f"{min(best):.2f} s"
