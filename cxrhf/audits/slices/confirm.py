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

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from cxrhf.audits.material import Layer
from cxrhf.audits.rows import Row, RowMaker
from cxrhf.audits.sample import Finding, Progress, Sample, count
from cxrhf.audits.slices.found import ticker
from cxrhf.metrics.estimates import FEW
from cxrhf.metrics.intervals import benjamini_hochberg
from cxrhf.metrics.two_groups import Enrichment, GapTest, MeanGap, enrichment, mean_gap, permuted_gap
from cxrhf.tables.cells import AGE_BANDS, age_band

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]


MOST = 5  # traits tried for a slice
LEAST_INSIDE = 3  # patients of a slice who have a trait that describes it
SCREENING_P_VALUE = 0.2  # p value on the discovery half above which a trait is not tried
PERMUTATIONS, TESTED = 999, 4_999  # of a fact that is described, and at least of one that is tested


class Rows(NamedTuple):
    """Rows of one class in one half: places in the sample, error, patient."""

    at: NDArray[np.intp]
    error: Floats
    patients: NDArray[np.int64]


class TraitTest(NamedTuple):
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


class ChosenTraits(NamedTuple):
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


def choose(inside: Flags, rows: Rows, among: Sequence[Candidate], worse: bool) -> ChosenTraits:
    """The traits of a slice from the rows it was discovered on. `worse`: it has more error than its class."""
    frequent, both = list[tuple[float, float, Trait]](), list[tuple[float, float, Trait]]()
    for trait, known, has, gap in among:
        if _patients(rows, known & has & inside) < LEAST_INSIDE:
            continue
        found = enrichment(inside[known], has[known], rows.patients[known])
        if found.odds_ratio <= 1 or not found.p_value < SCREENING_P_VALUE:
            continue
        frequent.append((found.p_value, -found.odds_ratio, trait))
        p_gap = float(ndtr(-gap.t if worse else gap.t))  # rough, as no claim rests on it
        if p_gap < SCREENING_P_VALUE:
            both.append((max(found.p_value, p_gap), -found.odds_ratio, trait))
    return ChosenTraits(_best_per_attribute(frequent), _best_per_attribute(both))


def _best_per_attribute(scored: list[tuple[float, float, Trait]]) -> list[Trait]:
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


def evaluate_trait(inside: Flags, fact: Fact, worse: bool, level: float) -> TraitTest:
    """A slice and a trait on the rows to confirm on."""
    known = fact.known
    return TraitTest(
        fact.trait, enrichment(inside[known], fact.has[known], fact.rows.patients[known], level=level), worse
    )


def merge_complements(facts: Sequence[Fact]) -> list[int]:
    """For each fact of a class the place of the first that says the same."""
    first: list[int] = []
    for at, fact in enumerate(facts):
        same = (k for k in range(at) if first[k] == k and fact.is_complement_of(facts[k]))
        first.append(next(same, at))
    return first


def _patients(rows: Rows, which: Flags) -> int:
    return int((np.bincount(rows.patients[which]) > 0).sum()) if which.any() else 0


# A sample -> what can describe a slice: sex, race, view, age, other findings, mentions, devices, annotations.
#
# A trait is one value of one attribute (`view=AP`, `edema=1`, `drain=0`): which rows have it, and of which it is
# known.

# Values of one attribute that can be traits; more are no groups but ids or measurements.
MOST_TRAITS = 12


class Trait(NamedTuple):
    """`has` and `known` are of every row of the sample; `other` names the rows that lack it (`not view=AP`)."""

    name: str
    attribute: str
    other: str
    has: Flags
    known: Flags


def traits(sample: Sample, notes: list[str]) -> list[Trait]:
    """Every trait of a sample; attributes with too many values are left out, which is said."""
    data, found = sample.data, list[Trait]()
    for name in ("sex", "race", "view"):
        if name in data.groups:
            found += _of_values(name, data.groups[name].astype(str), notes)
    if data.age is not None and not np.isnan(data.age).all():
        code = age_band(data.age)
        found += _of_values("age", np.array([*AGE_BANDS, ""])[code], notes)
    for k, finding in enumerate(data.findings):
        found += _of_labels(finding, data.y[:, k])
        if data.mention is not None:
            found += _of_labels(f"prior mention of {finding}", data.mention[:, k])
    taken = {each.attribute for each in found}
    for name, values in sample.beside.attributes.items():
        found += _of_values(name if name not in taken else f"{name} (attribute)", values, notes)
    return found


