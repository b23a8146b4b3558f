"""Labels and pre-test probabilities -> whether context can be held equal at all: the one rule, in plain words.

Weights that make the context of the classes alike can do so only where both classes are. They do not where the classes
hardly share a range of q, or where a few rows must stand for all others; then the number rests on those few.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cxrhf.audits.sample import Finding
from cxrhf.metrics.weighting import (
    LEAST_ROWS,
    LEAST_SHARE,
    Balance,
    EffectiveSize,
    att_weights,
    balance,
    effective_sample_size,
    ipw_weights,
)

Floats = NDArray[np.float64]

# Warn when positives and negatives share less than this of their distributions of q. Two classes wide apart, each with
# one value of q, keep all their effective rows: the sizes alone would not show it.
LEAST_OVERLAP = 0.2


class Overlap(NamedTuple):
    """Weights of each kind (the weight column included), what they leave, balance before them, and what is doubtful."""

    weights: dict[str, Floats]
    sizes: dict[str, EffectiveSize]
    before: Balance
    doubts: list[str]


def overlap_of(finding: Finding, q: Floats, prevalence: float = 0.5) -> Overlap:
    """`prevalence` sets the classes' share in the IPW weights; nothing said here depends on it."""
    y, weight = finding.y, finding.weight
    weights = {"att": weight * att_weights(y, q), "ipw": weight * ipw_weights(y, q, prevalence)}
    sizes = {name: effective_sample_size(each, y) for name, each in weights.items()}
    before = balance(y, q, weight)
    return Overlap(weights, sizes, before, _doubts(finding, sizes, before))


def _doubts(finding: Finding, sizes: dict[str, EffectiveSize], before: Balance) -> list[str]:
    if np.isnan(before.overlap):
        return []
    said = []
    if before.overlap < LEAST_OVERLAP:
        said.append(
            f"poor overlap: the pre-test probabilities of positives and negatives overlap by only {before.overlap:.0%}"
        )
    for name, size in sizes.items():
        for side, effective, there in (
            ("positives", size.positive, finding.counts.n_pos),
            ("negatives", size.negative, finding.counts.n - finding.counts.n_pos),
        ):
            share = effective / there if there else 1.0
            counted = f"{there:,} {side} count as {effective:,.0f} ({_percent(share)}) after weighting"
            if share < LEAST_SHARE:
                said.append(f"poor overlap ({name.upper()}): {counted}")
            elif there and effective < LEAST_ROWS:
                if share > 0.99:
                    counted = f"{there:,} images, at least {LEAST_ROWS} are needed"
                said.append(f"few {side} ({name.upper()}): {counted}")
    return said


def poor_overlap(finding: Finding) -> str | None:
    """The first reason why context cannot be held equal for a finding; None: it can, or there is no q."""
    if finding.pretest is None:
        return None
    known = finding.only(~np.isnan(finding.pretest))
    if known.counts.n == 0 or known.pretest is None:
        return None
    doubts = overlap_of(known, known.pretest).doubts
    return next((sentence for sentence in doubts if sentence.startswith("poor overlap")), None)


def _percent(share: float) -> str:
    return "under 1%" if share < 0.01 else f"{share:.0%}"
