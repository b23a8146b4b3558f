"""A column of times -> when each image was taken, so that earlier images of a patient can be told from later ones.

One column holds one kind: dates and timestamps become days since 1970, other numbers (a follow-up number, an offset in
days) stay as they are. Eight digits that are all calendar dates are dates. A clock column beside a date column (DICOM's
StudyDate and StudyTime) is added when every date has its clock; without it the images of a day count as simultaneous.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cxrhf.errors import TableError
from cxrhf.tables import cells
from cxrhf.tables.cells import Where
from cxrhf.tables.checks import MOST_NAME, quoted
from cxrhf.tables.files import RawTable

Column = tuple[pa.ChunkedArray, Where]
DAYS, NUMBERS = "days since 1970", "numbers as given"
_ALLOWED = "a number, or a date such as 2019-03-31, 2019-03-31 14:05 or 20190331"
_TIMES_NEXT_STEP = "write dates as 2019-03-31, or name another column: --time COLUMN"
_NIH = r"(?:^|/)(?P<who>[0-9]{8})_(?P<number>[0-9]{3})\.png$"


class ImageTimes(NamedTuple):
    """Times of the rows (NaN = blank), what they count, and what should be said."""

    values: np.ndarray
    unit: str
    notes: list[str]
    zoned: bool = False  # the times had a zone and are now UTC; such times cannot be set beside others


def image_times(
    time: Column, clock: Column | None, images: pa.Array, patients: pa.Array, *, named: bool
) -> tuple[pa.Table | None, list[str]]:
    """One row per image: image_id, patient_id, time; the unit stands in the table's metadata.

    What cannot be used is an error where the user named the column, and a note where its name alone suggested it: a
    column called `date` or `time` may hold something else.
    """
    where = time[1]
    try:
        moments = _moments(time, clock, named)
        row = _one_time(images, moments.values, where)
        if named and np.isnan(moments.values).all():
            raise TableError(str(where), got="only empty cells", allowed=_ALLOWED, next_step=_TIMES_NEXT_STEP)
    except TableError:
        if named:
            raise
        # Without the cell that is odd: notes stand on the page, and a date or an id may tell who it is.
        said = f"column {quoted(where.column)} is not used: it does not look like the time of the images. To use it"
        return None, [f"{said}, or to see why: --time {where.column!r}"]
    if np.isnan(moments.values).all():
        return None, []
    values = pa.array(moments.values[row], from_pandas=True)
    at = pa.array(row)
    about = {"unit": moments.unit} | ({"zone": "UTC"} if moments.zoned else {})
    table = _times_table(images.take(at), patients.take(at), values, about)
    blank = (
        f"column {quoted(where.column)} has no time for {values.null_count:,} "
        f"image{'s' * (values.null_count != 1)}: never counted as earlier than another"
    )
    return table, moments.notes + [blank] * bool(values.null_count)


def _times_table(images: pa.Array, patients: pa.Array, values: pa.Array, about: dict[str, str]) -> pa.Table:
    table = pa.table({"image_id": images, "patient_id": patients, "time": values.cast(pa.float64())})
    return table.replace_schema_metadata(about)


def _one_time(images: pa.Array, values: np.ndarray, where: Where) -> np.ndarray:
    """The row that speaks for each image, in the order of the file: its first with a time; two times are an error."""
    image = codes(images)
    n = int(image.max(initial=-1)) + 1
    row = np.empty(n, dtype=np.int64)
    every = np.arange(len(image))[::-1]
    row[image[every]] = every
    known = every[~np.isnan(values[every])]
    row[image[known]] = known
    odd = np.flatnonzero(~np.isnan(values) & (values != values[row[image]]))
    if odd.size:
        bad = int(odd[0])
        first = where.place(int(row[image[bad]]))
        what = f"image {quoted(images[bad].as_py())} has a different time in {first}"
        raise where.error(bad, what, f"{values[bad]:.12g} here", "one time per image", "fix one of them")
    return row


def _moments(time: Column, clock: Column | None, named: bool) -> ImageTimes:
    column, where = time
    raw = cells.plain(column)
    kind = raw.type
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        zoned = pa.types.is_timestamp(kind) and kind.tz is not None
        return _with_clock(ImageTimes(_days_from_timestamps(raw, where), DAYS, [], zoned), clock)
    if pa.types.is_boolean(kind):
        raise TableError(str(where), got=f"a column of type {kind}", allowed=_ALLOWED, next_step=_TIMES_NEXT_STEP)
    if pa.types.is_string(kind):
        words = cells.text(column, where).dictionary_encode()
        if not _are_numbers(words.dictionary):
            first = next((found for each in words.dictionary.to_pylist() if (found := _iso(each))), None)
            zoned = first is not None and first.zoned
            return _with_clock(ImageTimes(_parse_dates(words, where), DAYS, [], zoned), clock)
    values = cells.numbers(column, where, allowed=_ALLOWED)
    infinite = np.flatnonzero(np.isinf(values))
    if infinite.size:
        raise where.error(int(infinite[0]), None, values[infinite[0]], _ALLOWED, _TIMES_NEXT_STEP)
    known = ~np.isnan(values)
    days = calendar_days(values)
    dated = known & ~np.isnan(days)
    if dated.any() and 2 * dated.sum() > known.sum():
        if (known & ~dated).any():
            row = int(np.argmax(known & ~dated))
            raise where.error(
                row, None, f"{values[row]:.12g}", "a date such as 20190331, as in other rows", _TIMES_NEXT_STEP
            )
        said = f"column {quoted(where.column)}: its 8-digit numbers are read as dates (YYYYMMDD)"
        return _with_clock(ImageTimes(days, DAYS, [said]), clock)
    _refuse_durations(values[known], where, named)
    return ImageTimes(values, NUMBERS, [])


def _refuse_durations(values: np.ndarray, where: Where, named: bool) -> None:
    """A clock without its date orders nothing; a bare `time` with fractions is more likely how long something took."""
    key = re.sub(r"[\W_]+", "", where.column).lower()
    if key.endswith("time") and values.size and values.max() >= 10_000 and not np.isnan(_day_part(values)).any():
        raise TableError(
            str(where),
            got=f"a time of day without a date ({values[0]:.12g})",
            allowed=_ALLOWED,
            next_step="name the date column: --time COLUMN",
        )
    if key == "time" and not named and (values != np.round(values)).any():
        raise TableError(
            str(where),
            got=f"what may be a duration ({values[values != np.round(values)][0]:.12g})",
            allowed=_ALLOWED,
            next_step=f"if it is the time of the image, pass --time {where.column}",
        )


def _days_from_timestamps(raw: pa.Array, where: Where) -> np.ndarray:
    zone = raw.type.tz if pa.types.is_timestamp(raw.type) else None
    try:
        micro = raw.cast(pa.timestamp("us", zone), safe=not pa.types.is_timestamp(raw.type) or raw.type.unit != "ns")
    except pa.ArrowInvalid as error:
        raise TableError(
            f"{where}: these times are outside the range of microseconds", got=str(error).splitlines()[0]
        ) from None
    whole = micro.cast(pa.int64())
    blank = np.asarray(whole.is_null())
    return np.where(blank, np.nan, whole.fill_null(0).to_numpy(zero_copy_only=False) / 86_400e6)


def _parse_dates(words: pa.DictionaryArray, where: Where) -> np.ndarray:
    """Dates as text; the first cell of another form is an error."""
    found = [_iso(word) for word in words.dictionary.to_pylist()]
    for at, each in enumerate(found):
        if each is None or each.zoned != found[0].zoned:  # type: ignore[union-attr]  # the first was looked at first
            word = words.dictionary[at]
            row = pc.index(words.indices, pa.scalar(at, words.indices.type)).as_py()
            what = None if each is None else "some cells have a time zone and others do not"
            number = each is None and _are_numbers(pa.array([word.as_py()]))
            allowed = "a date, as in other rows" if number else _ALLOWED
            raise where.error(row, what, quoted(word.as_py()), allowed, _TIMES_NEXT_STEP)
    days = np.array([each.days for each in found if each is not None] + [np.nan])
    return np.asarray(days[words.indices.fill_null(len(found)).to_numpy(zero_copy_only=False)])


class _Stamp(NamedTuple):
    days: float
    zoned: bool


def _iso(word: str) -> _Stamp | None:
    try:
        when = datetime.fromisoformat(word)
        utc = when.astimezone(UTC).replace(tzinfo=None) if when.tzinfo else when
    except (ValueError, OverflowError):
        return None
    return _Stamp((utc - datetime(1970, 1, 1)) / timedelta(days=1), when.tzinfo is not None)


def _are_numbers(words: pa.Array) -> bool:
    try:
        words.cast(pa.float64())
    except pa.ArrowInvalid:
        return False
    return True


def calendar_days(values: np.ndarray) -> np.ndarray:
    """20190331 -> days since 1970; NaN where the number is no date of the years 1800 to 2299.

    >>> calendar_days(np.array([19700102, 20190229, 7])).tolist()
    [1.0, nan, nan]
    """
    fits = (values >= 18000101) & (values <= 22991231) & (values == np.round(values))
    number = np.where(fits, values, 19700101).astype(np.int64)
    year, month, day = number // 10_000, number // 100 % 100, number % 100
    fits &= (month >= 1) & (month <= 12)
    first = ((year - 1970) * 12 + np.clip(month, 1, 12) - 1).astype("datetime64[M]")
    length = ((first + 1).astype("datetime64[D]") - first.astype("datetime64[D]")).astype(np.int64)
    fits &= (day >= 1) & (day <= length)
    return np.where(fits, first.astype("datetime64[D]").astype(np.int64) + day - 1.0, np.nan)


def _with_clock(dates: ImageTimes, clock: Column | None) -> ImageTimes:
    """Add the clock where every date has one: an image at an unknown hour would seem the first of its day."""
    if clock is None or (dates.values[~np.isnan(dates.values)] % 1).any():
        return dates
    column, where = clock
    dated = ~np.isnan(dates.values)
    part = _clock(column, where)
    if part is None or np.isnan(part[dated]).any():
        why = "has cells that are not times of day" if part is None else "has empty cells"
        return dates._replace(
            notes=[*dates.notes, f"column {quoted(where.column)} {why}: images of one day count as simultaneous"]
        )
    return dates._replace(values=dates.values + np.where(dated, part, 0.0))


def _clock(column: pa.ChunkedArray, where: Where) -> np.ndarray | None:
    """Times of day (93005.25, 09:30:05, 09:30) as parts of a day, NaN where blank; None when they are no such thing."""
    raw = cells.plain(column)
    if pa.types.is_time(raw.type):
        raw = raw.cast(pa.string())
    try:
        if not pa.types.is_string(raw.type):
            values = cells.numbers(column, where)
        else:
            words = cells.text(pa.chunked_array([raw]), where)
            bare = pc.replace_substring_regex(words, r"^(\d{1,2}):(\d\d)$", r"\1:\2:00")
            values = pc.replace_substring(bare, ":", "").cast(pa.float64()).to_numpy(zero_copy_only=False)
    except (TableError, pa.ArrowInvalid):
        return None
    part = _day_part(values)
    return None if np.isnan(part[~np.isnan(values)]).any() else part


def _day_part(values: np.ndarray) -> np.ndarray:
    """HHMMSS.fff as a number -> part of a day; NaN where it is no time of day."""
    with np.errstate(invalid="ignore"):
        hours, minutes, seconds = values // 10_000, values // 100 % 100, values % 100
        fits = (values >= 0) & (hours < 24) & (minutes < 60) & (seconds < 60)
        return np.where(fits, (hours * 3600 + minutes * 60 + seconds) / 86_400, np.nan)


def merge_times(parts: Sequence[pa.Table | None], sources: Sequence[str]) -> pa.Table | None:
    """The times of several files as one table; files that count otherwise or contradict each other are an error."""
    given = [(table, source) for table, source in zip(parts, sources, strict=True) if table is not None]
    if not given:
        return None
    first = given[0]
    for table, source in given[1:]:
        units = [
            ", zone ".join(
                each.schema.metadata[key].decode() for key in (b"unit", b"zone") if key in each.schema.metadata
            )
            for each in (first[0], table)
        ]
        if units[0] != units[1]:
            raise TableError(
                f"{first[1]} and {source}, times of the images",
                got=f"{units[0]} and {units[1]}",
                allowed="dates in all files or numbers in all files",
                next_step="name a column of the same kind in each file: --time COLUMN",
            )
    names = pa.array([source for table, source in given for _ in range(table.num_rows)])
    table = pa.concat_tables([each for each, _ in given]).combine_chunks()
    images, patients, times = (_flat(table[name]) for name in ("image_id", "patient_id", "time"))
    place: Callable[[int], str] = lambda row: names[row].as_py()  # noqa: E731
    values = np.asarray(times.to_numpy(zero_copy_only=False), dtype=np.float64)
    at = pa.array(_one_time(images, values, Where("several files", "time", place)))
    about = {key.decode(): value.decode() for key, value in first[0].schema.metadata.items()}
    return _times_table(images.take(at), patients.take(at), times.take(at), about)


def _flat(column: pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)


def nih_times(predictions: pa.Table) -> pa.Table | None:
    """NIH's documented rule: 00000071_003.png is the fourth image (follow-up 3) of patient 71; None for other ids."""
    if not re.search(_NIH, predictions["image_id"][0].as_py()):
        return None  # said at once for nearly everybody's files
    one = predictions.group_by("image_id", use_threads=False).aggregate([("patient_id", "min")])
    images, patients = _flat(one["image_id"]), _flat(one["patient_id_min"])
    if not pc.all(pc.match_substring_regex(images, _NIH)).as_py():
        return None
    parts = pc.extract_regex(images, _NIH)
    who, number = codes(parts.field("who")), parts.field("number")
    patient = codes(patients)
    first = np.zeros(int(patient.max(initial=-1)) + 1, dtype=np.int64)
    first[patient] = who
    if (first[patient] != who).any():
        return None  # a patient of the table is several of NIH's: their numbers are no common order
    return _times_table(images, patients, number.cast(pa.float64()), {"unit": NUMBERS})


