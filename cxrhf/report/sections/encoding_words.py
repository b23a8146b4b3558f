"""Numbers of one characteristic -> a plain sentence; and what such numbers can and cannot say."""

from __future__ import annotations

from cxrhf.report.book import Book, Cell
from cxrhf.report.numbers import known, listed, number
from cxrhf.report.sections.encoding_shelf import OWN, READ, Shelf, is_frozen, versus
from cxrhf.report.words import Sentence

CANNOT = (
    "SPLIT tests whether a characteristic can be read from the input of a network's last layer. The network is frozen "
    "and a new linear layer learns the characteristic from its embeddings. Three situations are possible.",
    "A: the features for the finding carry no information about the group, and SPLIT is near 0.5. B: the embeddings "
    "carry both, along different directions; SPLIT is high, but the group does not change predictions of the finding. "
    "C: finding and group share a direction; SPLIT is just as high, and a shift towards one group is a shift towards "
    "the finding.",
    "A low SPLIT is therefore evidence against any use of the characteristic. A high SPLIT cannot separate B from C. "
    "Embeddings of a network never trained on X-rays, even one with random weights, often reach a high SPLIT too: the "
    "characteristic is then visible in the images, and training need not have added it. Compare networks by their "
    "differences rather than by a single value.",
    "Three things help to separate B from C: maps of the embeddings (do groups separate along the same directions as "
    "the disease?), a multitask network against single-task networks (does either task gain?), and subgroup "
    "performance with prevalence and age balanced.",
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
    words = f"the embeddings of {first.model} predict it with an AUROC of {cell.with_interval(f'{shelf.level} CI ')}"
    others = [f"{number(shelf.get(each, name, READ).value)} for {each.model}" for each in there[1:]]
    words += f", against {listed(others)}." if others else "."
    if known(cell.low) and cell.low <= 0.5:
        return f"{words} Not distinguishable from chance, as in A.", "not found", "plain"
    more = next(iter(versus(first, name, READ)), None)
    if more is None or is_frozen(first):
        return f"{words} This is B or C.", "can be read", "plain"
    return _beside(words, *more)


def _beside(words: str, reference: str, difference: Cell) -> tuple[str, str, str]:
    """Against the network of reference."""
    if not known(difference.low, difference.high):
        return f"{words} This is B or C.", "can be read", "plain"
    if difference.low > 0:
        said = f"{words} That is {difference.with_interval()} higher than for {reference}:"
        return f"{said} training added to it (B or C).", "can be read", "strong"
    if difference.high < 0:
        said = (
            f"{words} That is {Cell(-difference.value, -difference.high, -difference.low).with_interval()} lower than"
        )
        return (
            f"{said} for {reference}: it is visible in the images, and training removed some of it.",
            "can be read",
            "plain",
        )
    said = f"{words} No clear difference from {reference} ({number(difference.value)}, {difference.span}):"
    return f"{said} it is visible in the images, regardless of training.", f"no more than {reference}", "plain"


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
    return f"Trained to predict it: {', '.join(told)}." if told else ""


def _pair(network: Book, other: str, cell: Cell) -> str:
    clear = known(cell.low, cell.high) and (cell.low > 0 or cell.high < 0)
    judged = "" if clear else "; no clear difference"
    return f"Trained to predict it, {network.model} minus {other}: {cell.with_interval()}{judged}."
