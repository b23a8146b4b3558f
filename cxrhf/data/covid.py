"""covid-chestxray-dataset (ieee8023) -> Source: X-rays, their diagnosis, notes with their day, licences.

Days are known only relative to each other (`offset`, days since the first symptoms or the admission). They become times
after a made-up 1 January 2000, the same for every patient: differences within a patient mean something, dates do not.
Where the day is missing the time is null, and such a picture or note is never before or after another.

The table gives one diagnosis an image, in a hierarchy ("Pneumonia/Viral/COVID-19"). A branch that is named is 1 and
those beside it are 0; what lies deeper than the diagnosis goes is null (of "Pneumonia" alone, any cause). "todo" and
"Unknown" leave every label null.

Notes were written for publication, by people who knew the outcome, and one text often stands at all images of a
patient. So a text is known only from the latest day at which it stands, from no day if one of these is missing, and
texts that name a diagnosis of the patient are left out unless `keep_label_notes`. `own_text` is the text at the image
itself, which must never count as prior.
"""

from __future__ import annotations

import re
from datetime import datetime
from pathlib import Path

import polars as pl

from cxrhf.data import fields, layout
from cxrhf.data.attrition import Steps
from cxrhf.data.layout import below
from cxrhf.data.prepare import Source
from cxrhf.data.raw import numbers, read_csv
from cxrhf.data.settings import BuildConfig
from cxrhf.errors import SourceError
from cxrhf.tables.checks import quoted

DATASET = "covid_chestxray"
EPOCH = datetime(2000, 1, 1)
FINDINGS = (
    "pneumonia",
    "viral_pneumonia",
    "covid_19",
    "bacterial_pneumonia",
    "fungal_pneumonia",
    "tuberculosis",
    "no_finding",
)
KIND = "clinical_notes"
_COLUMNS = ("patientid", "offset", "sex", "age", "finding", "view", "modality", "filename", "clinical_notes")
_OPTIONAL = ("jpeg", "license", "licence_class", "intubation_present")
_CAUSES = ("viral", "bacterial", "fungal")
# How notes name a diagnosis, by the word of the hierarchy; a word that is not here stands for itself. "No Finding" is
# left out: that an earlier picture was normal does not name what comes later.
_WORDS = {
    "no finding": None,
    "todo": None,
    "unknown": None,
    "pneumonia": r"(broncho)?pneumonias?",
    "viral": r"viral|virus|viruses",
    "bacterial": r"bacterial?|bacterium",
    "fungal": r"fungal|fungus|fungi",
    "covid-19": r"covid(-?\s?19)?|sars[- ]?cov[- ]?2|(2019[- ]?)?n-?cov|corona\s?virus(es)?",
    "sars": r"sars|severe acute respiratory syndrome",
    "mers-cov": r"mers([- ]?cov)?|middle east respiratory syndrome",
    "varicella": r"varicella|chicken\s?pox|zoster",
    "influenza": r"influenza|flu|h\dn\d",
    "h1n1": r"h1n1|swine flu",
    "herpes": r"herpes|herpetic|hsv",
    "pneumocystis": r"pneumocystis|jiroveci+|carinii|pcp|pjp",
    "aspergillosis": r"aspergill(us|osis|oma)",
    "streptococcus": r"strep(tococc(us|al|i))?|pneumococc(us|al|i)",
    "staphylococcus": r"staph(ylococc(us|al|i))?",
    "mrsa": r"mrsa|methicillin[- ]resistant",
    "klebsiella": r"klebsiella",
    "legionella": r"legionella|legionellosis|legionnaires?",
    "mycoplasma": r"mycoplasma",
    "chlamydophila": r"chlamydophila|chlamydia",
    "e.coli": r"e\.?\s?coli|escherichia",
    "nocardia": r"nocardia|nocardiosis",
    "lipoid": r"lipoid",
    "aspiration": r"aspiration|aspirated",
    "tuberculosis": r"tuberculosis|tuberculous|tb|mycobacteri(um|al|a)",
}


def read(config: BuildConfig, steps: Steps) -> Source:
    """X-rays with raw labels, their day, and the notes of the same patients; CT slices are left out."""
    path = layout.require(config.root, DATASET, "metadata")
    raw = read_csv(path, _COLUMNS, optional=_OPTIONAL)
    age, nonsense = fields.ages(raw, "age", path)
    day = numbers(raw, "offset", pl.Float64, path)
    day_text = day.cast(pl.String).str.replace(r"\.0$", "")
    patient = fields.text("patientid")
    rows = raw.select(
        # Names differ by their ending alone in places, so it is part of the id.
        fields.text("filename").alias("image_id"),
        (patient + "/" + pl.coalesce(day_text, fields.text("filename"))).alias("study_id"),
        patient.alias("patient_id"),
        fields.view("view"),
        _time(day),
        age,
        fields.sex("sex"),
        *_labels(raw.get_column("finding"), path),
        fields.text("clinical_notes").alias("own_text"),
        below(_folder(config, path), pl.coalesce(fields.text("jpeg"), fields.text("filename"))).alias("path"),
        fields.text("modality"),
        fields.text("finding"),
        pl.coalesce(fields.text("license"), fields.text("licence_class")).alias("licence"),
        fields.text("intubation_present"),
        pl.int_range(pl.len()).alias("row"),
    )  # fmt: skip
    fields.check_ids(rows, path)
    steps.add("table", rows, note=fields.noted((nonsense, "age above 120, set to missing")))
    images = rows.filter(pl.col("modality").str.to_lowercase().str.replace_all(r"[^a-z]", "") == "xray")
    others = rows.filter(~pl.col("image_id").is_in(images.get_column("image_id").implode()))
    steps.add(
        "X-rays",
        images,
        note=fields.noted(
            *((count, f"excluded, modality {kind or 'not stated'}") for kind, count in _counts(others, "modality")),
            (images.get_column("study_time").null_count(), "no day"),
            (images.get_column("pneumonia").null_count(), "no diagnosis"),
        ),
    )
    notes = _notes(rows, config, steps)
    attributes = _attributes(images)
    aside = ("modality", "finding", "licence", "intubation_present", "row")
    return Source(DATASET, images.drop(aside), FINDINGS, attributes, notes)


