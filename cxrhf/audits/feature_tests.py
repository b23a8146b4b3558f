"""Places of patients on modes and logits, and their groups -> Kolmogorov-Smirnov tests, corrected as one family.

ENCODING: for each pair of groups and each marginal, whether both groups are spread alike along it. One patient is one
row, so rows are independent. The p value depends on how many patients were taken: with more of them smaller differences
become certain, so the statistic (the largest distance of the two distribution functions, 0 to 1) stands beside it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cxrhf.audits.sample import Floats
from cxrhf.metrics.estimates import FEW
from cxrhf.metrics.multiplicity import benjamini_yekutieli


class Pair(NamedTuple):
    """Two groups, by the names that RESULT gives them; True for the rows of each."""

    one: str
    other: str
    in_one: NDArray[np.bool_]
    in_other: NDArray[np.bool_]


class Tested(NamedTuple):
    """One test: the statistic, the p value (that of the family, once corrected), patients of both groups."""

    marginal: str
    pair: Pair
    statistic: float
    p_value: float
    sizes: tuple[int, int]


def pairs_of(groups: Mapping[str, NDArray[np.str_]], most: Mapping[str, int], notes: list[str]) -> list[Pair]:
    """Every pair among the largest groups of each attribute; `groups`: attribute -> value of each row, "" = none.

    `most`: how many groups of an attribute take part. Groups of few patients do not.
    """
    pairs: list[Pair] = []
    for name, values in groups.items():
        found, counts = np.unique(values[values != ""], return_counts=True)
        enough = sorted(((-count, value) for value, count in zip(found, counts, strict=True) if count >= FEW))
        if small := len(found) - len(enough):
            notes.append(f"{name}: {small} of {len(found)} groups have fewer than {FEW} patients and are not tested")
        chosen = sorted(str(value) for _, value in enough[: most[name]])
        if len(chosen) < 2:
            notes.append(f"{name}: no two groups of {FEW} patients to test")
        pairs += [
            Pair(f"{name}={one}", f"{name}={other}", values == one, values == other)
            for one, other in combinations(chosen, 2)
        ]
    return pairs


def family(marginals: Mapping[str, Floats], pairs: Sequence[Pair]) -> list[Tested]:
    """All marginals for all pairs, Benjamini-Yekutieli over all of them. A marginal is NaN where a row has none."""
    from scipy.stats import ks_2samp

    found = []
    for pair in pairs:
        for marginal, values in marginals.items():
            known = np.isfinite(values)
            one, other = values[pair.in_one & known], values[pair.in_other & known]
            if min(len(one), len(other)) < FEW:
                continue
            test = ks_2samp(one, other)
            found.append(Tested(marginal, pair, float(test.statistic), float(test.pvalue), (len(one), len(other))))
    corrected = benjamini_yekutieli([each.p_value for each in found])
    return [each._replace(p_value=float(p)) for each, p in zip(found, corrected, strict=True)]
