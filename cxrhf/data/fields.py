"""Text columns of published tables -> house values: ids, sex, age, race, ethnicity, view, raw labels.

What a table leaves open (`Unknown`, `U`, an empty cell) becomes null. What cannot be read is an error that names its
record: a value is never guessed.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import polars as pl

from cxrhf.data.raw import numbers
from cxrhf.errors import SourceError
from cxrhf.tables.checks import quoted

OLDEST = 120.0  # years; NIH's first table has ages of 411 and the like
_YEARS = {"": 1.0, "Y": 1.0, "M": 1 / 12, "W": 7 / 365.25, "D": 1 / 365.25}
# Left: upper-cased, every run of other characters as one space.
_VIEWS = {
    "POSTERO ANTERIOR": "PA",
    "POSTEROANTERIOR": "PA",
    "PA ERECT": "PA",
    "ANTERO POSTERIOR": "AP",
    "ANTEROPOSTERIOR": "AP",
    "AP AXIAL": "AP",
    "AP SUPINE": "AP",
    "AP ERECT": "AP",
    "AP PORTABLE": "AP",
    "L": "LATERAL",
    "LL": "LATERAL",
    "RL": "LATERAL",
    "LEFT LATERAL": "LATERAL",
    "RIGHT LATERAL": "LATERAL",
    "LAT": "LATERAL",
}
_NO_ANSWER = r"(?i)unknown|refuse|decline|unable|^\s*$|^(none|n/?a|null)$"


def text(column: str) -> pl.Expr:
    """A cell without the white space around it; null where nothing is left."""
    bare = pl.col(column).str.strip_chars()
    return pl.when(bare != "").then(bare).otherwise(None).alias(column)


def sex(column: str) -> pl.Expr:
    """`Female`, `F` -> F; `Male`, `M` -> M; anything else -> null."""
    letter = pl.col(column).str.strip_chars().str.to_uppercase()
    known = {"F": "F", "FEMALE": "F", "M": "M", "MALE": "M"}
    return letter.replace_strict(known, default=None, return_dtype=pl.String).alias("sex")


def view(column: str) -> pl.Expr:
    """`AP Supine` -> AP, `POSTERO_ANTERIOR` -> PA, `LL` -> LATERAL; other names are kept, upper-cased."""
    name = pl.col(column).str.to_uppercase().str.replace_all(r"[^A-Z0-9]+", " ").str.strip_chars()
    named = pl.when(name != "").then(name).otherwise(None)
    return named.replace(_VIEWS).alias("view")


def race(column: str) -> pl.Expr:
    """`White, non-Hispanic` -> white, likewise black and asian; other names are lower-cased; no answer is null."""
    named = pl.col(column).str.strip_chars().str.to_lowercase()
    # ENCODING's rule and order: whoever is called Black, White or Asian in the text. A whole word: "caucasian" is not.
    called = [pl.when(named.str.contains(rf"\b{each}\b")).then(pl.lit(each)) for each in ("black", "white", "asian")]
    return pl.when(~named.str.contains(_NO_ANSWER)).then(pl.coalesce(*called, named)).alias("race")


def ethnicity(column: str) -> pl.Expr:
    """`Non-Hispanic/Non-Latino`, `Not Hispanic` -> non-hispanic; `Hispanic/Latino` -> hispanic; the rest is null."""
    named = pl.col(column).str.strip_chars().str.to_lowercase()
    return (
        pl.when(named.str.contains(r"^(non|not)\b"))
        .then(pl.lit("non-hispanic"))
        .when(named.str.contains(r"hispanic|latin"))
        .then(pl.lit("hispanic"))
        .otherwise(None)
        .alias("ethnicity")
    )


def ages(frame: pl.DataFrame, column: str, path: Path) -> tuple[pl.Series, int]:
    """Years from `58`, `058Y`, `018M`, `012D`; and how many were above 120, which become null."""
    cells = frame.get_column(column).str.strip_chars()
    parts = cells.str.extract_groups(r"^(?<number>\d+(?:\.\d+)?)\s*(?<unit>[YyMmWwDd]?)$").struct
    unit = parts.field("unit").str.to_uppercase().replace_strict(_YEARS, default=None, return_dtype=pl.Float64)
    years = parts.field("number").cast(pl.Float64) * unit
    bad = years.is_null() & cells.is_not_null() & (cells != "")
    if bad.any():
        at = int(bad.arg_max() or 0)
        raise SourceError(
            f'{path.name}, column "{column}", row {at + 1}',
            got=quoted(cells[at]),
            allowed="an age such as 58, 058Y, 018M or 012D, or empty",
            next_step=f"fix the cell, or copy {path} again",
        )
    nonsense = years > OLDEST
    kept = pl.select(pl.when(nonsense).then(None).otherwise(years).alias("age")).to_series()
    return kept, int(nonsense.sum() or 0)


def labels(frame: pl.DataFrame, columns: Mapping[str, str], path: Path) -> list[pl.Series]:
    """Text columns with 1.0, 0.0, -1.0 or nothing -> Int8 columns under the names given."""
    made = []
    for column, name in columns.items():
        values = numbers(frame, column, pl.Float64, path)
        bad = ~values.is_in([-1.0, 0.0, 1.0]).fill_null(True)
        if bad.any():
            at = int(bad.arg_max() or 0)
            raise SourceError(
                f'{path.name}, column "{column}", row {at + 1}',
                got=frame.get_column(column)[at],
                allowed="1, 0, -1 or empty",
                next_step=f"fix the cell, or copy {path} again",
            )
        made.append(values.cast(pl.Int8).alias(name))
    return made


def check_ids(frame: pl.DataFrame, path: Path) -> None:
    """Every image has its ids, and no two the same image_id."""
    for name in ("image_id", "study_id", "patient_id"):
        empty = frame.get_column(name).is_null()
        if empty.any():
            raise SourceError(
                f"{path.name}, row {int(empty.arg_max() or 0) + 1}: the row gives no {name}",
                next_step=f"fix the row, or copy {path} again",
            )
    twice = frame.get_column("image_id").is_duplicated()
    if twice.any():
        first = frame.get_column("image_id")[int(twice.arg_max() or 0)]
        count = int((frame.get_column("image_id") == first).sum())
        raise SourceError(
            f"{path.name}: image {quoted(first)} has {count} rows ({int(twice.sum()):,} such rows in total)",
            next_step=f"keep one row per image, or copy {path} again",
        )


def check_once(frame: pl.DataFrame, key: str, path: Path) -> None:
    """A key that stands twice in a table would double rows when it is joined."""
    twice = frame.get_column(key).is_duplicated() & frame.get_column(key).is_not_null()
    if twice.any():
        at = int(twice.arg_max() or 0)
        raise SourceError(
            f"{path.name}: {key} {quoted(str(frame.get_column(key)[at]))} has several rows "
            f"({int(twice.sum()):,} such rows in total)",
            next_step=f"keep one row each, or copy {path} again",
        )


def noted(*parts: tuple[int, str]) -> str:
    """Counts and what they are of -> one note; what did not happen is left out."""
    return "; ".join(f"{said}: {count:,}" for count, said in parts if count)
