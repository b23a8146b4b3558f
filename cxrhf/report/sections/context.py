"""Strata of what was known before the image -> dot plots per finding, differences between the ends, all numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence

from cxrhf.report.blocks import (
    CHANCE,
    Block,
    Column,
    Entry,
    Figure,
    Fold,
    Section,
    Table,
    Text,
    count_entry,
    difference,
    entry,
    finding_name,
    finding_table,
    fold_block,
    name_entry,
    percent_entry,
    words_entry,
)
from cxrhf.report.book import Cell
from cxrhf.report.figures import CONTEXT, FOURTH, OVERALL, REMAINS, Axis, Dot, DotRow, Mark, dots
from cxrhf.report.numbers import is_finite, join_names
from cxrhf.report.sections.view import View, corrected, interval_caption

# Slice -> mark, short name, name in full.
PRETEST = {
    "pretest=bottom": (OVERALL, "bottom", "Bottom quarter of pre-test probability"),
    "pretest=middle": (CONTEXT, "middle", "Middle half of pre-test probability"),
    "pretest=top": (REMAINS, "top", "Top quarter of pre-test probability"),
}
MENTION = {
    "mention=no": (OVERALL, "not mentioned", "Not mentioned in prior notes"),
    "mention=yes": (REMAINS, "mentioned", "Mentioned in prior notes"),
}
STRATA = {slice: full for slice, (_, _, full) in (PRETEST | MENTION).items()}
_PANELS = (
    ("auroc", "AUROC", Axis("AUROC within the stratum", 0.5, 1.0, reference=0.5, floor=0.4, ceiling=1.0)),
    ("sensitivity_at_specificity", "Sensitivity, own threshold",
     Axis("at 95% specificity within the stratum", 0.0, 1.0, floor=0.0, ceiling=1.0)),
    ("sensitivity_global", "Sensitivity, one threshold for all",
     Axis("at the threshold of the whole sample", 0.0, 1.0, floor=0.0, ceiling=1.0)),
)  # fmt: skip
_CALIBRATION = (
    ("adaptive_calibration_error", "Calibration error",
     Axis("tick: what a calibrated model would show", 0.0, 0.05, floor=0.0, ceiling=1.0, step=0.05)),
)  # fmt: skip
_DIFFERENCES = (
    ("auroc", "AUROC", "AUROC within the stratum"),
    ("sensitivity_at_specificity", "Sensitivity, own threshold", "At 95% specificity within the stratum"),
    ("sensitivity_global", "Sensitivity, one threshold", "At the one threshold of the whole sample"),
    ("specificity_global", "Specificity, one threshold", "At the one threshold of the whole sample"),
    ("ace_excess", "Excess calibration error", "Calibration error minus what a calibrated model would show"),
    ("brier_skill_score", "Brier skill", "0 = no better than always predicting the prevalence of the stratum"),
)


def context(view: View) -> Section | None:
    """The section, or None without the audit."""
    if not view.book.has("context"):
        return None
    slices = view.book.slices("context")
    blocks: list[Block | None] = []
    lead: list[str] = []
    for strata, first, last, title in (
        (PRETEST, "pretest=bottom", "pretest=top", "By pre-test probability"),
        (MENTION, "mention=no", "mention=yes", "By mention in prior notes"),
    ):
        if not any(name in slices for name in strata):
            continue
        lead += _summary(view, first, last)
        figure = _figure(view, title, strata, first.split("=")[0], _PANELS)
        blocks.append(figure)
        errors = _figure(view, f"Calibration error {title.lower()}", strata, first.split("=")[0], _CALIBRATION)
        blocks.append(fold_block(errors))
        blocks.append(_differences(view, first, last, strata))
    blocks.append(_threshold(view, slices))
    known_slices = [name for name in (*PRETEST, *MENTION) if name in slices]
    blocks.append(fold_block(_all_numbers_table(view, known_slices)))
    if not lead:
        lead = ["No difference between strata could be computed. Point at a dash to read why."]
    blocks.insert(
        0,
        Text(
            "A model that reads only the image should rank about as well among patients for whom the finding was "
            "expected as among those for whom it was not. With one threshold for all, sensitivity usually rises with "
            "the pre-test probability even when ranking within strata falls.",
            "muted",
        ),
    )
    kept = [block for block in blocks if block is not None]
    return Section(f"{view.ident}-context", "Performance by patient context", "Context", lead, kept)


def _threshold(view: View, slices: Sequence[str]) -> Text | None:
    """Which rows set the one threshold for all: the paper's are those that are evaluated."""
    cells = (view.get("context", f, "sensitivity_global", slice=name) for f in view.book.findings for name in slices)
    methods = [cell.method for cell in cells if is_finite(cell.value)]
    if not methods:
        return None
    held = sum("validation rows" in method for method in methods)
    if not held:
        return Text("The single threshold for all strata is set on all evaluated rows, as in CONTEXT.", "muted")
    return Text(
        "The single threshold for all strata is set on the validation rows and held fixed, as in deployment. CONTEXT "
        "sets it on the evaluated rows (--threshold-from sample).",
        "muted",
    )


