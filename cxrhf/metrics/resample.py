"""Labels, scores and patients -> bootstrap replicates of any metric, by counting rows instead of copying them.

A draw says how often each patient was drawn; a row counts as often as its patient. Rows are sorted once, then every
replicate is one pass over sorted rows with other counts. The same draw serves every finding, model, stratum and
metric given the same `Draws`, so differences between them are paired. Replicate r depends on the seed and r alone,
not on threads or on what else is computed.

Metrics that only look within the classes (AUROC, sensitivity, Brier+) are drawn with the number of patients who have
any positive held fixed, so that rare findings stay present; metrics that depend on the prevalence (Brier, calibration
error, precision) are not, because holding it fixed would hide most of their variance.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

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
    SUMS,
    YOUDEN,
    Metric,
    find_metric,
)
from cxrhf.metrics.checks import (
    Floats,
    InputError,
    as_label_weights,
    as_labels,
    as_pretest,
    as_probabilities,
    as_scores,
    same_length,
    where_labelled,
)
from cxrhf.metrics.compiled import compiled
from cxrhf.metrics.draws import LANES, Draws, draw, draw_counts, run_in_blocks, stream_key
from cxrhf.metrics.lanes import (
    LineCells,
    ace_lanes,
    best_lanes,
    class_lanes,
    cut_cells,
    line_lanes,
    pr_lanes,
    sensitivity_lanes,
    stretches,
    sum_lanes,
)
from cxrhf.metrics.matching import matched_lanes, work_space
from cxrhf.metrics.ranking import auroc_lanes
from cxrhf.metrics.reliability import pav_groups, pav_lanes
from cxrhf.metrics.sums import SUM_METRICS, sums_by_unit, value_of

__all__ = ["Draws", "bootstrap", "bootstrap_auroc", "bootstrap_many", "draw"]


CallableMetric = Callable[[Floats, Floats, Floats], float]
Option = float | Sequence[float] | Floats


@dataclass(frozen=True, slots=True)
class _RequestedMetric:
    """One metric as asked for: its option for each label (NaN = none) and the caliper of a matching."""

    name: str
    entry: Metric
    option: Floats
    caliper: float

    def at(self, label: int) -> float:
        """The option of one label."""
        return float(self.option[label] if not np.isnan(self.option[label]) else self.entry.default)


@dataclass(frozen=True, slots=True)
class _Engine:
    """What every stage of one call shares; `ranked` are the labels' rows by score, where a stage needs them."""

    columns: Columns
    ranked: list[LabelRows]
    draws: Draws
    workers: int | None
    progress: Callable[[int], None] | None

    def run(
        self, kernel: Callable[..., None], data: tuple[Any, ...], shape: tuple[int, ...], conditional: bool
    ) -> Floats:
        """Fill (n_resamples, *shape) by blocks of replicates."""
        members, edges = self.draws.plan(conditional)
        key = stream_key(self.draws.seed)
        out = np.empty((self.draws.n_resamples, *shape))
        run_in_blocks(
            lambda start, stop: kernel(key, start, members, edges, *data, out[start:stop]),
            self.draws.n_resamples,
            self.workers,
            self.progress,
        )
        return out


