"""Curves and tables of what another prevalence would change, on demand."""

from __future__ import annotations

from collections.abc import Sequence

from cxrhf.report.blocks import Column, Entry, Fold, Multiples, Table, entry, finding_name, folded, name_entry
from cxrhf.report.figures import Line, along_prevalence
from cxrhf.report.numbers import known, number, percent
from cxrhf.report.sections.view import View

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
    found = [*(folded(_along(view, *kind)) for kind in _ALONG), folded(_fixed(view))]
    return [each for each in found if each is not None]


def _along(view: View, title: str, up: str, kinds: Sequence[tuple[str, str]]) -> Multiples | None:
    pictures = []
    for k, finding in enumerate(view.book.findings):
        curves = [(curve, name) for kind, name in kinds if (curve := view.line(finding, kind)) is not None]
        if not curves:
            continue
        here = view.get("imbalance", finding, "prevalence").value
        about = f"at prevalences {number(curves[0][0].x[0])} to {number(curves[0][0].x[-1])}: " + "; ".join(
            f"{name} from {number(curve.y[0])} to {number(curve.y[-1])}" for curve, name in curves
        )
        name = f"{title}, {finding_name(finding)}"
        drawn = [_positive(curve) for curve, _ in curves]
        ident = f"{view.ident}-{kinds[0][0]}-{k}"
        picture = along_prevalence(drawn, up=up, here=here, ident=ident, title=name, about=about)
        pictures.append((finding, f"sample prevalence {percent(here)}", picture))
    if not pictures:
        return None
    about = "Dashed: the prevalence of this sample. Bands: intervals, where they could be computed."
    about += " A net benefit below 0, worse than treating no one, is drawn at 0." if up == "net benefit" else ""
    legend = [(f"line-{k + 1}", name) for k, (_, name) in enumerate(kinds)]
    return Multiples(title, about, pictures, legend)


def _positive(curve: Line) -> Line:
    """Net benefit may fall below 0, where the picture ends; its words say so."""
    low = [max(value, 0.0) if known(value) else value for value in curve.low]
    return Line(curve.x, [max(y, 0.0) if known(y) else y for y in curve.y], low, curve.high)


def _fixed(view: View) -> Table | None:
    slices = [each for each in view.book.slices("imbalance") if each.startswith("prevalence=")]
    metrics = ("precision", "npv", "average_precision", "brier", "net_benefit")
    rows = []
    for finding in view.book.everyone():
        for each in slices:
            cells = [view.get("imbalance", finding, metric, slice=each) for metric in metrics]
            if any(known(cell.value) for cell in cells):
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
