"""MIMIC as the twin writes it: exact layout, the labels that were planted, the same bytes twice, every defect there."""

from __future__ import annotations

import hashlib
import json
import re

import numpy as np
import polars as pl
import pytest

from cxrhf.data.layout import LAYOUTS, find
from cxrhf.data.raw import header, read_csv, times
from cxrhf.errors import ConfigError
from cxrhf.findings import finding_name
from cxrhf.twin import LAYOUTS as WRITERS
from cxrhf.twin import write
from cxrhf.twin.__main__ import main
from cxrhf.twin.mimic import LABELS, write_mimic
from cxrhf.twin.people import MIMIC_SIZE, people
from cxrhf.twin.texts import HISTORIES
from tests.refusals import refused

JPG = "mimic-cxr-jpg/2.0.0/mimic-cxr-2.0.0-"
CHEXPERT = (
    "subject_id,study_id,Atelectasis,Cardiomegaly,Consolidation,Edema,Enlarged Cardiomediastinum,Fracture,Lung Lesion,"
    "Lung Opacity,No Finding,Pleural Effusion,Pleural Other,Pneumonia,Pneumothorax,Support Devices"
)
HEADERS = {
    f"{JPG}chexpert.csv.gz": CHEXPERT,
    f"{JPG}negbio.csv.gz": CHEXPERT,
    f"{JPG}metadata.csv.gz": "dicom_id,subject_id,study_id,PerformedProcedureStepDescription,ViewPosition,Rows,Columns,"
    "StudyDate,StudyTime,ProcedureCodeSequence_CodeMeaning,ViewCodeSequence_CodeMeaning,"
    "PatientOrientationCodeSequence_CodeMeaning",
    f"{JPG}split.csv.gz": "dicom_id,study_id,subject_id,split",
    "mimiciv/3.0/hosp/admissions.csv.gz": "subject_id,hadm_id,admittime,dischtime,deathtime,admission_type,"
    "admit_provider_id,admission_location,discharge_location,insurance,language,marital_status,race,edregtime,edouttime,"
    "hospital_expire_flag",
    "mimiciv/3.0/hosp/patients.csv.gz": "subject_id,gender,anchor_age,anchor_year,anchor_year_group,dod",
    "mimic-iv-note/2.2/note/discharge.csv.gz": "note_id,subject_id,hadm_id,note_type,note_seq,charttime,storetime,text",
}


@pytest.fixture(scope="module")
def clean(tmp_path_factory):
    folder = tmp_path_factory.mktemp("clean")
    return write("mimic", folder / "twin", n_patients=120, seed=5, pixels=False), folder / "twin"


@pytest.fixture(scope="module")
def dirty(tmp_path_factory):
    folder = tmp_path_factory.mktemp("dirty")
    made = write("mimic", folder / "twin", n_patients=80, seed=5, dirty=True, pixels=False)
    return made, folder / "twin", json.loads((folder / "twin" / "defects.json").read_text())


def table(folder, name):
    return read_csv(folder / name, HEADERS[name].split(","))


def fingerprints(folder):
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def test_headers_and_layout(clean):
    _, folder = clean
    for name, expected in HEADERS.items():
        assert ",".join(header(folder / name)) == expected
        assert (folder / name).read_bytes()[3:8] == b"\0\0\0\0\0"  # no name, no time in the archive
    for needed in LAYOUTS["mimic_cxr_context"]:
        if needed.key != "files":  # no pictures were asked for
            assert find([folder], "mimic_cxr_context", needed.key) is not None, needed.key


def test_ids_have_the_shape_of_mimics(clean):
    made, folder = clean
    metadata = table(folder, f"{JPG}metadata.csv.gz")
    assert metadata.height == made.images.height == metadata["dicom_id"].n_unique()
    assert metadata["dicom_id"].str.contains(r"^[0-9a-f]{8}(-[0-9a-f]{8}){4}$").all()
    assert metadata["subject_id"].str.contains(r"^1\d{7}$").all()
    assert metadata["study_id"].str.contains(r"^5\d{7}$").all()
    assert metadata["StudyTime"].str.contains(r"^\d{1,6}\.\d{1,3}$").all()
    assert metadata["StudyTime"].str.len_chars().n_unique() > 1  # not padded
    assert metadata["StudyDate"].str.to_date("%Y%m%d").dt.year().min() >= 2110
    assert set(metadata["ViewPosition"]) == {"PA", "AP", "LATERAL", "LL"}
    admissions = table(folder, "mimiciv/3.0/hosp/admissions.csv.gz")
    assert admissions["hadm_id"].str.contains(r"^2\d{7}$").all()
    assert admissions["hadm_id"].n_unique() == admissions.height == made.admissions.height
    assert admissions["admittime"].str.contains(r"^\d{4}-\d\d-\d\d \d\d:\d\d:00$").all()
    assert set(admissions["race"]) == {"WHITE", "BLACK/AFRICAN AMERICAN", "ASIAN"}
    assert admissions.group_by("subject_id").agg(pl.col("race").n_unique())["race"].max() == 1
    notes = table(folder, "mimic-iv-note/2.2/note/discharge.csv.gz")
    assert notes.select((pl.format("{}-DS-{}", "subject_id", "note_seq") == pl.col("note_id")).all()).item()
    assert notes["note_id"].n_unique() == notes.height == made.admissions["noted"].sum()
    assert notes["subject_id"].cast(pl.Int64).is_sorted()
    split = table(folder, f"{JPG}split.csv.gz")
    assert set(split["split"]) == {"train", "validate", "test"}
    assert split.group_by("subject_id").agg(pl.col("split").n_unique())["split"].max() == 1


