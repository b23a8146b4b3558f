"""Ways to read the notes -> their AUROC side by side, and paired differences."""

from __future__ import annotations

from cxrhf.report.blocks import Column, Entry, Table, difference, entry, finding_table
from cxrhf.report.book import PRETEST
from cxrhf.report.numbers import known, short
from cxrhf.report.sections.pretest_shelf import Shelf


def side_by_side(shelf: Shelf) -> Table | None:
    """A column a family, with the chosen one marked; None where there is one."""
    if len(shelf.families) < 2:
        return None
    rows: dict[str, list[Entry]] = {}
    for finding in shelf.everyone:
        chosen = shelf.family(finding)
        made = [(book, entry(book.get(PRETEST, finding, "auroc"))) for book in shelf.families]
        rows[finding] = [each._replace(tail="chosen", strong=True) if book is chosen else each for book, each in made]
    columns = [Column(short(book.model, 30)) for book in shelf.families]
    about = "The note model was chosen without these images, so it need not be the best of its row."
    return finding_table(shelf.chosen, "AUROC of every note model", columns, rows, about)


def differences(shelf: Shelf) -> Table | None:
    """The first family less each other."""
    pairs = [
        (book, versus)
        for book in shelf.families
        for versus in dict.fromkeys(key[4] for key in book.keys(PRETEST) if key[4])
    ]
    rows: dict[str, list[Entry]] = {}
    for finding in shelf.everyone:
        cells = [book.get(PRETEST, finding, "auroc", versus) for book, versus in pairs]
        if any(known(cell.value) for cell in cells):
            rows[finding] = [difference(cell) for cell in cells]
    columns = [
        Column(f"{short(book.model, 30)} minus {short(versus.removeprefix('model='), 30)}") for book, versus in pairs
    ]
    about = (
        "On the same resamples of patients. Bold p values are below 0.05 after correction; intervals are not corrected."
    )
    return (
        finding_table(shelf.chosen, "Differences in AUROC between note models", columns, rows, about) if rows else None
    )
