"""MIMIC-CXR-JPG + MIMIC-IV -> image rows with labels, times, age, sex and race; the notes are linked afterwards.

Names of 2.0.0 and 2.1.0 are read, gzipped or not, and both MIMIC-IV layouts (core/ with ethnicity, hosp/ with race).
Ages are the anchor age moved by the years between the anchor and the study, as MIMIC-IV means them. Race is given where
all of a patient's admissions agree on it; the sample `encoding` asks for one single value, as that paper did.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from cxrhf.data import fields, layout
from cxrhf.data.attrition import Steps
from cxrhf.data.chexpert import LABELS
from cxrhf.data.prepare import Source
from cxrhf.data.raw import header, numbers, read_csv, times
from cxrhf.data.settings import BuildConfig
from cxrhf.data.splits import split_names
from cxrhf.errors import SourceError
from cxrhf.findings import MIMIC

DATASET = "mimic_cxr_context"
_ENDINGS = (".jpg", ".jpeg", ".png", ".dcm")
_LOOKS = 150
_RACES = {"WHITE": "white", "BLACK": "black", "ASIAN": "asian", "HISPANIC": "hispanic"}
_UNKNOWN = ("UNKNOWN", "UNABLE TO OBTAIN", "PATIENT DECLINED TO ANSWER")


@dataclass(frozen=True, slots=True)
class Mimic:
    """The image rows, and the admissions (subject_id, hadm_id, dischtime) that date the notes."""

    source: Source
    admissions: pl.DataFrame
    notes: Path | None


def read(config: BuildConfig, steps: Steps, *, reports: bool = True) -> Mimic:
    """Read the tables and join them; what each join leaves is counted. `reports=False` leaves the many files alone."""
    admissions = _admissions(config, steps)
    labels = _labels(config, steps)
    images = _metadata(config, steps)
    both = labels.join(admissions.select("subject_id").unique(), on="subject_id", how="semi")
    joined = admissions.join(labels.select("subject_id").unique(), on="subject_id", how="semi")
    steps.add(
        "labels with admissions",
        patients=both.get_column("subject_id").n_unique(),
        studies=both.height,
        admissions=joined.get_column("hadm_id").n_unique(),
        note="for comparison with published counts",
    )
    images = images.join(labels, on=["subject_id", "study_id"], how="inner", maintain_order="left")
    images = images.rename({"subject_id": "patient_id", "dicom_id": "image_id"})
    fields.check_ids(images, layout.require(config.root, DATASET, "metadata"))
    steps.add("images with labels", images)
    images = _people(config, images, admissions)
    images = _official(config, images)
    if config.sample == "encoding":
        images = images.filter(pl.col("view").is_in(["AP", "PA"]) & (pl.col("races") == 1))
        images = images.filter(pl.col("race").is_in(["white", "asian", "black"]))
        steps.add("sample encoding", images, note="AP and PA, one race per patient: White, Asian or Black")
    images = images.drop("races").with_columns(path=_paths(config, images))
    images = _reports(config, images) if reports else images
    wanted = config.configuration != "images"
    notes = layout.require(config.root, DATASET, "discharge") if wanted else None
    return Mimic(Source(DATASET, images, MIMIC), admissions.select("subject_id", "hadm_id", "dischtime"), notes)


def _admissions(config: BuildConfig, steps: Steps) -> pl.DataFrame:
    path = layout.require(config.root, DATASET, "admissions")
    frame = read_csv(path, ["subject_id", "hadm_id", "admittime", "dischtime"], optional=["race", "ethnicity"])
    found = header(path)
    if "race" not in found and "ethnicity" not in found:
        raise SourceError(
            f"{path.name}: found no race column",
            got=f"columns {', '.join(found)}",
            allowed='"race" (MIMIC-IV 2 and later) or "ethnicity" (1.0)',
            next_step=f"copy {path} again",
        )
    frame = frame.with_columns(times("dischtime"), pl.coalesce("race", "ethnicity").alias("race")).drop("ethnicity")
    fields.check_once(frame, "hadm_id", path)
    steps.add("admissions", patients=frame.get_column("subject_id").n_unique(), admissions=frame.height)
    return frame


def _labels(config: BuildConfig, steps: Steps) -> pl.DataFrame:
    path = layout.require(config.root, DATASET, "labels")
    frame = read_csv(path, ["subject_id", "study_id", *LABELS])
    frame = frame.with_columns(fields.labels(frame, LABELS, path))
    frame = frame.select("subject_id", "study_id", *MIMIC)
    fields.check_once(frame, "study_id", path)
    steps.add("labels", patients=frame.get_column("subject_id").n_unique(), studies=frame.height)
    return frame


def _metadata(config: BuildConfig, steps: Steps) -> pl.DataFrame:
    path = layout.require(config.root, DATASET, "metadata")
    frame = read_csv(path, ["dicom_id", "subject_id", "study_id", "ViewPosition", "StudyDate", "StudyTime"])
    steps.add("metadata", images=frame.height, studies=frame.get_column("study_id").n_unique())
    frame = frame.with_columns(study_time("StudyDate", "StudyTime"), fields.view("ViewPosition"))
    timeless = int(frame.get_column("study_time").is_null().sum())
    if timeless:
        steps.rows[-1]["note"] = f"{timeless:,} images have no usable study time, so no note counts as prior"
    return frame.select("dicom_id", "subject_id", "study_id", "view", "study_time")


def study_time(date: str, time: str) -> pl.Expr:
    """StudyDate `21800506` and StudyTime `80556.875` (HHMMSS.fff, zeros in front lost) as one time; else null."""
    whole = pl.col(time).str.strip_chars().str.split_exact(".", 1)
    clock = whole.struct.field("field_0").str.zfill(6)
    part = whole.struct.field("field_1").fill_null("0")
    text = pl.concat_str([pl.col(date).str.strip_chars(), pl.lit(" "), clock, pl.lit("."), part])
    return text.str.to_datetime("%Y%m%d %H%M%S%.f", strict=False, time_unit="us").alias("study_time")


def _people(config: BuildConfig, images: pl.DataFrame, admissions: pl.DataFrame) -> pl.DataFrame:
    path = layout.require(config.root, DATASET, "patients")
    frame = read_csv(path, ["subject_id", "gender", "anchor_age", "anchor_year"])
    fields.check_once(frame, "subject_id", path)
    people = frame.select(
        pl.col("subject_id").alias("patient_id"),
        pl.when(pl.col("gender").is_in(["F", "M"])).then("gender").alias("sex"),
        numbers(frame, "anchor_age", pl.Float64, path),
        numbers(frame, "anchor_year", pl.Float64, path),
    )
    text = pl.col("race").str.strip_chars().str.to_uppercase()
    named = pl.coalesce([pl.when(text.str.starts_with(start)).then(pl.lit(name)) for start, name in _RACES.items()])
    group = pl.when(text.is_not_null() & ~text.is_in(_UNKNOWN)).then(named.fill_null("other"))
    races = (
        admissions.select(pl.col("subject_id").alias("patient_id"), text, group.alias("group"))
        .group_by("patient_id")
        .agg(
            pl.col("race").n_unique().cast(pl.Int64).alias("races"),
            pl.when(pl.col("group").drop_nulls().n_unique() == 1)
            .then(pl.col("group").drop_nulls().first())
            .alias("race"),
        )
    )
    images = images.join(people, on="patient_id", how="left", maintain_order="left")
    images = images.join(races, on="patient_id", how="left", maintain_order="left")
    age = pl.col("anchor_age") + pl.col("study_time").dt.year() - pl.col("anchor_year")
    return images.with_columns(age.clip(0, 120).alias("age")).drop("anchor_age", "anchor_year")


def _official(config: BuildConfig, images: pl.DataFrame) -> pl.DataFrame:
    path = layout.find(config.root, DATASET, "split")
    if path is None:
        return images
    frame = read_csv(path, ["dicom_id", "split"])
    fields.check_once(frame, "dicom_id", path)
    frame = frame.select(pl.col("dicom_id").alias("image_id"), split_names(frame.get_column("split"), path))
    return images.join(frame, on="image_id", how="left", maintain_order="left")


def _paths(config: BuildConfig, images: pl.DataFrame) -> pl.Expr:
    """Where each picture lies: the folder and the ending under which most of a few pictures are there."""
    places = _file_folders(config)
    stem = _below(pl.lit("/") + pl.col("image_id"))
    tried = _sample_rows(images).select(stem).to_series().to_list()
    hits = {
        (place, end): sum((place / f"{each}{end}").is_file() for each in tried) for place in places for end in _ENDINGS
    }
    (folder, ending), _ = max(hits.items(), key=lambda each: each[1])  # the first of equals: beside the metadata, .jpg
    return pl.concat_str([pl.lit(f"{folder}/"), stem, pl.lit(ending)])


def _file_folders(config: BuildConfig) -> list[Path]:
    """Folders that may hold p10/p10000032/...: beside the metadata first, then every `files`, then the roots."""
    beside = layout.require(config.root, DATASET, "metadata").parent / "files"
    found = layout.candidates(config.root, DATASET, "files")
    return list(dict.fromkeys([beside, *found, *(Path(root).resolve() for root in config.root)]))


def _below(rest: pl.Expr) -> pl.Expr:
    subject, study = pl.col("patient_id"), pl.col("study_id")
    return pl.concat_str([pl.lit("p"), subject.str.slice(0, 2), pl.lit("/p"), subject, pl.lit("/s"), study, rest])


def _sample_rows(rows: pl.DataFrame) -> pl.DataFrame:
    """A few rows from all over a table: downloads are often cut off somewhere."""
    return rows.gather_every(max(1, rows.height // _LOOKS)).head(2 * _LOOKS)


def report_folder(config: BuildConfig, images: pl.DataFrame) -> Path | None:
    """The folder with MIMIC-CXR's reports, known by what is in it: p10/p10000032/s50414267.txt."""
    tried = _sample_rows(images).select(_below(pl.lit(".txt"))).to_series().to_list()
    hits = {place: sum((place / each).is_file() for each in tried) for place in _file_folders(config)}
    best = max(hits, key=lambda place: hits[place])
    return best if hits[best] else None


