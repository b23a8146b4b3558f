"""Numbers with intervals -> small SVG pictures as text, without a plotting library."""

from cxrhf.report.figures.bars import Bar, stacked
from cxrhf.report.figures.boxes import Box, BoxRow, boxes
from cxrhf.report.figures.cloud import Group, Square, cloud
from cxrhf.report.figures.curves import Frame, along_prevalence, by_count, nice_end, precision_recall, reliability, roc
from cxrhf.report.figures.displacement import Placed, displacement
from cxrhf.report.figures.dots import Axis, Dot, DotRow, dots
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
from cxrhf.report.figures.scatter import Point, scatter
from cxrhf.report.figures.scenarios import scenarios
from cxrhf.report.figures.sweep import Swept, sweep
from cxrhf.report.figures.tally import Tally, tally
from cxrhf.report.figures.tradeoff import Trade, tradeoff
from cxrhf.report.figures.waterfall import Fall, waterfall
from cxrhf.report.numbers import known, number

__all__ = [
    "CONTEXT", "FIFTH", "FOURTH", "KINDS", "OVERALL", "REMAINS", "SEVENTH", "SIXTH", "Axis", "Bar", "Box", "BoxRow",
    "Dot", "DotRow", "Fall", "Frame", "Group", "Line", "Mark", "Placed", "Point", "Square", "Swept", "Tally", "Trade",
    "along_prevalence", "boxes", "by_count", "cloud", "displacement", "dots", "key_mark", "known", "mark_shape",
    "nice_end", "number", "precision_recall", "reliability", "roc", "scatter", "scenarios", "stacked", "sweep", "tally",
    "ticks", "tradeoff", "waterfall",
]  # fmt: skip
