"""Every layout is written with the published names and headers, opens, is read back as planted, and is repeatable."""

from __future__ import annotations

import csv
import importlib
import json
from collections import defaultdict
from pathlib import Path

import numpy as np
import openpyxl
import polars as pl
import pytest
from PIL import Image

from cxrhf.data.attrition import Steps
from cxrhf.data.settings import BuildConfig
from cxrhf.errors import ConfigError
from cxrhf.twin import films as picture
from cxrhf.twin.chexpert import COLUMNS as PLUS_COLUMNS
from cxrhf.twin.chexpert import write_chexpert, write_chexpert_plus
from cxrhf.twin.covid import COLUMNS as COVID_COLUMNS
from cxrhf.twin.covid import write_covid
from cxrhf.twin.films import SPOILT, films
from cxrhf.twin.laws import DEFAULT
from cxrhf.twin.models import PLANTED, splits_of
from cxrhf.twin.nih import HEADER, write_nih
from cxrhf.twin.people import people
from cxrhf.twin.rexgradient import write_rexgradient
from tests.refusals import refused

WRITERS = {
    "chexpert": write_chexpert,
    "nih": write_nih,
    "rexgradient": write_rexgradient,
    "chexpert_plus": write_chexpert_plus,
    "covid": write_covid,
}
DATASETS = {"nih": "nih_chestxray14", "covid": "covid_chestxray"}
SIZE = 64


@pytest.fixture(scope="module")
def twin():
    return people(12, seed=7)


@pytest.fixture(scope="module")
def drawn_once():
    """The layouts show the same people, so each picture is drawn for the first of them and kept for the others."""
    real, kept = picture.draw, {}

    def draw(film, size):
        key = (film.seed, film.patient_seed, size)
        return kept[key] if key in kept else kept.setdefault(key, real(film, size))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(picture, "draw", draw)
        yield real


@pytest.fixture(scope="module")
def written(twin, drawn_once, tmp_path_factory):
    """layout -> folder, clean and dirty; written once."""
    root = tmp_path_factory.mktemp("layouts")
    for layout, write in WRITERS.items():
        write(twin, root / layout, seed=1, size=SIZE)
        write(twin, root / f"{layout}_dirty", seed=1, size=SIZE, dirty=True)
    return root


def header(path):
    return path.read_text(encoding="utf-8").splitlines()[0]


def read(layout, folder):
    dataset = DATASETS.get(layout, layout)
    reader = importlib.import_module(f"cxrhf.data.{layout}")
    return reader.read(BuildConfig(dataset, root=(str(folder),)), Steps(dataset))


def opens(path):
    try:
        with Image.open(path) as opened:
            opened.load()
            return opened.size == (SIZE, SIZE) and opened.mode == "L"
    except (OSError, SyntaxError):
        return False


@pytest.mark.parametrize("layout", WRITERS)
def test_read_back_as_planted(written, layout):
    source = read(layout, written / layout)
    planted = pl.read_parquet(written / layout / "planted.parquet")
    assert tuple(planted.columns) == PLANTED
    keys = ["image_id", "study_id", "patient_id"]
    assert source.images.select(keys).sort(keys).equals(planted.select(keys).unique().sort(keys))
    assert all(opens(path) for path in source.images["path"])
    if source.findings:
        labels = source.images.unpivot(source.findings, index="image_id", variable_name="finding", value_name="label")
        both = planted.join(labels, on=["image_id", "finding"], how="inner")
        assert both.height >= planted.height * 0.9
        known = both.drop_nulls("label")
        assert known["label"].equals(known["y"], check_names=False)
        assert known.height > 0.85 * both.height  # No Finding is 1 or blank, some diagnoses are "todo"


@pytest.mark.parametrize("layout", WRITERS)
def test_dirty_copies_have_the_defects_they_list(written, layout):
    folder = written / f"{layout}_dirty"
    defects = json.loads((folder / "defects.json").read_text())
    assert all(defects.values())
    assert not (written / layout / "defects.json").exists()
    images = read(layout, folder).images
    bad = {image_id for image_id, path in images.select("image_id", "path").iter_rows() if not opens(path)}
    assert bad == {image_id for kind in SPOILT for image_id in defects[kind]}
    by_id = {row["image_id"]: row for row in images.iter_rows(named=True)}
    for cell in defects.get("uncertain_label", ()):
        image_id, finding = cell.split(" ")
        assert by_id[image_id][finding] == -1
    for cell in defects.get("blank_label", ()):
        image_id, finding = cell.split(" ")
        assert by_id[image_id][finding] is None
    for kind in ("unknown_sex", "sex_missing"):
        for each in defects.get(kind, ()):
            assert images.filter((pl.col("patient_id") == each) | (pl.col("study_id") == each))["sex"].null_count()
    if layout != "rexgradient":
        assert images["age"].null_count() or (images["age"] == 0).any()