def test_the_files_hold_what_was_planted(clean):
    made, folder = clean
    planted = pl.read_parquet(folder / "planted.parquet")
    assert planted.columns == ["image_id", "study_id", "patient_id", "finding", "y", "context", "pretest", "shown"]
    assert planted.height == made.images.height * len(made.findings)
    labels = table(folder, f"{JPG}chexpert.csv.gz")
    assert labels.height == made.studies.height
    for name in ("chexpert", "negbio"):
        long = table(folder, f"{JPG}{name}.csv.gz").unpivot(index=["subject_id", "study_id"], variable_name="finding")
        assert set(long["value"].unique().to_list()) == {"1.0", "0.0", None}
        long = long.with_columns(pl.col("finding").replace_strict({shown: name for name, shown in LABELS.items()}))
        both = planted.join(long, on=["study_id", "finding"], how="left")
        assert ((both["value"] == "1.0").fill_null(False) == (both["y"] == 1)).all()
    assert {finding_name(shown) for shown in LABELS.values()} == set(made.findings)
    assert labels["No Finding"].unique().sort().to_list() == [None, "1.0"]
    # The order of planted rows within a finding is that of the images.
    edema = planted.filter(pl.col("finding") == "edema")
    column = made.findings.index("edema")
    np.testing.assert_array_equal(edema["pretest"].to_numpy(), made.q[:, column])
    np.testing.assert_array_equal(edema["shown"].to_numpy(), made.s[:, column])
    known = json.loads((folder / "truth.json").read_text())
    assert known["sizes"]["images"] == made.images.height
    assert known["findings"]["edema"]["role"] == "context"
    assert not (folder / "defects.json").exists()


def test_patients_and_ages(clean):
    made, folder = clean
    patients = table(folder, "mimiciv/3.0/hosp/patients.csv.gz")
    assert patients.height == made.patients.height
    metadata = table(folder, f"{JPG}metadata.csv.gz").join(patients, on="subject_id", how="left")
    age = metadata.select(
        "dicom_id",
        age=pl.col("anchor_age").cast(int)
        + pl.col("StudyDate").str.slice(0, 4).cast(int)
        - pl.col("anchor_year").cast(int),
    )
    planted = pl.read_parquet(folder / "planted.parquet").filter(pl.col("finding") == "edema")
    shown = planted.join(age, left_on="image_id", right_on="dicom_id", how="left", maintain_order="left")["age"]
    assert (shown == made.images["age"]).all()


def test_notes_and_reports_can_be_read_again(clean):
    made, folder = clean
    notes = table(folder, "mimic-iv-note/2.2/note/discharge.csv.gz")
    assert notes["text"].str.contains('"').any()
    assert notes["text"].str.contains("\n").all()
    unbroken = pl.col("text").str.replace_all(r"\s+", " ")
    for told in HISTORIES.values():  # each note tells exactly one level of every finding
        assert (
            notes.select(sum(unbroken.str.contains(each, literal=True).cast(int) for each in told)).to_series() == 1
        ).all()
    charted = notes.select(times("charttime"), times("storetime"))
    assert charted.null_count().row(0) == (0, 0)
    reports = sorted((folder / "mimic-cxr/2.0.0/files").rglob("*.txt"))
    assert len(reports) == made.studies.height
    assert all(re.fullmatch(r"p1\d/p1\d{7}/s5\d{7}\.txt", "/".join(path.parts[-3:])) for path in reports)
    assert "FINDINGS:" in reports[0].read_text()


