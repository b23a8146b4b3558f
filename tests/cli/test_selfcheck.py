"""`cxrhf selfcheck`: it passes as installed, it sees what is broken, it says what is missing, it names nobody."""

from __future__ import annotations

import getpass
import importlib
import importlib.util
import json
import os
import pkgutil
import platform
import re
import subprocess
import sys
import time
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cxrhf import audits, metrics
from cxrhf.audits import sample
from cxrhf.cli import selfcheck
from cxrhf.errors import ConfigError
from cxrhf.metrics import calibration, checks
from cxrhf.selfchecking import _GROUPS, last_line, run_checks
from cxrhf.selfchecking.verdicts import (
    auroc_error,
    auroc_parts,
    check_learned,
    check_near,
    check_not_significant,
    check_significant,
    effective_rows,
    error,
    packages,
    versions,
)
from cxrhf.settings import GROUPS
from cxrhf.twin.planted import context
from tests.refusals import refused

ROOT = Path(__file__).resolve().parents[2]
# A file that is loaded while a function is broken would keep the broken one.
for _module in pkgutil.walk_packages(audits.__path__, "cxrhf.audits."):
    importlib.import_module(_module.name)
# A light installation: what is not there cannot be found, in no process.
BARE = """
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("torch", "torchvision", "transformers", "timm", "peft", "accelerate", "xgboost"):
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, Missing())
"""


def ran(capsys: pytest.CaptureFixture[str], *args: str) -> tuple[int, str, str]:
    code = selfcheck.main(args)
    said = capsys.readouterr()
    return code, said.out, said.err


# ---------------------------------------------------------------- as installed


def test_every_group_has_its_check() -> None:
    for name, group in _GROUPS.items():
        module, _, function = group.place.rpartition(".")
        assert callable(getattr(importlib.import_module(f"cxrhf.selfchecking.{module}"), function, None)), name


def test_groups_pass_and_json_holds_it_all(capsys) -> None:
    code, out, err = ran(capsys, "--only", "calibration,encoding,notes", "--json")
    found = json.loads(out)
    assert code == 0, [each for each in found["checks"] if not each["ok"]]
    assert found["passed"] is True
    assert list(found["groups"]) == ["notes", "encoding", "calibration"]
    assert {each["group"] for each in found["checks"]} == set(found["groups"])
    slope = next(each for each in found["checks"] if each["name"] == "calibrated: slope")
    assert slope["expected"] == 1
    assert abs(slope["found"] - 1) <= slope["tolerance"] < 0.2
    assert found["skipped"] == {}
    assert "encoding" in err  # progress is beside the object, not in it


def test_a_line_a_check(capsys) -> None:
    code, out, _ = ran(capsys, "--only", "compare")
    assert code == 0
    lines = out.splitlines()
    assert re.fullmatch(r"compare: .+ \(\d+\.\d s\)", lines[0])
    assert re.match(
        r"  ok      weaker model: difference in AUROC +expected 0\.057 ± 0\.\d{3} +found 0\.\d{3}$", lines[1]
    )
    assert lines[-1] == "all 5 checks passed"
    assert max(map(len, lines)) <= 118


@pytest.mark.slow
def test_everything_passes_without_torch_in_a_minute(tmp_path) -> None:
    """In processes of its own, with kernels compiled from nothing, and with torch and its libraries out of reach."""
    (tmp_path / "sitecustomize.py").write_text(BARE)
    env = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT)]),
        "NUMBA_CACHE_DIR": str(tmp_path / "kernels"),
    }
    start = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "cxrhf", "selfcheck", "--json"], capture_output=True, text=True, env=env, check=False
    )
    took = time.monotonic() - start
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr
    found = json.loads(done.stdout)
    assert tuple(found["groups"]) == GROUPS
    print(f"{len(found['checks'])} checks in {took:.0f} s")
    assert took < 60


@pytest.mark.slow
def test_several_processes_give_the_same() -> None:
    """Each runs whole groups, and they come back in their order."""
    only = ("compare", "notes")
    alone, together = ([each._replace(seconds=0) for each in run_checks(only, processes=n)] for n in (1, 2))
    assert together == alone
    assert [each.group for each in together] == [name for name in GROUPS if name in only]


@pytest.mark.slow
def test_other_draws_pass_too() -> None:
    """Tolerances are not fitted to one seed: of all checks of six other seeds none fails."""
    for name in GROUPS:
        module, _, function = _GROUPS[name].place.rpartition(".")
        check = getattr(importlib.import_module(f"cxrhf.selfchecking.{module}"), function)
        for seed in range(10, 16):
            failed = [each for each in check(seed=seed) if not each.ok]
            assert not failed, (name, seed, failed)


# ---------------------------------------------------------------- broken


