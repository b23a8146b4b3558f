"""Slices that were found in each class -> what was confirmed, what the worst and best are made of, and every one."""

from __future__ import annotations

import base64
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from cxrhf.report.blocks import (
    LONG,
    Block,
    Column,
    Entry,
    Figure,
    Fold,
    Gallery,
    Section,
    Sentences,
    Table,
    Text,
    as_json,
    count_entry,
    entry,
    finding_name,
    fold_block,
    name_entry,
    percent_entry,
    words_entry,
)
from cxrhf.report.book import EMPTY, Book, Cell
from cxrhf.report.figures import CONTEXT, OVERALL, REMAINS, Axis, Dot, DotRow, Mark, by_count, dots
from cxrhf.report.numbers import format_number, format_percent, is_finite, join_names
from cxrhf.report.sections.view import Sentence, View

# RESULT rows of the audit "slices" -> slices of each class by each method, with the traits that describe them.

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
        return sorted(found, key=lambda pair: -pair[1].odds.value if is_finite(pair[1].odds.value) else 0.0)

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
    return not trait.stands, -trait.odds.value if is_finite(trait.odds.value) else 0.0


def trait_name(trait: str) -> str:
    """`drain=1` -> `drain`, `ecg_wires=0` -> `no ecg wires`, `sex=F` -> `sex F`."""
    head, equals, value = trait.rpartition("=")
    words = head.replace("_", " ")
    if not equals:
        return trait
    return words if value == "1" else f"no {words}" if value == "0" else f"{words} {value}"


def trait_words(trait: Trait) -> str:
    """`drain: 72% against 40%, odds ratio 3.9 (2.1 to 6.8)`."""
    shares = f"{format_percent(trait.inside.value, 0)} against {format_percent(trait.rest.value, 0)}"
    words = f"{trait_name(trait.name)}: {shares}"
    if not is_finite(trait.odds.value):
        return words
    span = f" ({_odds(trait.odds.low)} to {_odds(trait.odds.high)})" if is_finite(trait.odds.low) else ""
    return f"{words}, odds ratio {_odds(trait.odds.value)}{span}"


def _odds(value: float) -> str:
    """An odds ratio; where a cell is all but empty its size says nothing more."""
    return format_number(value, 1) if value < 100 else "over 1,000" if value > 1000 else f"{value:.0f}"


def gap_words(trait: Trait) -> str:
    """`0.120 (0.080 to 0.160) higher`, or nothing."""
    gap = trait.gap
    if not is_finite(gap.value):
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


# The main part.

_MOST_TOLD = 3  # confirmed things in the lead; the list below has all
_SHOWN = 3  # traits of a slice in a table
_CAREFUL = (
    "Each slice is within one class, so its Brier score is the mean squared error of that class alone; it is 0 if "
    "every image is scored correctly with certainty. A slice with a high Brier score is not evidence by itself: "
    "embeddings encode the score, so some slice always has one. A slice is confirmed if, on patients not used to "
    "find it, an attribute is over-represented in it and images with that attribute, in any slice, have an error "
    "that differs in the same direction. Each attribute of a class is tested once, by a permutation test over "
    "patients. At most 5% of the confirmed attributes are expected to be false."
)


def slices(view: View) -> Section | None:
    """The section, or None without the audit."""
    found = cuts(view.book)
    if not found:
        return None
    stands = distinct_confirmed_traits(found)
    blocks: list[Block] = [*_words(found, stands, view.first), Text(_CAREFUL, "muted"), *_tables(found)]
    if view.first:
        shown = {(cut.finding, cut.side): cut for cut, *_ in reversed(stands)}
        picture = traits_figure(view, list(shown.values())[::-1][:4], "slices")
        blocks += [picture] if picture else []
        blocks += gallery(view, found)
        folds = [Fold(finding_name(f), _finding_blocks(view, found, f)) for f in _findings(found)]
        blocks.append(Fold("Every slice, by finding", folds))
        compared = fold_block(_methods(found))
        blocks += [compared] if compared else []
    else:
        blocks.append(Text("Every slice of this model is in results.parquet.", "muted"))
    return Section(
        f"{view.ident}-slices",
        "Slices of images with the highest and lowest error",
        "Slices",
        _summary(found, stands),
        blocks,
    )