def _of_labels(name: str, label: NDArray[np.float64]) -> list[Trait]:
    known = ~np.isnan(label)
    return [Trait(f"{name}={value}", name, f"{name}={1 - value}", label == value, known) for value in (0, 1)]


def _of_values(name: str, values: NDArray[np.str_], notes: list[str]) -> list[Trait]:
    known = values != ""
    there = sorted(set(values[known].tolist()))
    if len(there) > MOST_TRAITS:
        notes.append(f"{name}: {len(there):,} different values, too many to describe slices")
        return []
    if len(there) < 2:
        return []
    yes_or_no = there == ["0", "1"]
    return [
        Trait(
            f"{name}={value}",
            name,
            f"{name}={1 - int(value)}" if yes_or_no else f"not {name}={value}",
            values == value,
            known,
        )
        for value in there
    ]


# A finding, its vectors and the halves -> its positives and its negatives apart, ready to be sliced.

SIDES = (("positive", 1.0), ("negative", 0.0))
LEAST = 60  # rows of a class to discover on


class Class(NamedTuple):
    """Rows of one class that have a vector. `found_on` are to discover on, `shown_on` are those that numbers are of."""

    side: str
    finding: Finding
    vectors: Floats
    found_on: Flags
    shown_on: Flags

    @property
    def error(self) -> Floats:
        """Squared error of each row: of one class, so its mean is Brier+ or Brier-."""
        return np.asarray((self.finding.y - self.finding.p) ** 2)

    def rows(self, which: Flags) -> Rows:
        """Places, errors and patients of some of the rows."""
        return Rows(self.finding.at[which], self.error[which], self.finding.patients[which])

    def patients(self, which: Flags) -> int:
        """How many patients some of the rows are of."""
        return len(np.unique(self.finding.patients[which]))

    @property
    def too_few(self) -> str | None:
        """Why no slices can be found in it, if so."""
        n, patients = int(self.found_on.sum()), min(self.patients(self.found_on), self.patients(self.shown_on))
        if n >= LEAST and patients >= 2 * FEW:
            return None
        return f"{n} images of {patients} patients, at least {LEAST} of {2 * FEW} are needed"


def split_classes(sample: Sample, finding: Finding, layer: Layer, confirm: Flags | None) -> list[Class]:
    """Positives and negatives with their vectors, which are reduced where they are long.

    `confirm` marks the rows of the sample to confirm on; None: everything is done on all rows.
    """
    place = np.full(len(sample.data.image_ids), -1, dtype=np.intp)
    place[layer.at] = np.arange(len(layer.at))
    finding = finding.only(place[finding.at] >= 0)
    vectors = layer.vectors[place[finding.at]].astype(np.float64)
    everybody = np.ones(len(finding.at), dtype=bool)
    shown_on = everybody if confirm is None else confirm[finding.at]
    found_on = everybody if confirm is None else ~shown_on
    size = sample.settings.reduce
    found = [
        Class(side, finding.only(mine), vectors[mine], found_on[mine], shown_on[mine])
        for side, label in SIDES
        if (mine := finding.y == label).any()
    ]
    some = any(each.too_few is None for each in found)
    if some and vectors.shape[1] > size and len(np.unique(finding.y[found_on])) == 2:
        from cxrhf.audits.slices.found import fit_reduction

        text = f"{sample.model}: {finding.name}: a layer of {size} sigmoids"
        sample.progress(text)
        reduced = fit_reduction(
            vectors[found_on], finding.y[found_on], finding.patients[found_on], size=size, seed=sample.settings.seed,
            progress=lambda said: sample.progress(f"{text}: {said}"),
        )  # fmt: skip
        found = [each._replace(vectors=reduced(each.vectors)) for each in found]
    return found


# Slices of a class, by one method -> RESULT and SLICE rows: error, share, ends, traits, what is confirmed.

CONFIRMED = 0.05
LEAST_CORRELATION = 0.3  # correlation of two confirmed traits from which each is named beside the other
DISCOVER, CONFIRM = "discover", "confirm"
_BOUNDS = {"worst": "highest 2.5% bound", "best": "lowest 97.5% bound"}


class Sliced(NamedTuple):
    """Slices of one class: the slice of each row (a place in `names`, -1 = none), how much it belongs there."""

    method: str
    names: tuple[str, ...]
    code: NDArray[np.int64]
    weight: Floats

    def inside(self, place: int) -> Flags:
        """The rows of one slice."""
        return np.asarray(self.code == place)