def test_a_wrong_number_is_seen(capsys, monkeypatch) -> None:
    true = calibration.expected_ace
    monkeypatch.setattr(calibration, "expected_ace", lambda *args, **options: 1.5 * true(*args, **options))
    code, out, _ = ran(capsys, "--only", "calibration")
    assert code == 1
    assert out.count("FAILED") == 2
    assert out.splitlines()[-1] == "1 of 9 checks FAILED: calibration: calibrated: error expected by chance"


def test_resampling_images_instead_of_patients_is_seen(capsys, monkeypatch) -> None:
    true = sample.draw
    monkeypatch.setattr(sample, "draw", lambda patients, **options: true(np.arange(len(patients)), **options))
    code, out, _ = ran(capsys, "--only", "patients", "--json")
    failed = [each["name"] for each in json.loads(out)["checks"] if not each["ok"]]
    assert (code, failed) == (1, ["each image three times: width of interval"])


def test_a_broken_example_is_named(capsys, monkeypatch) -> None:
    assert ran(capsys, "--only", "metrics")[0] == 0  # which loads every file, before one of them is broken
    true = checks.as_labels
    monkeypatch.setattr(checks, "as_labels", lambda y: 1 - true(y))
    code, out, _ = ran(capsys, "--only", "metrics")
    assert code == 1
    assert re.search(r"FAILED .* found .*calibration\.brier", out)


def test_what_breaks_is_a_failed_check_and_the_others_run(capsys, monkeypatch) -> None:
    def fail(*args: Any, **options: Any) -> None:
        raise ZeroDivisionError("planted\nfor the test")

    monkeypatch.setattr("cxrhf.selfchecking.truths.check_encoding", fail)
    code, out, _ = ran(capsys, "--only", "encoding,notes")
    assert code == 1
    assert "found ZeroDivisionError: planted for the test" in out
    assert "  ok      images whose prior note names the finding" in out


# ---------------------------------------------------------------- missing, wrong words


def test_a_missing_extra_is_said_with_its_command(capsys, monkeypatch) -> None:
    true = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *rest: None if name == "skops" else true(name, *rest))
    code, out, _ = ran(capsys, "--only", "hospital,notes")
    assert code == 0
    assert re.search(r"hospital: skipped, .*skops.*pip install 'cxrhf\[words\]'", out)
    assert out.splitlines()[-1] == "all 2 checks passed (hospital skipped)"
    code, out, _ = ran(capsys, "--only", "hospital", "--json")
    assert code == 1  # nothing was proved
    skipped = json.loads(out)["skipped"]
    assert list(skipped) == ["hospital"]
    assert skipped["hospital"].endswith("pip install 'cxrhf[words]'")


def test_a_wrong_group_is_told() -> None:
    with refused(ConfigError, "only", got="slises", fix="'slices'"):
        selfcheck.main(["--only", "slises"])


def test_versions_name_every_package_and_nobody(capsys, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    found = versions()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    lines = [*project["dependencies"], *(each for extra in project["optional-dependencies"].values() for each in extra)]
    named = {re.split(r"[\s<>=!~\[;]", line)[0].lower().replace("_", "-") for line in lines} - {"cxrhf"}
    assert named <= set(found["packages"]) == set(packages())
    assert found["packages"]["numpy"] == np.__version__
    assert found["cores"] >= 1
    said = json.dumps(found)
    for private in (platform.node(), str(Path.home()), str(ROOT), str(tmp_path), f"/{getpass.getuser()}"):
        assert private not in said, private


# ---------------------------------------------------------------- tolerances


def test_errors_are_those_of_theory_and_of_resampling() -> None:
    made = context(4000, seed=1)
    assert auroc_error(made.y, made.score) == pytest.approx(metrics.delong(made.y, made.score).se, rel=1e-3)
    weight = np.where(made.y == 1, 1.0, made.pretest / (1 - made.pretest))
    draws = metrics.draw(np.arange(4000), y=made.y, n_resamples=600, seed=0)
    spread = metrics.bootstrap("auroc", made.y, made.score, weight=weight, draws=draws).std()
    assert auroc_error(made.y, made.score, weight) == pytest.approx(spread, rel=0.12)
    rows = np.repeat(np.arange(4000), 2)
    parts = auroc_parts(made.y[rows], made.score[rows])
    assert error(parts, rows) == pytest.approx(auroc_error(made.y, made.score), rel=1e-9)
    assert effective_rows(np.ones(7)) == 7


def test_verdicts() -> None:
    assert check_near("x", 0.5, 0.53, 0.01).ok
    assert not check_near("x", 0.5, 0.55, 0.01).ok
    assert not check_near("x", 0.5, float("nan"), 0.01).ok
    assert check_learned("x", 0.8, 0.75, 0.001, 0.06).ok
    assert not check_learned("x", 0.8, 0.85, 0.001, 0.06).ok
    assert check_significant("x", {"p_value": 1e-5}).ok
    assert not check_significant("x", {"p_value": None}).ok
    assert not check_not_significant("x", {"p_value": None}).ok
    assert check_not_significant("x", {"p_value": 0.4}).ok
    assert last_line([]) == "nothing was checked"
