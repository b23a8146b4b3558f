"""CheXpert Plus as Stanford hands it out -> Source: the table with reports, CheXbert's labels, demographics.

Labels come from the file for the impression; the one for the findings, then the one for the whole report, is taken only
where it is missing, for a whole report also tells of earlier pictures. The table says .jpg and the pictures are .png.
There are no dates: `patient_report_date_order` only orders a patient's reports, so `study_time` is null throughout.
Known gap: the labels are read whole (some 90 MB of text).
"""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl

from cxrhf.data import fields, layout
from cxrhf.data.attrition import Steps
from cxrhf.data.chexpert import LABELS, chexpert_view, in_encoding_sample, names
from cxrhf.data.layout import below, find_holding_folder, folders
from cxrhf.data.prepare import Source
from cxrhf.data.raw import open_bytes, read_csv
from cxrhf.data.settings import BuildConfig
from cxrhf.errors import SourceError, did_you_mean
from cxrhf.findings import CHEXPERT
from cxrhf.tables.checks import quoted

DATASET = "chexpert_plus"
_COLUMNS = (
    "path_to_image", "frontal_lateral", "ap_pa", "deid_patient_id", "section_findings", "section_impression", "age",
    "sex", "race",
)  # fmt: skip
_OPTIONAL = ("section_clinical_history", "section_history", "section_comparison", "ethnicity")
_SPLITS = {"train": "train", "valid": "validate", "test": "test"}
_LABEL_SCHEMA = {"path_to_image": pl.String, **dict.fromkeys(LABELS, pl.Float64)}


def read(config: BuildConfig, steps: Steps) -> Source:
    """Every row of the table, with raw labels; they are null throughout where no file of labels is there."""
    path = layout.require(config.root, DATASET, "table")
    raw = read_csv(path, _COLUMNS, optional=_OPTIONAL)
    age, nonsense = fields.ages(raw, "age", path)
    images = raw.select(
        *names(raw, "path_to_image", path),
        fields.text("deid_patient_id"),
        pl.col("path_to_image")
        .str.extract(r"(?:^|/)(train|valid|test)/patient")
        .replace_strict(_SPLITS, default=None, return_dtype=pl.String)
        .alias("split"),
        chexpert_view("frontal_lateral", "ap_pa"),
        age,
        fields.sex("sex"),
        fields.race("race"),
        fields.ethnicity("ethnicity"),
        pl.coalesce(fields.text("section_clinical_history"), fields.text("section_history")).alias("indication"),
        *(fields.text(f"section_{name}").alias(name) for name in ("comparison", "findings", "impression")),
        (pl.col("frontal_lateral").str.to_lowercase() == "frontal").alias("frontal"),
    )
    other = images.filter(pl.col("deid_patient_id") != pl.col("patient_id"))
    if other.height:
        raise SourceError(
            f"{path.name}: the path of image {quoted(other.get_column('image_id')[0])} names a different patient",
            got=f"deid_patient_id {other.get_column('deid_patient_id')[0]}",
            next_step=f"fix the row, or copy {path} again",
        )
    fields.check_ids(images, path)
    steps.add(
        "table",
        images,
        note=fields.noted(
            (nonsense, "age above 120, set to missing"),
            (images.get_column("sex").null_count(), "sex unknown"),
            (images.get_column("race").null_count(), "race unknown"),
            (images.get_column("impression").null_count(), "no impression"),
        ),
    )
    images = _with_paths(images, folders(config.root, path))
    label_file = layout.find(config.root, DATASET, "labels")
    if label_file is None:
        images = images.with_columns(pl.lit(None, pl.Int8).alias(name) for name in CHEXPERT)
        steps.add("labels", images, note=f"no labels: {layout.needed(DATASET, 'labels').lies} was not found")
    else:
        images = _with_labels(images, label_file, steps)
    if config.sample == "encoding":
        images = images.filter(in_encoding_sample() & (pl.col("split") == "train"))
        steps.add("sample encoding", images, note="from the table's race and ethnicity")
    return Source(DATASET, images.drop("frontal", "tail", "listed", "deid_patient_id"), CHEXPERT)


def _with_paths(images: pl.DataFrame, places: list[Path]) -> pl.DataFrame:
    """`path` below PNG/ or wherever a few of the pictures are, .png before .jpg."""
    candidates = [
        each for place in places for each in (place / "PNG", place, place / "CheXpert-v1.0", place / "images")
    ]
    bare = pl.col("image_id")
    found = find_holding_folder(candidates, images.select(bare).to_series(), (".png", ".jpg"))
    folder, ending = found if found is not None else (places[0] / "PNG", ".png")
    return images.with_columns(below(folder, bare + ending).alias("path"))


def _with_labels(images: pl.DataFrame, path: Path, steps: Steps) -> pl.DataFrame:
    labels = _read_labels(path)
    image_id = pl.Series(names(labels, "path_to_image", path)[0])
    labels = labels.select(image_id, *(pl.col(column).alias(name) for column, name in LABELS.items()))
    twice = labels.get_column("image_id").is_duplicated()
    if twice.any():
        first = labels.get_column("image_id")[int(twice.arg_max() or 0)]
        raise SourceError(
            f"{path.name}: image {quoted(first)} has several rows of labels", next_step=f"copy {path} again"
        )
    values = labels.select(pl.exclude("image_id").is_in([-1.0, 0.0, 1.0]).fill_null(True).all())
    for name in values.columns:
        if not values.get_column(name)[0]:
            bad = labels.filter(~pl.col(name).is_in([-1.0, 0.0, 1.0])).row(0, named=True)
            raise SourceError(
                f'{path.name}, "{name}" of image {quoted(bad["image_id"])}',
                got=bad[name],
                allowed="1, 0, -1 or null",
                next_step=f"copy {path} again",
            )
    joined = images.join(
        labels.with_columns(pl.exclude("image_id").cast(pl.Int8)), on="image_id", how="left", maintain_order="left"
    )
    note = fields.noted(
        (images.join(labels, on="image_id", how="anti").height, "images without labels"),
        (labels.join(images, on="image_id", how="anti").height, "labels of images not in the table"),
    )
    steps.add("labels", joined, note="; ".join(filter(None, (f"from {path.name}", note))))
    return joined


def _read_labels(path: Path) -> pl.DataFrame:
    """JSON lines -> path_to_image and a column a label. The first line must name every label."""
    with open_bytes(path) as stream:
        line = stream.readline()
        text = line + stream.read()
    again = f"copy {path} again"
    try:
        first = json.loads(line)
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise SourceError(
            f"{path.name}, line 1", got=str(error), allowed="one JSON object per line", next_step=again
        ) from None
    for name in _LABEL_SCHEMA:
        if not isinstance(first, dict) or name not in first:
            there = list(first) if isinstance(first, dict) else []
            hint = did_you_mean(name, there)
            raise SourceError(
                f"{path.name}, line 1",
                allowed=f'a field "{name}"',
                got=f"fields {', '.join(there)}",
                next_step=(f"{hint} Was it renamed? " if hint else "") + again,
            )
    try:
        return pl.read_ndjson(text, schema=_LABEL_SCHEMA)
    except pl.exceptions.PolarsError as error:
        raise SourceError(
            f"{path.name}: the file cannot be read as JSON lines ({str(error).splitlines()[0]})", next_step=again
        ) from None
