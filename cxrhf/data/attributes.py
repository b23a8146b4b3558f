"""A CSV of annotated pictures (drains, wires, ...) -> ATTRIBUTE rows: image_id, name, value.

Two shapes are known: a row per picture and attribute (columns `name` and `value`), or a row per picture with a column
for each attribute. Yes and no in any spelling become "1" and "0"; other text is kept. Known gap: one file a dataset.
"""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pyarrow as pa

from cxrhf.data.fields import noted
from cxrhf.data.raw import header, read_csv
from cxrhf.errors import SourceError
from cxrhf.findings import snake_case
from cxrhf.schema import ATTRIBUTE, check
from cxrhf.tables.checks import quoted

_IMAGE = (
    "image_id", "image_index", "image", "image_name", "image_path", "imageid", "dicom_id", "path", "path_to_image",
    "filename", "file_name", "file", "img", "img_id",
)  # fmt: skip
_NAME = ("name", "attribute")
# Columns of the datasets' own tables, which annotators often keep beside their own.
_ASIDE = (
    "", "index", "unnamed_0", "patient_id", "patient", "subject_id", "study_id", "split", "age", "sex", "gender",
    "finding_labels", "follow_up", "patient_age", "patient_gender", "view_position", "frontal_lateral", "ap_pa",
    "original_image_width", "height", "original_image_pixel_spacing_x", "y",
)  # fmt: skip
_YES, _NO = ("1", "1.0", "yes", "y", "true", "t", "present"), ("0", "0.0", "no", "n", "false", "f", "absent")
_COLUMNS = ("image_id", "name", "value")


def attribute_table(path: Path, image_ids: list[str]) -> tuple[pa.Table, str]:
    """The same for whoever has the ids of the images alone: an ATTRIBUTE table, and the note."""
    rows, note = read_attributes(path, pl.DataFrame({"image_id": pl.Series(image_ids, dtype=pl.String)}))
    return check(rows.to_arrow(), ATTRIBUTE, source=path.name), note


def read_attributes(path: Path, images: pl.DataFrame) -> tuple[pl.DataFrame, str]:
    """ATTRIBUTE rows of these images, and a note that says what was left out.

    A picture may be named with its folders and its ending. A cell that is blank is no annotation. The same picture
    annotated twice with different values is an error: nobody can say which one holds.
    """
    columns = header(path)
    named = {snake_case(column): column for column in reversed(columns)}  # of two spellings the first column holds
    image = next((named[name] for name in _IMAGE if name in named), None)
    if image is None:
        raise SourceError(
            f"{path.name}: found no column with image names",
            got=f"columns {', '.join(columns)}",
            allowed=f"one of {', '.join(_IMAGE)}",
            next_step="rename the column with image names to image_id",
        )
    label = next((named[name] for name in _NAME if name in named), None)
    if label is not None and "value" in named:
        raw = read_csv(path, [image, label, named["value"]])
        rows = raw.select(
            pl.col(image).alias("picture"), _snake(raw, label).alias("name"), pl.col(named["value"]).alias("value")
        )
    else:
        wide = [column for name, column in named.items() if column != image and name not in _ASIDE][::-1]
        if not wide:
            raise SourceError(
                path.name,
                got=f"columns {', '.join(columns)}",
                allowed="a column for each attribute",
                next_step="add columns, such as drain with 1 and 0",
            )
        raw = read_csv(path, [image, *wide])
        rows = raw.unpivot(wide, index=image, variable_name="name", value_name="value").select(
            pl.col(image).alias("picture"), pl.col("name").replace({each: snake_case(each) for each in wide}), "value"
        )
    rows = rows.with_columns(
        image_id=_known(pl.col("picture").str.strip_chars(), images.get_column("image_id")), value=_value()
    )
    blank = pl.col("value").is_null() | pl.col("name").is_null()
    elsewhere = pl.col("image_id").is_null() & ~blank
    strangers = rows.filter(elsewhere).get_column("picture").n_unique()
    note = noted(
        (rows.filter(blank).height, "empty cells"),
        (rows.filter(elsewhere).height, f"rows of images that are not in the dataset ({strangers:,} distinct)"),
    )
    kept = rows.filter(~blank & ~elsewhere).select(_COLUMNS).unique(maintain_order=True)
    _check_once(kept, path)
    said = f"{path.name}: {', '.join(kept.get_column('name').unique(maintain_order=True)) or 'nothing'}"
    return kept, said + (f"; excluded: {note}" if note else "")


def _known(picture: pl.Expr, image_ids: pl.Series) -> pl.Expr:
    """The image_id that a picture's name stands for: as it is, without its ending, or without its outer folders."""
    known = image_ids.implode()
    bare = picture.str.replace(r"(?i)\.(png|jpe?g|dcm)$", "")
    inner, last = bare.str.replace(r"^[^/]*/", ""), bare.str.replace(r"^.*/", "")
    tries = [pl.when(each.is_in(known)).then(each).otherwise(None) for each in (picture, bare, inner, last)]
    return pl.coalesce(tries)


def _value() -> pl.Expr:
    bare = pl.col("value").str.strip_chars()
    low = bare.str.to_lowercase()
    plain = pl.when(low.is_in(_YES)).then(pl.lit("1")).when(low.is_in(_NO)).then(pl.lit("0"))
    return plain.when(bare != "").then(bare).otherwise(None).alias("value")


def _snake(frame: pl.DataFrame, column: str) -> pl.Expr:
    return pl.col(column).replace({each: snake_case(each) for each in frame.get_column(column).drop_nulls().unique()})


def _check_once(rows: pl.DataFrame, path: Path) -> None:
    twice = rows.filter(pl.struct("image_id", "name").is_duplicated())
    if twice.height:
        image, name = twice.row(0)[:2]
        values = twice.filter((pl.col("image_id") == image) & (pl.col("name") == name)).get_column("value")
        raise SourceError(
            f"{path.name}, attribute {quoted(name)}, image {quoted(image)}",
            got=" and ".join(values),
            allowed="one value",
            next_step="keep one row per image",
        )
