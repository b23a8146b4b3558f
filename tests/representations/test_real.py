"""Real X-rays, a real model's predictions, real ImageNet features: sex and view are read, slices surface AP and PA."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cxrhf import cli
from cxrhf.models.data import open_squares
from cxrhf.models.predict import embedding_rows
from cxrhf.models.probe import new_backbone
from cxrhf.models.processes import make_accelerator
from cxrhf.models.step import look_at
from cxrhf.tables.files import read_table, write_table
from tests.imaging.test_probing_real import nih
from tests.real_data import real_data

pytestmark = pytest.mark.real


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    folder: Path = tmp_path_factory.mktemp("nih")
    predictions = real_data("nih/predictions.csv.gz")
    images = nih()
    frozen = new_backbone("imagenet", "tf_efficientnet_lite0", size=80, seed=0)
    squares = open_squares(images, frozen.look, memory=0.0, progress=lambda _: None)
    seen = look_at(
        frozen.model, squares, len(images), make_accelerator(device="cpu"), batch_size=64, workers=0, vectors=True,
        progress=lambda _: None, what="imagenet",
    )  # fmt: skip
    assert seen.vectors is not None
    write_table(embedding_rows(images, seen.vectors, model="imagenet"), folder / "vectors.parquet")
    flags = ["--embeddings", str(folder / "vectors.parquet"), "--only", "encoding,slices", "--n-resamples", "200"]
    flags += ["--findings", "pleural_effusion,atelectasis", "--dataset", "nih", "--out", str(folder / "run")]
    assert cli.main(["audit", str(predictions), *flags]) == 0
    return read_table(folder / "run" / "results.parquet").to_pylist()


@pytest.mark.slow
def test_sex_and_view_are_read_from_the_vectors(rows: list[dict[str, Any]]) -> None:
    found = {row["finding"]: row for row in rows if row["metric"] == "split_auroc"}
    assert found["sex=F"]["value"] > 0.8
    assert found["sex=F"]["ci_low"] > 0.7
    assert found["view=AP"]["value"] > 0.9
    assert found["view=AP"]["ci_low"] > 0.8


@pytest.mark.slow
def test_slices_surface_the_view(rows: list[dict[str, Any]]) -> None:
    """On patients that had no part in finding it, some slice of each finding's negatives is full of AP films."""
    for finding in ("pleural_effusion", "atelectasis"):
        ratios = [
            row["ci_low"]
            for row in rows
            if row["metric"] == "odds_ratio" and row["finding"] == finding and row["slice"].endswith("& view=AP")
        ]
        assert max(ratios) > 2, finding