def bootstrap_many(
    metrics: Mapping[str, Mapping[str, Option]] | Sequence[str],
    y: ArrayLike,
    p: ArrayLike,
    weight: ArrayLike | None = None,
    *,
    draws: Draws,
    pretest: ArrayLike | None = None,
    workers: int | None = None,
    progress: Callable[[int], None] | None = None,
) -> dict[str, Floats]:
    """Bootstrap replicates of several metrics on the same resamples, as {name: array}.

    Arrays have shape (n_resamples,), or (n_resamples, labels) for 2-D y and p. `metrics` holds names, or names with
    their option, such as {"sensitivity_at_specificity": {"specificity": 0.9}}. An option may be a list with one value
    per label; NaN gives NaN, unless the metric works without the option. `weight` has one value per row, or the shape
    of y. Metrics of the matched set (matched_...) require `pretest` and accept a `caliper`; those with the same caliper
    share the matching. `progress` is called with numbers of finished replicates, n_resamples in total.
    """
    given = dict(metrics) if isinstance(metrics, Mapping) else {name: {} for name in metrics}
    entries = {name: find_metric(name) for name in given}
    columns = check_columns(y, p, weight, draws, probability=any(entry.probability for entry in entries.values()))
    asked = [_parse_request(name, entry, dict(given[name]), columns.y.shape[1]) for name, entry in entries.items()]
    stages: dict[tuple[bool, str, float], list[_RequestedMetric]] = {}
    for each in asked:
        kind = "matched" if each.entry.matched else "sums" if each.entry.code == SUMS else "rows"
        stages.setdefault((each.entry.conditional, kind, each.caliper), []).append(each)
        if each.entry.matched and weight is not None:
            raise InputError(f"{each.name} takes no weight, because a row is either in the matched set or not")
    walked = any(kind != "sums" for _, kind, _ in stages)
    ranked = [sort_label(columns, label, draws) for label in range(columns.y.shape[1] if walked else 0)]
    engine = _Engine(columns, ranked, draws, workers, _over_stages(progress, len(stages)))
    result: dict[str, Floats] = {}
    for (conditional, kind, caliper), chosen in stages.items():
        if kind == "sums":
            result |= _from_patients(engine, chosen, conditional)
        elif kind == "matched":
            result |= _from_matched(engine, chosen, pretest, caliper)
        else:
            result |= _from_rows(engine, chosen, conditional)
    for each in asked:
        if not np.isnan(each.entry.default):
            result[each.name][:, np.isnan(each.option)] = np.nan
    return {name: np.ascontiguousarray(result[name][:, 0] if columns.single else result[name]) for name in given}


def _over_stages(progress: Callable[[int], None] | None, stages: int) -> Callable[[int], None] | None:
    """Replicates pass through one stage for each kind of metric; what is reported adds up to n_resamples once."""
    if progress is None or stages == 1:
        return progress
    waiting = [0]

    def shared(count: int) -> None:
        waiting[0] += count
        whole, waiting[0] = divmod(waiting[0], stages)
        if whole:
            progress(whole)

    return shared


def _tasks(engine: _Engine, chosen: Sequence[_RequestedMetric], pretest: Floats | None = None) -> list[Task]:
    """One for each label."""
    tasks = []
    for label, rows in enumerate(engine.ranked):
        options = {each.entry.code: each.at(label) for each in chosen}
        context = None if pretest is None else sort_context(rows, pretest[:, label])
        tasks.append(prepare(rows, options, context))
    return tasks


def _from_rows(engine: _Engine, chosen: Sequence[_RequestedMetric], conditional: bool) -> dict[str, Floats]:
    """Metrics that need the rows again in every replicate."""
    codes = [each.entry.code for each in chosen]
    shape = (len(engine.ranked), len(codes))
    found = engine.run(metric_block, (_tasks(engine, chosen), codes), shape, conditional)
    return {each.name: found[:, :, k] for k, each in enumerate(chosen)}


def _from_matched(
    engine: _Engine, chosen: Sequence[_RequestedMetric], pretest: ArrayLike | None, caliper: float
) -> dict[str, Floats]:
    """Metrics of the matched set: matched once in each replicate for all of them."""
    if pretest is None:
        raise InputError(f"{chosen[0].name} requires pretest, the pre-test probability of each row (and label)")
    tasks = _tasks(engine, chosen, as_pretest(pretest, np.isnan(engine.columns.y)))
    codes = [each.entry.code for each in chosen]
    found = engine.run(matched_block, (tasks, codes, caliper), (len(tasks), len(codes)), True)
    return {each.name: found[:, :, k] for k, each in enumerate(chosen)}


