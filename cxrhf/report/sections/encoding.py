"""RESULT rows of the audit "encoding" -> what can be read of patients from networks' vectors, and what that means."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cxrhf.report.blocks import (
    Block,
    Column,
    Entry,
    Figure,
    Fold,
    Section,
    Sentences,
    Table,
    Text,
    entry,
    finding_name,
    fold_block,
)
from cxrhf.report.book import ENCODING, MACRO, Book, Cell
from cxrhf.report.figures import CONTEXT, OVERALL, REMAINS, Axis, Dot, DotRow, dots, scenarios
from cxrhf.report.numbers import format_number, is_finite, join_names
from cxrhf.report.sections.view import Sentence, interval_caption

_RATES = (("tpr", "Sensitivity"), ("fpr", "False positive rate"), ("j", "Youden's J"))
_LEGEND = (
    (OVERALL, "new linear layer on frozen embeddings (SPLIT)"),
    (CONTEXT, "the same for networks with embeddings only (random, ImageNet, others)"),
    (REMAINS, "the network's own output"),
)


def encoding(books: Sequence[Book], level: str) -> list[Section]:
    """A section for each dataset that has rows of the audit."""
    found = group_networks(books, level)
    out = []
    for shelf in found:
        where = f" on {shelf.dataset}" if len(found) > 1 else ""
        title = f"Patient characteristics in the embeddings{where}"
        out.append(Section(shelf.ident, title, f"Encoding{where}", _summary(shelf), _blocks(shelf)))
    return out


def _summary(shelf: DatasetNetworks) -> list[str]:
    """What can be read from the first network, and from the one it is compared with."""
    if not shelf.read:
        return []
    first, reference = shelf.read[0], next((each for each in shelf.read if each.model == shelf.reference), None)
    said = []
    for name in shelf.targets:
        cell = shelf.get(first, name, SPLIT_METRIC)
        if is_finite(cell.value):
            other = (
                shelf.get(reference, name, SPLIT_METRIC) if reference is not None and reference is not first else None
            )
            beside = f" ({shelf.reference}: {format_number(other.value)})" if other and is_finite(other.value) else ""
            said.append(f"{shelf.name(name)} {format_number(cell.value)}{beside}")
    if not said:
        return []
    return [
        f"A new linear layer on the frozen embeddings of {first.model} reaches these AUROCs: {'; '.join(said)}. A "
        "characteristic that can be read from embeddings is not necessarily used for the findings."
    ]


def _blocks(shelf: DatasetNetworks) -> list[Block]:
    blocks: list[Block | None] = [_figure(shelf), _table(shelf)]
    said = [each for name in shelf.targets if (each := verdict(shelf, name))]
    blocks += [Sentences("Each characteristic in words", said, by_finding=False)] if said else []
    blocks.append(Fold("What SPLIT can and cannot show", _limits(shelf)))
    blocks += [
        fold_block(_differences(shelf, SPLIT_METRIC)),
        fold_block(_differences(shelf, OWN_METRIC)),
        fold_block(_rates(shelf)),
    ]
    return [block for block in blocks if block is not None]


def _figure(shelf: DatasetNetworks) -> Figure | None:
    rows = []
    for name in shelf.characteristics:
        lanes = []
        for network in sorted(shelf.networks, key=is_frozen):
            both = [
                Dot(CONTEXT if is_frozen(network) else OVERALL, shelf.get(network, name, SPLIT_METRIC).mark, "SPLIT"),
                Dot(REMAINS, shelf.get(network, name, OWN_METRIC).mark, "own output"),
            ]
            there = [Dot(d.kind, d.mark, f"{network.model}, {d.name}") for d in both if is_finite(d.mark.value)]
            if there:
                lanes.append((network.model, there))
        if lanes:
            rows.append(DotRow(shelf.name(name), lanes, other=True))
    if not rows:
        return None
    axis = Axis("AUROC on held-out patients; 0.5 = chance", 0.5, 1.0, reference=0.5, floor=0.3, ceiling=1.0)
    # Two panels side by side where there are many.
    half = (len(rows) + 1) // 2 if len(rows) > 4 else len(rows)
    panels = [
        ("", dots(part, axis, ident=f"{shelf.ident}-dots-{k}", title="Characteristics read from embeddings", lane=17))
        for k, part in enumerate((rows[:half], rows[half:]))
        if part
    ]
    used = {dot.kind for row in rows for _, lane in row.lanes for dot in lane}
    return Figure(
        "", panels, [each for each in _LEGEND if each[0] in used], interval_caption(shelf.level), file="encoding"
    )


def _table(shelf: DatasetNetworks) -> Table:
    columns, cells = [Column("Characteristic")], list[tuple[Book, str]]()
    for metric, networks in (
        (SPLIT_METRIC, shelf.read),
        (OWN_METRIC, [each for each in shelf.networks if shelf.has(each, OWN_METRIC)]),
    ):
        for network in networks:
            way = "SPLIT" if metric == SPLIT_METRIC else "own output"
            columns.append(Column(f"{network.model}, {way}", tasks(network)))
            cells.append((network, metric))
    rows = []
    for name in shelf.characteristics:
        row = [entry(shelf.get(network, name, metric)) for network, metric in cells]
        if any(each.text != "–" for each in row):
            rows.append([Entry(shelf.name(name)), *row])
    about = "One class against the rest, on patients that were not used to fit the layer. SPLIT: " + _method_sentence(
        shelf
    )
    return Table("AUROC for patient characteristics", columns, rows, about=about, by_finding=False)


def _method_sentence(shelf: DatasetNetworks) -> str:
    """How the layers were learned, as the rows say it; how intervals were made (`; 0.95 percentile`) is left out."""
    keys = ((each, key) for each in shelf.read for key in each.cells if key[2] == SPLIT_METRIC and not key[4])
    ways = list(dict.fromkeys(each.cells[key].method.split("; 0.")[0] for each, key in keys))
    if not ways:
        return "a new linear layer on frozen embeddings."
    return f"{ways[0]}." + (" Some were fitted differently; see results.parquet." if len(ways) > 1 else "")


def _differences(shelf: DatasetNetworks, metric: str) -> Table | None:
    """Paired differences between networks."""
    pairs = list(
        dict.fromkeys(
            (network.model, other)
            for network in shelf.networks
            for name in shelf.characteristics
            for other, _ in versus(network, name, metric)
        )
    )
    by_name = {network.model: network for network in shelf.networks}
    rows = []
    for name in shelf.characteristics:
        row = [dict(versus(by_name[first], name, metric)).get(other) for first, other in pairs]
        if any(cell is not None for cell in row):
            rows.append([Entry(shelf.name(name)), *(entry(cell) if cell else Entry("–") for cell in row)])
    if not rows:
        return None
    columns = [Column("Characteristic"), *(Column(f"{first} minus {other}") for first, other in pairs)]
    what = (
        "AUROC from embeddings"
        if metric == SPLIT_METRIC
        else "AUROC of own outputs (single-task and multitask networks)"
    )
    about = "Differences in AUROC on the same patients, with intervals; not tested."
    return Table(f"{what}: paired differences", columns, rows, about=about, by_finding=False)


def _rates(shelf: DatasetNetworks) -> Table | None:
    """Sensitivity, false positive rate and J of new layers and own outputs."""
    rows = []
    for name in shelf.characteristics:
        for start, way in (("split_", "SPLIT"), ("", "own output")):
            for network in shelf.networks:
                cells = [shelf.get(network, name, f"{start}{metric}") for metric, _ in _RATES]
                if any(is_finite(cell.value) for cell in cells):
                    words = Entry(network.model, way, words=True)
                    rows.append([Entry(shelf.name(name)), words, *map(entry, cells)])
    columns = [Column("Characteristic"), Column("Network", "", True), *(Column(title) for _, title in _RATES)]
    about = "At the threshold with the largest J on other images."
    title = "Sensitivity, false positive rate and J"
    return Table(title, columns, rows, about=about, by_finding=False) if rows else None


def _limits(shelf: DatasetNetworks) -> list[Block]:
    drawn = Figure(
        "", scenarios(f"{shelf.ident}-way"), (), "Circles have the finding, squares do not; the two colours are two "
        "patient groups. The solid line separates by finding, the dashed line by group.", size="small",
    )  # fmt: skip
    return [Text(CANNOT[0]), drawn, *(Text(words) for words in CANNOT[1:])]


# Books of the audit "encoding" -> the networks of a dataset side by side, and the characteristics read from them.

SPLIT_METRIC, OWN_METRIC = "split_auroc", "auroc"  # from frozen vectors by a new layer; by the network's own output


@dataclass(frozen=True, slots=True)
class DatasetNetworks:
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
        return any(is_finite(self.get(network, name, metric).value) for name in self.characteristics)

    @property
    def read(self) -> list[Book]:
        """Networks whose vectors were read, those trained for findings first."""
        found = [each for each in self.networks if self.has(each, SPLIT_METRIC)]
        return sorted(found, key=is_frozen)

    @property
    def reference(self) -> str:
        """The network that the others are compared with, "" without one."""
        keys = (key for each in self.networks for key in each.keys(ENCODING) if key[2] == SPLIT_METRIC and key[4])
        return next((key[4].removeprefix("model=") for key in keys), "")

    @property
    def targets(self) -> list[str]:
        """One name a characteristic: `race` for race=Asian, race=Black, race=White; `sex=F` where there are two."""
        whole = set(self.characteristics)
        return [name for name in self.characteristics if "=" not in name or name.partition("=")[0] not in whole]

    def name(self, characteristic: str) -> str:
        """As people read it."""
        return characteristic_name(characteristic, self.characteristics)


def group_networks(books: Sequence[Book], level: str) -> list[DatasetNetworks]:
    """A shelf for each dataset."""
    by_dataset: dict[str, list[Book]] = {}
    for book in books:
        by_dataset.setdefault(book.dataset, []).append(book)
    out = list[DatasetNetworks]()
    for dataset, several in by_dataset.items():
        networks = [book for book in several if book.model]  # verdicts are of all of them, and have no name
        verdicts = {
            name: book.get(ENCODING, name, "verdict").note
            for book in several
            for name in book.findings
            if book.get(ENCODING, name, "verdict").note
        }
        names = list(dict.fromkeys(name for book in networks for name in book.findings))
        if any(is_finite(book.get(ENCODING, MACRO, SPLIT_METRIC).value) for book in networks):
            names.append(MACRO)
        ident = "encoding" if not out else f"encoding-{len(out)}"
        out.append(DatasetNetworks(dataset, networks, names, verdicts, level, ident))
    return [
        shelf
        for shelf in out
        if any(shelf.has(each, SPLIT_METRIC) or shelf.has(each, OWN_METRIC) for each in shelf.networks)
    ]


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


# Numbers of one characteristic -> a plain sentence; and what such numbers can and cannot say.

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


def verdict(shelf: DatasetNetworks, name: str) -> Sentence | None:
    """What is said of one characteristic: the audit's own verdict, else what follows from the numbers."""
    read, own = _read_sentence(shelf, name), _own_output_sentence(shelf, name)
    given = shelf.verdicts.get(name.partition("=")[0], "")
    words = " ".join(part for part in (given or (read[0] if read else ""), own) if part)
    if not words:
        return None
    tag, tone = (read[1], read[2]) if read else ("", "plain")
    return Sentence(name.partition("=")[0], words, tag, tone)


