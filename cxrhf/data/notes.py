"""A notes file of any size -> NOTE rows on disk and a small index of when each note was known, in one pass.

Notes stream through memory a block at a time. A note is kept only if some image of its patient is later than it, which
is decided as it passes, so nothing after a patient's last image is ever written. What cannot be used (no text, no
time, no admission) is named in the quarantine.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from cxrhf.data.ahead import ahead
from cxrhf.data.folder import remove
from cxrhf.data.link import available_at
from cxrhf.data.raw import stream_csv, times
from cxrhf.data.stored_times import from_stored, stored_schema, to_stored
from cxrhf.errors import SourceError
from cxrhf.schema import NOTE
from cxrhf.tables.checks import quoted

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

    write_notes(ahead(chosen()), folder)  # reading and choosing on one core, compressing on another
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
        table = admissions.select("subject_id", "dischtime", key=_key("subject_id", "hadm_id"))
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
        wanted = notes.select(_key("patient_id", "hadm_id")).to_series().fill_null("")
        if not len(self.keys):
            return self.times.clear(notes.height)
        keys = np.array(wanted.to_list() or [""], dtype=np.bytes_)[: notes.height]
        at = np.minimum(np.searchsorted(self.keys, keys), len(self.keys) - 1)
        rows = pl.Series(at, dtype=pl.UInt32).set(pl.Series(self.keys[at] != keys), None)
        return self.times.select(pl.all().gather(rows))


def _key(subject: str, stay: str) -> pl.Expr:
    return pl.concat_str([pl.col(subject), pl.lit("/"), pl.col(stay)])


def _facts(batch: pa.RecordBatch, stays: _Stays, known: tuple[str, ...]) -> pl.DataFrame:
    """One row a note without its text: ids, times, and what is wrong with it."""
    frame = pl.from_arrow(batch.drop_columns(["text"]))
    assert isinstance(frame, pl.DataFrame)
    frame = frame.rename({"subject_id": "patient_id"}).with_columns(times("charttime"), times("storetime"))
    frame = frame.with_row_index("row").with_columns(pl.Series("blank", _blank(batch.column("text"))))
    frame = pl.concat([frame, stays.of(frame)], how="horizontal")
    frame = available_at(frame, known)
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
