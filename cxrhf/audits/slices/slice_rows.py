"""Slices of a class, by one method -> RESULT and SLICE rows: error, share, ends, traits, what is confirmed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cxrhf.audits.rows import Row, RowMaker
from cxrhf.audits.sample import Progress, Sample, count
from cxrhf.audits.slices.classes import Class, Flags, Floats
from cxrhf.audits.slices.confirm import (
    PERMUTATIONS,
    TESTED,
    Fact,
    Tried,
    candidates,
    choose,
    fact_of,
    merge_complements,
    tried,
)
from cxrhf.audits.slices.found import ticker
from cxrhf.audits.slices.traits import Trait
from cxrhf.metrics.multiplicity import benjamini_hochberg

CONFIRMED = 0.05
ALONG = 0.3  # correlation of two confirmed traits from which each is named beside the other
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
class Collected:
    """What the audit of one sample gathers.

    `facts`: what each trait is to a class (finding, side), once for all methods. `tests`: pairs of a slice and a trait
    whose p values await all others, with their class.
    """

    rows: list[Row] = field(default_factory=list)
    curves: list[Row] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    slices: list[Row] = field(default_factory=list)
    facts: dict[tuple[str, str], dict[str, Fact]] = field(default_factory=dict)
    tests: list[tuple[Row, Tried, tuple[str, str]]] = field(default_factory=list)
    gaps: list[tuple[Row, Fact]] = field(default_factory=list)


def slice_rows(
    make: RowMaker, group: Class, sliced: Sliced, known: Sequence[Trait], out: Collected, test: bool
) -> None:
    """Everything that is said of the slices of one class by one method; `test`: whether anything can be confirmed."""
    _error_rows(make, group, sliced, out)
    _ends(make, group, sliced, out)
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
            asked = tried(inside[group.shown_on], fact, worse, level)
            _trait_rows(make, group, f"{name} & {trait.name}", asked, out, test and trait.name in tested)
    for fact in described.values():
        row = _gap_row(make, group, fact)
        out.rows.append(row)
        out.gaps.append((row, fact))
    out.slices.extend(_members(make.sample, group, sliced))


def confirm(out: Collected, seed: int, progress: Progress) -> None:
    """Test every fact once, and say which pairs of slice and trait stand: 5% false ones over the facts of a model."""
    same: dict[int, Fact] = {}  # a fact -> the one that says the same of its class and is tested for both
    for by_name in out.facts.values():
        facts = list(by_name.values())
        same |= {id(fact): facts[k] for fact, k in zip(facts, merge_complements(facts), strict=True)}
    class_of: dict[int, list[Fact]] = {}
    pairs: dict[int, list[tuple[Row, Tried, Fact]]] = {}
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
            row.update(_confirmed(asked, fact, p_value, len(pairs), along))


def _fact_p(tested: Fact, pairs: Sequence[tuple[Row, Tried, Fact]]) -> float:
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
        if other.trait.attribute != fact.trait.attribute and abs(r := fact.correlation(other)) >= ALONG:
            found.append(f"{other.trait.name} (correlation {r:.2f})")
    return found


def _confirmed(asked: Tried, fact: Fact, p_value: float, n_facts: int, along: Sequence[str]) -> Row:
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


def _error_rows(make: RowMaker, group: Class, sliced: Sliced, out: Collected) -> None:
    """Error and share of each slice on the rows that are shown."""
    finding, shown = group.finding, group.shown_on
    inside = np.stack([shown & sliced.inside(place) for place in range(len(sliced.names))], axis=1)
    errors, shares = _drawn(make.sample, group, inside, shown)
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


def _drawn(sample: Sample, group: Class, inside: Flags, whole: Flags) -> tuple[Floats, Floats]:
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


def _ends(make: RowMaker, group: Class, sliced: Sliced, out: Collected) -> None:
    """The worst and the best slice, by bounds of their errors on the rows they were found on."""
    inside = np.stack([group.found_on & sliced.inside(place) for place in range(len(sliced.names))], axis=1)
    drawn, _ = _drawn(make.sample, group, inside, group.found_on)
    low, high = np.nanquantile(drawn, [0.025, 0.975], axis=0)
    for role, place, bound in (("worst", int(np.argmax(low)), low), ("best", int(np.argmin(high)), high)):
        counts = group.finding.only(inside[:, place]).counts
        name = sliced.names[place]
        how = f"{_BOUNDS[role]} of the error where the slices were found"
        out.rows.append(_plain(make.row(role, group.finding.name, counts, float(bound[place]), slice=name, how=how)))


def _trait_rows(make: RowMaker, group: Class, place: str, asked: Tried, out: Collected, test: bool) -> None:
    """How frequent a trait is in a slice; with `test` a row that will say whether it is confirmed."""
    found, counts = asked.enriched, _counts(group, asked.trait)
    name, level = group.finding.name, f"{make.sample.settings.level:.4g}"
    options: dict[str, Any] = {"slice": place}
    if np.isnan(found.odds_ratio):
        options["note"] = "undefined: no patient with a known value on one side"
    effect = "" if found.design_effect == 1 else f", counts divided by the design effect {found.design_effect:.2f}"
    ratio = _plain(make.row("odds_ratio", name, counts, found.odds_ratio, **options))
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
        out.rows.append(_plain(make.row(metric, name, counts, value, **options)) | {"n": n})
    if test:
        row = _plain(make.row("confirmed", name, counts, np.nan, **options))
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
    return _plain(row) | {
        "versus": f"{group.side} & {trait.other}", "ci_low": gap.low, "ci_high": gap.high, "p_value": None,
        "method": f"mean squared error of {group.side}s with it minus without it; {level} t, spread between patients "
        "or, if larger, of groups drawn from all; two-sided p by permutation over patients, not corrected",
    }  # fmt: skip


def _counts(group: Class, trait: Trait) -> Any:
    """Rows of which the trait is known."""
    rows = np.flatnonzero(group.shown_on & trait.known[group.finding.at])
    return count(group.finding.y[rows], group.finding.patients[rows])


def _plain(row: Row) -> Row:
    """A description, neither good nor bad."""
    return row | {"higher_is_better": None}


def _members(sample: Sample, group: Class, sliced: Sliced) -> list[Row]:
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
