"""ReXGradient-160K as it lies on the Hub -> Source: one JSON file a split, a report a study, several pictures a study.

The dataset has no labels: `findings` is empty, and only the sections of the reports are there. A study whose list of
views is not as long as its list of pictures has null views, for nobody can tell which one is missing. Each file is
loaded whole: of the training file (140,000 studies, some 300 MB) expect 1.5 GB of memory while it is read.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import polars as pl

from cxrhf.data import fields, layout
from cxrhf.data.attrition import Steps
from cxrhf.data.layout import below, find_holding_folder, folders
from cxrhf.data.prepare import Source
from cxrhf.data.settings import BuildConfig
from cxrhf.errors import SourceError, did_you_mean
from cxrhf.tables.checks import quoted

DATASET = "rexgradient"
SPLITS = {"train": "train", "valid": "validate", "test": "test"}
_SECTIONS = ("Indication", "Comparison", "Findings", "Impression")
_TEXTS = ("PatientID", "StudyDate", "PatientSex", "PatientAge", *_SECTIONS)
_LISTS = ("ImagePath", "ImageViewPosition")
_SCHEMA: dict[str, Any] = {
    "study_id": pl.String,
    **dict.fromkeys(_TEXTS, pl.String),
    **dict.fromkeys(_LISTS, pl.List(pl.String)),
}


def read(config: BuildConfig, steps: Steps) -> Source:
    """Every picture of every split that is there, with its study's report."""
    found = {split: layout.find(config.root, DATASET, split) for split in SPLITS}
    paths = {split: path for split, path in found.items() if path is not None}
    if not paths:
        layout.require(config.root, DATASET, "test")
    parts, bare = [], 0
    for split, path in paths.items():
        studies = _read_studies(path)
        bare += studies.filter(pl.col("ImagePath").list.len() == 0).height
        parts.append(_images(studies, SPLITS[split], path, folders((path.parent.parent, *config.root))))
    images = pl.concat([part for part, _, _ in parts])
    fields.check_ids(images, next(iter(paths.values())))
    absent = [split for split in SPLITS if split not in paths]
    note = fields.noted(
        (sum(uneven for _, uneven, _ in parts), "studies with fewer or more views than images, views set to missing"),
        (sum(nonsense for _, _, nonsense in parts), "age above 120, set to missing"),
        (bare, "studies without an image, excluded"),
        (images.get_column("sex").null_count(), "images with unknown sex"),
        (images.get_column("view").null_count(), "images with unknown view"),
    )
    missing = f"missing files: {', '.join(absent)}" if absent else ""
    steps.add("studies", images, note="; ".join(filter(None, (missing, note))))
    return Source(DATASET, images, ())


def _read_studies(path: Path) -> pl.DataFrame:
    """The JSON object of a split as a row a study."""
    try:
        with path.open(encoding="utf-8-sig") as stream:
            loaded = json.load(stream, object_pairs_hook=_object)
    except json.JSONDecodeError as error:
        raise SourceError(
            f"{path.name}, line {error.lineno}: not valid JSON ({error.msg})", next_step=f"copy {path} again"
        ) from None
    except UnicodeDecodeError:
        raise SourceError(path.name, got="other bytes", allowed="UTF-8 text", next_step=f"copy {path} again") from None
    if not isinstance(loaded, dict):
        raise SourceError(
            path.name,
            allowed="a JSON object with one key per study",
            got=type(loaded).__name__,
            next_step=f"copy {path} again",
        )
    columns: dict[str, list[Any]] = {name: [] for name in _SCHEMA}
    named = {name for study in loaded.values() if isinstance(study, Mapping) for name in study}
    for key, study in loaded.items():
        _check_study(key, study, path, named)
        columns["study_id"].append(key)
        for name in _TEXTS:
            value = study.get(name)
            columns[name].append(value if value is None else str(value))
        for name in _LISTS:
            columns[name].append([each if each is None else str(each) for each in study.get(name) or []])
    return pl.DataFrame(columns, schema=_SCHEMA)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object; a key that stands twice would lose a study without a word."""
    made = dict(pairs)
    if len(made) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise SourceError(
            f"ReXGradient metadata: key {quoted(twice)} appears twice in one object", next_step="copy the file again"
        )
    return made


def _check_study(key: str, study: object, path: Path, named: set[str]) -> None:
    """A study needs a patient and pictures; another field may be blank, but not unknown to the whole file: renamed."""
    if not isinstance(study, Mapping):
        raise SourceError(
            f"{path.name}, study {quoted(key)}",
            allowed="a JSON object",
            got=type(study).__name__,
            next_step=f"copy {path} again",
        )
    for name in (*_TEXTS, *_LISTS):
        if name not in study and (name in ("PatientID", "ImagePath") or name not in named):
            hint = did_you_mean(name, study)
            raise SourceError(
                f"{path.name}, study {quoted(key)}",
                allowed=f'a field "{name}"',
                got=f"fields {', '.join(study)}",
                next_step=(f"{hint} Was it renamed? " if hint else "") + f"download {path} again",
            )
    for name in _LISTS:
        if not isinstance(study.get(name) or [], list):
            raise SourceError(
                f'{path.name}, study {quoted(key)}, field "{name}"',
                allowed="a list",
                got=study[name],
                next_step=f"copy {path} again",
            )


def _images(studies: pl.DataFrame, split: str, path: Path, places: list[Path]) -> tuple[pl.DataFrame, int, int]:
    """A row a picture; the number of studies with uneven lists; the number of pictures with ages nobody can have."""
    count = pl.col("ImagePath").list.len()
    even = pl.col("ImageViewPosition").list.len() == count
    uneven = studies.filter(~even & (count > 0)).height
    blank = pl.lit(None, pl.String).repeat_by(count)
    rows = (
        studies.with_columns(pl.when(even).then("ImageViewPosition").otherwise(blank).alias("ImageViewPosition"))
        .filter(count > 0)
        .explode(_LISTS)
    )
    age, nonsense = fields.ages(rows, "PatientAge", path)
    name = pl.col("ImagePath").str.replace(r"^(\.\./)+", "")  # "../deid_png/...", seen from the metadata folder
    found = find_holding_folder(places, rows.select(name).to_series())
    images = rows.select(
        pl.col("ImagePath").str.extract(r"([^/]+?)(?:\.[A-Za-z]+)?$").alias("image_id"),
        "study_id",
        fields.text("PatientID").alias("patient_id"),
        below(found[0] if found else places[0], name).alias("path"),
        pl.lit(split).alias("split"),
        fields.view("ImageViewPosition"),
        _dates(rows, path),
        age,
        fields.sex("PatientSex"),
        *(fields.text(section).alias(section.lower()) for section in _SECTIONS),
    )
    return images, uneven, nonsense


def _dates(rows: pl.DataFrame, path: Path) -> pl.Series:
    """The day of the study, at midnight: there is no time of day."""
    cells = rows.get_column("StudyDate").str.strip_chars()
    days = cells.str.to_datetime("%Y%m%d", strict=False, time_unit="us")
    bad = days.is_null() & cells.is_not_null() & (cells != "")
    if bad.any():
        at = int(bad.arg_max() or 0)
        raise SourceError(
            f'{path.name}, study {quoted(rows.get_column("study_id")[at])}, field "StudyDate"',
            got=quoted(cells[at]),
            allowed="a day such as 20150102, or empty",
            next_step=f"fix the field, or copy {path} again",
        )
    return days.alias("study_time")
