"""Every example runs as a reader would run it, offline, and its numbers are those of the metric functions.

Most run in this process, where torch and transformers are imported already; `make test-slow` starts each anew.
"""

from __future__ import annotations

import contextlib
import csv
import importlib.util
import io
import json
import os
import re
import runpy
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cxrhf.metrics import att_weights, auroc, balanced_brier, brier_skill_score, matched_auroc

ROOT = Path(__file__).resolve().parents[1]
EXAMPLES = ROOT / "examples"
TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2")

needs_torch = pytest.mark.skipif(
    # Where CI is set nobody reads of skips: there a missing package must fail.
    not os.environ.get("CI")
    and not all(importlib.util.find_spec(name) for name in ("torch", "timm", "transformers", "accelerate")),
    reason='needs pip install "cxrhf[train]"',
)


def run(name: str, folder: Path, *options: str) -> tuple[str, dict[str, Any]]:
    """What an example prints and what it writes."""
    out = folder / "out.json"
    return here([str(EXAMPLES / name), *options, "--out", str(out)], folder), json.loads(out.read_text())


def here(words: list[str], folder: Path) -> str:
    """What `python *words` prints in a folder, run in this process."""
    printed = io.StringIO()
    with contextlib.chdir(folder), contextlib.redirect_stdout(printed), pytest.MonkeyPatch.context() as patched:
        patched.setattr(sys, "argv", words)
        runpy.run_path(words[0], run_name="__main__")
    return printed.getvalue()


def run_alone(name: str, folder: Path, *options: str, launcher: tuple[str, ...] = ()) -> tuple[str, dict[str, Any]]:
    """The same in a process of its own, where transformers is not to be found."""
    out = folder / "out.json"
    out.unlink(missing_ok=True)
    words = [*launcher, str(EXAMPLES / name), *options, "--out", str(out)]
    return started(words, folder, transformers=False), json.loads(out.read_text())


def started(words: list[str], folder: Path, transformers: bool = True) -> str:
    """What Python prints in a folder, offline."""
    paths = [ROOT]
    if not transformers:
        paths.append(folder / "without")
        paths[-1].mkdir(exist_ok=True)
        shutil.copy(ROOT / "tests" / "without_transformers.py", paths[-1] / "sitecustomize.py")
    settings = {
        "PYTHONPATH": os.pathsep.join(map(str, paths)),
        "HF_HOME": str(folder / "home"),
        "HF_HUB_OFFLINE": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "OMP_NUM_THREADS": "1",
        "CUDA_VISIBLE_DEVICES": "",
    }
    done = subprocess.run(
        [sys.executable, *words],
        cwd=folder,
        env={**os.environ, **settings},
        capture_output=True,
        text=True,
        check=False,
        timeout=400,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(path.name for path in EXAMPLES.glob("*.py")))
def test_started_alone(tmp_path, name):
    assert started([str(EXAMPLES / name)], tmp_path)


def test_audit_of_a_predictions_file(tmp_path):
    printed = here([str(EXAMPLES / "audit_predictions.py")], tmp_path)
    with (tmp_path / "runs" / "example.csv").open() as stream:
        rows = list(csv.DictReader(stream))
    for finding in ("cardiomegaly", "pneumothorax"):
        y, p, q = (np.array([float(row[f"{name}{finding}"]) for row in rows]) for name in ("", "prob_", "pretest_"))
        overall, held = auroc(y, p), auroc(y, p, att_weights(y, q))
        said = re.search(
            rf"^{finding}: (\S+) \((\S+) to (\S+)\) of its AUROC comes from the context; (\S+) remains$", printed, re.M
        )
        assert said is not None
        drop, low, high, rest = map(float, said.groups())
        assert (drop, rest) == pytest.approx((overall - held, held), abs=6e-4)
        assert low < drop < high
        assert re.search(rf"^{finding} .* {overall:.3f} \(", printed, re.MULTILINE)
    # Planted: the chart is all that the model knows of pneumothorax.
    assert rest == pytest.approx(0.5, abs=0.05)
    assert printed.endswith("page: runs/example/report.html\n")
    assert (tmp_path / "runs" / "example" / "report.html").is_file()


