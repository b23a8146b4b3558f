"""GENERATION tables with known answers, and settings for their audits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from cxrhf.audits.plan import AuditOutput
from cxrhf.audits.reports.audit import audit_reports
from cxrhf.audits.reports.written import Tables
from cxrhf.schema import GENERATION
from cxrhf.settings import WORD_GROUPS
from cxrhf.tables.checks import check

TEMPLATE = "The lungs are clear. No acute cardiopulmonary process."


@dataclass(frozen=True, slots=True)
class Settings:
    """What the audits read of a config."""

    n_resamples: int = 200
    seed: int = 0
    level: float = 0.95
    alpha: float = 0.1
    p_star: float = 0.05
    word_groups: Sequence[str] = WORD_GROUPS
    baseline_strategy: str | None = None
    weat_words: str | None = None


def table(
    reference: Sequence[str],
    generated: Sequence[str],
    *,
    model: str = "writer",
    strategy: str = "greedy",
    patients: Sequence[str] | None = None,
    **more: Sequence[Any],
) -> pa.Table:
    """Reports of images i0, i1, ...; `more`: sex, age, race, dataset."""
    n = len(reference)
    columns: dict[str, Any] = {
        "image_id": [f"i{at:05d}" for at in range(n)],
        "patient_id": list(patients) if patients is not None else [f"p{at:05d}" for at in range(n)],
        "model": [model] * n,
        "strategy": [strategy] * n,
        "reference": list(reference),
        "generated": list(generated),
        **{name: list(values) for name, values in more.items()},
    }
    return check(pa.table(columns), GENERATION)


def audited(
    *generations: pa.Table, scores: pa.Table | None = None, vectors: pa.Table | None = None, may_show: bool = False,
    only: Sequence[str] = (), **settings: Any,
) -> AuditOutput:  # fmt: skip
    """The audits of these tables together."""
    tables = Tables(pa.concat_tables(generations), scores, vectors)
    return audit_reports(tables, Settings(**settings), may_show=may_show, only=only)


def rows_of(output: AuditOutput, **where: Any) -> list[dict[str, Any]]:
    """RESULT rows with these values."""
    return [row for row in output.results.to_pylist() if all(row[name] == each for name, each in where.items())]


def value(output: AuditOutput, metric: str, **where: Any) -> float:
    """The one number with this key; of the whole sample if nothing else is said."""
    found = rows_of(
        output, **{"audit": "reports", "strategy": "greedy", "slice": "all", "versus": None, "metric": metric} | where
    )
    assert len(found) == 1, (metric, where, found)
    return float(found[0]["value"])


def category(
    output: AuditOutput, strategy: str = "greedy", column: str = "category", group: str = "sex=F"
) -> dict[str, str]:
    """Word -> its category."""
    rows = output.words.to_pylist()
    return {row["word"]: row[column] for row in rows if row["strategy"] == strategy and row["group"] == group}
