"""The 25 class ratios of IMBALANCE, from the metadata tables in the wheel torchxrayvision.

What reproduces the ratios: frontal images (PA, AP), stitched labels, masked policy with No Finding a negative for the
others; patients in the order of the table, torch's random_split into int(.8 n) and the rest with seeds 0-4; the rest is
the test set; the ratio is positives / (positives + negatives) in each test set, averaged over the five.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import numpy as np
import polars as pl
import pytest

from cxrhf.data import chexpert as chexpert_reader
from cxrhf.data import nih as nih_reader
from cxrhf.data.attrition import Steps
from cxrhf.data.fields import apply_policy
from cxrhf.data.prepare import frontal, one_per_patient, without_devices
from cxrhf.data.settings import BuildConfig
from cxrhf.findings import CHEXPERT, NIH
from tests.real_data import published_tables

CHEXPERT_PERCENT = {
    "lung_opacity": 66.34, "pleural_effusion": 46.77, "edema": 42.04, "atelectasis": 47.26, "cardiomegaly": 34.16,
    "consolidation": 19.30, "enlarged_cardiomediastinum": 20.29, "fracture": 22.22, "pneumothorax": 11.83,
    "lung_lesion": 22.41, "pneumonia": 15.94,
}  # fmt: skip
NIH_PERCENT = {
    "infiltration": 11.07, "atelectasis": 5.30, "nodule": 5.40, "mass": 4.03, "pleural_effusion": 3.89,
    "cardiomegaly": 2.48, "pleural_thickening": 2.38, "fibrosis": 1.87, "consolidation": 1.37, "pneumothorax": 0.85,
    "emphysema": 0.83, "pneumonia": 0.51, "hernia": 0.26, "edema": 0.24,
}  # fmt: skip


@cache
def chexpert() -> pl.DataFrame:
    return chexpert_reader.read(BuildConfig("chexpert", root=(str(published_tables()),)), Steps("chexpert")).images


@cache
def nih() -> pl.DataFrame:
    name = "nih_chestxray14"
    return nih_reader.read(BuildConfig(name, root=(str(published_tables()),)), Steps(name)).images


def ratios(images: pl.DataFrame, findings: Sequence[str], choice: str = "stitched") -> dict[str, float]:
    """Positives among the labels that are known, in percent, averaged over the five test sets."""
    import torch

    patients = apply_policy(one_per_patient(images, findings, choice), findings, "masked")
    train = int(0.8 * patients.height)
    seeded = [torch.Generator().manual_seed(seed) for seed in range(5)]
    drawn = [torch.randperm(patients.height, generator=each).numpy()[train:] for each in seeded]  # as random_split does
    return {
        name: 100 * float(np.mean([np.nanmean(labels[test]) for test in drawn]))
        for name in findings
        for labels in [patients.get_column(name).cast(pl.Float64).to_numpy()]
    }


@pytest.mark.slow
def test_the_tables_are_the_published_ones() -> None:
    assert (chexpert().height, chexpert()["patient_id"].n_unique()) == (223_414, 64_540)
    assert (nih().height, nih()["patient_id"].n_unique()) == (112_120, 30_805)


def test_chexpert_ratios() -> None:
    found = ratios(frontal(chexpert()), CHEXPERT)
    assert {name: round(found[name], 2) for name in CHEXPERT_PERCENT} == CHEXPERT_PERCENT


def test_nih_ratios() -> None:
    found = ratios(frontal(nih()), NIH)
    assert {name: round(found[name], 2) for name in NIH_PERCENT} == NIH_PERCENT


def test_neither_first_images_nor_images_without_devices_give_them() -> None:
    """What the text says (devices excluded) and our default (the first image) are other sets: the numbers tell."""
    images = frontal(chexpert())
    for other in (ratios(images, CHEXPERT, "first"), ratios(without_devices(images), CHEXPERT)):
        assert sum(round(other[name], 2) == percent for name, percent in CHEXPERT_PERCENT.items()) == 0


def test_what_stitching_does_to_chexpert() -> None:
    images = frontal(chexpert())
    first, stitched = (one_per_patient(images, CHEXPERT, choice) for choice in ("first", "stitched"))
    for aside, percent in (("", 43.5), ("support_devices", 42.8)):
        counted = [name for name in CHEXPERT if name != aside]
        changed = pl.any_horizontal(pl.col(name).ne_missing(stitched.get_column(name)) for name in counted)
        assert round(100 * first.filter(changed).height / first.height, 1) == percent
    diseases = [name for name in CHEXPERT if name not in ("no_finding", "support_devices")]
    both = (pl.col("no_finding") == 1) & pl.any_horizontal(pl.col(*diseases) == 1)
    assert (images.filter(both).height, stitched.filter(both).height) == (0, 5_480)
