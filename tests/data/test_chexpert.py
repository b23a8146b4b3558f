"""CheXpert's tables: ids, views, sexes, labels, pictures in many places, race, and ENCODING's sample and Table 1."""

from __future__ import annotations

import time
from pathlib import Path

import openpyxl
import polars as pl
import pytest

from cxrhf.data import chexpert
from cxrhf.data.attrition import Steps
from cxrhf.data.settings import BuildConfig
from cxrhf.data.splits import file_split
from cxrhf.errors import SourceError
from cxrhf.findings import CHEXPERT
from cxrhf.twin.chexpert import write_chexpert
from tests.data.twin import check_planted, write_twin
from tests.real_data import published_tables, real_data
from tests.refusals import refused

HEADER = "Path,Sex,Age,Frontal/Lateral,AP/PA," + ",".join(chexpert.LABELS)
BLANK = "," * 13


def row(path: str, sex: str = "Female", age: str = "60", side: str = "Frontal", view: str = "AP", labels: str = BLANK):
    return f"{path},{sex},{age},{side},{view},{labels}"


def write_table(folder: Path, *rows: str, name: str = "train.csv") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text("\n".join((HEADER, *rows)) + "\n")
    return folder


def write_demo(path: Path, *rows: tuple[str, str | None, str | None]) -> None:
    book = openpyxl.Workbook()
    book.active.append(["PATIENT", "GENDER", "AGE_AT_CXR", "PRIMARY_RACE", "ETHNICITY"])
    for patient, race, ethnicity in rows:
        book.active.append([patient, "Male", 60, race, ethnicity])
    book.save(path)


def picture(folder: Path, name: str) -> Path:
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(b"")
    return folder / name


def name(patient: int, study: int = 1, view: str = "view1_frontal", top: str = "CheXpert-v1.0/train") -> str:
    return f"{top}/patient{patient:05d}/study{study}/{view}.jpg"


def read(*root: Path, steps: Steps | None = None, **settings):
    return chexpert.read(BuildConfig("chexpert", root=root, **settings), steps or Steps("chexpert"))


def test_rows_of_both_tables_in_their_order(tmp_path):
    labels = "1.0,,,,,-1.0,0.0,,,,,,,1.0"
    write_table(
        tmp_path,
        row(name(2), labels=labels),
        row(name(1, 2, "view2_lateral"), sex="Male", age="0", side="Lateral", view=""),
        row(name(1, 2), sex="Unknown", view="LL"),
    )
    write_table(tmp_path, row(name(64541, top="CheXpert-v1.0/valid"), view="PA"), name="valid.csv")
    steps = Steps("chexpert")
    source = read(tmp_path, steps=steps)
    images = source.images
    assert source.findings == CHEXPERT
    assert images["image_id"].to_list() == [
        "train/patient00002/study1/view1_frontal",
        "train/patient00001/study2/view2_lateral",
        "train/patient00001/study2/view1_frontal",
        "valid/patient64541/study1/view1_frontal",
    ]
    assert images["study_id"].to_list()[0] == "patient00002/study1"
    assert images["patient_id"].to_list()[-1] == "patient64541"
    assert images["source_row"].to_list() == [0, 1, 2, None]
    assert images["split"].to_list() == ["train", "train", "train", "validate"]
    assert images["view"].to_list() == ["AP", "LATERAL", "LL", "PA"]
    assert images["sex"].to_list() == ["F", "M", None, "F"]
    assert images["age"].to_list() == [60.0, 0.0, 60.0, 60.0]
    assert images.row(0, named=True)["edema"] == -1
    assert images.row(0, named=True)["consolidation"] == 0
    assert images.row(0, named=True)["cardiomegaly"] is None
    assert all(images.schema[finding] == pl.Int8 for finding in CHEXPERT)
    notes = [step["note"] for step in steps.rows]
    assert "age 0, kept: 1" in notes[0]
    assert "sex unknown: 1" in notes[0]
    assert "neither PA nor AP: 1" in notes[0]


@pytest.mark.parametrize("where", ["", "CheXpert-v1.0", "CheXpert-v1.0-small", "data/CheXpert-v1.0-small"])
@pytest.mark.parametrize("said", ["CheXpert-v1.0", "CheXpert-v1.0-small"])
def test_pictures_are_found_wherever_they_lie(tmp_path, where, said):
    """The table may name another edition than the folder that is there."""
    folder = write_table(tmp_path / where, *(row(name(each, top=f"{said}/train")) for each in range(1, 60)))
    there = picture(folder, "train/patient00042/study1/view1_frontal.jpg")  # the only one, between those tried first
    images = read(tmp_path).images
    assert images["path"][41] == str(there)
    assert images["path"][0] == str(folder / "train/patient00001/study1/view1_frontal.jpg")