def _read_sentence(shelf: DatasetNetworks, name: str) -> tuple[str, str, str] | None:
    there = [each for each in shelf.read if is_finite(shelf.get(each, name, SPLIT_METRIC).value)]
    if not there:
        return None
    first = there[0]
    cell = shelf.get(first, name, SPLIT_METRIC)
    words = f"the embeddings of {first.model} predict it with an AUROC of {cell.with_interval(f'{shelf.level} CI ')}"
    others = [f"{format_number(shelf.get(each, name, SPLIT_METRIC).value)} for {each.model}" for each in there[1:]]
    words += f", against {join_names(others)}." if others else "."
    if is_finite(cell.low) and cell.low <= 0.5:
        return f"{words} Not distinguishable from chance, as in A.", "not found", "plain"
    more = next(iter(versus(first, name, SPLIT_METRIC)), None)
    if more is None or is_frozen(first):
        return f"{words} This is B or C.", "can be read", "plain"
    return _reference_sentence(words, *more)


def _reference_sentence(words: str, reference: str, difference: Cell) -> tuple[str, str, str]:
    """Against the network of reference."""
    if not is_finite(difference.low, difference.high):
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
    said = f"{words} No clear difference from {reference} ({format_number(difference.value)}, {difference.span}):"
    return f"{said} it is visible in the images, regardless of training.", f"no more than {reference}", "plain"


def _own_output_sentence(shelf: DatasetNetworks, name: str) -> str:
    """Networks that learned the characteristic themselves."""
    parts = [
        _pair(network, other, cell)
        for network in shelf.networks
        for other, cell in versus(network, name, OWN_METRIC)
        if is_finite(cell.value)
    ]
    if parts:
        return " ".join(parts)
    own = [(each, shelf.get(each, name, OWN_METRIC)) for each in shelf.networks]
    told = [f"{each.model} {cell.with_interval()}" for each, cell in own if is_finite(cell.value)]
    return f"Trained to predict it: {', '.join(told)}." if told else ""


def _pair(network: Book, other: str, cell: Cell) -> str:
    clear = is_finite(cell.low, cell.high) and (cell.low > 0 or cell.high < 0)
    judged = "" if clear else "; no clear difference"
    return f"Trained to predict it, {network.model} minus {other}: {cell.with_interval()}{judged}."
