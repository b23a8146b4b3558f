"""People -> CheXpert as Stanford hands it out: two tables, pictures, the demographic workbook, and ENCODING's split."""

from __future__ import annotations

import json
import re
import zipfile
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from cxrhf.twin.films import write_pictures
from cxrhf.twin.models import of_patients, ordered_images, pick, splits_of
from cxrhf.twin.people import People
from cxrhf.twin.truth import write_known

# The order of the columns in train.csv.
LABELS = {
    "no_finding": "No Finding",
    "enlarged_cardiomediastinum": "Enlarged Cardiomediastinum",
    "cardiomegaly": "Cardiomegaly",
    "lung_opacity": "Lung Opacity",
    "lung_lesion": "Lung Lesion",
    "edema": "Edema",
    "consolidation": "Consolidation",
    "pneumonia": "Pneumonia",
    "atelectasis": "Atelectasis",
    "pneumothorax": "Pneumothorax",
    "pleural_effusion": "Pleural Effusion",
    "pleural_other": "Pleural Other",
    "fracture": "Fracture",
    "support_devices": "Support Devices",
}
SEXES = {"F": "Female", "M": "Male"}
SPLIT_FILE = "chexpert_split_2021_08_20.csv"
DEMOGRAPHICS = "CHEXPERT DEMO.xlsx"
_VALID_SHARE = 0.05
_ENCODING = {"train": 0.6, "validate": 0.1, "test": 0.3}
# How Stanford's table writes a race; the same patients are written in several ways.
_RACES = {
    "white": ("White", "White, non-Hispanic"),
    "black": ("Black or African American", "Black, non-Hispanic"),
    "asian": ("Asian", "Asian, non-Hispanic"),
}
_OTHER_RACES = ("Other", "Unknown", "Pacific Islander, non-Hispanic", "Race and Ethnicity Unknown")
# What the labels in the files do to the truth.
LABEL_TRUTH = {
    "keeps_every_truth": "positive_only",
    "p_positive_given_uncertain": 0.0,
    "p_positive_given_blank": 0.0,
    "note": "Only true negatives are blank (No Finding always so) or, in dirty copies, -1. Policy masked drops them at "
    "random: AUROC stays, prevalence moves.",
}
ETHNICITIES = {"non_hispanic": "Non-Hispanic/Non-Latino", "hispanic": "Hispanic/Latino", "unknown": "Unknown"}


def write_chexpert(
    people: People,
    folder: str | Path,
    *,
    seed: int = 0,
    pixels: bool = True,
    size: int = 256,
    dirty: bool = False,
    small: bool = False,
) -> None:
    """The download below `folder`; `small` names it CheXpert-v1.0-small, as the shrunk edition is called.

    `dirty`: true negatives with uncertain and blank labels, an unknown sex, an age of 0, patients whom the workbook
    lacks, and pictures that are missing or cannot be opened, all listed in defects.json.
    """
    root = Path(folder)
    edition = "CheXpert-v1.0-small" if small else "CheXpert-v1.0"
    (root / edition).mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng([seed, 31])
    names = chexpert_names(people)
    rows = names.get_column("image").to_numpy()
    sex = of_patients(people, "sex", names).replace_strict(SEXES, default="Unknown")
    table = names.select(
        pl.format(edition + "/{}.jpg", "image_id").alias("Path"),
        sex.alias("Sex"),
        people.images.get_column("age").gather(rows).round().cast(pl.Int64).alias("Age"),
        pl.when("frontal").then(pl.lit("Frontal")).otherwise(pl.lit("Lateral")).alias("Frontal/Lateral"),
        pl.when("frontal").then("view").alias("AP/PA"),
    )
    labels = label_columns(people, rows)
    patients = demographics(people, names, rng)
    defects: dict[str, list[str]] = {}
    if dirty:
        labels, defects = blur_labels(labels, names, rng)
        some = rng.permutation(patients["patient_id"].to_numpy()).tolist()
        unknown, newborn, absent = some[:1], some[1:2], some[2:3]
        defects |= {"unknown_sex": unknown, "age_zero": newborn, "race_missing": absent}
        table = table.with_columns(
            pl.when(names["patient_id"].is_in(unknown)).then(pl.lit("Unknown")).otherwise("Sex").alias("Sex"),
            pl.when(names["patient_id"].is_in(newborn)).then(0).otherwise("Age").alias("Age"),
        )
        patients = patients.filter(~pl.col("patient_id").is_in(absent))
    table = pl.concat([table, labels.rename(LABELS)], how="horizontal")
    train = names.get_column("split") == "train"
    table.filter(train).write_csv(root / edition / "train.csv", float_precision=1)
    # The radiologists left no cell blank.
    radiologists = table.filter(~train).with_columns(pl.col("No Finding").fill_null(0.0))
    radiologists.write_csv(root / edition / "valid.csv", float_precision=1)
    _write_workbook(root / DEMOGRAPHICS, patients)
    _write_split(root / SPLIT_FILE, names, patients, rng)
    if pixels:
        paths = [root / edition / f"{each}.jpg" for each in names.get_column("image_id")]
        defects |= write_pictures(people, names, paths, size, seed=seed, trouble=rng if dirty else None)
    write_known(people, root, names, LABEL_TRUTH, defects=defects if dirty else None)


