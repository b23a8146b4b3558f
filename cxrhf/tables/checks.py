"""A table, or rows as dictionaries -> the same with exactly the columns, types and values that its schema declares."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

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