# Rows of predictions or reports -> the certainty that each is there once, with one patient, and no id as a name.

# What tells one prediction from another.
KEY_COLUMNS = ("image_id", "finding", "model", "seed")
MANY = 100  # models, datasets, findings, seeds or strategies: more, in few rows, are ids


class Pair(NamedTuple):
    """Two rows that contradict each other."""

    first: int
    second: int


def codes(column: pa.Array | pa.ChunkedArray) -> np.ndarray:
    """0, 1, 2, ... by first appearance; missing values share one more code."""
    coded = column.dictionary_encode(null_encoding="encode")
    if isinstance(coded, pa.ChunkedArray):
        coded = coded.combine_chunks() if coded.num_chunks else pa.array([], coded.type)
    return np.asarray(coded.indices.to_numpy(zero_copy_only=False), dtype=np.int64)


def first_repeated(columns: Sequence[pa.Array | pa.ChunkedArray | None]) -> Pair | None:
    """The first row that repeats an earlier one in all the columns."""
    key: np.ndarray | None = None
    for column in columns:
        if column is None:
            continue
        part = codes(column)
        if key is None:
            key = part
            continue
        width = int(part.max(initial=0)) + 1
        if width > 1:
            if int(key.max(initial=0)) > (1 << 62) // width:  # never seen outside tests: re-number before it overflows
                key = np.unique(key, return_inverse=True)[1]
            key = key * width + part
    assert key is not None
    order = np.argsort(key, kind="stable")
    again = np.flatnonzero(key[order][1:] == key[order][:-1])
    if not again.size:
        return None
    best = again[np.argmin(order[again + 1])]
    return Pair(int(order[best]), int(order[best + 1]))


