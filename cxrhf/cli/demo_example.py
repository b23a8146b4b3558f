"""PREDICTION -> example.csv: what a model of the demo said, in the form a newcomer would bring a file of their own."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

NAME = "example.csv"
FINDINGS = ("edema", "pleural_effusion", "pneumothorax")
ABOUT_IMAGE = ("image_id", "patient_id", "sex", "age", "view")


def write_example(run: Path, predictions: pa.Table, model: str) -> Path:
    """The test images of one model: a row an image, label, probability and pre-test probability of each finding.

    `predictions` has `pretest` filled in; a finding that this demo does not have is left out.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    from cxrhf.tables.files import write_table

    mine = predictions.filter(pc.and_(pc.equal(predictions["model"], model), pc.equal(predictions["split"], "test")))
    wide: dict[str, list[object]] = {}
    for finding in FINDINGS:
        rows = mine.filter(pc.equal(mine["finding"], finding)).sort_by("image_id").to_pylist()
        if not rows:
            continue
        if not wide:
            wide = {name: [row[name] for row in rows] for name in ABOUT_IMAGE}
        wide[finding] = [row["label"] for row in rows]
        wide[f"prob_{finding}"] = [_rounded(row["prob"]) for row in rows]
        wide[f"pretest_{finding}"] = [_rounded(row["pretest"]) for row in rows]
    return write_table(pa.table(wide), run / NAME)


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)