@pytest.mark.parametrize("layout", WRITERS)
def test_the_same_seed_writes_the_same_bytes(twin, written, tmp_path, layout):
    WRITERS[layout](twin, tmp_path, seed=1, size=SIZE, dirty=True)
    first = {path.relative_to(written / f"{layout}_dirty"): path for path in (written / f"{layout}_dirty").rglob("*")}
    again = {path.relative_to(tmp_path): path for path in tmp_path.rglob("*")}
    assert first.keys() == again.keys()
    for name, path in first.items():
        assert path.is_dir() or path.read_bytes() == again[name].read_bytes(), name


@pytest.mark.parametrize("layout", WRITERS)
def test_without_pixels(twin, written, tmp_path, layout):
    WRITERS[layout](twin, tmp_path, seed=1, pixels=False)
    assert not [path for path in tmp_path.rglob("*") if path.suffix in (".png", ".jpg")]
    for path in tmp_path.rglob("*.parquet"):
        assert path.read_bytes() == (written / layout / path.name).read_bytes()


@pytest.mark.parametrize("layout", WRITERS)
def test_the_smallest_twin(tmp_path, layout):
    """Two patients: too few for every defect, but written and readable."""
    WRITERS[layout](people(2, seed=2), tmp_path, pixels=False, dirty=True)
    assert read(layout, tmp_path).images.height


@pytest.mark.parametrize("layout", [name for name in WRITERS if name != "covid"])
def test_a_twin_of_one_finding(tmp_path, layout):
    """Without a pneumothorax drains lie nowhere and tell of nobody."""
    edema = tuple(law for law in DEFAULT if law.finding == "edema")
    WRITERS[layout](people(5, seed=1, findings=edema), tmp_path, pixels=False, dirty=True)
    source = read(layout, tmp_path)
    assert source.images.height
    known = json.loads((tmp_path / "truth.json").read_text())["findings"]
    assert {"edema", "no_finding"} & set(source.findings) <= set(known)


def test_chexpert(written, twin):
    root = written / "chexpert"
    labels = (
        "No Finding,Enlarged Cardiomediastinum,Cardiomegaly,Lung Opacity,Lung Lesion,Edema,Consolidation,Pneumonia,"
        "Atelectasis,Pneumothorax,Pleural Effusion,Pleural Other,Fracture,Support Devices"
    )
    for name in ("train", "valid"):
        assert header(root / "CheXpert-v1.0" / f"{name}.csv") == f"Path,Sex,Age,Frontal/Lateral,AP/PA,{labels}"
    train = pl.read_csv(root / "CheXpert-v1.0" / "train.csv", infer_schema=False)
    assert (
        train["Path"].str.contains(r"^CheXpert-v1\.0/train/patient\d{5}/study\d+/view\d+_(frontal|lateral)\.jpg$").all()
    )
    assert set(train["Sex"]) == {"Female", "Male"}
    assert set(train["Pleural Effusion"]) <= {"1.0", "0.0"}
    assert set(train["No Finding"]) <= {"1.0", None}
    assert train.filter(pl.col("Frontal/Lateral") == "Lateral")["AP/PA"].null_count() > 0
    valid = pl.read_csv(root / "CheXpert-v1.0" / "valid.csv", infer_schema=False)
    assert valid.height > 0
    assert valid.select(labels.split(",")).null_count().sum_horizontal()[0] == 0
    assert not set(valid["Path"].str.extract(r"(patient\d+)")) & set(train["Path"].str.extract(r"(patient\d+)"))


