"""Notes and images -> which notes are prior to which image: known strictly before it, of the same patient.

Two sources: a folder made by `cxrhf build`, which linked them, and a file of notes beside the images' times. Notes are
kept once; an image has the numbers of its notes, never their text. A note of the image's own time is not prior.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from scipy import sparse

from cxrhf.context.note_files import TICK, NoteFile, read_notes
from cxrhf.errors import LeakageError, TableError
from cxrhf.tables.times import DAYS

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Prior:
    """Images, notes, and links between them. `said`: sentences that count what was left out, without ids or text."""

    images: pa.Array = field(repr=False)  # ids
    notes: pa.Table = field(repr=False)  # patient_id, text; other columns are not looked at
    links: sparse.csr_array = field(repr=False)  # images x notes, 1 where the note is prior
    said: tuple[str, ...] = ()

    def of(self, images: pa.Array) -> sparse.csr_array:
        """The links of these images, in this order; an image that is not known has none."""
        at = pc.index_in(images, value_set=self.images).fill_null(len(self.images)).to_numpy(zero_copy_only=False)
        nothing = sparse.csr_array((1, self.notes.num_rows))
        return sparse.csr_array(sparse.vstack([self.links, nothing], format="csr")[at])


def of_build(images: pa.Table, notes: pa.Table, *, predictions: pa.Table) -> Prior:
    """The links of a build: IMAGE columns image_id and prior_note_ids, and the NOTE table.

    Where `images` has study_time too, every link is checked again: a note that is not earlier is a LeakageError.
    """
    ids = pc.unique(predictions["image_id"])
    kept = images.filter(pc.is_in(images["image_id"], value_set=ids))
    if kept.num_rows == 0:
        raise TableError(
            "the folder of notes and the predictions share no image id",
            got=f"{images.num_rows:,} images in the folder and {len(ids):,} in the predictions",
            allowed="the same image ids, written in the same way",
            next_step="name the image column of the predictions: --image COLUMN",
        )
    lists = _flat(kept["prior_note_ids"])
    count = pc.list_value_length(lists).fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
    known = pc.index_in(lists.flatten(), value_set=_flat(notes["note_id"]))
    if known.null_count:
        raise TableError(
            f"{known.null_count:,} prior notes of the images are missing from the notes of the folder",
            next_step="build the dataset again: cxrhf build ... --overwrite",
        )
    rows = known.to_numpy(zero_copy_only=False).astype(np.int64)
    if "study_time" in kept.column_names:
        _check_times(notes, rows, np.repeat(_micro(kept["study_time"]), count))
    return Prior(_flat(kept["image_id"]), notes, _links(rows, count, notes.num_rows))


def _check_times(notes: pa.Table, rows: Integers, image: Integers) -> None:
    known = _micro(notes["available_at"])[rows]
    late = int(((known >= image) | (image == _NEVER) | (known == _NEVER)).sum())
    if late:
        raise LeakageError(
            f"{late:,} links from an image of the build lead to a note that is not earlier",
            counts={"time": late},
            next_step="build the dataset again: cxrhf build ... --overwrite",
        )


_NEVER = np.iinfo(np.int64).min


def _micro(column: pa.ChunkedArray) -> Integers:
    whole = column.cast(pa.timestamp("us")).cast(pa.int64()).fill_null(_NEVER)
    return np.asarray(whole.to_numpy(), dtype=np.int64)


def of_file(source: Any, *, times: pa.Table | None, predictions: pa.Table) -> Prior:
    """Links of the notes in a file (see note_files), by time.

    `times`: image_id, patient_id, time in days since 1970 or, where its metadata says unit = "numbers as given", in
    the numbers that the notes use too. An image without a time has no prior notes.
    """
    if times is None or times["time"].null_count == times.num_rows:
        raise TableError(
            "the predictions have no times of the images, so cxrhf cannot tell which notes are earlier",
            next_step="name the column with --time COLUMN, or pass a build folder instead",
        )
    times = times.filter(pc.is_in(times["image_id"], value_set=pc.unique(predictions["image_id"])))
    file = read_notes(source, pc.unique(times["patient_id"]))
    _same_clock(file, times)
    people, of_note = np.unique(np.asarray(file.table["patient_id"].to_pylist(), dtype=object), return_inverse=True)
    order = np.lexsort((np.arange(len(of_note)), file.known.values, of_note))
    order, copies = _without_copies(order, of_note, file.table["text"])
    of_image = pc.index_in(times["patient_id"], value_set=pa.array(people, pa.string()))
    of_image = of_image.fill_null(len(people)).to_numpy().astype(np.int64)
    moment = np.asarray(times["time"].to_numpy(), dtype=np.float64)
    first, last = _ranges(order, of_note, file.known.values, of_image, moment)
    count = last - first
    starts = np.cumsum(count) - count
    rows = order[np.arange(int(count.sum())) - np.repeat(starts - first, count)]
    said = [*file.said]
    if copies:
        said.append(f"{file.name}: {copies:,} notes repeat an earlier note of the same patient and count once")
    if timeless := int(np.isnan(moment).sum()):
        said.append(f"{timeless:,} images have no time and therefore no prior notes")
    return Prior(_flat(times["image_id"]), file.table, _links(rows, count, file.table.num_rows), tuple(said))


def _same_clock(file: NoteFile, times: pa.Table) -> None:
    given = times.schema.metadata or {}
    unit, zoned = given.get(b"unit", DAYS.encode()).decode(), b"zone" in given
    if file.known.unit != unit:
        raise TableError(
            f"{file.name}: the times of the notes cannot be compared with those of the images",
            got=f"{file.known.unit} for the notes and {unit} for the images",
            allowed="dates in both or numbers in both",
            next_step="name the time column of the predictions: --time COLUMN",
        )
    if file.known.zoned != zoned:
        one, other = ("notes", "images") if file.known.zoned else ("images", "notes")
        raise TableError(
            f"{file.name}: the times of the {one} have a time zone and those of the {other} do not",
            allowed="a time zone in both or in neither",
            next_step="write both in the hospital's local time",
        )


def _without_copies(order: Integers, of_note: Integers, texts: pa.ChunkedArray) -> tuple[Integers, int]:
    """The notes in order, less those whose text the same patient had before."""
    marks = [hashlib.blake2b(each.as_buffer(), digest_size=16).digest() for each in texts]
    seen: set[tuple[int, bytes]] = set()
    kept = []
    for at in order.tolist():
        mark = (int(of_note[at]), marks[at])
        if mark not in seen:
            seen.add(mark)
            kept.append(at)
    return np.array(kept, dtype=np.int64), len(order) - len(kept)


def _ranges(
    order: Integers, of_note: Integers, known: Floats, of_image: Integers, moment: Floats
) -> tuple[Integers, Integers]:
    """For each image the places in `order` (by patient and time) where its prior notes begin and end."""
    first = np.searchsorted(of_note[order], of_image, side="left")
    end = np.searchsorted(of_note[order], of_image, side="right")
    sorted_known = known[order]
    last = first.copy()
    # Half a tick: times of the same moment may differ in their last digit when they were made in two ways.
    for at in np.flatnonzero((end > first) & ~np.isnan(moment)):
        last[at] += np.searchsorted(sorted_known[first[at] : end[at]], moment[at] - TICK / 2, side="left")
    return first.astype(np.int64), last.astype(np.int64)


def _links(rows: Integers, count: Integers, n_notes: int) -> sparse.csr_array:
    ends = np.concatenate([[0], np.cumsum(count)])
    return sparse.csr_array((np.ones(len(rows)), rows, ends), shape=(len(count), n_notes))


def _flat(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks or [pa.nulls(0, column.type)])
