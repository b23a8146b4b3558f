"""Numbers with intervals -> small SVG pictures as text, without a plotting library."""

from cxrhf.report.figures.dots import (
    Axis,
    Bar,
    Box,
    BoxRow,
    Dot,
    DotRow,
    Fall,
    Tally,
    boxes,
    dots,
    stacked,
    tally,
    waterfall,
)
from cxrhf.report.figures.ink import (
    CONTEXT,
    FIFTH,
    FOURTH,
    KINDS,
    OVERALL,
    REMAINS,
    SEVENTH,
    SIXTH,
    Line,
    Mark,
    key_mark,
    mark_shape,
    ticks,
)
from cxrhf.report.figures.scatter import (
    Frame,
    Group,
    Placed,
    Point,
    Square,
    Swept,
    Trade,
    along_prevalence,
    by_count,
    cloud,
    displacement,
    nice_end,
    precision_recall,
    reliability,
    roc,
    scatter,
    scenarios,
    sweep,
    tradeoff,
)
from cxrhf.report.numbers import format_number, is_finite

__all__ = [
    "CONTEXT", "FIFTH", "FOURTH", "KINDS", "OVERALL", "REMAINS", "SEVENTH", "SIXTH", "Axis", "Bar", "Box", "BoxRow",
    "Dot", "DotRow", "Fall", "Frame", "Group", "Line", "Mark", "Placed", "Point", "Square", "Swept", "Tally", "Trade",
    "along_prevalence", "boxes", "by_count", "cloud", "displacement", "dots", "key_mark", "is_finite", "mark_shape",
    "nice_end", "format_number", "precision_recall", "reliability", "roc", "scatter", "scenarios", "stacked", "sweep", "tally",
    "ticks", "tradeoff", "waterfall",
]  # fmt: skip
