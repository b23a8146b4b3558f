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
from numpy.typing import ArrayLike, NDArray

from cxrhf.errors import TableError
from cxrhf.tables.checks import MOST_GROUP, MOST_ID, MOST_NAME, as_text, one_spelling, quoted
from cxrhf.tables.files import MISSING

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


# Ages in years -> bands: children and adolescents, young, middle-aged, old and very old adults.

AGE_BANDS = ("0-19", "20-39", "40-59", "60-79", "80+")
_EDGES = (20.0, 40.0, 60.0, 80.0)


def age_band(age: ArrayLike) -> NDArray[np.int64]:
    """The place of each age in AGE_BANDS; -1 = unknown (NaN).

    >>> age_band([19.5, 20, float("nan"), 91]).tolist()
    [0, 1, -1, 4]
    """
    years = np.asarray(age, dtype=np.float64)
    return np.where(np.isnan(years), -1, np.searchsorted(_EDGES, years, side="right"))


# Values of sex, race and view that are no group of their own: who has one of them is in no group.

NO_VALUE = ("", "unknown", "other", "unable to obtain", "patient declined to answer")  # lower-cased


# Score columns -> `prob` where they are probabilities, `logit` where they are not.
#
# The decision is made for all scores of one finding and model together: half of a column in `prob` and half in
# `logit` would make two rankings of one.

_SCORES_NEXT_STEP = "give every labelled row a score, or empty its label to exclude it"
Column = tuple[pa.ChunkedArray, Where]


@dataclass(frozen=True, slots=True)
class Scores:
    """Both score columns, and what should be said about them; names are "" where there is one finding."""

    prob: pa.Array
    logit: pa.Array
    low: float
    high: float
    not_probabilities: tuple[str, ...]
    two_valued: tuple[str, ...]


def split_scores(score: Column | None, logit: Column | None, label: pa.Array, by: list[pa.Array] | None) -> Scores:
    """`score` and `logit` are columns of the file, `by` the finding and model of each row (None: one of each)."""
    labelled = label.is_valid().to_numpy(zero_copy_only=False)
    first = score or logit
    assert first is not None
    where = first[1]
    given = None if score is None else _finite(score)
    logits = None if logit is None else _finite(logit)
    missing = labelled.copy()
    for values in (given, logits):
        if values is not None:
            missing &= np.isnan(values)
    if missing.any():
        row = int(np.argmax(missing))
        raise where.error(row, None, "an empty cell or NaN in a row with a label", "a finite number", _SCORES_NEXT_STEP)
    group, names = _groups(by, len(label))
    if given is None:
        assert logits is not None
        given, outside = np.full(len(label), np.nan), np.ones(len(names), dtype=bool)
    else:
        with np.errstate(invalid="ignore"):
            off = (given < 0) | (given > 1)
        if logits is None:
            outside = np.bincount(group[off], minlength=len(names)) > 0
            moved = outside[group]
            logits = np.where(moved, given, np.nan)
            given = np.where(moved, np.nan, given)
        else:
            outside = np.zeros(len(names), dtype=bool)
            bounded(given, where, 0, 1, allowed="a probability from 0 to 1, because the file also has logits")
    used = np.where(np.isnan(given), logits, given)
    known = ~np.isnan(used)
    return Scores(
        pa.array(given, from_pandas=True),
        pa.array(logits, from_pandas=True),
        float(used[known].min()) if known.any() else 0.0,
        float(used[known].max()) if known.any() else 0.0,
        tuple(dict.fromkeys(names[at] for at in np.flatnonzero(outside))),
        tuple(dict.fromkeys(names[at] for at in np.flatnonzero(_few_values(used, group, len(names))))),
    )


def _finite(column: Column) -> np.ndarray:
    values = numbers(*column, allowed="a finite number")
    infinite = np.isinf(values)
    if infinite.any():
        row = int(np.argmax(infinite))
        raise column[1].error(row, None, values[row], "a finite number")
    return values


def _groups(by: list[pa.Array] | None, n: int) -> tuple[np.ndarray, list[str]]:
    """A code per row for its finding and model, and the finding's name of each code."""
    if by is None:
        return np.zeros(n, dtype=np.int64), [""]
    finding, model = (each.dictionary_encode() for each in by)
    width = len(model.dictionary)
    codes = finding.indices.to_numpy().astype(np.int64) * width + model.indices.to_numpy()
    return codes, [name for name in finding.dictionary.to_pylist() for _ in range(width)]


def _few_values(values: np.ndarray, group: np.ndarray, n_groups: int, enough: int = 20) -> np.ndarray:
    """Groups of at least `enough` scores that are all the group's lowest or highest: already thresholded."""
    known = ~np.isnan(values)
    table = pa.table({"group": group[known], "value": values[known]})
    ends = table.group_by("group").aggregate([("value", "min"), ("value", "max"), ("value", "count")])
    low, high, count = np.zeros(n_groups), np.zeros(n_groups), np.zeros(n_groups)
    at = ends["group"].to_numpy()
    low[at], high[at] = ends["value_min"].to_numpy(), ends["value_max"].to_numpy()
    count[at] = ends["value_count"].to_numpy()
    between = known & (values != low[group]) & (values != high[group])
    return (np.bincount(group[between], minlength=n_groups) == 0) & (count >= enough)
