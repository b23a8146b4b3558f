"""Scores and labels of a finding -> operating points, and the rates reached there with their replicates.

Three thresholds: the lowest that keeps the asked specificity, the one with the largest J and the one with the largest
F1. All are chosen on the rows they are applied to; replicates of the rates hold them fixed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cxrhf.audits.columns import drawn
from cxrhf.audits.rows import Row, RowMaker
from cxrhf.audits.sample import Finding, Sample
from cxrhf.metrics import operating

Floats = NDArray[np.float64]

SPECIFICITY = 0.95
AT = "sensitivity_at_specificity"
# Below so many negatives the conservative threshold keeps noticeably less specificity than asked on new patients.
ENOUGH_NEGATIVES = 400
OPTIMISTIC = "threshold chosen on these rows: optimistic"


class Rate(NamedTuple):
    """A rate at one of the thresholds: its name in the catalogue; a specificity is 1 - that."""

    threshold: str
    name: str
    complement: bool = False

    def of(self, value: Floats) -> Floats:
        return 1 - value if self.complement else value


# Another audit's thresholds are others, so these numbers are no audit's but the overview's.
RATES = {
    "precision": Rate(AT, "precision"),
    "npv": Rate(AT, "npv"),
    "mcc": Rate(AT, "mcc"),
    "j": Rate("youden_threshold", "j"),
    "youden_threshold.sensitivity": Rate("youden_threshold", "tpr"),
    "youden_threshold.specificity": Rate("youden_threshold", "fpr", True),
    "f1": Rate("max_f1_threshold", "f1"),
    "max_f1_threshold.sensitivity": Rate("max_f1_threshold", "tpr"),
    "max_f1_threshold.specificity": Rate("max_f1_threshold", "fpr", True),
}


class Points(NamedTuple):
    """The operating point at the asked specificity, the thresholds that are defined, and the rates there."""

    asked: operating.OperatingPoint
    thresholds: dict[str, float]
    values: dict[str, float]


def points_of(finding: Finding) -> Points:
    """Operating points of a finding; a rate is NaN where its threshold is undefined."""
    y, p, weight = finding.y, finding.p, finding.weight
    asked = operating.sensitivity_at_specificity(y, p, SPECIFICITY, weight)
    found = {
        AT: asked.threshold,
        "youden_threshold": operating.youden_threshold(y, p, weight),
        "max_f1_threshold": operating.max_f1_threshold(y, p, weight),
    }
    thresholds = {name: value for name, value in found.items() if not np.isnan(value)}
    reached = {name: operating.rates_at(y, p, value, weight) for name, value in thresholds.items()}
    values = dict.fromkeys(RATES, np.nan)
    for name, rate in RATES.items():
        if rate.threshold in reached:
            values[name] = float(rate.of(getattr(reached[rate.threshold], rate.name)))
    return Points(asked, thresholds, values)


def rate_replicates(
    sample: Sample, findings: Sequence[Finding], points: Sequence[Points], text: str = "resamples"
) -> list[dict[str, Floats]]:
    """Replicates of every finding's rates; `text` says what is going on meanwhile."""
    out: list[dict[str, Floats]] = [{} for _ in findings]
    for at in dict.fromkeys(rate.threshold for rate in RATES.values()):
        own = {name: rate for name, rate in RATES.items() if rate.threshold == at}
        thresholds = [point.thresholds.get(at, np.nan) for point in points]
        found = drawn(sample, findings, {rate.name: {"threshold": thresholds} for rate in own.values()}, text=text)
        for each, values in zip(out, found, strict=True):
            each |= {name: rate.of(values[rate.name]) for name, rate in own.items()}
    return out


def known(name: str) -> str:
    """The name in the catalogue."""
    return RATES[name].name if name in RATES else name


def rate_note(name: str, points: Points) -> str | None:
    """Which threshold a rate is given at."""
    if name not in RATES:
        return None
    if RATES[name].threshold == AT:
        return f"at the threshold {points.asked.threshold:.6g} of {AT}"
    return OPTIMISTIC


def directed(row: Row) -> Row:
    """A specificity has the range and the patients of a false positive rate but is better when high."""
    return row | {"higher_is_better": True} if row["metric"].split(".")[-1].startswith("specificity") else row


def threshold_rows(make: RowMaker, finding: Finding, points: Points) -> list[Row]:
    """The thresholds; with few negatives also what a safer one leaves of the sensitivity."""
    how = f"specificity {SPECIFICITY} requested"
    rows = [
        make.of(f"{AT}.threshold", finding, points.asked.threshold, how=how),
        directed(make.of(f"{AT}.specificity", finding, points.asked.specificity, how=how)),
    ]
    for name, entry in (("youden_threshold", "youden"), ("max_f1_threshold", "max_f1")):
        row = make.of(name, finding, points.thresholds.get(name, np.nan), known=entry)
        rows.append(row | {"higher_is_better": None})
    negatives = finding.counts.n - finding.counts.n_pos
    if 0 < negatives < ENOUGH_NEGATIVES and finding.counts.n_pos > 0:
        safer = operating.sensitivity_at_specificity(finding.y, finding.p, SPECIFICITY, finding.weight, "plus_one")
        expected = operating.false_positive_rate_to_expect(negatives, SPECIFICITY)
        note = (
            f"only {negatives} negatives: at the threshold of {AT} expect {expected:.1%} false positives among new "
            f"ones; this is the sensitivity at {safer.threshold:.6g}, where (false positives + 1)/(negatives + 1) is "
            f"at most {1 - SPECIFICITY:.2g}"
        )
        rows.append(make.of(f"{AT}.plus_one", finding, safer.sensitivity, known=AT, note=note))
    return rows


def options_of(name: str) -> Mapping[str, float]:
    """The engine's option of a metric."""
    return {"specificity": SPECIFICITY} if name == AT else {}