def chexpert_names(people: People) -> pl.DataFrame:
    """The images with patient_id, study_id, image_id and the folder they are in (`split`), in the order of the tables.

    The patients with the highest numbers are the radiologists' validation set, a folder of its own.
    """
    frame = ordered_images(people)
    count = int(frame.get_column("number").max() or 0)  # type: ignore[arg-type]
    last_train = count - max(1, round(_VALID_SHARE * count))
    patient_id = pl.format("patient{}", pl.col("number").cast(pl.String).str.zfill(5))
    study_id = pl.format("{}/study{}", patient_id, "nth_study")
    kind = pl.when("frontal").then(pl.lit("frontal")).otherwise(pl.lit("lateral"))
    split = pl.when(pl.col("number") <= last_train).then(pl.lit("train")).otherwise(pl.lit("valid"))
    return frame.with_columns(
        split=split,
        patient_id=patient_id,
        study_id=study_id,
        image_id=pl.format("{}/{}/view{}_{}", split, study_id, "nth_view", kind),
    )


def label_columns(people: People, rows: NDArray[np.int64]) -> pl.DataFrame:
    """1.0 and 0.0 for every finding; No Finding is 1.0 or blank, as in the published table."""
    absent = pl.Series([None] * len(rows), dtype=pl.Float64)
    columns = dict.fromkeys(LABELS, absent)
    for at, name in enumerate(people.findings):
        columns[name] = pl.Series(people.y[rows, at].astype(np.float64))
    columns["no_finding"] = columns["no_finding"].replace(0.0, None)
    return pl.DataFrame(columns)


def blur_labels(
    labels: pl.DataFrame, names: pl.DataFrame, rng: np.random.Generator
) -> tuple[pl.DataFrame, dict[str, list[str]]]:
    """Some negatives become uncertain (-1) or blank, the same ones for all images of a study, in train.csv only.

    Positives stay, so that policy positive_only gives every image its true label. The defects name cells as "image_id
    finding".
    """
    study = names.get_column("study_id").rank("dense").cast(pl.Int64).to_numpy() - 1
    train = (names.get_column("split") == "train").to_numpy()
    defects: dict[str, list[str]] = {"uncertain_label": [], "blank_label": []}
    columns = []
    for values in labels:
        drawn = rng.random(int(study.max(initial=-1)) + 1)[study]
        negative = (values == 0.0).fill_null(False).to_numpy() & train & (values.name != "no_finding")
        uncertain, blank = pl.Series(negative & (drawn < 0.08)), pl.Series(negative & (drawn > 0.85))
        for kind, hit in (("uncertain_label", uncertain), ("blank_label", blank)):
            defects[kind] += [f"{each} {values.name}" for each in names.get_column("image_id").filter(hit)]
        blurred = pl.when(uncertain).then(-1.0).when(blank).then(None).otherwise(values)
        columns.append(pl.select(blurred.alias(values.name)).to_series())
    return pl.DataFrame(columns), defects


