"""A slice and the traits of its class -> which trait it is made of, and whether held-out patients confirm it.

A slice's own error is no evidence: vectors encode the score, so slices differ in error although nothing is hidden in
them. What counts, on patients that had no part in finding the slice: (i) the trait is more frequent in the slice than
in the rest of its class, and (ii) rows with the trait, wherever they are, have another error than rows without it, in
the slice's direction.

(ii) is a fact of the class and not of the slice: a trait, or its complement, is tested once for a class however many
slices of however many methods lead to it. Its p value is the larger of that of (ii), by permutation, and the smallest
of (i), times the number of its slices; over the facts of a model the share of false ones is held at 5%
(Benjamini-Hochberg). A slice stands with a fact that stands if its own p value of (i), times the same number, is at
most 5%.

Which pairs are looked at is decided on the patients to discover on: traits that are more frequent in the slice there
describe it, the clearest first, at most MOST a slice; those that have an error in its direction there as well, again at
most MOST, are tried. What is tried costs the others power.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from cxrhf.audits.slices.traits import Trait
from cxrhf.metrics.cluster_means import GapTest, MeanGap, mean_gap, permuted_gap
from cxrhf.metrics.estimates import FEW
from cxrhf.metrics.odds import Enrichment, enrichment

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]

MOST = 5  # traits tried for a slice
LEAST_INSIDE = 3  # patients of a slice who have a trait that describes it
SCREENED = 0.2  # p value on the discovery half above which a trait is not tried
PERMUTATIONS, TESTED = 999, 4_999  # of a fact that is described, and at least of one that is tested


class Rows(NamedTuple):
    """Rows of one class in one half: places in the sample, error, patient."""

    at: NDArray[np.intp]
    error: Floats
    patients: NDArray[np.int64]


class Tried(NamedTuple):
    """A slice and a trait on the patients to confirm on; `worse`: the slice has more error than its class."""

    trait: Trait
    enriched: Enrichment
    worse: bool


@dataclass(slots=True)
class Fact:
    """A trait of a class on the patients to confirm on; `test` once it was tested."""

    trait: Trait
    known: Flags
    has: Flags
    gap: MeanGap
    rows: Rows
    test: GapTest | None = None

    @property
    def few(self) -> bool:
        """Whether too few patients have it or lack it to confirm anything."""
        return min(self.gap.patients_with, self.gap.patients_without) < FEW

    def run_test(self, n_permutations: int, seed: int) -> None:
        """Deal the trait anew over the patients of whom it is known."""
        self.test = permuted_gap(
            self.rows.error[self.known], self.has[self.known], self.rows.patients[self.known],
            n_permutations=n_permutations, seed=seed,
        )  # fmt: skip

    def is_complement_of(self, other: Fact) -> bool:
        """Whether the two cut the same rows in the same two parts, named the other way round (sex=F, sex=M)."""
        return bool((self.known == other.known).all() and (self.has == (other.known & ~other.has)).all())

    def correlation(self, other: Fact) -> float:
        """Of two traits, over the rows of which both are known."""
        both = self.known & other.known
        x, y = self.has[both], other.has[both]
        if not 0 < x.sum() < len(x) or not 0 < y.sum() < len(y):
            return 0.0
        return float(np.corrcoef(x, y)[0, 1])


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
        p_gap = float(ndtr(-gap.t if worse else gap.t))  # rough, as no claim rests on it
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


def fact_of(rows: Rows, trait: Trait, level: float) -> Fact:
    """What a trait is to its class on the rows to confirm on."""
    known = trait.known[rows.at]
    has = trait.has[rows.at] & known
    return Fact(trait, known, has, mean_gap(rows.error[known], has[known], rows.patients[known], level=level), rows)


def tried(inside: Flags, fact: Fact, worse: bool, level: float) -> Tried:
    """A slice and a trait on the rows to confirm on."""
    known = fact.known
    return Tried(fact.trait, enrichment(inside[known], fact.has[known], fact.rows.patients[known], level=level), worse)


def merge_complements(facts: Sequence[Fact]) -> list[int]:
    """For each fact of a class the place of the first that says the same."""
    first: list[int] = []
    for at, fact in enumerate(facts):
        same = (k for k in range(at) if first[k] == k and fact.is_complement_of(facts[k]))
        first.append(next(same, at))
    return first


def _patients(rows: Rows, which: Flags) -> int:
    return int((np.bincount(rows.patients[which]) > 0).sum()) if which.any() else 0
