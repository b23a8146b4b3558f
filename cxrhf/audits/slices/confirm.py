"""A slice and the traits of its class -> which trait it is made of, and whether held-out patients confirm it.

A slice's own error is no evidence: vectors encode the score, so slices differ in error although nothing is hidden in
them. What counts, on patients that had no part in finding the slice: (i) the trait is more frequent in the slice than
in the rest of its class, and (ii) rows with the trait, wherever they are, have another error than rows without it, in
the slice's direction. Both must hold, so the p value of the pair is the larger of the two; over all pairs of a model
the share of false confirmations is held at 5% (Benjamini-Hochberg).

Which pairs are looked at is decided on the patients to discover on: traits that are more frequent in the slice there
describe it, the clearest first, at most MOST a slice; those that have an error in its direction there as well, again at
most MOST, are tried. What is tried costs the others power.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cxrhf.audits.slices.traits import Trait
from cxrhf.metrics.cluster_means import MeanGap, mean_gap
from cxrhf.metrics.estimates import FEW
from cxrhf.metrics.odds import Enrichment, enrichment

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]

MOST = 5  # traits tried for a slice
LEAST_INSIDE = 3  # patients of a slice who have a trait that describes it
SCREENED = 0.2  # p value on the discovery half above which a trait is not tried


class Rows(NamedTuple):
    """Rows of one class in one half: places in the sample, error, patient."""

    at: NDArray[np.intp]
    error: Floats
    patients: NDArray[np.int64]


class Tried(NamedTuple):
    """A slice and a trait on the patients to confirm on; `p_value` is of the pair, not corrected."""

    trait: Trait
    enriched: Enrichment
    gap: MeanGap
    p_value: float


class Candidate(NamedTuple):
    """A trait that enough patients of a class have and lack, in the rows to discover on, and its gap there."""

    trait: Trait
    known: Flags
    has: Flags
    gap: MeanGap


class Chosen(NamedTuple):
    """Traits of a slice: those that describe it, and those that are tried; one may be both."""

    described: list[Trait]
    tested: list[Trait]


def candidates(rows: Rows, traits: Sequence[Trait]) -> list[Candidate]:
    """What may describe the slices of a class, from the rows they were discovered on."""
    found = []
    for trait in traits:
        known, has = trait.known[rows.at], trait.has[rows.at]
        gap = mean_gap(rows.error[known], has[known], rows.patients[known])
        if min(gap.patients_with, gap.patients_without) >= FEW:
            found.append(Candidate(trait, known, has, gap))
    return found


def choose(inside: Flags, rows: Rows, among: Sequence[Candidate], worse: bool) -> Chosen:
    """The traits of a slice from the rows it was discovered on. `worse`: it has more error than its class."""
    frequent, both = list[tuple[float, float, Trait]](), list[tuple[float, float, Trait]]()
    for trait, known, has, gap in among:
        if _patients(rows, known & has & inside) < LEAST_INSIDE:
            continue
        found = enrichment(inside[known], has[known], rows.patients[known])
        if found.odds_ratio <= 1 or not found.p_value < SCREENED:
            continue
        frequent.append((found.p_value, -found.odds_ratio, trait))
        p_gap = gap.p_more if worse else gap.p_less
        if p_gap < SCREENED:
            both.append((max(found.p_value, p_gap), -found.odds_ratio, trait))
    return Chosen(_clearest(frequent), _clearest(both))


def _clearest(scored: list[tuple[float, float, Trait]]) -> list[Trait]:
    """One value of an attribute, the smallest p values first."""
    chosen: list[Trait] = []
    for _, _, trait in sorted(scored, key=lambda each: (each[0], each[1], each[2].name)):
        if len(chosen) < MOST and all(trait.attribute != other.attribute for other in chosen):
            chosen.append(trait)
    return chosen


def tried(inside: Flags, rows: Rows, trait: Trait, worse: bool, level: float) -> Tried:
    """A slice and a trait on the rows to confirm on."""
    known = trait.known[rows.at]
    has, patients = trait.has[rows.at][known], rows.patients[known]
    found = enrichment(inside[known], has, patients, level=level)
    gap = mean_gap(rows.error[known], has, patients, level=level)
    few = min(gap.patients_with, gap.patients_without) < FEW
    p_gap = float("nan") if few else (gap.p_more if worse else gap.p_less)
    return Tried(trait, found, gap, float(np.maximum(found.p_value, p_gap)))


def _patients(rows: Rows, which: Flags) -> int:
    return int((np.bincount(rows.patients[which]) > 0).sum()) if which.any() else 0
