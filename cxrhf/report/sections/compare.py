"""Two models on the same cases: paired differences as a forest plot and tables."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

from cxrhf.report.blocks import (
    CHANCE,
    Block,
    Column,
    Entry,
    Figure,
    Fold,
    Section,
    Table,
    difference,
    finding_name,
    finding_table,
    name_entry,
    words_entry,
)
from cxrhf.report.book import MACRO, Book, Key
from cxrhf.report.figures import OVERALL, Axis, Dot, DotRow, dots
from cxrhf.report.numbers import known, listed, number
from cxrhf.report.sections.context import STRATA
from cxrhf.report.sections.view import View

# Metric -> title, what it means; the first are drawn too.
_DRAWN = {
    "auroc": ("AUROC", ""),
    "auroc_att": ("AUROC, context equal", "Negatives reweighted to the context of the positives (ATT)"),
    "auroc_drop vs auroc_att": ("Drop of the AUROC", "How much more the first model loses with context held equal"),
}
_MORE = {
    "average_precision": ("Average precision", ""),
    "sensitivity_at_specificity": ("Sensitivity", "At 95% specificity"),
    "brier": ("Brier score", "Lower is better, so a negative difference favours the first model"),
    "matched_auroc": ("AUROC, matched pairs", ""),
    "auroc_ipw": ("AUROC, IPW", "Both classes reweighted to the context of all images"),
}


def compare(view: View) -> Section | None:
    """The section, or None without the audit."""
    keys = view.book.keys("compare")
    seconds = list(dict.fromkeys(key[4] for key in keys if key[4]))
    if not seconds:
        return None
    blocks: list[Block] = []
    lead: list[str] = []
    for k, versus in enumerate(seconds):
        second = versus.removeprefix("model=")
        lead.append(_lead(view, versus, second))
        blocks += [each for each in (_forest(view, versus, second, k), _table(view, versus, second)) if each]
        for table in _parts(view.book, [key for key in keys if key[4] == versus], second):
            blocks.append(Fold(f"{table.caption} ({len(table.rows)} rows)", [table]))
    title = f"{view.book.model} against other models on the same images"
    return Section(f"{view.ident}-compare", title, "Comparison", lead, blocks)


def _lead(view: View, versus: str, second: str) -> str:
    book = view.book
    mean = book.get("compare", MACRO if len(book.findings) > 1 else book.findings[0], "auroc", versus)
    cells = {finding: book.get("compare", finding, "auroc", versus) for finding in book.findings}
    tested = {finding: cell for finding, cell in cells.items() if known(cell.p_value)}
    better = [finding_name(f) for f, cell in tested.items() if cell.p_value < CHANCE and cell.value > 0]
    worse = [finding_name(f) for f, cell in tested.items() if cell.p_value < CHANCE and cell.value < 0]
    words = f"{book.model} minus {second}: "
    words += f"AUROC {mean.with_interval()}{' on average' if len(book.findings) > 1 else ''}. "
    if not better and not worse:
        return f"{words}No finding differs significantly {view.corrected}."
    said = [f"{book.model} ranks better for {listed(better)}"] if better else []
    said += [f"{second} ranks better for {listed(worse)}"] if worse else []
    return f"{words}Significant {view.corrected}: {'; '.join(said)}."


def _forest(view: View, versus: str, second: str, k: int) -> Figure | None:
    panels: list[tuple[str, Markup]] = []
    for metric, (title, _) in _DRAWN.items():
        rows = []
        for finding in view.book.everyone():
            cell = view.get("compare", finding, metric, versus)
            if known(cell.value):
                name = finding_name(finding)
                rows.append(DotRow(name, [("", [Dot(OVERALL, cell.mark, title)])], number(cell.value), name))
        if rows:
            axis = Axis("right of 0: the first model is higher", -0.05, 0.05, reference=0.0, step=0.05)
            ident = f"{view.ident}-forest-{k}-{len(panels)}"
            shown = f"{title}: {view.book.model} minus {second}"
            panels.append((title, dots(rows, axis, ident=ident, title=shown, lane=12)))
    caption = f"Dots show {view.book.model} minus {second} on the same images; bars are {view.level} paired intervals."
    return Figure(f"{view.book.model} minus {second}", panels, (), caption, file="compare") if panels else None


def _table(view: View, versus: str, second: str) -> Table | None:
    book = view.book
    names = {**_DRAWN, **_MORE}
    rows: dict[str, list[Entry]] = {}
    for finding in book.everyone():
        cells = [book.get("compare", finding, metric, versus) for metric in names]
        if any(known(cell.value) for cell in cells):
            rows[finding] = [difference(cell) for cell in cells]
    columns = [Column(title, about) for title, about in names.values()]
    about = f"Bold p values are below 0.05 {view.corrected}; intervals are not corrected."
    return finding_table(book, f"Whole sample: {book.model} minus {second}", columns, rows, about) if rows else None


def _parts(book: Book, keys: Sequence[Key], second: str) -> list[Table]:
    """Strata and groups, with intervals, without tests; intersections are in the results alone."""
    by_kind: dict[str, list[Key]] = {}
    for key in keys:
        if key[3] != "all" and " & " not in key[3] and known(book.cells[key].value):
            by_kind.setdefault("strata" if key[3].startswith(("pretest=", "mention=")) else "groups", []).append(key)
    tables = []
    for kind, found in by_kind.items():
        metrics = list(dict.fromkeys(key[2] for key in found))
        rows = []
        for finding, slice in dict.fromkeys((key[1], key[3]) for key in found):
            cells = [book.get("compare", finding, metric, found[0][4], slice) for metric in metrics]
            rows.append([name_entry(finding), words_entry(_part(slice)), *map(difference, cells)])
        columns = [Column("Finding"), Column("Part", "", True), *(Column(_title(metric)) for metric in metrics)]
        tables.append(Table(f"Within {kind}: {book.model} minus {second}", columns, rows))
    return tables


def _part(slice: str) -> str:
    """`pretest=top` -> `Top quarter of pre-test probability`; `sex=F` -> `sex F`."""
    return STRATA[slice] if slice in STRATA else slice.replace("=", " ", 1)


def _title(metric: str) -> str:
    known_as = {**_DRAWN, **_MORE}.get(metric)
    return known_as[0] if known_as else metric.replace("_", " ")
