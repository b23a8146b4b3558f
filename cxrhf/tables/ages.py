"""Ages in years -> bands: children and adolescents, young, middle-aged, old and very old adults."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

AGE_BANDS = ("0-19", "20-39", "40-59", "60-79", "80+")
_EDGES = (20.0, 40.0, 60.0, 80.0)


def age_band(age: ArrayLike) -> NDArray[np.int64]:
    """The place of each age in AGE_BANDS; -1 = unknown (NaN).

    >>> age_band([19.5, 20, float("nan"), 91]).tolist()
    [0, 1, -1, 4]
    """
    years = np.asarray(age, dtype=np.float64)
    return np.where(np.isnan(years), -1, np.searchsorted(_EDGES, years, side="right"))
