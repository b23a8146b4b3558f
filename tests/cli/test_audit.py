"""`cxrhf audit`, `report` and `demo` end to end: files in, run folder and page out."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from cxrhf import cli
from cxrhf.audits.run import progress_line
from cxrhf.cli.audit import default_out, say_first_time
from cxrhf.cli.demo import DemoConfig, is_done, made_with, resolve_config
from cxrhf.metrics.ranking import auroc
from cxrhf.report.lines import summary_lines
from cxrhf.schema import PREDICTION, RESULT
from cxrhf.tables.checks import table_of
from cxrhf.tables.files import read_table
from cxrhf.tables.predictions import read_predictions

VENDOR = "id,patient,truth,ai,sex\n" + "".join(
    f"i{at},p{at // 2},{(at // 2 + at // 7) % 2},0.{(at * 37) % 90 + 10},F\n" for at in range(40)
)
FLAGS = ["--label", "truth", "--score", "ai", "--finding", "Effusion", "--n-resamples", "50"]


@pytest.fixture
def vendor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "vendor.csv"
    path.write_text(VENDOR)
    return path


def test_audit(vendor: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["audit", "vendor.csv", *FLAGS, "--out", "runs/one", "--seed", "7"]) == 0
    got = capsys.readouterr()
    lines = got.out.splitlines()
    assert lines[0] == "vendor.csv: one-finding form, 40 rows, 40 images, 20 patients, 1 finding"
    assert lines[-1] == "runs/one/report.html"
    assert "no pretest column" in got.out.lower()
    assert "overview" in got.err
    folder = vendor.parent / "runs" / "one"
    assert sorted(each.name for each in folder.iterdir()) == [
        "curves.parquet", "figures", "predictions.parquet", "report.html", "results.json", "results.parquet",
        "run.json",
    ]  # fmt: skip
    results = read_table(folder / "results.parquet", RESULT)
    rows = [row for row in results.to_pylist() if row["metric"] == "auroc" and row["finding"] == "pleural_effusion"]
    table = read_predictions(vendor, label="truth", score="ai", finding="Effusion")
    assert rows[0]["value"] == pytest.approx(auroc(table["label"].to_numpy(), table["prob"].to_numpy()), abs=1e-12)
    assert (rows[0]["n"], rows[0]["n_patients"], rows[0]["seed"]) == (40, 20, 7)
    record = json.loads((folder / "run.json").read_text())
    assert record["inputs"][0]["name"] == "vendor.csv"
    assert record["inputs"][0]["size"] == len(VENDOR)
    assert (record["config"]["label"], record["config"]["n_resamples"]) == ("truth", 50)
    assert record["tables"]["predictions"] == 40
    assert record["tables"]["results"] == results.num_rows
    assert record["reading"][0] == lines[0]
    assert any("no pretest column" in note for note in record["notes"])


def test_a_run_folder_is_audited_in_place(vendor: Path) -> None:
    assert cli.main(["audit", "vendor.csv", *FLAGS]) == 0
    folder = vendor.parent / "runs" / "vendor"
    before, results = (folder / "predictions.parquet").read_bytes(), (folder / "results.parquet").read_bytes()
    inputs = json.loads((folder / "run.json").read_text())["inputs"]
    assert cli.main(["audit", "runs/vendor", "--findings", "Effusion", "--n-resamples", "50"]) == 0
    assert (folder / "predictions.parquet").read_bytes() == before
    assert (folder / "results.parquet").read_bytes() == results  # the same seed, the same numbers
    assert json.loads((folder / "run.json").read_text())["inputs"] == inputs


def test_another_input_is_refused(vendor: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["audit", "vendor.csv", *FLAGS, "-o", "r"]) == 0
    vendor.write_text(VENDOR.replace("0.47", "0.46"))
    assert cli.main(["audit", "vendor.csv", *FLAGS, "-o", "r"]) == 2
    assert "made from other inputs" in capsys.readouterr().err
    assert cli.main(["audit", "vendor.csv", *FLAGS, "-o", "r", "--overwrite"]) == 0


def test_config_file_and_flags(vendor: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (vendor.parent / "c.yaml").write_text(
        "predictions: vendor.csv\nlabel: truth\nscore: ai\nlevel: 0.9\nseed: 4\nout: r\noverwrite: true\n"
        "n_resamples: 40\n"
    )
    assert cli.main(["audit", "--config", "c.yaml", "--seed", "5"]) == 0
    config = json.loads((vendor.parent / "r" / "run.json").read_text())["config"]
    assert (config["predictions"], config["level"], config["seed"]) == (["vendor.csv"], 0.9, 5)
    assert "with 90% intervals" in capsys.readouterr().out
    (vendor.parent / "c.yaml").write_text("levle: 0.9\n")
    assert cli.main(["audit", "vendor.csv", "--config=c.yaml"]) == 2
    assert "c.yaml: unknown key 'levle'" in capsys.readouterr().err


def test_report_again(vendor: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["audit", "vendor.csv", *FLAGS, "-o", "r"]) == 0
    page = vendor.parent / "r" / "report.html"
    before = page.read_text()
    page.unlink()
    capsys.readouterr()
    assert cli.main(["report", "r"]) == 0
    assert capsys.readouterr().out == "r/report.html\n"
    assert page.read_text() == before
    (vendor.parent / "r" / "results.parquet").unlink()
    assert cli.main(["report", "r"]) == 2
    assert "has no results.parquet" in capsys.readouterr().err


def test_demo(small_demo: Path) -> None:
    printed = (small_demo / "printed.txt").read_text().splitlines()
    assert printed[-1] == "runs/demo/report.html"
    run = small_demo / "runs" / "demo"
    record = json.loads((run / "run.json").read_text())
    assert record["verb"] == "demo"
    assert record["config"]["n_patients"] == 40
    table = read_table(run / "predictions.parquet", PREDICTION)
    assert table["pretest"].null_count < table.num_rows
    for command in ("push metric --all", "push model runs/demo/network", "push model runs/demo/writer/model",
                    "push model runs/demo/context", "push dataset runs/demo/data"):  # fmt: skip
        assert any(line.strip().startswith(f"cxrhf {command} --to USER") for line in printed), command
    assert not any("cannot be published" in line for line in printed)
    assert (run / "model_cards" / "network" / "README.md").is_file()
    example = read_predictions(run / "example.csv")
    assert set(example["finding"].to_pylist()) == {"edema", "pleural_effusion", "pneumothorax"}
    assert example["pretest"].null_count < example.num_rows
    assert any("audit runs/demo/example.csv --out runs/example" in line for line in printed)
    listed = (run / "push.txt").read_text()
    for file in ("weighted_auroc.py", "model.safetensors", "adapter_model.safetensors", "results.json"):
        assert f" {file} " in listed


SMALL = ("demo", "--out", "runs/demo", "--n-patients", "40", "--size", "64", "--n-resamples", "20", "--steps", "4",
         "--report-steps", "4")  # fmt: skip


def test_a_finished_demo_is_not_made_again(
    small_demo: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The same commands and the same page at the end; other settings, code or a missing page, and it goes on."""
    monkeypatch.chdir(small_demo)
    page = Path("runs/demo/report.html")
    before = page.stat().st_mtime_ns
    assert cli.main(SMALL) == 0
    printed = capsys.readouterr().out.splitlines()
    assert "is finished" in printed[0]
    assert printed[1:] == (small_demo / "printed.txt").read_text().splitlines()[1 - len(printed) :]
    assert page.stat().st_mtime_ns == before
    config = resolve_config(
        DemoConfig(out="runs/demo", n_patients=40, size=64, n_resamples=20, steps=4, report_steps=4)
    )
    stamp = made_with(config)
    assert is_done(page.parent, stamp)
    assert made_with(replace(config, n_resamples=21)) != stamp
    monkeypatch.setattr("cxrhf.run.versions", lambda: {"cxrhf": "0"})
    assert made_with(config) != stamp
    assert not is_done(page.parent, made_with(config))
    assert not is_done(page.parent / "network", stamp)


