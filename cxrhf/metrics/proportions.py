"""A proportion and the number of independent trials behind it -> Wilson's interval, which stays within 0 and 1."""

from __future__ import annotations

import math


def wilson(share: float, trials: float, quantile: float) -> tuple[float, float]:
    """Where the share lies `quantile` standard errors away, with the standard error that a share there would have.

    `trials` need not be whole. 1.96, or Student's t where the trials are themselves an estimate.

    >>> [round(end, 4) for end in wilson(0.0, 10, 1.96)]
    [0.0, 0.2775]
    """
    z = quantile**2 / trials
    centre = (share + z / 2) / (1 + z)
    half = math.sqrt(z * share * (1 - share) + z * z / 4) / (1 + z)
    return max(centre - half, 0.0), min(centre + half, 1.0)
