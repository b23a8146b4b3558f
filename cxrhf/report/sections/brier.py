"""Brier scores of all images and of each class, and what recalibration would remove of them."""

from __future__ import annotations

from cxrhf.report.blocks import Column, Figure, Table, entry, finding_name, finding_table
from cxrhf.report.figures import CONTEXT, FOURTH, OVERALL, REMAINS, Axis, Bar, Dot, DotRow, dots, stacked
from cxrhf.report.numbers import known, number, percent
from cxrhf.report.sections.view import View

_BRIERS = (
    (OVERALL, "brier", "Brier (all images)"),
    (REMAINS, "brier_positive", "Brier+ (positives)"),
    (FOURTH, "brier_negative", "Brier− (negatives)"),
    (CONTEXT, "balanced_brier", "balanced: Brier+ plus Brier−"),
)
_PARTS = ("calibration", "refinement", "discrimination", "uncertainty")
_LOSSES = (("calibration", "calibration loss"), ("discrimination", "discrimination loss"))
_VERBS = ("remove", "leave")
_NULL = "Brier score; tick: always predicting the prevalence"


def brier(view: View) -> Figure | None:
    """Brier by class, the rarest finding first; and what recalibration would remove."""
    found = [f for f in view.book.findings if known(view.get("imbalance", f, "brier").value)]
    found.sort(key=lambda f: view.get("imbalance", f, "prevalence").value)
    if not found:
        return None
    rows, split = [], []
    for finding in found:
        name = finding_name(finding)
        beside = f"prevalence {percent(view.get('imbalance', finding, 'prevalence').value)}"
        lanes = [("", [Dot(kind, view.get("imbalance", finding, each).mark, title)]) for kind, each, title in _BRIERS]
        rows.append(DotRow(name, lanes, beside, name))
        parts = [view.get("imbalance", finding, f"pav_decomposition.{part}").value for part in _PARTS[:2]]
        if known(*parts):
            null = view.get("imbalance", finding, "pav_decomposition.uncertainty").value
            split.append(Bar(name, parts, null, f"Brier {number(sum(parts), 4)}", name))
    axis = Axis("squared error; lower is better", 0.0, 1.0, floor=0.0, ceiling=2.0)
    title = "By class, rarest finding first"
    panels = [(title, dots(rows, axis, ident=f"{view.ident}-brier", title=f"Brier score {title.lower()}", lane=11))]
    legend = [(kind, name) for kind, _, name in _BRIERS]
    if split:
        title = "Decomposition by isotonic recalibration"
        panels.append((title, stacked(split, _LOSSES, label=_NULL, ident=f"{view.ident}-pav", title=f"Brier: {title}")))
        legend += [
            (kind, f"{name}: what recalibration would {verb}")
            for (kind, name), verb in zip(_LOSSES, _VERBS, strict=True)
        ]
    caption = "A low Brier score means little for a rare finding: always predicting 'no' does nearly as well."
    return Figure("Brier scores", panels, legend, caption, file="imbalance")


def pav_table(view: View) -> Table | None:
    """The split in numbers, and net benefit."""
    rows = {}
    for finding in view.book.everyone():
        cells = [view.get("imbalance", finding, f"pav_decomposition.{part}") for part in _PARTS]
        if known(cells[0].value):
            rows[finding] = [*(entry(cell, 4) for cell in cells), entry(view.get("imbalance", finding, "net_benefit"))]
    columns = [
        Column("Calibration loss", "What isotonic recalibration would remove; above 0 even for a calibrated model"),
        Column("Discrimination loss", "What would remain; fitted to these images, so optimistic"),
        Column("Discrimination", "What ranking gains over always predicting the prevalence"),
        Column("Uncertainty", "Brier score of always predicting the prevalence"),
        Column("Net benefit", "At a risk threshold of 0.1, in this sample"),
    ]
    return finding_table(view.book, "Brier score decomposition", columns, rows) if rows else None
