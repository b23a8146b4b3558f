"""Arrays -> PREDICTION tables and RESULT look-ups, for the tests of audits and report."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from cxrhf.audits.plan import AuditOutput, run_audits
from cxrhf.schema import PREDICTION
from cxrhf.settings import AuditConfig
from cxrhf.tables.checks import check


def block(finding: str, y: Any, patient: Any, *, model: str = "net", **columns: Any) -> pa.Table:
    """The rows of one finding; `columns` are prob, logit, pretest, weight, split, dataset, seed. NaN = null."""
    n = len(y)
    made: dict[str, Any] = {
        "image_id": [f"secret-image-{i:05d}" for i in range(n)],
        "patient_id": [f"secret-patient-{int(i):05d}" for i in patient],
        "model": [model] * n,
        "finding": [finding] * n,
        "label": pa.array(np.asarray(y, dtype=float), from_pandas=True).cast(pa.int8()),
    }
    for name, values in columns.items():
        if isinstance(values, str):
            made[name] = [values] * n
        else:
            made[name] = pa.array(np.asarray(values), from_pandas=np.asarray(values).dtype.kind == "f")
    return check(pa.table(made), PREDICTION)


def settings(n_resamples: int = 200, **options: Any) -> AuditConfig:
    return AuditConfig(predictions=("made up",), n_resamples=n_resamples, **options)


def audited(*blocks: pa.Table, n_resamples: int = 200, workers: int | None = None, **options: Any) -> AuditOutput:
    return run_audits(pa.concat_tables(blocks), settings(n_resamples, **options), workers=workers)


class Found:
    """RESULT rows by audit, finding, metric and versus (of one model)."""

    def __init__(self, output: AuditOutput, model: str | None = None) -> None:
        self.rows = [row for row in output.results.to_pylist() if model is None or row["model"] == model]
        self.notes = "\n".join(output.notes)

    def __call__(
        self, metric: str, finding: str, audit: str = "overview", versus: str | None = None
    ) -> Mapping[str, Any]:
        (row,) = [
            row
            for row in self.rows
            if (row["metric"], row["finding"], row["audit"], row["versus"]) == (metric, finding, audit, versus)
        ]
        return row

    def holds(self, truth: float, metric: str, finding: str, audit: str, versus: str | None = None) -> bool:
        row = self(metric, finding, audit, versus)
        return bool(row["ci_low"] <= truth <= row["ci_high"])
