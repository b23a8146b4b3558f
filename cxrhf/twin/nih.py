"""People -> NIH ChestX-ray14 as it is downloaded: the table, two lists, grey PNGs, and drain annotations."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy.special import logit

from cxrhf.errors import ConfigError
from cxrhf.twin.films import write_pictures
from cxrhf.twin.models import Planted, of_patients, ordered_images, pick, planted_findings, splits_of
from cxrhf.twin.people import People
from cxrhf.twin.truth import write_known

# The twin's finding -> NIH's labels; a finding with two labels is split between them at random.
_LABELS = {
    "atelectasis": ("Atelectasis",),
    "cardiomegaly": ("Cardiomegaly",),
    "pleural_effusion": ("Effusion",),
    "lung_opacity": ("Infiltration",),
    "lung_lesion": ("Nodule", "Mass"),
    "pneumonia": ("Pneumonia",),
    "pneumothorax": ("Pneumothorax",),
    "consolidation": ("Consolidation",),
    "edema": ("Edema",),
    "pleural_other": ("Pleural_Thickening",),
}
_NAMES = {"Effusion": "pleural_effusion"}  # the others are their labels in lower case
_NODULES = 0.6  # share of lesions called Nodule, the rest Mass
_TEST_SHARE = 0.25
# The header of the published table: its last two names hold commas, so that it reads as 11 columns.
HEADER = (
    "Image Index,Finding Labels,Follow-up #,Patient ID,Patient Age,Patient Gender,View Position,"
    "OriginalImage[Width,Height],OriginalImagePixelSpacing[x,y]"
)


def write_nih(
    people: People,
    folder: str | Path,
    *,
    seed: int = 0,
    pixels: bool = True,
    size: int = 256,
    dirty: bool = False,
    old: bool = False,
) -> None:
    """The download below `folder`; `old` writes Data_Entry_2017.csv, with ages like 058Y and a comma too many.

    `dirty`: impossible ages (the real table has some above 400), an unknown sex, an image that is in no list, drain
    annotations of unknown images, and pictures that are missing or cannot be opened, all listed in defects.json.
    NIH has no uncertain or blank labels.
    """
    root = Path(folder)
    (root / "images").mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng([seed, 37])
    names = nih_names(people)
    rows = names.get_column("image").to_numpy()
    findings = nih_findings(people, rng)
    ids = names.get_column("image_id")
    age = people.images.get_column("age").gather(rows).round().cast(pl.Int64)
    sex = of_patients(people, "sex", names)
    unlisted = drained_nowhere = pl.Series([], dtype=pl.String)
    defects: dict[str, list[str]] = {}
    if dirty:
        odd, unknown = pick(ids.to_list(), 0.02, rng), pick(names["patient_id"].to_list(), 0.05, rng)
        unlisted = pl.Series(pick(ids.to_list(), 0.02, rng))
        drained_nowhere = pl.Series(["99999999_000"])
        age = pl.select(pl.when(ids.is_in(odd)).then(age + 400).otherwise(age)).to_series()
        sex = pl.select(pl.when(names["patient_id"].is_in(unknown)).then(pl.lit("U")).otherwise(sex)).to_series()
        defects = {"odd_age": odd, "unknown_sex": unknown, "in_no_list": unlisted.to_list()}
        defects["annotation_without_image"] = drained_nowhere.to_list()
    table = names.select(
        pl.format("{}.png", "image_id").alias("index"),
        pl.Series("labels", _label_texts(findings, rows)),
        "follow_up",
        pl.col("patient_id"),
        (age.cast(pl.String).str.zfill(3) + "Y" if old else age.cast(pl.String)).alias("age"),
        sex.alias("sex"),
        "view",
        width=pl.lit(size),
        height=pl.lit(size),
        x=pl.lit("0.143"),
        y=pl.lit("0.143"),
    )
    body = table.with_columns(end=pl.lit("")) if old else table
    name, end = ("Data_Entry_2017.csv", ",") if old else ("Data_Entry_2017_v2020.csv", "")
    text = body.write_csv(include_header=False, quote_style="never")
    (root / name).write_text(HEADER + end + "\n" + text, encoding="utf-8")
    _write_lists(root, names, unlisted, rng)
    _write_drains(root / "drain_annotations.csv", people, names, findings, drained_nowhere, rng)
    if pixels:
        paths = [root / "images" / f"{each}.png" for each in ids]
        defects |= write_pictures(people, names, paths, size, seed=seed, trouble=rng if dirty else None)
    truth = {"note": "Every label is 1 or 0 and true: nothing is uncertain or blank."}
    write_known(people, root, names, truth, findings=findings, defects=defects if dirty else None)


def nih_names(people: People) -> pl.DataFrame:
    """image, patient, view, follow_up, image_id, study_id, patient_id of the frontal images; NIH has no others.

    NIH names no studies: every image is its own.
    """
    frame = (
        ordered_images(people)
        .filter("frontal")
        .with_columns(
            follow_up=pl.int_range(pl.len()).over("patient"), number=pl.col("patient").rank("dense").cast(pl.Int64)
        )
    )
    image_id = pl.format(
        "{}_{}", pl.col("number").cast(pl.String).str.zfill(8), pl.col("follow_up").cast(pl.String).str.zfill(3)
    )
    return frame.select(
        "image",
        "patient",
        "view",
        "follow_up",
        image_id.alias("image_id"),
        image_id.alias("study_id"),
        pl.col("number").cast(pl.String).alias("patient_id"),
    )


def nih_findings(people: People, rng: np.random.Generator) -> list[Planted]:
    """NIH's findings, where the twin has them, and No Finding.

    A lesion is a nodule or a mass by lot, so the pre-test probability of each is its share of the lesion's, exactly.
    """
    out = []
    for each in planted_findings(people):
        labels = _LABELS.get(each.finding, ())
        first = rng.random(len(each.y)) < _NODULES if len(labels) > 1 else np.ones(len(each.y), dtype=bool)
        share = _NODULES if len(labels) > 1 else 1.0
        for label, chosen, part in zip(labels, (first, ~first), (share, 1 - share), strict=False):
            name = _NAMES.get(label, label.lower())
            made = (each.finding,)
            out.append(Planted(name, each.y * chosen, each.context, each.pretest * part, each.shown, made, part))
    # As the twin's own No Finding (people.py), of the findings that NIH names.
    laws = {law.finding: law for law in people.laws if law.finding in _LABELS}
    if not laws:
        raise ConfigError(
            "nih, findings of the patients",
            got=", ".join(people.findings),
            allowed=f"at least one of {', '.join(_LABELS)}",
        )
    named = [each for each in planted_findings(people) if each.finding in laws]
    nothing = 1 - np.max([each.y for each in named], axis=0)
    pretest = np.prod([1 - each.pretest for each in named], axis=0)
    shown = -np.max([each.shown - laws[each.finding].middle for each in named], axis=0)
    return [*out, Planted("no_finding", nothing, np.asarray(logit(pretest)), pretest, shown, tuple(laws))]


def _label_texts(findings: list[Planted], rows: NDArray[np.int64]) -> list[str]:
    spelt = {_NAMES.get(label, label.lower()): label for labels in _LABELS.values() for label in labels}
    named = [each for each in findings if each.finding in spelt]
    labels = [spelt[each.finding] for each in named]
    positive = np.column_stack([each.y[rows] == 1 for each in named])
    order = np.argsort(labels)  # the published table names them in alphabetical order
    return ["|".join(labels[at] for at in order if row[at]) or "No Finding" for row in positive]


def _write_lists(root: Path, names: pl.DataFrame, unlisted: pl.Series, rng: np.random.Generator) -> None:
    patients = names.get_column("patient").unique(maintain_order=True).to_list()
    split = splits_of(len(patients), {"train_val": 1 - _TEST_SHARE, "test": _TEST_SHARE}, rng)
    where = names.get_column("patient").replace_strict(dict(zip(patients, split.tolist(), strict=True)))
    listed = ~names.get_column("image_id").is_in(unlisted.implode())
    for each in ("train_val", "test"):
        lines = names.filter((where == each) & listed).get_column("image_id")
        (root / f"{each}_list.txt").write_text("".join(f"{line}.png\n" for line in lines), encoding="utf-8")


def _write_drains(
    path: Path,
    people: People,
    names: pl.DataFrame,
    findings: list[Planted],
    extra: pl.Series,
    rng: np.random.Generator,
) -> None:
    """Of two patients in three, all images with a pneumothorax were checked for a drain, and one in ten of the others.

    The published annotations hold 3,543 of NIH's 5,302 images with a pneumothorax. The patients without any are those a
    model can learn pneumothorax from where annotated patients are withheld.
    """
    rows = names.get_column("image").to_numpy()
    nobody = np.zeros(len(rows), dtype=bool)
    pneumothorax = next((each.y[rows] == 1 for each in findings if each.finding == "pneumothorax"), nobody)
    asked = (rng.random(people.patients.height) < 2 / 3)[names.get_column("patient").to_numpy()]
    looked = pl.Series(asked & (pneumothorax | (rng.random(len(rows)) < 0.1)))
    drain = people.images.get_column("drain").gather(rows).cast(pl.Int8)
    table = names.select(pl.format("{}.png", "image_id").alias("Image Index"), drain.alias("Drain")).filter(looked)
    more = pl.DataFrame({"Image Index": extra + ".png", "Drain": pl.Series([1] * len(extra), dtype=pl.Int8)})
    pl.concat([table, more]).write_csv(path)
