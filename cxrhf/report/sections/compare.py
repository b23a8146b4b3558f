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
    Multiples,
    Section,
    Table,
    difference,
    entry,
    finding_name,
    finding_table,
    fold_block,
    name_entry,
    words_entry,
)
from cxrhf.report.book import MACRO, Book, Key, Subject, find, line_of, seed_of
from cxrhf.report.figures import OVERALL, REMAINS, Axis, Dot, DotRow, Mark, dots, precision_recall, roc
from cxrhf.report.numbers import format_number, is_finite, join_names
from cxrhf.report.sections.context import STRATA
from cxrhf.report.sections.subgroups import gaps_of
from cxrhf.report.sections.view import View

# Metric -> title, what it means; the first are drawn too.
_PLOTTED_METRICS = {
    "auroc": ("AUROC", ""),
    "auroc_att": ("AUROC, context equal", "Negatives reweighted to the context of the positives (ATT)"),
    "auroc_drop vs auroc_att": ("Drop of the AUROC", "How much more the first model loses with context held equal"),
}
_TABLE_METRICS = {
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
        lead.append(_summary(view, versus, second))
        blocks += [each for each in (_forest(view, versus, second, k), _table(view, versus, second)) if each]
        for table in _parts(view.book, [key for key in keys if key[4] == versus], second):
            blocks.append(Fold(f"{table.caption} ({len(table.rows)} rows)", [table]))
    title = f"{view.book.model} against other models on the same images"
    return Section(f"{view.ident}-compare", title, "Comparison", lead, blocks)


def _summary(view: View, versus: str, second: str) -> str:
    book = view.book
    mean = book.get("compare", MACRO if len(book.findings) > 1 else book.findings[0], "auroc", versus)
    cells = {finding: book.get("compare", finding, "auroc", versus) for finding in book.findings}
    tested = {finding: cell for finding, cell in cells.items() if is_finite(cell.p_value)}
    better = [finding_name(f) for f, cell in tested.items() if cell.p_value < CHANCE and cell.value > 0]
    worse = [finding_name(f) for f, cell in tested.items() if cell.p_value < CHANCE and cell.value < 0]
    words = f"{book.model} minus {second}: "
    words += f"AUROC {mean.with_interval()}{' on average' if len(book.findings) > 1 else ''}. "
    if not better and not worse:
        return f"{words}No finding differs significantly {view.corrected}."
    said = [f"{book.model} ranks better for {join_names(better)}"] if better else []
    said += [f"{second} ranks better for {join_names(worse)}"] if worse else []
    return f"{words}Significant {view.corrected}: {'; '.join(said)}."


def _forest(view: View, versus: str, second: str, k: int) -> Figure | None:
    panels: list[tuple[str, Markup]] = []
    for metric, (title, _) in _PLOTTED_METRICS.items():
        rows = []
        for finding in view.book.everyone():
            cell = view.get("compare", finding, metric, versus)
            if is_finite(cell.value):
                name = finding_name(finding)
                rows.append(DotRow(name, [("", [Dot(OVERALL, cell.mark, title)])], format_number(cell.value), name))
        if rows:
            axis = Axis("right of 0: the first model is higher", -0.05, 0.05, reference=0.0, step=0.05)
            ident = f"{view.ident}-forest-{k}-{len(panels)}"
            shown = f"{title}: {view.book.model} minus {second}"
            panels.append((title, dots(rows, axis, ident=ident, title=shown, lane=12)))
    caption = f"Dots show {view.book.model} minus {second} on the same images; bars are {view.level} paired intervals."
    return Figure(f"{view.book.model} minus {second}", panels, (), caption, file="compare") if panels else None


def _table(view: View, versus: str, second: str) -> Table | None:
    book = view.book
    names = {**_PLOTTED_METRICS, **_TABLE_METRICS}
    rows: dict[str, list[Entry]] = {}
    for finding in book.everyone():
        cells = [book.get("compare", finding, metric, versus) for metric in names]
        if any(is_finite(cell.value) for cell in cells):
            rows[finding] = [difference(cell) for cell in cells]
    columns = [Column(title, about) for title, about in names.values()]
    about = f"Bold p values are below 0.05 {view.corrected}; intervals are not corrected."
    return finding_table(book, f"Whole sample: {book.model} minus {second}", columns, rows, about) if rows else None


def _parts(book: Book, keys: Sequence[Key], second: str) -> list[Table]:
    """Strata and groups, with intervals, without tests; intersections are in the results alone."""
    by_kind: dict[str, list[Key]] = {}
    for key in keys:
        if key[3] != "all" and " & " not in key[3] and is_finite(book.cells[key].value):
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
    known_as = {**_PLOTTED_METRICS, **_TABLE_METRICS}.get(metric)
    return known_as[0] if known_as else metric.replace("_", " ")


# Several runs (training seeds) of one model: mean and spread, a dot for each run, averaged curves.

_METRICS = {
    "auroc": ("AUROC", "", Axis("AUROC", 0.5, 1.0, reference=0.5, floor=0.4, ceiling=1.0)),
    "average_precision": ("Average precision", "", Axis("average precision", 0.0, 1.0, floor=0.0, ceiling=1.0)),
    "auroc_att": (
        "AUROC, context equal",
        "ATT",
        Axis("AUROC, context equal", 0.5, 1.0, reference=0.5, floor=0.4, ceiling=1.0),
    ),
    "brier": ("Brier", "Lower is better", None),
    "balanced_brier": ("Balanced Brier", "Brier+ plus Brier−; not a proper score", None),
    "sensitivity_at_specificity": ("Sensitivity", "At 95% specificity", None),
    "f1": ("F1", "At the threshold with the largest F1", None),
}


def runs(view: View) -> Section | None:
    """The section, or None where the model has one run."""
    mean, several = view.subject.mean, view.subject.runs
    if mean is None:
        return None
    there = [metric for metric in _METRICS if any(is_finite(find(mean, f, metric).value) for f in mean.findings)]
    if not there:
        return None
    blocks: list[Block | None] = [_figure(view, mean, there), _runs_table(mean, there)]
    blocks += [fold_block(_curves(view, mean, kind)) for kind in ("roc_mean", "pr_mean")]
    kept = [block for block in blocks if block is not None]
    seeds = ", ".join(seed_of(run.model) for run in several)
    whole = find(mean, MACRO if len(mean.findings) > 1 else mean.findings[0], "auroc")
    spread = find(mean, MACRO if len(mean.findings) > 1 else mean.findings[0], "auroc.sd")
    lead = [
        f"{len(several)} runs ({seeds}): mean AUROC {format_number(whole.value)}, SD between runs "
        f"{format_number(spread.value)}. The SD describes training runs only; it does not include "
        "the sampling of patients.",
        f"The following sections show the first run ({seed_of(several[0].model)}). The numbers of the other runs are "
        "in results.parquet.",
    ]
    return Section(f"{view.ident}-runs", "Spread between training runs", "Runs", lead, kept)


def _figure(view: View, mean: Book, metrics: list[str]) -> Figure | None:
    panels = []
    for metric in metrics:
        title, _, axis = _METRICS[metric]
        if axis is None:
            continue
        rows = []
        for finding in mean.everyone():
            middle, spread = find(mean, finding, metric), find(mean, finding, f"{metric}.sd").value
            if not is_finite(middle.value):
                continue
            each = [
                Dot(OVERALL, Mark(find(run, finding, metric).value), seed_of(run.model)) for run in view.subject.runs
            ]
            span = Mark(middle.value, middle.value - spread, middle.value + spread)
            name = finding_name(finding)
            lanes = [("", [Dot(REMAINS, span, "mean and SD")]), ("", each)]
            rows.append(DotRow(name, lanes, format_number(middle.value), name))
        if rows:
            ident = f"{view.ident}-runs-{metric}"
            panels.append((title, dots(rows, axis, ident=ident, title=f"{title} of every run", lane=13)))
    legend = [(REMAINS, "mean of the runs; bar: ±1 SD"), (OVERALL, "a run")]
    return Figure("Every run", panels, legend, file="runs") if panels else None


def _runs_table(mean: Book, metrics: list[str]) -> Table:
    rows: dict[str, list[Entry]] = {}
    for finding in mean.everyone():
        rows[finding] = []
        for metric in metrics:
            cell, spread = find(mean, finding, metric), find(mean, finding, f"{metric}.sd")
            below = f"SD {format_number(spread.value, 4)}" if is_finite(spread.value) else ""
            rows[finding].append(Entry(format_number(cell.value), below))
    columns = [Column(_METRICS[metric][0], _METRICS[metric][1]) for metric in metrics]
    return finding_table(mean, "Mean over the runs, and SD between them", columns, rows)


def _curves(view: View, mean: Book, kind: str) -> Multiples | None:
    pictures = []
    for k, finding in enumerate(mean.findings):
        curve = line_of(view.lines, mean, finding, kind)
        if curve is None:
            continue
        name, ident = finding_name(finding), f"{view.ident}-{kind}-{k}"
        if kind == "roc_mean":
            words = f"mean AUROC {format_number(find(mean, finding, 'auroc').value)}"
            picture = roc(curve, ident=ident, title=f"Averaged ROC curve, {name}", about=words)
        else:
            words = f"mean AP {format_number(find(mean, finding, 'average_precision').value)}"
            prevalence = find(view.book, finding, "prevalence").value
            title = f"Averaged precision-recall curve, {name}"
            picture = precision_recall(curve, prevalence=prevalence, ident=ident, title=title, about=words)
        pictures.append((finding, words, picture))
    title = "ROC curves averaged over runs" if kind == "roc_mean" else "Precision-recall curves averaged over runs"
    return Multiples(title, "Averaged point by point. Band: spread between runs.", pictures) if pictures else None


# One model on several datasets -> tables side by side.


def datasets(subjects: Sequence[Subject]) -> Section | None:
    """The section, or None where no model has several datasets."""
    by_model: dict[str, list[Subject]] = {}
    for subject in subjects:
        by_model.setdefault(subject.model, []).append(subject)
    several = {model: found for model, found in by_model.items() if len(found) > 1}
    if not several:
        return None
    blocks: list[Block] = []
    for model, found in several.items():
        blocks += [table for table in (_numbers(model, found), _gaps(model, found)) if table]
    lead = ["Each dataset is audited separately. Findings are matched by name; they may be labelled differently."]
    return Section("datasets", "The same model across datasets", "Across datasets", lead, blocks)


def _findings(subjects: Sequence[Subject]) -> list[str]:
    return list(dict.fromkeys(finding for subject in subjects for finding in subject.book.findings))


def _numbers(model: str, subjects: Sequence[Subject]) -> Table:
    rows: list[list[Entry]] = []
    held = any(subject.book.has("reweighted", "matched") for subject in subjects)
    for finding in _findings(subjects):
        row = [name_entry(finding)]
        for subject in subjects:
            row.append(entry(subject.book.overall(finding)))
            row += [entry(subject.book.held(finding, "auroc_att"))] if held else []
            row.append(entry(subject.book.get("overview", finding, "prevalence")))
        rows.append(row)
    columns = [Column("Finding")]
    for subject in subjects:
        name = subject.book.dataset or "no name"
        columns.append(Column(f"{name}: AUROC"))
        columns += [Column(f"{name}: context equal", "AUROC with context held equal (ATT)")] if held else []
        columns.append(Column(f"{name}: prevalence"))
    return Table(f"{model} on every dataset", columns, rows)


def _gaps(model: str, subjects: Sequence[Subject]) -> Table | None:
    found = [gaps_of(subject.book) for subject in subjects]
    kinds = list(dict.fromkeys(kind for gaps in found for _, kind, _ in gaps if " & " not in kind))
    rows = []
    for finding in _findings(subjects):
        for kind in kinds:
            if not any((finding, kind, "auroc") in gaps for gaps in found):
                continue
            row = [name_entry(finding), words_entry(kind)]
            for gaps in found:
                for metric in ("auroc", "auroc_balanced"):
                    highest, lowest, cell = gaps.get((finding, kind, metric), ("", "", None))
                    made = entry(cell) if cell is not None else Entry("–")
                    row.append(made._replace(below=f"{made.below}\n{highest} over {lowest}".strip()) if cell else made)
            rows.append(row)
    if not rows:
        return None
    columns = [Column("Finding"), Column("Groups", "", True)]
    for subject in subjects:
        name = subject.book.dataset or "no name"
        columns += [Column(f"{name}: AUROC gap", "Highest minus lowest subgroup"), Column(f"{name}: balanced")]
    return Table(f"{model}: AUROC gaps between subgroups on every dataset", columns, rows)
