"""A table, or rows as dictionaries -> the same with exactly the columns, types and values that its schema declares."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cxrhf.errors import TableError, did_you_mean, shorten
from cxrhf.schema import IMAGE, image_schema

# Letters of an id, of a model or finding, and of a group. Longer ones are texts in the wrong column, and would fill
# pages and memory; texts (reports, notes) may be of any length.
MOST_ID, MOST_NAME, MOST_GROUP = 1000, 500, 200
MOST_LETTERS = {
    **dict.fromkeys(("image_id", "study_id", "patient_id", "note_id"), MOST_ID),
    **dict.fromkeys(("model", "strategy", "finding"), MOST_NAME),
    **dict.fromkeys(("dataset", "split", "sex", "race", "view"), MOST_GROUP),
}


def check(table: pa.Table, schema: pa.Schema, *, source: str = "table") -> pa.Table:
    """The same rows with exactly the declared columns in the declared order and types, or a TableError.

    The error names the source, the column, the first row (counting from 1) and the value.
    """
    kind = schema.metadata[b"table"].decode()
    names = table.column_names
    twice = sorted(name for name, times in Counter(names).items() if times > 1)
    if twice:
        raise TableError(
            f"{source}: column {quoted(twice[0])} appears {names.count(twice[0])} times", next_step="keep one of them"
        )
    unknown = [name for name in names if name not in schema.names]
    if b"extra" in schema.metadata:
        findings = [name for name in unknown if pa.types.is_integer(table.schema.field(name).type)]
        # Those that the schema already names stay: a caller may say which findings there are.
        schema = image_schema([*(name for name in schema.names if name not in IMAGE.names), *findings])
        unknown = [name for name in unknown if name not in findings]
    if unknown:
        hint = did_you_mean(unknown[0], schema.names)
        raise TableError(
            f"{source}: unknown column {quoted(unknown[0])} in the {kind} table",
            allowed=f"one of {', '.join(schema.names)}",
            next_step=hint or f"drop it: table.drop_columns([{unknown[0]!r}])",
        )
    return pa.Table.from_arrays([_column(table, field, kind, source) for field in schema], schema=schema)


def quoted(name: str) -> str:
    """A name from the user's data for a message: in double quotes, on one line.

    >>> quoted("Edema"), quoted("two\\nlines")
    ('"Edema"', '"two\\\\nlines"')
    """
    return f'"{shorten(name)}"'


def as_text(column: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """A column as text; whole numbers of a float column as 123456789012, where Arrow writes 1.23456789012e+11."""
    if not pa.types.is_floating(column.type):
        return column.cast(pa.string())
    whole = pc.fill_null(pc.and_(pc.equal(column, pc.round(column)), pc.less(pc.abs(column), 2.0**53)), False)
    numbers = pc.if_else(whole, column, pa.scalar(0.0, column.type)).cast(pa.int64())
    return pc.if_else(whole, numbers.cast(pa.string()), column.cast(pa.string()))


def one_spelling(words: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """Text as it looks: Unicode NFC, without marks that cannot be seen (U+200B, U+FEFF) and blanks around it."""
    if not pc.all(pc.string_is_ascii(words)).as_py():
        words = pc.replace_substring_regex(pc.utf8_normalize(words, form="NFC"), r"\p{Cf}", "")
    trimmed = pc.utf8_trim_whitespace(words)
    return words if trimmed.equals(words) else trimmed  # of millions of rows a second copy is not kept


def _column(table: pa.Table, field: pa.Field, kind: str, source: str) -> pa.ChunkedArray:
    if field.name not in table.column_names:
        if field.nullable:
            return pa.chunked_array([pa.nulls(table.num_rows, field.type)])
        raise TableError(
            f"{source}, {kind} table",
            allowed=f'a column "{field.name}"',
            got=f"columns {', '.join(table.column_names)}" if table.column_names else "no columns",
            next_step=f'add column "{field.name}" ({field.type})',
        )
    column = table.column(field.name)
    try:
        column = as_text(column) if pa.types.is_string(field.type) else column.cast(field.type)
        if field.name in MOST_LETTERS:
            column = one_spelling(column)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise TableError(
            f'{source}, column "{field.name}"', allowed=str(field.type), got=f"{column.type} ({error})"
        ) from None
    if not field.nullable and column.null_count:
        row = pc.index(pc.is_null(column), True).as_py()
        raise TableError(
            f'{source}, column "{field.name}", row {row + 1}: the cell is empty, and every row requires a value',
            next_step="fill in the cell, or remove the row",
        )
    _check_values(column, field, source)
    most = MOST_LETTERS.get(field.name)
    if most is not None and pa.types.is_string(field.type) and (pc.max(pc.utf8_length(column)).as_py() or 0) > most:
        row = pc.index(pc.greater(pc.utf8_length(column), most), True).as_py()
        raise TableError(
            f'{source}, column "{field.name}", row {row + 1}',
            got=f"{len(column[row].as_py()):,}",
            allowed=f"at most {most:,} characters",
            next_step="shorten the cell",
        )
    return column


def _check_values(column: pa.ChunkedArray, field: pa.Field, source: str) -> None:
    rules = {key.decode(): value.decode() for key, value in (field.metadata or {}).items()}
    if "range" in rules:
        low, high = (float(end) for end in rules["range"].split())
        good = pc.and_(pc.and_(pc.greater_equal(column, low), pc.less_equal(column, high)), pc.is_finite(column))
        allowed = _range(low, high)
    elif "values" in rules:
        good = pc.is_in(column, value_set=pa.array([int(each) for each in rules["values"].split()], column.type))
        good = pc.or_(good, pc.is_null(column))
        allowed = f"{rules['values'].replace(' ', ', ')} or null"
    else:
        return
    row = pc.index(good, False).as_py()
    if row >= 0:
        raise TableError(f'{source}, column "{field.name}", row {row + 1}', got=column[row].as_py(), allowed=allowed)


def _range(low: float, high: float) -> str:
    if low == -math.inf:
        return "a finite number or null"
    return f"a number from {low:g} to {high:g} or null" if high < math.inf else f"a finite number >= {low:g} or null"


def table_of(rows: Iterable[Mapping[str, Any]], schema: pa.Schema, *, source: str = "rows") -> pa.Table:
    """Rows as dictionaries -> a checked table; an unknown key is an error (pyarrow alone would drop it silently)."""
    listed = [dict(row) for row in rows]
    known = set(schema.names)
    for row in listed:
        if unknown := [key for key in row if key not in known]:
            raise TableError(
                f"{source}: unknown column {quoted(unknown[0])} in the {schema.metadata[b'table'].decode()} table",
                allowed=f"one of {', '.join(schema.names)}",
                next_step=did_you_mean(unknown[0], known),
            )
    columns = {}
    for field in schema:
        values = [row.get(field.name) for row in listed]
        try:
            columns[field.name] = pa.array(values, field.type)
        except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError) as error:
            raise TableError(f'{source}, column "{field.name}"', allowed=str(field.type), got=str(error)) from None
    return check(pa.table(columns), schema, source=source)


# PREDICTION -> aligned matrices, images x findings, for one model.
#
# Images are sorted by id and patients numbered in the order of their ids, so that no number depends on the order of
# the rows in a file. NaN in `y` masks a cell: no label, or no prediction of that finding for that image.

# Letters up to which numpy's own text is taken, where each takes the room of the longest; else Python's strings.
_SHORT = 64
_BLOCK = 100_000


@dataclass(frozen=True, slots=True)
class PredictionArrays:
    """One model's predictions as numpy arrays; n images, k findings."""

    model: str
    seed: int | None
    findings: tuple[str, ...]
    image_ids: np.ndarray  # (n,) of str
    patient_ids: np.ndarray  # (patients,) of str, sorted
    patients: np.ndarray  # (n,) int64, positions in patient_ids
    y: np.ndarray  # (n, k) float64: 1, 0, NaN = masked
    p: np.ndarray  # (n, k) float64: prob, or the score where is_probability is False
    is_probability: np.ndarray  # (k,) bool: False = ranking metrics only
    pretest: np.ndarray | None  # (n, k) float64, None = the table has none
    mention: np.ndarray | None  # (n, k) float64: 1, 0, NaN
    weight: np.ndarray | None  # (n, k) float64
    age: np.ndarray | None  # (n,) float64
    groups: dict[str, np.ndarray]  # "sex", "race", "view", "split", "dataset" where given: (n,) of str, "" = missing


