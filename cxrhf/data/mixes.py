"""IMAGE rows -> the rows of a mix with a given share of women, drawn as the builders draw theirs."""

from __future__ import annotations

import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray

from cxrhf.data.splits import sex_sample


def sex_mix(table: pa.Table, female: float, size: int | None, seed: int) -> NDArray[np.int64]:
    """Numbers of the rows, in their order: see `splits.sex_sample`. Rows of another or no sex are left out."""
    frame = pl.from_arrow(table.select(["image_id", "patient_id", "sex"]))
    assert isinstance(frame, pl.DataFrame)
    drawn = sex_sample(frame.with_row_index("at"), female, size, seed)
    return drawn.get_column("at").to_numpy().astype(np.int64)
