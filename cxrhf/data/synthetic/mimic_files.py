"""People -> MIMIC as PhysioNet hands it out: MIMIC-CXR-JPG, MIMIC-IV, MIMIC-IV-Note and the reports of MIMIC-CXR."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import numpy as np
import polars as pl

from cxrhf.data.synthetic.archive import GzipCsv, write_table
from cxrhf.data.synthetic.dirty import Defects, Tables, plant
from cxrhf.data.synthetic.mimic_tables import (
    admissions_table,
    labels_table,
    metadata_table,
    names_of,
    notes_table,
    patients_table,
    split_table,
)
from cxrhf.data.synthetic.people import People
from cxrhf.data.synthetic.reports import report_sections, report_text
from cxrhf.data.synthetic.story import Length, notes
from cxrhf.data.synthetic.truth import write_known
from cxrhf.errors import ConfigError

# What the labels in the files do to the truth.
LABEL_TRUTH = {
    "keeps_every_truth": "positive_only",
    "p_positive_given_uncertain": 0.0,
    "p_positive_given_blank": 0.0,
    "note": "Only true negatives are blank or, in dirty copies, -1. The exception is No Finding in studies that "
    "defects.json lists as all_labels_blank. Policy masked drops negatives at random: AUROC stays, prevalence moves.",
}


def write_mimic(
    people: People,
    folder: str | Path,
    *,
    seed: int = 0,
    version: Literal["2.0.0", "2.1.0"] = "2.0.0",
    iv_version: Literal["1.0", "2.2", "3.0"] = "3.0",
    pixels: bool = True,
    size: int = 256,
    reports: bool = True,
    note_length: Length = "short",
    dirty: bool = False,
) -> None:
    """Four projects below `folder`, and beside them planted.parquet, attributes.parquet and truth.json.

    `dirty` plants the defects of real copies and lists them in defects.json.
    `iv_version` "1.0" has core/ instead of hosp/ and says ethnicity instead of race. `note_length` "full" writes notes
    of 10,500 characters as MIMIC's are. The same people, seed and settings give the same bytes.
    """
    if version not in ("2.0.0", "2.1.0") or iv_version not in ("1.0", "2.2", "3.0"):
        raise ConfigError(
            "unknown version of MIMIC",
            got=f"{version} and {iv_version}",
            allowed="2.0.0 or 2.1.0 of MIMIC-CXR, and 1.0, 2.2 or 3.0 of MIMIC-IV",
        )
    root = Path(folder)
    root.mkdir(parents=True, exist_ok=True)
    stream, trouble = _streams(seed)
    names = names_of(people, stream)
    listed = notes_table(people, names, stream)
    tables = Tables(
        labels=labels_table(people, names, stream),
        metadata=metadata_table(people, names, size, stream),
        admissions=admissions_table(people, names, iv_version, stream),
        notes=listed,
        copies=listed.clear().with_columns(original="note_id"),
    )
    negbio, split = labels_table(people, names, stream), split_table(people, names, stream)
    defects: Defects = {}
    if dirty:
        tables, defects = plant(tables, people, trouble)

    jpg, stem = root / "mimic-cxr-jpg" / version, f"mimic-cxr-{version}"
    write_table(jpg / f"{stem}-chexpert.csv.gz", tables.labels)
    write_table(jpg / f"{stem}-negbio.csv.gz", negbio)
    write_table(jpg / f"{stem}-metadata.csv.gz", tables.metadata.sort("subject_id", "study_id", "dicom_id"))
    write_table(jpg / f"{stem}-split.csv.gz", split.sort("subject_id", "study_id", "dicom_id"))
    hospital = root / "mimiciv" / iv_version / ("core" if iv_version == "1.0" else "hosp")
    write_table(hospital / "admissions.csv.gz", tables.admissions.sort("subject_id", "hadm_id"))
    write_table(hospital / "patients.csv.gz", patients_table(people, names, tables.admissions))
    _write_notes(root / "mimic-iv-note" / "2.2" / "note" / "discharge.csv.gz", people, tables, note_length, seed)
    images = names.images(people)
    if reports:
        _write_reports(root / "mimic-cxr" / version / "files", people, images, seed)
    if pixels:
        defects |= _write_pictures(jpg / "files", people, images, size, seed, trouble if dirty else None)
    write_known(people, root, images, LABEL_TRUTH, defects=defects if dirty else None)


def mimic_names(people: People, seed: int = 0) -> pl.DataFrame:
    """image, image_id, study_id and patient_id as `write_mimic` with this seed names them."""
    return names_of(people, _streams(seed)[0]).images(people).select("image", "image_id", "study_id", "patient_id")


def _streams(seed: int) -> tuple[np.random.Generator, np.random.Generator]:
    """What the files are drawn from, and where the defects fall."""
    stream, trouble = np.random.default_rng([seed, 21]).spawn(2)
    return stream, trouble


def _write_notes(path: Path, people: People, tables: Tables, length: Length, seed: int) -> None:
    """By subject and time; a copy stands right after its original's batch."""
    start = 0
    order = tables.notes.get_column("admission")
    copied = set(tables.copies.get_column("original"))
    with GzipCsv(path) as file:
        for rows, texts in notes(people, length=length, seed=seed, order=order):
            frame = tables.notes.slice(start, rows.height).with_columns(pl.Series("text", texts)).drop("admission")
            start += rows.height
            if tables.blank:
                empty = pl.col("note_id").is_in(tables.blank)
                frame = frame.with_columns(text=pl.when(empty).then(None).otherwise("text"))
            file.write(frame)
            if copied:
                known = frame.select(original="note_id", text="text")
                again = tables.copies.join(known, on="original", maintain_order="left").drop("original")
                if again.height:
                    file.write(again.select(frame.columns))
        if not start:
            file.write(tables.notes.drop("admission").with_columns(text=pl.lit("")))


def _write_reports(folder: Path, people: People, images: pl.DataFrame, seed: int) -> None:
    sections = report_sections(people, seed)
    of_study = images.select("folder", study=people.images.get_column("study")).unique("study", maintain_order=True)
    lies = dict(zip(of_study.get_column("study"), of_study.get_column("folder"), strict=True))
    for study, *parts in sections.iter_rows():
        path = folder / f"{lies[study]}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(report_text(*parts), encoding="utf-8", newline="\n")


def _write_pictures(
    folder: Path,
    people: People,
    images: pl.DataFrame,
    size: int,
    seed: int,
    trouble: np.random.Generator | None,
) -> Defects:
    """One JPEG an image; the progress bar shows on a terminal only."""
    from tqdm import tqdm

    from cxrhf.data.synthetic.films import write_pictures

    paths = [folder / lies / f"{image_id}.jpg" for image_id, lies in images.select("image_id", "folder").iter_rows()]
    with tqdm(total=len(paths), unit=" images", disable=None) as bar:
        return write_pictures(people, images, paths, size, seed=seed, trouble=trouble, heard=bar.update)