@dataclass(frozen=True, slots=True)
class CollectedSlices:
    """What the audit of one sample gathers.

    `facts`: what each trait is to a class (finding, side), once for all methods. `tests`: pairs of a slice and a trait
    whose p values await all others, with their class.
    """

    rows: list[Row] = field(default_factory=list)
    curves: list[Row] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    slices: list[Row] = field(default_factory=list)
    facts: dict[tuple[str, str], dict[str, Fact]] = field(default_factory=dict)
    tests: list[tuple[Row, TraitTest, tuple[str, str]]] = field(default_factory=list)
    gaps: list[tuple[Row, Fact]] = field(default_factory=list)


def slice_rows(
    make: RowMaker, group: Class, sliced: Sliced, known: Sequence[Trait], out: CollectedSlices, test: bool
) -> None:
    """Everything that is said of the slices of one class by one method; `test`: whether anything can be confirmed."""
    _error_rows(make, group, sliced, out)
    _worst_and_best_rows(make, group, sliced, out)
    error, found_on = group.error, group.found_on
    level = make.sample.settings.level
    facts, described = out.facts.setdefault((group.finding.name, group.side), {}), dict[str, Fact]()
    found_rows, shown_rows = group.rows(found_on), group.rows(group.shown_on)
    among = candidates(found_rows, known)
    for place, name in enumerate(sliced.names):
        inside = sliced.inside(place)
        worse = bool(error[found_on & inside].mean() > error[found_on].mean())
        chosen = choose(inside[found_on], found_rows, among, worse)
        tested = {trait.name for trait in chosen.tested}
        for trait in {trait.name: trait for trait in (*chosen.tested, *chosen.described)}.values():
            if trait.name not in facts:
                facts[trait.name] = fact_of(shown_rows, trait, level)
            described[trait.name] = fact = facts[trait.name]
            asked = evaluate_trait(inside[group.shown_on], fact, worse, level)
            _trait_rows(make, group, f"{name} & {trait.name}", asked, out, test and trait.name in tested)
    for fact in described.values():
        row = _gap_row(make, group, fact)
        out.rows.append(row)
        out.gaps.append((row, fact))
    out.slices.extend(_member_rows(make.sample, group, sliced))


def confirm_traits(out: CollectedSlices, seed: int, progress: Progress) -> None:
    """Test every fact once, and say which pairs of slice and trait stand: 5% false ones over the facts of a model."""
    same: dict[int, Fact] = {}  # a fact -> the one that says the same of its class and is tested for both
    for by_name in out.facts.values():
        facts = list(by_name.values())
        same |= {id(fact): facts[k] for fact, k in zip(facts, merge_complements(facts), strict=True)}
    class_of: dict[int, list[Fact]] = {}
    pairs: dict[int, list[tuple[Row, TraitTest, Fact]]] = {}
    for row, asked, where in out.tests:
        fact = out.facts[where][asked.trait.name]
        class_of[id(fact)] = list(out.facts[where].values())
        pairs.setdefault(id(same[id(fact)]), []).append((row, asked, fact))
    tick, every = ticker(progress), {id(fact): fact for fact in same.values()}
    for k, (key, fact) in enumerate(every.items()):
        tick(f"testing attributes of slices: {k + 1} of {len(every)}")
        # Enough that the smallest p value possible passes Benjamini-Hochberg alone among all.
        fact.run_test(max(TESTED, round(2 / CONFIRMED) * len(pairs)) if key in pairs else PERMUTATIONS, seed)
    for row, fact in out.gaps:
        test = same[id(fact)].test
        assert test is not None
        p_value = 2 * min(test.p_more, test.p_less)
        row["p_value"] = None if np.isnan(p_value) else min(1.0, p_value)
    p_facts = [_fact_p(every[key], several) for key, several in pairs.items()]
    adjusted = benjamini_hochberg(p_facts).tolist() if p_facts else []
    stands: dict[int, float] = dict(zip(pairs, adjusted, strict=True))
    for key, several in pairs.items():
        for row, asked, fact in several:
            p_value = float(np.maximum(stands[key], min(1.0, asked.enriched.p_value * len(several))))
            along = _along(fact, class_of[id(fact)], same, stands)
            row.update(_confirmation_columns(asked, fact, p_value, len(pairs), along))


