"""A small twin in a dataset's layout, and the check that a reader gives back what was planted in it."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

import polars as pl

from cxrhf.data.prepare import Source
from cxrhf.twin.people import People, people


@lru_cache(maxsize=1)
def small_twin() -> People:
    return people(40, seed=5)


def write_twin(write: Callable[..., None], folder: Path, **settings) -> tuple[pl.DataFrame, dict[str, list[str]]]:
    """The layout's files without pictures; what is true of every image, and the planted defects."""
    write(small_twin(), folder, seed=1, pixels=False, **settings)
    defects = folder / "defects.json"
    return pl.read_parquet(folder / "planted.parquet"), json.loads(defects.read_text()) if defects.exists() else {}


def check_planted(source: Source, planted: pl.DataFrame) -> None:
    """The same images under the same ids, and no label other than the true one, uncertain or blank."""
    ids = ["image_id", "study_id", "patient_id"]
    assert planted.select(ids).unique().sort("image_id").equals(source.images.select(ids).sort("image_id"))
    assert source.images["path"].null_count() == 0
    for finding in source.findings:
        true = planted.filter(pl.col("finding") == finding).select("image_id", "y")
        read = source.images.select("image_id", label=finding).join(true, on="image_id")
        assert read.filter(pl.col("label").is_in([0, 1]) & (pl.col("label") != pl.col("y"))).height == 0, finding
