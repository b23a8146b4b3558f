"""Numbers with intervals -> small SVG pictures as text, without a plotting library."""

from cxrhf.report.figures.bars import Bar, stacked
from cxrhf.report.figures.curves import Frame, along_prevalence, nice_end, precision_recall, reliability, roc
from cxrhf.report.figures.dots import Axis, Dot, DotRow, dots
from cxrhf.report.figures.ink import (
    CONTEXT,
    FIFTH,
    FOURTH,
    KINDS,
    OVERALL,
    REMAINS,
    Line,
    Mark,
    key_mark,
    mark_shape,
    ticks,
)
from cxrhf.report.figures.scatter import Point, scatter
from cxrhf.report.figures.waterfall import Fall, waterfall
from cxrhf.report.numbers import known, number

__all__ = [
    "CONTEXT", "FIFTH", "FOURTH", "KINDS", "OVERALL", "REMAINS", "Axis", "Bar", "Dot", "DotRow", "Fall", "Frame",
    "Line", "Mark", "Point", "along_prevalence", "dots", "key_mark", "known", "mark_shape", "nice_end", "number",
    "precision_recall", "reliability", "roc", "scatter", "stacked", "ticks", "waterfall",
]  # fmt: skip