def test_audit_of_a_file_of_ones_own(tmp_path):
    """Without a pre-test probability there is no drop to tell, and the rest is as before."""
    lines = ["id,patient,label,score", *(f"{k},{k // 2},{k % 3 == 0:d},{(k * 37 % 100) / 100}" for k in range(200))]
    (tmp_path / "mine.csv").write_text("\n".join(lines))
    printed = here([str(EXAMPLES / "audit_predictions.py"), "--predictions", "mine.csv"], tmp_path)
    assert "of its AUROC" not in printed
    assert "auroc" in printed
    assert not (tmp_path / "runs" / "example.csv").exists()
    assert (tmp_path / "runs" / "example" / "report.html").is_file()


def columns(rows: dict[str, Any], k: int, probability: np.ndarray) -> tuple[np.ndarray, ...]:
    """Label, probability and context of finding k where the label is known, and which rows these are."""
    y = np.array(rows["labels"], dtype=float)[:, k]
    known = ~np.isnan(y)
    return y[known], probability[known, k], np.array(rows["context"])[known, k], known


@needs_torch
def test_trainer(tmp_path):
    printed, out = run("trainer_metrics.py", tmp_path, "--n-resamples", "200")
    found, rows = out["metrics"], out["rows"]
    assert all(isinstance(value, (int, float)) for value in found.values())
    assert np.isnan(np.array(rows["labels"], dtype=float)).mean() > 0.1
    probability = 1 / (1 + np.exp(-np.array(rows["logits"])))
    findings = ("pleural_effusion", "cardiomegaly", "pneumothorax")
    for k, finding in enumerate(findings):
        y, p, q, known = columns(rows, k, probability)
        weight = np.array(rows["weight"])[known]
        held = auroc(y, p, weight * att_weights(y, q))
        assert found[f"eval_weighted_auroc_{finding}"] == pytest.approx(held, abs=1e-9)
        assert found[f"eval_weighted_auroc_unweighted_{finding}"] == pytest.approx(auroc(y, p, weight), abs=1e-9)
        assert found[f"eval_balanced_brier_{finding}"] == pytest.approx(balanced_brier(y, p, weight), abs=1e-6)
        assert found[f"eval_weighted_auroc_{finding}_ci_low"] <= held <= found[f"eval_weighted_auroc_{finding}_ci_high"]
        assert finding in printed
    mean = np.mean([found[f"eval_weighted_auroc_{finding}"] for finding in findings])
    assert found["eval_weighted_auroc"] == pytest.approx(mean)
    # Planted: two findings are in the image, of the third only what the chart knew.
    assert found["eval_weighted_auroc_cardiomegaly"] > 0.7
    assert found["eval_weighted_auroc_drop_pneumothorax"] > 0.04
    assert found["eval_weighted_auroc_pneumothorax_ci_low"] < 0.5


OPTIONS = ("--cpu", "--n-resamples", "200")


@needs_torch
def test_accelerate(tmp_path):
    """It needs no transformers; that evaluate imports it all the same would be a third of the time of each process."""
    _, one = run_alone("accelerate_metrics.py", tmp_path, *OPTIONS)
    assert one["processes"] == 1
    assert len(one["rows"]["labels"]) % 16  # the last batches do not divide evenly
    assert_close(one["gathered"], one["by_files"])
    assert_right(one["gathered"], one["rows"])


