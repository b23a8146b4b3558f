"""The cache of compiled kernels: used again when nothing changed, thrown away when any file did."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

PROGRAM = """
import time
from cxrhf.metrics.resample import bootstrap_auroc
start = time.perf_counter()
print(bootstrap_auroc([0, 1, 1, 0], [0.5, 0.5, 0.5, 0.5], n_resamples=3).tolist())
from cxrhf.metrics.blocks import draw_lanes
print(sum(draw_lanes.stats.cache_hits.values()))
"""


def run(folder: Path) -> list[str]:
    # Python's own bytecode goes by size and time, so it would not see the change that this is about.
    environment = {**os.environ, "PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
    environment.pop("NUMBA_CACHE_DIR", None)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_a_kernel_follows_changes_in_the_files_it_calls(tmp_path):
    source = Path(__file__).resolve().parents[2] / "cxrhf"
    shutil.copytree(source, tmp_path / "cxrhf", ignore=shutil.ignore_patterns("__pycache__"))
    assert run(tmp_path) == ["[0.5, 0.5, 0.5]", "0"]
    assert run(tmp_path) == ["[0.5, 0.5, 0.5]", "1"]  # from the cache
    ranking = tmp_path / "cxrhf" / "metrics" / "ranking.py"
    before = ranking.stat()
    changed = ranking.read_text().replace("(below[lane] + 0.5 * tied", "(below[lane] + 0.7 * tied")
    assert changed != ranking.read_text()
    ranking.write_text(changed)
    os.utime(ranking, (before.st_atime, before.st_mtime))  # as an installer with fixed times would leave it
    assert run(tmp_path) == ["[0.7, 0.7, 0.7]", "0"]
