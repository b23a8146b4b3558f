"""Image rows -> the rows a study keeps: frontal views, no devices, one image a study or a patient.

Every choice keeps rows in their order, and "first" always means first in that order: what the published tables and the
code behind the papers mean by it. Times are not looked at; a reader that knows them may sort before.
"""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from cxrhf.config_build import ONE_IMAGE
from cxrhf.data.labels import DEVICES, need_columns
from cxrhf.errors import ConfigError, did_you_mean
from cxrhf.tables.checks import quoted

FRONTAL = ("PA", "AP")
_ROW = "__row"


def frontal(images: pl.DataFrame) -> pl.DataFrame:
    """The rows whose view is PA or AP; a row whose view is not known is not kept."""
    need_columns(images, ("view",), "frontal views")
    return images.filter(pl.col("view").is_in(FRONTAL))


def without_devices(images: pl.DataFrame) -> pl.DataFrame:
    """The rows without a positive support_devices; uncertain and blank ones stay."""
    need_columns(images, (DEVICES,), "images without devices")
    return images.filter(pl.col(DEVICES).ne_missing(1))


def first_of_study(images: pl.DataFrame) -> pl.DataFrame:
    """The first row of each study."""
    # By patient too: some sources count studies from 1 for each patient.
    return images.unique(["patient_id", "study_id"], keep="first", maintain_order=True)


def one_per_patient(
    images: pl.DataFrame,
    findings: Sequence[str],
    choice: str,
    finding: str | None = None,
    prefer: pl.Series | None = None,
) -> pl.DataFrame:
    """One row a patient, patients in the order in which they first appear; `all` keeps every row.

    first: the patient's first row. positive_first: his first row with `finding` = 1, else his first (SLICES); of equals
    those whose image_id is in `prefer` come before the others.
    stitched: his first row, where each label is his first that is not blank in any of his images (IMBALANCE's public
    code, by a grouped "first" that skips blanks). Uncertain is not blank. A stitched row can hold labels of several
    images, and No Finding of one beside a disease of another: 42.8% of CheXpert's patients get labels from an image
    that is not the one kept, devices not counted. It is there to reproduce published numbers, not to make new ones.
    """
    if choice not in ONE_IMAGE:
        raise ConfigError(
            "--images-per-patient",
            got=quoted(choice),
            allowed=f"one of {', '.join(ONE_IMAGE)}",
            next_step=did_you_mean(choice, ONE_IMAGE),
        )
    if choice == "all":
        return images
    if choice == "positive_first":
        return _positive_first(images, findings, finding, prefer)
    first = images.unique("patient_id", keep="first", maintain_order=True)
    if choice == "first":
        return first
    need_columns(images, findings, "stitched labels")
    by_patient = images.group_by("patient_id", maintain_order=True)
    stitched = by_patient.agg(pl.col(*findings).first(ignore_nulls=True)) if findings else first.select("patient_id")
    # Both are in the order of first appearance, so the columns fit row by row.
    return first.with_columns(stitched.drop("patient_id"))


def _positive_first(
    images: pl.DataFrame, findings: Sequence[str], finding: str | None, prefer: pl.Series | None
) -> pl.DataFrame:
    if finding is None or finding not in findings:
        raise ConfigError(
            "positive_first requires a finding of this dataset",
            got=finding,
            allowed=f"one of {', '.join(findings)}",
            next_step=did_you_mean(finding or "", findings) or f"--finding {next(iter(findings), 'FINDING')}",
        )
    need_columns(images, (finding,), "positive_first")
    row, positive = pl.col(_ROW), pl.col(finding) == 1
    preferred = pl.lit(False) if prefer is None else pl.col("image_id").is_in(prefer.implode())
    rows = images.select("patient_id", "image_id", finding).with_row_index(_ROW)
    order = (positive & preferred, positive, preferred)
    chosen = rows.group_by("patient_id", maintain_order=True).agg(
        pl.coalesce(*(row.filter(each).first() for each in order), row.first())
    )
    return images[chosen.get_column(_ROW)]
