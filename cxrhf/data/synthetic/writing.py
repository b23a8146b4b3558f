"""People and the names their images have in a layout -> planted.parquet, attributes.parquet and defects.json.

What the writers of all layouts share. `names` is a frame with a row per image that the layout holds: image (the row of
`people.images`), image_id, study_id, patient_id, as a reader of that layout would form them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray

from cxrhf.data.synthetic.devices import DEVICES
from cxrhf.data.synthetic.people import People
from cxrhf.schema import ATTRIBUTE, check, write_table

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

ATTRIBUTES = (*DEVICES, "hazy")
PLANTED = ("image_id", "study_id", "patient_id", "finding", "y", "context", "pretest", "shown")


@dataclass(frozen=True, slots=True)
class Planted:
    """One finding of a layout: arrays over the rows of `people.images`.

    `of`: the twin's own findings that it is made of; for no_finding those that must be absent. `share` of its cases,
    by lot, have this label.
    """

    finding: str
    y: Integers
    context: Floats
    pretest: Floats
    shown: Floats
    of: tuple[str, ...] = ()
    share: float = 1.0


def ordered_images(people: People) -> pl.DataFrame:
    """Images by patient and time: image, patient, number (patients with images, from 1), study, view, time, frontal.

    `nth_study` counts the studies of a patient and `nth_view` the images of a study, both from 1.
    """
    return (
        people.images.select("patient", "study", "view", image=pl.int_range(pl.len()))
        .join(people.studies.select("study", "time"), on="study", how="left", maintain_order="left")
        .sort("patient", "time", "study", "image")
        .with_columns(
            number=pl.col("patient").rank("dense").cast(pl.Int64),
            frontal=pl.col("view").is_in(["PA", "AP"]),
            nth_study=pl.struct("time", "study").rank("dense").over("patient").cast(pl.Int64),
            nth_view=pl.int_range(1, pl.len() + 1).over("study"),
        )
    )


def default_ids(people: People) -> pl.DataFrame:
    """image, image_id, study_id, patient_id of everybody, for tables that belong to no layout."""
    return people.images.select(
        pl.int_range(pl.len()).alias("image"),
        pl.format("image{}", pl.col("image").cast(pl.String).str.zfill(6)).alias("image_id"),
        pl.format("study{}", pl.col("study").cast(pl.String).str.zfill(6)).alias("study_id"),
        pl.format("patient{}", pl.col("patient").cast(pl.String).str.zfill(5)).alias("patient_id"),
    )


def of_patients(people: People, column: str, names: pl.DataFrame) -> pl.Series:
    """A column of `people.patients` for every row of `names`."""
    return people.patients.get_column(column).gather(names.get_column("patient"))


def planted_findings(people: People) -> list[Planted]:
    """The twin's own findings, for layouts that use them as they are."""
    laws = tuple(law.finding for law in people.laws)
    made_of = {"no_finding": laws, "support_devices": ()}
    return [
        Planted(name, people.y[:, at], people.c[:, at], people.q[:, at], people.s[:, at], made_of.get(name, (name,)))
        for at, name in enumerate(people.findings)
    ]


def attributes(people: People, *, ids: pl.DataFrame | None = None) -> pa.Table:
    """What lies in each picture: ATTRIBUTE rows with 1 and 0, as annotators write them."""
    names = default_ids(people) if ids is None else ids
    there = [name for name in ATTRIBUTES if name in people.images.columns]
    wide = people.images.select(there).select(pl.all().cast(pl.Int8).cast(pl.String))[names["image"].to_numpy()]
    long = wide.with_columns(names.get_column("image_id")).unpivot(
        there, index="image_id", variable_name="name", value_name="value"
    )
    return check(long.to_arrow(), ATTRIBUTE, source="simulated attributes")


def write_attributes(people: People, folder: Path, names: pl.DataFrame) -> None:
    """attributes.parquet: where drains, wires, haze and the other devices are, which no published table says."""
    write_table(attributes(people, ids=names), folder / "attributes.parquet")


def write_planted(folder: Path, names: pl.DataFrame, findings: Iterable[Planted]) -> None:
    """What is true of every image of the layout, for the tests of readers and audits; builds do not read it."""
    rows = names.get_column("image").to_numpy()
    parts = [
        names.select(
            "image_id",
            "study_id",
            "patient_id",
            finding=pl.lit(each.finding),
            y=pl.Series(each.y[rows].astype(np.int8)),
            context=pl.Series(each.context[rows]),
            pretest=pl.Series(each.pretest[rows]),
            shown=pl.Series(each.shown[rows]),
        )
        for each in findings
    ]
    pl.concat(parts).select(PLANTED).write_parquet(folder / "planted.parquet", statistics=False)


def write_defects(folder: Path, defects: Mapping[str, Sequence[str]]) -> None:
    """kind -> the ids that have it, sorted."""
    listed = {kind: sorted(ids) for kind, ids in sorted(defects.items())}
    (folder / "defects.json").write_text(json.dumps(listed, indent=1) + "\n", encoding="utf-8")


def splits_of(n: int, shares: Mapping[str, float], rng: np.random.Generator) -> NDArray[np.str_]:
    """A split for each of `n` patients; the shares are kept as exactly as `n` allows."""
    names, ends = list(shares), np.cumsum(list(shares.values()))
    place = (np.arange(n) + 0.5) / max(n, 1) * ends[-1]
    split = np.array(names)[np.minimum(np.searchsorted(ends, place), len(names) - 1)]
    return split[rng.permutation(n)]


def pick(ids: Sequence[str], share: float, rng: np.random.Generator) -> list[str]:
    """A random share of distinct ids, at least one where there is any, sorted."""
    distinct = sorted(set(ids))
    count = min(len(distinct), max(1, round(share * len(distinct))))
    return sorted(distinct[at] for at in rng.permutation(len(distinct))[:count].tolist())