def test_chexpert_workbook_and_split(tmp_path):
    write_chexpert(people(150, seed=2), tmp_path, pixels=False)
    sheet = openpyxl.load_workbook(tmp_path / "CHEXPERT DEMO.xlsx").active
    rows = list(sheet.iter_rows(values_only=True))
    assert rows[0] == ("PATIENT", "GENDER", "AGE_AT_CXR", "PRIMARY_RACE", "ETHNICITY")
    race = {patient: (race, ethnicity) for patient, _, _, race, ethnicity in rows[1:]}
    assert len(race) == 150
    assert {"White", "White, non-Hispanic", "Asian", "Black or African American", "Other"} <= {
        r for r, _ in race.values()
    }
    assert {e for _, e in race.values()} == {"Non-Hispanic/Non-Latino", "Hispanic/Latino", "Unknown"}
    path = tmp_path / "chexpert_split_2021_08_20.csv"
    assert header(path) == ",index,split"
    split = pl.read_csv(path)
    train = pl.read_csv(tmp_path / "CheXpert-v1.0" / "train.csv", infer_schema=False).with_row_index("index")
    patient = pl.col("Path").str.extract(r"(patient\d+)")

    def kept(name):
        said, ethnicity = race[name]
        return any(each in said for each in ("White", "Asian", "Black")) and ethnicity == "Non-Hispanic/Non-Latino"

    sample = train.filter(pl.col("Frontal/Lateral") == "Frontal").with_columns(patient=patient)
    sample = sample.filter(pl.Series([kept(name) for name in sample["patient"]]))
    assert split["index"].to_list() == sample["index"].to_list()
    of = defaultdict(set)
    for name, part in zip(sample["patient"], split["split"], strict=True):
        of[part].add(name)
    assert not of["train"] & of["test"]
    assert not of["validate"] & (of["train"] | of["test"])
    total = sum(map(len, of.values()))
    for part, share in (("train", 0.6), ("validate", 0.1), ("test", 0.3)):
        assert len(of[part]) == pytest.approx(share * total, abs=1)


def test_chexpert_small_edition(twin, tmp_path):
    write_chexpert(twin, tmp_path, pixels=False, small=True)
    train = pl.read_csv(tmp_path / "CheXpert-v1.0-small" / "train.csv", infer_schema=False)
    assert train["Path"].str.starts_with("CheXpert-v1.0-small/train/").all()


def test_nih(written, twin, tmp_path):
    root = written / "nih"
    assert header(root / "Data_Entry_2017_v2020.csv") == HEADER
    assert HEADER.count(",") == 10
    with (root / "Data_Entry_2017_v2020.csv").open() as stream:
        rows = list(csv.reader(stream))
    assert {len(row) for row in rows} == {11}
    names = [row[0] for row in rows[1:]]
    lists = {name: (root / f"{name}_list.txt").read_text().split() for name in ("train_val", "test")}
    assert sorted(lists["train_val"] + lists["test"]) == sorted(names)
    assert not {each[:8] for each in lists["train_val"]} & {each[:8] for each in lists["test"]}
    drains = pl.read_csv(root / "drain_annotations.csv")
    assert drains.columns == ["Image Index", "Drain"]
    with_pneumothorax = {row[0] for row in rows[1:] if "Pneumothorax" in row[1].split("|")}
    annotated = {each[:8] for each in drains["Image Index"]}
    assert {each for each in with_pneumothorax if each[:8] in annotated} <= set(drains["Image Index"])
    planted = pl.read_parquet(root / "planted.parquet")
    lesion = (
        planted.filter(pl.col("finding").is_in(["nodule", "mass"])).group_by("image_id").agg(pl.col("pretest").sum())
    )
    assert lesion.height == len(names)

    write_nih(twin, tmp_path, seed=1, pixels=False, old=True)
    lines = (tmp_path / "Data_Entry_2017.csv").read_text().splitlines()
    assert lines[0] == HEADER + ","
    assert all(line.endswith(",") for line in lines)
    assert all(line.split(",")[4][-1] == "Y" and len(line.split(",")[4]) == 4 for line in lines[1:])
    new, old = read("nih", root).images, read("nih", tmp_path).images
    assert new.drop("path").equals(old.drop("path"))


def test_nih_without_a_finding_that_it_names(tmp_path):
    fracture = tuple(law for law in DEFAULT if law.finding == "fracture")
    with refused(ConfigError, "nih", "atelectasis", got="fracture"):
        write_nih(people(5, findings=fracture), tmp_path, pixels=False)


def test_nih_dirty_ages(written):
    defects = json.loads((written / "nih_dirty" / "defects.json").read_text())
    with (written / "nih_dirty" / "Data_Entry_2017_v2020.csv").open() as stream:
        ages = {row["Image Index"].removesuffix(".png"): int(row["Patient Age"]) for row in csv.DictReader(stream)}
    assert {image_id for image_id, age in ages.items() if age > 400} == set(defects["odd_age"])


