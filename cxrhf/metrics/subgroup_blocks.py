"""Sorted rows, groups and counts of drawn patients -> the numbers of all groups: the compiled inside.

Rows are those of one finding by score. Several replicates (lanes) go through the rows side by side, and all groups of a
grouping in the same pass: each group keeps the weight of its negatives below the current score. Row i belongs to
patient unit[i] and counts weight[i] times as often as that patient was drawn, counts[unit[i], lane].
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cxrhf.metrics.balancing import cells_of
from cxrhf.metrics.checks import Floats
from cxrhf.metrics.compiled import compiled
from cxrhf.metrics.draws import LANES, Draws, run_in_blocks
from cxrhf.metrics.ranking import rank_rows

SMALLEST = 1e-300


@compiled
def cell_masses(weight: Any, unit: Any, cell: Any, counts: Any, mass: Any) -> None:
    """Add the weight of the rows of each cell (-1 = none) to the zeros of mass (cells, lanes)."""
    for i in range(cell.shape[0]):
        if cell[i] >= 0:
            own = mass[cell[i]]
            row = counts[unit[i]]
            for lane in range(counts.shape[1]):
                own[lane] += weight[i] * row[lane]


@compiled
def _lanes_by_start(start: Any) -> Any:
    """Lanes by where their called rows begin."""
    lanes = start.shape[0]
    by_start = np.empty(lanes, dtype=np.int64)
    for lane in range(lanes):
        k = lane
        while k > 0 and start[by_start[k - 1]] > start[lane]:
            by_start[k] = by_start[k - 1]
            k -= 1
        by_start[k] = lane
    return by_start


@compiled(fastmath={"contract"})
def groups_lanes(
    positive: Any,
    weight: Any,
    last: Any,
    unit: Any,
    group: Any,
    cell: Any,
    counts: Any,
    scale: Any,
    start: Any,
    out: Any,
) -> None:
    """AUROC, TPR and FPR of every group and lane; out is (3, groups, lanes).

    Row i of group[i] (-1 = none) counts weight[i] * counts[unit[i], lane] * scale[cell[i], lane] times; rows from
    start[lane] on are called positive. `below` and `above` are the weights of negatives and positives so far. In a run
    of equal scores every positive beats half of its group's negatives there: half of their weight goes below before
    the positives are looked at, the other half after.
    """
    lanes = counts.shape[1]
    groups = out.shape[1]
    by_start = _lanes_by_start(start)
    below, above, area = np.zeros((groups, lanes)), np.zeros((groups, lanes)), np.zeros((groups, lanes))
    missed = np.empty((2, groups, lanes))
    passed = 0
    n = positive.shape[0]
    i = 0
    while i < n or passed < lanes:
        while passed < lanes and (start[by_start[passed]] <= i or i >= n):
            lane = by_start[passed]
            for g in range(groups):
                missed[0, g, lane] = above[g, lane]
                missed[1, g, lane] = below[g, lane]
            passed += 1
        if i >= n:
            break
        stop = i + 1
        while not last[stop - 1]:
            stop += 1
        tied = stop - i > 1
        for turn in range(3 if tied else 1):
            for j in range(i, stop):
                g = group[j]
                if g < 0 or (tied and positive[j] != (turn == 1)):
                    continue
                w = weight[j]
                row = counts[unit[j]]
                times = scale[cell[j]]
                negatives = below[g]
                if positive[j]:
                    positives = above[g]
                    own = area[g]
                    for lane in range(lanes):
                        c = w * row[lane] * times[lane]
                        own[lane] += c * negatives[lane]
                        positives[lane] += c
                else:
                    if tied:
                        w *= 0.5
                    for lane in range(lanes):
                        negatives[lane] += w * row[lane] * times[lane]
        i = stop
    for g in range(groups):
        for lane in range(lanes):
            pairs = above[g, lane] * below[g, lane]
            # Rounding of weighted sums must not lift a perfect ranking above 1.
            out[0, g, lane] = min(area[g, lane] / pairs, 1.0) if pairs > 0 else np.nan
            called = start[lane] >= 0
            hit, alarm = above[g, lane], below[g, lane]
            out[1, g, lane] = (hit - missed[0, g, lane]) / hit if called and hit > 0 else np.nan
            out[2, g, lane] = (alarm - missed[1, g, lane]) / alarm if called and alarm > 0 else np.nan


@compiled(fastmath={"contract"})
def prevalence_lanes(
    positive: Any,
    weight: Any,
    last: Any,
    unit: Any,
    group: Any,
    excess: Any,
    bin_of: Any,
    counts: Any,
    start: Any,
    out: Any,
) -> None:
    """What depends on the prevalence, of every group and lane; out is (6, groups, lanes).

    In this order: prevalence, average precision, precision and NPV where rows from start[lane] on are called positive,
    expected calibration error, mean label less mean score. `excess` is score less label, `bin_of` the bin of the score,
    which falls as the rows are walked from the highest score down. Undefined is NaN, as in the metric functions.
    """
    n, lanes, groups = positive.shape[0], counts.shape[1], out.shape[1]
    hits, alarms, area = np.zeros((groups, lanes)), np.zeros((groups, lanes)), np.zeros((groups, lanes))
    gap, error, signed = np.zeros((groups, lanes)), np.zeros((groups, lanes)), np.zeros((groups, lanes))
    gained, called = np.zeros((groups, lanes)), np.zeros((2, groups, lanes))
    by_start = _lanes_by_start(start)
    waiting = lanes - 1
    while waiting >= 0 and start[by_start[waiting]] >= n:  # nothing is called
        waiting -= 1
    stop = n
    while stop > 0:
        i = stop - 1
        while i > 0 and not last[i - 1]:
            i -= 1
        tied = stop - i > 1
        if stop < n and bin_of[i] != bin_of[stop]:
            _close_bins(gap, error, signed)
        for j in range(i, stop):
            g = group[j]
            if g < 0:
                continue
            w, beyond, row = weight[j], weight[j] * excess[j], counts[unit[j]]
            own_gap = gap[g]
            for lane in range(lanes):
                own_gap[lane] += beyond * row[lane]
            if not positive[j]:
                own_alarms = alarms[g]
                for lane in range(lanes):
                    own_alarms[lane] += w * row[lane]
                continue
            own_hits = hits[g]
            for lane in range(lanes):
                own_hits[lane] += w * row[lane]
            if tied:  # of equal scores the precision is known only when all of them are in
                own_gained = gained[g]
                for lane in range(lanes):
                    own_gained[lane] += w * row[lane]
                continue
            own_area, own_alarms = area[g], alarms[g]
            for lane in range(lanes):
                above = max(own_hits[lane] + own_alarms[lane], SMALLEST)  # 0 / 0 must be 0 here, without a branch
                own_area[lane] += w * row[lane] * own_hits[lane] / above
        if tied:
            for g in range(groups):
                for lane in range(lanes):
                    if gained[g, lane] > 0:
                        area[g, lane] += gained[g, lane] * hits[g, lane] / (hits[g, lane] + alarms[g, lane])
                        gained[g, lane] = 0.0
        while waiting >= 0 and start[by_start[waiting]] >= i:
            lane = by_start[waiting]
            for g in range(groups):
                called[0, g, lane], called[1, g, lane] = hits[g, lane], alarms[g, lane]
            waiting -= 1
        stop = i
    _close_bins(gap, error, signed)
    for g in range(groups):
        for lane in range(lanes):
            ill, well = hits[g, lane], alarms[g, lane]
            total = ill + well
            out[:, g, lane] = np.nan
            if total <= 0:
                continue
            out[0, g, lane] = ill / total
            if ill > 0 and well > 0:
                out[1, g, lane] = min(area[g, lane] / ill, 1.0)
            true, false = called[0, g, lane], called[1, g, lane]
            if start[lane] >= 0:
                if true + false > 0:
                    out[2, g, lane] = true / (true + false)
                # What rounding leaves of equal sums is nothing.
                missed = ill - true if ill - true > 1e-12 * ill else 0.0
                cleared = well - false if well - false > 1e-12 * well else 0.0
                if missed + cleared > 0:
                    out[3, g, lane] = cleared / (missed + cleared)
            out[4, g, lane] = error[g, lane] / total
            out[5, g, lane] = -signed[g, lane] / total


@compiled
def _close_bins(gap: Any, error: Any, signed: Any) -> None:
    """Add what a bin holds to the error of each group and lane, and empty it."""
    for g in range(gap.shape[0]):
        for lane in range(gap.shape[1]):
            error[g, lane] += abs(gap[g, lane])
            signed[g, lane] += gap[g, lane]
            gap[g, lane] = 0.0


# Rows in cells (group, label, mark) and draws -> which cells outrank which: every AUROC of theirs is a few sums of
# it.
#
# With a weight for each cell, the AUROC of a group is the weight of the pairs its positives win, cell against cell,
# divided by the weight of all its pairs. So rows are walked once in a replicate, whatever weights follow; and weights
# that are made from the cells anew in every replicate (balancing.py) cost nothing. The sample is the replicate in
# which everybody is drawn once.


class CellRows(NamedTuple):
    """Rows of one finding by score. `cell`: place of (group, label, mark); `side`: of (group, mark) within a label."""

    p: Floats
    positive: NDArray[np.bool_]
    weight: Floats
    last: NDArray[np.bool_]
    unit: NDArray[np.int32]
    cell: NDArray[np.int32]
    side: NDArray[np.int32]
    n_groups: int


class Tally(NamedTuple):
    """Replicates (n) of: `mass` of each cell, sums of its scores (`said`) and of squared errors, all (n, groups,
    2 labels, 2 marks); `won` (n, groups, 2 marks, groups, 2 marks): weight of the pairs that positives win, whose cell
    comes first, against negatives; of a tie half."""

    mass: Floats
    said: Floats
    squared: Floats
    won: Floats


def rank_cells(
    y: Floats,
    p: Floats,
    weight: Floats,
    unit: NDArray[np.int32],
    group: NDArray[np.int64],
    mark: NDArray[np.int64],
    n_groups: int,
) -> CellRows:
    """Sort the rows that have a label, a group and a mark (-1 = not known)."""
    cell = cells_of(y, group, mark, 2)
    rows = np.flatnonzero(cell >= 0)
    ranked = rank_rows(y[rows], p[rows], weight[rows])
    order = rows[ranked.order]
    return CellRows(
        p=ranked.p,
        positive=ranked.y == 1,
        weight=ranked.weight,
        last=ranked.last,
        unit=unit[order],
        cell=cell[order],
        side=(group[order] * 2 + mark[order]).astype(np.int32),
        n_groups=n_groups,
    )


def sample_tally(rows: CellRows) -> Tally:
    """Of the sample itself, n = 1."""
    tally = _empty(rows, 1)
    _fill(rows, np.ones((int(rows.unit.max(initial=-1)) + 1, 1), dtype=np.uint8), tally, slice(0, 1))
    return tally


def drawn_tallies(
    several: Sequence[CellRows],
    draws: Draws,
    workers: int | None = None,
    progress: Callable[[int], None] | None = None,
) -> list[Tally]:
    """Of every replicate, for several findings on the same draws."""
    found = [_empty(rows, draws.n_resamples) for rows in several]

    def work(start: int, stop: int) -> None:
        for at in range(start, stop, LANES):
            own = slice(at, min(at + LANES, stop))
            counts = draws.counts(own.start, own.stop)
            for rows, tally in zip(several, found, strict=True):
                _fill(rows, counts, tally, own)
            if progress is not None:
                progress(own.stop - own.start)

    run_in_blocks(work, draws.n_resamples, workers, None)
    return found


def cells_auroc(tally: Tally, scale: Floats, groups: Sequence[int]) -> Floats:
    """AUROC of these groups together when rows of a cell count `scale` (as `mass`) times; NaN without both classes."""
    picked = list(groups)
    own = tally.won[:, picked][:, :, :, picked]
    above, below = scale[:, picked, 1], scale[:, picked, 0]
    won = np.einsum("nga,nhb,ngahb->n", above, below, own)
    masses = scale[:, picked] * tally.mass[:, picked]
    pairs = masses[:, :, 1].sum(axis=(1, 2)) * masses[:, :, 0].sum(axis=(1, 2))
    # Rounding of weighted sums must not lift a perfect ranking above 1.
    return np.minimum(np.divide(won, pairs, out=np.full(len(pairs), np.nan), where=pairs > 0), 1.0)


def _empty(rows: CellRows, n: int) -> Tally:
    groups = rows.n_groups
    mass, said, squared = (np.empty((n, groups, 2, 2)) for _ in range(3))
    return Tally(mass, said, squared, np.empty((n, groups, 2, groups, 2)))


def _fill(rows: CellRows, counts: NDArray[np.uint8], tally: Tally, own: slice) -> None:
    lanes = counts.shape[1]
    weight, error = rows.weight, rows.p - rows.positive
    for out, each in ((tally.mass, weight), (tally.said, weight * rows.p), (tally.squared, weight * error**2)):
        sums = np.zeros((rows.n_groups * 4, lanes))
        cell_masses(each, rows.unit, rows.cell, counts, sums)
        out[own] = sums.T.reshape(lanes, *out.shape[1:])
    won = np.zeros((rows.n_groups * 2, rows.n_groups * 2, lanes))
    pair_lanes(rows.positive, weight, rows.last, rows.unit, rows.side, counts, won)
    tally.won[own] = np.moveaxis(won, 2, 0).reshape(lanes, *tally.won.shape[1:])


@compiled(fastmath={"contract"})
def pair_lanes(positive: Any, weight: Any, last: Any, unit: Any, side: Any, counts: Any, won: Any) -> None:
    """Add to won (sides, sides, lanes) what positives of the first side win against negatives of the second.

    Row i counts weight[i] * counts[unit[i], lane] times. In a run of equal scores every positive beats half of the
    negatives there: half of their weight goes below before the positives are looked at, the other half after.
    """
    sides, lanes = won.shape[0], counts.shape[1]
    below, drawn = np.zeros((sides, lanes)), np.empty(lanes)
    n = positive.shape[0]
    i = 0
    while i < n:
        stop = i + 1
        while not last[stop - 1]:
            stop += 1
        tied = stop - i > 1
        for turn in range(3 if tied else 1):
            for j in range(i, stop):
                if tied and positive[j] != (turn == 1):
                    continue
                w = weight[j]
                row = counts[unit[j]]
                if positive[j]:
                    for lane in range(lanes):
                        drawn[lane] = w * row[lane]
                    for other in range(sides):
                        own, negatives = won[side[j], other], below[other]
                        for lane in range(lanes):
                            own[lane] += drawn[lane] * negatives[lane]
                else:
                    if tied:
                        w *= 0.5
                    negatives = below[side[j]]
                    for lane in range(lanes):
                        negatives[lane] += w * row[lane]
        i = stop
