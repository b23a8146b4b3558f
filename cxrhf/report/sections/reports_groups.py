"""Numbers of reports by patient group -> likeness by group, and words that go with other groupings."""

from __future__ import annotations

from collections.abc import Sequence

from cxrhf.report.blocks import Block, Column, Entry, Fold, Table, difference, entry, folded
from cxrhf.report.book import MACRO, REPORTS, Book, Cell
from cxrhf.report.numbers import known, number
from cxrhf.report.sections.reports_pictures import quality_dots, trade_offs
from cxrhf.report.sections.reports_rows import GROUPS, SIMILARITY, metric_of
from cxrhf.report.sections.reports_shelf import Pair, Writer

PICTURED = 6  # pairs of groups with a picture; the table has all
_ASSOCIATION = {metric.name for _, metrics in GROUPS for metric in metrics if metric.pair}


def quality_metrics(model: Writer) -> list[str]:
    """Numbers of likeness that some group has, in the order of the table."""
    there = {
        key[2] for book in model.strategies for key in book.keys(REPORTS)
        if key[3] != "all" and not key[4] and key[2] not in _ASSOCIATION and not key[2].startswith("wae_")
    }  # fmt: skip
    first = [metric.name for metric in SIMILARITY if metric.name in there]
    return [*first, *sorted(there - set(first))]


def by_group(models: Sequence[Writer], level: str, ident: str) -> list[Block]:
    """A picture of one number of likeness by group; tables of all in folds; then words of other groupings."""
    blocks: list[Block | None] = []
    for at, model in enumerate(models):
        whose = f", {model.model}" if len(models) > 1 else ""
        metrics = quality_metrics(model)
        shown = next((name for name in ("bertscore_f1", "rougeL", *metrics) if name in metrics), None)
        if shown and not at:
            blocks.append(quality_dots(model, shown, level, f"{ident}-{at}"))
        blocks += [folded(_quality(model, name, whose)) for name in metrics]
    for model in models:
        whose = f", {model.model}" if len(models) > 1 else ""
        blocks += [folded(_associations(model, whose)), folded(_displacement(model, whose))]
    figures = []
    for k, pair in enumerate(_other_pairs(models)[:PICTURED]):
        own = [model for model in models if pair in model.pairs]
        figures.append(trade_offs(own, pair, f"{ident}-pair-{k}", pair.name))
    if there := [figure for figure in figures if figure is not None]:
        blocks.append(Fold("Words lost against words added, other groups", there))
    return [block for block in blocks if block is not None]


def _other_pairs(models: Sequence[Writer]) -> list[Pair]:
    first = models[0].pairs[:1] if models else []
    return [pair for pair in dict.fromkeys(p for model in models for p in model.pairs) if pair not in first]


def _quality(model: Writer, metric: str, whose: str) -> Table | None:
    """Groups and differences between them as rows, strategies as columns."""
    keys = dict.fromkeys((key[3], key[4]) for book in model.strategies for key in book.keys(REPORTS)
                         if key[2] == metric and key[3] != "all")  # fmt: skip
    rows = []
    for group, versus in sorted(keys, key=lambda key: bool(key[1])):
        cells = [book.get(REPORTS, MACRO, metric, versus, group) for book in model.strategies]
        name = f"{_name(group)} minus {_name(versus)}" if versus else _name(group)
        made = [difference(cell) if versus else entry(cell) for cell in cells]
        sizes = "" if versus else f"{max(cell.n for cell in cells):,}"
        rows.append([Entry(name), Entry(sizes), *made])
    columns = [Column("Group"), Column("Reports"), *(Column(book.strategy) for book in model.strategies)]
    found = metric_of(metric)
    about = (
        "Differences are the first group minus the second, with the p value for no difference. Groups also differ in "
        "what their images show, so a difference alone does not mean that the reports of one group are worse."
    )
    title = f"{found.title} by patient group{whose}"
    return Table(title, columns, rows, about=about, by_finding=False) if rows else None


def _name(group: str) -> str:
    return group.replace("=", " ")


def _associations(model: Writer, whose: str) -> Table | None:
    """Erased, new and flipped words of every pair of groups, a column a strategy."""
    rows = []
    for pair in model.pairs:
        cells = []
        for book in model.strategies:
            counts = [model.get(book, name, pair).value for name in ("erasure", "new", "flip")]
            if not any(known(value) for value in counts):
                cells.append(Entry("–", hint=model.get(book, "erasure", pair).note))
                continue
            chances = [model.get(book, f"{name}.chance", pair).value for name in ("erasure", "new", "flip")]
            below = f"by chance {' / '.join(number(v, 1) for v in chances)}" if any(known(v) for v in chances) else ""
            cells.append(Entry(" / ".join(number(value, 0) for value in counts), below))
        total = max((model.get(b, "n_associated", pair).value for b in model.strategies), key=_first_known)
        rows.append([Entry(pair.name), Entry(number(total, 0)), *cells])
    if len(rows) < 2:
        return None
    columns = [
        Column("Groups"),
        Column("Associated", "Words significantly associated with one of the groups in the references"),
        *(Column(book.strategy, "Erased / new / flipped words") for book in model.strategies),
    ]
    title = f"Erased / new / flipped words of every pair of groups{whose}"
    about = "With few patients in a group, hardly any word can be shown to be associated with it, so a 0 means little."
    return Table(title, columns, rows, about=about, by_finding=False)


def _first_known(value: float) -> float:
    return value if known(value) else -1.0


def _displacement(model: Writer, whose: str) -> Table | None:
    """WAE over the words of each group and both WAE of each pair."""
    rows = []
    for name, title in (("wae_prediction", "generated weights"), ("wae_reference", "reference weights")):
        for pair in model.pairs:
            cells = [model.get(book, name, pair) for book in model.strategies]
            if any(known(cell.value) for cell in cells):
                rows.append([Entry(pair.name), Entry(f"WAE, {title}", words=True), *map(difference, cells)])
        for group in model.groups:
            of = [_of_group(book, f"{name}.group", group) for book in model.strategies]
            if any(known(cell.value) for cell in of):
                words = Entry(f"WAE over words of this group, {title}", words=True)
                rows.append([Entry(_name(group)), words, *map(entry, of)])
    if not rows:
        return None
    columns = [Column("Groups"), Column("Number", words=True), *(Column(book.strategy) for book in model.strategies)]
    about = (
        "WAE has no direction: it is low for faithful text, and low again after collapse. p tests for no displacement."
    )
    return Table(f"WAE of every pair and group{whose}", columns, rows, about=about, by_finding=False)


def _of_group(book: Book, metric: str, group: str) -> Cell:
    return book.get(REPORTS, MACRO, metric, "", group)
