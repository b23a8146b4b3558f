"""`cxrhf audit --notes`: a file of notes in, mentions and a pre-test probability out, and no word of any note."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from cxrhf import cli
from cxrhf.schema import PREDICTION, RESULT
from cxrhf.tables.files import read_table

SECRET = "zebracode"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("notes")
    rng = np.random.default_rng(0)
    n = 400
    known = rng.random(n) < 0.4  # what the chart says
    label = (rng.random(n) < np.where(known, 0.7, 0.1)).astype(int)
    table = {
        "image_id": [f"i{at}" for at in range(n)],
        "patient_id": [f"p{at}" for at in range(n)],
        "study_date": ["2019-05-02"] * n,
        "label": label,
        "prob": np.clip(0.3 * label + 0.3 * known + 0.4 * rng.random(n), 0, 1),
    }
    pd.DataFrame(table).to_csv(folder / "predictions.csv", index=False)
    notes = [
        {
            "patient_id": f"p{at}",
            "charttime": "2019-04-01 10:00:00",
            "text": f"{SECRET} admitted with {'edema of both lungs' if known[at] else 'a broken toe'}, sent home",
        }
        for at in range(n - 50)
    ]
    # Written on the day of the image and after it: never context.
    notes += [
        {"patient_id": f"p{at}", "charttime": when, "text": "edema edema edema"}
        for at in range(n)
        for when in ("2019-05-02", "2019-05-03 10:00:00")
    ]
    pd.DataFrame(notes).to_csv(folder / "notes.csv", index=False)
    flags = ["--finding", "Edema", "--notes", str(folder / "notes.csv"), "--n-resamples", "100"]
    assert cli.main(["audit", str(folder / "predictions.csv"), *flags, "--out", str(folder / "run")]) == 0
    return folder / "run"


def test_notes_give_the_audits_of_context(run: Path) -> None:
    rows = read_table(run / "results.parquet", RESULT).to_pylist()
    found = {(row["metric"], row["slice"]): row for row in rows if row["finding"] == "edema" and not row["versus"]}
    assert found["auroc_context", "all"]["value"] > 0.7
    assert found["auroc_att", "all"]["n"] == 350  # the 50 patients without a prior note are left out
    assert found["auroc", "mention=yes"]["n"] + found["auroc", "mention=no"]["n"] == 350
    predictions = read_table(run / "predictions.parquet", PREDICTION)
    assert predictions["mention"].null_count == predictions["pretest"].null_count == 50


def test_no_word_of_a_note_leaves(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for path in run.rglob("*"):
        if path.is_file():
            assert SECRET.encode() not in path.read_bytes(), path.name


def test_notes_without_image_times_are_refused(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = run.parent
    pd.read_csv(folder / "predictions.csv").drop(columns="study_date").to_csv(folder / "timeless.csv", index=False)
    flags = ["--finding", "Edema", "--notes", str(folder / "notes.csv"), "--out", str(folder / "other")]
    assert cli.main(["audit", str(folder / "timeless.csv"), *flags]) == 2
    assert "--time" in capsys.readouterr().err
    assert not (folder / "other").exists()
