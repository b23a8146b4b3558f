"""What a network, or a new layer on it, says of a characteristic -> RESULT rows, and paired differences of two.

A characteristic is treated as a finding: each class against the rest is one (`race=Black`), two classes are one
(`sex=F`: `sex=M` is its mirror), and the mean over classes stands under the target's name (`race`). To read a
characteristic is neither good nor bad, so `higher_is_better` is null.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from cxrhf.audits.columns import drawn
from cxrhf.audits.compare import compare
from cxrhf.audits.rows import Audited, Part, Row, RowMaker, everything
from cxrhf.audits.sample import Progress, Sample, Settings
from cxrhf.metrics.draws import draw
from cxrhf.metrics.estimates import mean_over
from cxrhf.metrics.operating import rates_at
from cxrhf.metrics.ranking import auroc
from cxrhf.schema import PredictionArrays

NUMBERS = ("auroc", "tpr", "fpr", "j")


class Context(NamedTuple):
    """What all rows of the audit share."""

    settings: Settings
    workers: int | None
    progress: Progress


class Output(NamedTuple):
    """One network's outputs for the classes of one target, as a sample whose findings are the classes.

    `prefix` comes before the names of metrics (`split_`); `how` says how the output was learned, `at` whence its
    thresholds are.
    """

    sample: Sample
    target: str
    thresholds: Mapping[str, float]
    prefix: str
    how: str
    at: str
    note: str | None = None


def sample_of(context: Context, dataset: str | None, model: str, name: str, data: PredictionArrays) -> Sample:
    """Classes as findings, with draws of patients that are the same for every network on these images.

    The weight column is that of findings and is not used.
    """
    settings, data = context.settings, replace(data, weight=None)
    return Sample(
        dataset, model, data, draw(data.patients, y=data.y, n_resamples=settings.n_resamples, seed=settings.seed),
        settings, context.workers, context.progress, name=name, keep=True,
    )  # fmt: skip


class Measured(NamedTuple):
    """An output and its rows, whose metrics have no prefix as yet."""

    output: Output
    rows: list[Row]

    def named(self) -> list[Row]:
        """The rows as RESULT has them."""
        return [row | {"metric": self.output.prefix + row["metric"]} for row in self.rows]


def measure(output: Output) -> Measured:
    """AUROC, and TPR, FPR and J at the thresholds, of every class and of their mean."""
    return Measured(output, _rows(output))


def _rows(output: Output) -> list[Row]:
    sample = output.sample
    findings = sample.findings()
    thresholds = [output.thresholds[finding.name] for finding in findings]
    at = {name: {} if name == "auroc" else {"threshold": thresholds} for name in NUMBERS}
    replicates = drawn(sample, findings, at)
    make = RowMaker("encoding", sample)
    rows: list[Row] = []
    values: list[dict[str, float]] = []
    for finding, threshold, own in zip(findings, thresholds, replicates, strict=True):
        rates = None if np.isnan(threshold) else rates_at(finding.y, finding.p, threshold)
        found = {name: np.nan if rates is None else getattr(rates, name) for name in NUMBERS[1:]}
        values.append({"auroc": auroc(finding.y, finding.p)} | found)
        for name in NUMBERS:
            rate = name != "auroc"
            row = make.of(
                name, finding, values[-1][name], own[name], weighting=output.how, how=output.at if rate else None,
                note=output.note if rate and np.isfinite(values[-1][name]) else None,
            )  # fmt: skip
            rows.append(row | {"higher_is_better": None})
    if len(findings) < 2:
        return rows
    counts = everything(sample, findings)
    for name in NUMBERS:
        defined = [k for k, each in enumerate(values) if np.isfinite(each[name])]
        of = f"{len(defined)} of {len(findings)}" if len(defined) < len(findings) else f"{len(findings)}"
        said = f"mean of {of} classes, each against the rest"
        if not defined:
            row = make.row(name, output.target, counts, np.nan, note=f"{name} is undefined for all classes")
        else:
            units = [findings[k].counts.units for k in defined]
            mean = mean_over([replicates[k][name] for k in defined], units)
            row = make.row(
                name, output.target, counts, float(np.mean([values[k][name] for k in defined])), mean.replicates,
                units=mean.units, weighting=output.how, how=None if name == "auroc" else output.at, note=said,
            )  # fmt: skip
        rows.append(row | {"higher_is_better": None, "n_pos": None})
    return rows


def difference_rows(one: Measured, other: Measured, *, tested: bool) -> Part:
    """AUROC of the first less that of the second on the images that both have, patients drawn once for both."""
    outputs = {each.output.sample.model: each.output for each in (one, other)}

    def again(sample: Sample) -> list[Row]:
        return _rows(outputs[sample.model]._replace(sample=sample))

    first, second = (Audited(each.output.sample, each.rows) for each in (one, other))
    found = compare(first, second, again)
    target, prefix = one.output.target, one.output.prefix
    rows = [
        row
        | {
            "audit": "encoding",
            "metric": prefix + row["metric"],
            "p_value": row["p_value"] if tested else None,
            "method": row["method"].removesuffix("; from the audit encoding"),
            "n_pos": None if row["finding"] == target else row["n_pos"],
        }
        for row in found.rows
        if row["metric"] == "auroc"
    ]
    return Part(rows, [], [f"{target}: {note}" for note in found.notes])