def test_the_same_bytes_twice(clean, dirty, tmp_path):
    write("mimic", tmp_path / "again", n_patients=80, seed=5, dirty=True, pixels=False)
    assert fingerprints(dirty[1]) == fingerprints(tmp_path / "again")
    write("mimic", tmp_path / "other", n_patients=120, seed=6, pixels=False)
    same = fingerprints(clean[1]).items() & fingerprints(tmp_path / "other").items()
    assert {name for name, _ in same} == {"truth.json"}


@pytest.mark.parametrize("n", [1, 2, 3])
def test_the_smallest_twins(n, tmp_path):
    """Too few for every defect, but written and readable."""
    write("mimic", tmp_path / "twin", n_patients=n, seed=n, dirty=True, pixels=False)
    for name in HEADERS:
        table(tmp_path / "twin", name)


def test_other_versions(tmp_path):
    made = people(10, seed=1)
    write_mimic(made, tmp_path, version="2.1.0", iv_version="1.0", pixels=False, reports=False)
    assert (tmp_path / "mimic-cxr-jpg/2.1.0/mimic-cxr-2.1.0-chexpert.csv.gz").exists()
    assert "ethnicity" in header(tmp_path / "mimiciv/1.0/core/admissions.csv.gz")
    assert not {"race", "admit_provider_id"} & set(header(tmp_path / "mimiciv/1.0/core/admissions.csv.gz"))
    assert not (tmp_path / "mimic-cxr").exists()
    with refused(ConfigError, "MIMIC", got="3.0.0"):
        write_mimic(made, tmp_path, version="3.0.0")


def test_totals_at_a_share(tmp_path):
    sizes = MIMIC_SIZE.scaled(0.003)
    write("mimic", tmp_path / "twin", sizes=sizes, pixels=False, reports=False)
    labels, metadata = (table(tmp_path / "twin", f"{JPG}{name}.csv.gz") for name in ("chexpert", "metadata"))
    assert (labels.height, labels["subject_id"].n_unique()) == (sizes.studies - sizes.unlabelled, sizes.imaged)
    assert (metadata.height, metadata["study_id"].n_unique()) == (sizes.images, sizes.studies)
    admissions = table(tmp_path / "twin", "mimiciv/3.0/hosp/admissions.csv.gz")
    assert (admissions.height, admissions["subject_id"].n_unique()) == (sizes.admissions, sizes.admitted)
    notes = table(tmp_path / "twin", "mimic-iv-note/2.2/note/discharge.csv.gz")
    assert (notes["hadm_id"].n_unique(), notes["subject_id"].n_unique()) == (sizes.notes, sizes.noted)


def test_defects_of_labels(dirty):
    _, folder, defects = dirty
    labels = table(folder, f"{JPG}chexpert.csv.gz")
    planted = pl.read_parquet(folder / "planted.parquet").unique(["study_id", "finding"])
    long = labels.rename({shown: name for name, shown in LABELS.items()}).unpivot(
        index=["subject_id", "study_id"], variable_name="finding"
    )
    both = long.join(planted, on=["study_id", "finding"])
    uncertain = both.filter(pl.col("value") == "-1.0")
    assert set(uncertain.select(pl.format("{} {}", "study_id", "finding")).to_series()) == set(
        defects["uncertain_label"]
    )
    assert uncertain.height > 50
    assert (uncertain["y"] == 0).all()
    blank = both.filter(pl.col("study_id").is_in(defects["all_labels_blank"]))
    assert blank["value"].is_null().all()
    assert blank["study_id"].n_unique() == 3
    # Everywhere else 1.0 still means a true positive and nothing else does.
    rest = both.filter(~pl.col("study_id").is_in(defects["all_labels_blank"]))
    assert ((rest["value"] == "1.0").fill_null(False) == (rest["y"] == 1)).all()
    absent = set(planted["study_id"]) - set(labels["study_id"])
    assert absent == set(defects["study_without_label"])
    assert len(absent) == 3
    assert labels["subject_id"].n_unique() == 80


