"""One finding of one model -> CURVE: ROC and PR on a grid with bands, and reliability bins."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from cxrhf.audits.rows import Row
from cxrhf.audits.sample import Finding, Sample
from cxrhf.metrics.bands import pr_band, roc_band
from cxrhf.metrics.ranking import auroc
from cxrhf.metrics.reliability import reliability_table

Floats = NDArray[np.float64]

# Resamples behind the bands of a curve: a picture needs no more.
BAND = 400


def curves_of(sample: Sample, finding: Finding) -> list[Row]:
    """The curves of a finding, with bands from the first resamples. None without both classes."""
    y, p, weight = finding.y, finding.p, finding.weight
    if np.isnan(auroc(y, p, weight)):
        return []
    drawn = replace(sample.draws, unit=sample.draws.unit[finding.at], n_resamples=min(BAND, sample.draws.n_resamples))
    level = sample.settings.level
    found: dict[str, Sequence[Floats]] = {
        "roc": roc_band(y, p, weight, draws=drawn, level=level),
        "pr": pr_band(y, p, weight, draws=drawn, level=level),
    }
    if finding.is_probability:
        found["reliability"] = reliability_table(y, p, weight, level=level, clusters=finding.patients)[:4]
    head = {"model": sample.curve_model, "finding": finding.name, "slice": "all"}
    return [
        {**head, "kind": kind, "x": x, "y": up, "low": low, "high": high}
        for kind, columns in found.items()
        for x, up, low, high in zip(*(column.tolist() for column in columns), strict=True)
    ]
