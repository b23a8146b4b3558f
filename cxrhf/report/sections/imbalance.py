"""What rare findings do to the numbers, and what another prevalence would: scatter, Brier parts, simulator."""

from __future__ import annotations

from cxrhf.report.blocks import (
    Block,
    Column,
    Entry,
    Figure,
    Section,
    Table,
    entry,
    finding_name,
    finding_table,
    folded,
    words_entry,
)
from cxrhf.report.figures import OVERALL, Point, scatter
from cxrhf.report.numbers import known, number, percent
from cxrhf.report.sections.brier import brier, pav_table
from cxrhf.report.sections.prevalence import folds
from cxrhf.report.sections.simulator import simulator
from cxrhf.report.sections.view import View


def imbalance(view: View) -> Section | None:
    """The section, or None without the audit."""
    if not view.book.has("imbalance"):
        return None
    blocks: list[Block | None] = [_scatter(view), _ranking(view), brier(view), _operating(view), simulator(view)]
    blocks += [*folds(view), folded(pav_table(view))]
    kept = [block for block in blocks if block is not None]
    return Section(f"{view.ident}-imbalance", "Rare findings and other prevalences", "Imbalance", _lead(view), kept)


def _lead(view: View) -> list[str]:
    found = []
    for finding in view.book.findings:
        auroc, precision, prevalence = (
            view.get("imbalance", finding, name).value for name in ("auroc", "average_precision", "prevalence")
        )
        if known(auroc, precision, prevalence):
            found.append((prevalence, finding_name(finding), auroc, precision))
    if not found:
        return []
    rare, common = min(found), max(found)
    words = "AUROC does not depend on prevalence; average precision, PPV and the Brier score do."
    if rare != common:
        words += (
            f" The rarest finding, {rare[1]} ({percent(rare[0])} of images), has an AUROC of {number(rare[2])} and an "
            f"average precision of {number(rare[3])}; the most common, {common[1]} ({percent(common[0])}), "
            f"{number(common[2])} and {number(common[3])}."
        )
    return [words]


def _scatter(view: View) -> Figure | None:
    points = []
    for finding in view.book.findings:
        across, up, here = (
            view.get("imbalance", finding, name) for name in ("auroc", "average_precision", "prevalence")
        )
        if known(across.value, up.value):
            points.append(Point(finding_name(finding), across.mark, up.mark, here.value))
    if not points:
        return None
    about = "; ".join(
        f"{p.name}: AUROC {number(p.across.value)}, average precision {number(p.up.value)}, prevalence {number(p.null)}"
        for p in points
    )
    title = "AUROC against average precision"
    picture = scatter(
        points, across="AUROC", up="average precision", ident=f"{view.ident}-scatter", title=title, about=about
    )
    caption = (
        f"Bars are {view.level} intervals. The tick below a point is the prevalence, the average precision expected by "
        f"chance. The AUROC expected by chance is 0.5 at any prevalence."
    )
    legend = [(OVERALL, "a finding"), ("tick-flat", "its prevalence")]
    return Figure(title, [("", picture)], legend, caption, file="imbalance", size="scatter")


def _ranking(view: View) -> Table | None:
    names = (
        "prevalence",
        "auroc",
        "average_precision",
        "auprc_trapezoid",
        "brier",
        "brier_positive",
        "brier_negative",
        "balanced_brier",
    )
    rows = {
        finding: [entry(view.get("imbalance", finding, name)) for name in names]
        for finding in view.book.everyone()
        if known(view.get("imbalance", finding, "auroc").value)
    }
    columns = [
        Column("Prevalence", "Share of images with the finding; the chance level of average precision"),
        Column("AUROC", "Chance level is 0.5"),
        Column("Average precision", "Chance level is the prevalence"),
        Column("AUPRC", "By the trapezoidal rule; optimistic between points"),
        Column("Brier", "Mean squared error of the probability"),
        Column("Brier+", "Among positives"),
        Column("Brier−", "Among negatives"),
        Column("Balanced Brier", "Brier+ plus Brier−, 0 to 2; not a proper score, so do not rank calibration by it"),
    ]
    return (
        finding_table(view.book, "Metrics that depend on prevalence, and AUROC, which does not", columns, rows)
        if rows
        else None
    )


def _operating(view: View) -> Table | None:
    names = ("max_f1_threshold", "tpr", "specificity", "precision", "npv", "f1", "mcc")
    rows: dict[str, list[Entry]] = {}
    for finding in view.book.everyone():
        cells = [view.get("imbalance", finding, name) for name in names]
        if any(known(cell.value) for cell in cells[1:]):
            chosen = (
                "these images (optimistic)" if "optimistic" in cells[0].note + cells[1].note else "validation split"
            )
            rows[finding] = [*map(entry, cells), words_entry(chosen, cells[0].method)]
    columns = [
        Column("Threshold", "The score with the largest F1; images at or above it are predicted positive"),
        Column("Sensitivity"),
        Column("Specificity"),
        Column("PPV", "At this sample's prevalence"),
        Column("NPV", "At this sample's prevalence"),
        Column("F1"),
        Column("MCC", "Matthews correlation, −1 to 1"),
        Column("Threshold chosen on", "A threshold chosen on the evaluated images looks better than it is", True),
    ]
    return finding_table(view.book, "Operating point with the largest F1", columns, rows) if rows else None
