"""Text columns of published tables -> house values: ids, sex, age, race, ethnicity, view, raw labels.

What a table leaves open (`Unknown`, `U`, an empty cell) becomes null. What cannot be read is an error that names its
record: a value is never guessed.
"""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import polars as pl
import pyarrow as pa

from cxrhf.data.raw import header, numbers, read_csv
from cxrhf.errors import ConfigError, SourceError, TableError, did_you_mean
from cxrhf.findings import snake_case
from cxrhf.schema import ATTRIBUTE
from cxrhf.tables.checks import check, quoted

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


# Raw labels 1 / 0 / -1 / null -> labels 1 / 0 / null under a named policy, and counts.
#
# | policy        | 1 | 0 | -1 (uncertain) | blank | for                                              |
# | positive_only | 1 | 0 | 0              | 0     | CONTEXT and ENCODING: positive only where it is said |
# | masked        | 1 | 0 | null           | null  | IMBALANCE: neither trained on nor counted        |
# | ones          | 1 | 0 | 1              | 0     | CheXpert's U-Ones                                |
# | zeros         | 1 | 0 | 0              | 0     | CheXpert's U-Zeros                               |
#
# positive_only and zeros give the same labels by different reasoning, and are recorded under the name that was
# chosen. Masked has one rule more: where no_finding is 1 every other finding is 0, whatever was there, except
# support_devices: a device is no disease, and 39% of CheXpert's No Finding images show one. In CheXpert's raw rows No
# Finding never meets another positive, so this only fills blanks; after `stitched` (see prepare.py) it overrules a
# positive of another image in 5,480 patients, and the published class ratios hold only with that. No Finding itself
# is read as any other finding.

NO_FINDING, DEVICES = "no_finding", "support_devices"
COUNTS = ("positive", "negative", "uncertain", "blank")


def _positive_only(label: pl.Expr) -> pl.Expr:
    return (label == 1).fill_null(False).cast(pl.Int8)


def _masked(label: pl.Expr) -> pl.Expr:
    return pl.when(label >= 0).then(label)


def _ones(label: pl.Expr) -> pl.Expr:
    return (label != 0).fill_null(False).cast(pl.Int8)


POLICIES: Mapping[str, Callable[[pl.Expr], pl.Expr]] = {
    "positive_only": _positive_only,
    "masked": _masked,
    "ones": _ones,
    "zeros": _positive_only,
}


def check_policy(policy: str, *more: str) -> None:
    """An unknown policy is an error; `more` are other words allowed here."""
    allowed = (*POLICIES, *more)
    if policy not in allowed:
        raise ConfigError(
            "--labels",
            got=quoted(policy),
            allowed=f"one of {', '.join(allowed)}",
            next_step=did_you_mean(policy, allowed) or "see the policies: cxrhf build --help",
        )


def need_columns(images: pl.DataFrame, names: Sequence[str], use: str) -> None:
    """The columns that a step needs must be there."""
    for name in names:
        if name not in images.columns:
            raise TableError(
                use,
                allowed=f"images with a column {quoted(name)}",
                got=f"columns {', '.join(images.columns)}",
                next_step=did_you_mean(name, images.columns) or f"omit this step, or add column {quoted(name)}",
            )


def apply_policy(images: pl.DataFrame, findings: Sequence[str], policy: str) -> pl.DataFrame:
    """The same rows with the raw labels of `findings` replaced by 1, 0 or null (Int8).

    `no_finding` decides in policy masked whether it is among `findings` or only a column of the images.
    """
    check_policy(policy)
    need_columns(images, findings, f"labels {policy}")
    rule = POLICIES[policy]
    healthy = pl.col(NO_FINDING) == 1 if policy == "masked" and NO_FINDING in images.columns else None
    labels = []
    for finding in findings:
        label = rule(pl.col(finding).cast(pl.Int8))
        if healthy is not None and finding not in (NO_FINDING, DEVICES):
            label = pl.when(healthy).then(pl.lit(0, pl.Int8)).otherwise(label)
        labels.append(label.alias(finding))
    return images.with_columns(labels)


def label_counts(images: pl.DataFrame, findings: Sequence[str]) -> pl.DataFrame:
    """One row a finding: how many images are positive, negative, uncertain, blank. Under a policy blank = masked."""
    need_columns(images, findings, "label counts")
    rows = []
    for finding in findings:
        label = images.get_column(finding)
        found = [int((label == value).sum()) for value in (1, 0, -1)]
        rows.append({"finding": finding, **dict(zip(COUNTS, (*found, label.null_count()), strict=True))})
    return pl.DataFrame(rows, schema={"finding": pl.String, **dict.fromkeys(COUNTS, pl.Int64)})


# A CSV of annotated pictures (drains, wires, ...) -> ATTRIBUTE rows: image_id, name, value.
#
# Two shapes are known: a row per picture and attribute (columns `name` and `value`), or a row per picture with a
# column for each attribute. Yes and no in any spelling become "1" and "0"; other text is kept. Known gap: one file a
# dataset.

_IMAGE = (
    "image_id", "image_index", "image", "image_name", "image_path", "imageid", "dicom_id", "path", "path_to_image",
    "filename", "file_name", "file", "img", "img_id",
)  # fmt: skip
_NAME = ("name", "attribute")
# Columns of the datasets' own tables, which annotators often keep beside their own.
_OTHER_COLUMNS = (
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
        wide = [column for name, column in named.items() if column != image and name not in _OTHER_COLUMNS][::-1]
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
        image_id=_match_image_id(pl.col("picture").str.strip_chars(), images.get_column("image_id")), value=_value()
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


def _match_image_id(picture: pl.Expr, image_ids: pl.Series) -> pl.Expr:
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


# A published .xlsx workbook -> the named columns of its first sheet, as text.


def read_xlsx(path: Path, columns: Sequence[str]) -> pl.DataFrame:
    """Rows below the header of the first sheet; numbers as people read them, empty cells null, empty rows left out."""
    try:
        import openpyxl
    except ImportError:
        raise SourceError(
            f"{path.name}: reading it requires the Python package openpyxl, which is not installed",
            next_step="pip install 'cxrhf[data]'",
        ) from None
    try:
        book = openpyxl.load_workbook(path, read_only=True, data_only=True)
    except (zipfile.BadZipFile, KeyError, ValueError, OSError) as error:
        raise SourceError(
            f"{path.name}: the file cannot be read as a workbook ({error})", next_step=f"copy {path} again"
        ) from None
    try:
        rows = book.worksheets[0].iter_rows(values_only=True)
        header = [str(cell).strip() if cell is not None else "" for cell in next(rows, ())]
        at = [_place(path, header, name) for name in columns]
        kept = [[_text(row[place]) if place < len(row) else None for place in at] for row in rows]
    finally:
        book.close()
    frame = pl.DataFrame(kept, schema=dict.fromkeys(columns, pl.String), orient="row")
    return frame.filter(~pl.all_horizontal(pl.all().is_null()))


def _place(path: Path, header: list[str], name: str) -> int:
    if header.count(name) == 1:
        return header.index(name)
    hint = did_you_mean(name, header)
    raise SourceError(
        path.name,
        allowed=f'one column "{name}"',
        got=f"columns {', '.join(header)}" if header else "no columns",
        next_step=(f"{hint} Was it renamed? " if hint else "") + f"download {path} again",
    )


def _text(cell: object) -> str | None:
    if cell is None:
        return None
    if isinstance(cell, float) and cell.is_integer():  # workbooks keep every number as a float
        return str(int(cell))
    return str(cell).strip() or None