def test_defects_of_notes_and_times(dirty):
    _, folder, defects = dirty
    notes = table(folder, "mimic-iv-note/2.2/note/discharge.csv.gz")
    admissions = table(folder, "mimiciv/3.0/hosp/admissions.csv.gz")
    metadata = table(folder, f"{JPG}metadata.csv.gz")
    clock = pl.col("StudyTime").cast(pl.Float64, strict=False).floor().cast(pl.Int64).cast(pl.String).str.zfill(6)
    when = metadata.select("study_id", time=(pl.col("StudyDate") + clock).str.to_datetime("%Y%m%d%H%M%S", strict=False))
    study_times = dict(when.unique("study_id").iter_rows())
    rows = {row["note_id"]: row for row in notes.with_columns(times("charttime")).iter_rows(named=True)}
    discharged = dict(admissions.select("hadm_id", times("dischtime")).iter_rows())
    for kind in ("charted_at_study", "discharged_at_study"):
        assert len(defects[kind]) == 3
        for note_id, study_id in (pair.split(" ") for pair in defects[kind]):
            row, study = rows[note_id], metadata.filter(pl.col("study_id") == study_id)
            assert study["subject_id"].unique().to_list() == [row["subject_id"]]
            assert study["StudyTime"].str.ends_with(".0").all()
            if kind == "charted_at_study":
                assert row["charttime"] == study_times[study_id]
                assert discharged[row["hadm_id"]] < study_times[study_id]
            else:
                assert discharged[row["hadm_id"]] == study_times[study_id]
    blank_time = notes.filter(pl.col("charttime").is_null())["note_id"]
    assert sorted(blank_time) == defects["charttime_missing"]
    assert sorted(notes.filter(pl.col("text").is_null())["note_id"]) == defects["note_without_text"]
    assert len(defects["duplicate_note"]) >= 1
    for copy, original in (pair.split(" ") for pair in defects["duplicate_note"]):
        assert rows[copy]["text"] == rows[original]["text"]
        assert rows[copy]["hadm_id"] == rows[original]["hadm_id"]
    assert notes["note_id"].n_unique() == notes.height
    assert {study for study, time in study_times.items() if time is None} == set(defects["bad_study_time"])
    bad = metadata.filter(pl.col("study_id").is_in(defects["bad_study_time"]))["StudyTime"]
    assert set(bad) == {None, "256199.5", "unknown"}
    races = admissions.group_by("subject_id").agg(pl.col("race").n_unique()).filter(pl.col("race") > 1)
    assert sorted(races["subject_id"]) == defects["two_races"]
    without = set(metadata["subject_id"]) - set(admissions["subject_id"])
    assert without == set(defects["patient_without_admission"])
    assert without


def test_pictures_and_spoilt_ones(tmp_path):
    from PIL import Image, UnidentifiedImageError

    made = write("mimic", tmp_path / "twin", n_patients=6, seed=2, dirty=True, size=64, reports=False)
    defects = json.loads((tmp_path / "twin" / "defects.json").read_text())
    planted = pl.read_parquet(tmp_path / "twin" / "planted.parquet").unique("image_id")
    fates = {kind: defects[kind][0] for kind in ("missing", "empty", "truncated", "not_an_image")}
    whole = 0
    for image_id, study, patient in planted.select("image_id", "study_id", "patient_id").iter_rows():
        path = tmp_path / "twin/mimic-cxr-jpg/2.0.0/files" / f"p{patient[:2]}/p{patient}/s{study}/{image_id}.jpg"
        if image_id == fates["missing"]:
            assert not path.exists()
        elif image_id in fates.values():
            with pytest.raises((UnidentifiedImageError, OSError)):
                Image.open(path).load()
        else:
            assert Image.open(path).size == (64, 64)
            whole += 1
    assert whole == made.images.height - 4


def test_front_door(tmp_path, capsys):
    with refused(ConfigError, got="chexprt", fix="'chexpert'"):
        write("chexprt", tmp_path / "x")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine.txt").write_text("keep")
    with refused(ConfigError, str(tmp_path / "full"), fix="overwrite"):
        write("mimic", tmp_path / "full")
    arguments = ["mimic", str(tmp_path / "out"), "--patients", "8", "--seed", "3", "--no-pixels", "--no-reports"]
    assert main(arguments) == 0
    assert "8 patients" in capsys.readouterr().out
    assert main(arguments) == 2
    assert "not empty" in capsys.readouterr().err
    assert main(["mimic", str(tmp_path / "none"), "--share", "2"]) == 2
    with pytest.raises(SystemExit) as stopped:
        main(["--help"])
    assert stopped.value.code == 0
    shown = capsys.readouterr().out
    assert all(layout in shown for layout in WRITERS)
    assert "planted.parquet" in shown
    with pytest.raises(SystemExit):
        main(["nih", str(tmp_path / "nih"), "--notes", "full"])


@pytest.mark.parametrize("layout", [name for name in WRITERS if name != "mimic"])
def test_every_layout_has_its_truth(layout, tmp_path):
    made = write(layout, tmp_path / "twin", n_patients=20, seed=1, pixels=False)
    known = json.loads((tmp_path / "twin" / "truth.json").read_text())
    assert known["sizes"]["images"] == made.images.height
    assert (tmp_path / "twin" / "planted.parquet").exists()
