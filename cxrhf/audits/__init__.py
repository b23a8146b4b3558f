"""PREDICTION -> RESULT and CURVE: the audits, each one file with one function from a sample to rows.

`run_audits` runs the wanted ones for every dataset and model of the table, on the same draws of patients, so that all
differences are paired. How rows are named stands in `cxrhf.audits.rows`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

    from cxrhf.audits.sample import Settings

# In the order of the page.
AUDITS = ("overview", "matched")


@dataclass(frozen=True, slots=True)
class AuditOutput:
    """What the audits found: RESULT and CURVE tables, and sentences a reader must see beside the numbers."""

    results: pa.Table
    curves: pa.Table
    notes: list[str]


def run_audits(
    predictions: pa.Table,
    config: Settings,
    progress: Callable[[str], None] | None = None,
    *,
    workers: int | None = None,
) -> AuditOutput:
    """Audit every model of a PREDICTION table. `config.only` names audits (empty = all); `workers` = threads.

    The numbers depend on the table and the seed, not on row order, threads or which other audits run.
    """
    from cxrhf.audits.matched import matched
    from cxrhf.audits.overview import overview
    from cxrhf.audits.sample import samples
    from cxrhf.errors import ConfigError, TableError
    from cxrhf.schema import CURVE, PREDICTION, RESULT, check, table_of

    wanted = tuple(config.only or AUDITS)
    if unknown := [name for name in wanted if name not in AUDITS]:
        raise ConfigError("no such audit", got=unknown[0], allowed=", ".join(AUDITS))
    predictions = check(predictions, PREDICTION, source="predictions")
    if predictions.num_rows == 0:
        raise TableError("the predictions have no rows", next_step="check the file and the findings asked for")
    results, curves, notes = [], [], list[str]()
    for sample in samples(predictions, config, workers, progress or (lambda _: None), notes):
        if "overview" in wanted:
            found = overview(sample)
            results += found.rows
            curves += found.curves
            notes += found.notes
        if "matched" in wanted:
            controlled = matched(sample)
            results += controlled.rows
            notes += controlled.notes
    said = list(dict.fromkeys(notes))
    return AuditOutput(table_of(results, RESULT, source="results"), table_of(curves, CURVE, source="curves"), said)
