"""`pip install .` in an environment of its own: a predictions file is audited without torch; what each extra brings."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.hub.fresh import closure, installed, linked

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
# `pip install ".[data,train]"` -> "data,train"; "" for the light core.
ASKED = sorted({extras for _, extras in re.findall(r"^pip install (\"?)\.(?:\[([a-z,]+)\])?\1", README, re.MULTILINE)})
# What the verbs of a section of the README import first.
BROUGHT = {
    "": ("numpy", "scipy", "scikit-learn", "datasets", "evaluate"),
    "data,context,train": ("pydicom", "xgboost", "timm", "accelerate", "transformers", "torch"),
    "hub": ("huggingface-hub",),
    "vlm": ("peft", "transformers", "torch"),
}
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
HEAVY = ("torch", "torchvision", "transformers", "accelerate", "timm", "peft", "PIL", "gradio")
SEEN = f"import importlib.util as u; print([name for name in {HEAVY!r} if u.find_spec(name)])"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "-o", str(folder), str(ROOT)]
    subprocess.run(command, check=True, capture_output=True)
    (made,) = folder.glob("*.whl")
    return made


def check_audit(python: Path, folder: Path, **more: str) -> None:
    """The first command of the README in this environment, its own `cxrhf` on the path and nothing of ours."""
    rows = [f"i{k},p{k // 3},{k % 3 // 2},0.{(k * 37) % 90 + 10}" for k in range(300)]
    (folder / "predictions.csv").write_text("\n".join(["image_id,patient_id,Edema,prob_Edema", *rows]) + "\n")
    env = {"PATH": f"{python.parent}:/usr/bin:/bin", "HOME": str(folder), **more}

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(words, cwd=folder, env=env, capture_output=True, text=True, check=False)

    assert run("python", "-c", SEEN).stdout.strip() == "[]"
    done = run("cxrhf", "audit", "predictions.csv", "--out", "runs/mine", "--n-resamples", "20")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "runs/mine/report.html"
    assert "<html" in (folder / "runs" / "mine" / "report.html").read_text(encoding="utf-8")
    where = run("python", "-c", "import cxrhf; print(cxrhf.__file__)").stdout
    assert str(python.parents[1]) in where
    asked = run("cxrhf", "train", "data/twin")
    assert asked.returncode == 2
    assert "pip install 'cxrhf[" in asked.stderr


def test_the_light_core_audits_a_file_without_torch(wheel: Path, tmp_path: Path) -> None:
    """The packages are links to those of the tests; the wheel is installed by pip."""
    python = linked(tmp_path / "environment", PROJECT["dependencies"])
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--no-deps", "--no-index", "--quiet"]
    subprocess.run([*pip, str(wheel)], check=True, env={**os.environ, "PYTHONPATH": ""})
    # Compiling every kernel for one small file would take half a minute; the slow test below does.
    check_audit(python, tmp_path, NUMBA_DISABLE_JIT="1")


@pytest.mark.slow
def test_so_it_does_where_pip_brings_the_packages(tmp_path: Path) -> None:
    """`pip install .`, word for word; some minutes and the package registry."""
    check_audit(installed(tmp_path / "environment", (str(ROOT),)), tmp_path)


@pytest.mark.parametrize("extras", ASKED)
def test_every_installation_of_the_readme_brings_what_its_commands_need(extras: str) -> None:
    """Followed as pip would, among the packages of the tests: each is there, and none is older than is asked for."""
    named = [each for extra in extras.split(",") if extra for each in PROJECT["optional-dependencies"][extra]]
    found = closure([*PROJECT["dependencies"], *named])
    assert set(BROUGHT[extras]) <= set(found)
    assert extras or not {"torch", "transformers", "timm"} & set(found)