@needs_torch
@pytest.mark.slow
def test_accelerate_gives_the_same_from_one_process_and_from_two(tmp_path):
    printed, one = run_alone("accelerate_metrics.py", tmp_path, *OPTIONS)
    printed_by_two, two = run_alone("accelerate_metrics.py", tmp_path, *OPTIONS, launcher=TORCHRUN)
    # A launcher may start one process without saying so; then the rest of this test would compare nothing.
    assert (one["processes"], two["processes"]) == (1, 2)
    # A batch of another size may change the last bit of a logit, on some processors: 5e-7 of one below 8, a quarter of
    # that of a probability, and of a mean over all rows less still.
    assert_close(one["gathered"], two["gathered"], rel=1e-7)
    assert printed.splitlines()[1:] == printed_by_two.splitlines()[1:]
    assert_close(one["gathered"], two["by_files"], rel=1e-7)
    assert_right(two["gathered"], one["rows"])


def assert_right(found: dict[str, Any], rows: dict[str, Any]) -> None:
    """The numbers of the functions themselves."""
    rows["context"] = np.array(rows["context"], dtype=np.float32).astype(float)  # as it travels
    for k, finding in enumerate(("pleural_effusion", "cardiomegaly")):
        y, p, q, _ = columns(rows, k, np.array(rows["probability"]))
        assert found["weighted_auroc_per_label"][finding] == pytest.approx(auroc(y, p, att_weights(y, q)), abs=1e-9)
        assert found["weighted_auroc_unweighted_per_label"][finding] == pytest.approx(auroc(y, p), abs=1e-9)
        assert found["balanced_brier_per_label"][finding] == pytest.approx(balanced_brier(y, p), abs=1e-6)


def assert_close(one: dict[str, Any], other: dict[str, Any], rel: float = 1e-9) -> None:
    assert list(one) == list(other)
    for key, value in one.items():
        if isinstance(value, dict):
            assert_close(value, other[key], rel)
        else:
            assert other[key] == (value if isinstance(value, str) else pytest.approx(value, rel=rel, abs=1e-12)), key


def test_scikit_learn(tmp_path):
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import StratifiedGroupKFold

    printed, out = run("sklearn_scorers.py", tmp_path, "--images", "600")
    place = importlib.util.spec_from_file_location("sklearn_scorers", EXAMPLES / "sklearn_scorers.py")
    assert place is not None
    assert place.loader is not None
    example = importlib.util.module_from_spec(place)
    place.loader.exec_module(example)
    data = example.make_features(600, 0)
    x, y, patient = data["x"], data["y"], data["patient"]
    for k, (train, test) in enumerate(StratifiedGroupKFold(5).split(x, y, patient)):
        assert not set(patient[train]) & set(patient[test])
        model = LogisticRegression(C=0.1).fit(x[train], y[train], sample_weight=data["weight"][train])
        p, score, weight = model.predict_proba(x[test])[:, 1], model.decision_function(x[test]), data["weight"][test]
        expected = {
            "auroc": auroc(y[test], score, weight),
            "balanced_brier": -balanced_brier(y[test], p, weight),
            "brier_skill_score": brier_skill_score(y[test], p, weight),
            "matched_auroc": matched_auroc(y[test], score, data["pretest"][test]),
        }
        assert {name: out["scores"][name][k] for name in expected} == pytest.approx(expected, rel=1e-9)
    assert set(out["best"]) == set(out["scores"])
    assert np.isnan(out["rare"]["grid_means"]).all()
    assert out["rare"]["grid_ranks"] == [1, 1]
    assert out["rare"]["reasons"]
    assert "no positives" in out["rare"]["reasons"][0]
    assert "matched_auroc" in printed


def test_readme_names_every_example_with_the_command_of_its_docstring():
    readme = (EXAMPLES / "README.md").read_text()
    named = set(re.findall(r"examples/(\w+\.py)", readme))
    assert named == {path.name for path in EXAMPLES.glob("*.py")}
    for line in re.findall(r"^(?:python|torchrun) .*?\.py(?: --\w+)?", readme, flags=re.MULTILINE):
        name = re.findall(r"examples/(\w+\.py)", line)[0]
        assert f"    {line}\n" in (EXAMPLES / name).read_text(), line