def _fact_p(tested: Fact, pairs: Sequence[tuple[Row, TraitTest, Fact]]) -> float:
    """The larger of the p values of the gap, in the slices' direction, and of being more frequent in one of them."""
    if tested.few or tested.test is None:
        return float("nan")
    _, asked, fact = pairs[0]  # all pairs have one direction: that of the gap where the slices were found
    more = asked.worse == (fact is tested)  # the complement's mean is higher where this one's is lower
    p_gap = tested.test.p_more if more else tested.test.p_less
    return float(np.maximum(p_gap, min(1.0, len(pairs) * min(asked.enriched.p_value for _, asked, _ in pairs))))


def _along(fact: Fact, of_class: Iterable[Fact], same: Mapping[int, Fact], stands: Mapping[int, float]) -> list[str]:
    """Other confirmed traits of the class that go along with a trait, and how much."""
    found = []
    for other in of_class:
        if same[id(other)] is same[id(fact)] or not stands.get(id(same[id(other)]), 1.0) <= CONFIRMED:
            continue
        if other.trait.attribute != fact.trait.attribute and abs(r := fact.correlation(other)) >= LEAST_CORRELATION:
            found.append(f"{other.trait.name} (correlation {r:.2f})")
    return found


def _confirmation_columns(asked: TraitTest, fact: Fact, p_value: float, n_facts: int, along: Sequence[str]) -> Row:
    """What a row says once all were tested."""
    found, gap = asked.enriched, fact.gap
    words = (
        f"{asked.trait.name}: {found.share_inside:.0%} of the slice, {found.share_outside:.0%} of the rest (odds "
        f"ratio {found.odds_ratio:.2g}); with it the mean squared error is {abs(gap.value):.3f} "
        f"{'higher' if gap.value > 0 else 'lower'} than without it"
    )
    few = bool(np.isnan(p_value))
    if along and p_value <= CONFIRMED:
        words += f"; it is correlated with {', '.join(along)}: either may be the reason"
    return {
        "value": np.nan if few else float(p_value <= CONFIRMED),
        "p_value": None if few else p_value,
        "method": f"gap in error by permutation over patients and odds ratio, one-sided; Benjamini-Hochberg over "
        f"{n_facts} traits of classes",
        "note": f"too few patients to confirm; {words}" if few else words,
    }


def _error_rows(make: RowMaker, group: Class, sliced: Sliced, out: CollectedSlices) -> None:
    """Error and share of each slice on the rows that are shown."""
    finding, shown = group.finding, group.shown_on
    inside = np.stack([shown & sliced.inside(place) for place in range(len(sliced.names))], axis=1)
    errors, shares = _error_replicates(make.sample, group, inside, shown)
    for place, name in enumerate(sliced.names):
        which = inside[:, place]
        counts = finding.only(which).counts
        out.rows.append(
            make.row(
                "brier", finding.name, counts, float(group.error[which].mean()), errors[:, place],
                known=f"brier_{group.side}", slice=name, how=f"mean squared error of {group.side}s",
            )
        )  # fmt: skip
        row = make.row(
            "share", finding.name, counts, float(which.sum() / shown.sum()), shares[:, place], known="prevalence",
            slice=name, units=finding.only(shown).counts.units, how=f"of the {group.side}s",
        )  # fmt: skip
        out.rows.append(row)


def _error_replicates(sample: Sample, group: Class, inside: Flags, whole: Flags) -> tuple[Floats, Floats]:
    """Replicates of the mean error of each column of rows and of its share of the whole, on shared draws."""
    unit, draws, size = sample.draws.unit[group.finding.at], sample.draws, inside.shape[1]
    sums = np.zeros((draws.n_units, 2 * size + 1), dtype=np.float32)
    np.add.at(sums, unit, np.concatenate([inside * group.error[:, None], inside, whole[:, None]], axis=1))
    there = np.flatnonzero(sums[:, -1] > 0)  # the other patients weigh nothing
    totals = []
    for start in range(0, draws.n_resamples, 256):
        counts = draws.counts(start, min(start + 256, draws.n_resamples), conditional=False)
        totals.append(counts[there].T.astype(np.float32) @ sums[there])
    drawn = np.concatenate(totals).astype(np.float64)
    errors, rows, everybody = drawn[:, :size], drawn[:, size:-1], drawn[:, -1:]
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(rows > 0, errors / rows, np.nan), np.where(everybody > 0, rows / everybody, np.nan)


