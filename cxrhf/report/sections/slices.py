"""Slices that were found in each class -> what was confirmed, what the worst and best are made of, and every one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from cxrhf.report.blocks import (
    LONG,
    Block,
    Column,
    Entry,
    Fold,
    Said,
    Section,
    Table,
    Text,
    count_entry,
    entry,
    finding_name,
    folded,
    name_entry,
    percent_entry,
    words_entry,
)
from cxrhf.report.numbers import known, listed, number
from cxrhf.report.sections.gallery import gallery
from cxrhf.report.sections.slice_pictures import clusters, made_of
from cxrhf.report.sections.slice_shelf import Cut, Slice, Trait, confirmed_words, cuts, trait_name, trait_words
from cxrhf.report.sections.view import View
from cxrhf.report.words import Sentence

_TOLD = 3  # confirmed things in the lead; the list below has all
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
    stands = standing(found)
    blocks: list[Block] = [*_words(found, stands, view.first), Text(_CAREFUL, "muted"), *_tables(found)]
    if view.first:
        shown = {(cut.finding, cut.side): cut for cut, *_ in reversed(stands)}
        picture = made_of(view, list(shown.values())[::-1][:4], "slices")
        blocks += [picture] if picture else []
        blocks += gallery(view, found)
        folds = [Fold(finding_name(f), _of_finding(view, found, f)) for f in _findings(found)]
        blocks.append(Fold("Every slice, by finding", folds))
        compared = folded(_methods(found))
        blocks += [compared] if compared else []
    else:
        blocks.append(Text("Every slice of this model is in results.parquet.", "muted"))
    return Section(
        f"{view.ident}-slices",
        "Slices of images with the highest and lowest error",
        "Slices",
        _lead(found, stands),
        blocks,
    )


Standing = list[tuple[Cut, Slice, Trait, str]]  # what was confirmed, and by which ways


def standing(found: Sequence[Cut]) -> Standing:
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
        out.append((*several[0], listed(list(ways))))
    return sorted(
        out, key=lambda each: (-abs(each[2].gap.value) if known(each[2].gap.value) else 0.0, _p_value(each[2]))
    )


def _p_value(trait: Trait) -> float:
    return trait.confirmed.p_value if known(trait.confirmed.p_value) else 1.0


def _findings(found: Sequence[Cut]) -> list[str]:
    """Those with something confirmed first."""
    names = list(dict.fromkeys(cut.finding for cut in found))
    stands = {cut.finding for cut in found if cut.confirmed}
    return sorted(names, key=lambda name: name not in stands)


def _lead(found: Sequence[Cut], stands: Standing) -> list[str]:
    """What was confirmed, or that nothing was."""
    tried = [t for cut in found for each in cut.slices for t in each.traits if known(t.confirmed.value)]
    if stands:
        words = [f"Confirmed. {finding_name(each[0].finding)}: {confirmed_words(*each)}" for each in stands[:_TOLD]]
        more = len(stands) - _TOLD
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
        f"Nothing was confirmed: of {len(tried)} pairs of slice and attribute tested for {listed(names)}, none is both "
        "over-represented in the slice and associated with a different error on held-out patients."
    ]


def _words(found: Sequence[Cut], stands: Standing, first: bool) -> list[Block]:
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
    if len(stands) > _TOLD:  # else the lead has said it
        blocks.append(
            Said("Confirmed slices in words", clear) if first else Fold("Confirmed slices in words", [Said("", clear)])
        )
    if rest:
        blocks.append(Fold(f"Not confirmed: {len(rest)} of {len(rest) + len(clear)} findings", [Said("", rest)]))
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
    whole, clear = _ends(found), _ends([cut for cut in found if cut.confirmed])
    if whole is None or len(whole.rows) <= LONG:
        return [whole] if whole else []
    caption = "Worst and best slices with a confirmed attribute"
    opened = [replace(clear, caption=caption)] if clear and len(clear.rows) <= LONG else []
    return [*opened, Fold(f"{whole.caption} ({len(whole.rows)} rows)", [whole])]


def _ends(found: Sequence[Cut]) -> Table | None:
    rows = []
    for cut in sorted(found, key=lambda each: not each.confirmed):
        for each in dict.fromkeys(end.place for end in (cut.worst, cut.best) if end is not None):
            part = next(one for one in cut.slices if one.place == each)
            shown = _row(part, f"{_role(cut, part)}, {part.place}")
            rows.append([name_entry(cut.finding), words_entry(_whose(cut)), *shown])
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


def _whose(cut: Cut) -> str:
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
        return Entry("confirmed", listed(stands), key="0", words=True, strong=True)
    return Entry("not confirmed" if traits else "", key="1", words=True)


def _of_finding(view: View, found: Sequence[Cut], finding: str) -> list[Block]:
    """Everything of one finding."""
    own = [cut for cut in found if cut.finding == finding]
    picture = None if any(cut.confirmed for cut in own) else made_of(view, own[:2], "")
    rows = [
        [words_entry(f"{_whose(cut)}: {each.place}")._replace(words=False), *_row(each, _role(cut, each))]
        for cut in own
        for each in cut.slices
    ]
    columns = [Column("Slice"), Column("Role", "", True), *_COLUMNS[1:]]
    blocks: list[Block] = [picture] if picture else []
    blocks.append(Table(f"Slices of {finding_name(finding)}", columns, rows, by_finding=False))
    notes = list(dict.fromkeys(f"{_whose(cut)}: {cut.count.note}" for cut in own if cut.count.note))
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
        worst = max((each.brier.value for each in cut.slices if known(each.brier.value)), default=float("nan"))
        rows.append(
            [
                name_entry(cut.finding), words_entry(cut.side), words_entry(cut.method), count_entry(cut.count.value),
                Entry(number(cut.seconds.value, 1)), Entry(number(worst)), Entry(str(len(cut.confirmed))),
            ]
        )  # fmt: skip
    columns = [
        Column("Finding"), Column("Class", "", True), Column("Method", "", True), Column("Slices"),
        Column("Seconds", "To find them"), Column("Worst Brier", "Highest of any slice, on held-out patients"),
        Column("Confirmed", "Pairs of a slice and an attribute"),
    ]  # fmt: skip
    return Table("Slice discovery methods compared", columns, rows)
