"""A sample -> what can describe a slice: sex, race, view, age, other findings, mentions, devices, annotations.

A trait is one value of one attribute (`view=AP`, `edema=1`, `drain=0`): which rows have it, and of which it is known.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cxrhf.audits.sample import Sample
from cxrhf.tables.ages import AGE_BANDS, age_band

Flags = NDArray[np.bool_]
# Values of one attribute that can be traits; more are no groups but ids or measurements.
MOST = 12


class Trait(NamedTuple):
    """`has` and `known` are of every row of the sample; `other` names the rows that lack it (`not view=AP`)."""

    name: str
    attribute: str
    other: str
    has: Flags
    known: Flags


def traits(sample: Sample, notes: list[str]) -> list[Trait]:
    """Every trait of a sample; attributes with too many values are left out, which is said."""
    data, found = sample.data, list[Trait]()
    for name in ("sex", "race", "view"):
        if name in data.groups:
            found += _of_values(name, data.groups[name].astype(str), notes)
    if data.age is not None and not np.isnan(data.age).all():
        code = age_band(data.age)
        found += _of_values("age", np.array([*AGE_BANDS, ""])[code], notes)
    for k, finding in enumerate(data.findings):
        found += _of_labels(finding, data.y[:, k])
        if data.mention is not None:
            found += _of_labels(f"prior mention of {finding}", data.mention[:, k])
    taken = {each.attribute for each in found}
    for name, values in sample.beside.attributes.items():
        found += _of_values(name if name not in taken else f"{name} (attribute)", values, notes)
    return found


def _of_labels(name: str, label: NDArray[np.float64]) -> list[Trait]:
    known = ~np.isnan(label)
    return [Trait(f"{name}={value}", name, f"{name}={1 - value}", label == value, known) for value in (0, 1)]


def _of_values(name: str, values: NDArray[np.str_], notes: list[str]) -> list[Trait]:
    known = values != ""
    there = sorted(set(values[known].tolist()))
    if len(there) > MOST:
        notes.append(f"{name}: {len(there):,} different values, too many to describe slices")
        return []
    if len(there) < 2:
        return []
    yes_or_no = there == ["0", "1"]
    return [
        Trait(
            f"{name}={value}",
            name,
            f"{name}={1 - int(value)}" if yes_or_no else f"not {name}={value}",
            values == value,
            known,
        )
        for value in there
    ]
