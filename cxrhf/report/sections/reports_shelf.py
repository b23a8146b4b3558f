"""Books of the audits of generated reports -> the models of a dataset, and their strategies side by side."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from cxrhf.report.book import DECODING, EMPTY, MACRO, REPORTS, Book, Cell, spellings
from cxrhf.report.figures.ink import Line
from cxrhf.report.numbers import known
from cxrhf.report.sections.view import Rows

REFERENCE = "reference"
# What the usual strategies do, for whoever reads their names; others keep the name they were given.
STRATEGIES = {
    "greedy": "the most probable token each time",
    "beam": "the most probable of several texts built in parallel (beam search)",
    "conservative": "sampled at a low temperature",
    "rich": "sampled at a medium temperature",
    "top_k": "sampled from a fixed number of the most probable tokens",
    "top_p": "sampled from the most probable tokens that together reach a given share (nucleus)",
    "as given": "reports given in the table",
}
_SEXES = {"f": "women", "female": "women", "w": "women", "m": "men", "male": "men"}


class Pair(NamedTuple):
    """Two groups whose words are compared, as rows name them; the first is positive."""

    group: str
    versus: str

    @property
    def name(self) -> str:
        """`Sex: F and M`; `Age: 60-80 and all others`."""
        head, _, value = self.group.partition("=")
        if " & " in self.group or not value:
            return f"{self.group} and all others" if self.rest else f"{self.group} and {self.versus}"
        other = "all others" if self.rest else self.versus.partition("=")[2] or self.versus
        return f"{head.capitalize()}: {value} and {other}"

    @property
    def rest(self) -> bool:
        """Whether the second group is everybody else."""
        return self.versus.startswith("not ") or "=not " in self.versus

    @property
    def people(self) -> str:
        """`women or men`; `patients with age 60-80 or all others`."""
        if self.rest:
            return f"{people(self.group)} or with all others"
        first, second = people(self.group), people(self.versus)
        return f"{first} or {second}"

    @property
    def signs(self) -> tuple[str, str]:
        """Short names of both sides, for heads of columns."""
        return short_group(self.group), "others" if self.rest else short_group(self.versus)


def people(group: str) -> str:
    """`sex=F` -> `women`; `age=60-80` -> `patients with age 60-80`."""
    head, _, value = group.partition("=")
    if head == "sex" and value.lower() in _SEXES:
        return _SEXES[value.lower()]
    return f"patients with {group.replace('=', ' ')}"


def short_group(group: str) -> str:
    """`sex=F` -> `F`; `sex=F & age=60-80` -> `F, 60-80`."""
    return ", ".join(part.partition("=")[2] or part for part in group.split(" & "))


@dataclass(frozen=True, slots=True)
class Writer:
    """The reports of one model: a book for each strategy in the order of the rows, and one of the references."""

    dataset: str
    model: str
    strategies: Sequence[Book]
    reference: Book
    lines: Mapping[tuple[str, str, str], Line]  # strategy, kind, slice
    words: Rows  # WORD rows of this model

    def get(self, strategy: Book, metric: str, pair: Pair | None = None) -> Cell:
        """A number of the whole sample, or of a pair of groups."""
        if pair is not None:
            return strategy.get(REPORTS, MACRO, metric, pair.versus, pair.group)
        return strategy.get(REPORTS, MACRO, metric)

    def has(self, metric: str, pair: Pair | None = None) -> bool:
        """Whether any strategy, or the references, have this number."""
        return any(self.get(each, metric, pair) is not EMPTY for each in (*self.strategies, self.reference))

    @property
    def pairs(self) -> list[Pair]:
        """Pairs of groups whose words were compared, that of the sexes first."""
        keys = (key for each in self.strategies for key in each.keys(REPORTS) if key[2] in ("n_associated", "erasure"))
        found = list(dict.fromkeys(Pair(key[3], key[4]) for key in keys if key[4]))
        return sorted(found, key=lambda pair: (" & " in pair.group, not pair.group.startswith("sex=")))

    @property
    def groups(self) -> list[str]:
        """Groups with numbers of their own."""
        found = (part for each in self.strategies for part in each.slices(REPORTS))
        return list(dict.fromkeys(found))

    def differences(self) -> list[tuple[str, str, str, str]]:
        """Metric, slice, versus and baseline of the numbers that are compared between strategies.

        `versus` is what RESULT has there: the baseline strategy, as `strategy=greedy`.
        """
        keys = (key for each in self.strategies for key in each.keys(DECODING))
        return list(dict.fromkeys((key[2], key[3], key[4], key[4].removeprefix("strategy=")) for key in keys))


def writers(books: Sequence[Book], curves: Rows, words: Rows) -> list[Writer]:
    """One for each dataset and model, in the order of the rows."""
    out = list[Writer]()
    for dataset, model in dict.fromkeys((book.dataset, book.model) for book in books):
        own = [book for book in books if (book.dataset, book.model) == (dataset, model)]
        strategies = [book for book in own if book.strategy not in (REFERENCE, "")]
        if not strategies:
            continue
        # References are nobody's: their rows may have the model's name or none.
        there = [book for book in books if book.dataset == dataset and book.strategy == REFERENCE]
        named = [book for book in there if book.model in (model, "")]
        reference = next(iter([*named, *there]), Book(dataset, model, strategy=REFERENCE))
        names = spellings(strategies[0])
        mine = [row for row in words if (row["model"] or "") in names]
        out.append(Writer(dataset, model, strategies, reference, _lines(curves, names), mine))
    return out


def _lines(curves: Iterable[Mapping[str, Any]], names: Sequence[str]) -> dict[tuple[str, str, str], Line]:
    """CURVE rows of a model's strategies -> lines by strategy, kind and slice."""
    points: dict[tuple[str, str, str], list[tuple[float, float]]] = {}
    for row in curves:
        strategy = row.get("strategy")
        if strategy and (row["model"] or "") in names and row["x"] is not None and row["y"] is not None:
            points.setdefault((strategy, row["kind"], row["slice"]), []).append((float(row["x"]), float(row["y"])))
    return {key: Line(*(list(column) for column in zip(*sorted(each), strict=True))) for key, each in points.items()}


def emergent(model: Writer, strategy: Book, pair: Pair, end: str = "") -> float:
    """New and flipped associations together."""
    return sum(model.get(strategy, f"{name}{end}", pair).value for name in ("new", "flip"))


def highest(model: Writer, metric: str, sign: int = 1) -> list[Book]:
    """Strategies with the highest (or, by `sign` -1, lowest) value of a metric; several where they tie."""
    values = {each.strategy: sign * model.get(each, metric).value for each in model.strategies}
    there = [value for value in values.values() if known(value)]
    return [each for each in model.strategies if there and values[each.strategy] == max(there)]
