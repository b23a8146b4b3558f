"""People -> MIMIC as PhysioNet hands it out: MIMIC-CXR-JPG, MIMIC-IV, MIMIC-IV-Note and the reports of MIMIC-CXR."""

from __future__ import annotations

import gzip
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray

from cxrhf.errors import ConfigError
from cxrhf.twin.models import splits_of
from cxrhf.twin.people import People
from cxrhf.twin.texts import Length, notes, report_sections, report_text
from cxrhf.twin.truth import write_known

Integers = NDArray[np.int64]


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
    names = make_names(people, stream)
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
    return make_names(people, _streams(seed)[0]).images(people).select("image", "image_id", "study_id", "patient_id")


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

    from cxrhf.twin.films import write_pictures

    paths = [folder / lies / f"{image_id}.jpg" for image_id, lies in images.select("image_id", "folder").iter_rows()]
    with tqdm(total=len(paths), unit=" images", disable=None) as bar:
        return write_pictures(people, images, paths, size, seed=seed, trouble=trouble, heard=bar.update)


# People -> the tables of MIMIC-CXR-JPG, MIMIC-IV and MIMIC-IV-Note as frames, with ids of MIMIC's shape.

# The order of the columns in MIMIC's label files.
LABELS = {
    "atelectasis": "Atelectasis",
    "cardiomegaly": "Cardiomegaly",
    "consolidation": "Consolidation",
    "edema": "Edema",
    "enlarged_cardiomediastinum": "Enlarged Cardiomediastinum",
    "fracture": "Fracture",
    "lung_lesion": "Lung Lesion",
    "lung_opacity": "Lung Opacity",
    "no_finding": "No Finding",
    "pleural_effusion": "Pleural Effusion",
    "pleural_other": "Pleural Other",
    "pneumonia": "Pneumonia",
    "pneumothorax": "Pneumothorax",
    "support_devices": "Support Devices",
}
_RACES = {"white": "WHITE", "black": "BLACK/AFRICAN AMERICAN", "asian": "ASIAN"}
_ZEROS = 0.2  # share of negatives that are written 0.0; the others are blank
_SPLITS = {"train": 0.8, "validate": 0.1, "test": 0.1}
_STAYS = {
    "admission_type": ("EW EMER.", "OBSERVATION ADMIT", "URGENT", "ELECTIVE", "SURGICAL SAME DAY ADMISSION"),
    "admission_location": ("EMERGENCY ROOM", "PHYSICIAN REFERRAL", "TRANSFER FROM HOSPITAL", "WALK-IN/SELF REFERRAL"),
    "discharge_location": ("HOME", "HOME HEALTH CARE", "SKILLED NURSING FACILITY", "REHAB", ""),
    "insurance": ("Medicare", "Medicaid", "Private", "Other"),
    "language": ("English", "Spanish", "Russian", "?"),
    "marital_status": ("MARRIED", "SINGLE", "WIDOWED", "DIVORCED", ""),
}


@dataclass(frozen=True, slots=True)
class Names:
    """MIMIC's numbers: subject by patient, stay by admission, study by study, dicom by image."""

    subject: Integers
    stay: Integers
    study: Integers
    dicom: list[str]

    def images(self, people: People) -> pl.DataFrame:
        """image, image_id, study_id, patient_id and the path of the picture, one row an image."""
        subject = self.subject[people.images.get_column("patient").to_numpy()]
        study = self.study[people.images.get_column("study").to_numpy()]
        frame = pl.DataFrame({"image": np.arange(len(subject)), "image_id": self.dicom, "s": study, "p": subject})
        patient_id, study_id = pl.col("p").cast(pl.String), pl.col("s").cast(pl.String)
        folder = pl.format("p{}/p{}/s{}", patient_id.str.slice(0, 2), patient_id, study_id)
        return frame.select("image", "image_id", study_id=study_id, patient_id=patient_id, folder=folder)