def _worst_and_best_rows(make: RowMaker, group: Class, sliced: Sliced, out: CollectedSlices) -> None:
    """The worst and the best slice, by bounds of their errors on the rows they were found on."""
    inside = np.stack([group.found_on & sliced.inside(place) for place in range(len(sliced.names))], axis=1)
    drawn, _ = _error_replicates(make.sample, group, inside, group.found_on)
    low, high = np.nanquantile(drawn, [0.025, 0.975], axis=0)
    for role, place, bound in (("worst", int(np.argmax(low)), low), ("best", int(np.argmin(high)), high)):
        counts = group.finding.only(inside[:, place]).counts
        name = sliced.names[place]
        how = f"{_BOUNDS[role]} of the error where the slices were found"
        out.rows.append(
            _without_direction(make.row(role, group.finding.name, counts, float(bound[place]), slice=name, how=how))
        )


def _trait_rows(make: RowMaker, group: Class, place: str, asked: TraitTest, out: CollectedSlices, test: bool) -> None:
    """How frequent a trait is in a slice; with `test` a row that will say whether it is confirmed."""
    found, counts = asked.enriched, _counts(group, asked.trait)
    name, level = group.finding.name, f"{make.sample.settings.level:.4g}"
    options: dict[str, Any] = {"slice": place}
    if np.isnan(found.odds_ratio):
        options["note"] = "undefined: no patient with a known value on one side"
    effect = "" if found.design_effect == 1 else f", counts divided by the design effect {found.design_effect:.2f}"
    ratio = _without_direction(make.row("odds_ratio", name, counts, found.odds_ratio, **options))
    ratio |= {
        "ci_low": found.low, "ci_high": found.high,
        "p_value": None if np.isnan(found.p_value) else found.p_value,
        "method": f"slice against the rest of the {group.side}s; {level} log odds, spread between patients; one-sided "
        f"Fisher p, not corrected{effect}",
    }  # fmt: skip
    out.rows.append(ratio)
    for metric, value, n in (
        ("prevalence", found.share_inside, found.n_inside),
        ("prevalence_rest", found.share_outside, found.n_outside),
    ):
        out.rows.append(_without_direction(make.row(metric, name, counts, value, **options)) | {"n": n})
    if test:
        row = _without_direction(make.row("confirmed", name, counts, np.nan, **options))
        out.rows.append(row)
        out.tests.append((row, asked, (group.finding.name, group.side)))


def _gap_row(make: RowMaker, group: Class, fact: Fact) -> Row:
    """What a trait is to its class, wherever the slices are; its p value follows when all are tested."""
    trait, gap, level = fact.trait, fact.gap, f"{make.sample.settings.level:.4g}"
    note = None if np.isfinite(gap.low) else "fewer than two patients with it or without it"
    row = make.row(
        "brier_gap",
        group.finding.name,
        _counts(group, trait),
        gap.value,
        slice=f"{group.side} & {trait.name}",
        note=note,
    )
    return _without_direction(row) | {
        "versus": f"{group.side} & {trait.other}", "ci_low": gap.low, "ci_high": gap.high, "p_value": None,
        "method": f"mean squared error of {group.side}s with it minus without it; {level} t, spread between patients "
        "or, if larger, of groups drawn from all; two-sided p by permutation over patients, not corrected",
    }  # fmt: skip


def _counts(group: Class, trait: Trait) -> Any:
    """Rows of which the trait is known."""
    rows = np.flatnonzero(group.shown_on & trait.known[group.finding.at])
    return count(group.finding.y[rows], group.finding.patients[rows])


def _without_direction(row: Row) -> Row:
    """A description, neither good nor bad."""
    return row | {"higher_is_better": None}


def _member_rows(sample: Sample, group: Class, sliced: Sliced) -> list[Row]:
    """SLICE rows of everybody who is in a slice."""
    ids = sample.data.image_ids[group.finding.at]
    shared = {"model": sample.curve_model, "method": sliced.method, "finding": group.finding.name}
    confirms = group.shown_on & ~group.found_on
    return [
        shared
        | {
            "image_id": str(ids[at]), "slice": sliced.names[int(sliced.code[at])],
            "half": CONFIRM if confirms[at] else DISCOVER, "weight": float(sliced.weight[at]),
        }
        for at in np.flatnonzero(sliced.code >= 0).tolist()
    ]  # fmt: skip
