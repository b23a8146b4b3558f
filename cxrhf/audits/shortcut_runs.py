"""Shortcut audits of several runs (training or split seeds) of one model -> RESULT: mean, spread, and SLICES' test.

Rows carry the model's bare name and no interval: value = mean over runs, `<metric>.sd` = their standard deviation
(n - 1), which is how far runs differ and no standard error (runs.py says why). The values of the single runs, for
figures, are the rows of those runs.

With `shortcut_test` mann_whitney also what SLICES did: Mann-Whitney's U test of the runs' AUROCs of one sex against
those of the other. Its value is U / (n1 n2), the share of pairs of runs in which the first sex has the higher AUROC
(ties half). It takes runs for independent, but their test sets overlap: with nothing going on, and each test set 30% of
one pool, 34 of 100 such tests said p < .05, and more where the sets are larger. So its p stands in the note, as the
paper would print it, and not among the page's p values: it is neither corrected with them nor makes theirs larger.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from cxrhf.audits.rows import Audited, Part, Row, plain
from cxrhf.audits.runs import run_head, run_rows

AUDIT = "shortcut"
MEANS = ("auroc", "auroc_equalised", "brier")
TESTED = {"auroc": "mann_whitney", "auroc_equalised": "mann_whitney_equalised"}
_Key = tuple[Any, ...]


def shortcut_runs(runs: Sequence[Audited]) -> Part:
    """Means and spreads over the runs of one model on one dataset; the paper's test where it is asked for."""
    tables = [{_key(row): row for row in run.rows if row["audit"] == AUDIT} for run in runs]
    keys = list(dict.fromkeys(key for table in tables for key in table))
    if len(runs) < 2 or not keys:
        return Part([], [], [])
    sample = runs[0].sample
    rows: list[Row] = []
    for key in keys:
        metric, _, _, versus = key
        if metric in MEANS and versus is None:
            rows += run_rows(sample.name, [table.get(key) for table in tables], AUDIT)
    notes: list[str] = []
    if sample.settings.shortcut_test == "mann_whitney":
        for key in keys:
            if key[0] in TESTED and key[-1] is not None:
                rows.append(_test_row(sample.name, key, tables))
        notes.append(
            f"{sample.name}: Mann-Whitney over {len(runs)} runs is the test of SLICES: test sets of runs overlap, "
            "which it ignores; its type I error is 0.35, not 0.05, and higher with more overlap. Prefer the paired "
            "bootstrap of the single runs instead"
        )
    return Part(rows, [], notes)


def _key(row: Row) -> _Key:
    return tuple(row[name] for name in ("metric", "finding", "slice", "versus"))


def _values(rows: Sequence[Row | None]) -> list[float]:
    """Of the runs in which the number is there and defined."""
    return [float(row["value"]) for row in rows if row is not None and np.isfinite(row["value"])]


def _test_row(name: str, gap: _Key, tables: Sequence[Mapping[_Key, Row]]) -> Row:
    """Mann-Whitney's U of the runs' AUROCs of the two groups of a gap."""
    from scipy.stats import mannwhitneyu

    metric, finding, one, two = gap
    first, second = ([table.get((metric, finding, where, None)) for table in tables] for where in (one, two))
    ours, theirs = _values(first), _values(second)
    row = run_head(name, plain(table[gap] for table in tables if gap in table), AUDIT)
    row |= {"metric": TESTED[metric], "method": "Mann-Whitney U over runs (SLICES), type I error 0.35"}
    if min(len(ours), len(theirs)) < 2:
        note = f"{TESTED[metric]} is undefined: {metric} is defined in {len(ours)} and {len(theirs)} runs"
        return row | {"value": np.nan, "note": note}
    found = mannwhitneyu(ours, theirs)
    note = (
        f"p = {found.pvalue:.2g} over {len(ours)} and {len(theirs)} runs, not corrected; the splits overlap, so p is "
        "too small: type I error 0.35"
    )
    return row | {"value": float(found.statistic) / (len(ours) * len(theirs)), "note": note}