DistinctConfirmedTraits = list[tuple[Cut, Slice, Trait, str]]  # what was confirmed, and by which ways


def distinct_confirmed_traits(found: Sequence[Cut]) -> DistinctConfirmedTraits:
    """What was confirmed, the largest gap in error first; one attribute of a class is told once, where error is higher.

    The same is often found by several ways, and the other way round in the best slice (view PA there, AP in the worst).
    With thousands of images a gap that nobody would miss is beyond chance too: it stands last.
    """
    alike: dict[tuple[str, str, str], list[tuple[Cut, Slice, Trait]]] = {}
    for cut in found:
        for each, trait in cut.confirmed:
            alike.setdefault((cut.finding, cut.side, trait.attribute), []).append((cut, each, trait))
    out = []
    for several in alike.values():
        several.sort(key=lambda each: (not each[2].gap.value > 0, _p_value(each[2])))
        ways = dict.fromkeys(cut.method for cut, _, trait in several if trait.name == several[0][2].name)
        out.append((*several[0], join_names(list(ways))))
    return sorted(
        out, key=lambda each: (-abs(each[2].gap.value) if is_finite(each[2].gap.value) else 0.0, _p_value(each[2]))
    )


def _p_value(trait: Trait) -> float:
    return trait.confirmed.p_value if is_finite(trait.confirmed.p_value) else 1.0


def _findings(found: Sequence[Cut]) -> list[str]:
    """Those with something confirmed first."""
    names = list(dict.fromkeys(cut.finding for cut in found))
    stands = {cut.finding for cut in found if cut.confirmed}
    return sorted(names, key=lambda name: name not in stands)


def _summary(found: Sequence[Cut], stands: DistinctConfirmedTraits) -> list[str]:
    """What was confirmed, or that nothing was."""
    tried = [t for cut in found for each in cut.slices for t in each.traits if is_finite(t.confirmed.value)]
    if stands:
        words = [
            f"Confirmed. {finding_name(each[0].finding)}: {confirmed_words(*each)}" for each in stands[:_MOST_TOLD]
        ]
        more = len(stands) - _MOST_TOLD
        return [
            *words,
            *([f"{more} more {'is' if more == 1 else 'are'} confirmed: see the list below."] if more > 0 else []),
        ]
    if not tried:
        return [
            "Nothing was tested: no attribute of these images was over-represented where the slices were found, or "
            "slices were found and described on the same patients. Treat them as hypotheses."
        ]
    names = list(dict.fromkeys(finding_name(cut.finding) for cut in found))
    return [
        f"Nothing was confirmed: of {len(tried)} pairs of slice and attribute tested for {join_names(names)}, none is "
        "both over-represented in the slice and associated with a different error on held-out patients."
    ]


def _words(found: Sequence[Cut], stands: DistinctConfirmedTraits, first: bool) -> list[Block]:
    """Findings with something confirmed in the open, the others on demand."""
    clear, rest = list[Sentence](), list[Sentence]()
    for finding in _findings(found):
        own = [each for each in stands if each[0].finding == finding]
        if own:
            told = " ".join(_sentence(confirmed_words(*each)) for each in own)
            clear.append(Sentence(finding, told, "confirmed", "strong"))
        else:
            way = next(cut.method for cut in found if cut.finding == finding)
            cut = [cut for cut in found if cut.finding == finding and cut.method == way]
            rest.append(Sentence(finding, " ".join(filter(None, map(_worst_words, cut))), "not confirmed", "plain"))
    blocks: list[Block] = []
    if len(stands) > _MOST_TOLD:  # else the lead has said it
        blocks.append(
            Sentences("Confirmed slices in words", clear)
            if first
            else Fold("Confirmed slices in words", [Sentences("", clear)])
        )
    if rest:
        blocks.append(Fold(f"Not confirmed: {len(rest)} of {len(rest) + len(clear)} findings", [Sentences("", rest)]))
    return blocks