def two_patients(image: pa.Array | pa.ChunkedArray, patient: pa.Array | pa.ChunkedArray) -> Pair | None:
    """The first row that gives its image another patient than the row where the image first stood."""
    images, patients = codes(image), codes(patient)
    first = np.zeros(int(images.max(initial=-1)) + 1, dtype=np.int64)
    first[images[::-1]] = np.arange(len(images))[::-1]
    odd = np.flatnonzero(patients[first[images]] != patients)
    return Pair(int(first[images[odd[0]]]), int(odd[0])) if odd.size else None


def refuse_ids(column: pa.ChunkedArray, name: str, role: str, source: str, flag: str) -> None:
    """A model or a finding for every other row is an id in the wrong column; it would be all over the page."""
    values = len(pc.unique(column))  # count_distinct knows no column that is null throughout
    if values > MANY and 3 * values > len(column):
        raise TableError(
            f"{source}, column {quoted(name)}",
            allowed=f"the {role} of each row",
            got=f"{values:,} different values in {len(column):,} rows, as in a column of ids",
            next_step=f"name the right column with --{flag} COLUMN, or rename this one",
        )


def alike_notes(column: pa.Array | pa.ChunkedArray, what: str) -> list[str]:
    """How many ids differ from another in nothing but case, or in nothing but zeros before the number."""
    ids = pc.unique(column).drop_null()
    numbers = ids.filter(pc.utf8_is_digit(ids))
    notes = []
    for written, same, how in (
        (ids, pc.utf8_lower(ids), "in case"),
        (numbers, pc.utf8_ltrim(numbers, characters="0"), "in leading zeros"),
        (ids, pc.replace_substring_regex(ids, r"^([0-9]+)\.0+$", r"\1"), "in .0 at the end"),
    ):
        if again := len(written) - len(pc.unique(same)):
            notes.append(
                f"{again:,} {what} id{'s differ' if again != 1 else ' differs'} from another only {how}, and "
                f"count as different {what}s. If they are the same, write them in the same way"
            )
    return notes


