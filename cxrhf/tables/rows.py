"""Rows of predictions or reports -> the certainty that each is there once, with one patient, and no id as a name."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cxrhf.errors import TableError
from cxrhf.tables.checks import MOST_NAME, quoted
from cxrhf.tables.files import RawTable

# What tells one prediction from another.
SAME = ("image_id", "finding", "model", "seed")
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
    pair = first_repeated([table[name] for name in SAME])
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
