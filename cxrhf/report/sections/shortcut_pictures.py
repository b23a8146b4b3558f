"""Groups with and without an attribute -> pictures: AUROC as it is and equally frequent, confidence, error."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

from cxrhf.report.blocks import Figure, finding_name
from cxrhf.report.book import Cell, seed_of
from cxrhf.report.figures import (
    FOURTH,
    OVERALL,
    REMAINS,
    Axis,
    Box,
    BoxRow,
    Dot,
    DotRow,
    Mark,
    boxes,
    dots,
)
from cxrhf.report.figures.ink import CONTEXT, FIFTH, SIXTH, Line
from cxrhf.report.numbers import known
from cxrhf.report.sections.shortcut_shelf import AUDIT, EQUAL, NATURAL, Part, Question, value_of
from cxrhf.report.sections.slice_shelf import trait_name
from cxrhf.report.sections.view import View, bars

_MARKS = (OVERALL, REMAINS, FOURTH, FIFTH, SIXTH, CONTEXT)
_WAYS = ((NATURAL, "as observed"), (EQUAL, "equally frequent"))
_LEVELS = (0.05, 0.25, 0.5, 0.75, 0.95)


def aurocs(view: View, asked: Sequence[Question]) -> Figure | None:
    """AUROC of every group, as it is and with the attribute equally frequent; with several runs a dot a run."""
    panels = []
    groups = list(dict.fromkeys(group for each in asked for group in each.groups))[: len(_MARKS)]
    for k, attribute in enumerate(dict.fromkeys(each.attribute for each in asked)):
        rows = []
        for each in asked:
            lanes = _lanes(view, each, groups) if each.attribute == attribute else []
            if lanes:
                rows.append(DotRow(finding_name(each.finding), lanes, "", finding_name(each.finding)))
        if rows:
            shown = [dot.mark.value for row in rows for _, lane in row.lanes for dot in lane]
            axis = Axis("AUROC within the group", min(shown), max(shown), floor=0.4, ceiling=1.0, step=0.05)
            title = f"AUROC by group, {attribute.replace('_', ' ')}"
            about = "The numbers are in the tables below." if len(rows) > 4 else ""
            ident = f"{view.ident}-shortcut-{k}"
            panels.append((title, dots(rows, axis, ident=ident, title=title, about=about, lane=17)))
    legend = [(mark, value_of(group)) for mark, group in zip(_MARKS, groups, strict=False)]
    caption = f"{_bars(view)} Equally frequent: reweighted to the same frequency in both groups of a class."
    title = "AUROC of subgroups, as observed and with the attribute equally frequent"
    return Figure(title, panels, legend, caption, file="shortcut") if panels else None


def _bars(view: View) -> str:
    if view.subject.mean is None:
        return bars(view.level)
    return f"Marks without a bar are the {len(view.subject.runs)} runs; a mark with a bar is their mean ±1 SD."


def _lanes(view: View, each: Question, groups: Sequence[str]) -> list[tuple[str, list[Dot]]]:
    lanes: list[tuple[str, list[Dot]]] = []
    for metric, words in _WAYS:
        if view.subject.mean is None:
            marks = [
                Dot(
                    mark,
                    view.get(AUDIT, each.finding, metric, slice=each.where(group)).mark,
                    f"{value_of(group)}, {words}",
                )
                for mark, group in zip(_MARKS, groups, strict=False)
            ]
            there = [dot for dot in marks if known(dot.mark.value)]
            lanes += [(words, there)] if there else []
            continue
        for mark, group in zip(_MARKS, groups, strict=False):
            name = f"{value_of(group)}, {words}"
            several = _over_runs(view, each.finding, metric, each.where(group), mark, name)
            # The full name does not fit beside a picture.
            lanes += [(label.replace("equally frequent", "equal"), marks) for label, marks in several]
    return lanes


def _over_runs(view: View, finding: str, metric: str, slice: str, kind: str, name: str) -> list[tuple[str, list[Dot]]]:
    """Two lanes: the mean of the runs with its SD, and every run."""
    mean = view.subject.mean
    assert mean is not None
    middle = mean.get(AUDIT, finding, metric, slice=slice).value
    spread = mean.get(AUDIT, finding, f"{metric}.sd", slice=slice).value
    runs = [
        Dot(kind, Mark(run.get(AUDIT, finding, metric, slice=slice).value), f"{name}, {seed_of(run.model)}")
        for run in view.subject.runs
    ]
    there = [dot for dot in runs if known(dot.mark.value)]
    if not there and not known(middle):
        return []
    span = Mark(middle, middle - spread, middle + spread) if known(middle, spread) else Mark(middle)
    return [(name, [Dot(kind, span, f"{name}, mean of runs")]), ("", there)]


def confidences(view: View, asked: Sequence[Question]) -> Figure | None:
    """Distribution of the probability, and the mean squared error, by group, class and attribute."""
    panels: list[tuple[str, Markup]] = []
    for k, attribute in enumerate(dict.fromkeys(each.attribute for each in asked)):
        own = [each for each in asked if each.attribute == attribute]
        words = attribute.replace("_", " ")
        rows = [row for each in own for label in ("1", "0") if (row := _boxes(view, each, label))]
        if rows:
            title = f"Predicted probability, {words}"
            ident = f"{view.ident}-confidence-{k}"
            panels.append((title, boxes(rows, label="probability of the finding", ident=ident, title=title)))
        errors = [dot for each in own for label in ("1", "0") if (dot := _errors(view, each, label))]
        if errors:
            title = f"Brier score, {words}"
            axis = Axis("mean squared error; lower is better", 0.0, 0.3, floor=0.0, ceiling=1.0)
            about = "The numbers are in results.parquet." if len(errors) > 8 else ""
            ident = f"{view.ident}-error-{k}"
            panels.append((title, dots(errors, axis, ident=ident, title=title, about=about, lane=15)))
    traits = list(dict.fromkeys(part.trait for each in asked for part in each.parts))
    legend = [(_kind(trait), trait_name(trait)) for trait in traits][: len(_MARKS)]
    caption = (
        "Boxes span the middle half of the images, lines nine tenths; the stroke is the median. "
        f"{'Brier score: ' if view.subject.mean else ''}{_bars(view)} If a network relies on the attribute, images "
        "without it get low probabilities although they have the finding."
    )
    title = "Confidence and error by group, finding and attribute"
    return Figure(title, panels, legend, caption, file="shortcut") if panels else None


def _kind(trait: str) -> str:
    return OVERALL if trait.endswith("=0") else REMAINS


def _named(each: Question, label: str) -> str:
    return f"{finding_name(each.finding)} {'present' if label == '1' else 'absent'}"


def _of(each: Question, label: str) -> list[Part]:
    return [part for part in each.parts if part.label == label]


def _boxes(view: View, each: Question, label: str) -> BoxRow | None:
    lanes = []
    for part in _of(each, label):
        curve = view.line(each.finding, "confidence", part.name)
        if curve is not None:
            lanes.append((part.words, Box(_kind(part.trait), part.words, _ends(curve))))
    return BoxRow(_named(each, label), lanes, finding_name(each.finding)) if lanes else None


def _ends(curve: Line) -> tuple[float, float, float, float, float]:
    """The five quantiles of a box, NaN where the curve has none."""
    at = {round(x, 6): y for x, y in zip(curve.x, curve.y, strict=True)}
    low, first, middle, third, high = (at.get(level, float("nan")) for level in _LEVELS)
    return low, first, middle, third, high


def _errors(view: View, each: Question, label: str) -> DotRow | None:
    lanes: list[tuple[str, list[Dot]]] = []
    for part in _of(each, label):
        if view.subject.mean is not None:
            lanes += _over_runs(view, each.finding, "brier", part.name, _kind(part.trait), part.words)
            continue
        cell: Cell = view.get(AUDIT, each.finding, "brier", slice=part.name)
        if known(cell.value):
            lanes.append((part.words, [Dot(_kind(part.trait), cell.mark, part.words)]))
    return DotRow(_named(each, label), lanes, "", finding_name(each.finding)) if lanes else None
