"""covid-chestxray-dataset: the hierarchy of diagnoses, days, notes that may be prior, licences; and the real table."""

from __future__ import annotations

import csv
from datetime import datetime
from pathlib import Path

import polars as pl
import pytest

from cxrhf.data import covid
from cxrhf.data.attrition import Steps
from cxrhf.data.notes import link
from cxrhf.data.settings import BuildConfig
from cxrhf.errors import SourceError
from cxrhf.schema import ATTRIBUTE, NOTE
from cxrhf.tables.checks import check
from cxrhf.twin.covid import write_covid
from tests.data.twin import check_planted, write_twin
from tests.real_data import real_data
from tests.refusals import refused

COLUMNS = ["patientid", "offset", "sex", "age", "finding", "view", "modality", "filename", "clinical_notes", "license"]
PLAIN = {
    "patientid": "1", "offset": "0.0", "sex": "F", "age": "60.0", "finding": "Pneumonia/Viral/COVID-19", "view": "PA",
    "modality": "X-ray", "license": "CC BY 4.0",
}  # fmt: skip


def read(*root: Path, steps: Steps | None = None, **settings):
    return covid.read(BuildConfig("covid_chestxray", root=root, **settings), steps or Steps("covid_chestxray"))


def write(folder: Path, *rows: dict[str, str]) -> Path:
    with (folder / "metadata.csv").open("w", newline="") as stream:
        writer = csv.DictWriter(stream, COLUMNS)
        writer.writeheader()
        for at, each in enumerate(rows):
            writer.writerow({**PLAIN, "filename": f"film{at}.png", **each})
    return folder


@pytest.mark.parametrize(
    ("finding", "pneumonia", "viral", "covid_19", "bacterial", "fungal", "tuberculosis", "normal"),
    [
        ("Pneumonia/Viral/COVID-19", 1, 1, 1, 0, 0, 0, 0),
        ("Pneumonia/Viral/Influenza/H1N1", 1, 1, 0, 0, 0, 0, 0),
        ("Pneumonia/Viral", 1, 1, None, 0, 0, 0, 0),
        ("Pneumonia/Viral/Herpes ", 1, 1, 0, 0, 0, 0, 0),
        ("Pneumonia/Bacterial", 1, 0, 0, 1, 0, 0, 0),
        ("Pneumonia/Fungal/Pneumocystis", 1, 0, 0, 0, 1, 0, 0),
        ("Pneumonia/Lipoid", 1, 0, 0, 0, 0, 0, 0),
        ("Pneumonia", 1, None, None, None, None, 0, 0),
        ("Tuberculosis", 0, 0, 0, 0, 0, 1, 0),
        ("No Finding", 0, 0, 0, 0, 0, 0, 1),
        ("todo", *[None] * 7),
        ("Unknown", *[None] * 7),
        ("", *[None] * 7),
    ],
)
def test_diagnoses(tmp_path, finding, pneumonia, viral, covid_19, bacterial, fungal, tuberculosis, normal):
    labels = read(write(tmp_path, {"finding": finding})).images.select(covid.FINDINGS).row(0, named=True)
    assert labels == {
        "pneumonia": pneumonia, "viral_pneumonia": viral, "covid_19": covid_19, "bacterial_pneumonia": bacterial,
        "fungal_pneumonia": fungal, "tuberculosis": tuberculosis, "no_finding": normal,
    }  # fmt: skip


def test_rows_days_views_and_modalities(tmp_path):
    write(
        tmp_path,
        {"view": "AP Supine", "offset": "-2"},
        {"view": "AP Erect", "offset": "", "filename": "a.jpg"},
        {"view": "L", "offset": "0.0", "filename": "a.png", "license": ""},
        {"view": "Axial", "modality": "CT"},
    )
    steps = Steps("covid_chestxray")
    source = read(tmp_path, steps=steps)
    images = source.images
    assert images["image_id"].to_list() == ["film0.png", "a.jpg", "a.png"]
    assert images["study_id"].to_list() == ["1/-2", "1/a.jpg", "1/0"]
    assert images["view"].to_list() == ["AP", "AP", "LATERAL"]
    assert images["study_time"].to_list() == [datetime(1999, 12, 30), None, datetime(2000, 1, 1)]
    assert images["path"].to_list()[0] == str(tmp_path / "images" / "film0.png")
    assert source.attributes.rows() == [
        ("film0.png", "licence", "CC BY 4.0"), ("a.jpg", "licence", "CC BY 4.0"), ("a.png", "licence", None),
    ]  # fmt: skip
    assert [step["images"] for step in steps.rows] == [4, 3, None]
    assert steps.rows[1]["note"] == "excluded, modality CT: 1; no day: 1"
    check(source.attributes.to_arrow(), ATTRIBUTE)


