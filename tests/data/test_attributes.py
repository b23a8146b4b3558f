"""Annotation files in either shape -> ATTRIBUTE rows, with what was left out counted."""

from __future__ import annotations

import polars as pl
import pytest

from cxrhf.data.fields import read_attributes
from cxrhf.errors import SourceError
from cxrhf.schema import ATTRIBUTE
from cxrhf.tables.checks import check
from tests.refusals import refused

IMAGES = pl.DataFrame({"image_id": ["00000001_000", "00000001_001", "train/patient00001/study1/view1_frontal"]})


def written(tmp_path, text: str):
    (tmp_path / "drain.csv").write_text(text)
    return read_attributes(tmp_path / "drain.csv", IMAGES)


def test_a_column_for_each_attribute(tmp_path):
    rows, note = written(
        tmp_path,
        ",IMAGE INDEX,Chest Drain,ECG-wires,Patient ID,Remark\n"
        "0,00000001_000.png,1,no,1,small tube\n"
        "1,00000001_001.png,0.0,TRUE,1,\n"
        "2,00000009_000.png,1,,9,\n",
    )
    assert rows.rows() == [
        ("00000001_000", "chest_drain", "1"),
        ("00000001_001", "chest_drain", "0"),
        ("00000001_000", "ecg_wires", "0"),
        ("00000001_001", "ecg_wires", "1"),
        ("00000001_000", "remark", "small tube"),
    ]
    assert note.startswith("drain.csv: chest_drain, ecg_wires, remark; excluded: ")
    assert "cells: 3; " in note
    assert note.endswith("(1 distinct): 1")
    check(rows.to_arrow(), ATTRIBUTE)


def test_a_row_for_each_attribute(tmp_path):
    rows, note = written(tmp_path, "Image,Name,Value\n00000001_000,Chest Drain,Yes\n00000001_000,Side,left\n")
    assert rows.rows() == [("00000001_000", "chest_drain", "1"), ("00000001_000", "side", "left")]
    assert note == "drain.csv: chest_drain, side"


@pytest.mark.parametrize("column", ["Path", "filename", "image_id", "Image Index", "path_to_image", "dicom_id"])
@pytest.mark.parametrize(
    "picture",
    [
        "train/patient00001/study1/view1_frontal",
        "train/patient00001/study1/view1_frontal.jpg",
        "CheXpert-v1.0-small/train/patient00001/study1/view1_frontal.JPG",
    ],
)
def test_pictures_by_any_of_their_names(tmp_path, column, picture):
    rows, _ = written(tmp_path, f"{column},drain\n{picture},1\n")
    assert rows["image_id"].to_list() == ["train/patient00001/study1/view1_frontal"]


def test_a_picture_with_its_folders(tmp_path):
    assert written(tmp_path, "image,drain\nimages_001/images/00000001_001.png,0\n")[0].rows() == [
        ("00000001_001", "drain", "0")
    ]


def test_the_same_annotation_twice_is_one_and_two_different_ones_are_an_error(tmp_path):
    assert written(tmp_path, "image,drain\n00000001_000,1\n00000001_000.png,yes\n")[0].height == 1
    with refused(SourceError, '"drain"', '"00000001_000"', got="1 and 0"):
        written(tmp_path, "image,drain\n00000001_000,1\n00000001_000,0\n")


@pytest.mark.parametrize(
    ("text", "facts"),
    [
        ("patient,drain\n1,1\n", ["columns patient, drain", "image_id"]),
        ("image,patient id\nx,1\n", ["columns image, patient id", "drain"]),
        ("image,drain\nx,1,2\n", ["line 2", "3", "2 cells"]),
    ],
)
def test_files_of_another_shape_are_errors(tmp_path, text, facts):
    with refused(SourceError, "drain.csv", *facts):
        written(tmp_path, text)
