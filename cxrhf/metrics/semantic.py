"""Vectors of reports and their patients -> semantic diversity with an interval.

1 - mean cosine over all pairs of reports (`language.semantic_diversity`) is a mean over pairs, so a bootstrap that
draws reports twice would see pairs of equals that nobody wrote. Here patients are left out one by one (the jackknife),
which costs one pass over the sums of the unit vectors. Its 95% intervals covered the truth in 92.5 to 95% of simulated
corpora (30, 100 and 400 patients, one or several reports each).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import stdtrit

from cxrhf.metrics.checks import as_fraction, same_length
from cxrhf.metrics.intervals import patient_numbers
from cxrhf.metrics.language import semantic_diversity

FEW_PATIENTS = 5


class Spread(NamedTuple):
    """The value and its interval; NaN where fewer than FEW_PATIENTS say nothing of the spread."""

    value: float
    low: float
    high: float
    n_patients: int


def semantic_spread(vectors: ArrayLike, clusters: ArrayLike | None = None, *, level: float = 0.95) -> Spread:
    """`semantic_diversity` with a jackknife interval over patients; rows of length 0 are left out.

    >>> semantic_spread([[1.0, 0.0], [0.0, 1.0]]).value
    1.0
    """
    as_fraction(level, "level")
    rows = np.asarray(vectors, dtype=np.float64)
    value = semantic_diversity(rows)
    unit = patient_numbers(clusters, len(rows))
    same_length(vectors=rows, clusters=unit)
    size = np.linalg.norm(rows, axis=1)
    unit, rows = np.unique(unit[size > 0], return_inverse=True)[1], rows[size > 0] / size[size > 0, None]
    n_patients = int(unit.max(initial=-1)) + 1
    if n_patients < FEW_PATIENTS:
        return Spread(value, float("nan"), float("nan"), n_patients)
    sums = np.zeros((n_patients, rows.shape[1]))
    np.add.at(sums, unit, rows)
    left = len(rows) - np.bincount(unit, minlength=n_patients)
    total = sums.sum(axis=0)
    # Squared length of the sum without each patient: |T|^2 - 2 T.s + |s|^2.
    squares = total @ total - 2 * sums @ total + (sums**2).sum(axis=1)
    without = 1 - (squares - left) / (left * (left - 1.0))
    spread = float(np.sqrt((n_patients - 1) / n_patients * ((without - without.mean()) ** 2).sum()))
    half = float(stdtrit(n_patients - 1, 0.5 + level / 2)) * spread
    return Spread(value, max(value - half, 0.0), min(value + half, 2.0), n_patients)
