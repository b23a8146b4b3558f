"""A notes file of any size -> NOTE rows on disk and a small index of when each note was known, in one pass.

Notes stream through memory a block at a time. A note is kept only if some image of its patient is later than it, which
is decided as it passes, so nothing after a patient's last image is ever written. What cannot be used (no text, no
time, no admission) is named in the quarantine.
"""

from __future__ import annotations

import hashlib
import json
import os
import queue
import shutil
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from cxrhf.data.attrition import Steps
from cxrhf.data.folder import remove
from cxrhf.data.raw import stream_csv, times
from cxrhf.data.settings import BuildConfig
from cxrhf.errors import SourceError
from cxrhf.schema import NOTE
from cxrhf.tables.checks import quoted
from cxrhf.tables.files import write_atomically

if TYPE_CHECKING:
    from cxrhf.data.mimic import Mimic

Integers = NDArray[np.int64]


ROW_GROUP, NOTES_PER_FILE = 1_000, 25_000
COLUMNS = ("note_id", "subject_id", "hadm_id", "charttime", "text")
OPTIONAL = ("storetime",)
QUARANTINE: dict[str, Any] = dict.fromkeys(("id", "patient_id", "path", "kind", "said"), pl.String)
SEEN: dict[str, Any] = {"subject_id": pl.String, "hadm_id": pl.String}
INDEX: dict[str, Any] = {
    "note_id": pl.String,
    "patient_id": pl.String,
    "available_at": pl.Datetime("us"),
    "text_hash": pl.Binary,
}


@dataclass(frozen=True, slots=True)
class StagedNotes:
    """What one pass over a notes file found. `seen` holds subject_id, hadm_id and the number of notes, kept or not."""

    index: pl.DataFrame
    quarantine: pl.DataFrame
    seen: pl.DataFrame


def stage_notes(
    path: Path,
    admissions: pl.DataFrame,
    latest: pl.DataFrame | None,
    folder: Path,
    *,
    stored: bool = False,
    heard: Callable[[int], object] | None = None,
) -> StagedNotes:
    """Write the notes that may be prior to some image into `folder` and return their index.

    `admissions` has subject_id, hadm_id, dischtime; `latest` has patient_id and the time of the patient's last study.
    With `latest=None` every usable note is kept. `stored`: a note is known only once it was stored as well. `heard` is
    told how many more notes were read.
    """
    index, quarantine, seen = [], [], []
    stays = _Stays(admissions, latest)
    known = ("dischtime", "charttime", "storetime") if stored else ("dischtime", "charttime")

    def chosen() -> Iterator[pa.Table]:
        for batch in stream_csv(path, COLUMNS, optional=OPTIONAL):
            facts = _facts(batch, stays, known)
            seen.append(facts.select(pl.col("patient_id").alias("subject_id"), "hadm_id"))
            bad = facts.filter(pl.col("kind").is_not_null())
            named = bad.with_columns(pl.col("note_id").fill_null("?").alias("id"), pl.lit(path.name).alias("path"))
            quarantine.append(named.select(list(QUARANTINE)))
            good = facts.filter(pl.col("kind").is_null())
            if latest is not None:
                good = good.filter(pl.col("available_at") < pl.col("latest"))
            text = batch.column("text").take(good.get_column("row").to_arrow())
            index.append(good.select("note_id", "patient_id", "available_at").with_columns(text_hash=_hashes(text)))
            if heard is not None:
                heard(batch.num_rows)
            yield _note_table(good, text)

    write_notes(read_ahead(chosen()), folder)  # reading and choosing on one core, compressing on another
    staged = StagedNotes(
        pl.concat([pl.DataFrame(schema=INDEX), *index]),
        pl.concat([pl.DataFrame(schema=QUARANTINE), *quarantine]),
        pl.concat([pl.DataFrame(schema=SEEN), *seen]).group_by("subject_id", "hadm_id").len("notes"),
    )
    _once(staged.index, path)
    return staged