def has_reports(config: BuildConfig) -> bool:
    """Whether any report lies below the roots: a look at the first patients only."""
    if layout.find(config.root, DATASET, "metadata") is None:
        return False
    for place in _file_folders(config):
        for group in sorted(place.glob("p[0-9][0-9]"))[:2]:
            patients = itertools.islice(sorted(group.glob("p*")), _LOOKS)
            if any(next(patient.glob("s*.txt"), None) for patient in patients):
                return True
    return False


def _reports(config: BuildConfig, images: pl.DataFrame) -> pl.DataFrame:
    folder = report_folder(config, images)
    if folder is None:
        return images
    studies = images.select("patient_id", "study_id").unique(maintain_order=True)
    return images.join(read_reports(folder, studies.iter_rows()), on="study_id", how="left", maintain_order="left")


# A radiology report as one text -> its indication, comparison, findings and impression.
#
# Headings are words in capitals at the start of a line with a colon, as MIMIC-CXR writes them. Several headings mean
# the same section (HISTORY, INDICATION, REASON FOR EXAM); what stands under a heading we do not know is left out.

SECTIONS = ("indication", "comparison", "findings", "impression")
_HEADING = re.compile(r"^[ \t]*([A-Z][A-Z /&()\-]{2,60}?)[ \t]*:", re.MULTILINE)
_NAMES = {
    "INDICATION": "indication",
    "INDICATIONS": "indication",
    "HISTORY": "indication",
    "CLINICAL HISTORY": "indication",
    "CLINICAL INFORMATION": "indication",
    "CLINICAL INDICATION": "indication",
    "REASON FOR EXAM": "indication",
    "REASON FOR EXAMINATION": "indication",
    "COMPARISON": "comparison",
    "COMPARISONS": "comparison",
    "FINDINGS": "findings",
    "FINDING": "findings",
    "CHEST": "findings",
    "IMPRESSION": "impression",
    "IMPRESSIONS": "impression",
    "CONCLUSION": "impression",
    "CONCLUSIONS": "impression",
}