def _sentence(words: str) -> str:
    return words[:1].upper() + words[1:]


def _worst_words(cut: Cut) -> str:
    if cut.worst is None:
        return ""
    words = f"{_sentence(cut.who)}: the worst slice has a Brier score of {cut.worst.brier.with_interval()}"
    traits = [trait_words(trait) for trait in cut.worst.frequent[:1]]
    return f"{words}; over-represented in it: {traits[0]}." if traits else f"{words}; no attribute is over-represented."


def _tables(found: Sequence[Cut]) -> list[Block]:
    """Worst and best slices; of many those with something confirmed in the open."""
    whole, clear = _worst_and_best(found), _worst_and_best([cut for cut in found if cut.confirmed])
    if whole is None or len(whole.rows) <= LONG:
        return [whole] if whole else []
    caption = "Worst and best slices with a confirmed attribute"
    opened = [replace(clear, caption=caption)] if clear and len(clear.rows) <= LONG else []
    return [*opened, Fold(f"{whole.caption} ({len(whole.rows)} rows)", [whole])]


def _worst_and_best(found: Sequence[Cut]) -> Table | None:
    rows = []
    for cut in sorted(found, key=lambda each: not each.confirmed):
        for each in dict.fromkeys(end.place for end in (cut.worst, cut.best) if end is not None):
            part = next(one for one in cut.slices if one.place == each)
            shown = _row(part, f"{_role(cut, part)}, {part.place}")
            rows.append([name_entry(cut.finding), words_entry(_cut_words(cut)), *shown])
    columns = [
        Column("Finding"), Column("Images", "Class, and the method that found the slices", True), *_COLUMNS,
    ]  # fmt: skip
    return Table("Worst and best slices", columns, rows) if rows else None


_COLUMNS = (
    Column("Slice", "1 = highest error where the slices were found", True),
    Column("Brier", "Mean squared error of this class in the slice, on held-out patients"),
    Column("Images in it"),
    Column("Share", "Of the class"),
    Column("Over-represented", "Share in the slice and in the rest of the class, with the odds ratio", True),
    Column("Result", "Whether held-out patients confirm it", True),
)


def _cut_words(cut: Cut) -> str:
    return f"finding {'present' if cut.side == 'positive' else 'absent'}, {cut.method}"


def _row(each: Slice, name: str) -> list[Entry]:
    patients = f"{each.brier.n_patients:,} patients" if each.brier.n_patients else ""
    traits = each.frequent[:_SHOWN]
    told, *more = [trait_words(trait) for trait in traits] or ["no attribute"]
    return [
        words_entry(name),
        entry(each.brier),
        count_entry(each.brier.n, patients),
        percent_entry(each.share.value),
        words_entry(told, below="\n".join(more)),
        _result(traits),
    ]


def _result(traits: Sequence[Trait]) -> Entry:
    stands = [trait_name(trait.name) for trait in traits if trait.stands]
    if stands:
        return Entry("confirmed", join_names(stands), key="0", words=True, strong=True)
    return Entry("not confirmed" if traits else "", key="1", words=True)


def _finding_blocks(view: View, found: Sequence[Cut], finding: str) -> list[Block]:
    """Everything of one finding."""
    own = [cut for cut in found if cut.finding == finding]
    picture = None if any(cut.confirmed for cut in own) else traits_figure(view, own[:2], "")
    rows = [
        [words_entry(f"{_cut_words(cut)}: {each.place}")._replace(words=False), *_row(each, _role(cut, each))]
        for cut in own
        for each in cut.slices
    ]
    columns = [Column("Slice"), Column("Role", "", True), *_COLUMNS[1:]]
    blocks: list[Block] = [picture] if picture else []
    blocks.append(Table(f"Slices of {finding_name(finding)}", columns, rows, by_finding=False))
    notes = list(dict.fromkeys(f"{_cut_words(cut)}: {cut.count.note}" for cut in own if cut.count.note))
    blocks += [Text(f"Number of slices: {'; '.join(notes)}.", "muted")] if notes else []
    curves = clusters(view, finding)
    return [*blocks, *([curves] if curves else [])]


