"""Context held equal, by matching and by weights: what the model keeps of its ranking, sensitivity and calibration."""

from __future__ import annotations

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
    entry,
    finding_name,
    finding_table,
)
from cxrhf.report.book import Cell
from cxrhf.report.figures import OVERALL, Axis, Dot, DotRow, dots
from cxrhf.report.numbers import known, listed
from cxrhf.report.sections.balance import WAYS, balance, diagnostics
from cxrhf.report.sections.view import View, bars


def controlled(view: View) -> Section | None:
    """The section, or None without both audits."""
    if not view.book.has("matched", "reweighted"):
        return None
    blocks: list[Block | None] = [_aurocs(view), balance(view), diagnostics(view), _sensitivity(view)]
    more = [each for each in (_drops(view), _calibration(view)) if each is not None]
    if more:
        blocks.append(Fold("More metrics with context controlled", more))
    kept = [block for block in blocks if block is not None]
    title = "AUROC with context held equal: matched and reweighted"
    return Section(f"{view.ident}-controlled", title, "Context controlled", _lead(view), kept)


def _lead(view: View) -> list[str]:
    book = view.book
    poor = [finding_name(f) for f in book.findings if book.held(f, "verdict").note.startswith("poor overlap")]
    drops = {f: book.drop(f) for f in book.findings}
    tested = [cell for cell in drops.values() if known(cell.p_value)]
    beyond = [finding_name(f) for f, cell in drops.items() if cell.p_value < CHANCE and cell.value > 0]
    lead = []
    if tested:
        lead.append(
            f"{view.corrected.capitalize()}, the AUROC drops significantly for {len(beyond)} of {len(tested)} findings"
            f"{': ' + listed(beyond, 14) if beyond else ''}."
        )
    if poor:
        lead.append(
            f"Positives and negatives overlap little in context for {listed(poor)}: interpret those numbers with "
            "caution."
        )
    return lead


def _population(view: View, finding: str, metric: str, way: str) -> Cell:
    if way == "matched":
        return view.get("matched", finding, "matched_auroc" if metric == "auroc" else f"{metric}_matched")
    return view.book.held(finding, f"{metric}_{way}")


def _aurocs(view: View) -> Figure | None:
    rows = []
    for finding in view.book.everyone():
        marks = [(OVERALL, "overall", view.book.overall(finding))]
        marks += [(kind, name, _population(view, finding, "auroc", way)) for kind, way, name, _ in WAYS]
        if known(marks[0][2].value) and any(known(cell.value) for _, _, cell in marks[1:]):
            shown = finding_name(finding)
            rows.append(DotRow(shown, [("", [Dot(kind, cell.mark, name)]) for kind, name, cell in marks], "", shown))
    if not rows:
        return None
    axis = Axis("AUROC", 0.5, 1.0, reference=0.5, floor=0.4, ceiling=1.0)
    third = -(-len(rows) // 3) if len(rows) > 4 else len(rows)
    title = "AUROC with context controlled in three ways"
    panels = [
        ("", dots(rows[start : start + third], axis, ident=f"{view.ident}-held-{start}", title=title, lane=12))
        for start in range(0, len(rows), third)
    ]
    legend = [(OVERALL, "Overall"), *((kind, name) for kind, _, name, _ in WAYS)]
    caption = f"{bars(view.level)} ATT and matching answer the same question, IPW a different one."
    return Figure(title, panels, legend, caption, file="reweighted")


def _sensitivity(view: View) -> Table | None:
    rows: dict[str, list[Entry]] = {}
    for finding in view.book.everyone():
        overall = view.get("matched", finding, "sensitivity_at_specificity")
        if not known(overall.value):
            overall = view.get("overview", finding, "sensitivity_at_specificity")
        held = [_population(view, finding, "sensitivity_at_specificity", way) for _, way, *_ in WAYS]
        one = [view.book.held(finding, f"{name}_att") for name in ("sensitivity_global", "specificity_global")]
        if any(known(cell.value) for cell in (*held, *one)):
            rows[finding] = [entry(cell) for cell in (overall, *held, *one)]
    columns = [
        Column("Overall", "Sensitivity at 95% specificity, all images"),
        Column("Context equal (ATT)", "Threshold reset to 95% specificity among the reweighted negatives"),
        Column("Matched pairs", "Threshold reset among the matched negatives"),
        Column("Context independent (IPW)", "Threshold reset in the reweighted sample"),
        Column("One threshold: sensitivity (ATT)", "At the threshold of the whole sample"),
        Column("One threshold: specificity (ATT)", "At the same threshold, among negatives with the same context"),
    ]
    caption = "Sensitivity at 95% specificity with context controlled"
    return finding_table(view.book, caption, columns, rows) if rows else None


def _drops(view: View) -> Table | None:
    rows: dict[str, list[Entry]] = {}
    for finding in view.book.everyone():
        cells = [
            view.book.held(finding, "auroc_drop", "auroc_att"),
            view.get("matched", finding, "auroc_drop", "matched_auroc"),
            view.book.held(finding, "auroc_drop", "auroc_ipw"),
        ]
        if any(known(cell.value) for cell in cells):
            rows[finding] = [difference(cell) for cell in cells]
    columns = [Column(f"Overall minus {name}") for _, _, name, _ in WAYS]
    return finding_table(view.book, "Drop in AUROC by method", columns, rows) if rows else None


def _calibration(view: View) -> Table | None:
    metrics = ("adaptive_calibration_error", "expected_ace", "brier_skill_score")
    rows: dict[str, list[Entry]] = {}
    for finding in view.book.everyone():
        cells = [_population(view, finding, metric, way) for _, way, *_ in WAYS for metric in metrics]
        if any(known(cell.value) for cell in cells):
            rows[finding] = [entry(cell) for cell in cells]
    columns = [
        Column(f"{title} ({short})", about)
        for _, _, _, short in WAYS
        for title, about in (
            (
                "Calibration error",
                "Adaptive; class weights are scaled back to the prevalence, probabilities are unchanged",
            ),
            ("… if calibrated", "What a calibrated model would show"),
            ("Skill", "Brier skill score"),
        )
    ]
    return finding_table(view.book, "Calibration with context controlled", columns, rows) if rows else None
