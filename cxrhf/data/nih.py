"""ChestX-ray14 as the NIH hands it out -> Source: the entry table of 2017 or 2020, the official lists, annotations.

Labels are 1 or 0 (the text-mined table knows neither uncertain nor blank), and `no_finding` is the table's own "No
Finding". A study is an image: follow-up numbers count images and say no date. The first table gives ages with units
("058Y", "018M", "012D") and some that nobody can have; those above 120 become null and are counted.
"""

from __future__ import annotations

from pathlib import Path

import polars as pl

from cxrhf.data import fields, layout
from cxrhf.data.attrition import Steps
from cxrhf.data.fields import read_attributes
from cxrhf.data.layout import below, folders, list_pictures
from cxrhf.data.prepare import Source
from cxrhf.data.raw import open_bytes, read_csv
from cxrhf.data.settings import BuildConfig
from cxrhf.errors import SourceError, did_you_mean
from cxrhf.findings import NIH, finding_name
from cxrhf.tables.checks import quoted

DATASET = "nih_chestxray14"
FINDINGS = (*NIH, "no_finding")
_COLUMNS = ("Image Index", "Finding Labels", "Patient ID", "Patient Age", "Patient Gender", "View Position")
_LISTS = {"train_list": "train", "test_list": "test"}


def read(config: BuildConfig, steps: Steps) -> Source:
    """Every entry, its labels, the official split, and the picture of the same name wherever it lies."""
    path = layout.require(config.root, DATASET, "entries")
    raw = read_csv(path, _COLUMNS)
    age, nonsense = fields.ages(raw, "Patient Age", path)
    name = pl.col("Image Index").str.strip_chars()
    images = raw.select(
        name.str.replace(r"(?i)\.(png|jpe?g)$", "").alias("image_id"),
        name.str.replace(r"(?i)\.(png|jpe?g)$", "").alias("study_id"),
        fields.text("Patient ID").alias("patient_id"),
        fields.view("View Position"),
        age,
        fields.sex("Patient Gender"),
        *_labels(raw.get_column("Finding Labels"), path),
        name.alias("file"),
    )
    fields.check_ids(images, path)
    both = images.filter((pl.col("no_finding") == 1) & pl.any_horizontal(pl.col(name) == 1 for name in NIH)).height
    steps.add(
        "entries",
        images,
        note=fields.noted(
            (nonsense, "age above 120, set to missing"),
            (images.get_column("sex").null_count(), "sex unknown"),
            (images.get_column("no_finding").null_count(), "no label"),
            (both, "No Finding together with a finding"),
        ),
    )
    images = _with_split(images, config, steps)
    images = _with_paths(images, folders(config.root, path), steps)
    annotated = layout.find(config.root, DATASET, "attributes")
    attributes = None
    if annotated is not None:
        attributes, note = read_attributes(annotated, images)
        steps.add("attributes", images, note=note)
    return Source(DATASET, images.drop("file"), FINDINGS, attributes)


def _labels(cells: pl.Series, path: Path) -> list[pl.Series]:
    """`Effusion|Mass` -> an Int8 column for each finding. There are few distinct cells, so each is read once."""
    distinct = cells.unique().drop_nulls()
    named = {cell: {finding_name(part) for part in cell.split("|") if part.strip()} for cell in distinct}
    for cell, found in named.items():
        unknown = sorted(found - set(FINDINGS))
        if unknown:
            written = next(part for part in cell.split("|") if finding_name(part) == unknown[0])
            at = int((cells == cell).arg_max() or 0)
            raise SourceError(
                f'{path.name}, column "Finding Labels", row {at + 1}',
                got=quoted(written),
                allowed=f"labels of ChestX-ray14 ({', '.join(FINDINGS)})",
                next_step=did_you_mean(unknown[0], FINDINGS) or f"copy {path} again",
            )
    return [
        cells.replace_strict(
            {cell: int(finding in found) for cell, found in named.items() if found},
            default=None,
            return_dtype=pl.Int8,
        ).alias(finding)
        for finding in FINDINGS
    ]


def _with_split(images: pl.DataFrame, config: BuildConfig, steps: Steps) -> pl.DataFrame:
    """`split` by train_val_list.txt and test_list.txt, where one of them is there; an image in neither has none."""
    parts = []
    for key, split in _LISTS.items():
        path = layout.find(config.root, DATASET, key)
        if path is not None:
            parts.append(pl.DataFrame({"image_id": _names(path)}, schema={"image_id": pl.String}).with_columns(
                split=pl.lit(split)
            ))  # fmt: skip
    if not parts:
        return images
    official = pl.concat(parts).unique(maintain_order=True)
    twice = official.get_column("image_id").is_duplicated()
    if twice.any():
        raise SourceError(
            f"train_val_list.txt and test_list.txt: image "
            f"{quoted(official.get_column('image_id')[int(twice.arg_max() or 0)])} is in both",
            next_step="copy both lists again",
        )
    images = images.join(official, on="image_id", how="left", maintain_order="left")
    strangers = official.join(images, on="image_id", how="anti").height
    one = "one of the two lists is missing" if len(parts) == 1 else ""
    note = fields.noted(
        (images.get_column("split").null_count(), "images in neither list"),
        (strangers, "listed names not in the table"),
    )
    steps.add("official split", images, note="; ".join(filter(None, (one, note))))
    return images


def _names(path: Path) -> pl.Series:
    with open_bytes(path) as stream:
        try:
            names = pl.Series("image_id", stream.read().decode("utf-8-sig").split(), dtype=pl.String)
        except UnicodeDecodeError:
            raise SourceError(
                path.name, got="other bytes", allowed="UTF-8 text", next_step=f"copy {path} again"
            ) from None
    return names.str.replace(r"(?i)\.(png|jpe?g)$", "")


def _with_paths(images: pl.DataFrame, places: list[Path], steps: Steps) -> pl.DataFrame:
    """`path` of the picture with the image's name, .png or .jpg; where there is none, where it would normally lie."""
    inner = [
        each
        for place in places
        for folder in (place, *sorted(each for each in place.glob("images*") if each.is_dir()))
        for each in (folder, folder / "images", folder / folder.name)
    ]
    found = list_pictures(inner)
    joined = images.join(found, left_on="image_id", right_on="stem", how="left", maintain_order="left")
    missing = joined.get_column("found").null_count()
    note = f"{joined.height - missing:,} of {joined.height:,} image files exist" if missing else ""
    steps.add("image files", joined, note=note)
    usual = below(places[0] / "images", pl.col("file"))
    return joined.with_columns(pl.coalesce("found", usual).alias("path")).drop("found")