def _role(cut: Cut, each: Slice) -> str:
    return " and ".join(role for role, end in (("worst", cut.worst), ("best", cut.best)) if end is each)


def _methods(found: Sequence[Cut]) -> Table | None:
    """Ways to find slices side by side."""
    if len({cut.method for cut in found}) < 2:
        return None
    rows = []
    for cut in found:
        worst = max((each.brier.value for each in cut.slices if is_finite(each.brier.value)), default=float("nan"))
        rows.append(
            [
                name_entry(cut.finding), words_entry(cut.side), words_entry(cut.method), count_entry(cut.count.value),
                Entry(format_number(cut.seconds.value, 1)), Entry(format_number(worst)), Entry(str(len(cut.confirmed))),
            ]
        )  # fmt: skip
    columns = [
        Column("Finding"), Column("Class", "", True), Column("Method", "", True), Column("Slices"),
        Column("Seconds", "To find them"), Column("Worst Brier", "Highest of any slice, on held-out patients"),
        Column("Confirmed", "Pairs of a slice and an attribute"),
    ]  # fmt: skip
    return Table("Slice discovery methods compared", columns, rows)


# Traits of the worst and best slices, and the gap statistic -> pictures.

_ROWS = 8
_LEGEND = ((REMAINS, "worst slice"), (OVERALL, "best slice"), (CONTEXT, "rest of the class"))


def traits_figure(view: View, found: Sequence[Cut], file: str) -> Figure | None:
    """How frequent attributes and other findings are in the worst against the best slice, a panel a class."""
    panels = []
    for cut in found:
        rows = _rows(cut)
        if not rows:
            continue
        side = "present" if cut.side == "positive" else "absent"
        title = f"{finding_name(cut.finding)} {side} ({cut.method})"
        axis = Axis("share of the images", 0.0, 1.0, floor=0.0, ceiling=1.0)
        ident = f"{view.ident}-made-{'c' if file else 'o'}-{_slug(cut)}"
        panels.append((title, dots(rows, axis, ident=ident, title=title, lane=15)))
    caption = "On held-out patients. The figure shows attributes that were over-represented when the slices were found."
    return Figure("Attributes of the worst and best slices", panels, _LEGEND, caption, file=file) if panels else None


def _slug(cut: Cut) -> str:
    name = f"{cut.finding}-{cut.method}-{cut.side}"
    return "".join(letter if letter.isascii() and letter.isalnum() else f"-{ord(letter):x}-" for letter in name)


def _rows(cut: Cut) -> list[DotRow]:
    """One row an attribute, those that differ most first."""
    ends = [("worst", REMAINS, cut.worst), ("best", OVERALL, cut.best)]
    names = dict.fromkeys(trait.name for _, _, each in ends if each for trait in each.frequent)
    scored = []
    for name in names:
        lanes, most = [], 0.0
        for role, kind, each in ends:
            marks = _marks(each, name, kind, role) if each else []
            if marks:
                lanes.append((role, marks))
                most = max(most, abs(marks[0].mark.value - marks[-1].mark.value))
        if lanes:
            scored.append((-most, DotRow(trait_name(name), lanes, finding=finding_name(cut.finding))))
    return [row for _, row in sorted(scored, key=lambda each: each[0])[:_ROWS]]


def _marks(each: Slice, name: str, kind: str, role: str) -> list[Dot]:
    trait = next((trait for trait in each.traits if trait.name == name), None)
    if trait is None or not is_finite(trait.inside.value):
        return []
    shown = trait_name(name)
    found = [Dot(kind, trait.inside.mark, f"{shown}, {role} slice")]
    if is_finite(trait.rest.value):
        found.append(Dot(CONTEXT, Mark(trait.rest.value), f"{shown}, rest of the class"))
    return found


