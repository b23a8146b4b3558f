"""MIMIC's tables as the twin writes them: versions, labels, people, prior notes and every planted defect."""

from __future__ import annotations

import csv
import gzip
import json
from datetime import datetime
from pathlib import Path

import polars as pl
import pytest

from cxrhf.data import mimic
from cxrhf.data.attrition import Steps
from cxrhf.data.prepare import prepare
from cxrhf.data.settings import BuildConfig
from cxrhf.errors import SourceError
from cxrhf.twin.mimic import write_mimic
from tests.data.twin import check_planted, small_twin


@pytest.fixture(scope="module")
def twin(tmp_path_factory):
    folder = tmp_path_factory.mktemp("mimic")
    write_mimic(small_twin(), folder, seed=1, pixels=False, size=64)
    return folder


@pytest.fixture(scope="module")
def dirty(tmp_path_factory):
    folder = tmp_path_factory.mktemp("dirty")
    write_mimic(small_twin(), folder, seed=1, pixels=False, size=64, dirty=True)
    return folder


def config(folder, **settings) -> BuildConfig:
    return BuildConfig("mimic_cxr_context", root=(str(folder),), no_pixels=True, **settings)


def prepared(folder, tmp_path, **settings):
    return prepare(config(folder, **settings), tmp_path / "work", tmp_path / "notes", "print")


def rows(folder: Path, name: str) -> list[dict[str, str]]:
    with gzip.open(next(folder.rglob(name)), "rt", newline="") as file:
        return list(csv.DictReader(file))


def moment(text: str) -> datetime | None:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return None


def brute_prior(folder: Path, times: tuple[str, ...] = ("charttime",)) -> dict[str, list[str]]:
    """Each image's prior notes by the published rule, from the files themselves, with csv and loops."""
    left = {row["hadm_id"]: moment(row["dischtime"]) for row in rows(folder, "admissions.csv.gz")}
    notes: dict[str, list] = {}
    for row in rows(folder, "discharge.csv.gz"):
        stamps = (left.get(row["hadm_id"]), *(moment(row[name]) for name in times))
        if None not in stamps and row["text"].strip():
            notes.setdefault(row["subject_id"], []).append((max(stamps), row["note_id"], row["text"]))
    found = {}
    for row in rows(folder, "*-metadata.csv.gz"):
        try:
            clock = f"{float(row['StudyTime']):013.6f}"
            study = datetime.strptime(f"{row['StudyDate']} {clock}", "%Y%m%d %H%M%S.%f")
        except ValueError:
            found[row["dicom_id"]] = []
            continue
        seen, ids = set(), []
        for known, note, text in sorted(notes.get(row["subject_id"], [])):
            if known < study and text not in seen:
                seen.add(text)
                ids.append(note)
        found[row["dicom_id"]] = ids
    return found


@pytest.mark.parametrize("which", ["twin", "dirty"])
def test_prior_notes_are_those_of_the_files(which, tmp_path, request):
    folder = request.getfixturevalue(which)
    got = prepared(folder, tmp_path, keep_without_notes=True)
    want = brute_prior(folder)
    linked = dict(got.images.select("image_id", "prior_note_ids").rows())
    assert linked == {image: want[image] for image in linked}
    assert sum(map(len, linked.values())) > 100
    kept = prepared(folder, tmp_path / "again")
    assert set(kept.images["image_id"]) == {image for image, ids in linked.items() if ids}
    stored = pl.read_parquet(tmp_path / "notes" / "*.parquet")
    assert set(stored["note_id"]) == {note for ids in linked.values() for note in ids}
    texts = {row["note_id"]: row["text"] for row in rows(folder, "discharge.csv.gz")}
    assert all(texts[note] == text for note, text in stored.select("note_id", "text").rows())


def test_labels_people_and_times_are_the_planted_ones(twin):
    source = mimic.read(config(twin), Steps("mimic_cxr_context")).source
    check_planted(source, pl.read_parquet(twin / "planted.parquet"))
    made = small_twin()
    assert source.images["study_time"].null_count() == 0
    assert set(source.images["sex"].unique()) == {"F", "M"}
    ages = source.images["age"].sort().to_numpy()
    assert abs(ages - made.images["age"].sort().to_numpy()).max() <= 1.01  # MIMIC gives years only
    assert source.images["findings"].null_count() < source.images.height  # reports are there
    known = set(source.images["race"].drop_nulls().unique())
    assert known <= {"white", "black", "asian", "hispanic", "other"}
    assert len(known) >= 2


