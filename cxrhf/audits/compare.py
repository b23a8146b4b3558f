"""Two audited models on the same cases -> RESULT: paired differences of their numbers, first less second.

Both models were audited on the same draws of patients, so a difference is taken within each replicate and its interval
knows how alike the models are. Where the models were given different images or labels, both are audited again on what
they have in common; where they were given different weights, pre-test probabilities, mentions, ages or groups, with
those of the first, or strata and weighted numbers would be of other cases. Both is said. Whole-sample numbers are
tested; those of strata and subgroups have intervals only, and those with IPW weights, whose heavy rows make small p
values too frequent.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cxrhf.audits.rows import (
    INTERVAL_SOURCE,
    MACRO,
    OPTIMISTIC,
    AuditedSample,
    AuditPart,
    Row,
    RowMaker,
    to_result_rows,
)
from cxrhf.audits.sample import Finding, Sample
from cxrhf.metrics.draws import draw
from cxrhf.metrics.estimates import drop_rounding
from cxrhf.metrics.operating import TOLERANCE, roc_at
from cxrhf.metrics.ranking import pr_curve, roc_curve
from cxrhf.tables.checks import PredictionArrays

Floats = NDArray[np.float64]


TESTED = frozenset(
    {
        "auroc",
        "average_precision",
        "brier",
        "sensitivity_at_specificity",
        "auroc_att",
        "matched_auroc",
        "auroc_drop vs auroc_att",
        "auroc_drop vs matched_auroc",
    }
)
COMPARED = TESTED | {
    "auprc_trapezoid",
    "balanced_brier",
    "brier_negative",
    "brier_positive",
    "brier_skill_score",
    "fpr",
    "sensitivity_global",
    "specificity_global",
    "tpr",
    "auroc_balanced",
    "auroc_ipw",
    "auroc_drop vs auroc_ipw",
    "tpr_balanced",
    "fpr_balanced",
    "sensitivity_at_specificity_att",
    "sensitivity_at_specificity_ipw",
    "sensitivity_at_specificity_matched",
}


def compare(first: AuditedSample, second: AuditedSample, again: Callable[[Sample], list[Row]]) -> AuditPart:
    """Differences of two models; `again` audits a sample where they must be brought to common ground first."""
    one, two = first.sample, second.sample
    notes: list[str] = []
    if not _same_cases(one.data, two.data) or _conflicting_columns(one.data, two.data):
        found = _common_samples(one, two, notes)
        if found is None:
            return AuditPart([], [], notes)
        one, two = found
        first, second = AuditedSample(one, again(one)), AuditedSample(two, again(two))
    make = RowMaker("compare", one)
    others = {_key(row): row for row in second.rows if INTERVAL_SOURCE in row}
    ours, theirs = _findings_of_means(first.rows), _findings_of_means(second.rows)
    rows: dict[Any, Row] = {}
    for row in first.rows:
        other = others.get(_key(row))
        name = f"{row['metric']} vs {row['versus']}" if row["versus"] else row["metric"]
        place = (name, row["finding"], row["slice"])
        if INTERVAL_SOURCE not in row or other is None or name not in COMPARED or place in rows:
            continue
        means = row["finding"] == MACRO
        if means and (_findings_note(row) != _findings_note(other) or ours.get(_key(row)) != theirs.get(_key(other))):
            continue  # means over different findings are not one number
        kept = row[INTERVAL_SOURCE]
        rows[place] = make.row(
            name,
            row["finding"],
            kept.counts,
            float(drop_rounding(row["value"] - other["value"])),
            drop_rounding(kept.replicates - other[INTERVAL_SOURCE].replicates),
            known=kept.known,
            weighting=kept.weighting,
            slice=row["slice"],
            versus=f"model={two.model}",
            tested=name in TESTED and row["slice"] == "all",
            units=kept.units,
            how=f"from the audit {row['audit']}",  # a rate is at the threshold of its audit
            note=row["note"] if means else None,
        )
    return AuditPart(list(rows.values()), [], notes)


def _key(row: Row) -> tuple[Any, ...]:
    return tuple(row[name] for name in ("audit", "metric", "finding", "slice", "versus"))


def _findings_note(row: Row) -> str:
    """How many findings a mean says that it is over."""
    return (row["note"] or "").partition(";")[0]


def _findings_of_means(rows: Sequence[Row]) -> dict[tuple[Any, ...], set[str]]:
    """The findings that have the number of each mean, by the key of the mean."""
    found: dict[tuple[Any, ...], set[str]] = {}
    for row in rows:
        if row["finding"] != MACRO and np.isfinite(row["value"]):
            found.setdefault(_key(row | {"finding": MACRO}), set()).add(row["finding"])
    return found


def _same_cases(one: PredictionArrays, two: PredictionArrays) -> bool:
    return (
        one.findings == two.findings
        and np.array_equal(one.image_ids, two.image_ids)
        and np.array_equal(one.patient_ids[one.patients], two.patient_ids[two.patients])
        and np.array_equal(one.y, two.y, equal_nan=True)
        and _same_weight(one, two)
    )


def _same_weight(one: PredictionArrays, two: PredictionArrays) -> bool:
    return _equal(one.weight, two.weight)


def _equal(one: Floats | None, two: Floats | None) -> bool:
    if one is None or two is None:
        return one is None and two is None
    return np.array_equal(one, two, equal_nan=True)


def _conflicting_columns(one: PredictionArrays, two: PredictionArrays) -> list[str]:
    """What is said differently of the same cases in both models; where a label is missing it does not matter."""
    known = ~np.isnan(one.y)

    def labelled(values: Floats | None) -> Floats | None:
        return None if values is None else np.where(known, values, np.nan)

    found = [] if _equal(labelled(one.pretest), labelled(two.pretest)) else ["pre-test probabilities"]
    found += [] if _equal(labelled(one.mention), labelled(two.mention)) else ["mentions"]
    found += [] if _equal(one.age, two.age) else ["ages"]
    names = sorted({*one.groups, *two.groups})
    there = [name for name in names if name in one.groups and name in two.groups]
    return found + [n for n in names if n not in there or not np.array_equal(one.groups[n], two.groups[n])]


def _common_samples(one: Sample, two: Sample, notes: list[str]) -> tuple[Sample, Sample] | None:
    """Both models on the images, findings and labels that both have, with what the first says of them."""
    who = f"{one.model} against {two.model}"
    findings = [name for name in one.data.findings if name in two.data.findings]
    _, at_one, at_two = np.intersect1d(one.data.image_ids, two.data.image_ids, return_indices=True)
    if len(at_one) == 0 or not findings:
        what = "image" if findings else "finding"
        notes.append(f"{who}: no {what} in common, so they are not compared; {what} names must match")
        return None
    a, b = _subset(one.data, at_one, findings), _subset(two.data, at_two, findings)
    theirs = a.patient_ids[a.patients] != b.patient_ids[b.patients]
    if theirs.any():
        notes.append(f"{who}: {int(theirs.sum()):,} images have a different patient in each table and are not compared")
        return None
    differ = (a.y != b.y) & ~np.isnan(a.y) & ~np.isnan(b.y)
    if differ.any():
        notes.append(
            f"{who}: {int(differ.sum()):,} labels differ between the models and are excluded from the comparison"
        )
    y = np.where(np.isnan(b.y) | differ, np.nan, a.y)
    if np.isnan(y).all():
        notes.append(f"{who}: no labelled image in common, so they are not compared")
        return None
    a, b = replace(a, y=y), replace(b, y=y)
    if unlike := [*([] if _same_weight(a, b) else ["weights"]), *_conflicting_columns(a, b)]:
        notes.append(f"{who}: they differ in {', '.join(unlike)}; the comparison uses those of {one.model}")
    if not _same_cases(one.data, replace(two.data, weight=one.data.weight)):
        notes.append(
            f"{who}: compared on the {len(at_one):,} images and {len(findings)} findings they share "
            f"({len(one.data.image_ids):,} and {len(two.data.image_ids):,} images given)"
        )
    b = replace(b, weight=a.weight, pretest=a.pretest, mention=a.mention, age=a.age, groups=a.groups)
    draws = draw(a.patients, y=y, n_resamples=one.settings.n_resamples, seed=one.settings.seed)
    return (
        replace(one, data=a, draws=draws, memory={}, keep=True),
        replace(two, data=b, draws=draws, memory={}, keep=True),
    )


def _subset(data: PredictionArrays, at: NDArray[np.intp], findings: list[str]) -> PredictionArrays:
    columns = np.array([data.findings.index(name) for name in findings], dtype=np.intp)
    block = np.ix_(at, columns)
    there, patients = np.unique(data.patients[at], return_inverse=True)
    return replace(
        data,
        findings=tuple(findings),
        image_ids=data.image_ids[at],
        patient_ids=data.patient_ids[there],
        patients=patients.reshape(-1).astype(np.int64),
        y=data.y[block],
        p=data.p[block],
        is_probability=data.is_probability[columns],
        pretest=None if data.pretest is None else data.pretest[block],
        mention=None if data.mention is None else data.mention[block],
        weight=None if data.weight is None else data.weight[block],
        age=None if data.age is None else data.age[at],
        groups={name: values[at] for name, values in data.groups.items()},
    )


# Audits of several runs (training or split seeds) of one model -> RESULT, CURVE: their mean and spread (IMBALANCE).
#
# Each run is audited on its own; its rows carry its seed in the model's name. Rows here carry the bare name, audit
# `imbalance` and no interval: value = mean over runs, `<metric>.sd` = their standard deviation (n - 1). That is how
# far runs differ, not a standard error: runs share patients, so it says little about other patients. What several
# audits give under one name is taken from `imbalance`, so precision, NPV and F1 are those at the max-F1 threshold.
# Curves `roc_mean` and `pr_mean` average sensitivity at equal false positive rates, and precision at equal recalls;
# their low and high are the mean less and plus one standard deviation.

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


def summarize_runs(runs: Sequence[AuditedSample]) -> AuditPart:
    """Mean and standard deviation over the runs of one model on one dataset, and their mean ROC and PR curves."""
    tables = [_by_key(run.rows) for run in runs]
    keys = list(dict.fromkeys(key for table in tables for key in table))
    if len(runs) < 2 or not keys:
        return AuditPart([], [], [])
    name = runs[0].sample.name
    rows = [row for key in keys for row in run_rows(name, [table.get(key) for table in tables], "imbalance")]
    seeds = ", ".join(str(run.sample.data.seed) for run in runs)
    note = (
        f"{name}: {len(runs)} runs (seeds {seeds}). Rows and curves named {name} are means over runs with their "
        "standard deviation. The SD shows how far runs differ; it is not a standard error, because runs share patients"
    )
    return AuditPart(rows, _curves([run.sample for run in runs]), [note])


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
    given = to_result_rows(row for row in rows if row is not None)
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
    agreed = {column: _shared_value(rows, column) for column in ("n", "n_pos", "n_patients")}
    return rows[0] | agreed | {"audit": audit, "model": name, "ci_low": None, "ci_high": None, "p_value": None}


def _shared_value(rows: Sequence[Row], column: str) -> int | None:
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
