"""ChestX-ray14's tables of both years, the lists, pictures in many folders; against the real table and pictures."""

from __future__ import annotations

import time
from pathlib import Path

import polars as pl
import pytest
import yaml

import cxrhf.configs
from cxrhf.data import nih
from cxrhf.data.attrition import Steps
from cxrhf.data.prepare import prepare
from cxrhf.data.settings import BuildConfig
from cxrhf.errors import ConfigError, SourceError
from cxrhf.twin import write
from cxrhf.twin.nih import write_nih
from tests.data.twin import check_planted, write_twin
from tests.real_data import published_tables, real_data
from tests.refusals import refused

HEADER = (
    "Image Index,Finding Labels,Follow-up #,Patient ID,Patient Age,Patient Gender,View Position,"
    "OriginalImage[Width,Height],OriginalImagePixelSpacing[x,y]"
)
SIZE = "2682,2749,0.143,0.143"


def read(*root: Path, steps: Steps | None = None):
    return nih.read(BuildConfig("nih_chestxray14", root=root), steps or Steps("nih_chestxray14"))


def write_entries(folder: Path, *rows: tuple[str, str, str], name: str = "Data_Entry_2017_v2020.csv", end: str = ""):
    lines = [
        f"{image}.png,{labels},{int(image[-3:])},{int(image[:8])},{age},M,PA,{SIZE}{end}" for image, labels, age in rows
    ]
    (folder / name).write_text("\n".join((HEADER + end, *lines)) + "\n")


def test_labels_ids_and_people(tmp_path):
    write_entries(
        tmp_path,
        ("00000001_000", "Effusion|Pleural_Thickening", "58"),
        ("00000001_001", "No Finding", "59"),
        ("00000002_000", "", "4"),
    )
    steps = Steps("nih_chestxray14")
    source = read(tmp_path, steps=steps)
    images = source.images
    assert images["image_id"].to_list() == ["00000001_000", "00000001_001", "00000002_000"]
    assert images["study_id"].to_list() == images["image_id"].to_list()
    assert images["patient_id"].to_list() == ["1", "1", "2"]
    assert (images["sex"].to_list(), images["view"].to_list()) == (["M"] * 3, ["PA"] * 3)
    assert images["age"].to_list() == [58.0, 59.0, 4.0]
    assert images["pleural_effusion"].to_list() == [1, 0, None]
    assert images["pleural_thickening"].to_list() == [1, 0, None]
    assert images["mass"].to_list() == [0, 0, None]
    assert images["no_finding"].to_list() == [0, 1, None]
    assert len(source.findings) == 15
    assert "split" not in images.columns
    assert "no label: 1" in steps.rows[0]["note"]


def test_the_table_of_2017_has_units_and_a_comma_too_many(tmp_path):
    rows = [("058Y", 58.0), ("018M", 1.5), ("012D", 12 / 365.25), ("411Y", None), ("148Y", None), ("000Y", 0.0)]
    write_entries(
        tmp_path,
        *((f"{at:08d}_000", "Mass", age) for at, (age, _) in enumerate(rows)),
        name="Data_Entry_2017.csv",
        end=",",
    )
    steps = Steps("nih_chestxray14")
    assert read(tmp_path, steps=steps).images["age"].to_list() == [years for _, years in rows]
    assert steps.rows[0]["note"] == "age above 120, set to missing: 2"


def test_official_lists(tmp_path):
    write_entries(tmp_path, *((f"0000000{at}_000", "Mass", "50") for at in range(1, 5)))
    (tmp_path / "train_val_list.txt").write_text("00000001_000.png\n00000003_000.png\n00000099_000.png\n")
    (tmp_path / "test_list.txt").write_text("00000002_000.png")
    steps = Steps("nih_chestxray14")
    assert read(tmp_path, steps=steps).images["split"].to_list() == ["train", "test", "train", None]
    step = next(step for step in steps.rows if step["step"] == "official split")
    assert step["note"] == "images in neither list: 1; listed names not in the table: 1"
    (tmp_path / "test_list.txt").write_text("00000001_000.png\n")
    with refused(SourceError, '"00000001_000"', "train_val_list.txt", "test_list.txt"):
        read(tmp_path)


def test_pictures_in_many_folders(tmp_path):
    write_entries(tmp_path, *((f"0000000{at}_000", "Mass", "50") for at in range(1, 6)))
    there = ["images/00000001_000.png", "images_001/images/00000002_000.png", "images_012/images/00000003_000.jpg"]
    there.append("images-224/images-224/00000004_000.png")
    for each in there:
        (tmp_path / each).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / each).write_bytes(b"")
    steps = Steps("nih_chestxray14")
    paths = read(tmp_path, steps=steps).images["path"].to_list()
    assert paths == [str(tmp_path / each) for each in (*there, "images/00000005_000.png")]
    assert steps.rows[-1]["note"] == "4 of 5 image files exist"


def test_drains_become_attributes(tmp_path):
    write_entries(tmp_path, ("00000001_000", "Pneumothorax", "58"))
    (tmp_path / "drain_annotations.csv").write_text("Image Index,Drain\n00000001_000.png,1\n00000007_000.png,0\n")
    steps = Steps("nih_chestxray14")
    assert read(tmp_path, steps=steps).attributes.rows() == [("00000001_000", "drain", "1")]
    assert "(1 distinct): 1" in steps.rows[-1]["note"]