@pytest.mark.parametrize(("version", "iv_version"), [("2.1.0", "1.0"), ("2.0.0", "2.2")])
def test_other_versions_give_the_same_rows(twin, tmp_path, version, iv_version):
    settings = {"version": version, "iv_version": iv_version, "pixels": False, "reports": False}
    write_mimic(small_twin(), tmp_path, seed=1, size=64, **settings)
    columns = ["image_id", "study_id", "patient_id", "view", "study_time", "age", "sex", "race", "edema", "split"]
    ours, theirs = (
        mimic.read(config(each), Steps("mimic_cxr_context")).source.images.select(columns).sort("image_id")
        for each in (twin, tmp_path)
    )
    assert ours.equals(theirs)


def test_every_defect_is_met(dirty, tmp_path):
    defects = json.loads((dirty / "defects.json").read_text())
    got = prepared(dirty, tmp_path, keep_without_notes=True)
    linked = got.images.select("image_id", "study_id", "patient_id", "prior_note_ids", "study_time", "race")
    by_study = {study: set(ids) for study, ids in linked.select("study_id", "prior_note_ids").rows()}
    for kind in ("charted_at_study", "discharged_at_study"):
        assert defects[kind]
        for pair in defects[kind]:
            note, study = pair.split()
            assert note not in by_study.get(study, set()), kind
    everywhere = {note for ids in by_study.values() for note in ids}
    for pair in defects["duplicate_note"]:
        copy, original = pair.split()
        assert not {copy, original} <= set().union(*(ids for ids in by_study.values() if copy in ids), set())
    quarantined = dict(got.quarantine.select("id", "kind").rows())
    blank = {note for note, kind in quarantined.items() if kind == "note without text"}
    timeless = {note for note, kind in quarantined.items() if kind == "note without time"}
    assert blank == set(defects["note_without_text"])
    assert timeless >= set(defects["charttime_missing"])
    assert not everywhere & set(quarantined)
    assert not set(defects["study_without_label"]) & set(linked["study_id"])
    bad = linked.filter(pl.col("study_id").is_in(defects["bad_study_time"]))
    assert bad.height
    assert bad["study_time"].null_count() == bad.height
    assert bad["prior_note_ids"].list.len().sum() == 0
    alone = linked.filter(pl.col("patient_id").is_in(defects["patient_without_admission"]))
    assert alone.height
    assert alone["prior_note_ids"].list.len().sum() == 0
    notes = [row["note"] for row in got.steps.rows if row["note"]]
    assert any("no usable study time" in note for note in notes)
    assert any("cannot be used" in note for note in notes)


def test_storetime_can_be_asked_for(twin, tmp_path):
    stored = prepared(twin, tmp_path, keep_without_notes=True, available="stored").images
    linked = dict(stored.select("image_id", "prior_note_ids").rows())
    charted, want = brute_prior(twin), brute_prior(twin, ("charttime", "storetime"))
    assert linked == {image: want[image] for image in linked}
    assert linked != {image: charted[image] for image in linked}  # it makes a difference


def test_study_time_without_its_zeros():
    frame = pl.DataFrame(
        {"d": ["21800506", "21800723", "21800506", "x", None], "t": ["213014.531", "80556.875", "5", "1", "2"]}
    )
    got = frame.select(mimic.study_time("d", "t")).to_series().to_list()
    assert got == [datetime(2180, 5, 6, 21, 30, 14, 531000), datetime(2180, 7, 23, 8, 5, 56, 875000),
                   datetime(2180, 5, 6, 0, 0, 5), None, None]  # fmt: skip


def test_encoding_sample(dirty):
    defects = json.loads((dirty / "defects.json").read_text())
    steps = Steps("mimic_cxr_context")
    images = mimic.read(config(dirty, sample="encoding"), steps).source.images
    assert set(images["view"]) <= {"AP", "PA"}
    assert set(images["race"]) <= {"white", "black", "asian"}
    assert not set(defects["two_races"]) & set(images["patient_id"])
    assert any(row["step"] == "sample encoding" for row in steps.rows)


def test_missing_files_are_named(tmp_path, twin):
    with pytest.raises(SourceError, match=r"admissions.csv.gz was not found.*PhysioNet: mimiciv"):
        mimic.read(config(tmp_path), Steps("mimic_cxr_context"))
