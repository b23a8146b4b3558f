"""A small build on disk -> the tables that load.py gives: splits, columns, pictures, policies, notes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cxrhf.data.load import build_record, list_splits, load_images, load_notes
from cxrhf.errors import ConfigError, RunError, TableError
from cxrhf.schema import IMAGE, NOTE, image_schema
from cxrhf.tables.checks import check
from tests.refusals import refused

FINDINGS = ["no_finding", "edema", "support_devices"]
LABELS = {  # raw labels of each split's images
    "train": [(None, 1, 1), (1, None, 1), (None, -1, None)],
    "validate": [(None, None, 0)],
    "test": [(None, 0, -1), (1, -1, None)],
}


def image_rows(split: str) -> list[dict[str, Any]]:
    return [
        {
            "image": {"bytes": b"picture", "path": f"{split}{at}.png"},
            "image_id": f"{split}{at}",
            "patient_id": f"p{split}{at}",
            "split": split,
            "prior_note_ids": ["n1", "n0"],
            **dict(zip(FINDINGS, labels, strict=True)),
        }
        for at, labels in enumerate(LABELS[split])
    ]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    build = tmp_path / "build"
    (build / "images").mkdir(parents=True)
    (build / "notes").mkdir()
    (build / "build.json").write_text(json.dumps({"labels": "positive_only", "findings": FINDINGS, "more": 1}))
    schema = image_schema(FINDINGS)
    for split in LABELS:
        rows = pa.Table.from_pylist(image_rows(split), schema)
        cut = 2 if split == "train" else rows.num_rows
        for shard, part in enumerate([rows[:cut], rows[cut:]] if split == "train" else [rows]):
            pq.write_table(part, build / "images" / f"{split}-{shard:05d}.parquet")
    notes = [{"note_id": f"n{at}", "patient_id": "p", "kind": "discharge", "text": f"text {at}"} for at in range(10)]
    pq.write_table(pa.Table.from_pylist(notes[:7], NOTE), build / "notes" / "notes-00000.parquet", row_group_size=2)
    pq.write_table(pa.Table.from_pylist(notes[7:], NOTE), build / "notes" / "notes-00001.parquet")
    return build


def test_all_images_come_without_pictures_under_the_recorded_policy(folder: Path) -> None:
    table = load_images(folder)
    assert table.num_rows == 6
    assert table.column_names == [name for name in image_schema(FINDINGS).names if name != "image"]
    assert table.schema.metadata[b"label_policy"] == b"positive_only"
    assert table.schema.metadata[b"table"] == b"IMAGE", "what the shards said stays"
    assert table["image_id"].to_pylist() == ["train0", "train1", "train2", "validate0", "test0", "test1"]
    assert table["edema"].to_pylist() == [1, 0, 0, 0, 0, 0]
    assert table["prior_note_ids"][0].as_py() == ["n1", "n0"]
    assert check(table, IMAGE).num_rows == 6


def test_a_split_reads_its_shards_in_order(folder: Path) -> None:
    assert load_images(folder, split="train")["image_id"].to_pylist() == ["train0", "train1", "train2"]
    assert list_splits(folder) == ["train", "validate", "test"]


@pytest.mark.parametrize(
    ("labels", "edema"),
    [
        ("masked", [1, 0, None]),
        ("ones", [1, 0, 1]),
        ("zeros", [1, 0, 0]),
        ("raw", [1, None, -1]),
    ],
)
def test_another_policy_by_name(folder: Path, labels: str, edema: list[int | None]) -> None:
    table = load_images(folder, split="train", labels=labels)
    assert table["edema"].to_pylist() == edema
    assert table.schema.field("edema").type == pa.int8()
    assert table.schema.metadata[b"label_policy"] == labels.encode()
    assert table.schema.names == load_images(folder, split="train").schema.names


def test_masked_sees_no_finding_though_it_was_not_asked_for(folder: Path) -> None:
    table = load_images(folder, labels="masked", split="test", columns=["edema", "image_id"])
    assert table.column_names == ["edema", "image_id"], "the order asked for"
    assert table["edema"].to_pylist() == [0, 0]


def test_pictures_are_read_when_they_are_asked_for(folder: Path) -> None:
    table = load_images(folder, columns=["image_id", "image"], split="validate")
    assert table.to_pylist() == [{"image_id": "validate0", "image": {"bytes": b"picture", "path": "validate0.png"}}]


def test_wrong_names_are_answered_with_the_nearest(folder: Path) -> None:
    with refused(RunError, '"valid"', "train, validate, test", fix="'validate'"):
        load_images(folder, split="valid")
    with refused(ConfigError, "zeros, raw", got='"mask"', fix="'masked'"):
        load_images(folder, labels="mask")
    with refused(TableError, '"oedema"', fix="'edema'"):
        load_images(folder, columns=["oedema"])
    with refused(TableError, '"txt"', "NOTE", fix="'text'"):
        load_notes(folder, columns=["txt"])


def test_a_folder_that_is_no_build(tmp_path: Path, folder: Path) -> None:
    with refused(RunError, "build.json", f"{tmp_path}/none", got="no such file", fix=str(folder)):
        load_images(tmp_path / "none")
    with refused(RunError, "build.json", got="a folder with other files"):
        load_images(tmp_path)
    (tmp_path / "build.json").write_text('{"labels": "masked", "findings": []}')
    with refused(RunError, "no images", fix="--configuration images"):
        load_images(tmp_path)
    with refused(RunError, "no notes", fix="--configuration linked"):
        load_notes(tmp_path)
    for text in ('{"labels": "masked"}', "[]", "{"):
        (tmp_path / "build.json").write_text(text)
        with refused(RunError, "build.json"):
            build_record(tmp_path)
    shard = folder / "images" / "test-00000.parquet"
    pq.write_table(pq.read_table(shard).drop_columns(["edema"]), shard)
    with refused(TableError, "test-00000.parquet", '"edema"'):
        load_images(folder)
    shard.write_bytes(b"PAR1 cut")
    with refused(TableError, "test-00000.parquet", "Parquet"):
        load_images(folder)


def test_notes_and_a_few_texts(folder: Path) -> None:
    notes = load_notes(folder)
    assert notes.schema.names == NOTE.names
    assert notes["note_id"].to_pylist() == [f"n{at}" for at in range(10)]
    assert load_notes(folder, columns=["patient_id"]).column_names == ["patient_id"]