def _time(day: pl.Series) -> pl.Expr:
    seconds = pl.duration(seconds=pl.lit((day * 86_400).round().cast(pl.Int64)))
    return (pl.lit(EPOCH) + seconds).cast(pl.Datetime("us")).alias("study_time")


def _folder(config: BuildConfig, table: Path) -> Path:
    found = layout.find(config.root, DATASET, "images")
    return (found or table.parent / "images").resolve()


def _counts(frame: pl.DataFrame, column: str) -> list[tuple[str | None, int]]:
    return list(frame.get_column(column).value_counts(sort=True).iter_rows())


def _labels(cells: pl.Series, path: Path) -> list[pl.Series]:
    """The hierarchy's text -> an Int8 column for each finding; each distinct text is read once."""
    read_once = {cell: diagnosis_labels(cell, path) for cell in cells.unique().drop_nulls()}
    return [
        cells.replace_strict(
            {cell: found[name] for cell, found in read_once.items()}, default=None, return_dtype=pl.Int8
        ).alias(name)
        for name in FINDINGS
    ]


def diagnosis_labels(finding: str, path: Path) -> dict[str, int | None]:
    """`Pneumonia/Viral/COVID-19` -> pneumonia 1, viral_pneumonia 1, covid_19 1, the others 0."""
    top, *deeper = _parts(finding) or ["unknown"]
    if top in ("todo", "unknown"):
        return dict.fromkeys(FINDINGS)
    found: dict[str, int | None] = dict.fromkeys(FINDINGS, 0)
    if top in ("no finding", "tuberculosis"):
        return {**found, top.replace(" ", "_"): 1}
    if top != "pneumonia":
        raise SourceError(
            f'{path.name}, column "finding"',
            got=quoted(finding),
            allowed="Pneumonia/..., Tuberculosis, No Finding, Unknown or todo",
            next_step="use the current metadata.csv: earlier tables have no hierarchy of diagnoses",
        )
    cause = deeper[0] if deeper else None
    for each in _CAUSES:
        found[f"{each}_pneumonia"] = None if cause is None else int(cause == each)
    virus = deeper[1] if len(deeper) > 1 else None
    if cause is None or (cause == "viral" and virus is None):
        found["covid_19"] = None
    else:
        found["covid_19"] = int(cause == "viral" and virus == "covid-19")
    return {**found, "pneumonia": 1}


def _parts(finding: str) -> list[str]:
    return [part.strip().lower() for part in finding.split("/") if part.strip()]


def _notes(rows: pl.DataFrame, config: BuildConfig, steps: Steps) -> pl.DataFrame:
    """NOTE rows: each text of a patient once, at the latest day at which it stands; CT rows have texts too."""
    texts = (
        rows.filter(pl.col("own_text").is_not_null())
        .group_by("patient_id", "own_text", maintain_order=True)
        .agg(
            pl.col("row").first(),
            pl.when(pl.col("study_time").null_count() == 0).then(pl.col("study_time").max()).alias("available_at"),
        )
        .select(
            pl.format("{}-{}", "patient_id", "row").alias("note_id"),
            "patient_id",
            "available_at",
            pl.lit(KIND).alias("kind"),
            pl.col("own_text").alias("text"),
        )
    )
    named = texts.filter(_names_diagnosis(rows))
    kept = texts if config.keep_label_notes else texts.filter(~_names_diagnosis(rows))
    note = fields.noted(
        (rows.get_column("own_text").count() - texts.height, "repeats of a text"),
        (named.height, f"texts that name the diagnosis, {'kept' if config.keep_label_notes else 'excluded'}"),
        (kept.get_column("available_at").null_count(), "texts without a day"),
    )
    steps.add("notes", notes=kept.height, patients=kept.get_column("patient_id").n_unique(), note=note)
    return kept


def _names_diagnosis(rows: pl.DataFrame) -> pl.Expr:
    """Whether a note's text holds a word for any diagnosis that its patient has at any image.

    Any image: a note at a normal picture may tell how the story went on.
    """
    hits = []
    diagnoses = rows.filter(pl.col("finding").is_not_null()).select("patient_id", "finding").unique()
    words = sorted({part for finding in diagnoses.get_column("finding") for part in _parts(finding)})
    for word in words:
        pattern = _WORDS.get(word, re.escape(word))
        if pattern is None:
            continue
        has = [patient for patient, finding in diagnoses.iter_rows() if word in _parts(finding)]
        hits.append(pl.col("patient_id").is_in(has) & pl.col("text").str.contains(rf"(?i)\b({pattern})\b"))
    return pl.any_horizontal(hits) if hits else pl.lit(False)


def _attributes(images: pl.DataFrame) -> pl.DataFrame:
    """The licence of every image, null where the table does not say it, and the tube where it does."""
    tube = pl.col("intubation_present").str.to_uppercase().replace_strict({"Y": "1", "N": "0"}, default=None)
    wide = images.select("image_id", "licence", intubation_present=tube)
    long = wide.unpivot(["licence", "intubation_present"], index="image_id", variable_name="name", value_name="value")
    return long.filter((pl.col("name") == "licence") | pl.col("value").is_not_null())
