"""Arrays -> the imbalance audit's rows by name, for the tests of that audit."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from cxrhf.twin.planted import context
from tests.audits.tables import audited, block


class Found:
    """Rows of the imbalance audit by finding, metric and slice."""

    def __init__(self, *blocks: pa.Table, n_resamples: int = 200, only: tuple[str, ...] = ("imbalance",), **options):
        self.output = audited(*blocks, n_resamples=n_resamples, only=only, **options)
        rows = [row for row in self.output.results.to_pylist() if row["audit"] == "imbalance"]
        self.rows = {(row["finding"], row["metric"], row["slice"]): row for row in rows}
        assert len(self.rows) == len(rows), "a number is given twice"
        self.notes = "\n".join(self.output.notes)

    def __call__(self, metric: str, finding: str = "x", slice: str = "all"):
        return self.rows[finding, metric, slice]

    def curve(self, kind: str, finding: str = "x"):
        return [row for row in self.output.curves.to_pylist() if (row["finding"], row["kind"]) == (finding, kind)]


def weighted_to(y, prevalence, weight=None):
    weight = np.ones(len(y)) if weight is None else weight
    return np.where(y == 1, prevalence / weight[y == 1].sum(), (1 - prevalence) / weight[y == 0].sum()) * weight


def made_up():
    """A common finding."""
    return context(1500, images_per_patient=(1, 4), seed=3)


def three(planted) -> Found:
    """That finding, a rare one with masked labels, and one without positives."""
    rare = context(1500, pi=0.05, images_per_patient=(1, 4), seed=4)
    return Found(
        block("x", planted.y, planted.patient, prob=planted.prob),
        block("rare", np.where(np.arange(1500) % 7 == 0, np.nan, rare.y), planted.patient, prob=rare.prob),
        block("none", np.zeros(1500), planted.patient, prob=rare.prob),
    )
