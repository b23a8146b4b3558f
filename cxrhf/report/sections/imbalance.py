"""What rare findings do to the numbers, and what another prevalence would: scatter, Brier parts, simulator."""

from __future__ import annotations

from collections.abc import Sequence

from cxrhf.report.blocks import (
    Block,
    Column,
    Entry,
    Figure,
    Fold,
    Multiples,
    Section,
    Simulator,
    Table,
    entry,
    finding_name,
    finding_table,
    fold_block,
    name_entry,
    words_entry,
)
from cxrhf.report.figures import (
    CONTEXT,
    FOURTH,
    OVERALL,
    REMAINS,
    Axis,
    Bar,
    Dot,
    DotRow,
    Line,
    Point,
    along_prevalence,
    dots,
    scatter,
    stacked,
)
from cxrhf.report.numbers import format_number, format_percent, is_finite
from cxrhf.report.sections.view import View


def imbalance(view: View) -> Section | None:
    """The section, or None without the audit."""
    if not view.book.has("imbalance"):
        return None
    blocks: list[Block | None] = [_scatter(view), _ranking(view), brier(view), _operating(view), simulator(view)]
    blocks += [*folds(view), fold_block(pav_table(view))]
    kept = [block for block in blocks if block is not None]
    return Section(f"{view.ident}-imbalance", "Rare findings and other prevalences", "Imbalance", _summary(view), kept)


def _summary(view: View) -> list[str]:
    found = []
    for finding in view.book.findings:
        auroc, precision, prevalence = (
            view.get("imbalance", finding, name).value for name in ("auroc", "average_precision", "prevalence")
        )
        if is_finite(auroc, precision, prevalence):
            found.append((prevalence, finding_name(finding), auroc, precision))
    if not found:
        return []
    rare, common = min(found), max(found)
    words = "AUROC does not depend on prevalence; average precision, PPV and the Brier score do."
    if rare != common:
        words += (
            f" The rarest finding, {rare[1]} ({format_percent(rare[0])} of images), has an AUROC of "
            f"{format_number(rare[2])} and an average precision of {format_number(rare[3])}; "
            f"the most common, {common[1]} ({format_percent(common[0])}), {format_number(common[2])} and "
            f"{format_number(common[3])}."
        )
    return [words]