def _summary(view: View, first: str, last: str) -> list[str]:
    """How many findings differ between the ends, and which way."""
    tested = {
        finding: cell
        for finding in view.book.findings
        if is_finite((cell := view.get("context", finding, "auroc", last, first)).p_value)
    }
    if not tested:
        return []
    beyond = {finding: cell for finding, cell in tested.items() if cell.p_value < CHANCE}
    what = (
        "the bottom and top quarters of pre-test probability"
        if "pretest" in first
        else "patients whose prior notes do not and do mention the finding"
    )
    if not beyond:
        return [
            f"The AUROC does not differ significantly between {what} for any of {len(tested)} findings "
            f"{view.corrected}."
        ]
    lower = [finding_name(finding) for finding, cell in beyond.items() if cell.value > 0]
    higher = [finding_name(finding) for finding, cell in beyond.items() if cell.value < 0]
    end = "where the finding was likely" if "pretest" in first else "where the finding was mentioned"
    words = [f"lower {end} for {join_names(lower)}"] if lower else []
    words += [f"higher {end} for {join_names(higher)}"] if higher else []
    return [
        f"The AUROC differs significantly between {what} for {len(beyond)} of {len(tested)} findings "
        f"{view.corrected}. It is {'; '.join(words)}."
    ]


def _figure(
    view: View,
    title: str,
    strata: dict[str, tuple[str, str, str]],
    name: str,
    metrics: Sequence[tuple[str, str, Axis]],
) -> Figure | None:
    panels = []
    for metric, shown, axis in metrics:
        rows = []
        for finding in view.book.everyone():
            lanes = []
            for each, (kind, short, _) in strata.items():
                cell = view.get("context", finding, metric, slice=each)
                null = view.get("context", finding, "expected_ace", slice=each).value
                dot = Dot(kind, cell.mark, short, null if metric == "adaptive_calibration_error" else float("nan"))
                lanes.append(("", [dot]))
            if any(is_finite(dot.mark.value) for _, (dot,) in lanes):
                rows.append(DotRow(finding_name(finding), lanes, finding=finding_name(finding)))
        if rows:
            ident, words = f"{view.ident}-ctx-{name}-{metric}", f"{shown}: {title.lower()}"
            panels.append((shown, dots(rows, axis, ident=ident, title=words, lane=12)))
    legend = [(kind, full) for kind, _, full in strata.values()]
    file = "context" if metrics is _PANELS else ""
    return Figure(title, panels, legend, interval_caption(view.level), file=file) if panels else None


def _differences(view: View, first: str, last: str, strata: dict[str, tuple[str, str, str]]) -> Table | None:
    rows: dict[str, list[Entry]] = {}
    for finding in view.book.everyone():
        cells = [view.get("context", finding, metric, last, first) for metric, *_ in _DIFFERENCES]
        if any(is_finite(cell.value) or cell.note for cell in cells):
            rows[finding] = [difference(cell) for cell in cells]
    if not rows:
        return None
    columns = [Column(title, about) for _, title, about in _DIFFERENCES]
    caption = f"Differences: {strata[first][1]} minus {strata[last][1]}"
    after = corrected(view.correction, scope=True)
    about = f"Bold p values are below 0.05 {after}; intervals are not corrected."
    return finding_table(view.book, caption, columns, rows, about)


