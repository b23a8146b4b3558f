"""Patients -> train, validate, test: by ratio, from a file; and samples of images within each split.

Patients are the unit. A draw depends on the set of patients, the seed and the shares, and on nothing else: not on the
order of rows, nor on how many images a patient has. Functions return frames and print nothing; the caller counts what
was dropped, and the guard looks for a patient who is in two splits.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray

from cxrhf.data.fields import need_columns
from cxrhf.data.raw import header, numbers, read_csv
from cxrhf.errors import ConfigError, SourceError
from cxrhf.settings import check_range
from cxrhf.tables.checks import quoted

NAMES = ("train", "validate", "test")
SPELLINGS = {
    "train": "train", "training": "train",
    "val": "validate", "valid": "validate", "validation": "validate", "validate": "validate",
    "test": "test", "testing": "test",
}  # fmt: skip
# Column of a split file -> column of the images, the most exact first.
KEYS = {
    "image_id": "image_id", "dicom_id": "image_id",
    "source_row": "source_row", "index": "source_row",
    "patient_id": "patient_id", "subject_id": "patient_id", "PATIENT": "patient_id",
}  # fmt: skip
_ORDER, _QUOTA, _ROW = "__order", "__quota", "__row"


def unique_patients(patients: pl.Series | pl.DataFrame) -> pl.Series:
    """The sorted distinct ids of a column, or of a frame's `patient_id`."""
    ids = patients.get_column("patient_id") if isinstance(patients, pl.DataFrame) else patients
    return ids.drop_nulls().unique().sort().alias("patient_id")


def sizes(n: int, shares: Sequence[float]) -> list[int]:
    """How many of n each part gets: whole numbers by largest remainder, of equal remainders the earlier part.

    >>> sizes(42_884, (0.6, 0.1, 0.3))
    [25731, 4288, 12865]
    """
    total = math.fsum(shares)
    if min(shares) < 0 or total <= 0:
        raise ConfigError("the shares of a split", allowed="shares of 0 or more, not all 0", got=list(shares))
    exact = [round(n * share / total, 9) for share in shares]  # 56.99999999999999 is 57
    found = [math.floor(each) for each in exact]
    first = sorted(range(len(exact)), key=lambda part: (round(found[part] - exact[part], 9), part))
    for part in first[: n - sum(found)]:
        found[part] += 1
    return found


def ratio_split(patients: pl.Series | pl.DataFrame, shares: Sequence[float], seed: int) -> pl.DataFrame:
    """Each patient once, with his split: columns patient_id, split; sorted by patient."""
    if len(shares) != len(NAMES):
        raise ConfigError("the shares of a split", allowed="three shares (train, validate, test)", got=list(shares))
    return _dealt(unique_patients(patients), shares, seed)


def _dealt(ids: pl.Series, shares: Sequence[float], seed: int) -> pl.DataFrame:
    deck = np.repeat(np.arange(len(shares)), sizes(len(ids), shares))
    part = deck[np.random.default_rng(seed).permutation(len(ids))]
    names = pl.Series("split", NAMES[: len(shares)], pl.String)
    return pl.DataFrame({"patient_id": ids, "split": names[part]})


def validate_from_train(images: pl.DataFrame, share: float, seed: int) -> pl.DataFrame:
    """For official splits without a validate part (NIH): `share` of the train patients, with all their train rows."""
    need_columns(images, ("patient_id", "split"), "validate from train")
    check_range("share", share, 0, 1)
    in_train = pl.col("split") == "train"
    drawn = _dealt(unique_patients(images.filter(in_train)), (1 - share, share), seed)
    moved = drawn.filter(pl.col("split") == "validate").get_column("patient_id")
    chosen = in_train & pl.col("patient_id").is_in(moved.implode())
    return images.with_columns(pl.when(chosen).then(pl.lit("validate")).otherwise("split").alias("split"))


def file_split(images: pl.DataFrame, path: str | Path) -> pl.DataFrame:
    """The images with `split` as a CSV file (or .csv.gz) says; null where the file does not name the row.

    The file has a column `split` and one of image_id / dicom_id, source_row / index (row of the published table, from
    0) or patient_id / subject_id / PATIENT; where it has several, the first in this order decides. Rows given by number
    are checked against the patients beside them: an `index` is often the row of some other table.
    """
    file = Path(path)
    if not file.is_file():
        raise SourceError(f"--split-file: {file} does not exist", next_step="check the path")
    names = header(file)
    key = next((name for name in KEYS if name in names), None)
    if key is None:
        raise SourceError(
            f"{file.name}: found no column with image or patient ids",
            got=f"columns {', '.join(names)}",
            allowed=f"one of {', '.join(KEYS)}",
            next_step="rename the column with patient ids to patient_id",
        )
    column = KEYS[key]
    need_columns(images, (column,), f"{file.name}, column {key!r}")
    listed = read_csv(file, [key, "split"])
    by_row = column == "source_row"
    ids = numbers(listed, key, pl.Int64, file) if by_row else listed.get_column(key).str.strip_chars()
    given = pl.DataFrame({column: ids, "split": split_names(listed.get_column("split"), file)}).drop_nulls(column)
    given = given.unique(maintain_order=True)
    twice = given.height - given.get_column(column).n_unique()
    if twice:
        raise SourceError(
            f"{file.name}, column {quoted(key)}: {twice:,} values are in more than one split",
            next_step="keep one row each",
        )
    rows = images.drop("split", strict=False).with_columns(pl.col(column).cast(ids.dtype))
    joined = rows.join(given, on=column, how="left", maintain_order="left")
    if images.height and joined.get_column("split").null_count() == joined.height:
        raise SourceError(
            f"{file.name}, column {quoted(key)}: none of the {given.height:,} rows matches any of the "
            f"{images.height:,} images",
            next_step=f"write {quoted(key)} in the same way as {quoted(column)} of the images",
        )
    _check_patients(images, file, key)
    return joined.with_columns(images.get_column(column))


