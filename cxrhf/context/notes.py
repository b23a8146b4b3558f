"""Notes and images -> which notes are prior to which image: known strictly before it, of the same patient.

Two sources: a folder made by `cxrhf build`, which linked them, and a file of notes beside the images' times. Notes are
kept once; an image has the numbers of its notes, never their text. A note of the image's own time is not prior.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from scipy import sparse

from cxrhf.errors import LeakageError, TableError
from cxrhf.tables import cells
from cxrhf.tables.cells import Where
from cxrhf.tables.checks import quoted
from cxrhf.tables.columns import SYNONYMS
from cxrhf.tables.files import RawTable, open_raw
from cxrhf.tables.times import DAYS, NUMBERS, calendar_days

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


def prior_notes_of_build(images: pa.Table, notes: pa.Table, *, predictions: pa.Table) -> Prior:
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


def prior_notes_of_file(source: Any, *, times: pa.Table | None, predictions: pa.Table) -> Prior:
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


# Anybody's file of clinical notes (Parquet, CSV, TSV, JSON lines) -> patient, text, and when each note was known.
#
# Known is a note from its `available_at`, or else from the latest of its chart, storing and discharge times that the
# file has. What has no clock counts as the END of its day: a bare date, and midnight itself, which is how tables with
# clocks write a bare date. So does a radiology report, whose time is that of the picture and not of the writing. A
# note without text, patient or time is left out and counted. Known limit: the file is held in memory; for all of
# MIMIC's notes use `cxrhf build`, which streams them.

# Role -> names it goes by, best first. Not "report": that may be the report of the very image.
NAMES: dict[str, tuple[str, ...]] = {
    "text": ("text", "note_text", "note", "notes", "content", "body"),
    "patient": SYNONYMS["patient"],
    "available": ("available_at", "available_time", "availabletime"),
    "charted": ("charttime", "chartdate", "note_time", "note_datetime", "note_date", "datetime", "timestamp", "time",
                "date"),
    "stored": ("storetime", "stored_at"),
    "discharged": ("dischtime", "discharge_time", "discharge_date"),
    "kind": ("kind", "note_type", "category", "note_category"),
}  # fmt: skip
_RADIOLOGY = r"(?i)^(rr|ar|.*radiolog.*)$"
_ALLOWED = "a time such as 2019-03-31 14:05, 2019-03-31 or 20190331, or a number if the images have numbers"
_NEXT_STEP = "write times as 2019-03-31 14:05"
_EPOCH = datetime(1970, 1, 1)
# Some .9 ms: the end of a day is this long before the next.
TICK = 1e-8


class NoteTimes(NamedTuple):
    """When each note was known, in days (NaN = not said), what the numbers count, and whether they had a time zone.

    What has no clock stands at the end of its day.
    """

    values: Floats
    unit: str
    zoned: bool


class NoteFile(NamedTuple):
    """Notes that can be used: patient_id and text, `known` for each; and sentences that count the others."""

    name: str
    table: pa.Table
    known: NoteTimes
    said: list[str]


def read_notes(source: Any, patients: pa.Array) -> NoteFile:
    """The notes of these patients. `source`: a path, an Arrow table, a DataFrame, a dictionary or a list of rows."""
    raw = open_raw(source)
    at = _columns(raw)
    loaded = dict(zip(at, raw.load(dict.fromkeys(at.values(), "text")), strict=True))
    where = {role: Where(raw.name, raw.columns[position], raw.place) for role, position in at.items()}
    n = len(loaded["text"])
    if n == 0:
        raise TableError(f"{raw.name}: the table has no rows", next_step="check how the file was made")
    text = _texts(loaded["text"], where["text"])
    patient = cells.names(loaded["patient"], where["patient"])
    moments = _note_times(loaded, where)
    ours = np.asarray(pc.is_in(patient, value_set=patients.cast(pa.string())))
    if not ours.any():
        raise TableError(
            f"{raw.name} and the predictions share no patient id",
            allowed="the same patient ids, written in the same way",
            got=f"{pc.count_distinct(patient).as_py():,} patients in the notes, {len(patients):,} in the predictions",
            next_step="name the patient column of the predictions: --patient COLUMN",
        )
    written = np.asarray(pc.match_substring_regex(text, r"\S").fill_null(False))
    timed = ~np.isnan(moments.values)
    left_out = [(np.asarray(patient.is_null()), "without a patient"), (ours & ~written, "without text")]
    left_out.append((ours & written & ~timed, "without a time"))
    said = [f"{raw.name}: excluded {int(odd.sum()):,} notes {what}" for odd, what in left_out if odd.any()]
    kept = ours & written & timed
    mask = pa.array(kept)
    # Filtered chunk by chunk: one array may not hold more than 2 GB of text.
    table = pa.table({"patient_id": patient.filter(mask), "text": text.filter(mask)})
    return NoteFile(raw.name, table, moments._replace(values=moments.values[kept]), said)


def _columns(raw: RawTable) -> dict[str, int]:
    """Role -> position of its column; text, patient and a time must be there."""
    keys = ["" if at in raw.nested else _role_key(name) for at, name in enumerate(raw.columns)]
    found: dict[str, int] = {}
    for role, names in NAMES.items():
        hits = [keys.index(_role_key(name)) for name in names if _role_key(name) in keys]
        if hits:
            found[role] = hits[0]
    missing = [role for role in ("text", "patient") if role not in found]
    if not {"available", "charted", "stored", "discharged"} & set(found):
        missing.append("time")
    if missing:
        usual = {**NAMES, "time": ("available_at", "charttime", "time", "date")}
        hints = [f"{role}: {', '.join(usual[role][:4])}" for role in missing]
        raise TableError(
            f"{raw.name}: found no {' and no '.join(missing)} column in the notes",
            got=f"columns {', '.join(raw.columns)}",
            allowed="; ".join(hints),
            next_step="rename the column",
        )
    if "available" in found:
        found = {role: at for role, at in found.items() if role not in ("charted", "stored", "discharged")}
    return found


def _role_key(name: str) -> str:
    return re.sub(r"[\W_]+", "", name).lower()


def _texts(column: pa.ChunkedArray, where: Where) -> pa.ChunkedArray:
    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    if not (pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)):
        raise TableError(str(where), allowed="text", got=f"a column of type {column.type}")
    return column.cast(pa.large_string())


def _note_times(loaded: dict[str, pa.ChunkedArray], where: dict[str, Where]) -> NoteTimes:
    """The latest of the times of each note; only a storing time may be blank where the file has the column."""
    roles = [role for role in ("available", "charted", "discharged", "stored") if role in loaded]
    parts = [_moments(loaded[role], where[role]) for role in roles]
    for part in parts[1:]:
        if part.unit != parts[0].unit or part.zoned != parts[0].zoned:
            names = ", ".join(quoted(where[role].column) for role in roles)
            raise TableError(
                f"{where[roles[0]].source}, columns {names}: the times are of different kinds",
                allowed="dates in all or numbers in all, and a time zone in all or in none",
            )
    values = [part.values for part in parts]
    if "kind" in loaded:
        report = pc.match_substring_regex(cells.text(loaded["kind"], where["kind"]), _RADIOLOGY).fill_null(False)
        # Where a zone hides the hospital's midnight, a whole day.
        late = [each + 1 if parts[0].zoned else np.floor(each) + 1 - TICK for each in values]
        values = [np.where(np.asarray(report), after, each) for after, each in zip(late, values, strict=True)]
    latest = values[0]
    for role, each in zip(roles[1:], values[1:], strict=True):
        later = np.maximum(latest, each)  # blank where one of them is
        latest = np.where(np.isnan(each), latest, later) if role == "stored" else later
    return parts[0]._replace(values=latest)


def _moments(column: pa.ChunkedArray, where: Where) -> NoteTimes:
    """One column of times in days since 1970, or as numbers where it holds numbers that are no dates."""
    raw = cells.plain(column)
    if pa.types.is_timestamp(raw.type) or pa.types.is_date(raw.type):
        zone = raw.type.tz if pa.types.is_timestamp(raw.type) else None
        stamps = raw.cast(pa.timestamp("us", zone), safe=False)
        days, shown = _days(stamps), _days(pc.local_timestamp(stamps) if zone else stamps)
        return NoteTimes(_end_of_day(days, shown), DAYS, zone is not None)
    words = cells.text(column, where).dictionary_encode()
    distinct = words.dictionary.to_pylist()
    numbers = _numbers(distinct)
    if numbers is not None:
        dates = calendar_days(numbers)
        unit, zoned = (NUMBERS, False) if np.isnan(dates).any() else (DAYS, False)
        found = _end_of_day(numbers, numbers) if unit == NUMBERS else _end_of_day(dates, dates)
    else:
        found, zoned, unit = *_dates(distinct, words, where), DAYS
    index = words.indices.fill_null(len(distinct)).to_numpy(zero_copy_only=False)
    return NoteTimes(np.append(found, np.nan)[index], unit, zoned)


def _end_of_day(days: Floats, shown: Floats) -> Floats:
    """Times whose clock shows midnight, moved to the end of their day."""
    return np.where(shown == np.floor(shown), days + 1 - TICK, days)


def _days(stamps: pa.Array) -> Floats:
    whole = stamps.cast(pa.int64())
    blank = np.asarray(whole.is_null())
    return np.where(blank, np.nan, whole.fill_null(0).to_numpy(zero_copy_only=False) / 86_400e6)


def _numbers(words: Sequence[str]) -> Floats | None:
    try:
        found = np.array([float(word) for word in words])
    except ValueError:
        return None
    return found if np.isfinite(found).all() else None


def _dates(distinct: Sequence[str], words: pa.DictionaryArray, where: Where) -> tuple[Floats, bool]:
    """ISO dates and times in days since 1970, and whether they have a zone; any other form is an error."""
    days, shown, zoned = np.empty(len(distinct)), np.empty(len(distinct)), list[bool]()
    for at, word in enumerate(distinct):
        try:
            when = datetime.fromisoformat(word)
            plain = when.astimezone(UTC).replace(tzinfo=None) if when.tzinfo else when
        except (ValueError, OverflowError):
            raise where.error(_first(words, at), None, quoted(word), _ALLOWED, _NEXT_STEP) from None
        zoned.append(when.tzinfo is not None)
        if zoned[at] != zoned[0]:
            what = "some cells have a time zone and others do not"
            raise where.error(_first(words, at), what, quoted(word), _ALLOWED, _NEXT_STEP)
        local = when.replace(tzinfo=None)
        days[at] = (plain - _EPOCH) / timedelta(days=1)
        shown[at] = (local - _EPOCH) / timedelta(days=1)
    return _end_of_day(days, shown), bool(zoned and zoned[0])


def _first(words: pa.DictionaryArray, at: int) -> int:
    return int(pc.index(words.indices, pa.scalar(at, words.indices.type)).as_py())
