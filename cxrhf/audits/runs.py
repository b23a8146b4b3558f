"""Audits of several runs (training or split seeds) of one model -> RESULT, CURVE: their mean and spread (IMBALANCE).

Each run is audited on its own; its rows carry its seed in the model's name. Rows here carry the bare name, audit
`imbalance` and no interval: value = mean over runs, `<metric>.sd` = their standard deviation (n - 1). That is how far
runs differ, not a standard error: runs share patients, so it says little about other patients. What several audits
give under one name is taken from `imbalance`, so precision, NPV and F1 are those at the max-F1 threshold. Curves
`roc_mean` and `pr_mean` average sensitivity at equal false positive rates, and precision at equal recalls; their low
and high are the mean less and plus one standard deviation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from cxrhf.audits.rates import OPTIMISTIC
from cxrhf.audits.rows import Audited, Part, Row, plain
from cxrhf.audits.sample import Finding, Sample
from cxrhf.metrics.operating import TOLERANCE, roc_at
from cxrhf.metrics.ranking import pr_curve, roc_curve

Floats = NDArray[np.float64]

# Where a number is looked for, first come first served; None = every number of the whole sample.
SOURCES: Mapping[str, frozenset[str] | None] = {
    "imbalance": None,
    "overview": None,
    "reweighted": frozenset({"auroc_context", "auroc_att", "auroc_ipw"}),
    "matched": frozenset({"auroc_context", "auroc_att", "auroc_ipw", "matched_auroc"}),
}
# The grids of the curves of one run (cxrhf.metrics.bands).
FALSE_POSITIVE_RATES = np.linspace(0, 1, 101)
RECALLS = np.linspace(0.01, 1, 100)


def over_runs(runs: Sequence[Audited]) -> Part:
    """Mean and standard deviation over the runs of one model on one dataset, and their mean ROC and PR curves."""
    tables = [_by_key(run.rows) for run in runs]
    keys = list(dict.fromkeys(key for table in tables for key in table))
    if len(runs) < 2 or not keys:
        return Part([], [], [])
    name = runs[0].sample.name
    rows = [row for key in keys for row in run_rows(name, [table.get(key) for table in tables], "imbalance")]
    seeds = ", ".join(str(run.sample.data.seed) for run in runs)
    note = (
        f"{name}: {len(runs)} runs (seeds {seeds}). Rows and curves named {name} are means over runs with their "
        "standard deviation. The SD shows how far runs differ; it is not a standard error, because runs share patients"
    )
    return Part(rows, _curves([run.sample for run in runs]), [note])


def _by_key(rows: Sequence[Row]) -> dict[tuple[str, str], Row]:
    """Whole-sample numbers of one run by finding and metric."""
    found: dict[tuple[str, str], Row] = {}
    for audit, wanted in SOURCES.items():
        for row in rows:
            whole = row["audit"] == audit and row["slice"] == "all" and row["versus"] is None
            if whole and row["metric"] != "verdict" and (wanted is None or row["metric"] in wanted):
                found.setdefault((row["finding"], row["metric"]), row)
    return found


def run_rows(name: str, rows: Sequence[Row | None], audit: str) -> list[Row]:
    """The mean and the standard deviation of one number; a run without it has None."""
    given = plain(row for row in rows if row is not None)
    values = np.array([row["value"] for row in given if np.isfinite(row["value"])])
    some, metric, defined = given[0], given[0]["metric"], len(values)
    counted = f"{defined} run{'s' * (defined != 1)}"
    said = [counted if defined == len(rows) else f"{defined} of {len(rows)} runs, undefined in the others"]
    if defined:
        said.append(f"{values.min():.4g} to {values.max():.4g}")
    images = {row["n"] for row in given}
    if len(images) > 1:
        said.append(f"{min(images):,} to {max(images):,} images")
    if some["audit"] != audit:
        said.append(f"from the audit {some['audit']}")
    if any(OPTIMISTIC in (row["note"] or "") for row in given):
        said.append("threshold of each run chosen on its rows, so optimistic")
    head = run_head(name, given, audit)
    mean = {
        "value": float(values.mean()) if defined else np.nan,
        "method": f"mean of {counted}",
        "note": "; ".join(said) if defined else f"{metric} is undefined in all {len(rows)} runs",
    }
    spread = {
        "metric": f"{metric}.sd",
        "value": float(values.std(ddof=1)) if defined > 1 else np.nan,
        "method": f"standard deviation over {counted}",
        "higher_is_better": None,
        "note": "; ".join([*said, "spread of runs, not a standard error"])
        if defined > 1
        else f"{metric}.sd is undefined: {metric} is defined in {defined} of {len(rows)} runs",
    }
    return [head | mean, head | spread]


def run_head(name: str, rows: Sequence[Row], audit: str) -> Row:
    """What the rows of all runs have in common; runs have no interval and no p value together."""
    agreed = {column: _agreed(rows, column) for column in ("n", "n_pos", "n_patients")}
    return rows[0] | agreed | {"audit": audit, "model": name, "ci_low": None, "ci_high": None, "p_value": None}


def _agreed(rows: Sequence[Row], column: str) -> int | None:
    """What is the same in all runs."""
    values = {row[column] for row in rows}
    return values.pop() if len(values) == 1 else None


def _curves(samples: Sequence[Sample]) -> list[Row]:
    """Mean curves of every finding; runs without both classes are left out."""
    first = samples[0]
    model = f"{first.name} on {first.dataset}" if first.several_datasets else first.name
    findings: dict[str, list[Finding]] = {}
    for sample in samples:
        for k, name in enumerate(sample.data.findings):
            finding = sample.finding(k)
            if 0 < (finding.weight * finding.y).sum() < finding.weight.sum():
                findings.setdefault(name, []).append(finding)
    kinds: Sequence[tuple[str, Floats, Callable[[Finding], Floats]]] = (
        ("roc_mean", FALSE_POSITIVE_RATES, _sensitivities),
        ("pr_mean", RECALLS, _precisions),
    )
    curves: list[Row] = []
    for name, several in findings.items():
        for kind, grid, follow in kinds:
            found = np.stack([follow(finding) for finding in several])
            mean = found.mean(axis=0)
            spread = found.std(axis=0, ddof=1) if len(several) > 1 else np.full(len(grid), np.nan)
            low, high = np.clip(mean - spread, 0, 1), np.clip(mean + spread, 0, 1)
            head = {"model": model, "finding": name, "kind": kind, "slice": "all"}
            columns = zip(*(column.tolist() for column in (grid, mean, low, high)), strict=True)
            curves += [{**head, "x": x, "y": y, "low": below, "high": above} for x, y, below, above in columns]
    return curves


def _sensitivities(finding: Finding) -> Floats:
    return roc_at(roc_curve(finding.y, finding.p, finding.weight), FALSE_POSITIVE_RATES)


def _precisions(finding: Finding) -> Floats:
    """Precision at the first threshold from above that reaches each recall."""
    curve = pr_curve(finding.y, finding.p, finding.weight)
    return np.asarray(curve.precision[np.searchsorted(curve.recall, RECALLS - TOLERANCE)], dtype=np.float64)
