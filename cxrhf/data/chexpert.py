"""CheXpert as Stanford hands it out -> Source: train.csv, valid.csv, the demographic workbook, annotations.

The rows of train.csv keep their order and their number, `source_row`, because ENCODING's split names them by it. The
radiologists' valid.csv is the split "validate". `view` is what AP/PA says, LATERAL where it says nothing of a lateral
picture; the few pictures that are called frontal and LL or RL at once keep that name and are neither PA nor AP. An age
of 0 is kept, as nobody can tell a newborn from a blank.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import polars as pl

from cxrhf.data import fields, layout
from cxrhf.data.attrition import Steps
from cxrhf.data.fields import read_attributes, read_xlsx
from cxrhf.data.layout import below, find_holding_folder, folders
from cxrhf.data.prepare import Source
from cxrhf.data.raw import header, numbers, read_csv
from cxrhf.data.settings import BuildConfig
from cxrhf.errors import SourceError
from cxrhf.findings import CHEXPERT

DATASET = "chexpert"
RACES = ("white", "asian", "black")
# The labels as the tables of CheXpert, CheXpert Plus and MIMIC-CXR spell them, in CheXpert's order.
LABELS = {
    "No Finding": "no_finding",
    "Enlarged Cardiomediastinum": "enlarged_cardiomediastinum",
    "Cardiomegaly": "cardiomegaly",
    "Lung Opacity": "lung_opacity",
    "Lung Lesion": "lung_lesion",
    "Edema": "edema",
    "Consolidation": "consolidation",
    "Pneumonia": "pneumonia",
    "Atelectasis": "atelectasis",
    "Pneumothorax": "pneumothorax",
    "Pleural Effusion": "pleural_effusion",
    "Pleural Other": "pleural_other",
    "Fracture": "fracture",
    "Support Devices": "support_devices",
}
_SPLITS = {"train": "train", "valid": "validate"}
_COLUMNS = ("Path", "Sex", "Age", "Frontal/Lateral", "AP/PA", *LABELS)
# Any folders, then train/patient00001/study1/view1_frontal.jpg
_PICTURE = r"^(?:.*/)?(?<tail>[^/]+/(?<patient>patient\d+)/(?<study>study\d+)/(?<file>[^/]+))$"


def read(config: BuildConfig, steps: Steps) -> Source:
    """Every image of train.csv, then of valid.csv, with raw labels; race and ethnicity where the workbook is there."""
    train = layout.require(config.root, DATASET, "train")
    valid = layout.find(config.root, DATASET, "valid")
    parts = [_read_table(path, split, steps) for path, split in ((train, "train"), (valid, "validate")) if path]
    images = pl.concat(parts)
    fields.check_ids(images, train)
    images = with_paths(images, folders(config.root, train))
    demo = layout.find(config.root, DATASET, "demo")
    if demo is not None:
        images = _with_race(images, demo, steps)
    if config.sample == "encoding":
        images = _encoding_sample(images, demo, config, steps)
    annotated = layout.find(config.root, DATASET, "attributes")
    attributes = None
    if annotated is not None:
        attributes, note = read_attributes(annotated, images)
        steps.add("attributes", images, note=note)
    return Source(DATASET, images.drop("frontal", "tail", "listed"), CHEXPERT, attributes)


def _read_table(path: Path, split: str, steps: Steps) -> pl.DataFrame:
    raw = read_csv(path, _COLUMNS)
    if not raw.height:
        raise SourceError(f"{path.name} has no rows after the header", next_step=f"copy {path} again")
    age, nonsense = fields.ages(raw, "Age", path)
    images = raw.select(
        *names(raw, "Path", path),
        pl.lit(split).alias("split"),
        chexpert_view("Frontal/Lateral", "AP/PA"),
        age,
        fields.sex("Sex"),
        (pl.int_range(pl.len(), dtype=pl.Int64) if split == "train" else pl.lit(None, pl.Int64)).alias("source_row"),
        (pl.col("Frontal/Lateral") == "Frontal").alias("frontal"),
        *fields.labels(raw, LABELS, path),
    )
    odd = images.filter(pl.col("frontal") & ~pl.col("view").is_in(["PA", "AP"])).height
    note = fields.noted(
        (int((age == 0).sum()), "age 0, kept"),
        (nonsense, "age above 120, set to missing"),
        (images.get_column("sex").null_count(), "sex unknown"),
        (odd, "frontal but neither PA nor AP"),
    )
    steps.add(path.name.removesuffix(".gz"), images, note=note)
    return images


def names(raw: pl.DataFrame, column: str, path: Path) -> list[pl.Series]:
    """image_id, study_id, patient_id, the name below the edition's folder (`tail`) and the name as it is (`listed`)."""
    listed = raw.get_column(column)
    parts = listed.str.extract_groups(_PICTURE).struct
    tail, patient = parts.field("tail"), parts.field("patient")
    if tail.null_count():
        at = int(tail.is_null().arg_max() or 0)
        raise SourceError(
            f'{path.name}, column "{column}", row {at + 1}',
            got=listed[at],
            allowed="the path of an image such as [CheXpert-v1.0/]train/patient00001/study1/view1_frontal.jpg",
            next_step=f"fix the cell, or copy {path} again",
        )
    return [
        tail.str.replace(r"\.[A-Za-z]+$", "").alias("image_id"),
        (patient + "/" + parts.field("study")).alias("study_id"),
        patient.alias("patient_id"),
        tail.alias("tail"),
        listed.alias("listed"),
    ]