def sections(report: str) -> dict[str, str | None]:
    """The four sections, white space folded; None where a report has none.

    >>> sections("INDICATION: Cough.\\nFINDINGS: Lungs\\n are clear.\\nIMPRESSION: Normal.")["findings"]
    'Lungs are clear.'
    """
    found: dict[str, list[str]] = {}
    headings = list(_HEADING.finditer(report))
    for at, heading in enumerate(headings):
        end = headings[at + 1].start() if at + 1 < len(headings) else len(report)
        name = _NAMES.get(" ".join(heading.group(1).split()))
        body = " ".join(report[heading.end() : end].split())
        if name and body:
            found.setdefault(name, []).append(body)
    return {name: " ".join(found[name]) if name in found else None for name in SECTIONS}


def read_reports(folder: Path, studies: Iterable[tuple[str, str]], threads: int = 8) -> pl.DataFrame:
    """MIMIC-CXR's reports of (subject_id, study_id) -> study_id and the four sections, null where there is none."""
    wanted = list(studies)

    def read(study: tuple[str, str]) -> dict[str, str | None]:
        subject, number = study
        path = folder / f"p{subject[:2]}" / f"p{subject}" / f"s{number}.txt"
        try:
            text = path.read_text(encoding="utf-8", errors="replace")
        except FileNotFoundError:
            return {"study_id": number}
        return {"study_id": number, **sections(text)}

    from tqdm import tqdm

    with ThreadPoolExecutor(threads) as pool:
        rows = list(
            tqdm(
                pool.map(read, wanted, chunksize=256), total=len(wanted), unit=" reports", desc="reports", disable=None
            )
        )
    return pl.DataFrame(rows, schema=dict.fromkeys(("study_id", *SECTIONS), pl.String))