def _scatter(view: View) -> Figure | None:
    points = []
    for finding in view.book.findings:
        across, up, here = (
            view.get("imbalance", finding, name) for name in ("auroc", "average_precision", "prevalence")
        )
        if is_finite(across.value, up.value):
            points.append(Point(finding_name(finding), across.mark, up.mark, here.value))
    if not points:
        return None
    about = "; ".join(
        f"{p.name}: AUROC {format_number(p.across.value)}, average precision {format_number(p.up.value)}, "
        f"prevalence {format_number(p.null)}"
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
        if is_finite(view.get("imbalance", finding, "auroc").value)
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
        if any(is_finite(cell.value) for cell in cells[1:]):
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


# Brier scores of all images and of each class, and what recalibration would remove of them.

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
    found = [f for f in view.book.findings if is_finite(view.get("imbalance", f, "brier").value)]
    found.sort(key=lambda f: view.get("imbalance", f, "prevalence").value)
    if not found:
        return None
    rows, split = [], []
    for finding in found:
        name = finding_name(finding)
        beside = f"prevalence {format_percent(view.get('imbalance', finding, 'prevalence').value)}"
        lanes = [("", [Dot(kind, view.get("imbalance", finding, each).mark, title)]) for kind, each, title in _BRIERS]
        rows.append(DotRow(name, lanes, beside, name))
        parts = [view.get("imbalance", finding, f"pav_decomposition.{part}").value for part in _PARTS[:2]]
        if is_finite(*parts):
            null = view.get("imbalance", finding, "pav_decomposition.uncertainty").value
            split.append(Bar(name, parts, null, f"Brier {format_number(sum(parts), 4)}", name))
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
        if is_finite(cells[0].value):
            rows[finding] = [*(entry(cell, 4) for cell in cells), entry(view.get("imbalance", finding, "net_benefit"))]
    columns = [
        Column("Calibration loss", "What isotonic recalibration would remove; above 0 even for a calibrated model"),
        Column("Discrimination loss", "What would remain; fitted to these images, so optimistic"),
        Column("Discrimination", "What ranking gains over always predicting the prevalence"),
        Column("Uncertainty", "Brier score of always predicting the prevalence"),
        Column("Net benefit", "At a risk threshold of 0.1, in this sample"),
    ]
    return finding_table(view.book, "Brier score decomposition", columns, rows) if rows else None


# Curves and tables of what another prevalence would change, on demand.

# Title, axis, kinds of CURVE with their names.
_ALONG = (
    ("Brier score by prevalence", "Brier", (("brier_by_prevalence", "Brier"),
     ("balanced_brier_by_prevalence", "balanced Brier (does not depend on prevalence)"))),
    ("PPV and NPV by prevalence", "PPV, NPV", (("ppv_by_prevalence", "PPV"), ("npv_by_prevalence", "NPV"))),
    ("Average precision by prevalence", "average precision", (("ap_by_prevalence", "average precision"),)),
    ("Net benefit by prevalence", "net benefit",
     (("net_benefit_by_prevalence", "net benefit at a risk threshold of 0.1"),)),
)  # fmt: skip


def folds(view: View) -> list[Fold]:
    """A fold for each kind of curve, and one for the numbers at fixed prevalences."""
    found = [*(fold_block(_along(view, *kind)) for kind in _ALONG), fold_block(_fixed(view))]
    return [each for each in found if each is not None]


def _along(view: View, title: str, up: str, kinds: Sequence[tuple[str, str]]) -> Multiples | None:
    pictures = []
    for k, finding in enumerate(view.book.findings):
        curves = [(curve, name) for kind, name in kinds if (curve := view.line(finding, kind)) is not None]
        if not curves:
            continue
        here = view.get("imbalance", finding, "prevalence").value
        about = (
            f"at prevalences {format_number(curves[0][0].x[0])} to {format_number(curves[0][0].x[-1])}: "
            + "; ".join(
                f"{name} from {format_number(curve.y[0])} to {format_number(curve.y[-1])}" for curve, name in curves
            )
        )
        name = f"{title}, {finding_name(finding)}"
        drawn = [_clip_below_zero(curve) for curve, _ in curves]
        ident = f"{view.ident}-{kinds[0][0]}-{k}"
        picture = along_prevalence(drawn, up=up, here=here, ident=ident, title=name, about=about)
        pictures.append((finding, f"sample prevalence {format_percent(here)}", picture))
    if not pictures:
        return None
    about = "Dashed: the prevalence of this sample. Bands: intervals, where they could be computed."
    about += " A net benefit below 0, worse than treating no one, is drawn at 0." if up == "net benefit" else ""
    legend = [(f"line-{k + 1}", name) for k, (_, name) in enumerate(kinds)]
    return Multiples(title, about, pictures, legend)


def _clip_below_zero(curve: Line) -> Line:
    """Net benefit may fall below 0, where the picture ends; its words say so."""
    low = [max(value, 0.0) if is_finite(value) else value for value in curve.low]
    return Line(curve.x, [max(y, 0.0) if is_finite(y) else y for y in curve.y], low, curve.high)


def _fixed(view: View) -> Table | None:
    slices = [each for each in view.book.slices("imbalance") if each.startswith("prevalence=")]
    metrics = ("precision", "npv", "average_precision", "brier", "net_benefit")
    rows = []
    for finding in view.book.everyone():
        for each in slices:
            cells = [view.get("imbalance", finding, metric, slice=each) for metric in metrics]
            if any(is_finite(cell.value) for cell in cells):
                value = each.partition("=")[2]
                rows.append([name_entry(finding), Entry(value), *map(entry, cells)])
    columns = [
        Column("Finding"),
        Column("Prevalence", "The same model where the finding is this common"),
        Column("PPV", "At the threshold with the largest F1"),
        Column("NPV", "At the threshold with the largest F1"),
        Column("Average precision", "Chance level is the prevalence"),
        Column("Brier", "Of the probability as the model outputs it"),
        Column("Net benefit", "At a risk threshold of 0.1: nine false positives weigh as much as one true positive"),
    ]
    return Table("Metrics at other prevalences, with intervals", columns, rows) if rows else None


# Sensitivity and specificity of every finding -> a table whose prevalence the reader moves.
#
# PPV and NPV follow from the two rates at any prevalence, so the page computes them as the slider moves; net benefit
# is read off its curve. Without a script the table stands at the sample's own prevalence.


def simulator(view: View) -> Simulator | None:
    """The simulator, or None where no finding has an operating point."""
    rows, has_benefit = [], False
    for finding in view.book.findings:
        tpr, specificity, prevalence = (
            view.get("imbalance", finding, name).value for name in ("tpr", "specificity", "prevalence")
        )
        if not is_finite(tpr, specificity, prevalence):
            continue
        fpr = 1 - specificity
        curve = view.line(finding, "net_benefit_by_prevalence")
        points = []
        if curve is not None:
            points = [(x, y) for x, y in zip(curve.x, curve.y, strict=True) if is_finite(x, y)]
        has_benefit = has_benefit or bool(points)
        here = view.get("imbalance", finding, "net_benefit").value
        data = (
            ("tpr", f"{tpr:.6g}"),
            ("fpr", f"{fpr:.6g}"),
            ("prevalence", f"{prevalence:.6g}"),
            ("benefit", " ".join(f"{x:.5g},{y:.5g}" for x, y in points)),
            ("here", f"{here:.6g}" if is_finite(here) else ""),
        )
        shown = finding_name(finding)
        rows.append(
            [
                Entry(shown, data=data),
                Entry(format_percent(tpr)),
                Entry(format_percent(specificity)),
                Entry(format_percent(prevalence, 2)),
                *(Entry(format_number(value)) for value in predictive(tpr, fpr, prevalence)),
                Entry(format_number(here, 4)),
            ]
        )
    if not rows:
        return None
    columns = [
        Column("Finding"),
        Column("Sensitivity", "At the threshold with the largest F1; does not depend on prevalence"),
        Column("Specificity", "At the same threshold; does not depend on prevalence"),
        Column("Prevalence", "As in this sample, or as set above"),
        Column("PPV", "Share of predicted positives that have the finding"),
        Column("NPV", "Share of predicted negatives that do not have it"),
        Column("False positives per true positive", "Predicted positives without the finding, for each with it"),
    ]
    if has_benefit:
        columns.append(
            Column(
                "Net benefit",
                "At a risk threshold of 0.1 (nine false positives weigh as much as one true positive), with "
                "probabilities corrected to the prevalence",
            )
        )
    else:
        rows = [row[:-1] for row in rows]
    table = Table("PPV and NPV at any prevalence", columns, rows)
    return Simulator(f"{view.ident}-simulator", table)


def predictive(tpr: float, fpr: float, prevalence: float) -> tuple[float, float, float]:
    """PPV, NPV and false alarms per finding found; NaN where nothing is called so."""
    positive, alarms = tpr * prevalence, fpr * (1 - prevalence)
    missed, clear = (1 - tpr) * prevalence, (1 - fpr) * (1 - prevalence)
    nan = float("nan")
    ppv = positive / (positive + alarms) if positive + alarms > 0 else nan
    npv = clear / (clear + missed) if clear + missed > 0 else nan
    return ppv, npv, alarms / positive if positive > 0 else nan
