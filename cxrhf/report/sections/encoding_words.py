"""Numbers of one characteristic -> a plain sentence; and what such numbers can and cannot say."""

from __future__ import annotations

from cxrhf.report.book import Book, Cell
from cxrhf.report.numbers import known, number
from cxrhf.report.sections.encoding_shelf import OWN, READ, Shelf, is_frozen, versus
from cxrhf.report.words import Sentence

CANNOT = (
    "SPLIT asks whether a characteristic can be read from what a network hands to its last layer: the network is "
    "frozen and a new linear layer learns the characteristic from its vectors. Three situations are possible.",
    "A: what the network keeps for the finding holds nothing of the group, and SPLIT stays near 0.5. B: the same "
    "features tell both, but along different directions; SPLIT is high although the group moves no prediction of the "
    "finding. C: finding and group lie along the same direction; SPLIT is just as high, and a step towards one group "
    "is a step towards the finding.",
    "So a low SPLIT speaks against any use of the characteristic, and a high one leaves B and C open, however high it "
    "is. Vectors of a network that was never trained on X-rays, even one with random weights, often give much of it: "
    "then it lies in the pictures, and training need not have put it there. Compare networks by their differences, not "
    "by the height of one number.",
    "What can help to tell B from C: the maps of the vectors (do groups part along the directions along which the "
    "disease does?), a network that learns finding and group together against one that learns one of them (does either "
    "gain?), and the numbers of patient groups with prevalence and age balanced.",
)


def verdict(shelf: Shelf, name: str) -> Sentence | None:
    """What is said of one characteristic: the audit's own verdict, else what follows from the numbers."""
    read, own = _read(shelf, name), _own(shelf, name)
    given = shelf.verdicts.get(name.partition("=")[0], "")
    words = " ".join(part for part in (given or (read[0] if read else ""), own) if part)
    if not words:
        return None
    tag, tone = (read[1], read[2]) if read else ("", "plain")
    return Sentence(name.partition("=")[0], words, tag, tone)


def _read(shelf: Shelf, name: str) -> tuple[str, str, str] | None:
    there = [each for each in shelf.read if known(shelf.get(each, name, READ).value)]
    if not there:
        return None
    first = there[0]
    cell = shelf.get(first, name, READ)
    words = f"the vectors of {first.model} tell it with an AUROC of {cell.with_interval(f'{shelf.level} CI ')}"
    others = [f"{number(shelf.get(each, name, READ).value)} for {each.model}" for each in there[1:]]
    words += f" ({', '.join(others)})." if others else "."
    if known(cell.low) and cell.low <= 0.5:
        return f"{words} Not told from chance: nothing of it was found, as in A.", "not found", "plain"
    more = next(iter(versus(first, name, READ)), None)
    if more is None or is_frozen(first):
        return f"{words} B or C.", "can be read", "plain"
    return _beside(words, *more)


def _beside(words: str, reference: str, difference: Cell) -> tuple[str, str, str]:
    """Against the network of reference."""
    if not known(difference.low, difference.high):
        return f"{words} B or C.", "can be read", "plain"
    if difference.low > 0:
        said = f"{words} That is {difference.with_interval()} more than for {reference}: training added to it (B or C)."
        return said, "can be read", "strong"
    if difference.high < 0:
        said = f"{words} That is {Cell(-difference.value, -difference.high, -difference.low).with_interval()} less than"
        return (
            f"{said} for {reference}: it lies in the pictures, and training took some of it away.",
            "can be read",
            "plain",
        )
    said = f"{words} No clear difference from {reference} ({number(difference.value)}, {difference.span}):"
    return f"{said} it lies in the pictures, whatever the training.", f"no more than {reference}", "plain"


def _own(shelf: Shelf, name: str) -> str:
    """Networks that learned the characteristic themselves."""
    parts = [
        _pair(network, other, cell)
        for network in shelf.networks
        for other, cell in versus(network, name, OWN)
        if known(cell.value)
    ]
    if parts:
        return " ".join(parts)
    own = [(each, shelf.get(each, name, OWN)) for each in shelf.networks]
    told = [f"{each.model} {cell.with_interval()}" for each, cell in own if known(cell.value)]
    return f"Learned on purpose: {', '.join(told)}." if told else ""


def _pair(network: Book, other: str, cell: Cell) -> str:
    clear = known(cell.low, cell.high) and (cell.low > 0 or cell.high < 0)
    judged = "" if clear else "; no clear difference"
    return f"Learned on purpose, {network.model} less {other}: {cell.with_interval()}{judged}."
