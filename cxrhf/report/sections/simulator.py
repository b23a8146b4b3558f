"""Sensitivity and specificity of every finding -> a table whose prevalence the reader moves.

PPV and NPV follow from the two rates at any prevalence, so the page computes them as the slider moves; net benefit is
read off its curve. Without a script the table stands at the sample's own prevalence.
"""

from __future__ import annotations

from cxrhf.report.blocks import Column, Entry, Simulator, Table, finding_name
from cxrhf.report.numbers import known, number, percent
from cxrhf.report.sections.view import View


def simulator(view: View) -> Simulator | None:
    """The simulator, or None where no finding has an operating point."""
    rows, has_benefit = [], False
    for finding in view.book.findings:
        tpr, specificity, prevalence = (
            view.get("imbalance", finding, name).value for name in ("tpr", "specificity", "prevalence")
        )
        if not known(tpr, specificity, prevalence):
            continue
        fpr = 1 - specificity
        curve = view.line(finding, "net_benefit_by_prevalence")
        points = []
        if curve is not None:
            points = [(x, y) for x, y in zip(curve.x, curve.y, strict=True) if known(x, y)]
        has_benefit = has_benefit or bool(points)
        here = view.get("imbalance", finding, "net_benefit").value
        data = (
            ("tpr", f"{tpr:.6g}"),
            ("fpr", f"{fpr:.6g}"),
            ("prevalence", f"{prevalence:.6g}"),
            ("benefit", " ".join(f"{x:.5g},{y:.5g}" for x, y in points)),
            ("here", f"{here:.6g}" if known(here) else ""),
        )
        shown = finding_name(finding)
        rows.append(
            [
                Entry(shown, data=data),
                Entry(percent(tpr)),
                Entry(percent(specificity)),
                Entry(percent(prevalence, 2)),
                *(Entry(number(value)) for value in predictive(tpr, fpr, prevalence)),
                Entry(number(here, 4)),
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