def make_names(people: People, rng: np.random.Generator) -> Names:
    """Distinct random numbers of eight digits, as MIMIC has them; the order of the patients does not show."""

    def numbers(lead: int, count: int) -> Integers:
        return lead * 10**7 + rng.choice(10**7, size=count, replace=False).astype(np.int64)

    subject, stay = numbers(1, people.patients.height), numbers(2, people.admissions.height)
    study = numbers(5, people.studies.height)
    digits = rng.integers(0, 2**32, size=(people.images.height, 5), dtype=np.uint32).astype(">u4").tobytes().hex()
    dicom = ["-".join(digits[at + k : at + k + 8] for k in range(0, 40, 8)) for at in range(0, len(digits), 40)]
    return Names(subject, stay, study, dicom)


def labels_table(people: People, names: Names, rng: np.random.Generator) -> pl.DataFrame:
    """One row a labelled study: positives 1.0, negatives mostly blank and sometimes 0.0, No Finding 1.0 or blank."""
    first = people.images.with_row_index("row").group_by("study", maintain_order=True).first().sort("study")
    rows, study = first.get_column("row").to_numpy(), first.get_column("study").to_numpy()
    columns = {
        "subject_id": names.subject[first.get_column("patient").to_numpy()],
        "study_id": names.study[study],
    }
    for name, shown in LABELS.items():
        value = np.full(len(rows), np.nan)
        if name in people.findings:
            positive = people.y[rows, people.findings.index(name)] == 1
            value[(rng.random(len(rows)) < _ZEROS) & (name != "no_finding")] = 0.0
            value[positive] = 1.0
        columns[shown] = value
    frame = pl.DataFrame(columns).with_columns(pl.col(*LABELS.values()).fill_nan(None))
    labelled = people.studies.get_column("labelled").gather(study)
    return frame.filter(labelled).sort("subject_id", "study_id")


def metadata_table(people: People, names: Names, size: int, rng: np.random.Generator) -> pl.DataFrame:
    """One row an image, in the order of the images; sort before writing."""
    images = people.images
    time = people.studies.get_column("time").gather(images.get_column("study"))
    view = images.get_column("view").to_numpy()
    portable = (people.images.select(pl.col("view").first().over("study") == "AP").to_series()).to_numpy()
    described = np.where(portable, "CHEST (PORTABLE AP)", "CHEST (PA AND LAT)")
    # Some laterals are called LL, as in the published file.
    shown = np.where((view == "LATERAL") & (rng.random(len(view)) < 0.1), "LL", view)
    code = np.where(view == "PA", "postero-anterior", np.where(view == "AP", "antero-posterior", "lateral"))
    return pl.DataFrame(
        {
            "dicom_id": names.dicom,
            "subject_id": names.subject[images.get_column("patient").to_numpy()],
            "study_id": names.study[images.get_column("study").to_numpy()],
            "PerformedProcedureStepDescription": described,
            "ViewPosition": shown,
            "Rows": np.full(len(view), size),
            "Columns": np.full(len(view), size),
            "StudyDate": time.dt.strftime("%Y%m%d"),
            "StudyTime": study_time(time),
            "ProcedureCodeSequence_CodeMeaning": described,
            "ViewCodeSequence_CodeMeaning": code,
            "PatientOrientationCodeSequence_CodeMeaning": np.where(portable, "Recumbent", "Erect"),
        }
    )


def study_time(time: pl.Series) -> pl.Series:
    """HHMMSS.fff as the number MIMIC writes, without leading zeros: 80556.875."""
    clock = time.dt.hour().cast(pl.Int64) * 10_000 + time.dt.minute().cast(pl.Int64) * 100 + time.dt.second()
    return (clock.cast(pl.Float64) + time.dt.millisecond() / 1000).round(3).cast(pl.String)


