"""Rows inside and outside a part, an attribute, patients -> how much more frequent the attribute is inside, with p.

Rows of one patient are not independent. The p value is Fisher's exact one, one-sided ("more frequent inside"), on
counts divided by the design effect: the factor by which patients with several rows increase the variance (Rao and
Scott's correction). With one row per patient, it is Fisher's test. The interval of the log odds ratio uses the larger
of that factor and the one under "equally frequent" (of the score test): if hardly any row inside has the attribute, the
first factor does not show the patients who have it outside.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import gammaln, ndtri

from cxrhf.metrics.checks import as_fraction, same_length
from cxrhf.metrics.intervals import patient_numbers


class Enrichment(NamedTuple):
    """Odds ratio with its interval, p value for "not more frequent inside", and shares and rows inside and outside."""

    odds_ratio: float
    low: float
    high: float
    p_value: float
    share_inside: float
    share_outside: float
    n_inside: int
    n_outside: int
    design_effect: float


def enrichment(
    inside: ArrayLike, has: ArrayLike, clusters: ArrayLike | None = None, *, level: float = 0.95
) -> Enrichment:
    """Compare how frequent the attribute `has` is among rows `inside` a slice and among the other rows.

    The odds ratio adds half a row to each of the four cells, so it is finite even with an empty cell. NaN if no row is
    inside or none is outside. A constant attribute gives p = 1.

    >>> found = enrichment([1, 1, 1, 1, 0, 0, 0, 0], [1, 1, 1, 0, 0, 0, 0, 1])
    >>> round(found.p_value, 4), found.share_inside
    (0.2429, 0.75)
    """
    as_fraction(level, "level")
    within, there = np.asarray(inside, dtype=bool), np.asarray(has, dtype=bool)
    unit = patient_numbers(clusters, len(within))
    same_length(inside=within, has=there, clusters=unit)
    n_in, n_out = int(within.sum()), int((~within).sum())
    a, c = int((within & there).sum()), int((~within & there).sum())
    if not n_in or not n_out:
        nan = float("nan")
        return Enrichment(nan, nan, nan, nan, a / n_in if n_in else nan, c / n_out if n_out else nan, n_in, n_out, nan)
    b, d = n_in - a, n_out - c
    log_ratio = float(np.log((a + 0.5) * (d + 0.5) / ((b + 0.5) * (c + 0.5))))
    simple = sum(1 / (each + 0.5) for each in (a, b, c, d))
    # The influence of a row on the log odds of its side, with the smoothed shares.
    shares = (a + 0.5) / (n_in + 1), (c + 0.5) / (n_out + 1)
    pull = np.where(
        within,
        (there - shares[0]) / ((n_in + 1) * shares[0] * (1 - shares[0])),
        -(there - shares[1]) / ((n_out + 1) * shares[1] * (1 - shares[1])),
    )
    each = np.bincount(unit, pull)
    count = int((np.bincount(unit) > 0).sum())
    apart = float((pull**2).sum())
    together = float((each**2).sum()) * count / max(count - 1, 1)
    effect = max(1.0, together / apart) if apart > 0 and count < len(within) else 1.0
    half = float(ndtri(0.5 + level / 2)) * np.sqrt(simple * max(effect, _score_effect(within, there, unit)))
    ends = np.exp([log_ratio - half, log_ratio + half])
    p_value = fisher_more(a / effect, b / effect, c / effect, d / effect)
    return Enrichment(
        float(np.exp(log_ratio)), float(ends[0]), float(ends[1]), p_value, a / n_in, c / n_out, n_in, n_out, effect
    )


def _score_effect(within: NDArray[np.bool_], there: NDArray[np.bool_], unit: NDArray[np.int64]) -> float:
    """The design effect of the score test of "equally frequent"."""
    pull = (within - within.mean()) * (there - there.mean())
    count = int((np.bincount(unit) > 0).sum())
    apart = float((pull**2).sum())
    if apart == 0 or count == len(within):
        return 1.0
    return float((np.bincount(unit, pull) ** 2).sum()) * count / max(count - 1, 1) / apart


def fisher_more(a: float, b: float, c: float, d: float) -> float:
    """P(at least a) of the hypergeometric law with these margins; counts need not be whole.

    >>> round(fisher_more(3, 1, 1, 3), 4)
    0.2429
    """
    inside, having, total = a + b, a + c, a + b + c + d
    most = min(inside, having)
    # Steps of one from the observed count upwards; with whole counts these are all tables at least as extreme.
    more = a + np.arange(int(np.floor(most - a + 1e-9)) + 1)

    def log_weight(x: np.ndarray) -> np.ndarray:
        rest = total - inside - having + x
        return -gammaln(x + 1) - gammaln(inside - x + 1) - gammaln(having - x + 1) - gammaln(np.maximum(rest, 0) + 1)

    least = max(0.0, inside + having - total)
    fewer = a - np.arange(1, int(np.floor(a - least + 1e-9)) + 1)
    weights = log_weight(np.concatenate([more, fewer]))
    scaled = np.exp(weights - weights.max())
    return float(min(1.0, scaled[: len(more)].sum() / scaled.sum()))
