"""The audit of generated reports without encoders: 2,000 reports by six strategies, against a limit of one minute.

There is no peer that does all of this; the parts have one in `words`. Texts are synthetic (those of `words`): 2,000
references, and reports from a few templates (as greedy and beam search write) to all different ones (as sampling does).
With sexes alone, and with sexes, five age bands, three races and their crossings.
"""

from __future__ import annotations

import time

import numpy as np
import pyarrow as pa

from benchmarks.rows import Row, row
from benchmarks.words import N_REPORTS, synthetic_reports
from cxrhf.audits.reports.audit import audit_reports
from cxrhf.audits.reports.written import Tables
from cxrhf.schema import GENERATION
from cxrhf.settings import AuditConfig
from cxrhf.tables.checks import check

# Strategy -> how many different reports it writes.
STRATEGIES = {"greedy": 6, "beam": 10, "conservative": 700, "rich": 1900, "top_k": N_REPORTS, "top_p": N_REPORTS}
LIMIT = 60.0


def generations() -> pa.Table:
    rng = np.random.default_rng(0)
    reference = synthetic_reports(N_REPORTS, 1)
    people = {
        "sex": rng.choice(["F", "M"], N_REPORTS).tolist(),
        "race": rng.choice(["Asian", "Black", "White"], N_REPORTS).tolist(),
        "age": rng.uniform(10, 95, N_REPORTS).tolist(),
    }
    parts = []
    for at, (name, different) in enumerate(STRATEGIES.items()):
        texts = synthetic_reports(different, 2 + at)
        generated = [texts[k] for k in rng.integers(0, different, N_REPORTS)] if different < N_REPORTS else texts
        ids = [f"{k}" for k in range(N_REPORTS)]
        parts.append(
            pa.table({"image_id": ids, "patient_id": ids, "model": ["made"] * N_REPORTS, "strategy": [name] * N_REPORTS,
                      "reference": reference, "generated": generated, **people})
        )  # fmt: skip
    return check(pa.concat_tables(parts), GENERATION)


def run() -> list[Row]:
    tables, rows = Tables(generations()), []
    for what, groups in (("sexes", ("sex",)), ("sexes, ages, races, crossings", AuditConfig(("x",)).word_groups)):
        start = time.perf_counter()
        found = audit_reports(tables, AuditConfig(("x",), word_groups=groups))
        seconds = time.perf_counter() - start
        note = f"{found.results.num_rows:,} numbers, {found.words.num_rows:,} words; the peer is the limit"
        name = f"reports: audit of {N_REPORTS:,} reports x {len(STRATEGIES)} strategies ({what})"
        rows.append(row(name, seconds, LIMIT, note, target=1.0))
    return rows