class _Coded(NamedTuple):
    codes: np.ndarray
    values: pa.Array


def arrays(predictions: pa.Table, model: str | None = None, *, seed: int | None = None) -> PredictionArrays:
    """The matrices of one model (and training seed). Several of either must be told apart by name."""
    table = _choose(_choose(predictions, "model", model), "seed", seed)
    if table.num_rows == 0:
        raise TableError("the predictions have no rows", next_step="check how the table was made")
    image, patient = _sorted_codes(table["image_id"]), _sorted_codes(table["patient_id"])
    finding = _codes(table["finding"])  # in the order of the table: people ordered their columns for a reason
    n, k = len(image.values), len(finding.values)
    cell = image.codes * k + finding.codes
    if np.bincount(cell).max() > 1:
        raise TableError(
            "the predictions have two rows for one image, finding and model",
            next_step="read the file with cxrhf.read_predictions, which names the rows",
        )

    def matrix(name: str) -> np.ndarray:
        out = np.full(n * k, np.nan)
        out[cell] = _floats(table[name])
        return out.reshape(n, k)

    def optional(name: str) -> np.ndarray | None:
        return matrix(name) if table[name].null_count < table.num_rows else None

    def per_image(values: np.ndarray) -> np.ndarray:
        """One value an image, whatever the order of its rows; blanks give way to what is there."""
        if values.dtype.kind == "f":
            out = np.full(n, np.nan)
            np.fmax.at(out, image.codes, values)
            return out
        names, place = np.unique(values, return_inverse=True)
        last = np.zeros(n, dtype=np.int64)
        np.maximum.at(last, image.codes, place.reshape(-1))
        return np.asarray(names[last])

    prob, score = matrix("prob"), matrix("logit")
    is_probability = ~np.isnan(prob).all(axis=0) | np.isnan(score).all(axis=0)
    p = np.where(is_probability, prob, score)
    y = np.where(np.isnan(p), np.nan, matrix("label"))
    given = [name for name in ("sex", "race", "view", "split", "dataset") if table[name].null_count < table.num_rows]
    seeds = pc.unique(table["seed"]).to_pylist()
    return PredictionArrays(
        model=table["model"][0].as_py(),
        seed=seeds[0],
        findings=tuple(finding.values.to_pylist()),
        image_ids=_texts(image.values),
        patient_ids=_texts(patient.values),
        patients=per_image(patient.codes),
        y=y,
        p=p,
        is_probability=is_probability,
        pretest=optional("pretest"),
        mention=optional("mention"),
        weight=optional("weight"),
        age=per_image(_floats(table["age"])) if table["age"].null_count < table.num_rows else None,
        groups={name: per_image(_names(table[name])) for name in given},
    )


