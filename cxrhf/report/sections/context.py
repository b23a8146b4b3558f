"""Strata of what was known before the image -> dot plots per finding, differences between the ends, all numbers."""

from __future__ import annotations

from collections.abc import Sequence

from cxrhf.report.blocks import (
    CHANCE,
    Block,
    Column,
    Entry,
    Figure,
    Section,
    Table,
    Text,
    difference,
    entry,
    finding_name,
    finding_table,
    folded,
    name_entry,
    percent_entry,
    words_entry,
)
from cxrhf.report.figures import CONTEXT, OVERALL, REMAINS, Axis, Dot, DotRow, dots
from cxrhf.report.numbers import known, listed
from cxrhf.report.sections.view import View, bars, corrected

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
        lead += _lead(view, first, last)
        figure = _figure(view, title, strata, first.split("=")[0], _PANELS)
        blocks.append(figure)
        errors = _figure(view, f"Calibration error {title.lower()}", strata, first.split("=")[0], _CALIBRATION)
        blocks.append(folded(errors))
        blocks.append(_differences(view, first, last, strata))
    blocks.append(_threshold(view, slices))
    known_slices = [name for name in (*PRETEST, *MENTION) if name in slices]
    blocks.append(folded(_everything(view, known_slices)))
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
    methods = [cell.method for cell in cells if known(cell.value)]
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


def _lead(view: View, first: str, last: str) -> list[str]:
    """How many findings differ between the ends, and which way."""
    tested = {
        finding: cell
        for finding in view.book.findings
        if known((cell := view.get("context", finding, "auroc", last, first)).p_value)
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
    words = [f"lower {end} for {listed(lower)}"] if lower else []
    words += [f"higher {end} for {listed(higher)}"] if higher else []
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
            if any(known(dot.mark.value) for _, (dot,) in lanes):
                rows.append(DotRow(finding_name(finding), lanes, finding=finding_name(finding)))
        if rows:
            ident, words = f"{view.ident}-ctx-{name}-{metric}", f"{shown}: {title.lower()}"
            panels.append((shown, dots(rows, axis, ident=ident, title=words, lane=12)))
    legend = [(kind, full) for kind, _, full in strata.values()]
    file = "context" if metrics is _PANELS else ""
    return Figure(title, panels, legend, bars(view.level), file=file) if panels else None


def _differences(view: View, first: str, last: str, strata: dict[str, tuple[str, str, str]]) -> Table | None:
    rows: dict[str, list[Entry]] = {}
    for finding in view.book.everyone():
        cells = [view.get("context", finding, metric, last, first) for metric, *_ in _DIFFERENCES]
        if any(known(cell.value) or cell.note for cell in cells):
            rows[finding] = [difference(cell) for cell in cells]
    if not rows:
        return None
    columns = [Column(title, about) for _, title, about in _DIFFERENCES]
    caption = f"Differences: {strata[first][1]} minus {strata[last][1]}"
    after = corrected(view.correction, scope=True)
    about = f"Bold p values are below 0.05 {after}; intervals are not corrected."
    return finding_table(view.book, caption, columns, rows, about)


def _everything(view: View, slices: Sequence[str]) -> Table:
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
            if not any(known(cell.value) or cell.note for cell in (*cells, share)):
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