class _Stays:
    """Admissions sorted once by patient and number: a join would build its table anew for every block of notes."""

    def __init__(self, admissions: pl.DataFrame, latest: pl.DataFrame | None) -> None:
        table = admissions.select("subject_id", "dischtime", key=_stay_key("subject_id", "hadm_id"))
        table = table.filter(pl.col("key").is_not_null()).sort("key")
        none = pl.lit(None, dtype=pl.Datetime("us")).alias("latest")
        if latest is None:
            table = table.with_columns(none)
        else:
            table = table.join(
                latest.rename({"patient_id": "subject_id"}), on="subject_id", how="left", maintain_order="left"
            )
        self.times = table.select("dischtime", "latest")
        self.keys = np.array(table.get_column("key").to_list(), dtype=np.bytes_)

    def of(self, notes: pl.DataFrame) -> pl.DataFrame:
        """`dischtime` of each note's admission and `latest` of its patient; null where there is no such admission."""
        wanted = notes.select(_stay_key("patient_id", "hadm_id")).to_series().fill_null("")
        if not len(self.keys):
            return self.times.clear(notes.height)
        keys = np.array(wanted.to_list() or [""], dtype=np.bytes_)[: notes.height]
        at = np.minimum(np.searchsorted(self.keys, keys), len(self.keys) - 1)
        rows = pl.Series(at, dtype=pl.UInt32).set(pl.Series(self.keys[at] != keys), None)
        return self.times.select(pl.all().gather(rows))


def _stay_key(subject: str, stay: str) -> pl.Expr:
    return pl.concat_str([pl.col(subject), pl.lit("/"), pl.col(stay)])


def _facts(batch: pa.RecordBatch, stays: _Stays, known: tuple[str, ...]) -> pl.DataFrame:
    """One row a note without its text: ids, times, and what is wrong with it."""
    frame = pl.from_arrow(batch.drop_columns(["text"]))
    assert isinstance(frame, pl.DataFrame)
    frame = frame.rename({"subject_id": "patient_id"}).with_columns(times("charttime"), times("storetime"))
    frame = frame.with_row_index("row").with_columns(pl.Series("blank", _blank(batch.column("text"))))
    frame = pl.concat([frame, stays.of(frame)], how="horizontal")
    frame = add_available_at(frame, known)
    missing = pl.concat_str(
        [pl.when(pl.col(name).is_null()).then(pl.lit(f"no {name}")) for name in known],
        separator=", ",
        ignore_nulls=True,
    )
    return frame.with_columns(
        pl.when(pl.col("note_id").is_null() | pl.col("patient_id").is_null())
        .then(pl.lit("note without id"))
        .when(pl.col("blank"))
        .then(pl.lit("note without text"))
        .when(pl.col("available_at").is_null())
        .then(pl.lit("note without time"))
        .alias("kind"),
        pl.when(pl.col("available_at").is_null()).then(missing).alias("said"),
    )


def _blank(text: pa.StringArray) -> NDArray[np.bool_]:
    """Whether a text is null or nothing but white space; most are settled by their first few letters."""
    start = pc.utf8_trim_whitespace(pc.utf8_slice_codeunits(text, 0, 64))
    blank = pc.fill_null(pc.equal(pc.utf8_length(start), 0), True).to_numpy(zero_copy_only=False).copy()
    for at in np.flatnonzero(blank):
        blank[at] = not (text[int(at)].as_py() or "").strip()
    return blank


def _hashes(text: pa.StringArray) -> pl.Series:
    """16 bytes a text, from the text's own bytes: equal texts, and only those, are equal."""
    return pl.Series(
        "text_hash",
        [hashlib.blake2b(each.as_buffer(), digest_size=16).digest() for each in text],
        dtype=pl.Binary,
    )


def _note_table(facts: pl.DataFrame, text: pa.Array, kind: str = "discharge") -> pa.Table:
    return pa.table(
        {
            "note_id": facts.get_column("note_id").to_arrow().cast(pa.string()),
            "patient_id": facts.get_column("patient_id").to_arrow().cast(pa.string()),
            "available_at": facts.get_column("available_at").to_arrow().cast(pa.timestamp("us")),
            "kind": pa.array([kind], pa.string()).take(pa.array([0] * facts.height, pa.int64())),
            "text": text,
        },
        schema=NOTE,
    )


def _once(index: pl.DataFrame, path: Path) -> None:
    twice = index.filter(pl.col("note_id").is_duplicated())
    if twice.height:
        raise SourceError(
            f"{path.name}: {twice.get_column('note_id').n_unique():,} note ids appear more than once, for example "
            f"{quoted(str(twice.get_column('note_id')[0]))}",
            next_step=f"copy {path} again",
        )