def _all_numbers_table(view: View, slices: Sequence[str]) -> Table:
    metrics = (
        "auroc",
        "sensitivity_at_specificity",
        "sensitivity_global",
        "specificity_global",
        "adaptive_calibration_error",
        "expected_ace",
        "brier_skill_score",
    )
    rows = []
    for finding in view.book.everyone():
        for k, each in enumerate(slices):
            cells = [view.get("context", finding, metric, slice=each) for metric in metrics]
            share, prevalence = (view.get("context", finding, name, slice=each) for name in ("share", "prevalence"))
            if not any(is_finite(cell.value) or cell.note for cell in (*cells, share)):
                continue
            stratum = words_entry(STRATA[each])._replace(key=f"{k}")
            rows.append(
                [name_entry(finding), stratum, percent_entry(share.value), entry(prevalence), *map(entry, cells)]
            )
    columns = [
        Column("Finding"),
        Column(
            "Stratum",
            "Of pre-test probability (25%, 50%, 25% of the images), or whether a prior note mentions the finding",
            True,
        ),
        Column("Share", "Of the images"),
        Column("Prevalence", "Share of positives in the stratum"),
        Column("AUROC"),
        Column("Sensitivity, own threshold", "At 95% specificity within the stratum"),
        Column("Sensitivity, one threshold", "At the threshold with 95% specificity in the whole sample"),
        Column("Specificity, one threshold", "At the same threshold, within the stratum"),
        Column("Calibration error", "Adaptive; compare strata of different size only together with the next column"),
        Column("…\u00a0if calibrated", "What a calibrated model would show in a stratum of this size"),
        Column("Skill", "Brier skill score against the stratum's prevalence"),
    ]
    return Table("All metrics of all strata", columns, rows)


# Context held equal, by matching and by weights: what the model keeps of its ranking, sensitivity and calibration.


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
    return Section(f"{view.ident}-controlled", title, "Context controlled", _controlled_summary(view), kept)


def _controlled_summary(view: View) -> list[str]:
    book = view.book
    poor = [finding_name(f) for f in book.findings if book.held(f, "verdict").note.startswith("poor overlap")]
    drops = {f: book.drop(f) for f in book.findings}
    tested = [cell for cell in drops.values() if is_finite(cell.p_value)]
    beyond = [finding_name(f) for f, cell in drops.items() if cell.p_value < CHANCE and cell.value > 0]
    lead = []
    if tested:
        lead.append(
            f"{view.corrected.capitalize()}, the AUROC drops significantly for {len(beyond)} of {len(tested)} findings"
            f"{': ' + join_names(beyond, 14) if beyond else ''}."
        )
    if poor:
        lead.append(
            f"Positives and negatives overlap little in context for {join_names(poor)}: interpret those numbers with "
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
        if is_finite(marks[0][2].value) and any(is_finite(cell.value) for _, _, cell in marks[1:]):
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
    caption = f"{interval_caption(view.level)} ATT and matching answer the same question, IPW a different one."
    return Figure(title, panels, legend, caption, file="reweighted")


def _sensitivity(view: View) -> Table | None:
    rows: dict[str, list[Entry]] = {}
    for finding in view.book.everyone():
        overall = view.get("matched", finding, "sensitivity_at_specificity")
        if not is_finite(overall.value):
            overall = view.get("overview", finding, "sensitivity_at_specificity")
        held = [_population(view, finding, "sensitivity_at_specificity", way) for _, way, *_ in WAYS]
        one = [view.book.held(finding, f"{name}_att") for name in ("sensitivity_global", "specificity_global")]
        if any(is_finite(cell.value) for cell in (*held, *one)):
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
        if any(is_finite(cell.value) for cell in cells):
            rows[finding] = [difference(cell) for cell in cells]
    columns = [Column(f"Overall minus {name}") for _, _, name, _ in WAYS]
    return finding_table(view.book, "Drop in AUROC by method", columns, rows) if rows else None


def _calibration(view: View) -> Table | None:
    metrics = ("adaptive_calibration_error", "expected_ace", "brier_skill_score")
    rows: dict[str, list[Entry]] = {}
    for finding in view.book.everyone():
        cells = [_population(view, finding, metric, way) for _, way, *_ in WAYS for metric in metrics]
        if any(is_finite(cell.value) for cell in cells):
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


# What a comparison with context held equal rests on: balance, effective sizes, overlap, pairs.

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
        if any(is_finite(dot.mark.value) for dot in apart):
            before.append(DotRow(shown, [("", apart)], "", shown))
        left = [
            Dot(kind, Mark(_least_effective_share(view, finding, way)), short)
            for kind, way, _, short in WAYS
            if way != "matched"
        ]
        if any(is_finite(dot.mark.value) for dot in left):
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


def _least_effective_share(view: View, finding: str, way: str) -> float:
    """The effective share of the class of which the weights leave least."""
    shares = []
    for side in ("positive", "negative"):
        cell = view.book.held(finding, f"effective_sample_size_{way}.{side}")
        whole = cell.n_pos if side == "positive" else cell.n - cell.n_pos
        shares += [cell.value / whole] if is_finite(cell.value) and whole else []
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
        if not is_finite(size.value) and not is_finite(paired("pair_summary.n_pairs").value):
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
