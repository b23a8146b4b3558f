"""The commands and the Python of the README, run as a reader would."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from cxrhf import cli
from docs.results import FIGURE, INPUT, nih_headline

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, flags=re.DOTALL)


# Every command, without its comment.
COMMANDS = [line.split("#")[0].strip() for block in blocks("bash") for line in block.splitlines() if line.strip()]
NIH = next(line for line in COMMANDS if "nih_predictions" in line)
# The two whole ways, from images and from reports, with the synthetic hospital in the place of MIMIC.
TWIN = [
    "cxrhf build synthetic --out data/twin",
    "cxrhf context fit data/twin --out runs/chart --features words",
    "cxrhf context explain runs/chart",
    "cxrhf train data/twin --config quick --out runs/quick",
    "cxrhf predict runs/quick",
    "cxrhf calibrate runs/quick --method platt",
    "cxrhf embed runs/quick",
    "cxrhf audit runs/quick --context runs/chart",
    "cxrhf push metric --all --to USER --dry-run",
    "cxrhf push model runs/quick --to USER/my-network --dry-run",
    "cxrhf push dataset data/twin --to USER/twin --dry-run",
]
REPORTS = [
    "cxrhf audit theirs.csv --generated hyp --reference ref --patient pid --sex gender",
    "cxrhf finetune data/twin --config tiny_qwen --out runs/writer",
    "cxrhf generate runs/writer --build data/twin --out runs/words",
    "cxrhf score runs/words",
    "cxrhf audit runs/words",
]


def test_the_nih_audit_gives_the_numbers_and_the_figure(tmp_path, monkeypatch, capsys):
    """Point estimates do not depend on the number of resamples."""
    (tmp_path / "examples").mkdir()
    shutil.copy(INPUT, tmp_path / "examples")
    monkeypatch.chdir(tmp_path)
    assert cli.main([*NIH.split()[1:], "--n-resamples", "10", "--out", "runs/nih"]) == 0
    assert Path(capsys.readouterr().out.strip().splitlines()[-1]).is_file()
    monkeypatch.setattr("docs.results.FIGURE", tmp_path / "waterfall.svg")
    found = nih_headline(tmp_path)
    assert found in README
    pattern = r"Mean (?:of|over) findings, overall: ([\d.]+).*?alone: ([\d.]+).*?equal: ([\d.]+)"
    figure = re.search(pattern, FIGURE.read_text(), re.DOTALL)
    assert figure is not None
    assert list(figure.groups()) == re.findall(r"\*\*([\d.]+)\*\*", found)


def test_python_blocks_run_and_make_their_point(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # where a reader's own runs would be
    for block in blocks("python"):
        exec(compile(block, "README.md", "exec"), {})
    assert 0 < float(capsys.readouterr().out) < 1


def test_audit_command_runs_on_the_three_forms(tmp_path, monkeypatch, capsys):
    """The first in a process and an environment of its own, the others in this process: a start takes seconds."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 300)
    p = np.round(np.clip(0.3 * y + 0.6 * rng.random(300), 0, 1), 4)
    forms = {
        "wide": ("image_id,patient_id,Edema,prob_Edema", [f"i{k},p{k // 3},{y[k]},{p[k]}" for k in range(300)]),
        "long": ("image_id,patient_id,finding,label,prob", [f"i{k},p{k // 3},edema,{y[k]},{p[k]}" for k in range(300)]),
        "one": ("id,patient,label,score", [f"i{k},p{k // 3},{y[k]},{p[k]}" for k in range(300)]),
    }
    command = next(line for line in COMMANDS if line.startswith("cxrhf audit predictions.csv"))
    for form, (header, rows) in forms.items():
        folder = tmp_path / form
        folder.mkdir()
        (folder / "predictions.csv").write_text("\n".join([header, *rows]) + "\n")
        words = command.split()[1:]
        words += ["--n-resamples", "100"]
        if form == "wide":
            done = subprocess.run(
                [sys.executable, "-m", "cxrhf", *words],
                cwd=folder,
                capture_output=True,
                text=True,
                env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"},
                check=False,
            )
            assert done.returncode == 0, done.stderr
            printed = done.stdout
        else:
            monkeypatch.chdir(folder)
            assert cli.main(words) == 0, form
            printed = capsys.readouterr().out
        page = folder / printed.strip().splitlines()[-1]
        assert page.name == "report.html"
        assert page.exists()


