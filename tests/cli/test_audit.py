"""`cxrhf audit` end to end, with audits and report stood in for: files in, run folder and page out."""

from __future__ import annotations

import json
import sys
import types
from pathlib import Path

import pyarrow as pa
import pytest

from cxrhf import cli
from cxrhf.cli.audit import default_out, progress_line, summary_lines
from cxrhf.config import AuditConfig
from cxrhf.schema import CURVE, PREDICTION, RESULT, read_table, table_of

VENDOR = "id,patient,truth,ai,sex\n" + "".join(f"i{at},p{at // 2},{at % 2},0.{at}5,F\n" for at in range(8))
FLAGS = ["--label", "truth", "--score", "ai", "--finding", "Effusion"]


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch) -> list[AuditConfig]:
    """Replaces cxrhf.audits and cxrhf.report; the returned list holds the configs the audits were called with."""
    seen: list[AuditConfig] = []

    def run_audits(predictions: pa.Table, config: AuditConfig, progress: object) -> object:
        assert predictions.schema.equals(PREDICTION)
        seen.append(config)
        progress("overview: pleural_effusion")  # type: ignore[operator]
        row = {"audit": "overview", "metric": "auroc", "model": "model", "finding": "pleural_effusion", "slice": "all",
               "value": 0.75, "ci_low": 0.6, "ci_high": 0.9, "n": 8, "n_pos": 4}  # fmt: skip
        curves = table_of([{"kind": "roc", "slice": "all", "x": 0.0, "y": 0.0}], CURVE)
        return types.SimpleNamespace(results=[row], curves=curves, notes=["8 images are few"])

    def write_report(path: Path) -> Path:
        assert (path / "results.parquet").is_file()
        assert json.loads((path / "run.json").read_text())["finished"]
        (path / "report.html").write_text("<html>")
        return path / "report.html"

    audits, report = types.ModuleType("cxrhf.audits"), types.ModuleType("cxrhf.report")
    audits.run_audits, report.write_report = run_audits, write_report  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "cxrhf.audits", audits)
    monkeypatch.setitem(sys.modules, "cxrhf.report", report)
    return seen


@pytest.fixture
def vendor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "vendor.csv"
    path.write_text(VENDOR)
    return path


def test_audit(vendor: Path, stand_in: list[AuditConfig], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["audit", "vendor.csv", *FLAGS, "--out", "runs/one", "--n-resamples", "50", "--seed", "7"]) == 0
    got = capsys.readouterr()
    lines = got.out.splitlines()
    assert lines[0] == "vendor.csv: one-finding form, 8 rows, 8 images, 4 patients, 1 finding"
    assert lines[-1] == "runs/one/report.html"
    assert "pleural_effusion  8       4         0.750 (0.600-0.900)" in got.out
    assert "note: 8 images are few" in got.out
    assert "overview: pleural_effusion" in got.err
    assert (stand_in[0].n_resamples, stand_in[0].seed) == (50, 7)
    folder = vendor.parent / "runs" / "one"
    assert sorted(each.name for each in folder.iterdir()) == [
        "curves.parquet", "predictions.parquet", "report.html", "results.parquet", "run.json",
    ]  # fmt: skip
    assert read_table(folder / "results.parquet", RESULT).num_rows == 1
    record = json.loads((folder / "run.json").read_text())
    assert record["inputs"][0]["name"] == "vendor.csv"
    assert record["inputs"][0]["size"] == len(VENDOR)
    assert record["config"]["label"] == "truth"
    assert record["tables"] == {"predictions": 8, "results": 1, "curves": 1}
    assert record["reading"][0] == lines[0]
    assert record["notes"] == ["8 images are few"]


def test_a_run_folder_is_audited_in_place(vendor: Path, stand_in: list[AuditConfig]) -> None:
    assert cli.main(["audit", "vendor.csv", *FLAGS]) == 0
    folder = vendor.parent / "runs" / "vendor"
    before = (folder / "predictions.parquet").read_bytes()
    inputs = json.loads((folder / "run.json").read_text())["inputs"]
    assert cli.main(["audit", "runs/vendor", "--findings", "Effusion"]) == 0
    assert (folder / "predictions.parquet").read_bytes() == before
    assert json.loads((folder / "run.json").read_text())["inputs"] == inputs
    assert len(stand_in) == 2


def test_another_input_is_refused(
    vendor: Path, stand_in: list[AuditConfig], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["audit", "vendor.csv", *FLAGS, "-o", "r"]) == 0
    vendor.write_text(VENDOR.replace("0.15", "0.16"))
    assert cli.main(["audit", "vendor.csv", *FLAGS, "-o", "r"]) == 2
    assert "made from other inputs" in capsys.readouterr().err
    assert cli.main(["audit", "vendor.csv", *FLAGS, "-o", "r", "--overwrite"]) == 0


def test_config_file_and_flags(vendor: Path, stand_in: list[AuditConfig], capsys: pytest.CaptureFixture[str]) -> None:
    (vendor.parent / "c.yaml").write_text(
        "predictions: vendor.csv\nlabel: truth\nscore: ai\nlevel: 0.9\nseed: 4\nout: r\noverwrite: true\n"
    )
    assert cli.main(["audit", "--config", "c.yaml", "--seed", "5"]) == 0
    config = stand_in[0]
    assert (config.predictions, config.level, config.seed, config.overwrite) == (("vendor.csv",), 0.9, 5, True)
    assert "with 90% intervals" in capsys.readouterr().out
    (vendor.parent / "c.yaml").write_text("levle: 0.9\n")
    assert cli.main(["audit", "vendor.csv", "--config=c.yaml"]) == 2
    assert "c.yaml: unknown key 'levle'" in capsys.readouterr().err


def test_report_again(vendor: Path, stand_in: list[AuditConfig], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["audit", "vendor.csv", *FLAGS, "-o", "r"]) == 0
    (vendor.parent / "r" / "report.html").unlink()
    capsys.readouterr()
    assert cli.main(["report", "r"]) == 0
    assert capsys.readouterr().out == "r/report.html\n"
    assert (vendor.parent / "r" / "report.html").exists()
    (vendor.parent / "r" / "results.parquet").unlink()
    assert cli.main(["report", "r"]) == 2
    assert "has no results.parquet" in capsys.readouterr().err


@pytest.mark.usefixtures("stand_in")
def test_demo(vendor: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("cxrhf.data.planted")
    small = ["demo", "--out", "runs/d", "--n-patients", "30", "--n-resamples", "20"]
    assert cli.main(small) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "runs/d/report.html"
    assert cli.main(small) == 0  # the same again
    assert cli.main([*small, "--seed", "1"]) == 2
    assert "made from other inputs" in capsys.readouterr().err
    record = json.loads((vendor.parent / "runs" / "d" / "run.json").read_text())
    assert record["verb"] == "demo"
    assert record["config"]["n_patients"] == 30
    table = read_table(vendor.parent / "runs" / "d" / "predictions.parquet", PREDICTION)
    assert table["pretest"].null_count < table.num_rows


def test_a_bad_file_makes_no_run(vendor: Path, capsys: pytest.CaptureFixture[str]) -> None:
    vendor.write_text("id,patient,label,score\na,p,7,0.5\n")
    assert cli.main(["audit", "vendor.csv"]) == 2
    assert "error: vendor.csv: column 'label', line 2: not a label. Got: 7." in capsys.readouterr().err
    assert not (vendor.parent / "runs").exists()


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
    assert lines == [
        "Whole sample, with 95% intervals from resampled patients:",
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
