"""Books of the audit "pretest" -> a shelf a dataset: the chosen family of each finding, and the families beside it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cxrhf.report.book import MACRO, PRETEST, Book, Cell, Lines
from cxrhf.report.numbers import known

CHOSEN = "context"


@dataclass(frozen=True, slots=True)
class Shelf:
    """The books of this audit on one dataset: the chosen one, and the families beside it."""

    chosen: Book
    families: tuple[Book, ...]
    level: str
    lines: Lines
    ident: str

    def get(self, finding: str, metric: str) -> Cell:
        """A number of the chosen family of a finding."""
        return self.chosen.get(PRETEST, finding, metric)

    def family(self, finding: str) -> Book | None:
        """The family that was chosen for a finding."""
        return next((each for each in self.families if each.get(PRETEST, finding, "chosen").value == 1), None)

    @property
    def fitted(self) -> list[str]:
        """Findings that have a model."""
        return [each for each in self.chosen.findings if self.family(each) or known(self.get(each, "auroc").value)]

    @property
    def measured(self) -> list[str]:
        """Findings with an AUROC."""
        return [each for each in self.chosen.findings if known(self.get(each, "auroc").value)]

    @property
    def everyone(self) -> list[str]:
        """They, and their mean where there are several."""
        return [*self.measured, *([MACRO] if len(self.measured) > 1 else [])]


def shelves(books: Sequence[Book], lines: Lines, level: str) -> list[Shelf]:
    """One for each dataset, in the order of the rows."""
    found = []
    for k, dataset in enumerate(dict.fromkeys(book.dataset for book in books)):
        own = [book for book in books if book.dataset == dataset]
        chosen = next((book for book in own if book.model == CHOSEN), own[0])
        families = tuple(book for book in own if book is not chosen)
        found.append(Shelf(chosen, families, level, lines, f"pretest{k or ''}"))
    return found
