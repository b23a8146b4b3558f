"""Pictures of runs are drawn small, except where they are what is tested; and one small demo for all."""

from __future__ import annotations

import gc
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from filelock import FileLock

from tests.small_pictures import ZOOM

ROOT = Path(__file__).resolve().parents[1]


def pytest_collection_finish() -> None:
    """What was imported stays: the garbage collector need not walk through all of torch and transformers again."""
    gc.freeze()


@pytest.fixture(autouse=True, scope="module")
def _small_pictures(request: pytest.FixtureRequest) -> Iterator[None]:
    """Three quarters of a small audit's time are PNGs: a sixth as wide, they take a fifth of it and are as real."""
    if "report" in request.path.parts or request.path.stem == "test_auditing_real":
        yield
        return
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("cxrhf.report.files.ZOOM", ZOOM)
        yield


@pytest.fixture(scope="session")
def small_demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`make demo` with 40 patients, as a folder with runs/demo and what was printed: made once. Read only."""
    several = "PYTEST_XDIST_WORKER" in os.environ
    base = tmp_path_factory.getbasetemp().parent if several else tmp_path_factory.getbasetemp()
    folder = base / "small-demo"
    with FileLock(base / "small-demo.lock"):
        if not (folder / "printed.txt").is_file():
            folder.mkdir(exist_ok=True)
            flags = "--n-patients 40 --size 64 --n-resamples 20 --steps 4 --report-steps 4"
            python = shlex.join([sys.executable, str(ROOT / "tests" / "small_pictures.py")])
            # The Makefile's own recipe, in another folder; the packages are there, so nothing is installed.
            done = subprocess.run(
                ["make", "--no-print-directory", "-f", str(ROOT / "Makefile"), "demo", f"PY={python}",
                 f"CORE={ROOT / 'pyproject.toml'}", f"PYTHONPATH={ROOT}", f"DEMO_FLAGS={flags}"],
                cwd=folder, text=True, capture_output=True, check=False,
            )  # fmt: skip
            assert done.returncode == 0, done.stderr
            (folder / "printed.txt").write_text(done.stdout, encoding="utf-8")
    return folder
