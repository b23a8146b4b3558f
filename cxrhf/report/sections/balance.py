"""What a comparison with context held equal rests on: balance, effective sizes, overlap, pairs."""

from __future__ import annotations

import math

from cxrhf.report.blocks import (
    Column,
    Entry,
    Figure,
    Table,
    count_entry,
    entry,
    finding_name,
    finding_table,
    percent_entry,
    words_entry,
)
from cxrhf.report.book import Cell
from cxrhf.report.figures import CONTEXT, FOURTH, OVERALL, REMAINS, Axis, Dot, DotRow, Mark, dots
from cxrhf.report.numbers import known
from cxrhf.report.sections.view import View

# Mark, population (metrics carry its name at their end), name, short name.
WAYS = (
    (REMAINS, "att", "Context equal (ATT)", "ATT"),
    (FOURTH, "matched", "Matched pairs", "matching"),
    (CONTEXT, "ipw", "Context independent (IPW)", "IPW"),
)


def balance(view: View) -> Figure | None:
    """How different the classes are in context before and after, and how much data the weights leave."""
    ways = [(OVERALL, "", "before"), *((kind, f"_{way}", f"after {short}") for kind, way, _, short in WAYS)]
    before, sizes = [], []
    for finding in view.book.findings:
        shown = finding_name(finding)
        apart = [Dot(kind, Mark(abs(_difference(view, finding, end))), name) for kind, end, name in ways]
        if any(known(dot.mark.value) for dot in apart):
            before.append(DotRow(shown, [("", apart)], "", shown))
        left = [Dot(kind, Mark(_left(view, finding, way)), short) for kind, way, _, short in WAYS if way != "matched"]
        if any(known(dot.mark.value) for dot in left):
            sizes.append(DotRow(shown, [("", left)], "", shown))
    panels = []
    if before:
        title = "Difference in context between the classes"
        axis = Axis("standardised difference; 0 = equal", 0.0, 1.0, reference=0.1, step=0.5, cap=1.5)
        panels.append((title, dots(before, axis, ident=f"{view.ident}-balance", title=title, lane=18)))
    if sizes:
        title = "Effective share of the reweighted class"
        axis = Axis("effective share of its images; caution below 0.3", 0.0, 1.0, reference=0.3)
        panels.append((title, dots(sizes, axis, ident=f"{view.ident}-size", title=title, lane=14)))
    legend = [(kind, name) for kind, _, name in ways]
    return Figure("Balance and effective sample size", panels, legend, file="matched") if panels else None


def _difference(view: View, finding: str, end: str) -> float:
    name = f"balance{end}.standardised_difference"
    return (view.get("matched", finding, name) if end == "_matched" else view.book.held(finding, name)).value


def _left(view: View, finding: str, way: str) -> float:
    """The effective share of the class of which the weights leave least."""
    shares = []
    for side in ("positive", "negative"):
        cell = view.book.held(finding, f"effective_sample_size_{way}.{side}")
        whole = cell.n_pos if side == "positive" else cell.n - cell.n_pos
        shares += [cell.value / whole] if known(cell.value) and whole else []
    return min(shares, default=math.nan)


def diagnostics(view: View) -> Table | None:
    """Effective sizes, balance, overlap, pairs and the slope of the pre-test probability."""
    rows: dict[str, list[Entry]] = {}
    for finding in view.book.findings:

        def held(metric: str, finding: str = finding) -> Cell:
            return view.book.held(finding, metric)

        def paired(metric: str, finding: str = finding) -> Cell:
            return view.get("matched", finding, metric)

        size, positives = held("effective_sample_size_att.negative"), held("effective_sample_size_ipw.positive")
        if not known(size.value) and not known(paired("pair_summary.n_pairs").value):
            continue
        verdict = held("verdict").note or paired("verdict").note
        said = verdict.partition(":")[0].partition(" (")[0]
        rows[finding] = [
            words_entry(said[:1].upper() + said[1:], verdict),
            count_entry(size.value, f"of {size.n - size.n_pos:,}"),
            count_entry(positives.value, f"of {positives.n_pos:,}"),
            entry(held("balance.standardised_difference"), 2),
            entry(held("balance_att.standardised_difference"), 2),
            entry(held("balance_ipw.standardised_difference"), 2),
            entry(paired("balance_matched.standardised_difference"), 2),
            percent_entry(held("balance.overlap").value),
            entry(paired("pair_summary.mean_difference")),
            percent_entry(paired("pair_summary.same_patient_share").value),
            percent_entry(paired("pair_summary.high_pretest_share").value),
            entry(held("pretest_calibration_slope"), 2),
        ]
    columns = [
        Column("Verdict", "Whether the classes overlap enough in context to be compared", True),
        Column("Effective negatives (ATT)", "Kish effective number of reweighted negatives; caution below 30% or 100"),
        Column("Effective positives (IPW)", "Kish effective number of reweighted positives; caution below 30% or 100"),
        Column("Imbalance before", "Standardised difference of context between the classes; 0 = equal"),
        Column("…\u00a0after ATT", "The same after reweighting"),
        Column("…\u00a0after IPW", "The same after reweighting both classes to all images"),
        Column("…\u00a0after matching", "The same after matching"),
        Column("Overlap", "Overlap of the two distributions of context, before reweighting"),
        Column("Gap in pairs", "Mean remaining difference in pre-test probability within matched pairs"),
        Column("Same patient", "Share of matched pairs in which both images are of the same patient"),
        Column("Pre\u2011test >\u00a00.5", "Share of positives that context alone makes more likely than not"),
        Column("Slope of context", "Calibration slope of the pre-test probability; should be 1"),
    ]
    caption = "Balance, effective sizes, overlap and pairs"
    return finding_table(view.book, caption, columns, rows) if rows else None
