"""RESULT rows of `slices` and SLICE -> the worst and the best slice of every model, finding, method and class."""

from __future__ import annotations

from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

ROLES = ("worst", "best")


class End(NamedTuple):
    """One slice; `model` as SLICE names it, `role` is worst or best."""

    model: str
    finding: str
    slice: str
    role: str


def ends(results: pa.Table, slices: pa.Table) -> list[End]:
    """In the order of the rows. SLICE has no column for the dataset: of several, `model on dataset` is its model."""
    known = set(slices["model"].unique().to_pylist())
    chosen = pc.and_(
        pc.equal(results["audit"], "slices"), pc.is_in(results["metric"], value_set=pa.array(ROLES, pa.string()))
    )
    found = []
    for row in results.filter(chosen).to_pylist():
        there = f"{row['model']} on {row['dataset']}"
        found.append(End(there if there in known else row["model"], row["finding"], row["slice"], row["metric"]))
    return found
