"""Raw cells of a column -> ids, labels, numbers, flags and groups; a bad cell is named by file, column and line."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cxrhf.errors import TableError
from cxrhf.tables.checks import MOST_GROUP, MOST_ID, MOST_NAME, as_text, one_spelling, quoted
from cxrhf.tables.delimited import MISSING

_TRUE = ("1", "true", "t", "yes", "y", "positive", "pos", "present")
_FALSE = ("0", "false", "f", "no", "n", "negative", "neg", "absent")
_SEX = {"m": "M", "male": "M", "man": "M", "f": "F", "female": "F", "woman": "F"}
EMPTY = "an empty cell"
_LABELS = "1, 0, -1 (uncertain) or empty"
_AGE_UNITS = {"Y": 1.0, "M": 1 / 12, "W": 7 / 365.25, "D": 1 / 365.25}


@dataclass(frozen=True, slots=True)
class Where:
    """A column of a source: what an error message needs to point at a cell."""

    source: str
    column: str
    place: Callable[[int], str]

    def error(
        self, row: int, what: str | None, got: object, allowed: str | None, next_step: str = "fix the cell"
    ) -> TableError:
        """The error for one cell of this column; `what` where `got` and `allowed` do not tell."""
        cell = f"{self}, {self.place(row)}"
        return TableError(f"{cell}: {what}" if what else cell, got=got, allowed=allowed, next_step=next_step)

    def __str__(self) -> str:
        return f"{self.source}, column {quoted(self.column)}"


@dataclass(frozen=True, slots=True)
class Labels:
    """Labels 1, 0 or null, and how many were uncertain (-1) before they became null."""

    values: pa.Array
    n_uncertain: int


def plain(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    """One plain array; encodings of strings, dictionaries and decimals are undone."""
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
    if isinstance(column, pa.ChunkedArray):  # what combine_chunks gives when there is no chunk
        column = pa.concat_arrays(column.chunks) if column.num_chunks else pa.nulls(0, column.type)
    kind = column.type
    if pa.types.is_dictionary(kind):
        return plain(column.dictionary_decode())
    if pa.types.is_decimal(kind):
        return column.cast(pa.float64())
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return column.cast(pa.string())
    return column


class _Distinct(NamedTuple):
    """The different cells of a column, cleaned, and which of them each row holds."""

    words: pa.Array
    indices: pa.Array


def _distinct(column: pa.ChunkedArray, where: Where) -> _Distinct:
    """Cells repeat (findings, patients, groups): each distinct one is cleaned once."""
    raw = plain(column)
    if pa.types.is_floating(raw.type):
        values = raw.to_numpy(zero_copy_only=False).astype(np.float64)
        large = np.flatnonzero(np.abs(values) > 2.0**53)
        if large.size:
            row = int(large[0])
            raise where.error(
                row, None, values[row], "ids as text, because long numbers lose digits", "write the column as text"
            )
        raw = pc.if_else(pc.is_nan(raw), pa.scalar(None, raw.type), raw)
    try:
        coded = as_text(raw).dictionary_encode()
        words = pc.utf8_trim_whitespace(coded.dictionary)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise TableError(
            str(where),
            got=f"{raw.type} ({str(error).splitlines()[0]})",
            allowed="text or numbers",
            next_step="name another column, or convert this one",
        ) from None
    return _Distinct(_missing_is_null(words), coded.indices)


def _missing_is_null(words: pa.Array) -> pa.Array:
    return pc.if_else(pc.is_in(words, value_set=pa.array(MISSING)), pa.scalar(None, pa.string()), words)


def text(column: pa.ChunkedArray, where: Where) -> pa.Array:
    """Trimmed text; missing cells are null; whole numbers stored as 71.0 become 71."""
    distinct = _distinct(column, where)
    return distinct.words.take(distinct.indices)


def names(column: pa.ChunkedArray, where: Where, most: int = MOST_NAME, notes: list[str] | None = None) -> pa.Array:
    """Ids, findings and groups as text, of at most `most` letters, in one spelling; `notes` is told what was done.

    A line break inside one is a broken quotation mark that swallowed rows.
    """
    distinct = _one_spelling(_distinct(column, where), where, [] if notes is None else notes)
    length = pc.utf8_length(distinct.words)
    if (pc.max(length).as_py() or 0) > most:
        long = pc.index(pc.greater(length, most), True).as_py()
        raise where.error(
            pc.index(distinct.indices, long).as_py(),
            f"the text is too long for a name or an id ({length[long].as_py():,} characters)",
            None,
            f"at most {most:,} characters",
            "is this the right column? Shorten the cell, or name another column",
        )
    broken = pc.index(pc.match_substring_regex(distinct.words, "[\r\n]"), True).as_py()
    if broken >= 0:
        raise where.error(
            pc.index(distinct.indices, broken).as_py(),
            None,
            quoted(distinct.words[broken].as_py()),
            "a name without line breaks",
            "look for a quotation mark that is not closed",
        )
    return distinct.words.take(distinct.indices)


def _one_spelling(distinct: _Distinct, where: Where, notes: list[str]) -> _Distinct:
    """Two spellings of one name would be two patients: those that look alike become one."""
    words = one_spelling(distinct.words)
    if seen := pc.sum(pc.not_equal(words, distinct.words)).as_py():
        notes.append(
            f"column {quoted(where.column)}: removed invisible characters, or normalized accented letters, in "
            f"{seen:,} value{'s' * (seen != 1)}"
        )
    words = _missing_is_null(words)
    # Tools that know no blank whole number write 12 as 12.0 once a cell is blank. Only where all are such numbers.
    given = words.drop_null()
    decimal = pc.sum(pc.match_substring_regex(given, r"\.0+$")).as_py() or 0
    if decimal and pc.all(pc.match_substring_regex(given, r"^-?(0|[1-9][0-9]*)(\.0+)?$")).as_py():
        words = pc.replace_substring_regex(words, r"\.0+$", "")
        notes.append(f"column {quoted(where.column)}: read whole numbers such as 12.0 as 12")
    return _Distinct(words, distinct.indices)


def identifiers(column: pa.ChunkedArray, where: Where, most: int = MOST_ID, notes: list[str] | None = None) -> pa.Array:
    """Names of which none may be blank."""
    ids = names(column, where, most, notes)
    if ids.null_count:
        row = pc.index(pc.is_null(ids), True).as_py()
        raise where.error(row, None, EMPTY, "a value in every row", "fill in the cell, or remove the row")
    return ids


def numbers(column: pa.ChunkedArray, where: Where, *, allowed: str = "a number") -> np.ndarray:
    """float64 with NaN where missing; text that is no number is an error."""
    raw = plain(column)
    kind = raw.type
    if pa.types.is_boolean(kind):
        raw = raw.cast(pa.int8())
    elif pa.types.is_string(kind):
        words = text(column, where)
        try:
            raw = words.cast(pa.float64())
        except pa.ArrowInvalid:
            row, value = next((at, cell) for at, cell in enumerate(words.to_pylist()) if not _is_number(cell))
            hints = ["write 0.35 for 35%, and a decimal point, not a comma"] if re.search("[%,]", value) else []
            raise where.error(row, None, quoted(value), allowed, *hints) from None
    elif not (pa.types.is_floating(kind) or pa.types.is_integer(kind) or pa.types.is_null(kind)):
        raise TableError(
            str(where),
            got=f"a column of type {kind}",
            allowed=allowed,
            next_step="name another column, or convert this one",
        )
    return np.asarray(raw.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False), dtype=np.float64)


def _is_number(cell: str | None) -> bool:
    try:
        pa.scalar(cell).cast(pa.float64())
    except pa.ArrowInvalid:
        return False
    return True


def labels(column: pa.ChunkedArray, where: Where) -> Labels:
    """1, 0, or null: blank stays null, -1 (uncertain) becomes null and is counted, words of yes and no are 1 and 0.

    Everything else is an error.
    """
    raw = plain(column)
    if pa.types.is_boolean(raw.type):
        return Labels(raw.cast(pa.int8()), 0)
    if pa.types.is_string(raw.type):
        coded = text(column, where).dictionary_encode()
        meaning = np.array([_label(word) for word in coded.dictionary.to_pylist()] + [np.nan])
        codes = coded.indices.fill_null(len(meaning) - 1).to_numpy(zero_copy_only=False)
        values = meaning[codes]
    else:
        values = numbers(column, where, allowed=_LABELS)
    bad = np.flatnonzero(~np.isin(values, (0.0, 1.0, -1.0)) & ~np.isnan(values))
    if bad.size:
        row = int(bad[0])
        got = raw[row].as_py()
        scores = isinstance(got, float) or (isinstance(got, str) and _is_number(got) and "." in got)
        raise where.error(
            row,
            None,
            quoted(got) if isinstance(got, str) else got,
            _LABELS,
            "is this the score column? Name the label column: --label COLUMN"
            if scores
            else "write 1 (or yes, true, positive, present) where the finding is present and 0 (or no, false, "
            "negative, absent) where it is not",
        )
    uncertain = values == -1.0
    masked = np.isnan(values) | uncertain
    whole = np.where(masked, 0, values).astype(np.int8)
    return Labels(pa.array(whole, mask=masked), int(uncertain.sum()))


def _label(word: str) -> float:
    low = word.lower()
    if low in (*_TRUE, *_FALSE):
        return float(low in _TRUE)
    try:
        value = float(word)
    except ValueError:
        return math.inf  # refused by the caller, who knows the row
    return value if value in (0.0, 1.0, -1.0) else math.inf


def flags(column: pa.ChunkedArray, where: Where) -> pa.Array:
    """True, False or null."""
    raw = plain(column)
    if pa.types.is_boolean(raw.type) or pa.types.is_null(raw.type):
        return raw.cast(pa.bool_())
    words = pc.utf8_lower(pc.replace_substring_regex(text(column, where), r"\.0+$", ""))
    true, false = (pc.is_in(words, value_set=pa.array(each)) for each in (_TRUE, _FALSE))
    row = pc.index(pc.or_(pc.or_(true, false), pc.is_null(words)), False).as_py()
    if row >= 0:
        raise where.error(row, None, quoted(words[row].as_py()), "1, 0, True, False or empty")
    return pc.if_else(pc.is_null(words), pa.scalar(None, pa.bool_()), true)


def bounded(values: np.ndarray, where: Where, low: float, high: float, *, allowed: str) -> np.ndarray:
    """The same numbers if each is missing or finite within the bounds."""
    bad = np.flatnonzero(np.isinf(values) | (values < low) | (values > high))
    if bad.size:
        raise where.error(int(bad[0]), None, values[int(bad[0])], allowed)
    return values


def sexes(column: pa.ChunkedArray, where: Where) -> pa.Array:
    """The usual spellings of male and female become M and F; others stay as written."""
    coded = names(column, where, MOST_GROUP).dictionary_encode()
    named = pa.array([_SEX.get(word.lower(), word) for word in coded.dictionary.to_pylist()], pa.string())
    return named.take(coded.indices)


@dataclass(frozen=True, slots=True)
class Ages:
    """Ages in years (NaN = missing) and the first cell that was not understood."""

    values: np.ndarray
    n_unknown: int
    example: Any


def ages(column: pa.ChunkedArray, where: Where) -> Ages:
    """Years as numbers or as DICOM writes them (069Y, 006M); what cannot be an age is left blank and counted."""
    raw = plain(column)
    if pa.types.is_string(raw.type):
        coded = text(column, where).dictionary_encode()
        years = np.array([_years(word) for word in coded.dictionary.to_pylist()] + [np.nan])
        values = years[coded.indices.fill_null(len(years) - 1).to_numpy(zero_copy_only=False)]
        given = ~np.isnan(values) | np.asarray(coded.indices.is_valid())
    else:
        values = numbers(column, where, allowed="an age in years").copy()
        given = ~np.isnan(values)
    with np.errstate(invalid="ignore"):
        unknown = given & ~((values >= 0) & (values <= 120))
    values[unknown] = np.nan
    first = int(np.argmax(unknown)) if unknown.any() else None
    return Ages(values, int(unknown.sum()), None if first is None else raw[first].as_py())


def _years(word: str) -> float:
    if match := re.fullmatch(r"(\d{1,4})\s*([YMWD])", word.upper()):
        return float(match[1]) * _AGE_UNITS[match[2]]
    try:
        return float(word)
    except ValueError:
        return math.nan