def test_a_text_is_known_from_the_latest_day_at_which_it_stands(tmp_path):
    """One text at several images may tell of the last of them; with a day missing nobody can say when."""
    write(
        tmp_path,
        {"offset": "0", "clinical_notes": "Cough for a week."},
        {"offset": "4", "clinical_notes": "Cough for a week."},
        {"offset": "7", "clinical_notes": "Better."},
        {"patientid": "2", "offset": "0", "clinical_notes": "Fever."},
        {"patientid": "2", "offset": "", "clinical_notes": "Fever."},
        {"patientid": "2", "offset": "9"},
    )
    source = read(tmp_path)
    assert source.notes.select("note_id", "available_at").rows() == [
        ("1-0", datetime(2000, 1, 5)), ("1-2", datetime(2000, 1, 8)), ("2-3", None),
    ]  # fmt: skip
    assert source.notes["kind"].unique().to_list() == ["clinical_notes"]
    assert source.images["own_text"].to_list()[1:4] == ["Cough for a week.", "Better.", "Fever."]
    assert link(source.images, source.notes).to_list() == [[], [], ["1-0"], [], [], []]
    check(source.notes.to_arrow(), NOTE)


@pytest.mark.parametrize(
    ("finding", "text", "named"),
    [
        ("Pneumonia/Viral/COVID-19", "Swab was positive for SARS-CoV-2.", True),
        ("Pneumonia/Viral/COVID-19", "covid suspected", True),
        ("Pneumonia/Viral/COVID-19", "Known COVID19 contact", True),
        ("Pneumonia/Viral/COVID-19", "Tuberculosis in childhood", False),
        ("Pneumonia/Fungal/Pneumocystis", "PCP prophylaxis stopped", True),
        ("Pneumonia/Bacterial/Streptococcus", "pneumococcal antigen", True),
        ("Pneumonia/Bacterial/E.Coli", "grew E. coli", True),
        ("Pneumonia/Bacterial/Newname", "grew newname", True),
        ("Pneumonia", "Bronchopneumonia?", True),
        ("Tuberculosis", "TB in the family", True),
        ("Tuberculosis", "tbc", False),  # whole words only
        ("Pneumonia/Viral/Influenza", "fluid in the fissure", False),
        ("No Finding", "normal chest, no finding", False),
        ("todo", "Covid", False),
    ],
)
def test_notes_that_name_the_diagnosis(tmp_path, finding, text, named):
    write(tmp_path, {"finding": finding, "clinical_notes": text})
    steps = Steps("covid_chestxray")
    assert read(tmp_path, steps=steps).notes.height == (0 if named else 1)
    assert ("name the diagnosis, excluded: 1" in (steps.rows[-1]["note"] or "")) == named
    assert read(tmp_path, keep_label_notes=True).notes["text"].to_list() == [text]


def test_a_note_at_a_normal_picture_may_tell_how_it_went_on(tmp_path):
    write(
        tmp_path,
        {"offset": "-120", "finding": "No Finding", "clinical_notes": "Lungs clear. Later confirmed COVID-19."},
        {"offset": "0"},
    )
    assert read(tmp_path).notes.height == 0


@pytest.mark.parametrize(
    ("rows", "facts"),
    [
        ([{"finding": "COVID-19, ARDS"}], ['column "finding"', '"COVID-19, ARDS"', "Tuberculosis"]),
        ([{"filename": "x.png"}, {"filename": "x.png"}], ['image "x.png"', "2 rows"]),
        ([{"offset": "two"}], ['column "offset", row 1', '"two"']),
        ([{"patientid": ""}], ["row 1", "study_id"]),
    ],
)
def test_what_cannot_be_read_is_an_error(tmp_path, rows, facts):
    write(tmp_path, *rows)
    with refused(SourceError, "metadata.csv", *facts):
        read(tmp_path)


def test_the_real_table():
    root = real_data("covid/metadata.csv").parent
    steps = Steps("covid_chestxray")
    source = read(root, steps=steps)
    images = source.images
    assert (images.height, images["patient_id"].n_unique(), images["own_text"].count()) == (501, 276, 338)
    assert images["view"].is_in(["PA", "AP"]).all()
    assert all(Path(path).is_file() for path in images["path"])
    licences = source.attributes.filter(source.attributes["name"] == "licence")
    assert licences.height == 501
    assert licences["value"].null_count() == 0
    assert int(images["covid_19"].sum()) == 236
    texts = read(root, keep_label_notes=True).notes
    assert (texts.height, source.notes.height) == (320, 185)
    # The rule of available_at alone already keeps an image's own text out of its prior notes.
    prior = images.select("image_id", "own_text", prior=link(images, texts)).explode("prior").drop_nulls("prior")
    joined = prior.join(texts, left_on="prior", right_on="note_id")
    assert joined["image_id"].n_unique() == 89
    assert joined.filter(joined["own_text"] == joined["text"]).height == 0


@pytest.mark.parametrize("dirty", [False, True])
def test_the_twin_is_read_as_it_was_planted(tmp_path, dirty):
    planted, defects = write_twin(write_covid, tmp_path, dirty=dirty)
    source = read(tmp_path)
    check_planted(source, planted)
    assert not source.images["image_id"].is_in(defects.get("ct", [])).any()
    assert source.notes.height > 0
    words = r"(?i)covid|streptococcus|pneumocystis|pneumonia"
    assert not source.notes["text"].str.contains(words).any()
    kept = read(tmp_path, keep_label_notes=True).notes
    assert kept["text"].str.contains(words).any()
    pairs = source.images.select("own_text", prior=link(source.images, kept)).explode("prior").drop_nulls("prior")
    assert pairs.height > 0
    joined = pairs.join(kept, left_on="prior", right_on="note_id")
    assert joined.filter(pl.col("own_text") == pl.col("text")).height == 0