def split_table(people: People, names: Names, rng: np.random.Generator) -> pl.DataFrame:
    """The official split: by patient, in the order of the images."""
    imaged = people.images.get_column("patient").unique().sort()
    split = np.full(people.patients.height, "", dtype="<U8")
    split[imaged.to_numpy()] = splits_of(len(imaged), _SPLITS, rng)
    patient = people.images.get_column("patient").to_numpy()
    return pl.DataFrame(
        {
            "dicom_id": names.dicom,
            "study_id": names.study[people.images.get_column("study").to_numpy()],
            "subject_id": names.subject[patient],
            "split": split[patient],
        }
    )


def admissions_table(people: People, names: Names, iv_version: str, rng: np.random.Generator) -> pl.DataFrame:
    """One row an admission, in the order of `people.admissions`; version 1.0 says ethnicity and knows no provider."""
    stays = people.admissions
    patient = stays.get_column("patient").to_numpy()
    n = len(patient)
    race = people.patients.get_column("race").gather(patient).replace_strict(_RACES)
    drawn = {
        name: pl.Series(np.array(words)[rng.integers(0, len(words), size=n)]).replace("", None)
        for name, words in _STAYS.items()
    }
    # Nobody is admitted or imaged after death.
    seen = people.studies.group_by("patient").agg(pl.col("time").max())
    seen_last = stays.select("patient").join(seen, on="patient", how="left", maintain_order="left").get_column("time")
    over = (seen_last < stays.get_column("discharged")).fill_null(True).to_numpy()
    died = (rng.random(n) < 0.04) & (np.r_[patient[1:], -1] != patient) & over
    emergency = rng.random(n) < 0.6
    ago = pl.Series(rng.integers(30, 600, size=n)) * 60_000_000
    came = stays.get_column("admitted") - ago.cast(pl.Duration("us"))
    provider = np.array([f"P{at:04d}" for at in range(500)])[rng.integers(0, 500, size=n)]
    frame = pl.DataFrame(
        {
            "subject_id": names.subject[patient],
            "hadm_id": names.stay,
            "admittime": stays.get_column("admitted"),
            "dischtime": stays.get_column("discharged"),
            "deathtime": pl.select(pl.when(pl.Series(died)).then(stays.get_column("discharged"))).to_series(),
            "admission_type": drawn["admission_type"],
            "admit_provider_id": provider,
            **{name: drawn[name] for name in _STAYS if name != "admission_type"},
            "race": race,
            "edregtime": pl.select(pl.when(pl.Series(emergency)).then(came)).to_series(),
            "edouttime": pl.select(pl.when(pl.Series(emergency)).then(stays.get_column("admitted"))).to_series(),
            "hospital_expire_flag": died.astype(np.int64),
        }
    )
    return frame if iv_version != "1.0" else frame.drop("admit_provider_id").rename({"race": "ethnicity"})


def patients_table(people: People, names: Names, admissions: pl.DataFrame) -> pl.DataFrame:
    """One row a patient, sorted."""
    death = admissions.select("subject_id", dod=pl.col("deathtime").dt.date()).drop_nulls()
    frame = pl.DataFrame(
        {
            "subject_id": names.subject,
            "gender": people.patients.get_column("sex"),
            "anchor_age": people.patients.get_column("anchor_age"),
            "anchor_year": people.patients.get_column("anchor_year"),
        }
    )
    group = pl.lit("2011 - 2013").alias("anchor_year_group")
    return frame.with_columns(group).join(death, on="subject_id", how="left").sort("subject_id")


def notes_table(people: People, names: Names, rng: np.random.Generator) -> pl.DataFrame:
    """One row a note, without its text, by subject and time; `admission` is its row in `people.admissions`."""
    noted = people.admissions.filter("noted")
    # Notes are numbered with those of other kinds, so the numbers of a patient's discharge notes have gaps.
    step = pl.Series("step", rng.integers(1, 6, size=noted.height))
    frame = noted.with_columns(step).with_columns(
        subject_id=pl.Series(names.subject[noted.get_column("patient").to_numpy()]),
        hadm_id=pl.Series(names.stay[noted.get_column("admission").to_numpy()]),
        note_type=pl.lit("DS"),
        note_seq=pl.col("step").cum_sum().over("patient"),
    )
    return frame.sort("subject_id", "note_seq").select(
        "admission",
        pl.format("{}-DS-{}", "subject_id", "note_seq").alias("note_id"),
        "subject_id",
        "hadm_id",
        "note_type",
        "note_seq",
        charttime="charted",
        storetime="stored",
    )


