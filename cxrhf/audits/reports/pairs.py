"""A grouping -> pairs of groups that are compared: two with each other, of more each with all others."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cxrhf.audits.groupings import Groups


class Pair(NamedTuple):
    """Two groups by their names in RESULT; `code` of each report: 0 the first, 1 the second, -1 neither."""

    first: str
    second: str
    code: NDArray[np.int64]
    crossed: bool
    several: bool  # one of several groups, against the others

    @property
    def own(self) -> tuple[str, ...]:
        """The groups that have numbers of their own: "all others" are there to be compared with."""
        return (self.first,) if self.several else (self.first, self.second)

    @property
    def by_sex(self) -> bool:
        """The comparison of the paper."""
        return not self.crossed and not self.several and self.first.startswith("sex=")


def pairs_of(groups: Groups) -> list[Pair]:
    """The comparisons of a grouping; reports without a value are in none."""
    if len(groups.slices) == 2:
        return [Pair(groups.slices[0], groups.slices[1], groups.group, groups.crossed, False)]
    known = groups.group >= 0
    return [
        Pair(name, rest_of(name), np.where(known, np.where(groups.group == at, 0, 1), -1), groups.crossed, True)
        for at, name in enumerate(groups.slices)
    ]


def rest_of(name: str) -> str:
    """`age=60-79` -> `age=not 60-79`; of a crossing `not sex=F & age=60-79`."""
    attribute, equals, value = name.partition("=")
    return f"not {name}" if " & " in name else f"{attribute}{equals}not {value}"
