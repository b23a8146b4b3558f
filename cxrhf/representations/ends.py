"""RESULT rows of `slices` -> the worst and the best slice of every model, finding, method and class."""

from __future__ import annotations

from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

ROLES = ("worst", "best")


class End(NamedTuple):
    """One slice; `role` is worst or best."""

    model: str
    finding: str
    slice: str
    role: str


def ends(results: pa.Table) -> list[End]:
    """In the order of the rows."""
    chosen = pc.and_(
        pc.equal(results["audit"], "slices"), pc.is_in(results["metric"], value_set=pa.array(ROLES, pa.string()))
    )
    rows = results.filter(chosen).select(["model", "finding", "slice", "metric"]).to_pylist()
    return [End(*row.values()) for row in rows]