@pytest.mark.slow
def test_a_demo_again_and_of_another_seed(
    small_demo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What the first one trained is kept; `small_demo` stays as it is."""
    shutil.copytree(small_demo / "runs", tmp_path / "runs")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs" / "demo" / "report.html").unlink()
    small = list(SMALL)
    weights = tmp_path / "runs" / "demo" / "network" / "models" / "seed-0" / "model.safetensors"
    before = weights.stat().st_mtime_ns
    assert cli.main(small) == 0
    assert weights.stat().st_mtime_ns == before
    assert (tmp_path / "runs" / "demo" / "report.html").is_file()
    assert cli.main([*small, "--seed", "1"]) == 2
    assert "made from other inputs" in capsys.readouterr().err


def test_a_bad_file_makes_no_run(vendor: Path, capsys: pytest.CaptureFixture[str]) -> None:
    vendor.write_text("id,patient,label,score\na,p,7,0.5\n")
    assert cli.main(["audit", "vendor.csv"]) == 2
    said = capsys.readouterr().err
    assert said.startswith("error: vendor.csv")
    assert "label" in said
    assert "got 7" in said.replace('"', "")
    assert not (vendor.parent / "runs").exists()


def test_json_for_a_script(vendor: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--score", "ai", "--label", "truth", "--n-resamples", "20", "--only", "overview"]
    assert cli.main(["audit", "vendor.csv", "--out", "runs/j", *words, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["page"] == "runs/j/report.html"
    assert json.loads((vendor.parent / told["results"]).read_text())["results"]
    assert cli.main(["doctor", "nih_chestxray14", "--root", ".", "--json"]) == 2
    told = json.loads(capsys.readouterr().out)
    assert not told["ready"]
    assert {each["verdict"] for each in told["checks"]} & {"MISSING", "WRONG"}


def test_default_out(tmp_path: Path) -> None:
    assert default_out([Path("a/b.csv.gz")]) == Path("runs/b")
    assert default_out([tmp_path]) == tmp_path


def test_summary() -> None:
    def row(**changes: object) -> dict[str, object]:
        return {"audit": "overview", "metric": "auroc", "finding": "edema", "slice": "all", "value": 0.5, **changes}

    rows = [
        row(model="a", value=0.5, ci_low=0.4, ci_high=0.6, n=1000, n_pos=10),
        row(model="b", value=float("nan")),
        row(model="a", metric="brier", value=0.1),
        row(model="a", slice="sex=F", value=0.9),
        row(model="a", versus="b", value=0.01),
    ]
    lines = summary_lines(table_of(rows, RESULT), 0.95)
    assert "95%" in lines[0]
    assert lines[1:] == [
        "finding   images  positive  auroc                brier",
        "a: edema  1,000   10        0.500 (0.400-0.600)  0.100",
        "b: edema                    undefined",
    ]
    rows += [row(model="a", metric="auroc_att", value=0.4)]
    assert summary_lines(table_of(rows, RESULT), 0.95)[1].split() == [
        "finding",
        "images",
        "positive",
        "auroc",
        "auroc_att",
    ]
    assert summary_lines(table_of([], RESULT), 0.95) == ["No whole-sample results."]


def test_progress_goes_to_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    progress_line()("half way")
    got = capsys.readouterr()
    assert got.out == ""
    assert got.err.endswith("s] half way\n")


def test_a_first_audit_says_that_it_compiles(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("cxrhf.metrics.compiled.is_kept", lambda kernel: True)
    say_first_time()
    monkeypatch.setattr("cxrhf.metrics.compiled.is_kept", lambda kernel: False)
    assert capsys.readouterr().err == ""
    say_first_time()
    assert "compiles" in capsys.readouterr().err
