"""Anybody's file of clinical notes (Parquet, CSV, TSV, JSON lines) -> patient, text, and when each note was known.

Known is a note from its `available_at`, or else from the latest of its chart, storing and discharge times that the
file has. What has no clock counts as the END of its day: a bare date, and midnight itself, which is how tables with
clocks write a bare date. So does a radiology report, whose time is that of the picture and not of the writing. A note
without text, patient or time is left out and counted.
Known limit: the file is held in memory; for all of MIMIC's notes use `cxrhf build`, which streams them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from cxrhf.errors import TableError
from cxrhf.tables import cells
from cxrhf.tables.cells import Where
from cxrhf.tables.checks import quoted
from cxrhf.tables.columns import SYNONYMS
from cxrhf.tables.files import RawTable, open_raw
from cxrhf.tables.times import DAYS, NUMBERS, calendar_days

Floats = NDArray[np.float64]

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
_NEXT = "write times as 2019-03-31 14:05"
_EPOCH = datetime(1970, 1, 1)
# Some .9 ms: the end of a day is this long before the next.
TICK = 1e-8


class Moments(NamedTuple):
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
    known: Moments
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
    moments = _known(loaded, where)
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
    keys = ["" if at in raw.nested else _key(name) for at, name in enumerate(raw.columns)]
    found: dict[str, int] = {}
    for role, names in NAMES.items():
        hits = [keys.index(_key(name)) for name in names if _key(name) in keys]
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


def _key(name: str) -> str:
    return re.sub(r"[\W_]+", "", name).lower()


def _texts(column: pa.ChunkedArray, where: Where) -> pa.ChunkedArray:
    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    if not (pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)):
        raise TableError(str(where), allowed="text", got=f"a column of type {column.type}")
    return column.cast(pa.large_string())


def _known(loaded: dict[str, pa.ChunkedArray], where: dict[str, Where]) -> Moments:
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


def _moments(column: pa.ChunkedArray, where: Where) -> Moments:
    """One column of times in days since 1970, or as numbers where it holds numbers that are no dates."""
    raw = cells.plain(column)
    if pa.types.is_timestamp(raw.type) or pa.types.is_date(raw.type):
        zone = raw.type.tz if pa.types.is_timestamp(raw.type) else None
        stamps = raw.cast(pa.timestamp("us", zone), safe=False)
        days, shown = _days(stamps), _days(pc.local_timestamp(stamps) if zone else stamps)
        return Moments(_ended(days, shown), DAYS, zone is not None)
    words = cells.text(column, where).dictionary_encode()
    distinct = words.dictionary.to_pylist()
    numbers = _numbers(distinct)
    if numbers is not None:
        dates = calendar_days(numbers)
        unit, zoned = (NUMBERS, False) if np.isnan(dates).any() else (DAYS, False)
        found = _ended(numbers, numbers) if unit == NUMBERS else _ended(dates, dates)
    else:
        found, zoned, unit = *_dates(distinct, words, where), DAYS
    index = words.indices.fill_null(len(distinct)).to_numpy(zero_copy_only=False)
    return Moments(np.append(found, np.nan)[index], unit, zoned)


def _ended(days: Floats, shown: Floats) -> Floats:
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
            raise where.error(_first(words, at), None, quoted(word), _ALLOWED, _NEXT) from None
        zoned.append(when.tzinfo is not None)
        if zoned[at] != zoned[0]:
            what = "some cells have a time zone and others do not"
            raise where.error(_first(words, at), what, quoted(word), _ALLOWED, _NEXT)
        local = when.replace(tzinfo=None)
        days[at] = (plain - _EPOCH) / timedelta(days=1)
        shown[at] = (local - _EPOCH) / timedelta(days=1)
    return _ended(days, shown), bool(zoned and zoned[0])


def _first(words: pa.DictionaryArray, at: int) -> int:
    return int(pc.index(words.indices, pa.scalar(at, words.indices.type)).as_py())
