"""RESULT rows of the audit "encoding" -> what can be read of patients from networks' vectors, and what that means."""

from __future__ import annotations

from collections.abc import Sequence

from cxrhf.report.blocks import Block, Column, Entry, Figure, Fold, Said, Section, Table, Text, entry, folded
from cxrhf.report.book import Book
from cxrhf.report.figures import CONTEXT, OVERALL, REMAINS, Axis, Dot, DotRow, dots, scenarios
from cxrhf.report.numbers import known, number
from cxrhf.report.sections.encoding_shelf import OWN, READ, Shelf, is_frozen, shelves, tasks, versus
from cxrhf.report.sections.encoding_words import CANNOT, verdict
from cxrhf.report.sections.view import bars

_RATES = (("tpr", "Sensitivity"), ("fpr", "False positive rate"), ("j", "Youden's J"))
_LEGEND = (
    (OVERALL, "new linear layer on frozen embeddings (SPLIT)"),
    (CONTEXT, "the same for networks with embeddings only (random, ImageNet, others)"),
    (REMAINS, "the network's own output"),
)


def encoding(books: Sequence[Book], level: str) -> list[Section]:
    """A section for each dataset that has rows of the audit."""
    found = shelves(books, level)
    out = []
    for shelf in found:
        where = f" on {shelf.dataset}" if len(found) > 1 else ""
        title = f"Patient characteristics in the embeddings{where}"
        out.append(Section(shelf.ident, title, f"Encoding{where}", _lead(shelf), _blocks(shelf)))
    return out


def _lead(shelf: Shelf) -> list[str]:
    """What can be read from the first network, and from the one it is compared with."""
    if not shelf.read:
        return []
    first, reference = shelf.read[0], next((each for each in shelf.read if each.model == shelf.reference), None)
    said = []
    for name in shelf.targets:
        cell = shelf.get(first, name, READ)
        if known(cell.value):
            other = shelf.get(reference, name, READ) if reference is not None and reference is not first else None
            beside = f" ({shelf.reference}: {number(other.value)})" if other and known(other.value) else ""
            said.append(f"{shelf.name(name)} {number(cell.value)}{beside}")
    if not said:
        return []
    return [
        f"A new linear layer on the frozen embeddings of {first.model} reaches these AUROCs: {'; '.join(said)}. A "
        "characteristic that can be read from embeddings is not necessarily used for the findings."
    ]


def _blocks(shelf: Shelf) -> list[Block]:
    blocks: list[Block | None] = [_figure(shelf), _table(shelf)]
    said = [each for name in shelf.targets if (each := verdict(shelf, name))]
    blocks += [Said("Each characteristic in words", said, by_finding=False)] if said else []
    blocks.append(Fold("What SPLIT can and cannot show", _limits(shelf)))
    blocks += [folded(_differences(shelf, READ)), folded(_differences(shelf, OWN)), folded(_rates(shelf))]
    return [block for block in blocks if block is not None]


def _figure(shelf: Shelf) -> Figure | None:
    rows = []
    for name in shelf.characteristics:
        lanes = []
        for network in sorted(shelf.networks, key=is_frozen):
            both = [
                Dot(CONTEXT if is_frozen(network) else OVERALL, shelf.get(network, name, READ).mark, "SPLIT"),
                Dot(REMAINS, shelf.get(network, name, OWN).mark, "own output"),
            ]
            there = [Dot(d.kind, d.mark, f"{network.model}, {d.name}") for d in both if known(d.mark.value)]
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
    return Figure("", panels, [each for each in _LEGEND if each[0] in used], bars(shelf.level), file="encoding")


def _table(shelf: Shelf) -> Table:
    columns, cells = [Column("Characteristic")], list[tuple[Book, str]]()
    for metric, networks in ((READ, shelf.read), (OWN, [each for each in shelf.networks if shelf.has(each, OWN)])):
        for network in networks:
            way = "SPLIT" if metric == READ else "own output"
            columns.append(Column(f"{network.model}, {way}", tasks(network)))
            cells.append((network, metric))
    rows = []
    for name in shelf.characteristics:
        row = [entry(shelf.get(network, name, metric)) for network, metric in cells]
        if any(each.text != "–" for each in row):
            rows.append([Entry(shelf.name(name)), *row])
    about = "One class against the rest, on patients that were not used to fit the layer. SPLIT: " + _learned(shelf)
    return Table("AUROC for patient characteristics", columns, rows, about=about, by_finding=False)


def _learned(shelf: Shelf) -> str:
    """How the layers were learned, as the rows say it; how intervals were made (`; 0.95 percentile`) is left out."""
    keys = ((each, key) for each in shelf.read for key in each.cells if key[2] == READ and not key[4])
    ways = list(dict.fromkeys(each.cells[key].method.split("; 0.")[0] for each, key in keys))
    if not ways:
        return "a new linear layer on frozen embeddings."
    return f"{ways[0]}." + (" Some were fitted differently; see results.parquet." if len(ways) > 1 else "")


def _differences(shelf: Shelf, metric: str) -> Table | None:
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
    what = "AUROC from embeddings" if metric == READ else "AUROC of own outputs (single-task and multitask networks)"
    about = "Differences in AUROC on the same patients, with intervals; not tested."
    return Table(f"{what}: paired differences", columns, rows, about=about, by_finding=False)


def _rates(shelf: Shelf) -> Table | None:
    """Sensitivity, false positive rate and J of new layers and own outputs."""
    rows = []
    for name in shelf.characteristics:
        for start, way in (("split_", "SPLIT"), ("", "own output")):
            for network in shelf.networks:
                cells = [shelf.get(network, name, f"{start}{metric}") for metric, _ in _RATES]
                if any(known(cell.value) for cell in cells):
                    words = Entry(network.model, way, words=True)
                    rows.append([Entry(shelf.name(name)), words, *map(entry, cells)])
    columns = [Column("Characteristic"), Column("Network", "", True), *(Column(title) for _, title in _RATES)]
    about = "At the threshold with the largest J on other images."
    title = "Sensitivity, false positive rate and J"
    return Table(title, columns, rows, about=about, by_finding=False) if rows else None


def _limits(shelf: Shelf) -> list[Block]:
    drawn = Figure(
        "", scenarios(f"{shelf.ident}-way"), (), "Circles have the finding, squares do not; the two colours are two "
        "patient groups. The solid line separates by finding, the dashed line by group.", size="small",
    )  # fmt: skip
    return [Text(CANNOT[0]), drawn, *(Text(words) for words in CANNOT[1:])]
