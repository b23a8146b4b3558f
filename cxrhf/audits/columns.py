"""Rows of findings -> the matrices the engine takes: one row an image of the sample, one column a finding."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from cxrhf.audits.sample import Finding, Sample
from cxrhf.metrics.resample import Option, bootstrap_many

Floats = NDArray[np.float64]


def columns(sample: Sample, findings: Sequence[Finding], values: Sequence[Floats], missing: float = np.nan) -> Floats:
    """Values of each finding's rows at their places in the sample."""
    out = np.full((len(sample.data.image_ids), len(findings)), missing)
    for k, (finding, own) in enumerate(zip(findings, values, strict=True)):
        out[finding.at, k] = own
    return out


def labels_of(sample: Sample, findings: Sequence[Finding]) -> Floats:
    """Their labels, NaN where a finding has none."""
    return columns(sample, findings, [finding.y for finding in findings])


def drawn(
    sample: Sample,
    findings: Sequence[Finding],
    metrics: Mapping[str, Mapping[str, Option]],
    weights: Sequence[Floats] | None = None,
    scores: Sequence[Floats] | None = None,
    text: str = "resamples",
) -> list[dict[str, Floats]]:
    """Replicates of the metrics of every finding; with weights or scores of its rows other than its own.

    `text` says what is going on while the replicates are made.
    """
    if not findings:
        return []
    if weights is None and sample.data.weight is not None:
        weights = [finding.weight for finding in findings]
    found = bootstrap_many(
        metrics,
        labels_of(sample, findings),
        columns(sample, findings, [finding.p for finding in findings] if scores is None else scores),
        None if weights is None else columns(sample, findings, weights, 0.0),
        draws=sample.draws,
        workers=sample.workers,
        progress=sample.ticking(f"{sample.model}: {text}", 1),
    )
    return [{name: values[:, k] for name, values in found.items()} for k in range(len(findings))]
