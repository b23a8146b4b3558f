"""Several runs (training seeds) of one model: mean and spread, a dot for each run, averaged curves."""

from __future__ import annotations

from cxrhf.report.blocks import (
    Block,
    Column,
    Entry,
    Figure,
    Multiples,
    Section,
    Table,
    finding_name,
    finding_table,
    folded,
)
from cxrhf.report.book import MACRO, Book, find, line_of, seed_of
from cxrhf.report.figures import OVERALL, REMAINS, Axis, Dot, DotRow, Mark, dots, precision_recall, roc
from cxrhf.report.numbers import known, number
from cxrhf.report.sections.view import View

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
    there = [metric for metric in _METRICS if any(known(find(mean, f, metric).value) for f in mean.findings)]
    if not there:
        return None
    blocks: list[Block | None] = [_figure(view, mean, there), _table(mean, there)]
    blocks += [folded(_curves(view, mean, kind)) for kind in ("roc_mean", "pr_mean")]
    kept = [block for block in blocks if block is not None]
    seeds = ", ".join(seed_of(run.model) for run in several)
    whole = find(mean, MACRO if len(mean.findings) > 1 else mean.findings[0], "auroc")
    spread = find(mean, MACRO if len(mean.findings) > 1 else mean.findings[0], "auroc.sd")
    lead = [
        f"{len(several)} runs ({seeds}): mean AUROC {number(whole.value)}, SD between runs {number(spread.value)}. "
        "The SD describes training runs only; it does not include the sampling of patients.",
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
            if not known(middle.value):
                continue
            each = [
                Dot(OVERALL, Mark(find(run, finding, metric).value), seed_of(run.model)) for run in view.subject.runs
            ]
            span = Mark(middle.value, middle.value - spread, middle.value + spread)
            name = finding_name(finding)
            lanes = [("", [Dot(REMAINS, span, "mean and SD")]), ("", each)]
            rows.append(DotRow(name, lanes, number(middle.value), name))
        if rows:
            ident = f"{view.ident}-runs-{metric}"
            panels.append((title, dots(rows, axis, ident=ident, title=f"{title} of every run", lane=13)))
    legend = [(REMAINS, "mean of the runs; bar: ±1 SD"), (OVERALL, "a run")]
    return Figure("Every run", panels, legend, file="runs") if panels else None


def _table(mean: Book, metrics: list[str]) -> Table:
    rows: dict[str, list[Entry]] = {}
    for finding in mean.everyone():
        rows[finding] = []
        for metric in metrics:
            cell, spread = find(mean, finding, metric), find(mean, finding, f"{metric}.sd")
            below = f"SD {number(spread.value, 4)}" if known(spread.value) else ""
            rows[finding].append(Entry(number(cell.value), below))
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
            words = f"mean AUROC {number(find(mean, finding, 'auroc').value)}"
            picture = roc(curve, ident=ident, title=f"Averaged ROC curve, {name}", about=words)
        else:
            words = f"mean AP {number(find(mean, finding, 'average_precision').value)}"
            prevalence = find(view.book, finding, "prevalence").value
            title = f"Averaged precision-recall curve, {name}"
            picture = precision_recall(curve, prevalence=prevalence, ident=ident, title=title, about=words)
        pictures.append((finding, words, picture))
    title = "ROC curves averaged over runs" if kind == "roc_mean" else "Precision-recall curves averaged over runs"
    return Multiples(title, "Averaged point by point. Band: spread between runs.", pictures) if pictures else None
