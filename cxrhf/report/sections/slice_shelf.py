"""RESULT rows of the audit "slices" -> slices of each class by each method, with the traits that describe them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from cxrhf.report.book import EMPTY, Book, Cell
from cxrhf.report.numbers import known, number, percent

AUDIT = "slices"
_NAME = re.compile(r"^(?P<method>[^:]+):(?P<side>positive|negative)(?::(?P<k>\d+))?(?: & (?P<trait>.+))?$", re.DOTALL)
_TRAIT = ("prevalence", "prevalence_rest", "odds_ratio", "confirmed")

Gaps = dict[tuple[str, str], Cell]


@dataclass(frozen=True, slots=True)
class Trait:
    """What is over-represented in a slice: shares inside and in the rest of the class, and whether it was confirmed.

    `gap`: what the trait is to its class wherever the slices are.
    """

    name: str
    inside: Cell
    rest: Cell
    odds: Cell
    confirmed: Cell
    gap: Cell

    @property
    def attribute(self) -> str:
        """`drain=1` -> `drain`."""
        return self.name.rpartition("=")[0] or self.name

    @property
    def stands(self) -> bool:
        """Confirmed on held-out patients."""
        return self.confirmed.value == 1


@dataclass(frozen=True, slots=True)
class Slice:
    """One slice, by its place: 1 had the highest error where the slices were found."""

    name: str
    place: int
    brier: Cell
    share: Cell
    traits: list[Trait] = field(default_factory=list)

    @property
    def frequent(self) -> list[Trait]:
        """What is over-represented in it on held-out patients too; some stood out only where it was found."""
        return [trait for trait in self.traits if trait.stands or trait.odds.value > 1]


@dataclass(frozen=True, slots=True)
class Cut:
    """One class of one finding, cut into slices by one method."""

    finding: str
    method: str
    side: str
    count: Cell
    seconds: Cell
    slices: list[Slice]
    worst: Slice | None
    best: Slice | None

    @property
    def who(self) -> str:
        """Whose images these are."""
        return f"images {'with' if self.side == 'positive' else 'without'} the finding"

    @property
    def confirmed(self) -> list[tuple[Slice, Trait]]:
        """What stands, the largest odds ratio first."""
        found = [(each, trait) for each in self.slices for trait in each.traits if trait.stands]
        return sorted(found, key=lambda pair: -pair[1].odds.value if known(pair[1].odds.value) else 0.0)

    def called(self, each: Slice) -> str:
        """`slice 1 of 6, the worst`."""
        role = ", the worst" if each is self.worst else ", the best" if each is self.best else ""
        return f"slice {each.place} of {len(self.slices)}{role}"


def cuts(book: Book) -> list[Cut]:
    """Every class that was cut, in the order of the rows."""
    found: dict[tuple[str, str, str], dict[int, list[str]]] = {}
    roles: dict[tuple[str, str, str, str], int] = {}
    gaps: Gaps = {}
    for key in book.keys(AUDIT):
        _, finding, metric, part, versus = key
        if metric == "brier_gap":
            gaps[finding, part] = book.cells[key]
        parsed = _NAME.match(part)
        if parsed is None or versus:
            continue
        place = (finding, parsed["method"], parsed["side"])
        places = found.setdefault(place, {})
        if parsed["k"] is None:
            continue
        traits = places.setdefault(int(parsed["k"]), [])
        if metric in ("worst", "best"):
            roles[(*place, metric)] = int(parsed["k"])
        if metric in _TRAIT and parsed["trait"] and parsed["trait"] not in traits:
            traits.append(parsed["trait"])
    return [
        _cut(book, place, traits, gaps, [roles.get((*place, role), -1) for role in ("worst", "best")])
        for place, traits in found.items()
    ]


def _cut(book: Book, where: tuple[str, str, str], places: dict[int, list[str]], gaps: Gaps, ends: Sequence[int]) -> Cut:
    finding, method, side = where
    whole, made = f"{method}:{side}", dict[int, Slice]()
    for place in sorted(places):
        name = f"{whole}:{place}"
        brier, share = (book.get(AUDIT, finding, metric, slice=name) for metric in ("brier", "share"))
        traits = [_trait(book, finding, name, trait, gaps.get((finding, f"{side} & {trait}"), EMPTY))
                  for trait in places[place]]  # fmt: skip
        made[place] = Slice(name, place, brier, share, sorted(traits, key=_order))
    worst, best = (made.get(end) for end in ends)
    count, seconds = (book.get(AUDIT, finding, metric, slice=whole) for metric in ("n_slices", "seconds"))
    return Cut(finding, method, side, count, seconds, list(made.values()), worst, best)


def _trait(book: Book, finding: str, slice: str, trait: str, gap: Cell) -> Trait:
    inside, rest, odds, confirmed = (book.get(AUDIT, finding, metric, slice=f"{slice} & {trait}") for metric in _TRAIT)
    return Trait(trait, inside, rest, odds, confirmed, gap)


def _order(trait: Trait) -> tuple[bool, float]:
    return not trait.stands, -trait.odds.value if known(trait.odds.value) else 0.0


def trait_name(trait: str) -> str:
    """`drain=1` -> `drain`, `ecg_wires=0` -> `no ecg wires`, `sex=F` -> `sex F`."""
    head, equals, value = trait.rpartition("=")
    words = head.replace("_", " ")
    if not equals:
        return trait
    return words if value == "1" else f"no {words}" if value == "0" else f"{words} {value}"


def trait_words(trait: Trait) -> str:
    """`drain: 72% against 40%, odds ratio 3.9 (2.1 to 6.8)`."""
    words = f"{trait_name(trait.name)}: {percent(trait.inside.value, 0)} against {percent(trait.rest.value, 0)}"
    if not known(trait.odds.value):
        return words
    span = f" ({_odds(trait.odds.low)} to {_odds(trait.odds.high)})" if known(trait.odds.low) else ""
    return f"{words}, odds ratio {_odds(trait.odds.value)}{span}"


def _odds(value: float) -> str:
    """An odds ratio; where a cell is all but empty its size says nothing more."""
    return number(value, 1) if value < 100 else "over 1,000" if value > 1000 else f"{value:.0f}"


def gap_words(trait: Trait) -> str:
    """`0.120 (0.080 to 0.160) higher`, or nothing."""
    gap = trait.gap
    if not known(gap.value):
        return ""
    if gap.value >= 0:
        return f"{gap.with_interval()} higher"
    return f"{Cell(-gap.value, -gap.high, -gap.low).with_interval()} lower"


def confirmed_words(cut: Cut, part: Slice, trait: Trait, ways: str) -> str:
    """One thing that was confirmed, as a sentence."""
    gap = gap_words(trait)
    more = f"; with it the mean squared error of these images is {gap} than without it" if gap else ""
    return (
        f"among {cut.who}, {trait_name(trait.name)} is over-represented in {cut.called(part)} (found by {ways}): "
        f"{trait_words(trait).partition(': ')[2]}{more}."
    )