def refuse_long(raw: RawTable) -> None:
    """Findings are named by columns, so the same holds for these as for other names."""
    for at, name in enumerate(raw.columns, start=1):
        if len(name) > MOST_NAME:
            raise TableError(
                f"{raw.name}, name of column {at}",
                got=f"{len(name):,}",
                allowed=f"at most {MOST_NAME:,} characters",
                next_step="check that the first line names the columns, shorten this name, or remove the column",
            )


def filled(block: Mapping[str, pa.Array], schema: pa.Schema, n_rows: int) -> pa.Table:
    """A table of this schema; columns that the block does not have are null."""
    # Columns without a value share their memory: 8 to 16 MB each of a million rows.
    blank = {kind: pa.nulls(n_rows, kind) for kind in {field.type for field in schema if field.name not in block}}
    columns = [block[field.name] if field.name in block else blank[field.type] for field in schema]
    return pa.Table.from_arrays(columns, schema=schema)


def refuse_repeated(
    image: pa.Array,
    others: Sequence[pa.Array | None],
    source: str,
    place: Callable[[int], str],
    finding: pa.Array | None,
) -> None:
    """An image (with a finding, model and seed) may be there once in one file."""
    columns = [image, *others] if finding is None else [image, finding, *others]
    pair = first_repeated(columns)
    if pair is None:
        return
    what = f"image {quoted(image[pair.second].as_py())}"
    if finding is not None:
        what += f", finding {quoted(finding[pair.second].as_py())}"
    raise TableError(
        f"{source}, {place(pair.first)} and {place(pair.second)}",
        got=f"{what} twice",
        allowed="one row per image, finding, model and seed",
        next_step="remove one row, or name the column that distinguishes them: --image, --model or --seed-column",
    )


