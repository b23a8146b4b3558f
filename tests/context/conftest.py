"""A made-up hospital with notes, built once: its predictions with what is planted, and without."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pytest

from cxrhf.context.notes import Prior, prior_notes_of_build
from cxrhf.data.build import build
from cxrhf.data.load import load_images, load_notes
from cxrhf.data.settings import BuildConfig
from cxrhf.twin import layout_ids, write
from cxrhf.twin.models import predictions


class Hospital(NamedTuple):
    raw: Path
    built: Path
    planted: pa.Table  # PREDICTION rows with the exact pretest and mention
    bare: pa.Table  # the same without them
    images: pa.Table
    notes: pa.Table
    prior: Prior


def without(table: pa.Table, *names: str) -> pa.Table:
    for name in names:
        at = table.schema.get_field_index(name)
        table = table.set_column(at, table.schema.field(at), pa.nulls(table.num_rows, table.schema.field(at).type))
    return table


@pytest.fixture(scope="session")
def hospital(tmp_path_factory: pytest.TempPathFactory) -> Hospital:
    folder = tmp_path_factory.mktemp("hospital")
    made = write("mimic", folder / "raw", n_patients=900, seed=4, pixels=False, reports=False)
    config = BuildConfig("mimic_cxr_context", root=(str(folder / "raw"),), out=str(folder / "built"), no_pixels=True)
    build(config)
    planted = predictions(made, ids=layout_ids("mimic", made, 4))
    bare = without(planted, "mention", "pretest")
    images = load_images(folder / "built", columns=["image_id", "patient_id", "study_time", "prior_note_ids"])
    notes = load_notes(folder / "built")
    return Hospital(folder / "raw", folder / "built", planted, bare, images, notes,
                    prior_notes_of_build(images, notes, predictions=bare))  # fmt: skip
