"""`cxrhf zeroshot`: from a build and a CLIP to predictions, and their calibration without a network of ours."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from cxrhf import cli
from cxrhf.data.load import load_images
from cxrhf.models.clip import load_clip
from cxrhf.schema import PREDICTION
from cxrhf.tables.files import read_table
from tests.models.clip_tiny import save_clip


def test_a_run_and_its_calibration(twin: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    clip, run = save_clip(tmp_path / "clip"), tmp_path / "run"
    words = ["--findings", "edema,support_devices", "--splits", "train,test", "--embed", "--device", "cpu"]
    assert cli.main(["zeroshot", str(twin), "--model", str(clip), "--out", str(run), *words]) == 0
    n = {split: load_images(twin, split=split).num_rows for split in ("train", "test")}
    rows = read_table(run / "predictions.parquet", PREDICTION)
    assert rows.num_rows == 2 * sum(n.values())
    assert set(rows["model"].to_pylist()) == {"clip zero-shot"}
    raw = 1 / (1 + np.exp(-np.asarray(rows["logit"])))
    np.testing.assert_allclose(rows["prob"], raw, rtol=1e-12)
    assert pq.read_table(run / "embeddings.parquet").num_rows == sum(n.values())
    record = json.loads((run / "run.json").read_text())
    assert record["weights"] == load_clip(str(clip), "cpu").model_hash()
    assert record["prompts"]["edema"]["positive"] == ["chest x-ray showing pulmonary edema"]
    assert str(tmp_path) not in json.dumps(record)

    before = []
    for method in ("platt", "isotonic"):
        capsys.readouterr()
        assert cli.main(["calibrate", str(run), "--method", method, "--split", "train"]) == 0
        before += re.findall(r"test, mean of 2 findings: Brier (\S+) ->", capsys.readouterr().out)
        after = read_table(run / "predictions.parquet", PREDICTION)
        assert np.abs(np.asarray(after["prob"]) - raw).max() > 0.05
    # What is gained is gained over the model's own probabilities, not over those of the calibration before.
    assert len(before) == 2
    assert before[0] == before[1]