# Frames -> one gzipped CSV file, the same bytes every time, compressed in a thread while the next frame is made.

_TIME = "%Y-%m-%d %H:%M:%S"
_LEVEL = 1  # the made-up notes then shrink as much as real ones do
_WAITING = 2  # frames held while the thread is busy


class GzipCsv:
    """`with GzipCsv(path) as file: file.write(frame)`; the first frame brings the header.

    No name and no time are stored in the archive. Nulls are blank cells, times "2180-05-06 22:23:00".
    """

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._raw = path.open("wb")
        self._zip = gzip.GzipFile("", "wb", _LEVEL, self._raw, mtime=0)
        self._pool = ThreadPoolExecutor(1)
        self._busy: list[Future[int]] = []
        self._first = True

    def write(self, frame: pl.DataFrame) -> None:
        """Add the rows of a frame with the columns of the first."""
        text = frame.write_csv(include_header=self._first, datetime_format=_TIME).encode()
        self._first = False
        self._busy.append(self._pool.submit(self._zip.write, text))
        if len(self._busy) > _WAITING:
            self._busy.pop(0).result()

    def __enter__(self) -> GzipCsv:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            for each in self._busy:
                each.result()
            self._zip.close()
        finally:
            self._pool.shutdown()
            self._raw.close()


def write_table(path: Path, frame: pl.DataFrame) -> None:
    """One frame as one gzipped CSV file."""
    with GzipCsv(path) as file:
        file.write(frame)


# Clean MIMIC tables -> the same with the defects that real copies have, and the ids of every one.
#
# No defect moves a planted truth under the label policy `positive_only`: only true negatives become uncertain, only
# studies without any finding have all labels blanked (which costs them No Finding), and studies leave the label file
# at random.

Defects = dict[str, list[str]]

_EACH = 3  # of a defect, where there are so many
_UNCERTAIN = 0.05  # of the true negatives


@dataclass(frozen=True, slots=True)
class Tables:
    """The tables on their way to the files: `metadata` in the order of the images, `notes` in that of the notes.

    `copies` maps a new note to the one whose text it repeats; `blank` are notes without text.
    """

    labels: pl.DataFrame
    metadata: pl.DataFrame
    admissions: pl.DataFrame
    notes: pl.DataFrame
    copies: pl.DataFrame
    blank: tuple[str, ...] = ()


def plant(tables: Tables, people: People, rng: np.random.Generator) -> tuple[Tables, Defects]:
    """Every defect of tables; pictures are spoilt where they are written. The ids are those of the files, as text.

    Values of the result: uncertain_label "study_id finding"; charted_at_study and discharged_at_study "note_id
    study_id"; duplicate_note "note_id note_id-of-the-original"; study_without_label, all_labels_blank and
    bad_study_time study ids; two_races and patient_without_admission subject ids; the others note ids.
    """
    defects: Defects = {}
    tables = _plant_times_at_study(tables, people, rng, defects)
    tables = replace(tables, labels=_labels(tables.labels, rng, defects))
    tables = _notes(tables, rng, defects)
    tables = replace(tables, metadata=_study_times(tables, rng, defects))
    tables = replace(tables, admissions=_races(tables.admissions, rng, defects))
    admitted = tables.admissions.get_column("subject_id").unique().implode()
    without = tables.metadata.filter(~pl.col("subject_id").is_in(admitted)).get_column("subject_id").unique()
    defects["patient_without_admission"] = without.cast(pl.String).to_list()
    return tables, defects