def test_audit_commands_run_one_after_the_other(tmp_path, monkeypatch):
    """As a reader types them, in one folder, with the columns that the text around them asks for."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 300)
    rows = [
        f"i{k},p{k // 3},2019-0{1 + k % 3}-05,{40 + 10 * y[k] + k % 30},{'FM'[k % 2]},AP,{y[k]},0.{k % 90 + 10}"
        for k in range(300)
    ]
    text = ["image_id,patient_id,study_date,age,sex,view,Edema,prob_Edema", *rows]
    (tmp_path / "predictions.csv").write_text("\n".join(text) + "\n")
    monkeypatch.chdir(tmp_path)
    lines = [line for line in COMMANDS if line.startswith("cxrhf audit predictions.csv")]
    assert len(lines) == 2
    for line in lines:
        assert cli.main([*line.split()[1:], "--n-resamples", "20"]) == 0
        assert (tmp_path / line.split()[line.split().index("--out") + 1] / "report.html").is_file()


def test_commands_of_the_twin_run_one_after_the_other(tmp_path, monkeypatch, capsys):
    """From made-up films to what could be published; a small twin and a smaller network than the recipe's."""
    monkeypatch.chdir(tmp_path)
    more = {
        "build": ["--n-patients", "50", "--size", "64", "--seed", "2"],
        "fit": ["--n-resamples", "20", "--workers", "1", "--findings", "edema,support_devices"],
        "train": ["--backbone", "test_resnet", "--size", "32", "--max-steps", "8", "--findings",
                  "edema,support_devices"],
        "audit": ["--n-resamples", "20", "--only", "overview,context,encoding,features,slices"],
    }  # fmt: skip
    for line in TWIN:
        words = line.split()
        added = more.get(words[2] if words[1] == "context" else words[1], [])
        assert cli.main([*words[1:], *added]) == 0, (line, capsys.readouterr().err)
    printed = capsys.readouterr().out
    for file in ("weighted_auroc.py", "calibration.json", "model.safetensors", "images/test-00000-of-00001.parquet"):
        assert file in printed
    assert re.search(r'id="[\w-]+-features"', (tmp_path / "runs/quick/report.html").read_text())


def test_report_commands_run_one_after_the_other(tmp_path, monkeypatch, capsys):
    """On a small twin, a few steps, two strategies; and somebody's file."""
    from cxrhf.data.build import build
    from cxrhf.data.settings import BuildConfig

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CXRHF_CACHE", str(tmp_path / "cache"))
    build(BuildConfig("synthetic", out="data/twin", n_patients=40, seed=2, size=64, configuration="images"))
    rows = [f"{k},p{k},{'FM'[k % 2]},Clear lungs and heart {'ab'[k % 2]}.,Clear lungs." for k in range(60)]
    (tmp_path / "theirs.csv").write_text("\n".join(["id,pid,gender,ref,hyp", *rows]) + "\n")
    more = {
        "finetune": ["--max-steps", "4", "--max-examples", "16", "--max-validate", "4"],
        "generate": ["--strategies", "greedy,top_p", "--max-new-tokens", "12", "--n-images", "8"],
        "audit": ["--n-resamples", "20"],
    }
    for line in REPORTS:
        words = line.split()
        assert cli.main([*words[1:], *more.get(words[1], [])]) == 0, (line, capsys.readouterr().err)
    assert (tmp_path / "runs" / "words" / "report.html").is_file()
    rows = pq.read_table(tmp_path / "runs" / "words" / "results.parquet").to_pylist()
    different = {row["strategy"]: row["value"] for row in rows if row["metric"] == "n_templates"}
    assert different["greedy"] < different["top_p"] <= 8
    assert (tmp_path / "runs" / "theirs" / "report.html").is_file()


def test_links_of_the_readme_exist():
    for target in re.findall(r"\]\((?!https?:)([^)#]+)\)", README):
        assert (ROOT / target).exists(), target


def test_every_command_is_run_by_a_test():
    """All but `make demo` (the fixture `small_demo`), `make test`, and those that need credentialed data."""
    run = {line for line in COMMANDS if line.startswith("cxrhf audit predictions.csv")}
    run |= {*TWIN, *REPORTS, NIH}
    free = {line for line in COMMANDS if not re.search(r"mimic|runs/densenet", line)}
    assert {line for line in free if not line.startswith(("make ", "pip install "))} <= run
    assert len(COMMANDS) - len(free) == 5
