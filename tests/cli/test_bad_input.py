"""Bad and strange input to `cxrhf audit`: a clear error or a correct page, never a traceback."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

from cxrhf import cli
from cxrhf.schema import RESULT
from cxrhf.tables.files import read_table
from tests.cli.fuzzed import fuzzed


def audit(text: str, folder: Path, *flags: str, name: str = "f.csv") -> int:
    (folder / name).write_text(text)
    return cli.main(["audit", str(folder / name), "--out", str(folder / "run"), "--n-resamples", "50", *flags])


def rows(folder: Path, **where: object) -> list[dict]:
    found = read_table(folder / "run" / "results.parquet", RESULT).to_pylist()
    return [row for row in found if all(row[key] == value for key, value in where.items())]


def table(label: list, score: list, patient: list | None = None, **more: list) -> str:
    columns = {"id": list(range(len(label))), "patient": patient or list(range(len(label))), "label": label}
    columns |= {"score": score, **more}
    lines = [",".join(columns)]
    lines += [",".join(str(values[at]) for values in columns.values()) for at in range(len(label))]
    return "\n".join(lines)


def test_no_rows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert audit("id,patient,label,score\n", tmp_path) == 2
    assert "has no rows" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("label", [0, 1])
def test_one_class(tmp_path: Path, label: int) -> None:
    assert (
        audit(table([label] * 30, np.linspace(0, 1, 30).tolist(), pretest=[0.5] * 30, sex=["F", "M"] * 15), tmp_path)
        == 0
    )
    for row in rows(tmp_path, metric="auroc"):
        assert np.isnan(row["value"])
        assert row["note"]
    assert "undefined" in (tmp_path / "run" / "report.html").read_text()


def test_one_patient(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    label = [0, 1] * 20
    assert (
        audit(table(label, rng.random(40).tolist(), patient=[7] * 40, pretest=rng.random(40).tolist()), tmp_path) == 0
    )
    (row,) = rows(tmp_path, metric="auroc", audit="overview", finding="finding")
    assert np.isfinite(row["value"])
    assert np.isnan(row["ci_low"])
    assert "1 patient" in row["method"]


def test_all_scores_tied(tmp_path: Path) -> None:
    assert audit(table([0, 1] * 30, [0.5] * 60, pretest=[0.5] * 60, sex=["F"] * 30 + ["M"] * 30), tmp_path) == 0
    (row,) = rows(tmp_path, metric="auroc", audit="overview", finding="finding")
    assert row["value"] == 0.5
    for row in rows(tmp_path, metric="auroc_drop", finding="finding"):
        assert row["value"] == 0
        assert row["p_value"] in (1, None)


def test_probabilities_of_zero_and_one(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    label = (rng.random(200) < 0.3).astype(int)
    score = np.where(rng.random(200) < 0.8, label, 1 - label)
    q = np.where(rng.random(200) < 0.5, label, rng.integers(0, 2, 200))
    assert audit(table(label.tolist(), score.tolist(), pretest=q.tolist()), tmp_path) == 0
    (row,) = rows(tmp_path, metric="brier", audit="overview", finding="finding")
    assert row["value"] == pytest.approx(np.mean((score - label) ** 2))
    assert all(row["value"] is not None for row in rows(tmp_path))


def test_scores_that_are_no_probabilities(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rng = np.random.default_rng(2)
    label = (rng.random(200) < 0.3).astype(int)
    score = rng.uniform(0, 1.8, 200) + label
    score[0] = 2.8
    assert audit(table(label.tolist(), score.tolist()), tmp_path) == 0
    assert "2.8" in capsys.readouterr().out
    assert rows(tmp_path, metric="auroc")
    assert not rows(tmp_path, metric="brier")
    assert "ranking metrics only" in (tmp_path / "run" / "report.html").read_text()


def test_three_positives(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    label = [1] * 3 + [0] * 300
    text = table(
        label, rng.random(303).tolist(), pretest=rng.random(303).tolist(), sex=rng.choice(["F", "M"], 303).tolist()
    )
    assert audit(text, tmp_path) == 0
    (verdict,) = rows(tmp_path, metric="verdict", audit="overview", finding="finding")
    assert "too few" in verdict["note"]
    assert "too few" in (tmp_path / "run" / "report.html").read_text().lower()


def test_hostile_names_do_no_harm(tmp_path: Path) -> None:
    bad = "<script>alert(1)</script>"
    rng = np.random.default_rng(4)
    label = (rng.random(200) < 0.4).astype(int)
    groups = rng.choice([bad, "M"], 200).tolist()
    text = table(label.tolist(), rng.random(200).tolist(), race=groups, finding=[bad] * 200, model=[bad] * 200)
    assert audit(text, tmp_path) == 0
    page = (tmp_path / "run" / "report.html").read_text()
    assert "alert(1)" in page
    assert bad not in page
    json.loads((tmp_path / "run" / "results.json").read_text())


def _one(seed: int, folder: Path, capsys: pytest.CaptureFixture[str]) -> int:
    path, flags = fuzzed(seed, folder)
    run = folder / f"run{seed}"
    code = cli.main(["audit", str(path), "--out", str(run), *flags])
    said = capsys.readouterr()
    where = f"seed {seed}: {path.name} {flags}: {said.err[-600:]}"
    assert code in (0, 2), where
    assert "Traceback" not in said.err, where
    assert not set(said.out + said.err) & set("\x1b\x07\u202e") or "full helptext" in said.err, where
    if code == 0:
        assert (run / "report.html").stat().st_size > 1000, where
        read_table(run / "results.parquet", RESULT)
    else:
        assert said.err.strip().startswith(("error:", "[")) or "error" in said.err or "full helptext" in said.err, where
        assert not (run / "report.html").exists(), where
    path.unlink()
    return code


def test_fuzzed_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    codes = [_one(seed, tmp_path, capsys) for seed in range(6)]
    assert 0 < codes.count(0) < 6  # both ways are walked


@pytest.mark.slow
def test_a_thousand_fuzzed_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    codes = [_one(seed, tmp_path, capsys) for seed in range(1000)]
    with capsys.disabled():
        print(f"\n{codes.count(0)} of 1000 fuzzed files gave a page, {codes.count(2)} a clear error")


@pytest.mark.parametrize("out", ["f.csv", "f.csv/deeper", "full"])
def test_a_folder_that_cannot_be_used_is_said_before_anything_is_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], out: str
) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.doc").write_text("mine")
    assert audit(table([0, 1] * 20, [0.5] * 40), tmp_path, "--out", str(tmp_path / out)) == 2
    said = capsys.readouterr()
    assert "not a run folder" in said.err
    assert said.out == ""
    assert [each.name for each in (tmp_path / "full").iterdir()] == ["thesis.doc"]


def test_no_space_left_is_no_mystery(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device", "run/results.parquet")

    monkeypatch.setattr("cxrhf.run.open_run", full)
    assert audit(table([0, 1] * 20, [0.5] * 40), tmp_path) == 2
    assert "run/results.parquet: No space left on device." in capsys.readouterr().err


def test_every_dataset_is_in_the_printed_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rng = np.random.default_rng(5)
    label = (rng.random(200) < 0.4).astype(int).tolist()
    text = table(label, rng.random(200).tolist(), dataset=["here"] * 100 + ["there"] * 100)
    assert audit(text, tmp_path, "--only", "overview") == 0
    said = capsys.readouterr().out
    assert "here: finding" in said
    assert "there: finding" in said
    assert "macro" not in said  # of one finding the mean says nothing more


def test_a_name_cannot_steer_the_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rng = np.random.default_rng(6)
    label = (rng.random(100) < 0.4).astype(int).tolist()
    model = ["\x1b[31mred\u202e"] * 50 + ["b" * 300] * 50
    text = table(label, rng.random(100).tolist(), model=model, **{"extra\x1b[2J": [1] * 100})
    assert audit(text, tmp_path, "--only", "overview") == 0
    said = capsys.readouterr()
    assert not set(said.out + said.err) & set("\x1b\u202e")
    assert "b" * 100 not in said.out


def test_the_limits_of_a_fitted_pretest_are_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rng = np.random.default_rng(7)
    label = (rng.random(200) < 0.4).astype(int).tolist()
    text = table(label, rng.random(200).tolist(), sex=rng.choice(["F", "M"], 200).tolist())
    assert audit(text, tmp_path, "--pretest", "from:sex", "--only", "overview") == 0
    assert re.search(r"pre-test probability[^.]* only [^.]*sex", " ".join(capsys.readouterr().out.split()))


@pytest.mark.parametrize("column", ["model", "dataset", "finding"])
def test_ids_in_the_wrong_column_do_not_become_models(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], column: str
) -> None:
    rng = np.random.default_rng(8)
    label = (rng.random(300) < 0.4).astype(int).tolist()
    text = table(label, rng.random(300).tolist(), **{column: [f"SECRET{at}" for at in range(300)]})
    assert audit(text, tmp_path) == 2
    said = capsys.readouterr()
    assert f'column "{column}"' in said.err.replace("'", '"')
    assert "300" in said.err
    assert "SECRET" not in said.out + said.err
    assert not (tmp_path / "run").exists()


def _backwards(folder: Path, findings: dict[str, bool], capsys: pytest.CaptureFixture[str]) -> str:
    rng = np.random.default_rng(9)
    columns: dict[str, list] = {"image_id": list(range(300)), "patient_id": list(range(300))}
    for finding, turned in findings.items():
        label = rng.random(300) < 0.4
        score = np.clip(rng.normal(0.35 + 0.25 * label, 0.2), 0, 1)
        score = 1 - score if turned else score
        columns |= {f"label_{finding}": (label * 1).tolist(), f"prob_{finding}": score.tolist()}
    lines = [",".join(columns), *(",".join(map(str, row)) for row in zip(*columns.values(), strict=True))]
    assert audit("\n".join(lines), folder, "--only", "overview") == 0
    return " ".join(capsys.readouterr().out.split())


def test_scores_the_wrong_way_round_are_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = _backwards(tmp_path, {"edema": True, "mass": False}, capsys)
    assert "Edema: scores seem to be the wrong way round (AUROC 0.1" in said
    assert "check whether higher scores mean disease" in said
    assert "Mass: scores seem" not in said
    page = (tmp_path / "run" / "report.html").read_text()
    assert "Scores seem to be the wrong way round" in page
    assert "wrong way round?" in page


def test_scores_that_are_all_the_wrong_way_round_are_said_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = _backwards(tmp_path, {"edema": True, "mass": True, "nodule": True}, capsys)
    assert said.count("the wrong way round") == 1
    assert "for all 3 findings" in said
    assert "check whether higher scores mean disease" in (tmp_path / "run" / "report.html").read_text()
