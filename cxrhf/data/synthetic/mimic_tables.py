"""People -> the tables of MIMIC-CXR-JPG, MIMIC-IV and MIMIC-IV-Note as frames, with ids of MIMIC's shape."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from cxrhf.data.synthetic.people import People
from cxrhf.data.synthetic.writing import splits_of

Integers = NDArray[np.int64]

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


def names_of(people: People, rng: np.random.Generator) -> Names:
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
