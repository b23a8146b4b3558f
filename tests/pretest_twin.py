"""A made-up hospital with 3,000 patients, its context run, and what is planted in its notes: for several test files."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from cxrhf.context.material import Material
from cxrhf.data.build import build
from cxrhf.data.settings import BuildConfig
from cxrhf.twin import write
from cxrhf.twin.texts import HISTORIES, level_of

FINDINGS = ("cardiomegaly", "edema", "consolidation")


class Twin(NamedTuple):
    raw: Path
    built: Path
    seed: int


def make_twin(folder: Path, n_patients: int, seed: int, **options: Any) -> Twin:
    """A twin without pictures, linked as cxrhf build links MIMIC."""
    write("mimic", folder / "raw", n_patients=n_patients, seed=seed, pixels=False, reports=False)
    config = BuildConfig(
        "mimic_cxr_context", root=(str(folder / "raw"),), out=str(folder / "built"), no_pixels=True, **options
    )
    build(config)
    return Twin(folder / "raw", folder / "built", seed)


class Planted(NamedTuple):
    """Of each image of the material: the exact P(y | C), what the notes tell of it (the level of C), P(y | level)."""

    pretest: np.ndarray
    level: np.ndarray
    best: np.ndarray
    text: dict[str, Any]  # truth.json


def planted(twin: Twin, material: Material, finding: str) -> Planted:
    rows = pl.read_parquet(twin.raw / "planted.parquet").filter(pl.col("finding") == finding)
    ids = pl.DataFrame({"image_id": material.images["image_id"].to_pylist()})
    rows = ids.join(rows, on="image_id", how="left", maintain_order="left")
    text = json.loads((twin.raw / "truth.json").read_text())["findings"][finding]["text"]
    level = level_of(rows["context"].to_numpy())
    return Planted(rows["pretest"].to_numpy(), level, np.array(text["pretest_of_level"])[level], text)


def planted_words(finding: str) -> set[str]:
    return {"".join(filter(str.isalnum, word)).lower() for said in HISTORIES[finding] for word in said.split()}


def permuted(material: Material, seed: int) -> Material:
    """Every patient has the labels of another one, over again where there are more images: notes tell nothing of them.

    Swaps among patients with as many images would not do: who has the most images would keep his own labels.
    """
    rng = np.random.default_rng(seed)
    y = material.y.copy()
    rows = np.split(np.argsort(material.patients, kind="stable"), np.cumsum(np.bincount(material.patients))[:-1])
    for one, other in zip(rows, rng.permutation(len(rows)), strict=True):
        y[one] = material.y[np.resize(rows[other], len(one))]
    return replace(material, y=y)
