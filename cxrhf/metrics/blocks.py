"""Sorted rows and draws -> metrics of a block of replicates: the inside of the bootstrap.

Replicates go side by side, one in each lane of the compiled kernels. The kernels are called from here label by label:
one compiled loop over all of them would take longer to compile than most bootstraps take to run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cxrhf.metrics.catalogue import (
    ACE,
    AUROC,
    CODES,
    IN_THE_LARGE,
    INTERCEPT,
    MAX_F1,
    PAV_CALIBRATION,
    PAV_REFINEMENT,
    PR_STEPS,
    PR_TRAPEZOID,
    SENSITIVITY,
    SLOPE,
    YOUDEN,
)
from cxrhf.metrics.checks import Floats
from cxrhf.metrics.columns import LabelContext, LabelRows
from cxrhf.metrics.compiled import compiled
from cxrhf.metrics.draws import LANES, draw_counts
from cxrhf.metrics.lanes import ace_lanes, best_lanes, class_lanes, pr_lanes, sensitivity_lanes, stretches, sum_lanes
from cxrhf.metrics.lines import LineCells, cut_cells, line_lanes
from cxrhf.metrics.matching_drawn import matched_lanes, work_space
from cxrhf.metrics.pav import pav_groups, pav_lanes
from cxrhf.metrics.ranking import auroc_lanes

# Replicates whose matched sets are held side by side: one number for each row and lane must stay in the cache.
MATCHED_LANES = 16

_PR, _LINE, _PAV = {PR_STEPS, PR_TRAPEZOID}, {SLOPE, INTERCEPT, IN_THE_LARGE}, {PAV_CALIBRATION, PAV_REFINEMENT}


@dataclass(frozen=True, slots=True)
class Task:
    """What to compute of one label: metrics by code with their options, on its rows, and what is prepared for them.

    A matched set also needs the rows by `context`.
    """

    rows: LabelRows
    options: dict[int, float]
    stretches: NDArray[np.int64]
    groups: NDArray[np.int32]
    n_groups: int
    cells: LineCells | None
    context: LabelContext | None = None


def prepare(rows: LabelRows, options: dict[int, float], context: LabelContext | None = None) -> Task:
    """A task, with what does not change between replicates computed once."""
    n = len(rows.y)
    edges, groups, n_groups = np.empty(n + 1, dtype=np.int64), np.empty(n, dtype=np.int32), 0
    if ACE in options:
        edges = edges[: stretches(rows.last, edges) + 1]
    if _PAV & options.keys():
        n_groups = pav_groups(rows.positive, rows.last, groups)
    cells = cut_cells(rows.y, rows.p, rows.weight) if _LINE & options.keys() else None
    return Task(rows, options, edges, groups, n_groups, cells, context)


@compiled
def draw_lanes(key: Any, first: int, members: Any, edges: Any, by_lane: Any, counts: Any) -> None:
    """Draw the replicates first, first + 1, ...: patients drawn how often, by_lane[lane, u] and counts[u, lane].

    Each replicate is drawn into its own row, which stays in the cache, and then turned.
    """
    lanes, units = by_lane.shape
    for lane in range(lanes):
        for u in range(units):
            by_lane[lane, u] = 0
        draw_counts(key, first + lane, members, edges, by_lane[lane].reshape(-1, 1))
    for start in range(0, units, 64):
        for lane in range(lanes):
            for u in range(start, min(start + 64, units)):
                counts[u, lane] = by_lane[lane, u]


class _Work:
    """Memory of one thread, used again for every label and replicate."""

    def __init__(self, tasks: Sequence[Task], n_units: int, lanes: int) -> None:
        self.lanes = lanes
        self.by_lane = np.empty((lanes, n_units), dtype=np.uint8)
        self.counts = np.empty((n_units, lanes), dtype=np.uint8)
        self.value = np.full((CODES, lanes), np.nan)
        self.totals, self.line, self.tied = np.empty((2, lanes)), np.empty((3, lanes)), np.empty((2, lanes))
        self.below, self.area = np.empty(lanes), np.empty(lanes)
        long = max((len(task.stretches) for task in tasks if ACE in task.options), default=0)
        self.filled, self.gap = np.empty((long, lanes)), np.empty((long, lanes))
        self.pools = np.empty(2 * max((task.n_groups for task in tasks), default=0) * lanes)


def _evaluate(task: Task, unit: NDArray[np.int32], counts: NDArray[Any], work: _Work) -> None:
    """Every metric of one label in every lane, into work.value[code]."""
    rows, asked, value = task.rows, task.options.keys(), work.value
    ranked = (rows.positive, rows.weight, rows.last, unit, counts)
    if AUROC in asked:
        auroc_lanes(*ranked, work.below, work.area, work.tied, value[AUROC])
    if _PR & asked:
        pr_lanes(*ranked, value[PR_STEPS : PR_TRAPEZOID + 1])
    if {SENSITIVITY, MAX_F1, YOUDEN} & asked:
        class_lanes(rows.positive, rows.weight, unit, counts, work.totals)
    if SENSITIVITY in asked:
        sensitivity_lanes(*ranked, work.totals, 1 - task.options[SENSITIVITY], value[SENSITIVITY])
    for code in {MAX_F1, YOUDEN} & asked:
        best_lanes(*ranked, work.totals, code == YOUDEN, value[code])
    if ACE in asked:
        bins = int(task.options[ACE])
        ace_lanes(rows.y, rows.p, *ranked[1:], bins, task.stretches, work.filled, work.gap, value[ACE])
    if task.cells is not None:
        line_lanes(rows.y, rows.positive, rows.weight, unit, counts, task.cells, work.line)
        value[INTERCEPT], value[SLOPE], value[IN_THE_LARGE] = work.line
    if _PAV & asked:
        pools = work.pools[: 2 * task.n_groups * work.lanes].reshape(2, task.n_groups, work.lanes)
        kept = value[PAV_CALIBRATION : PAV_REFINEMENT + 1]
        pav_lanes(rows.y, rows.p, rows.positive, rows.weight, unit, counts, task.groups, pools, kept)


def metric_block(
    key: Any, first: int, members: Any, edges: Any, tasks: Sequence[Task], codes: Sequence[int], out: Floats
) -> None:
    """Metrics of every label, LANES replicates at a time; out is (replicates, labels, metrics)."""
    work = _Work(tasks, len(members), LANES)
    for start in range(0, len(out), LANES):
        draw_lanes(key, first + start, members, edges, work.by_lane, work.counts)
        for label, task in enumerate(tasks):
            _evaluate(task, task.rows.unit, work.counts, work)
            here = out[start : start + LANES, label]
            here[:] = work.value[codes, : len(here)].T


def matched_block(
    key: Any,
    first: int,
    members: Any,
    edges: Any,
    tasks: Sequence[Task],
    codes: Sequence[int],
    caliper: float,
    out: Floats,
) -> None:
    """Metrics of the matched set of every label, the matching redone in each replicate."""
    work = _Work(tasks, len(members), MATCHED_LANES)
    longest = max((len(task.rows.y) for task in tasks), default=0)
    place, matched = np.arange(longest, dtype=np.int32), np.empty((longest, MATCHED_LANES))
    kept, copies = np.empty((MATCHED_LANES, longest)), work_space(0)
    for start in range(0, len(out), MATCHED_LANES):
        draw_lanes(key, first + start, members, edges, work.by_lane, work.counts)
        room = longest * int(work.by_lane.max(initial=0)) + 2
        copies = copies if len(copies[0]) >= room else work_space(room)
        for label, task in enumerate(tasks):
            assert task.context is not None
            taken = matched[: len(task.rows.y)]
            matched_lanes(work.by_lane, tuple(task.context), caliper, copies, kept, taken)
            _evaluate(task, place[: len(taken)], taken, work)
            here = out[start : start + MATCHED_LANES, label]
            here[:] = work.value[codes, : len(here)].T


def sum_block(key: Any, first: int, members: Any, edges: Any, sums: Floats, out: Floats) -> None:
    """Sums of every replicate from those of the patients; sums is (patients, columns), out (replicates, columns)."""
    work = _Work((), len(members), LANES)
    total = np.empty((sums.shape[1], LANES))
    for start in range(0, len(out), LANES):
        draw_lanes(key, first + start, members, edges, work.by_lane, work.counts)
        sum_lanes(sums, work.counts, total)
        here = out[start : start + LANES]
        here[:] = total[:, : len(here)].T
