"""People -> ReXGradient-160K as it lies on the Hub once unpacked: metadata per split, reports inside, PNGs by UID."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from cxrhf.twin.films import write_pictures
from cxrhf.twin.models import of_patients, ordered_images, pick, splits_of
from cxrhf.twin.people import People
from cxrhf.twin.truth import write_known

SPLITS = {"train": 0.7, "valid": 0.1, "test": 0.2}
# One projection under several names, as scanners send it.
_VIEWS = {"PA": ("PA", "POSTERO_ANTERIOR"), "AP": ("AP", "ANTERO_POSTERIOR"), "LATERAL": ("LATERAL",)}
_ROOT_UID = "1.2.826.0.1.3680043.8.498"
_LETTERS = np.array(list("ABCDEFGHJKLMNPQRSTUVWXYZ23456789"))
_EARLIER = "60265d"  # the twin's dates lie 165 years ahead
_SECTIONS = ("Indication", "Comparison", "Findings", "Impression")


def write_rexgradient(
    people: People, folder: str | Path, *, seed: int = 0, pixels: bool = True, size: int = 256, dirty: bool = False
) -> None:
    """metadata/ and deid_png/ below `folder`. The dataset has no labels: what is true stands in planted.parquet.

    `dirty`: unknown sex, odd and missing ages, views that are missing or oblique, reports without a section, and
    pictures that are missing or cannot be opened, all listed in defects.json.
    """
    root = Path(folder)
    (root / "metadata").mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng([seed, 41])
    names = rexgradient_names(people, seed)
    studies = _studies(people, names, seed)
    defects = _spoil_studies(studies, rng) if dirty else {}
    for split in SPLITS:
        kept = {key: study for key, (where, study) in studies.items() if where == split}
        path = root / "metadata" / f"{split}_metadata_view_position.json"
        path.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")
        _write_table(root / "metadata" / f"{split}_metadata.csv", kept)
    if pixels:
        paths = [root / path for path in names.get_column("path")]
        defects |= write_pictures(people, names, paths, size, seed=seed, trouble=rng if dirty else None)
    truth = {"note": "The dataset has no labels; those of planted.parquet are true."}
    write_known(people, root, names, truth, defects=defects if dirty else None)


def rexgradient_names(people: People, seed: int = 0) -> pl.DataFrame:
    """The images with patient_id, study_id (the key of the JSON), image_id (the instance), path, split, shown view."""
    rng = np.random.default_rng([seed, 41, 1])
    frame = ordered_images(people)
    numbers = frame.get_column("number").unique(maintain_order=True).to_list()
    patients = pl.DataFrame(
        {
            "number": numbers,
            "patient_id": [f"GRDN{_word(12, rng)}" for _ in numbers],
            "split": splits_of(len(numbers), SPLITS, rng),
        }
    )
    listed = frame.select("number", "study", "time").unique(maintain_order=True)
    studies = listed.join(patients, on="number", how="left", maintain_order="left").with_columns(
        accession=pl.Series([f"GRDN{_word(12, rng)}" for _ in range(listed.height)]),
        study_uid=pl.Series([_uid(rng) for _ in range(listed.height)]),
    )
    studies = studies.with_columns(study_id=pl.format("p{}_a{}_s{}", "patient_id", "accession", "study_uid"))
    shown = [str(rng.choice(_VIEWS.get(view, (view,)))) for view in frame.get_column("view")]
    uids = [(_uid(rng), _uid(rng)) for _ in range(frame.height)]
    path = pl.format(
        "deid_png/{}/{}/studies/{}/series/{}/instances/{}.png",
        "patient_id",
        "accession",
        "study_uid",
        "series",
        "image_id",
    )
    return (
        frame.with_columns(
            shown=pl.Series(shown),
            series=pl.Series([series for series, _ in uids]),
            image_id=pl.Series([instance for _, instance in uids]),
        )
        .join(studies.drop("number", "time"), on="study", how="left", maintain_order="left")
        .with_columns(path=path)
    )


def _studies(people: People, names: pl.DataFrame, seed: int) -> dict[str, tuple[str, dict[str, Any]]]:
    """Key -> split and what the JSON says of the study."""
    from cxrhf.twin.texts import report_sections

    sections = report_sections(people, seed).select("study", *(pl.col(name.lower()).alias(name) for name in _SECTIONS))
    frame = (
        names.with_columns(
            age=people.images.get_column("age").gather(names.get_column("image")),
            sex=of_patients(people, "sex", names),
            date=pl.col("time").dt.offset_by("-" + _EARLIER).dt.strftime("%Y%m%d"),
        )
        .group_by("study_id", maintain_order=True)
        .agg(
            pl.col("study", "split", "patient_id", "accession", "study_uid", "age", "sex", "date").first(),
            pl.col("path", "shown"),
        )
        .join(sections, on="study", how="left", maintain_order="left")
    )
    out = {}
    for row in frame.iter_rows(named=True):
        out[row["study_id"]] = (
            row["split"],
            {
                "PatientID": row["patient_id"],
                "AccessionNumber": row["accession"],
                "StudyInstanceUid": row["study_uid"],
                "StudyDate": row["date"],
                "PatientSex": row["sex"],
                "PatientAge": f"{round(row['age']):03d}Y",
                **{name: row[name] or "" for name in _SECTIONS},
                "ImagePath": [f"../{path}" for path in row["path"]],
                "ImageViewPosition": row["shown"],
            },
        )
    return out


def _spoil_studies(studies: dict[str, tuple[str, dict[str, Any]]], rng: np.random.Generator) -> dict[str, list[str]]:
    """Change some studies in place; returns kind -> their keys."""
    changes: dict[str, dict[str, Any]] = {
        "unknown_sex": {"PatientSex": "U"},
        "odd_age": {"PatientAge": "000Y"},
        "age_in_months": {"PatientAge": "007M"},
        "age_missing": {"PatientAge": ""},
        "findings_missing": {"Findings": ""},
        "impression_missing": {"Impression": ""},
    }
    defects = {}
    for kind, change in changes.items():
        defects[kind] = pick(list(studies), 0.02, rng)
        for key in defects[kind]:
            studies[key][1].update(change)
    for kind, view in (("view_missing", None), ("view_oblique", "AP AXIAL")):
        defects[kind] = pick(list(studies), 0.02, rng)
        for key in defects[kind]:
            studies[key][1]["ImageViewPosition"][0] = view
    return defects


def _write_table(path: Path, studies: dict[str, dict[str, Any]]) -> None:
    rows = [
        {"id": key, **{name: json.dumps(each) if isinstance(each, list) else each for name, each in study.items()}}
        for key, study in studies.items()
    ]
    pl.DataFrame(rows, schema=dict.fromkeys(("id", *_columns(studies)), pl.String)).write_csv(path)


def _columns(studies: dict[str, dict[str, Any]]) -> list[str]:
    fixed = ["PatientID", "AccessionNumber", "StudyInstanceUid", "StudyDate", "PatientSex", "PatientAge", *_SECTIONS]
    return next((list(study) for study in studies.values()), [*fixed, "ImagePath", "ImageViewPosition"])


def _word(length: int, rng: np.random.Generator) -> str:
    return "".join(_LETTERS[rng.integers(len(_LETTERS), size=length)])


def _uid(rng: np.random.Generator) -> str:
    """A DICOM identifier that nobody else has: the root of pydicom's makers and 36 digits."""
    digits = rng.integers(10, size=36)
    return f"{_ROOT_UID}.{rng.integers(1, 10)}" + "".join(map(str, digits.tolist()))
