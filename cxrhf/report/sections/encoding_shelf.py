"""Books of the audit "encoding" -> the networks of a dataset side by side, and the characteristics read from them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cxrhf.report.blocks import finding_name
from cxrhf.report.book import ENCODING, MACRO, Book, Cell
from cxrhf.report.numbers import known

READ, OWN = "split_auroc", "auroc"  # from frozen vectors by a new layer; by the network's own output


@dataclass(frozen=True, slots=True)
class Shelf:
    """The networks of one dataset in the order of the rows, and what was read from them.

    `verdicts`: target -> what the audit says of it, of all networks together.
    """

    dataset: str
    networks: list[Book]
    characteristics: list[str]
    verdicts: dict[str, str]
    level: str
    ident: str

    def get(self, network: Book, name: str, metric: str, versus: str = "") -> Cell:
        """A number of one network."""
        return network.get(ENCODING, name, metric, versus)

    def has(self, network: Book, metric: str) -> bool:
        """Whether any characteristic has this number."""
        return any(known(self.get(network, name, metric).value) for name in self.characteristics)

    @property
    def read(self) -> list[Book]:
        """Networks whose vectors were read, those trained for findings first."""
        found = [each for each in self.networks if self.has(each, READ)]
        return sorted(found, key=is_frozen)

    @property
    def reference(self) -> str:
        """The network that the others are compared with, "" without one."""
        keys = (key for each in self.networks for key in each.keys(ENCODING) if key[2] == READ and key[4])
        return next((key[4].removeprefix("model=") for key in keys), "")

    @property
    def targets(self) -> list[str]:
        """One name a characteristic: `race` for race=Asian, race=Black, race=White; `sex=F` where there are two."""
        whole = set(self.characteristics)
        return [name for name in self.characteristics if "=" not in name or name.partition("=")[0] not in whole]

    def name(self, characteristic: str) -> str:
        """As people read it."""
        return characteristic_name(characteristic, self.characteristics)


def shelves(books: Sequence[Book], level: str) -> list[Shelf]:
    """A shelf for each dataset."""
    by_dataset: dict[str, list[Book]] = {}
    for book in books:
        by_dataset.setdefault(book.dataset, []).append(book)
    out = list[Shelf]()
    for dataset, several in by_dataset.items():
        networks = [book for book in several if book.model]  # verdicts are of all of them, and have no name
        verdicts = {
            name: book.get(ENCODING, name, "verdict").note
            for book in several
            for name in book.findings
            if book.get(ENCODING, name, "verdict").note
        }
        names = list(dict.fromkeys(name for book in networks for name in book.findings))
        if any(known(book.get(ENCODING, MACRO, READ).value) for book in networks):
            names.append(MACRO)
        ident = "encoding" if not out else f"encoding-{len(out)}"
        out.append(Shelf(dataset, networks, names, verdicts, level, ident))
    return [shelf for shelf in out if any(shelf.has(each, READ) or shelf.has(each, OWN) for each in shelf.networks)]


def characteristic_name(name: str, among: Sequence[str] = ()) -> str:
    """`sex=F` -> `Sex (F)`; `race` -> `Race, mean of its classes`, where there are classes among the others."""
    head, equals, value = name.partition("=")
    if equals:
        return f"{finding_name(head)} ({value})"
    return finding_name(name) + (", mean of its classes" if any(each.startswith(f"{name}=") for each in among) else "")


def tasks(network: Book) -> str:
    """What a network was trained for, as the audit says it."""
    return network.get(ENCODING, MACRO, "tasks").note


def is_frozen(network: Book) -> bool:
    """Whether its vectors came alone, without a task: of random weights, ImageNet, or others."""
    said = tasks(network)
    return said.startswith("frozen") if said else network.model.lower() in ("random", "imagenet")


def versus(network: Book, name: str, metric: str) -> list[tuple[str, Cell]]:
    """Differences of a number from other networks."""
    keys = [key for key in network.keys(ENCODING) if key[1:3] == (name, metric) and key[4]]
    return [(key[4].removeprefix("model="), network.cells[key]) for key in keys]