def _from_patients(engine: _Engine, chosen: Sequence[_RequestedMetric], conditional: bool) -> dict[str, Floats]:
    """Metrics that are functions of sums: patients are summed once, replicates add patients."""
    columns, draws = engine.columns, engine.draws
    n_labels = columns.y.shape[1]
    parts = list[Floats]()
    where: dict[tuple[Any, int, float], int] = {}  # metrics with the same columns and option share their sums
    for label in range(n_labels):
        rows = np.flatnonzero(~np.isnan(columns.y[:, label]))
        y, p, weight = columns.y[rows, label], columns.p[rows, label], columns.weight[rows, label]
        for each in chosen:
            if _key(each, label) not in where:
                where[_key(each, label)] = len(parts)
                parts.append(sums_by_unit(each.name, y, p, weight, each.at(label), draws.unit[rows], draws.n_units))
    edges = np.cumsum([0, *(part.shape[1] for part in parts)])
    stacked = parts[0] if len(parts) == 1 else np.concatenate([np.zeros((draws.n_units, 0)), *parts], axis=1)
    parts.clear()
    sums = engine.run(sum_block, (stacked,), stacked.shape[1:], conditional)
    result = {each.name: np.empty((draws.n_resamples, n_labels)) for each in chosen}
    for each in chosen:
        for label in range(n_labels):
            place = where[_key(each, label)]
            own = sums[:, edges[place] : edges[place + 1]]
            result[each.name][:, label] = value_of(each.name, own, each.at(label))
    return result


def _key(each: _RequestedMetric, label: int) -> tuple[Any, int, float]:
    """Which sums a metric needs; NaN (no option) equals itself here."""
    option = each.at(label)
    return SUM_METRICS[each.name][0], label, -np.inf if np.isnan(option) else option


def _parse_request(name: str, entry: Metric, given: dict[str, Any], n_labels: int) -> _RequestedMetric:
    known = dict.fromkeys(([entry.option] if entry.option else []) + (["caliper"] if entry.matched else []))
    unknown = [key for key, value in given.items() if value is not None and key not in known]
    if unknown:
        raise InputError(f"options of {name}: expected {', '.join(known) or 'none'}, got {unknown[0]!r}")
    value = None if entry.option in (None, "caliper") else given.get(entry.option)
    option = np.asarray(entry.default if value is None else value, dtype=np.float64)
    if option.shape not in ((), (n_labels,)):
        raise InputError(
            f"{entry.option} of {name}: expected one number or one per label ({n_labels}), got shape {option.shape}"
        )
    caliper = given.get("caliper")
    if caliper is not None and not caliper > 0:
        raise InputError(f"caliper: expected a number above 0 or None for no limit, got {caliper!r}")
    return _RequestedMetric(
        name, entry, np.broadcast_to(option, n_labels), np.inf if caliper is None else float(caliper)
    )


def bootstrap(
    metric: str | CallableMetric,
    y: ArrayLike,
    p: ArrayLike,
    weight: ArrayLike | None = None,
    *,
    draws: Draws,
    pretest: ArrayLike | None = None,
    workers: int | None = None,
    progress: Callable[[int], None] | None = None,
    **option: Option,
) -> Floats:
    """Bootstrap replicates of a metric: shape (n_resamples,), or (n_resamples, labels) for 2-D y and p.

    `metric` is a name in METRICS or a function (y, p, weight) -> float. A function is called with each row's weight
    times the number of times it was drawn; it is slower and is resampled as if it depended on the prevalence. A
    replicate without one of the classes is NaN.
    """
    if isinstance(metric, str):
        return bootstrap_many(
            {metric: option}, y, p, weight, draws=draws, pretest=pretest, workers=workers, progress=progress
        )[metric]
    columns = check_columns(y, p, weight, draws)
    out = np.empty((draws.n_resamples, columns.y.shape[1]))
    valid = [np.flatnonzero(~np.isnan(columns.y[:, k])) for k in range(columns.y.shape[1])]
    for start in range(0, draws.n_resamples, LANES):
        stop = min(start + LANES, draws.n_resamples)
        counts = draws.counts(start, stop, conditional=False)
        for r in range(start, stop):
            times = counts[draws.unit, r - start]
            for k, rows in enumerate(valid):
                drawn = columns.weight[rows, k] * times[rows]
                out[r, k] = metric(columns.y[rows, k], columns.p[rows, k], drawn)
        if progress is not None:
            progress(stop - start)
    return out[:, 0] if columns.single else out


