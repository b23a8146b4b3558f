"""Two audited models on the same cases -> RESULT: paired differences of their numbers, first less second.

Both models were audited on the same draws of patients, so a difference is taken within each replicate and its interval
knows how alike the models are. Where the models were given different images or labels, both are audited again on what
they have in common; where they were given different weights, pre-test probabilities, mentions, ages or groups, with
those of the first, or strata and weighted numbers would be of other cases. Both is said. Whole-sample numbers are
tested; those of strata and subgroups have intervals only, and those with IPW weights, whose heavy rows make small p
values too frequent.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cxrhf.audits.rows import KEPT, MACRO, Audited, Part, Row, RowMaker
from cxrhf.audits.sample import Floats, Sample
from cxrhf.metrics.draws import draw
from cxrhf.metrics.estimates import settled
from cxrhf.schema import PredictionArrays

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


def compare(first: Audited, second: Audited, again: Callable[[Sample], list[Row]]) -> Part:
    """Differences of two models; `again` audits a sample where they must be brought to common ground first."""
    one, two = first.sample, second.sample
    notes: list[str] = []
    if not _same_cases(one.data, two.data) or _unlike(one.data, two.data):
        found = _common(one, two, notes)
        if found is None:
            return Part([], [], notes)
        one, two = found
        first, second = Audited(one, again(one)), Audited(two, again(two))
    make = RowMaker("compare", one)
    others = {_key(row): row for row in second.rows if KEPT in row}
    ours, theirs = _findings_of_means(first.rows), _findings_of_means(second.rows)
    rows: dict[Any, Row] = {}
    for row in first.rows:
        other = others.get(_key(row))
        name = f"{row['metric']} vs {row['versus']}" if row["versus"] else row["metric"]
        place = (name, row["finding"], row["slice"])
        if KEPT not in row or other is None or name not in COMPARED or place in rows:
            continue
        means = row["finding"] == MACRO
        if means and (_counted(row) != _counted(other) or ours.get(_key(row)) != theirs.get(_key(other))):
            continue  # means over different findings are not one number
        kept = row[KEPT]
        rows[place] = make.row(
            name,
            row["finding"],
            kept.counts,
            float(settled(row["value"] - other["value"])),
            settled(kept.replicates - other[KEPT].replicates),
            known=kept.known,
            weighting=kept.weighting,
            slice=row["slice"],
            versus=f"model={two.model}",
            tested=name in TESTED and row["slice"] == "all",
            units=kept.units,
            how=f"from the audit {row['audit']}",  # a rate is at the threshold of its audit
            note=row["note"] if means else None,
        )
    return Part(list(rows.values()), [], notes)


def _key(row: Row) -> tuple[Any, ...]:
    return tuple(row[name] for name in ("audit", "metric", "finding", "slice", "versus"))


def _counted(row: Row) -> str:
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


def _unlike(one: PredictionArrays, two: PredictionArrays) -> list[str]:
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


def _common(one: Sample, two: Sample, notes: list[str]) -> tuple[Sample, Sample] | None:
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
    if unlike := [*([] if _same_weight(a, b) else ["weights"]), *_unlike(a, b)]:
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
