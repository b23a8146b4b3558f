"""Images and notes of the same patients -> each image's prior notes, by id, in time order.

A note is prior when everything that makes it known lies strictly before the study: equal times are not prior, and what
has no time is never prior. Patients' notes are sorted once; an image's prior notes are then the first few of its
patient's, found by one binary search, so there is never a row per image and note.
"""

from __future__ import annotations

import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray

Integers = NDArray[np.int64]


def available_at(notes: pl.DataFrame, columns: tuple[str, ...] = ("dischtime", "charttime")) -> pl.DataFrame:
    """The notes with `available_at`, the latest of these times; null where any of them is missing."""
    known = pl.all_horizontal([pl.col(name).is_not_null() for name in columns])
    latest = pl.max_horizontal([pl.col(name) for name in columns])
    return notes.with_columns(pl.when(known).then(latest).otherwise(None).alias("available_at"))


def link(images: pl.DataFrame, notes: pl.DataFrame) -> pl.Series:
    """`prior_note_ids` for each row of `images` (patient_id, study_time), a list of note ids in time order.

    `notes` has note_id, patient_id, available_at and, to list an exact duplicate text once, `text_hash`. Notes known
    at the same time stand in the order of their ids, so the order of the rows does not matter.
    """
    ordered = notes.filter(pl.col("available_at").is_not_null()).sort("patient_id", "available_at", "note_id")
    if "text_hash" in notes.columns:
        # A later copy says nothing new; because lists are beginnings of the patient's notes, the first one is enough.
        ordered = ordered.unique(["patient_id", "text_hash"], keep="first", maintain_order=True)
    first, count = prior_ranges(ordered, images)
    total = int(count.sum())
    offsets = np.zeros(len(count) + 1, dtype=np.int64)
    np.cumsum(count, out=offsets[1:])
    # Rows of `ordered`, image after image: a running number that starts anew at each image's first note.
    rows = np.arange(total) - np.repeat(offsets[:-1] - first, count)
    ids = ordered.get_column("note_id").to_arrow().take(pa.array(rows))
    lists = pa.LargeListArray.from_arrays(pa.array(offsets, pa.int64()), ids)
    made = pl.from_arrow(lists)
    assert isinstance(made, pl.Series)
    return made.cast(pl.List(pl.String)).alias("prior_note_ids")


def prior_ranges(ordered: pl.DataFrame, images: pl.DataFrame) -> tuple[Integers, Integers]:
    """For each image: the row of `ordered` (by patient and time) where its notes begin, and how many are prior."""
    people = pl.concat([ordered.get_column("patient_id"), images.get_column("patient_id")])
    # Patients numbered in the order of `ordered`, and times replaced by their ranks: one integer then sorts by both.
    numbered = people.rank("dense").to_numpy().astype(np.int64)
    moments = pl.concat([ordered.get_column("available_at"), images.get_column("study_time")])
    ranks = moments.rank("dense").fill_null(0).to_numpy().astype(np.int64)
    width = np.int64(len(moments) + 2)
    key = numbered * width + ranks
    of_notes, of_images = key[: ordered.height], key[ordered.height :]
    first = np.searchsorted(of_notes, numbered[ordered.height :] * width, side="left")
    last = np.searchsorted(of_notes, of_images, side="left")  # left: a note at the very time of the study is not prior
    timeless = images.get_column("study_time").is_null().to_numpy()
    return first.astype(np.int64), np.where(timeless, 0, np.maximum(last - first, 0)).astype(np.int64)


def without_pairs(images: pl.DataFrame, pairs: pl.DataFrame) -> pl.DataFrame:
    """The images with these (image_id, note_id) pairs taken out of `prior_note_ids`; order is kept."""
    if not pairs.height:
        return images
    hit = images.filter(pl.col("image_id").is_in(pairs.get_column("image_id").implode()))
    kept = (
        hit.select("image_id", pl.col("prior_note_ids").alias("note_id"))
        .explode("note_id")
        .join(pairs.select("image_id", "note_id"), on=["image_id", "note_id"], how="anti", maintain_order="left")
        .group_by("image_id", maintain_order=True)
        .agg(pl.col("note_id").alias("left_ids"))
    )
    joined = images.join(kept, on="image_id", how="left", maintain_order="left")
    touched = pl.col("image_id").is_in(hit.get_column("image_id").implode())
    empty = pl.lit([], dtype=pl.List(pl.String))
    return joined.with_columns(
        pl.when(touched)
        .then(pl.coalesce(pl.col("left_ids"), empty))
        .otherwise(pl.col("prior_note_ids"))
        .alias("prior_note_ids")
    ).drop("left_ids")
