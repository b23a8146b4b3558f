"""ReXGradient's JSON of studies -> a row a picture, with views, ages, days and sections as the house writes them."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path

import polars as pl
import pytest

from cxrhf.data import rexgradient
from cxrhf.data.attrition import Steps
from cxrhf.data.settings import BuildConfig
from cxrhf.errors import SourceError
from cxrhf.twin.rexgradient import write_rexgradient
from tests.data.twin import check_planted, write_twin
from tests.refusals import refused

PLAIN = {
    "PatientID": "GRDN1",
    "AccessionNumber": "GRDNA",
    "StudyInstanceUid": "1.2.3",
    "StudyDate": "20150102",
    "PatientSex": "F",
    "PatientAge": "045Y",
    "Indication": "Cough.",
    "Comparison": "None.",
    "Findings": "Clear lungs.",
    "Impression": "",
}


def study(*pictures: str, views: list[str | None] | None = None, **changes):
    paths = [f"../deid_png/GRDN1/GRDNA/studies/1.2.3/series/1/instances/{each}.png" for each in pictures]
    return {**PLAIN, "ImagePath": paths, "ImageViewPosition": views or ["PA"] * len(paths), **changes}


def write(folder: Path, split: str = "test", **studies) -> Path:
    (folder / "metadata").mkdir(parents=True, exist_ok=True)
    (folder / "metadata" / f"{split}_metadata_view_position.json").write_text(json.dumps(studies))
    return folder


def read(*root: Path, steps: Steps | None = None):
    return rexgradient.read(BuildConfig("rexgradient", root=root), steps or Steps("rexgradient"))


def test_a_row_a_picture(tmp_path):
    write(tmp_path, one=study("1.2.3.4", "1.2.3.5", views=["POSTERO_ANTERIOR", "LL"]))
    write(tmp_path, "valid", two=study("7.8", PatientID="GRDN2", StudyDate="", PatientSex="U", PatientAge=""))
    write(tmp_path, "train", three=study("9.8", PatientID="GRDN3", PatientAge="012M", PatientSex="M"))
    source = read(tmp_path)
    images = source.images
    assert source.findings == ()
    assert images["image_id"].to_list() == ["9.8", "7.8", "1.2.3.4", "1.2.3.5"]
    assert images["study_id"].to_list() == ["three", "two", "one", "one"]
    assert images["patient_id"].to_list() == ["GRDN3", "GRDN2", "GRDN1", "GRDN1"]
    assert images["split"].to_list() == ["train", "validate", "test", "test"]
    assert images["view"].to_list() == ["PA", "PA", "PA", "LATERAL"]
    assert images["sex"].to_list() == ["M", None, "F", "F"]
    assert images["age"].to_list() == [1.0, None, 45.0, 45.0]
    day = datetime(2015, 1, 2)
    assert images["study_time"].to_list() == [day, None, day, day]
    sections = images.select("indication", "comparison", "findings", "impression").row(0)
    assert sections == ("Cough.", "None.", "Clear lungs.", None)
    assert images["path"][0] == str(tmp_path / "deid_png/GRDN1/GRDNA/studies/1.2.3/series/1/instances/9.8.png")


def test_pictures_beside_another_root(tmp_path):
    write(tmp_path / "tables", one=study("1.2"))
    there = tmp_path / "disk" / "deid_png/GRDN1/GRDNA/studies/1.2.3/series/1/instances/1.2.png"
    there.parent.mkdir(parents=True)
    there.write_bytes(b"")
    assert read(tmp_path / "tables", tmp_path / "disk").images["path"].to_list() == [str(there)]


@pytest.mark.parametrize(
    ("said", "view"),
    [
        ("PA", "PA"), ("POSTERO_ANTERIOR", "PA"), ("ANTERO_POSTERIOR", "AP"), ("AP AXIAL", "AP"), ("ap", "AP"),
        ("RL", "LATERAL"), ("LATERAL", "LATERAL"), ("LLD", "LLD"), (None, None), ("", None),
    ],
)  # fmt: skip
def test_views(tmp_path, said, view):
    assert read(write(tmp_path, one=study("1.2", views=[said]))).images["view"].to_list() == [view]


def test_uneven_lists_lose_their_views_and_are_counted(tmp_path):
    write(
        tmp_path,
        one=study("1.2", "1.3", views=["PA"]),
        two=study("2.2", views=["PA", "AP"]),
        three=study("3.2", "3.3", views=["AP", "LATERAL"]),
        four={**study("4.2"), "ImageViewPosition": None},
        five={**study(), "ImageViewPosition": []},
    )
    steps = Steps("rexgradient")
    images = read(tmp_path, steps=steps).images
    assert images["view"].to_list() == [None, None, None, "AP", "LATERAL", None]
    assert steps.rows[0]["note"] == (
        "missing files: train, valid; studies with fewer or more views than images, views set to missing: 3; "
        "studies without an image, excluded: 1; images with unknown view: 4"
    )


def without(key: str):
    return {name: value for name, value in study("1.2").items() if name != key}


@pytest.mark.parametrize(
    ("studies", "facts"),
    [
        ({"one": study("1.2"), "two": study("1.2")}, ['"1.2"', "2 rows"]),
        ({"one": {**without("Findings"), "Finding": ""}}, ['"one"', '"Findings"', "'Finding'"]),
        ({"one": without("ImagePath")}, ['"one"', '"ImagePath"']),
        ({"one": study("1.2", PatientAge="forty")}, ['column "PatientAge"', '"forty"']),
        ({"one": study("1.2", StudyDate="2015")}, ['"one"', '"StudyDate"', '"2015"']),
        ({"one": study("1.2", ImagePath="a.png")}, ['"one"', '"ImagePath"', "a list", "a.png"]),
        ({"one": ["1.2"]}, ['"one"', "a JSON object", "list"]),
    ],
)
def test_what_cannot_be_read_is_an_error(tmp_path, studies, facts):
    write(tmp_path, **studies)
    with refused(SourceError, *facts):
        read(tmp_path)


def test_damaged_and_missing_files(tmp_path):
    with refused(SourceError, "test_metadata_view_position.json", fix="cxrhf doctor rexgradient"):
        read(tmp_path)
    write(tmp_path, one=study("1.2"))
    path = tmp_path / "metadata" / "test_metadata_view_position.json"
    path.write_text(path.read_text()[:-40])
    with refused(SourceError, "test_metadata_view_position.json, line 1", "JSON"):
        read(tmp_path)
    path.write_text("[]")
    with refused(SourceError, "one key per study", got="list"):
        read(tmp_path)


@pytest.mark.parametrize("dirty", [False, True])
def test_the_twin_is_read_as_it_was_planted(tmp_path, dirty):
    planted, defects = write_twin(write_rexgradient, tmp_path, dirty=dirty)
    source = read(tmp_path)
    check_planted(source, planted)
    images = source.images
    assert set(images["split"]) == {"train", "validate", "test"}
    assert set(images["view"].drop_nulls()) <= {"PA", "AP", "LATERAL"}
    assert images["findings"].is_not_null().any()
    empty = images.filter(pl.col("age").is_null())["study_id"].unique().sort().to_list()
    assert empty == sorted(defects.get("age_missing", []))


def test_a_field_may_be_absent_in_one_study_and_no_key_may_stand_twice(tmp_path):
    other = study("2")
    del other["Comparison"]
    images = read(write(tmp_path, one=study("1"), two=other)).images
    assert images["comparison"].to_list() == ["None.", None]
    (tmp_path / "metadata" / "test_metadata_view_position.json").write_text('{"one": 1, "one": 2}')
    with refused(SourceError, '"one" appears twice'):
        read(tmp_path)