def write_notes(tables: Iterable[pa.Table], folder: Path) -> int:
    """NOTE tables of any sizes -> files notes-00000.parquet, ... with the same cuts whatever the sizes were."""
    folder.mkdir(parents=True, exist_ok=True)
    written, files = 0, 0
    writer: pq.ParquetWriter | None = None
    # Texts do not repeat: a dictionary of them would only cost memory.
    options = {"compression": "zstd", "compression_level": 1, "use_dictionary": ["kind", "patient_id"]}
    try:
        for group in _groups(tables):
            if writer is None or written == files * NOTES_PER_FILE:
                if writer is not None:
                    writer.close()
                writer = pq.ParquetWriter(folder / f"notes-{files:05d}.parquet", stored_schema(NOTE), **options)
                files += 1
            writer.write_table(to_stored(group), row_group_size=ROW_GROUP)
            written += group.num_rows
    finally:
        if writer is not None:
            writer.close()
    return written


def _groups(tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """The same rows in groups of ROW_GROUP; the last one may be shorter."""
    waiting: list[pa.Table] = []
    rows = 0
    for table in tables:
        waiting.append(table)
        rows += table.num_rows
        if rows >= ROW_GROUP:
            joined = pa.concat_tables(waiting)
            full = rows - rows % ROW_GROUP
            for start in range(0, full, ROW_GROUP):
                yield joined.slice(start, ROW_GROUP).combine_chunks()
            waiting, rows = [joined.slice(full)], rows - full
    if rows:
        yield pa.concat_tables(waiting).combine_chunks()


def read_notes(folder: Path) -> Iterator[pa.Table]:
    """The row groups of a folder of NOTE files, in order, one in memory at a time."""
    for path in sorted(folder.glob("notes-*.parquet")):
        with pq.ParquetFile(path) as file:
            for group in range(file.num_row_groups):
                yield from_stored(file.read_row_group(group))


def keep_linked(staged: Path, target: Path, linked: pl.Series) -> int:
    """Copy the notes that some image lists; where all are listed the files themselves are taken."""
    remove(target)  # of an earlier try
    wanted = linked.unique().to_arrow().cast(pa.string())
    files = sorted(staged.glob("notes-*.parquet"))
    if sum(pq.read_metadata(path).num_rows for path in files) == len(wanted):
        target.mkdir(parents=True, exist_ok=True)
        for path in files:  # linked, not moved: a build that is killed here can begin this step again
            try:
                os.link(path, target / path.name)
            except OSError:
                shutil.copyfile(path, target / path.name)
        return len(wanted)
    return write_notes(
        (table.filter(pc.is_in(table["note_id"], value_set=wanted)) for table in read_notes(staged)), target
    )


# An iterator -> the same items, made in a thread of their own while the caller is busy with the ones before.

T = TypeVar("T")


def read_ahead(items: Iterable[T], room: int = 2) -> Iterator[T]:
    """Yield `items` in order; at most `room` are made ahead. What making them raises is raised here.

    A caller that stops early stops the thread as well.
    """
    waiting: queue.Queue[tuple[bool, T | BaseException | None]] = queue.Queue(maxsize=room)
    stopped = threading.Event()

    def put(entry: tuple[bool, T | BaseException | None]) -> bool:
        while not stopped.is_set():
            try:
                waiting.put(entry, timeout=0.1)
            except queue.Full:
                continue
            return True
        return False

    def make() -> None:
        try:
            for item in items:
                if not put((True, item)):
                    return
        except BaseException as error:
            put((False, error))
        else:
            put((False, None))

    thread = threading.Thread(target=make, daemon=True)
    thread.start()
    try:
        while True:
            more, item = waiting.get()
            if more:
                yield item  # type: ignore[misc]
            elif item is None:
                return
            else:
                raise item  # type: ignore[misc]
    finally:
        stopped.set()
        thread.join()


# MIMIC's notes file -> notes on disk and their index, made once: a later try takes over what is finished.


@dataclass(frozen=True, slots=True)
class Staged:
    """A folder of NOTE files with the index of its notes."""

    folder: Path
    index: pl.DataFrame
    quarantine: pl.DataFrame


def staged_notes(config: BuildConfig, mimic: Mimic, folder: Path, fingerprint: str, steps: Steps) -> Staged:
    """Stream the notes, or take over what a build with the same fingerprint has already streamed."""
    assert mimic.notes is not None
    marker = folder / "finished.json"
    if not _is_finished(marker, fingerprint):
        remove(folder)
        latest = None
        if config.configuration != "notes":
            latest = mimic.source.images.group_by("patient_id").agg(pl.col("study_time").max().alias("latest"))
        from tqdm import tqdm

        with tqdm(unit=" notes", desc="notes", unit_scale=True, disable=None) as bar:
            found = stage_notes(
                mimic.notes,
                mimic.admissions,
                latest,
                folder,
                stored=config.available == "stored",
                heard=bar.update,
            )
        found.index.write_parquet(folder / "index.parquet")
        found.quarantine.write_parquet(folder / "quarantine.parquet")
        labelled = mimic.source.images.select(pl.col("patient_id").alias("subject_id")).unique()
        joined = found.seen.join(mimic.admissions, on=["subject_id", "hadm_id"], how="semi")
        joined = joined.join(labelled, on="subject_id", how="semi")
        counts = [_counts(found.seen), _counts(joined)]
        text = json.dumps({"fingerprint": fingerprint, "counts": counts})
        write_atomically(marker, lambda file: file.write(text.encode()))
    everybody, labelled_ones = json.loads(marker.read_text())["counts"]
    staged = Staged(folder, pl.read_parquet(folder / "index.parquet"), pl.read_parquet(folder / "quarantine.parquet"))
    bad = staged.quarantine.height
    steps.add("notes", **everybody, note=f"{bad:,} notes cannot be used, see the quarantine" if bad else "")
    if config.configuration != "notes":
        steps.add("admissions with notes", **labelled_ones, note="patients with labels only")
    return staged


def _counts(seen: pl.DataFrame) -> dict[str, int]:
    return {
        "patients": seen.get_column("subject_id").n_unique(),
        "admissions": seen.get_column("hadm_id").n_unique(),
        "notes": int(seen.get_column("notes").sum()),
    }


def _is_finished(marker: Path, fingerprint: str) -> bool:
    try:
        found = json.loads(marker.read_text())
    except (OSError, ValueError):
        return False
    return bool(found.get("fingerprint") == fingerprint)


# Images and notes of the same patients -> each image's prior notes, by id, in time order.
#
# A note is prior when everything that makes it known lies strictly before the study: equal times are not prior, and
# what has no time is never prior. Patients' notes are sorted once; an image's prior notes are then the first few of
# its patient's, found by one binary search, so there is never a row per image and note.


def add_available_at(notes: pl.DataFrame, columns: tuple[str, ...] = ("dischtime", "charttime")) -> pl.DataFrame:
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


def remove_pairs(images: pl.DataFrame, pairs: pl.DataFrame) -> pl.DataFrame:
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


# Times in memory <-> times in the files of a build: ISO 8601 text with microseconds, 2150-03-04T10:11:12.000000.
#
# `datasets` cannot make tensors of a time column: `.with_format("torch")` failed for the whole row. Text passes
# through every format, loses nothing, and sorts as the times do. Builds made earlier hold timestamps; both are read.

_NAMES = ("study_time", "available_at")


def stored_schema(schema: pa.Schema) -> pa.Schema:
    """The schema of a table as it is written."""
    for at, field in enumerate(schema):
        if pa.types.is_timestamp(field.type):
            schema = schema.set(at, field.with_type(pa.string()))
    return schema


def to_stored(table: pa.Table) -> pa.Table:
    """The table with its times as text."""
    for at, field in enumerate(table.schema):
        if pa.types.is_timestamp(field.type):
            text = pc.strftime(table.column(at).cast(pa.timestamp("us")), format="%Y-%m-%dT%H:%M:%S")
            table = table.set_column(at, field.with_type(pa.string()), text)
    return table


def from_stored(table: pa.Table) -> pa.Table:
    """The table with its times as times, however its file holds them."""
    for name in _NAMES:
        at = table.schema.get_field_index(name)
        if at >= 0 and not pa.types.is_timestamp(table.schema.field(at).type):
            field = table.schema.field(at).with_type(pa.timestamp("us"))
            table = table.set_column(at, field, table.column(at).cast(pa.timestamp("us")))
    return table