def refuse_two_patients(image: pa.Array, patient: pa.Array, source: str, place: Callable[[int], str]) -> None:
    """The rows of one image, of several findings or models, must agree on its patient."""
    if pair := two_patients(image, patient):
        raise TableError(
            f"{source}, {place(pair.first)} and {place(pair.second)}: image {quoted(image[pair.second].as_py())}",
            got=f"{quoted(patient[pair.first].as_py())} and {quoted(patient[pair.second].as_py())}",
            allowed="one patient per image",
            next_step="fix the patient id, or name the right columns: --image COLUMN --patient COLUMN",
        )


def refuse_shared(table: pa.Table, sources: Sequence[str], lengths: Sequence[int]) -> None:
    """Several files may not hold the same image, finding, model and seed."""
    pair = first_repeated([table[name] for name in KEY_COLUMNS])
    if pair is None:
        return
    ends = np.cumsum(lengths)
    names = [sources[int(np.searchsorted(ends, row, side="right"))] for row in pair]
    row = {name: table[name][pair.second].as_py() for name in ("image_id", "finding", "model")}
    raise TableError(
        f"{names[0]} and {names[1]}",
        got=f"image {quoted(row['image_id'])}, finding {quoted(row['finding'])}, model {quoted(row['model'])} in both",
        allowed="one row per image, finding, model and seed",
        next_step="add a model column to each file, or omit --model so that each file is one model",
    )
