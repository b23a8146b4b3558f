"""What the reader of a dataset hands to the build: image rows, and attributes and notes where there are any."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl


@dataclass(frozen=True, slots=True)
class Source:
    """One row an image in `images`: IMAGE columns without the picture, its `path`, and raw labels as Int8 columns.

    `image_id`, `study_id`, `patient_id` and `path` are always there; `path` is absolute, or null where it is unknown.
    `attributes` holds image_id, name, value. `notes` is for datasets whose notes are small enough to be a frame.
    """

    dataset: str
    images: pl.DataFrame
    findings: tuple[str, ...]
    attributes: pl.DataFrame | None = None
    notes: pl.DataFrame | None = None