@pytest.mark.parametrize(
    ("rows", "facts"),
    [
        ([("00000001_000", "Mass|Efusion", "58")], ['column "Finding Labels", row 1', "Efusion", "did you mean"]),
        ([("00000001_000", "Mass", "58")] * 2, ['"00000001_000"', "2 rows"]),
        ([("00000001_000", "Mass", "58 years")], ['column "Patient Age", row 1', '"58 years"']),
    ],
)
def test_what_cannot_be_read_is_an_error(tmp_path, rows, facts):
    write_entries(tmp_path, *rows)
    with refused(SourceError, *facts):
        read(tmp_path)


def test_the_real_table_and_its_pictures():
    pictures = real_data("nih/images")
    steps = Steps("nih_chestxray14")
    begun = time.perf_counter()
    source = read(published_tables(), pictures.parent, steps=steps)
    assert time.perf_counter() - begun < 10  # about 0.7 s alone
    images = source.images
    assert (steps.rows[0]["images"], steps.rows[0]["patients"]) == (112_120, 30_805)
    assert steps.rows[0]["note"] is None
    sums = images.select(source.findings).sum().row(0, named=True)
    # Known counts of the published table.
    assert (sums["infiltration"], sums["pleural_effusion"], sums["hernia"]) == (19_894, 13_317, 227)
    assert sums["no_finding"] == 60_361
    assert steps.rows[-1]["note"] == "621 of 112,120 image files exist"
    there = str(pictures.resolve())
    assert sum(Path(path).exists() for path in images["path"].to_list() if path.startswith(there)) == 621


@pytest.mark.parametrize("old", [False, True])
def test_the_twin_is_read_as_it_was_planted(tmp_path, old):
    planted, _ = write_twin(write_nih, tmp_path, old=old)
    source = read(tmp_path)
    check_planted(source, planted)
    assert source.images["age"].null_count() == 0
    assert set(source.images["split"]) == {"train", "test"}
    assert set(source.attributes["name"]) == {"drain"}
    assert set(source.attributes["value"]) == {"0", "1"}


def test_the_dirty_twin(tmp_path):
    planted, defects = write_twin(write_nih, tmp_path, dirty=True)
    source = read(tmp_path)
    check_planted(source, planted)
    images = source.images
    assert sorted(images.filter(pl.col("age").is_null())["image_id"]) == defects["odd_age"]
    assert sorted(images.filter(pl.col("split").is_null())["image_id"]) == defects["in_no_list"]
    assert sorted(images.filter(pl.col("sex").is_null())["patient_id"].unique()) == defects["unknown_sex"]
    assert not source.attributes["image_id"].is_in(defects["annotation_without_image"]).any()


@pytest.mark.parametrize("split", ["ratio", "official"])
def test_annotated_patients_are_withheld_from_training(tmp_path, split):
    """89 of the 155 annotated images that slices_paper used were in its training split."""
    write("nih", tmp_path / "raw", n_patients=60, seed=1, pixels=False)
    listed = pl.read_csv(tmp_path / "raw" / "drain_annotations.csv")["Image Index"].str.strip_suffix(".png")
    annotated, patients = set(listed), {str(int(each[:8])) for each in listed}
    recipe = Path(cxrhf.configs.__file__).parent / "slices_paper.yaml"
    settings = {**yaml.safe_load(recipe.read_text()), "female": None, "split": split}
    found = {}
    for withhold in (False, True):
        settings["withhold_annotated"] = withhold
        config = BuildConfig("nih_chestxray14", root=(str(tmp_path / "raw"),), **settings)
        made = prepare(config, tmp_path / f"work{withhold}", tmp_path / "notes", "")
        found[withhold] = dict(made.images.select("patient_id", "split").rows())
        if withhold:
            kept = set(made.images["image_id"])
            assert made.images["pneumothorax"].filter(made.images["split"] == "train").sum() > 0
            assert {str(int(each[:8])) for each in kept & annotated} == patients
            step = next(row for row in made.steps.rows if row["step"] == "annotated patients withheld")
            assert step["note"] == f"{len(patients)} patients, {len(patients)} annotated images, in test"
    assert {split for patient, split in found[False].items() if patient in patients} == {"train", "validate", "test"}
    assert found[True] == {each: "test" if each in patients else part for each, part in found[False].items()}


def test_nobody_left_to_train_on_is_an_error(tmp_path):
    write_entries(tmp_path, *((f"0000000{n}_000", "Pneumothorax", "58") for n in range(1, 9)))
    lines = "".join(f"0000000{n}_000.png,1\n" for n in range(1, 9))
    (tmp_path / "drain_annotations.csv").write_text(f"Image Index,Drain\n{lines}")
    config = BuildConfig("nih_chestxray14", root=(str(tmp_path),), split="ratio", withhold_annotated=True)
    with refused(SourceError, "every training patient", fix="--withhold-annotated"):
        prepare(config, tmp_path / "work", tmp_path / "notes", "")
    with refused(ConfigError, "withhold_annotated", "ratio, official or file", got="none"):
        BuildConfig("nih_chestxray14", split="none", withhold_annotated=True)