def _pick_values(values: pl.Series, rng: np.random.Generator, count: int = _EACH) -> list[str]:
    """Up to `count` distinct values, at random but whatever their order."""
    distinct = values.unique().sort()
    return [distinct[at] for at in rng.permutation(len(distinct))[:count].tolist()]


def _plant_times_at_study(tables: Tables, people: People, rng: np.random.Generator, defects: Defects) -> Tables:
    """Notes charted, or patients discharged, in the very second of a study: not prior, for both must be earlier.

    A note is charted in whole seconds, so the study is moved to one. Each takes a patient of its own.
    """
    subjects = tables.metadata.select("subject_id", "study_id", study=people.images.get_column("study")).unique()
    studies = subjects.join(people.studies.select("study", "time"), on="study")
    stays = tables.admissions.select("hadm_id", "dischtime")
    pairs = (
        studies.join(tables.notes.select("subject_id", "hadm_id", "note_id"), on="subject_id")
        .join(stays, on="hadm_id")
        .sort("note_id", "study_id")
    )
    later = pairs.filter((pl.col("dischtime") + pl.duration(days=1)) < pl.col("time"))
    near = pairs.filter(
        (pl.col("time") < pl.col("dischtime"))
        & (pl.col("time") > pl.col("dischtime") - pl.duration(days=60))
        & (pl.col("time").dt.year() == pl.col("dischtime").dt.year())  # the age of the image must not change
    )
    used: list[int] = []
    new_times, charted = {}, {}
    for kind, choice in (("charted_at_study", later), ("discharged_at_study", near)):
        free = choice.filter(~pl.col("subject_id").is_in(used)).unique("subject_id", keep="first", maintain_order=True)
        those = [free.row(at, named=True) for at in rng.permutation(free.height)[:_EACH].tolist()]
        used += [each["subject_id"] for each in those]
        defects[kind] = [f"{each['note_id']} {each['study_id']}" for each in those]
        for each in those:
            time = each["dischtime"] if kind == "discharged_at_study" else each["time"].replace(microsecond=0)
            new_times[each["study_id"]] = time
            if kind == "charted_at_study":
                charted[each["note_id"]] = time
    moved = pl.DataFrame(
        {"study_id": list(new_times), "moved": list(new_times.values())},
        schema={"study_id": pl.Int64, "moved": pl.Datetime("us")},
    )
    frame = tables.metadata.join(moved, on="study_id", how="left", maintain_order="left")
    clock = study_time(frame.get_column("moved"))
    metadata = frame.with_columns(
        StudyDate=pl.coalesce(pl.col("moved").dt.strftime("%Y%m%d"), "StudyDate"),
        StudyTime=pl.coalesce(clock, pl.col("StudyTime")),
    ).drop("moved")
    changed = pl.DataFrame(
        {"note_id": list(charted), "new": list(charted.values())},
        schema={"note_id": pl.String, "new": pl.Datetime("us")},
    )
    notes = tables.notes.join(changed, on="note_id", how="left", maintain_order="left")
    stored = pl.coalesce(pl.col("new") + pl.duration(hours=1), "storetime")
    notes = notes.with_columns(charttime=pl.coalesce("new", "charttime"), storetime=stored).drop("new")
    return replace(tables, metadata=metadata, notes=notes)


