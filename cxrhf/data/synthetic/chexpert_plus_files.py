"""People -> CheXpert Plus as Stanford hands it out: one wide table with reports, CheXbert's labels, PNGs."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import polars as pl

from cxrhf.data.synthetic.chexpert_files import (
    LABEL_TRUTH,
    LABELS,
    blur_labels,
    chexpert_names,
    demographics,
    label_columns,
)
from cxrhf.data.synthetic.films import write_pictures
from cxrhf.data.synthetic.people import People
from cxrhf.data.synthetic.truth import write_known
from cxrhf.data.synthetic.writing import pick

TABLE = "df_chexpert_plus_240401.csv"
LABEL_FILES = ("findings_fixed.json", "impression_fixed.json", "report_fixed.json")
COLUMNS = (
    "path_to_image", "path_to_dcm", "frontal_lateral", "ap_pa", "deid_patient_id", "patient_report_date_order",
    "report", "section_narrative", "section_clinical_history", "section_history", "section_comparison",
    "section_technique", "section_procedure_comments", "section_findings", "section_impression",
    "section_end_of_impression", "section_summary", "section_accession_number", "age", "sex", "race", "ethnicity",
    "interpreter_needed", "insurance_type", "recent_bmi", "deceased", "split",
)  # fmt: skip
_INSURANCE = ("Medicare", "Private Insurance", "Medicaid", "Unknown")


def write_chexpert_plus(
    people: People, folder: str | Path, *, seed: int = 0, pixels: bool = True, size: int = 256, dirty: bool = False
) -> None:
    """The download below `folder`. The table calls every picture .jpg; the pictures are PNG/.../view1_frontal.png.

    `dirty`: true negatives with uncertain and blank labels, images that show nothing without any labels, unknown sex,
    age 0, reports without findings or impression, and pictures that are missing or cannot be opened, all listed in
    defects.json.
    """
    root = Path(folder)
    (root / "chexbert_labels").mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng([seed, 43])
    names = chexpert_names(people)
    rows = names.get_column("image").to_numpy()
    table = _table(people, names, seed, rng)
    labels = label_columns(people, rows)
    unlabelled: list[str] = []
    defects: dict[str, list[str]] = {}
    if dirty:
        nothing = labels.select(pl.all_horizontal(pl.exclude("no_finding").fill_null(0.0) == 0.0)).to_series()
        labels, defects = blur_labels(labels, names, rng)
        unlabelled = pick(names.get_column("image_id").filter(nothing).to_list(), 0.1, rng)
        for kind, cells in defects.items():  # where there is no line there is no cell
            defects[kind] = [cell for cell in cells if cell.split(" ")[0] not in unlabelled]
        table, more = _spoil_table(table, names, rng)
        defects |= {"no_labels": unlabelled, **more}
    table.write_csv(root / TABLE)
    _write_labels(root / "chexbert_labels", table.get_column("path_to_image"), labels, names, unlabelled)
    if pixels:
        paths = [root / "PNG" / f"{each}.png" for each in names.get_column("image_id")]
        defects |= write_pictures(people, names, paths, size, seed=seed, trouble=rng if dirty else None)
    truth = LABEL_TRUTH | {"exception": "No Finding of images listed as no_labels"}
    write_known(people, root, names, truth, defects=defects if dirty else None)


def _table(people: People, names: pl.DataFrame, seed: int, rng: np.random.Generator) -> pl.DataFrame:
    from cxrhf.data.synthetic.reports import report_sections

    patients = demographics(people, names, rng)
    patients = patients.with_columns(
        interpreter_needed=pl.Series(rng.choice(["No", "Yes"], size=patients.height, p=[0.9, 0.1])),
        insurance_type=pl.Series(rng.choice(_INSURANCE, size=patients.height)),
        recent_bmi=pl.Series(np.round(np.clip(rng.normal(27, 5, size=patients.height), 15, 55), 1)),
        deceased=pl.Series(rng.choice(["No", "Yes"], size=patients.height, p=[0.8, 0.2])),
    )
    # Laterals say LATERAL or nothing in the published table; frontal ones the projection.
    frame = (
        names.select(
            "study",
            "split",
            "patient_id",
            pl.format("{}.jpg", "image_id").alias("path_to_image"),
            pl.format("{}.dcm", "image_id").alias("path_to_dcm"),
            pl.when("frontal").then(pl.lit("Frontal")).otherwise(pl.lit("Lateral")).alias("frontal_lateral"),
            pl.when("frontal").then("view").alias("ap_pa"),
            pl.col("nth_study").alias("patient_report_date_order"),
            people.images.get_column("age").gather(names.get_column("image")).round().cast(pl.Int64),
        )
        .join(patients, on="patient_id", how="left", maintain_order="left")
        .join(report_sections(people, seed), on="study", how="left", maintain_order="left")
    )
    sections = {
        "CLINICAL HISTORY": pl.col("indication"),
        "COMPARISON": pl.col("comparison"),
        "FINDINGS": pl.col("findings"),
        "IMPRESSION": pl.col("impression"),
    }
    report = pl.concat_str(
        [pl.format(f"{heading}: {{}}", text) for heading, text in sections.items()],
        separator="\n \n",
        ignore_nulls=True,
    )
    blank = pl.lit(None, pl.String)
    filled = {
        "deid_patient_id": pl.col("patient_id"),
        "report": pl.concat_str(pl.lit("NARRATIVE:\n"), report),
        "section_narrative": blank,
        "section_clinical_history": pl.col("indication"),
        "section_history": blank,
        "section_comparison": pl.col("comparison"),
        "section_technique": pl.lit("Radiograph of the chest."),
        "section_procedure_comments": blank,
        "section_findings": pl.col("findings"),
        "section_impression": pl.col("impression"),
        "section_end_of_impression": blank,
        "section_summary": pl.lit("1-NO SIGNIFICANT ABNORMALITY"),
        "section_accession_number": pl.format("{}", 10_000_000 + pl.col("study")),
        "sex": pl.col("GENDER"),
        "race": pl.col("PRIMARY_RACE"),
        "ethnicity": pl.col("ETHNICITY"),
    }
    return frame.with_columns(**filled).select(COLUMNS)


def _spoil_table(
    table: pl.DataFrame, names: pl.DataFrame, rng: np.random.Generator
) -> tuple[pl.DataFrame, dict[str, list[str]]]:
    """The table with odd cells; kind -> patients or studies that have them."""
    patients, studies = names.get_column("patient_id"), names.get_column("study_id")
    defects = {
        "unknown_sex": pick(patients.to_list(), 0.02, rng),
        "age_zero": pick(patients.to_list(), 0.02, rng),
        "findings_missing": pick(studies.to_list(), 0.05, rng),
        "impression_missing": pick(studies.to_list(), 0.05, rng),
    }
    of = {
        kind: (patients if kind in ("unknown_sex", "age_zero") else studies).is_in(ids) for kind, ids in defects.items()
    }
    return (
        table.with_columns(
            sex=pl.when(of["unknown_sex"]).then(pl.lit("Unknown")).otherwise("sex"),
            age=pl.when(of["age_zero"]).then(0).otherwise("age"),
            section_findings=pl.when(~of["findings_missing"]).then("section_findings"),
            section_impression=pl.when(~of["impression_missing"]).then("section_impression"),
        ),
        defects,
    )


def _write_labels(
    folder: Path, paths: pl.Series, labels: pl.DataFrame, names: pl.DataFrame, unlabelled: list[str]
) -> None:
    """One JSON object a line; a blank label is null. The twin's three files agree: its reports tell one truth."""
    rows = zip(paths, names.get_column("image_id"), labels.rename(LABELS).iter_rows(named=True), strict=True)
    left_out = set(unlabelled)
    lines = [json.dumps({"path_to_image": path, **row}) for path, image_id, row in rows if image_id not in left_out]
    for name in LABEL_FILES:
        (folder / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