def bootstrap_auroc(
    y: ArrayLike,
    p: ArrayLike,
    weight: ArrayLike | None = None,
    clusters: ArrayLike | None = None,
    n_resamples: int = 10_000,
    seed: int = 0,
) -> Floats:
    """Bootstrap replicates of the AUROC: shape (n_resamples,), or (n_resamples, labels) for 2-D y and p.

    Patients (`clusters`) are drawn with replacement, stratified by whether they have a positive label.

    >>> bootstrap_auroc([0, 1, 0, 1], [0.1, 0.9, 0.2, 0.8], n_resamples=3).tolist()
    [1.0, 1.0, 1.0]
    """
    draws = draw(clusters, y=y, n_resamples=n_resamples, seed=seed)
    return bootstrap("auroc", y, p, weight, draws=draws)


# Sorted rows and draws -> metrics of a block of replicates: the inside of the bootstrap.
#
# Replicates go side by side, one in each lane of the compiled kernels. The kernels are called from here label by
# label: one compiled loop over all of them would take longer to compile than most bootstraps take to run.

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


# Labels, scores, weights and pre-test probabilities -> checked columns, sorted once for all replicates.
#
# One column or many. NaN marks a missing label: its row is left out for that label only, and what stands beside it is
# never looked at and may be missing too.


@dataclass(frozen=True, slots=True)
class Columns:
    """Checked matrices (rows x labels); `single` when the caller gave one column."""

    y: Floats
    p: Floats
    weight: Floats
    single: bool


class LabelRows(NamedTuple):
    """The labelled rows of one label by score; `last` ends a run of equal scores, `unit` is the row's patient."""

    origin: NDArray[np.int64]
    y: Floats
    p: Floats
    positive: NDArray[np.bool_]
    weight: Floats
    last: NDArray[np.bool_]
    unit: NDArray[np.int32]


class LabelContext(NamedTuple):
    """The same rows by pre-test probability and class: that probability, the row's class, patient and place by score.

    `tied`: some rows have the same probability and class.
    """

    pretest: Floats
    positive: NDArray[np.bool_]
    unit: NDArray[np.int32]
    place: NDArray[np.int32]
    tied: bool


def check_columns(
    y: ArrayLike, p: ArrayLike, weight: ArrayLike | None, draws: Draws, *, probability: bool = False
) -> Columns:
    """The door of the bootstrap. `weight` is one for each row, or one for each row and label."""
    labels = as_labels(y, masked=True)
    missing = np.isnan(labels)
    scores = where_labelled(p, missing, "p")
    scores = as_probabilities(scores, masked=True) if probability else as_scores(scores, masked=True)
    same_length(y=labels, draws=draws.unit)
    weights = np.ones(len(labels)) if weight is None else as_label_weights(weight, missing)
    if labels.ndim == 1:
        return Columns(labels[:, None], scores[:, None], weights[:, None], True)
    wide = weights if weights.ndim == 2 else np.broadcast_to(weights[:, None], labels.shape)
    return Columns(labels, scores, wide, False)


def sort_label(columns: Columns, label: int, draws: Draws) -> LabelRows:
    """One label's rows by score."""
    valid = np.flatnonzero(~np.isnan(columns.y[:, label]))
    order = valid[np.argsort(columns.p[valid, label], kind="stable")]
    y, p = columns.y[order, label], columns.p[order, label]
    last = np.ones(len(p), dtype=np.bool_)
    last[:-1] = p[1:] != p[:-1]
    return LabelRows(order, y, p, y == 1, columns.weight[order, label], last, draws.unit[order])


def sort_context(rows: LabelRows, pretest: Floats) -> LabelContext:
    """Rows of one label by pre-test probability."""
    own = pretest[rows.origin]
    order = np.lexsort((rows.positive, own))
    q, side = own[order], rows.positive[order]
    tied = bool(((q[1:] == q[:-1]) & (side[1:] == side[:-1])).any())
    return LabelContext(q, side, rows.unit[order], order.astype(np.int32), tied)