def demographics(people: People, names: pl.DataFrame, rng: np.random.Generator) -> pl.DataFrame:
    """One row a patient: patient_id, GENDER, AGE_AT_CXR, PRIMARY_RACE, ETHNICITY, and `kept`: in ENCODING's sample.

    People know three races only: every sixteenth patient is written as of another or of unknown race here, so that
    ENCODING's rule has somebody to leave out.
    """
    columns = {name: of_patients(people, name, names) for name in ("sex", "race", "ethnicity")}
    frame = (
        names.select("patient_id", people.images.get_column("age").gather(names.get_column("image")), **columns)
        .group_by("patient_id", maintain_order=True)
        .agg(pl.col("age").min().round().cast(pl.Int64), pl.col("sex", "race", "ethnicity").first())
    )
    start = int(rng.integers(16))
    rows = []
    for at, (patient_id, age, sex, race, ethnicity) in enumerate(frame.iter_rows(), start):
        other = at % 16 == 0 or race not in _RACES
        kept = not other and ethnicity == "non_hispanic"
        # "White, non-Hispanic" would contradict a Hispanic patient.
        spellings = _OTHER_RACES if other else _RACES[race] if kept else _RACES[race][:1]
        written = str(rng.choice(spellings))
        rows.append((patient_id, SEXES.get(sex, "Unknown"), age, written, ETHNICITIES.get(ethnicity, "Unknown"), kept))
    schema = ["patient_id", "GENDER", "AGE_AT_CXR", "PRIMARY_RACE", "ETHNICITY", "kept"]
    return pl.DataFrame(rows, schema=schema, orient="row")


def _write_workbook(path: Path, patients: pl.DataFrame) -> None:
    import openpyxl

    table = patients.drop("kept").rename({"patient_id": "PATIENT"})
    book = openpyxl.Workbook(write_only=True)
    sheet = book.create_sheet("Sheet1")
    for row in (table.columns, *table.iter_rows()):
        sheet.append(list(row))
    book.save(path)
    _without_times(path)


def _without_times(path: Path) -> None:
    """openpyxl stamps the workbook and each part of it with the time of saving: the same rows, other bytes."""
    with zipfile.ZipFile(path) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    stamp = re.compile(rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in parts.items():
            kept = stamp.sub(b"2021-08-20T00:00:00Z", data) if name == "docProps/core.xml" else data
            archive.writestr(zipfile.ZipInfo(name), kept, zipfile.ZIP_DEFLATED)


def _write_split(path: Path, names: pl.DataFrame, patients: pl.DataFrame, rng: np.random.Generator) -> None:
    """ENCODING's file: frontal images of its sample, by the row number that train.csv gives them."""
    train = names.filter(pl.col("split") == "train").with_row_index("index")
    kept = patients.filter("kept").get_column("patient_id")
    chosen = train.filter(pl.col("frontal") & pl.col("patient_id").is_in(kept.implode()))
    listed = chosen.get_column("patient_id").unique(maintain_order=True).to_list()
    split = dict(zip(listed, splits_of(len(listed), _ENCODING, rng).tolist(), strict=True))
    table = chosen.select("index", split=pl.col("patient_id").replace_strict(split, return_dtype=pl.String))
    # polars would put quotes around the nameless first column, which the published file does not have.
    text = table.select(pl.int_range(pl.len()).alias("row"), "index", "split").write_csv(include_header=False)
    path.write_text(",index,split\n" + text, encoding="utf-8")


# People -> CheXpert Plus as Stanford hands it out: one wide table with reports, CheXbert's labels, PNGs.

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
    from cxrhf.twin.texts import report_sections

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
