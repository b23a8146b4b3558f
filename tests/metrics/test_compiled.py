"""The cache of compiled kernels: used again when nothing changed, known to be there, thrown away when a file did."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from cxrhf.metrics import compiled

INNER = "from kernels.compiled import compiled\n\n@compiled\ndef inner(x):\n    return x + 0.5\n"
OUTER = "from kernels.compiled import compiled\nfrom kernels.inner import inner\n\n@compiled\ndef outer(x):\n"
OUTER += "    return inner(2 * x)\n"
FAR = "from kernels.compiled import compiled\n\n@compiled\ndef far(x):\n    return x + 1.0\n"
PROGRAM = """from kernels.outer import outer
from kernels.compiled import is_kept
from elsewhere import far
print(is_kept(outer), outer(1.0), far(1.0), *(sum(kernel.stats.cache_hits.values()) for kernel in (outer, far)))"""


def run(folder: Path) -> str:
    # Python's own bytecode goes by size and time, so it would not see the change that this is about.
    environment = {**os.environ, "PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
    environment.pop("NUMBA_CACHE_DIR", None)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.slow
def test_a_kernel_follows_changes_in_the_files_it_calls(tmp_path):
    """Two kernels beside a copy of compiled.py, the outer one in a file that never changes, and one elsewhere."""
    folder = tmp_path / "kernels"
    folder.mkdir()
    shutil.copy(Path(str(compiled.__file__)), folder)
    (folder / "outer.py").write_text(OUTER)
    inner, far = folder / "inner.py", tmp_path / "elsewhere.py"
    inner.write_text(INNER)
    far.write_text(FAR)

    def change(file: Path, old: str, new: str) -> None:
        before = file.stat()
        file.write_text(file.read_text().replace(old, new))
        os.utime(file, (before.st_atime, before.st_mtime))  # as an installer with fixed times would leave it

    assert run(tmp_path) == "False 2.5 2.0 0 0"
    assert run(tmp_path) == "True 2.5 2.0 1 1"  # from the cache
    change(far, "1.0", "3.0")
    assert run(tmp_path) == "True 2.5 4.0 1 0"
    change(inner, "0.5", "0.7")
    assert run(tmp_path) == "False 2.7 4.0 0 0"