def chexpert_view(side: str, projection: str) -> pl.Expr:
    """AP/PA's word, or LATERAL where it is blank and the picture is lateral."""
    said = pl.col(projection).str.strip_chars().str.to_uppercase()
    lateral = pl.col(side).str.to_lowercase() == "lateral"
    return pl.when(said.is_not_null() & (said != "")).then(said).when(lateral).then(pl.lit("LATERAL")).alias("view")


def with_paths(images: pl.DataFrame, places: Sequence[Path]) -> pl.DataFrame:
    """The images with `path`, each split where its pictures lie; below the first place where none can be found."""
    edition = str(images.get_column("listed").head(1).str.extract(r"^([^/]+)/").first() or "")
    editions = [each for place in places for each in sorted(place.glob("CheXpert-v1.0*")) if each.is_dir()]
    candidates = [*(place / edition for place in places), *places, *editions]
    path = below(places[0], pl.col("listed")) if places else pl.lit(None, pl.String)
    for split in _SPLITS:
        of_split = pl.col("tail").str.starts_with(f"{split}/")
        tails = images.filter(of_split).get_column("tail")
        found = find_holding_folder(candidates, tails)
        if found is not None:
            path = pl.when(of_split).then(below(found[0], pl.col("tail"))).otherwise(path)
        elif tails.len() and (batches := _batches(editions)):
            # Stanford's later download: patients in several folders "CheXpert-v1.0 batch 2 (train 1)", without train/.
            batch = pl.col("patient_id").replace_strict(batches, default=None, return_dtype=pl.String)
            inner = pl.col("tail").str.replace(r"^[^/]+", "")
            path = pl.when(of_split & batch.is_not_null()).then(batch + inner).otherwise(path)
    return images.with_columns(path.alias("path"))


def _batches(editions: Sequence[Path]) -> dict[str, str]:
    """Patient -> the folder that holds the patient's folder, from one listing of each."""
    return {
        entry.name: str(edition)
        for edition in editions
        if "batch" in edition.name
        for entry in os.scandir(edition)
        if entry.name.startswith("patient")
    }


def _with_race(images: pl.DataFrame, demo: Path, steps: Steps) -> pl.DataFrame:
    people = read_xlsx(demo, ["PATIENT", "PRIMARY_RACE", "ETHNICITY"]).select(
        fields.text("PATIENT").alias("patient_id"), fields.race("PRIMARY_RACE"), fields.ethnicity("ETHNICITY")
    )
    # A patient listed with several races has none that can be relied on.
    alone = [
        pl.when(pl.col(name).n_unique() == 1).then(pl.col(name).first()).otherwise(None).alias(name)
        for name in ("race", "ethnicity")
    ]
    several = people.unique().height - people.get_column("patient_id").n_unique()
    people = people.group_by("patient_id", maintain_order=True).agg(alone)
    joined = images.join(people, on="patient_id", how="left", maintain_order="left")
    absent = images.join(people, on="patient_id", how="anti").get_column("patient_id").n_unique()
    note = fields.noted(
        (absent, "patients not in the workbook"),
        (several, "rows that contradict another row of the patient, differing values set to missing"),
        (joined.get_column("race").null_count(), "images without race"),
        (joined.get_column("ethnicity").null_count(), "images without ethnicity"),
    )
    steps.add("demographics", joined, note=note)
    return joined


def in_encoding_sample() -> pl.Expr:
    """Frontal images of White, Asian and Black patients who are not Hispanic.

    Frontal is PA or AP: the published sample holds none of the 17 images that are called frontal and LL or RL.
    """
    person = pl.col("race").is_in(RACES) & (pl.col("ethnicity") == "non-hispanic")
    return person & pl.col("view").is_in(["PA", "AP"]) & pl.col("frontal")


def _encoding_sample(images: pl.DataFrame, demo: Path | None, config: BuildConfig, steps: Steps) -> pl.DataFrame:
    """ENCODING's sample of train.csv, by the workbook or, where it is not there, by the rows of ENCODING's split."""
    if demo is not None:
        sample = images.filter(in_encoding_sample() & pl.col("source_row").is_not_null())
        steps.add("sample encoding", sample, note=f"from {demo.name}")
        return sample
    split_file = Path(config.split_file) if config.split_file else None
    if split_file is None or "index" not in header(split_file):
        wanted = layout.needed(DATASET, "demo")
        raise SourceError(
            f"sample encoding: {layout.missing(config.root, DATASET, 'demo')}",
            next_step=f"get it from {wanted.project} and put it into the --root folder, or pass ENCODING's split file, "
            'which has a column "index": --split-file chexpert_split_2021_08_20.csv',
        )
    listed = read_csv(split_file, ["index"])
    rows = numbers(listed, "index", pl.Int64, split_file)
    last = images.get_column("source_row").count() - 1
    if rows.null_count() or not rows.is_between(0, last).all():
        raise SourceError(
            f'{split_file.name}, column "index": some rows are not in the table',
            allowed=f"0 to {last}",
            next_step="use the split file with CheXpert's train.csv of 223,414 rows",
        )
    sample = images.filter(pl.col("source_row").is_in(rows.implode()))
    steps.add("sample encoding", sample, note=f"rows listed in {split_file.name}; race requires the workbook")
    return sample