def _check_patients(images: pl.DataFrame, file: Path, key: str) -> None:
    beside = next((name for name in KEYS if KEYS[name] == "patient_id" and name in header(file)), None)
    if KEYS[key] != "source_row" or beside is None:
        return
    listed = read_csv(file, [key, beside])
    given = pl.DataFrame({"row": numbers(listed, key, pl.Int64, file), "listed": listed[beside].str.strip_chars()})
    there = images.select(pl.col("source_row").cast(pl.Int64).alias("row"), "patient_id")
    others = given.join(there, on="row").filter(pl.col("listed") != pl.col("patient_id")).height
    if others:
        raise SourceError(
            f"{file.name}: columns {quoted(key)} and {quoted(beside)} name different patients in {others:,} rows",
            next_step="remove the column that you do not mean",
        )


def split_names(names: pl.Series, file: Path) -> pl.Series:
    """train, validate, test, however a file spells them; another name is an error, a blank stays null."""
    plain = names.str.strip_chars().str.to_lowercase()
    found = plain.replace_strict(SPELLINGS, default=None, return_dtype=pl.String)
    bad = found.is_null() & plain.is_not_null()
    if bad.any():
        at = int(bad.arg_max() or 0)
        raise SourceError(
            f'{file.name}, column "split", row {at + 1}',
            got=quoted(names[at]),
            allowed=f"one of {', '.join(SPELLINGS)}",
        )
    return found.alias("split")


def take(images: pl.DataFrame, size: int, seed: int) -> pl.DataFrame:
    """At most `size` rows of each split, in their order; patients come whole but for the last of each split."""
    check_range("size", size, 0, 10**12)
    return _first_in_order(images, ["split"], pl.lit(size), seed)


def sex_sample(images: pl.DataFrame, female: float, size: int | None, seed: int) -> pl.DataFrame:
    """Rows with `female` as the share of sex F among F and M in each split, rounded to whole rows; in their order.

    As many rows as each split allows, or at most `size`. Rows of another or no sex are left out. One random order of
    all patients serves every share and size, so that a smaller sample of a sex lies within a larger one, and patients
    come whole but for the last of each sex in each split.
    """
    need_columns(images, ("sex",), "a share of female images")
    check_range("female", female, 0, 1)
    known = images.filter(pl.col("sex").is_in(["F", "M"]))
    if known.is_empty():
        raise ConfigError(
            f"a share of female images requires the sex of the images, and none of the {images.height:,} images has one"
        )
    splits = [] if "split" not in images.columns else ["split"]
    there = known.group_by(splits or pl.lit(True)).agg(
        *((pl.col("sex") == sex).sum().cast(pl.Int64).alias(sex) for sex in ("F", "M"))
    )
    wanted = [_women_and_men(women, men, female, size) for women, men in there.select("F", "M").rows()]
    quotas = there.with_columns(pl.DataFrame(wanted, schema=["F", "M"], orient="row"))
    counted = known.join(
        quotas.unpivot(["F", "M"], index=splits, variable_name="sex", value_name=_QUOTA),
        on=[*splits, "sex"],
        how="left",
        nulls_equal=True,
        maintain_order="left",
    )
    return _first_in_order(counted, [*splits, "sex"], pl.col(_QUOTA), seed).drop(_QUOTA)


def sex_mix(table: pa.Table, female: float, size: int | None, seed: int) -> NDArray[np.int64]:
    """The rows of `sex_sample` by their numbers in a table that has image_id, patient_id and sex."""
    frame = pl.from_arrow(table.select(["image_id", "patient_id", "sex"]))
    assert isinstance(frame, pl.DataFrame)
    drawn = sex_sample(frame.with_row_index("at"), female, size, seed)
    return drawn.get_column("at").to_numpy().astype(np.int64)


def _women_and_men(women: int, men: int, female: float, size: int | None) -> tuple[int, int]:
    """The largest numbers of rows of both sexes that hold the share, halves rounded up to women."""
    ends = [women + men if size is None else min(size, women + men)]
    ends += [math.floor((women + 1) / female) + 1] if female > 0 else []
    ends += [math.floor((men + 1) / (1 - female)) + 1] if female < 1 else []
    for total in range(min(ends), 0, -1):
        wanted = math.floor(round(female * total, 9) + 0.5)
        if wanted <= women and total - wanted <= men:
            return wanted, total - wanted
    return 0, 0


def _first_in_order(images: pl.DataFrame, keys: Sequence[str], quota: pl.Expr, seed: int) -> pl.DataFrame:
    """The first `quota` rows of each group when patients stand in random order and their images sorted by id."""
    ids = unique_patients(images)
    order = pl.DataFrame({"patient_id": ids, _ORDER: np.random.default_rng(seed).permutation(len(ids))})
    present = [key for key in keys if key in images.columns]
    drawn = (
        images.with_row_index(_ROW)
        .join(order, on="patient_id", how="left", maintain_order="left")
        .sort(_ORDER, "image_id", maintain_order=True)
    )
    place = pl.int_range(pl.len())
    kept = drawn.filter((place.over(present) if present else place) < quota)
    return kept.sort(_ROW).drop(_ROW, _ORDER)