def test_pictures_in_the_folders_of_the_later_download(tmp_path):
    """Patients lie in several batches without train/, and the tables in the first."""
    first = tmp_path / "CheXpert-v1.0 batch 1 (validate & csv)"
    write_table(first, row(name(1)), row(name(2)), row(name(3)))
    write_table(first, row(name(9, top="CheXpert-v1.0/valid")), name="valid.csv")
    one = picture(tmp_path, "CheXpert-v1.0 batch 2 (train 1)/patient00001/study1/view1_frontal.jpg")
    two = picture(tmp_path, "CheXpert-v1.0 batch 3 (train 2)/patient00002/study1/view1_frontal.jpg")
    nine = picture(first, "valid/patient00009/study1/view1_frontal.jpg")
    assert read(tmp_path).images["path"].to_list() == [
        str(one), str(two), str(tmp_path / name(3)), str(nine),
    ]  # fmt: skip


def test_paths_are_named_where_no_picture_is(tmp_path):
    write_table(tmp_path, row(name(1)))
    assert read(tmp_path).images["path"].to_list() == [str(tmp_path / name(1))]


DEMO = [
    ("patient00001", "White, non-Hispanic", "Non-Hispanic/Non-Latino"),
    ("patient00002", "Black or African American", "Not Hispanic"),
    ("patient00003", "Asian", "Hispanic/Latino"),
    ("patient00004", "Caucasian", "Non-Hispanic/Non-Latino"),  # not Asian
    ("patient00005", "Race and Ethnicity Unknown", "Unknown"),
    ("patient00006", "Asian", None),
    ("patient00007", "White", "Non-Hispanic/Non-Latino"),
    ("patient00007", "Asian", "Non-Hispanic/Non-Latino"),
    ("patient00008", "Asian", "Non-Hispanic/Non-Latino"),
    ("patient00008", "Asian", "Non-Hispanic/Non-Latino"),
    ("patient00009", "White", "Non-Hispanic/Non-Latino"),
]


def write_encoding(folder: Path) -> None:
    lateral = row(name(1, view="view2_lateral"), side="Lateral", view="")
    rows = [row(name(each)) for each in (*range(1, 9), 10)]
    write_table(folder, *rows, lateral, row(name(8, 2), view="LL"))
    write_table(folder, row(name(9, top="CheXpert-v1.0/valid")), name="valid.csv")


def test_race_and_the_sample_from_the_workbook(tmp_path):
    write_encoding(tmp_path)
    write_demo(tmp_path / "CHEXPERT DEMO.xlsx", *DEMO)
    images = read(tmp_path).images
    assert images["race"].to_list()[:9] == ["white", "black", "asian", "caucasian", None, "asian", None, "asian", None]
    known, hispanic = "non-hispanic", "hispanic"
    assert images["ethnicity"].to_list()[:9] == [known, known, hispanic, known, None, None, known, known, None]
    steps = Steps("chexpert")
    sample = read(tmp_path, steps=steps, sample="encoding").images
    assert sample["patient_id"].to_list() == ["patient00001", "patient00002", "patient00008"]
    assert sample["source_row"].to_list() == [0, 1, 7]
    assert steps.rows[-1]["step"] == "sample encoding"
    demographics = next(step for step in steps.rows if step["step"] == "demographics")
    assert "patients not in the workbook: 1" in demographics["note"]
    assert "set to missing: 1" in demographics["note"]


def test_the_sample_from_the_split_file(tmp_path):
    write_encoding(tmp_path)
    split = tmp_path / "chexpert_split_2021_08_20.csv"
    split.write_text(",index,split\n0,1,train\n1,4,test\n")
    sample = read(tmp_path, sample="encoding", split_file=str(split)).images
    assert sample["source_row"].to_list() == [1, 4]
    assert "race" not in sample.columns
    split.write_text(",index,split\n0,1,train\n1,400,test\n")
    with refused(SourceError, "0 to 10", '"index"'):
        read(tmp_path, sample="encoding", split_file=str(split))


def test_no_sample_without_workbook_or_split_file(tmp_path):
    write_encoding(tmp_path)
    with refused(SourceError, "CHEXPERT DEMO.xlsx", "Stanford AIMI: CheXpert demographic"):
        read(tmp_path, sample="encoding")
    (tmp_path / "split.csv").write_text("patient_id,split\npatient00001,train\n")
    with refused(SourceError, "CHEXPERT DEMO.xlsx"):
        read(tmp_path, sample="encoding", split_file=str(tmp_path / "split.csv"))


def test_annotations_become_attributes(tmp_path):
    write_table(tmp_path, row(name(1)), row(name(2)))
    (tmp_path / "chest_drain_annotations.csv").write_text(f"Path,Drain\n{name(1)},1\n{name(7)},0\n")
    steps = Steps("chexpert")
    source = read(tmp_path, steps=steps)
    assert source.attributes.rows() == [("train/patient00001/study1/view1_frontal", "drain", "1")]
    assert "(1 distinct): 1" in steps.rows[-1]["note"]


