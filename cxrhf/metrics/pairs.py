"""Rows in cells (group, label, mark) and draws -> which cells outrank which: every AUROC of theirs is a few sums of it.

With a weight for each cell, the AUROC of a group is the weight of the pairs its positives win, cell against cell,
divided by the weight of all its pairs. So rows are walked once in a replicate, whatever weights follow; and weights
that are made from the cells anew in every replicate (equalising.py) cost nothing. The sample is the replicate in which
everybody is drawn once.
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
from cxrhf.metrics.subgroup_blocks import cell_masses


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
