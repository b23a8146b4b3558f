"""Size and seed -> made-up patients, admissions, studies and images, with what is true of each planted and known."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class People:
    """The twin before it is written in anybody's layout. Rows of `images` run with axis 0 of every array.

    patients:   patient (0..), sex, race, ethnicity, birth_year, anchor_year, anchor_age
    admissions: patient, admission (0..), admitted, discharged, noted (a discharge note exists), charted, stored
    studies:    patient, study (0..), time
    images:     patient, study, image (0..), view, age, age_band, drain, ecg_wires, and other devices as booleans
    y label, c chart context, q = P(y=1 | c) exact, s what the picture shows: one column a finding.
    """

    patients: pl.DataFrame
    admissions: pl.DataFrame
    studies: pl.DataFrame
    images: pl.DataFrame
    findings: tuple[str, ...]
    y: Integers
    c: Floats
    q: Floats
    s: Floats