@pytest.mark.parametrize(
    ("rows", "facts"),
    [
        ([row(name(1)), row(name(1))], ['"train/patient00001/study1/view1_frontal"', "2 rows"]),
        ([row(name(1)), row(name(2), age="old")], ['train.csv, column "Age", row 2', '"old"']),
        ([row("pictures/1.jpg")], ['column "Path", row 1', "pictures/1.jpg"]),
        ([row(name(1), labels="2" + BLANK)], ['column "No Finding", row 1', "2", "1, 0, -1 or empty"]),
        ([row(name(1), labels="yes" + BLANK)], ['column "No Finding", row 1', '"yes"']),
    ],
)
def test_what_cannot_be_read_is_an_error(tmp_path, rows, facts):
    write_table(tmp_path, *rows)
    with refused(SourceError, *facts):
        read(tmp_path)


def test_a_renamed_column_and_a_missing_table(tmp_path):
    with refused(SourceError, "train.csv"):
        read(tmp_path)
    (tmp_path / "train.csv").write_text(HEADER.replace("Sex", "Sexx") + "\n" + row(name(1)) + "\n")
    with refused(SourceError, '"Sex"', got="Sexx", fix="'Sexx'"):
        read(tmp_path)
    write_table(tmp_path, row(name(1)))
    book = openpyxl.Workbook()
    book.active.append(["PATIENT", "RACE"])
    book.save(tmp_path / "CHEXPERT DEMO.xlsx")
    with refused(SourceError, "CHEXPERT DEMO.xlsx", '"PRIMARY_RACE"', got="PATIENT, RACE"):
        read(tmp_path)
    (tmp_path / "CHEXPERT DEMO.xlsx").write_bytes(b"PK no workbook")
    with refused(SourceError, "CHEXPERT DEMO.xlsx", "workbook"):
        read(tmp_path)


@pytest.mark.slow
def test_encoding_table_1_from_the_published_tables():
    """ENCODING's Table 1, CheXpert "All": patients, scans, female, no finding, pleural effusion."""
    split_file = real_data("chexpert/split_2021_08_20.csv.gz")
    steps = Steps("chexpert")
    begun = time.perf_counter()
    images = read(published_tables(), steps=steps, sample="encoding", split_file=str(split_file)).images
    assert time.perf_counter() - begun < 15  # about 1.5 s alone
    assert steps.rows[0]["images"] == 223_414
    assert (steps.rows[-1]["images"], steps.rows[-1]["patients"]) == (127_118, 42_884)
    joined = file_split(images, split_file)

    def counts(part: pl.DataFrame) -> tuple[int, ...]:
        effusion = part["pleural_effusion"].fill_null(0) == 1
        # Disease group: pleural effusion overrides no finding.
        healthy = (part["no_finding"].fill_null(0) == 1) & ~effusion
        return (
            part["patient_id"].n_unique(), part.height, int((part["sex"] == "F").sum()), int(healthy.sum()),
            int(effusion.sum()),
        )  # fmt: skip

    assert counts(joined) == (42_884, 127_118, 52_436, 10_916, 51_574)
    of_split = {name: counts(part) for (name,), part in joined.group_by("split")}
    assert of_split["train"][:2] == (25_730, 76_205)
    assert of_split["validate"][:2] == (4_288, 12_673)
    assert of_split["test"] == (12_866, 38_240, 15_974, 3_316, 15_510)
    assert joined["view"].is_in(["PA", "AP"]).all()


@pytest.mark.parametrize("small", [False, True])
def test_the_twin_is_read_as_it_was_planted(tmp_path, small):
    planted, _ = write_twin(write_chexpert, tmp_path, small=small)
    source = read(tmp_path)
    check_planted(source, planted)
    assert source.images.filter(pl.col("pneumothorax") == 1).height > 0
    by_workbook = read(tmp_path, sample="encoding").images
    split_file = tmp_path / "chexpert_split_2021_08_20.csv"
    (tmp_path / "CHEXPERT DEMO.xlsx").unlink()
    by_split = read(tmp_path, sample="encoding", split_file=str(split_file)).images
    assert by_workbook["image_id"].to_list() == by_split["image_id"].to_list()
    assert 0 < by_split.height < source.images.height


def test_the_dirty_twin(tmp_path):
    planted, defects = write_twin(write_chexpert, tmp_path, dirty=True)
    source = read(tmp_path)
    check_planted(source, planted)
    images = source.images
    assert sorted(images.filter(pl.col("sex").is_null())["patient_id"].unique()) == defects["unknown_sex"]
    assert sorted(images.filter(pl.col("age") == 0)["patient_id"].unique()) == defects["age_zero"]
    uncertain = sum(int((images[finding] == -1).sum()) for finding in CHEXPERT)
    assert uncertain == len(defects["uncertain_label"])
