"""Generated reports through the front doors: `cxrhf audit` of files and runs, `cxrhf.audit` of tables."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import cxrhf
from cxrhf import cli
from cxrhf.errors import ConfigError
from cxrhf.schema import RESULT, WORD
from cxrhf.tables.files import read_table
from cxrhf.twin.planted_groups import word_reports
from tests.refusals import refused

FAST = ["--n-resamples", "20", "--word-groups", "sex"]


@pytest.fixture(scope="module")
def columns() -> dict[str, list[str]]:
    made = word_reports(120, seed=3)
    return {"pid": made.patient, "gender": made.group, "ref": made.reference, "hyp": made.generated}


@pytest.fixture
def theirs(columns: dict[str, list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "theirs.jsonl"
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_a_file_becomes_a_run_that_can_be_audited_again(theirs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    named = ["--generated", "hyp", "--reference", "ref", "--patient", "pid", "--sex", "gender"]
    assert cli.main(["audit", "theirs.jsonl", *named, *FAST]) == 0
    out = capsys.readouterr().out
    assert out.splitlines()[-1] == "runs/theirs/report.html"
    assert "words associated with women or men" in out
    run = theirs.parent / "runs" / "theirs"
    results = read_table(run / "results.parquet", RESULT)
    assert set(results["audit"].to_pylist()) == {"reports"}
    assert read_table(run / "words.parquet", WORD).num_rows > 300
    record = json.loads((run / "run.json").read_text())
    assert not record["may_show"]
    assert "mastectomy" not in json.dumps(record)
    page = (run / "report.html").read_text()
    assert "p00001" not in page  # no patient
    assert cli.main(["audit", "runs/theirs", *FAST]) == 0  # the run holds all it needs
    again = read_table(run / "results.parquet", RESULT)
    assert str(again.to_pylist()) == str(results.to_pylist())
    assert cli.main(["audit", "runs/theirs", "--only", "overview", *FAST]) == 2
    assert "there are no predictions to audit" in capsys.readouterr().err


@pytest.mark.slow
def test_predictions_and_reports_stand_in_one_run(
    columns: dict[str, list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    rows = {
        "id": list(range(120)),
        "patient": columns["pid"],
        "label": [0, 1] * 60,
        "score": [k % 7 / 7 for k in range(120)],
    }
    cxrhf.audit(rows, patient="patient", label="label", score="score", n_resamples=20, only="overview").save("both")
    found = cxrhf.audit(columns, patient="pid", sex="gender", reference="ref", generated="hyp", n_resamples=20,
                        word_groups="sex")  # fmt: skip
    found.save("words")
    (tmp_path / "words" / "generations.parquet").rename(tmp_path / "both" / "generations.parquet")
    assert cli.main(["audit", "both", "--only", "overview,reports", *FAST]) == 0
    audits = set(read_table(tmp_path / "both" / "results.parquet", RESULT)["audit"].to_pylist())
    assert audits == {"overview", "reports"}
    assert cli.main(["audit", "both", "--only", "reports", *FAST]) == 0
    assert set(read_table(tmp_path / "both" / "results.parquet", RESULT)["audit"].to_pylist()) == {"reports"}
    assert (tmp_path / "both" / "predictions.parquet").is_file()


def test_a_table_in_a_notebook(columns: dict[str, list[str]], tmp_path: Path) -> None:
    found = cxrhf.audit(columns, patient="pid", sex="gender", reference="ref", generated="hyp", n_resamples=20,
                        word_groups="sex")  # fmt: skip
    assert found.value("omitted_mass") > 0
    assert found.value("erasure", slice="sex=F", versus="sex=M", strategy="as given") >= 0
    assert "different" in repr(found)
    assert "<svg" in found._repr_html_() or "<table" in found._repr_html_()
    assert "displacement" in found.html()
    page = found.save(tmp_path / "run")
    assert page.is_file()
    with refused(ConfigError, "word_groups", got="sexx"):
        cxrhf.audit(columns, reference="ref", generated="hyp", word_groups="sexx")
    with refused(ConfigError, "p_star", got="2.0"):
        cxrhf.audit(columns, reference="ref", generated="hyp", p_star=2.0)