def test_rexgradient(written):
    root = written / "rexgradient" / "metadata"
    seen = {}
    for split in ("train", "valid", "test"):
        studies = json.loads((root / f"{split}_metadata_view_position.json").read_text())
        table = pl.read_csv(root / f"{split}_metadata.csv", infer_schema=False)
        assert table["id"].to_list() == list(studies)
        seen[split] = {study["PatientID"] for study in studies.values()}
        for study in studies.values():
            assert list(study) == table.columns[1:]
            assert len(study["ImagePath"]) == len(study["ImageViewPosition"])
            assert study["ImagePath"][0].startswith("../deid_png/")
            assert all((root / path).is_file() for path in study["ImagePath"])
            assert len(study["StudyDate"]) == 8
            assert study["PatientAge"].endswith("Y")
            assert study["Impression"]
    assert not seen["train"] & seen["test"]
    images = read("rexgradient", written / "rexgradient").images
    assert set(images["view"]) <= {"PA", "AP", "LATERAL"}


def test_chexpert_plus(written):
    root = written / "chexpert_plus"
    assert header(root / "df_chexpert_plus_240401.csv") == ",".join(PLUS_COLUMNS)
    table = pl.read_csv(root / "df_chexpert_plus_240401.csv", infer_schema=False)
    assert table["path_to_image"].str.ends_with(".jpg").all()
    assert (root / "PNG" / table["path_to_image"][0].replace(".jpg", ".png")).is_file()
    for name in ("findings", "impression", "report"):
        lines = (root / "chexbert_labels" / f"{name}_fixed.json").read_text().splitlines()
        assert [json.loads(line)["path_to_image"] for line in lines] == table["path_to_image"].to_list()
        assert json.loads(lines[0])["Pleural Effusion"] in (0.0, 1.0)
    source = read("chexpert_plus", root)
    assert source.images["impression"].null_count() == 0


def test_covid(written, twin):
    root = written / "covid"
    assert header(root / "metadata.csv") == ",".join(COVID_COLUMNS)
    table = pl.read_csv(root / "metadata.csv", infer_schema=False)
    assert {"No Finding", "todo"} <= set(table["finding"])
    assert table["finding"].str.starts_with("Pneumonia").any()
    assert 0 < table["offset"].null_count() < table.height / 2
    notes = (
        table.drop_nulls("clinical_notes")
        .group_by("patientid")
        .agg(pl.col("clinical_notes").n_unique().alias("texts"), pl.len())
    )
    repeated = notes.filter((pl.col("len") > 1) & (pl.col("texts") == 1))
    assert repeated.height > 0  # one text at several images, as in the published table
    assert notes["texts"].max() > 1
    with pytest.raises(ConfigError, match="pneumonia"):
        write_covid(people(5, findings=tuple(law for law in DEFAULT if law.finding != "pneumonia")), root / "none")


def test_covid_notes_name_the_diagnosis_at_times(tmp_path):
    write_covid(people(60, seed=1), tmp_path, pixels=False)
    named = pl.col("clinical_notes").str.contains("(?i)covid-19|pneumonia|streptococcus|pneumocystis")
    share = pl.read_csv(tmp_path / "metadata.csv").drop_nulls("clinical_notes").select(named.mean()).item()
    assert 0.02 < share < 0.5


def test_films_follow_people_not_layouts(twin, written, drawn_once, monkeypatch):
    monkeypatch.setattr(picture, "draw", drawn_once)  # the real one again
    drawn = dict(films(twin, SIZE, rows=[3, 0], seed=1))
    assert list(drawn) == [3, 0]
    assert drawn[0].shape == (SIZE, SIZE)
    assert drawn[0].dtype == np.uint8
    planted = pl.read_parquet(written / "chexpert_plus" / "planted.parquet")
    first = planted.filter(pl.col("finding") == "edema", pl.col("shown") == twin.s[0, twin.findings.index("edema")])
    with Image.open(written / "chexpert_plus" / "PNG" / f"{first['image_id'][0]}.png") as opened:
        assert np.array_equal(np.asarray(opened), drawn[0])


def test_splits_keep_their_shares():
    split = splits_of(100, {"a": 0.6, "b": 0.1, "c": 0.3}, np.random.default_rng(0))
    assert {name: int((split == name).sum()) for name in "abc"} == {"a": 60, "b": 10, "c": 30}
    assert len(splits_of(0, {"a": 1.0}, np.random.default_rng(0))) == 0


def test_paths_are_below_the_folder(written):
    for layout in WRITERS:
        text = "".join(
            path.read_text(encoding="utf-8")
            for path in Path(written / layout).rglob("*")
            if path.suffix in (".csv", ".json", ".txt")
        )
        assert str(written) not in text  # no machine's paths in the files