def _choose(table: pa.Table, name: str, wanted: str | int | None) -> pa.Table:
    there = pc.unique(table[name]).to_pylist()
    if wanted is None and len(there) > 1:
        raise TableError(
            "the predictions",
            allowed=f"one {name}",
            got=f"{len(there)} ({', '.join(str(each) for each in there[:10])})",
            next_step=f"choose one: arrays(predictions, {name}={there[0]!r})",
        )
    if wanted is None or there == [wanted]:
        return table
    if wanted not in there:
        raise TableError(
            f'the predictions have no {name} "{wanted}"', allowed=f"one of {', '.join(map(str, there[:10]))}"
        )
    return table.filter(pc.equal(table[name], wanted))


def _codes(column: pa.ChunkedArray) -> _Coded:
    coded = column.dictionary_encode().combine_chunks()
    return _Coded(coded.indices.to_numpy(zero_copy_only=False).astype(np.int64), coded.dictionary)


def _sorted_codes(column: pa.ChunkedArray) -> _Coded:
    coded = _codes(column)
    order = pc.sort_indices(coded.values).to_numpy()
    rank = np.empty(len(order), dtype=np.int64)
    rank[order] = np.arange(len(order))
    return _Coded(rank[coded.codes], coded.values.take(pa.array(order)))


def _texts(values: pa.Array) -> np.ndarray:
    longest = max(pc.max(pc.utf8_length(values)).as_py() or 0, 1)
    out = np.empty(len(values), dtype=f"U{longest}" if longest <= _SHORT else object)
    for start in range(0, len(values), _BLOCK):
        out[start : start + _BLOCK] = values.slice(start, _BLOCK).to_pylist()
    return out


def _floats(column: pa.ChunkedArray) -> np.ndarray:
    return np.asarray(column.cast(pa.float64()).to_numpy(), dtype=np.float64)


def _names(column: pa.ChunkedArray) -> np.ndarray:
    coded = _codes(column.fill_null(""))
    return np.array(coded.values.to_pylist())[coded.codes]
