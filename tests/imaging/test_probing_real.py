"""Real X-rays and real ImageNet weights: what a network that never saw a chest hands over of sex and view."""

from __future__ import annotations

import csv
import gzip
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from cxrhf.models.data import Images
from cxrhf.models.probe_run import find_sources, make_study, probe_sources
from cxrhf.models.processes import make_accelerator
from cxrhf.models.settings import ProbeConfig
from tests.real_data import real_data


@dataclass(frozen=True)
class Files:
    paths: list[Path]

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, row: int) -> np.ndarray:
        from PIL import Image

        with Image.open(self.paths[row]) as picture:
            return np.asarray(picture.convert("L"), dtype=np.uint8)


def nih() -> Images:
    """The images of NIH that lie beside the project, without splits."""
    folder = real_data("nih/images")
    with gzip.open(real_data("nih/predictions.csv.gz"), "rt", encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["has_jpeg"] == "1"]
    table = pa.table(
        {
            "image_id": [row["image"] for row in rows],
            "patient_id": [row["patient_id"] for row in rows],
            "dataset": ["nih"] * len(rows),
            "split": pa.nulls(len(rows), pa.string()),
            "sex": [row["sex"] for row in rows],
            "view": [row["view"] for row in rows],
        }
    )
    return Images(table, Files([folder / row["image"].replace(".png", ".jpg") for row in rows]))


@pytest.mark.slow
@pytest.mark.real
def test_sex_and_view_are_read_from_a_network_of_photographs() -> None:
    config = ProbeConfig(
        "nih", ("imagenet",), targets=("sex", "view", "race"), folds=5, architecture="tf_efficientnet_lite0", size=80,
        n_resamples=500,
    )  # fmt: skip
    study = make_study(nih(), [], config)
    assert any(note.startswith("race is excluded") for note in study.notes)
    (found,) = probe_sources(study, find_sources(config), config, make_accelerator(device="cpu"), lambda _: None)
    rows = {(row["metric"], row["finding"]): row for row in found.results}
    assert rows["auroc", "sex=F"]["value"] > 0.8
    assert rows["auroc", "sex=F"]["ci_low"] > 0.75
    assert rows["auroc", "view=AP"]["value"] > 0.9
    assert rows["auroc", "sex=F"]["n"] == rows["auroc", "sex=F"]["n_patients"] == 621
