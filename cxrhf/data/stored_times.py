"""Times in memory <-> times in the files of a build: ISO 8601 text with microseconds, 2150-03-04T10:11:12.000000.

`datasets` cannot make tensors of a time column: `.with_format("torch")` failed for the whole row. Text passes through
every format, loses nothing, and sorts as the times do. Builds made earlier hold timestamps; both are read.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

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
