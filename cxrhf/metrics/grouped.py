"""Several findings and one grouping -> AUROC, TPR, FPR and J of every group, in the sample and in every replicate.

Each finding has one threshold for all groups: a given one, or the one with the requested FPR over the whole sample, set
again in every replicate. On request, also in the population balanced for prevalence and age (balancing.py); its weights
and, unless it is given, its threshold are computed again in every replicate. The sample is computed as the replicate in
which every patient is drawn once, so that both give the same number.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cxrhf.metrics.balancing import DISEASE_GROUPS, cell_scales, cells_of
from cxrhf.metrics.checks import Floats
from cxrhf.metrics.compiled import compiled
from cxrhf.metrics.draws import LANES, Draws, draw_counts, run_in_blocks, stream_key
from cxrhf.metrics.operating import FPR_RULES, TOLERANCE, fpr_sorted
from cxrhf.metrics.ranking import rank_rows
from cxrhf.metrics.subgroup_blocks import cell_masses, groups_lanes, prevalence_lanes
from cxrhf.metrics.sums import equal_width_bins

Integers = NDArray[np.int64]
Counts = NDArray[np.uint8]  # how often each patient is drawn, (patients, lanes)
Progress = Callable[[int], None]


Cells = NDArray[np.int32]

# Bins of the calibration error of groups, those of `expected_calibration_error`.
ECE_BINS = 10


class RankedFindings(NamedTuple):
    """Rows of all findings, finding after finding (`rows` are the edges), each by score; `origin` is their place in the
    sample, `finding` the finding each belongs to. `threshold` NaN = set on the sample: the one at `fpr` by `rule`."""

    rows: Integers
    origin: Integers
    finding: Integers
    y: Floats
    p: Floats
    positive: NDArray[np.bool_]
    weight: Floats
    last: NDArray[np.bool_]
    unit: NDArray[np.int32]
    threshold: Floats
    fixed: Integers
    fpr: float
    rule: int

    def each(self) -> list[slice]:
        """The rows of each finding."""
        return [slice(a, b) for a, b in pairwise(self.rows)]


class GroupNumbers(NamedTuple):
    """Each of shape (..., findings, groups); NaN where a class is missing or there is no threshold."""

    auroc: Floats
    tpr: Floats
    fpr: Floats
    j: Floats


class PrevalenceNumbers(NamedTuple):
    """What depends on how many of a group are ill, each of shape (..., findings, groups); NaN where undefined.

    Precision and NPV at the threshold of `RankedFindings`. The last two are of probabilities only."""

    prevalence: Floats
    average_precision: Floats
    precision: Floats
    npv: Floats
    expected_calibration_error: Floats
    observed_minus_predicted: Floats


class Grouped(NamedTuple):
    """Of the rows as they are, of the population in which these groups are balanced (None where it was not asked for),
    and of those in which the groups of other groupings are."""

    original: GroupNumbers
    balanced: GroupNumbers | None
    within: tuple[GroupNumbers, ...] = ()


class Grouping(NamedTuple):
    """`group` of each sample row from 0, -1 = none. `age_bin` (one bin = prevalence only) and who of which finding
    takes `part` (findings, groups) in the balanced population; None = not balanced. `disease`: classes to balance
    instead of each finding's label, NaN = in none. `within`: other groupings, in whose balanced populations these
    groups are measured too."""

    group: Integers
    n_groups: int
    age_bin: Integers | None = None
    n_bins: int = 1
    part: NDArray[np.bool_] | None = None
    disease: Floats | None = None
    within: tuple[Grouping, ...] = ()


def rank_findings(
    y: Floats,
    p: Floats,
    weight: Floats | None,
    unit: NDArray[np.int32],
    *,
    threshold: Sequence[float] | None = None,
    fpr: float = 0.2,
    rule: str = "nearest",
) -> RankedFindings:
    """Sort checked (n, findings) matrices once for every grouping; NaN labels and rows of weight 0 are no rows."""
    n_findings = y.shape[1]
    at = np.full(n_findings, np.nan) if threshold is None else np.asarray(threshold, dtype=np.float64)
    ranked = []
    for k in range(n_findings):
        labelled = np.flatnonzero(~np.isnan(y[:, k]))
        own = np.ones(len(y)) if weight is None else (weight if weight.ndim == 1 else weight[:, k])
        each = rank_rows(y[labelled, k], p[labelled, k], own[labelled])
        ranked.append(each._replace(order=labelled[each.order]))
    sizes = [len(each.order) for each in ranked]
    fixed = [-1 if np.isnan(t) else int(np.searchsorted(each.p, t)) for each, t in zip(ranked, at, strict=True)]
    origin = np.concatenate([each.order for each in ranked]).astype(np.int64)
    labels = np.concatenate([each.y for each in ranked])
    return RankedFindings(
        rows=np.r_[0, np.cumsum(sizes)].astype(np.int64),
        origin=origin,
        finding=np.repeat(np.arange(n_findings), sizes),
        y=labels,
        p=np.concatenate([each.p for each in ranked]),
        positive=labels == 1,
        weight=np.concatenate([each.weight for each in ranked]),
        last=np.concatenate([each.last for each in ranked]),
        unit=unit[origin],
        threshold=at,
        fixed=np.array(fixed, dtype=np.int64),
        fpr=float(fpr),
        rule=FPR_RULES.index(rule),
    )


def sample_starts(ranked: RankedFindings, weight: Floats | None = None) -> Integers:
    """Where the called rows of each finding begin in the sample, or with other weights of the ranked rows."""
    mass = ranked.weight if weight is None else weight
    out = ranked.fixed.copy()
    for k in np.flatnonzero(ranked.fixed < 0):
        own = slice(ranked.rows[k], ranked.rows[k + 1])
        out[k] = fpr_sorted(ranked.y[own], ranked.p[own], mass[own], ranked.fpr, ranked.rule)
    return out


def threshold_of(ranked: RankedFindings, k: int, start: int) -> float:
    """The threshold of finding k whose called rows begin at `start`."""
    if ranked.fixed[k] >= 0:
        return float(ranked.threshold[k])
    scores = ranked.p[ranked.rows[k] : ranked.rows[k + 1]]
    return float("nan") if start < 0 else float(scores[start]) if start < len(scores) else float("inf")


def drawn_starts(
    ranked: RankedFindings,
    draws: Draws,
    workers: int | None = None,
    progress: Progress | None = None,
    *,
    conditional: bool = True,
) -> Integers:
    """The same for every replicate, (n_resamples, findings): one serves all groupings.

    `conditional`: with the number of patients who have any positive held fixed, as AUROC and rates within classes are
    drawn; not so for what depends on the prevalence.
    """
    out = np.empty((draws.n_resamples, len(ranked.fixed)), dtype=np.int64)
    label = ranked.positive.astype(np.int32)

    def kernel(counts: Counts, own: slice) -> None:
        by_lane, once = np.ascontiguousarray(counts.T), np.ones((2, counts.shape[1]))
        for k, rows in enumerate(ranked.each()):
            mass = _masses(ranked, rows, label, 2, counts)
            found = _starts(ranked, k, label, counts, by_lane, mass, once, 1)
            out[own, k] = found[: own.stop - own.start]

    _by_lanes(kernel, draws, workers, progress, conditional)
    return out


def _by_lanes(
    kernel: Callable[[Counts, slice], None],
    draws: Draws,
    workers: int | None,
    progress: Progress | None,
    conditional: bool = True,
) -> None:
    """Call kernel(counts, replicates) for LANES replicates after another, whatever the number of threads."""
    members, edges = draws.plan(conditional)
    key = stream_key(draws.seed)

    def work(start: int, stop: int) -> None:
        for at in range(start, stop, LANES):
            counts = np.zeros((draws.n_units, LANES), dtype=np.uint8)
            draw_counts(key, at, members, edges, counts)
            kernel(counts, slice(at, min(at + LANES, stop)))

    run_in_blocks(work, draws.n_resamples, workers, progress)


def _masses(ranked: RankedFindings, rows: slice, cell: Cells, n_cells: int, counts: Counts) -> Floats:
    mass = np.zeros((n_cells, counts.shape[1]))
    cell_masses(ranked.weight[rows], ranked.unit[rows], cell[rows], counts, mass)
    return mass


def _starts(
    ranked: RankedFindings,
    k: int,
    cell: Cells,
    counts: Counts,
    by_lane: Counts,
    mass: Floats,
    scale: Floats,
    n_bins: int,
) -> Integers:
    """Where the called rows of finding k begin in each lane, when rows of a cell count `scale` times."""
    start = np.full(counts.shape[1], ranked.fixed[k], dtype=np.int64)
    if ranked.fixed[k] < 0:
        rows = slice(ranked.rows[k], ranked.rows[k + 1])
        totals = (mass * scale).reshape(-1, 2, n_bins, counts.shape[1]).sum(axis=(0, 2))[::-1].copy()
        own = (ranked.y[rows], ranked.p[rows], ranked.weight[rows], ranked.unit[rows], cell[rows])
        starts_lanes(*own, counts, by_lane, totals, scale, ranked.fpr, ranked.rule, start)
    return start


def sample_groups(ranked: RankedFindings, grouping: Grouping, starts: Integers) -> Grouped:
    """The numbers of the sample, shape (findings, groups)."""
    once = np.ones((int(ranked.unit.max(initial=-1)) + 1, 1), dtype=np.uint8)
    found = _GroupFiller(ranked, grouping, 1)
    found.fill(once, starts[None, :], slice(0, 1))
    return found.numbers(0)


def drawn_groups(
    ranked: RankedFindings,
    grouping: Grouping,
    starts: Integers,
    draws: Draws,
    workers: int | None = None,
    progress: Progress | None = None,
) -> Grouped:
    """The numbers of every replicate, shape (n_resamples, findings, groups); `starts` are those of `drawn_starts`."""
    found = _GroupFiller(ranked, grouping, draws.n_resamples)
    _by_lanes(lambda counts, own: found.fill(counts, starts[own], own), draws, workers, progress)
    return found.numbers(slice(None))


def sample_prevalence(
    ranked: RankedFindings, grouping: Grouping, starts: Integers, is_probability: NDArray[np.bool_]
) -> PrevalenceNumbers:
    """What depends on the prevalence in the sample, shape (findings, groups)."""
    once = np.ones((int(ranked.unit.max(initial=-1)) + 1, 1), dtype=np.uint8)
    out = np.empty((1, len(ranked.fixed), grouping.n_groups, len(PrevalenceNumbers._fields)))
    _prevalence_filler(ranked, grouping, is_probability, out)(once, starts[None, :], slice(0, 1))
    return PrevalenceNumbers(*np.moveaxis(out[0], -1, 0))


def drawn_prevalence(
    ranked: RankedFindings,
    grouping: Grouping,
    starts: Integers,
    is_probability: NDArray[np.bool_],
    draws: Draws,
    workers: int | None = None,
    progress: Progress | None = None,
) -> PrevalenceNumbers:
    """The same of every replicate, shape (n_resamples, findings, groups); `starts` are not `conditional`."""
    out = np.empty((draws.n_resamples, len(ranked.fixed), grouping.n_groups, len(PrevalenceNumbers._fields)))
    fill = _prevalence_filler(ranked, grouping, is_probability, out)
    _by_lanes(lambda counts, own: fill(counts, starts[own], own), draws, workers, progress, False)
    return PrevalenceNumbers(*np.moveaxis(out, -1, 0))


def _prevalence_filler(
    ranked: RankedFindings, grouping: Grouping, is_probability: NDArray[np.bool_], out: Floats
) -> Callable[[Counts, Integers, slice], None]:
    """A function that fills some replicates of `out`."""
    group = grouping.group[ranked.origin].astype(np.int32)
    excess = ranked.p - ranked.y
    bins = equal_width_bins(ranked.p, ECE_BINS).astype(np.int32)

    def fill(counts: Counts, starts: Integers, own: slice) -> None:
        found = np.empty((out.shape[-1], grouping.n_groups, counts.shape[1]))
        begin, n = np.full(counts.shape[1], -1, dtype=np.int64), own.stop - own.start
        for k, rows in enumerate(ranked.each()):
            begin[:n] = starts[:, k]
            data = (ranked.positive[rows], ranked.weight[rows], ranked.last[rows], ranked.unit[rows], group[rows])
            prevalence_lanes(*data, excess[rows], bins[rows], counts, begin, found)
            if not is_probability[k]:
                found[4:] = np.nan
            out[own, k] = found.T[:n]

    return fill


class _Population(NamedTuple):
    """A balanced population: the cell (group, disease, label, bin) of each row, the shape of the cells, the group that
    is measured, and its numbers. Without diseases the labels are balanced."""

    cell: Cells
    shape: tuple[int, int, int, int]
    member: Cells
    out: Floats

    def scales(self, mass: Floats) -> Floats:
        """What rows of each cell are multiplied by, from the weight (cells, lanes) of the rows."""
        groups, diseases, labels, bins = self.shape
        scale = np.empty_like(mass)
        if diseases == 1:
            cell_scales(mass, labels, bins, scale)
            return scale
        pooled = mass.reshape(groups * diseases, labels, bins, -1).sum(axis=1)
        by_disease = np.empty((groups * diseases * bins, mass.shape[1]))
        cell_scales(pooled.reshape(by_disease.shape), diseases, bins, by_disease)
        scale.reshape(groups * diseases, labels, bins, -1)[:] = by_disease.reshape(pooled.shape)[:, None]
        return scale


class _GroupFiller:
    """The numbers of one grouping, (replicates, findings, groups, 3), filled some replicates at a time."""

    def __init__(self, ranked: RankedFindings, grouping: Grouping, n: int) -> None:
        self.ranked, self.n_groups = ranked, grouping.n_groups
        self.shape = (n, len(ranked.fixed), grouping.n_groups, 3)
        self.group = grouping.group[ranked.origin].astype(np.int32)
        self.nowhere = np.zeros(len(self.group), dtype=np.int32)
        self.out = np.empty(self.shape)
        self.balanced = None if grouping.part is None else self._population(grouping, grouping.part)
        self.within = [self._population(each, each.part) for each in grouping.within if each.part is not None]

    def _population(self, balanced: Grouping, part: NDArray[np.bool_]) -> _Population:
        """The groups of `self` where those of `balanced` are balanced."""
        ranked, group = self.ranked, balanced.group[self.ranked.origin]
        inside = np.where(part[ranked.finding, group], group, -1)
        bins = np.zeros(len(inside), dtype=np.int64)
        if balanced.age_bin is not None:
            bins = balanced.age_bin[ranked.origin]
        code, diseases = ranked.y, 1
        if balanced.disease is not None:
            code, diseases = 2 * balanced.disease[ranked.origin] + ranked.y, len(DISEASE_GROUPS)
        cell = cells_of(code, inside, bins, balanced.n_bins, 2 * diseases)
        member = np.where(cell >= 0, self.group, -1).astype(np.int32)
        return _Population(cell, (balanced.n_groups, diseases, 2, balanced.n_bins), member, np.full(self.shape, np.nan))

    def numbers(self, replicates: int | slice) -> Grouped:
        """What was filled."""
        balanced = None if self.balanced is None else _to_group_numbers(self.balanced.out[replicates])
        within = tuple(_to_group_numbers(each.out[replicates]) for each in self.within)
        return Grouped(_to_group_numbers(self.out[replicates]), balanced, within)

    def fill(self, counts: Counts, starts: Integers, own: slice) -> None:
        ranked, n, lanes = self.ranked, own.stop - own.start, counts.shape[1]
        found = np.empty((3, self.n_groups, lanes))
        begin, once = np.full(lanes, -1, dtype=np.int64), np.ones((1, lanes))
        by_lane = np.ascontiguousarray(counts.T)
        for k, rows in enumerate(ranked.each()):
            data = (ranked.positive[rows], ranked.weight[rows], ranked.last[rows], ranked.unit[rows])
            begin[:n] = starts[:, k]
            groups_lanes(*data, self.group[rows], self.nowhere[rows], counts, once, begin, found)
            self.out[own, k] = found.T[:n]
            for each in (self.balanced, *self.within):
                if each is None or not (each.cell[rows] >= 0).any():
                    continue
                mass = _masses(ranked, rows, each.cell, int(np.prod(each.shape)), counts)
                scale = each.scales(mass)
                start = _starts(ranked, k, each.cell, counts, by_lane, mass, scale, each.shape[-1])
                groups_lanes(*data, each.member[rows], each.cell[rows], counts, scale, start, found)
                each.out[own, k] = found.T[:n]


def _to_group_numbers(found: Floats) -> GroupNumbers:
    return GroupNumbers(found[..., 0], found[..., 1], found[..., 2], found[..., 1] - found[..., 2])


# Sorted rows and draws -> where the called rows begin in every replicate when the false positive rate is given.
#
# The same places as `fpr_sorted` finds, LANES replicates at a time. Side by side they walk down from the highest
# score in chunks of rows until all of them have passed the rate; only then each one looks for its own point, from a
# chunk before the one where it passed. Should the point lie still further up (a long straight piece of the curve), it
# starts again from the top.

CHUNK = 64
UNSEEN = -2


@compiled
def called_from(
    y: Any,
    p: Any,
    weight: Any,
    unit: Any,
    cell: Any,
    drawn: Any,
    factor: Any,
    positives: float,
    negatives: float,
    fpr: float,
    rule: int,
    begin: int,
    hits: float,
    alarms: float,
) -> int:
    """`fpr_sorted` from row `begin` downwards, above which lie `hits` and `alarms`.

    UNSEEN when a point above `begin` could be as near as all below. -1 without negatives.
    """
    n = y.shape[0]
    if negatives <= 0:
        return -1
    per_negative = 1 / negatives
    per_positive = 1 / positives if positives > 0 else 0.0
    corners = rule == 0 and positives > 0
    best, gap = n, fpr
    points, run, rise = 0, 0.0, 0.0
    rate, share = alarms * per_negative, hits * per_positive
    if begin < n:  # points above may be as near as this one, the step to it is not known
        best, gap, points = UNSEEN, fpr - rate - TOLERANCE, 2
    known = begin == n
    place = begin
    mass = 0.0
    for back in range(begin):
        i = begin - 1 - back
        if cell[i] >= 0:
            w = weight[i] * drawn[unit[i]] * factor[cell[i]]
            mass += w
            hits += w * y[i]
            alarms += w * (1 - y[i])
        if (i > 0 and p[i - 1] == p[i]) or mass <= 0:
            continue
        mass = 0.0
        reached = alarms * per_negative
        if rule == 2:
            if reached > fpr + TOLERANCE:
                return best
            best = i
            continue
        recalled = hits * per_positive
        turned = points > 1 and (abs(reached - rate - run) > TOLERANCE or abs(recalled - share - rise) > TOLERANCE)
        if corners and known and turned and abs(rate - fpr) < gap - TOLERANCE:
            best, gap = place, abs(rate - fpr)
        if (not corners or points == 0) and abs(reached - fpr) < gap - TOLERANCE:
            best, gap = i, abs(reached - fpr)
        if reached - fpr > gap:
            return best
        points, place, run, rise, rate, share = points + 1, i, reached - rate, recalled - share, reached, recalled
        known = True
    if rule != 2 and abs(rate - fpr) < gap - TOLERANCE:
        best = place
    return best


@compiled(fastmath={"contract"})
def starts_lanes(
    y: Any,
    p: Any,
    weight: Any,
    unit: Any,
    cell: Any,
    counts: Any,
    by_lane: Any,
    totals: Any,
    scale: Any,
    fpr: float,
    rule: int,
    start: Any,
) -> None:
    """Fill start (lanes,). Row i counts weight[i] * counts[unit[i], lane] * scale[cell[i], lane] times; cell -1: never.

    `by_lane` are the counts with a row for each lane; totals (2, lanes): positives and negatives.
    """
    n = y.shape[0]
    lanes = counts.shape[1]
    marks = np.full(3, n)  # where this chunk and the two before it end, and what lies above
    sums = np.zeros((3, 2, lanes))
    waiting = lanes
    start[:] = UNSEEN
    chunk = 0
    i = n
    while waiting > 0:
        chunk += 1
        now = chunk % 3
        for lane in range(lanes):
            sums[now, 0, lane] = sums[(chunk - 1) % 3, 0, lane]
            sums[now, 1, lane] = sums[(chunk - 1) % 3, 1, lane]
        stop = i
        while i > 0 and (stop - i < CHUNK or p[i - 1] == p[i]):
            i -= 1
            if cell[i] < 0:
                continue
            w = weight[i]
            row = counts[unit[i]]
            times = scale[cell[i]]
            own = sums[now, 0 if y[i] == 1 else 1]
            for lane in range(lanes):
                own[lane] += w * row[lane] * times[lane]
        marks[now] = i
        at = max(chunk - 2, 0) % 3
        for lane in range(lanes):
            if start[lane] != UNSEEN or (i > 0 and sums[now, 1, lane] <= fpr * totals[1, lane]):
                continue
            waiting -= 1
            begin, hits, alarms = marks[at], sums[at, 0, lane], sums[at, 1, lane]
            while start[lane] == UNSEEN:
                start[lane] = called_from(
                    y,
                    p,
                    weight,
                    unit,
                    cell,
                    by_lane[lane],
                    scale[:, lane],
                    totals[0, lane],
                    totals[1, lane],
                    fpr,
                    rule,
                    begin,
                    hits,
                    alarms,
                )
                begin, hits, alarms = n, 0.0, 0.0
