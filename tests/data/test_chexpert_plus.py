"""CheXpert Plus: table, labels as JSON lines, sections, PNGs under the names of JPGs."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import polars as pl
import pytest

from cxrhf.data import chexpert_plus
from cxrhf.data.attrition import Steps
from cxrhf.data.chexpert import LABELS
from cxrhf.data.settings import BuildConfig
from cxrhf.errors import SourceError
from cxrhf.findings import CHEXPERT
from cxrhf.twin.chexpert import write_chexpert_plus
from tests.data.twin import check_planted, write_twin
from tests.refusals import refused

COLUMNS = (
    "path_to_image", "path_to_dcm", "frontal_lateral", "ap_pa", "deid_patient_id", "patient_report_date_order",
    "report", "section_clinical_history", "section_history", "section_comparison", "section_findings",
    "section_impression", "age", "sex", "race", "ethnicity", "split",
)  # fmt: skip
PLAIN = {
    "frontal_lateral": "Frontal",
    "ap_pa": "AP",
    "age": "54",
    "sex": "Male",
    "race": "White",
    "ethnicity": "Non-Hispanic/Non-Latino",
    "section_impression": 'Nothing new,\nas "before".',
}


def name(patient: int, study: int = 1, view: str = "view1_frontal", split: str = "train") -> str:
    return f"{split}/patient{patient:05d}/study{study}/{view}.jpg"


def row(patient: int, *place, **changes: str) -> dict[str, str]:
    return {**PLAIN, "path_to_image": name(patient, *place), "deid_patient_id": f"patient{patient:05d}", **changes}


def write(folder: Path, *rows: dict[str, str]) -> Path:
    with (folder / "df_chexpert_plus_240401.csv").open("w", newline="") as stream:
        writer = csv.DictWriter(stream, COLUMNS)
        writer.writeheader()
        writer.writerows(rows)
    return folder


def write_labels(folder: Path, *rows: dict, file: str = "impression_fixed.json") -> Path:
    path = folder / "chexbert_labels" / file
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(json.dumps(each) + "\n" for each in rows))
    return path


def labels(path: str, **found: float | None) -> dict:
    return {"path_to_image": path, **dict.fromkeys(LABELS), **found}


def read(*root: Path, steps: Steps | None = None, **settings):
    return chexpert_plus.read(BuildConfig("chexpert_plus", root=root, **settings), steps or Steps("chexpert_plus"))


def test_rows_sections_and_people(tmp_path):
    write(
        tmp_path,
        row(1, section_clinical_history="Cough.", section_history="Old.", section_findings="Clear."),
        row(1, 2, "view2_lateral", frontal_lateral="Lateral", ap_pa="", section_history="Fall.", sex="Unknown"),
        row(64541, 1, "view1_frontal", "valid", race="Patient Refused", ethnicity="Hispanic/Latino", ap_pa="PA"),
    )
    steps = Steps("chexpert_plus")
    source = read(tmp_path, steps=steps)
    images = source.images
    assert images["image_id"].to_list() == [
        "train/patient00001/study1/view1_frontal",
        "train/patient00001/study2/view2_lateral",
        "valid/patient64541/study1/view1_frontal",
    ]
    assert images["study_id"].to_list() == ["patient00001/study1", "patient00001/study2", "patient64541/study1"]
    assert images["split"].to_list() == ["train", "train", "validate"]
    assert images["view"].to_list() == ["AP", "LATERAL", "PA"]
    assert images["indication"].to_list() == ["Cough.", "Fall.", None]
    assert images["findings"].to_list() == ["Clear.", None, None]
    assert images["impression"].to_list() == [PLAIN["section_impression"]] * 3
    assert images["race"].to_list() == ["white", "white", None]
    assert images["ethnicity"].to_list() == ["non-hispanic", "non-hispanic", "hispanic"]
    assert images["sex"].to_list() == ["M", None, "M"]
    assert "study_time" not in images.columns
    assert images["path"].to_list()[0] == str(tmp_path / "PNG/train/patient00001/study1/view1_frontal.png")
    assert images.select(source.findings).null_count().sum_horizontal()[0] == 14 * 3
    assert "chexbert_labels/impression_fixed.json was not found" in steps.rows[-1]["note"]


def test_labels_of_the_impression_come_first(tmp_path):
    steps = Steps("chexpert_plus")
    for folder in (tmp_path / "report", tmp_path / "all"):
        folder.mkdir()
        write(folder, row(1), row(2), row(3))
        write_labels(folder, labels(name(2), Edema=0.0), file="report_fixed.json")
    assert read(tmp_path / "report", steps=steps).images["edema"].to_list() == [None, 0, None]
    assert steps.rows[-1]["note"] == "from report_fixed.json; images without labels: 2"
    rows = labels(name(2), Edema=1.0), labels(name(1), Edema=-1.0, Fracture=0.0), labels(name(9))
    write_labels(tmp_path / "all", *rows)
    source = read(tmp_path / "all", steps=steps)
    assert source.findings == CHEXPERT
    assert source.images["edema"].to_list() == [-1, 1, None]
    assert source.images["fracture"].to_list() == [0, None, None]
    assert all(source.images.schema[finding] == pl.Int8 for finding in CHEXPERT)
    said = "from impression_fixed.json; images without labels: 1; labels of images not in the table: 1"
    assert steps.rows[-1]["note"] == said


@pytest.mark.parametrize(("folder", "ending"), [("PNG", "png"), ("", "png"), ("", "jpg"), ("CheXpert-v1.0", "jpg")])
def test_pictures_are_found_wherever_they_lie(tmp_path, folder, ending):
    write(tmp_path, *(row(each) for each in range(1, 50)))
    there = (tmp_path / folder / name(30)).with_suffix(f".{ending}")
    there.parent.mkdir(parents=True)
    there.write_bytes(b"")
    assert read(tmp_path).images["path"][29] == str(there)


def test_the_sample_of_encoding(tmp_path):
    write(
        tmp_path,
        row(1),
        row(2, race="Black or African American"),
        row(3, race="Other"),
        row(4, ethnicity="Hispanic/Latino"),
        row(5, 1, "view1_lateral", frontal_lateral="Lateral", ap_pa=""),
        row(6, 1, "view1_frontal", "valid"),
    )
    assert read(tmp_path, sample="encoding").images["patient_id"].to_list() == ["patient00001", "patient00002"]


@pytest.mark.parametrize(
    ("rows", "facts"),
    [
        ([row(1), row(1)], ['"train/patient00001/study1/view1_frontal"', "2 rows"]),
        ([row(1, age="fifty")], ['column "age", row 1', '"fifty"']),
        ([row(1, deid_patient_id="patient00002")], ["different patient", "deid_patient_id patient00002"]),
        ([row(1, path_to_image="1.jpg")], ['column "path_to_image", row 1', "1.jpg"]),
    ],
)
def test_what_cannot_be_read_is_an_error(tmp_path, rows, facts):
    write(tmp_path, *rows)
    with refused(SourceError, *facts):
        read(tmp_path)


@pytest.mark.parametrize(
    ("rows", "facts"),
    [
        ([labels(name(1)), labels(name(1))], ['"train/patient00001/study1/view1_frontal"', "several rows"]),
        ([labels(name(1), Edema=0.5)], ['"edema" of image "train/patient00001/', "0.5"]),
        ([{"path_to_image": name(1), "Edma": 1.0}], ["line 1", '"No Finding"', "fields path_to_image, Edma"]),
        ([["no object"]], ["line 1", '"path_to_image"']),
    ],
)
def test_labels_that_cannot_be_read_are_errors(tmp_path, rows, facts):
    write(tmp_path, row(1))
    write_labels(tmp_path, *rows)
    with refused(SourceError, *facts):
        read(tmp_path)


def test_cut_labels_are_an_error(tmp_path):
    write(tmp_path, row(1), row(2))
    path = write_labels(tmp_path, labels(name(1), Edema=1.0), labels(name(2), Edema=1.0))
    path.write_text(path.read_text()[:-60])
    with refused(SourceError, "impression_fixed.json", "JSON lines"):
        read(tmp_path)
    path.write_text("no JSON\n")
    with refused(SourceError, "impression_fixed.json, line 1", "JSON object"):
        read(tmp_path)


@pytest.mark.parametrize("dirty", [False, True])
def test_the_twin_is_read_as_it_was_planted(tmp_path, dirty):
    planted, defects = write_twin(write_chexpert_plus, tmp_path, dirty=dirty)
    source = read(tmp_path)
    check_planted(source, planted)
    images = source.images
    assert images.filter(pl.col("pneumothorax") == 1).height > 0
    bare = images.filter(pl.all_horizontal(pl.col(finding).is_null() for finding in CHEXPERT))["image_id"]
    assert set(defects.get("no_labels", [])) <= set(bare)
    missing = images.filter(pl.col("impression").is_null())["study_id"].unique()
    assert set(defects.get("impression_missing", [])) <= set(missing)