def _labels(labels: pl.DataFrame, rng: np.random.Generator, defects: Defects) -> pl.DataFrame:
    shown = {name: column for name, column in LABELS.items() if name != "no_finding"}
    defects["uncertain_label"] = []
    for name, column in shown.items():
        value = labels.get_column(column)
        hit = (value.fill_null(0.0) == 0.0) & pl.Series(rng.random(labels.height) < _UNCERTAIN)
        defects["uncertain_label"] += [f"{study} {name}" for study in labels.get_column("study_id").filter(hit)]
        labels = labels.with_columns(pl.when(hit).then(-1.0).otherwise(value).alias(column))
    empty = labels.filter(pl.all_horizontal(pl.col(*shown.values()).fill_null(0.0) == 0.0))
    blank = _pick_values(empty.get_column("study_id"), rng)
    hit = labels.get_column("study_id").is_in(blank)
    labels = labels.with_columns(pl.when(hit).then(None).otherwise(pl.col(c)).alias(c) for c in LABELS.values())
    several = labels.filter((pl.len().over("subject_id") > 1) & ~hit)
    absent = _pick_values(several.get_column("study_id"), rng)
    defects["all_labels_blank"] = [str(each) for each in blank]
    defects["study_without_label"] = [str(each) for each in absent]
    gone = {str(each) for each in absent}
    defects["uncertain_label"] = [each for each in defects["uncertain_label"] if each.split(" ")[0] not in gone]
    return labels.filter(~pl.col("study_id").is_in(absent))


def _notes(tables: Tables, rng: np.random.Generator, defects: Defects) -> Tables:
    taken = [pair.split(" ")[0] for kind in ("charted_at_study", "discharged_at_study") for pair in defects[kind]]
    free = tables.notes.filter(~pl.col("note_id").is_in(taken)).get_column("note_id")
    chosen = _pick_values(free, rng, 3 * _EACH)
    missing, blank, twice = chosen[:_EACH], chosen[_EACH : 2 * _EACH], chosen[2 * _EACH :]
    notes = tables.notes.with_columns(
        charttime=pl.when(pl.col("note_id").is_in(missing)).then(None).otherwise(pl.col("charttime"))
    )
    # A copy is numbered beyond every other note of its patient and written some minutes later.
    last = pl.col("note_seq").max().over("subject_id")
    copies = notes.with_columns(note_seq=last + 1).filter(pl.col("note_id").is_in(twice))
    copies = copies.unique("subject_id", keep="first", maintain_order=True).with_columns(
        original="note_id", note_id=pl.format("{}-DS-{}", "subject_id", "note_seq"),
        storetime=pl.col("storetime") + pl.duration(minutes=7),
    )  # fmt: skip
    defects["charttime_missing"], defects["note_without_text"] = missing, blank
    defects["duplicate_note"] = [" ".join(pair) for pair in copies.select("note_id", "original").iter_rows()]
    return replace(tables, notes=notes, copies=copies, blank=tuple(blank))


def _study_times(tables: Tables, rng: np.random.Generator, defects: Defects) -> pl.DataFrame:
    """No time at all, an hour that does not exist, and words."""
    taken = [int(pair.split(" ")[1]) for kind in ("charted_at_study", "discharged_at_study") for pair in defects[kind]]
    free = tables.metadata.filter(~pl.col("study_id").is_in(taken)).get_column("study_id")
    bad = _pick_values(free, rng)
    defects["bad_study_time"] = [str(each) for each in bad]
    frame = tables.metadata
    for study, text in zip(bad, (None, "256199.5", "unknown"), strict=False):
        shown = pl.when(pl.col("study_id") == study).then(pl.lit(text, dtype=pl.String)).otherwise("StudyTime")
        frame = frame.with_columns(shown.alias("StudyTime"))
    return frame


def _races(admissions: pl.DataFrame, rng: np.random.Generator, defects: Defects) -> pl.DataFrame:
    """Patients whose admissions name two races."""
    column = "race" if "race" in admissions.columns else "ethnicity"
    several = admissions.filter(pl.len().over("subject_id") > 1).get_column("subject_id")
    those = _pick_values(several, rng)
    first = pl.int_range(pl.len()).over("subject_id") == 0
    other = pl.when(pl.col(column) == "WHITE").then(pl.lit("ASIAN")).otherwise(pl.lit("WHITE"))
    defects["two_races"] = [str(each) for each in those]
    changed = pl.when(pl.col("subject_id").is_in(those) & first).then(other).otherwise(column)
    return admissions.with_columns(changed.alias(column))
