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
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from cxrhf.metrics.blocks import Task, matched_block, metric_block, prepare, sum_block
from cxrhf.metrics.catalogue import SUMS, Metric, find_metric
from cxrhf.metrics.checks import Floats, InputError, as_pretest
from cxrhf.metrics.columns import Columns, LabelRows, check_columns, sort_context, sort_label
from cxrhf.metrics.draws import LANES, Draws, draw, run_in_blocks
from cxrhf.metrics.streams import stream_key
from cxrhf.metrics.sums import SUM_METRICS, sums_by_unit, value_of

__all__ = ["Draws", "bootstrap", "bootstrap_auroc", "bootstrap_many", "draw"]

CallableMetric = Callable[[Floats, Floats, Floats], float]
Option = float | Sequence[float] | Floats


@dataclass(frozen=True, slots=True)
class _Asked:
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
    asked = [_asked(name, entry, dict(given[name]), columns.y.shape[1]) for name, entry in entries.items()]
    stages: dict[tuple[bool, str, float], list[_Asked]] = {}
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


def _tasks(engine: _Engine, chosen: Sequence[_Asked], pretest: Floats | None = None) -> list[Task]:
    """One for each label."""
    tasks = []
    for label, rows in enumerate(engine.ranked):
        options = {each.entry.code: each.at(label) for each in chosen}
        context = None if pretest is None else sort_context(rows, pretest[:, label])
        tasks.append(prepare(rows, options, context))
    return tasks


def _from_rows(engine: _Engine, chosen: Sequence[_Asked], conditional: bool) -> dict[str, Floats]:
    """Metrics that need the rows again in every replicate."""
    codes = [each.entry.code for each in chosen]
    shape = (len(engine.ranked), len(codes))
    found = engine.run(metric_block, (_tasks(engine, chosen), codes), shape, conditional)
    return {each.name: found[:, :, k] for k, each in enumerate(chosen)}


def _from_matched(
    engine: _Engine, chosen: Sequence[_Asked], pretest: ArrayLike | None, caliper: float
) -> dict[str, Floats]:
    """Metrics of the matched set: matched once in each replicate for all of them."""
    if pretest is None:
        raise InputError(f"{chosen[0].name} requires pretest, the pre-test probability of each row (and label)")
    tasks = _tasks(engine, chosen, as_pretest(pretest, np.isnan(engine.columns.y)))
    codes = [each.entry.code for each in chosen]
    found = engine.run(matched_block, (tasks, codes, caliper), (len(tasks), len(codes)), True)
    return {each.name: found[:, :, k] for k, each in enumerate(chosen)}


def _from_patients(engine: _Engine, chosen: Sequence[_Asked], conditional: bool) -> dict[str, Floats]:
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


def _key(each: _Asked, label: int) -> tuple[Any, int, float]:
    """Which sums a metric needs; NaN (no option) equals itself here."""
    option = each.at(label)
    return SUM_METRICS[each.name][0], label, -np.inf if np.isnan(option) else option


def _asked(name: str, entry: Metric, given: dict[str, Any], n_labels: int) -> _Asked:
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
    return _Asked(name, entry, np.broadcast_to(option, n_labels), np.inf if caliper is None else float(caliper))


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
