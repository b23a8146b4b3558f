"""Clean MIMIC tables -> the same with the defects that real copies have, and the ids of every one.

No defect moves a planted truth under the label policy `positive_only`: only true negatives become uncertain, only
studies without any finding have all labels blanked (which costs them No Finding), and studies leave the label file at
random.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import polars as pl

from cxrhf.data.synthetic.mimic_tables import LABELS, study_time
from cxrhf.data.synthetic.people import People

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
    tables = _at_study(tables, people, rng, defects)
    tables = replace(tables, labels=_labels(tables.labels, rng, defects))
    tables = _notes(tables, rng, defects)
    tables = replace(tables, metadata=_study_times(tables, rng, defects))
    tables = replace(tables, admissions=_races(tables.admissions, rng, defects))
    admitted = tables.admissions.get_column("subject_id").unique().implode()
    without = tables.metadata.filter(~pl.col("subject_id").is_in(admitted)).get_column("subject_id").unique()
    defects["patient_without_admission"] = without.cast(pl.String).to_list()
    return tables, defects


def _some(values: pl.Series, rng: np.random.Generator, count: int = _EACH) -> list[str]:
    """Up to `count` distinct values, at random but whatever their order."""
    distinct = values.unique().sort()
    return [distinct[at] for at in rng.permutation(len(distinct))[:count].tolist()]


def _at_study(tables: Tables, people: People, rng: np.random.Generator, defects: Defects) -> Tables:
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
    blank = _some(empty.get_column("study_id"), rng)
    hit = labels.get_column("study_id").is_in(blank)
    labels = labels.with_columns(pl.when(hit).then(None).otherwise(pl.col(c)).alias(c) for c in LABELS.values())
    several = labels.filter((pl.len().over("subject_id") > 1) & ~hit)
    absent = _some(several.get_column("study_id"), rng)
    defects["all_labels_blank"] = [str(each) for each in blank]
    defects["study_without_label"] = [str(each) for each in absent]
    gone = {str(each) for each in absent}
    defects["uncertain_label"] = [each for each in defects["uncertain_label"] if each.split(" ")[0] not in gone]
    return labels.filter(~pl.col("study_id").is_in(absent))


def _notes(tables: Tables, rng: np.random.Generator, defects: Defects) -> Tables:
    taken = [pair.split(" ")[0] for kind in ("charted_at_study", "discharged_at_study") for pair in defects[kind]]
    free = tables.notes.filter(~pl.col("note_id").is_in(taken)).get_column("note_id")
    chosen = _some(free, rng, 3 * _EACH)
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
    bad = _some(free, rng)
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
    those = _some(several, rng)
    first = pl.int_range(pl.len()).over("subject_id") == 0
    other = pl.when(pl.col(column) == "WHITE").then(pl.lit("ASIAN")).otherwise(pl.lit("WHITE"))
    defects["two_races"] = [str(each) for each in those]
    changed = pl.when(pl.col("subject_id").is_in(those) & first).then(other).otherwise(column)
    return admissions.with_columns(changed.alias(column))
