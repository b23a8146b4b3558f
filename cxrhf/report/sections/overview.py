"""Every metric of the whole sample: verdicts, ranking, operating point, calibration; ROC, PR and reliability curves."""

from __future__ import annotations

from markupsafe import Markup

from cxrhf.report.blocks import (
    Block,
    Column,
    Entry,
    Multiples,
    Section,
    Table,
    count_entry,
    entry,
    finding_name,
    finding_table,
    folded,
)
from cxrhf.report.book import MACRO, Cell
from cxrhf.report.figures import Line, precision_recall, reliability, roc
from cxrhf.report.numbers import known, listed, number
from cxrhf.report.sections.view import View

_KINDS = (
    ("roc", "ROC curves", "Sensitivity against false positive rate. Dot: 95% specificity. Band: pointwise interval. "
     "Dashed: chance."),
    ("pr", "Precision-recall curves", "Precision (PPV) against recall (sensitivity). Dashed: the prevalence, which "
     "is the precision expected by chance."),
    ("reliability", "Reliability", "Observed share of positives against the predicted probability, in ten groups of "
     "equal size. A calibrated model follows the dashed line. The axes end where the data end."),
)  # fmt: skip


# How a verdict starts -> what it means for the reader.
_VERDICTS = {
    "enough": "",
    "poor overlap": "Enough for the whole sample, but too little overlap in context to hold it equal",
    "few": "Few patients, so read the interval rather than the number",
    "too few": "Too few patients to quote a number",
}


def overview(view: View) -> Section | None:
    """The section, or None without the audit."""
    if not view.book.has("overview"):
        return None
    tables = _tables(view)
    curves = {kind: _multiples(view, kind, title, about) for kind, title, about in _KINDS}
    blocks: list[Block | None] = [tables[0], curves["roc"], folded(curves["pr"])]
    blocks += [*tables[1:-1], folded(curves["reliability"]), folded(tables[-1])]
    kept = [block for block in blocks if block is not None]
    return Section(
        f"{view.ident}-overview", "Ranking, operating point and calibration by finding", "Overview", _lead(view), kept
    )


def short_table(view: View) -> Table:
    """AUROC and average precision with the sensitivity at 95% specificity, for a summary."""
    names = ("auroc", "average_precision", "sensitivity_at_specificity")
    there = [f for f in view.book.everyone() if known(view.book.overall(f).value)]
    rows = {f: [entry(view.get("overview", f, name)) for name in names] for f in there}
    columns = [Column("AUROC"), Column("Average precision"), Column("Sensitivity at 95% specificity")]
    return finding_table(view.book, "Whole sample", columns, rows)


def _lead(view: View) -> list[str]:
    """How many findings can be judged, and what stands in the way of the others."""
    found: dict[str, list[str]] = {}
    for finding in view.book.findings:
        note = view.get("overview", finding, "verdict").note
        kind = next((name for name in _VERDICTS if note.startswith(name)), "no")
        found.setdefault(kind, []).append(finding_name(finding))
    total = len(view.book.findings)
    words = [f"{len(found.get('enough', []))} of {total} findings have enough data for every number on this page."]
    words += [f"{_VERDICTS[kind]}: {listed(found[kind])}." for kind in _VERDICTS if kind != "enough" and kind in found]
    words += [f"No conclusion is possible for {listed(found['no'])}."] if "no" in found else []
    return [" ".join(words)]