def clusters(view: View, finding: str) -> Figure | None:
    """Whether the vectors of a class fall into clusters at all."""
    panels = []
    for side in ("positive", "negative"):
        curve = view.line(finding, "gap_statistic", side)
        if curve is None:
            continue
        chosen = view.get(AUDIT, finding, "gap_statistic.k", slice=side).value
        words = f"Gap statistic, finding {'present' if side == 'positive' else 'absent'}"
        about = f"{chosen:.0f} clusters" if is_finite(chosen) else "no number of clusters"
        ident = f"{view.ident}-gap-{side}-{view.book.findings.index(finding)}"
        title = f"{words}: {about}"
        panels.append((title, by_count(curve, chosen=chosen, up="gap", ident=ident, title=title, about=about)))
    caption = "How much tighter clusters are than in embeddings without clusters. Dashed: the chosen number (1 = none)."
    return Figure("", panels, (), caption, size="small") if panels else None


# GALLERY rows -> thumbnails of the worst and best slices with controls to label them, else how to fill a sheet.

SHEETS = (
    "This page does not show images of these slices. It shows images only if the data may be shown and their build "
    "folder was passed to cxrhf audit. To name what is in a slice, use a sheet in RUN/labelling. It lists images of "
    "the worst and best slice of a class without revealing which is which. Name its empty column after the attribute "
    "you look for (for example ecg_wires), write 1 or 0 for each image you have checked, and run: cxrhf audit RUN "
    "--annotations RUN/labelling/SHEET.csv"
)


def gallery(view: View, found: Sequence[Cut]) -> list[Block]:
    """The gallery; without thumbnails that may be shown, a sentence on sheets."""
    rows = view.own(view.gallery) if view.may_show else []
    if not rows:
        return [Text(SHEETS, "muted")]
    pictures: dict[str, int] = {}
    sources: list[str] = []
    groups: dict[tuple[str, str, str], dict[str, Any]] = {}
    by_slice = {(cut.finding, each.name): (cut, each) for cut in found for each in cut.slices}
    for row in rows:
        at = pictures.get(row["image_id"])
        if at is None:
            at = pictures[row["image_id"]] = len(sources)
            sources.append(base64.b64encode(row["thumbnail"]).decode())
        method, _, rest = row["slice"].partition(":")
        side = rest.partition(":")[0]
        key = (row["finding"], method, side)
        group = groups.setdefault(key, {"finding": finding_name(row["finding"]), "key": row["finding"],
                                        "part": _part(side, method), "parts": []})  # fmt: skip
        part = next((each for each in group["parts"] if each["slice"] == row["slice"]), None)
        if part is None:
            about = (
                _about(*by_slice[row["finding"], row["slice"]]) if (row["finding"], row["slice"]) in by_slice else ""
            )
            part = {"slice": row["slice"], "role": row["role"], "about": about, "images": []}
            group["parts"].append(part)
        if at not in part["images"]:
            part["images"].append(at)
    data = {"ids": list(pictures), "sources": sources, "groups": list(groups.values())}
    names = list(dict.fromkeys(group["finding"] for group in groups.values()))
    return [Gallery(f"{view.ident}-gallery", names, as_json(data), len(sources))]


def _part(side: str, method: str) -> str:
    return f"finding {'present' if side == 'positive' else 'absent'} ({method})"


def _about(cut: Cut, each: Slice) -> str:
    """What the numbers say of a slice, in a few words."""
    words = [f"slice {each.place} of {len(cut.slices)}"]
    words += [f"Brier {format_number(each.brier.value)}"] if is_finite(each.brier.value) else []
    traits = ", ".join(trait_name(trait.name) for trait in each.frequent[:3])
    return "; ".join([*words, *([f"over-represented: {traits}"] if traits else [])])
