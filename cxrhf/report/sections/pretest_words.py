"""Words that context models go by -> bars, a panel a finding. Words alone: no text and no id of a note."""

from __future__ import annotations

from cxrhf.report.blocks import Figure, finding_name
from cxrhf.report.book import EMPTY, PRETEST, Book, Cell
from cxrhf.report.figures.words import LESS, MORE, SOME, Word, words
from cxrhf.report.numbers import listed
from cxrhf.report.sections.pretest_shelf import Shelf


def bars_of_words(shelf: Shelf) -> Figure | None:
    """Of the chosen family where it reads words, else of the bag of words beside it, as the paper has it."""
    panels, signs, beside = [], set[bool](), list[str]()
    for k, finding in enumerate(shelf.fitted):
        chosen = shelf.family(finding)
        order = [*([chosen] if chosen else []), *shelf.families]
        book = next((each for each in order if words_of(each, finding)), None)
        if book is None:
            continue
        signed = any(key[1] == finding and key[2] == "feature_weight" for key in book.keys(PRETEST))
        signs.add(signed)
        name, classifier = finding_name(finding), book.get(PRETEST, finding, "chosen").note
        if chosen is not None and chosen is not book:
            beside.append(name)
        title = f"Words behind the pre-test probability, {name}"
        drawn = words(words_of(book, finding), signed=signed, finding=name, ident=f"{shelf.ident}-w{k}", title=title)
        panels.append((f"{name} ({book.model}, {classifier.partition('(')[0].partition(',')[0]})", drawn))
    if not panels:
        return None
    legend = [(MORE, "raises the probability"), (LESS, "lowers the probability")] if True in signs else []
    legend += [(SOME, "direction unknown")] if False in signs else []
    caption = "Strongest first. Compare lengths within a finding only."
    if beside:
        caption += (
            " Embeddings of a language model have no words, so the words of a bag-of-words model are shown for "
            f"{listed(beside)}."
        )
    return Figure("Words that move the pre-test probability", panels, legend, caption, file="pretest-words")


def words_of(book: Book, finding: str) -> list[Word]:
    """The words of a family for a finding, by rank; the effect where it is known, else weight or importance."""
    found: dict[str, dict[str, Cell]] = {}
    for _, whose, metric, slice, _ in book.keys(PRETEST):
        if whose == finding and slice.startswith("word=") and metric.startswith("feature_"):
            cell = book.get(PRETEST, finding, metric, slice=slice)
            found.setdefault(slice.removeprefix("word="), {})[metric] = cell
    return [
        Word(word, cells.get("feature_effect", next(iter(cells.values()), EMPTY)).value)
        for word, cells in found.items()
    ]