def _tables(view: View) -> list[Table]:
    """Ranking and operating point; calibration; everything else."""
    book = view.book

    def metrics(finding: str, *names: str) -> list[Entry]:
        return [entry(book.get("overview", finding, name)) for name in names]

    ranking, calibration, more = dict[str, list[Entry]](), dict[str, list[Entry]](), dict[str, list[Entry]]()
    for finding in book.everyone():
        auroc = book.get("overview", finding, "auroc")
        verdict = book.get("overview", finding, "verdict")
        data, _, why = verdict.note.partition(":")
        ranking[finding] = [
            Entry(
                data[:1].upper() + data[1:],
                why.split(";")[0].strip(),
                f"{verdict.value:.9g}" if known(verdict.value) else "",
                verdict.note,
                True,
            ),
            *(count_entry(n) if finding != MACRO else Entry("") for n in (auroc.n, auroc.n_pos)),
            *metrics(finding, "auroc", "average_precision", "prevalence"),
            *metrics(finding, "sensitivity_at_specificity", "precision", "npv"),
        ]
        calibration[finding] = [
            *metrics(finding, "brier", "brier_skill_score", "adaptive_calibration_error", "expected_ace"),
            *metrics(finding, "calibration_slope", "calibration_in_the_large"),
        ]
        names = ("auprc_trapezoid", "brier_positive", "brier_negative", "balanced_brier", "expected_calibration_error")
        more[finding] = metrics(finding, *names, "j", "f1")
    columns = [
        Column("Data", "Whether there are enough patients", True),
        Column("Images", "Images with a label"),
        Column("Positive", "Images with the finding"),
        Column("AUROC", "Probability that an image with the finding scores higher than one without; 0.5 = chance"),
        Column("Average precision", "Area under the precision-recall curve; chance level is the prevalence"),
        Column("Prevalence", "Share of images with the finding"),
        Column("Sensitivity", "At 95% specificity on these images"),
        Column("PPV", "Positive predictive value at that threshold and this prevalence"),
        Column("NPV", "Negative predictive value at that threshold and this prevalence"),
    ]
    caption = "Ranking, and the operating point at 95% specificity"
    tables = [finding_table(book, caption, columns, ranking)]
    probabilities = {f for f in book.findings if known(book.get("overview", f, "brier").value)}
    if probabilities:
        kept = {f: row for f, row in calibration.items() if f in probabilities or f == MACRO}
        columns = [
            Column("Brier score", "Mean squared error of the probability; lower is better"),
            Column("Skill", "Brier skill score: 0 = no better than always predicting the prevalence, 1 = perfect"),
            Column("Calibration error", "Adaptive calibration error, ten groups of equal size; lower is better"),
            Column(
                "…\u00a0if calibrated", "Calibration error that a perfectly calibrated model would show on these images"
            ),
            Column("Slope", "Calibration slope: 1 = calibrated, below 1 = too extreme"),
            Column("In the large", "Calibration in the large: 0 = right on average, above 0 = probabilities too low"),
        ]
        tables.append(finding_table(book, "Calibration of the probabilities", columns, kept))
    columns = [
        Column("AUPRC", "Area under the precision-recall curve by the trapezoidal rule"),
        Column("Brier+", "Brier score among positives"),
        Column("Brier−", "Brier score among negatives"),
        Column("Brier+ plus Brier−", "A sum, 0 to 2; not a proper score"),
        Column("ECE", "Expected calibration error, ten bins of equal width"),
        Column("Best J", "Youden's J at the best threshold on these images; optimistic"),
        Column("Best F1", "F1 at the best threshold on these images; optimistic"),
    ]
    tables.append(finding_table(book, "More metrics of the whole sample", columns, more))
    return tables


def _multiples(view: View, kind: str, title: str, about: str) -> Multiples | None:
    pictures = []
    for k, finding in enumerate(view.book.findings):
        curve = view.line(finding, kind)
        if curve is not None:
            pictures.append((finding, *_small(view, finding, kind, curve, f"{view.ident}-{kind}-{k}")))
    return Multiples(title, about, pictures, file="overview" if kind == "roc" else "") if pictures else None


def _small(view: View, finding: str, kind: str, curve: Line, ident: str) -> tuple[str, Markup]:
    def get(metric: str) -> Cell:
        return view.get("overview", finding, metric)

    shown = finding_name(finding)
    if kind == "roc":
        words = f"AUROC {number(get('auroc').value)}"
        point = (1 - get("sensitivity_at_specificity.specificity").value, get("sensitivity_at_specificity").value)
        return words, roc(curve, ident=ident, title=f"ROC curve, {shown}", about=words, point=point)
    if kind == "pr":
        words = f"AP {number(get('average_precision').value)}"
        prevalence = get("prevalence").value
        about = f"average precision {number(get('average_precision').value)}, prevalence {number(prevalence)}"
        title = f"Precision-recall curve, {shown}"
        return words, precision_recall(curve, prevalence=prevalence, ident=ident, title=title, about=about)
    words = f"slope {number(get('calibration_slope').value, 2)}"
    pairs = zip(curve.x, curve.y, strict=True)
    about = "predicted and observed: " + ", ".join(f"{number(x)} and {number(y)}" for x, y in pairs)
    return words, reliability(curve, ident=ident, title=f"Reliability, {shown}", about=about)
