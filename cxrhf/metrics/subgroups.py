"""Labels, scores and groups -> AUROC, TPR, FPR and Youden's J of every group at one threshold for all, and their gaps.

ENCODING's question: a model has one threshold; whom does it miss, and whom does it alarm for nothing? The threshold is
given (from validation data), or it is the one with FPR .20 on the whole sample. A threshold that was set on the sample
is set anew in every bootstrap replicate, so the intervals hold its uncertainty too. `score >= threshold` is called
positive.

Rates differ between groups that differ in age or severity though the model treats equals equally: a gap is a finding
to explain, not yet a bias.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cxrhf.metrics.checks import (
    Floats,
    InputError,
    as_count,
    as_fraction,
    as_labels,
    as_scores,
    as_weights,
    same_length,
    undefined,
)
from cxrhf.metrics.compiled import compiled
from cxrhf.metrics.draws import Draws, draw, draw_counts, run_in_blocks
from cxrhf.metrics.intervals import UnitCount, count_units, difference_interval, interval
from cxrhf.metrics.operating import FPR_RULES, fpr_sorted, rates_at, threshold_at_fpr
from cxrhf.metrics.ranking import auroc, rank_rows
from cxrhf.metrics.resample import bootstrap
from cxrhf.metrics.streams import stream_key
from cxrhf.metrics.sums import value_of

RATES = ("tpr", "fpr", "j")
NUMBERS = ("auroc", *RATES)
# Missing values of float, numpy and pandas as text: numpy turns ["F", nan] into text without a word.
_MISSING = frozenset({"nan", "NaT", "<NA>"})
_GAP_BOUNDS = {"auroc": (-1.0, 1.0), "tpr": (-1.0, 1.0), "fpr": (-1.0, 1.0), "j": (-2.0, 2.0)}


class GroupRates(NamedTuple):
    """One group: rows that weigh something, positives among them, the four numbers, and why one of them is NaN."""

    n: int
    n_positive: int
    auroc: float
    tpr: float
    fpr: float
    j: float
    note: str | None


class Gap(NamedTuple):
    """Largest minus smallest value over the groups that have one; NaN with a note below two such groups."""

    value: float
    highest: str | None
    lowest: str | None
    note: str | None


class SubgroupRates(NamedTuple):
    """`rates` by group, `gaps` by number (auroc, tpr, fpr, j)."""

    threshold: float
    threshold_source: str
    groups: tuple[str, ...]
    rates: dict[str, GroupRates]
    overall: GroupRates
    gaps: dict[str, Gap]


class _Rows(NamedTuple):
    """Checked rows. A null label is NaN in `y` and weighs nothing; `code` is the place of a row's group in `names`."""

    y: Floats
    p: Floats
    weight: Floats
    code: NDArray[np.int64]
    names: tuple[str, ...]

    def of(self, group: int) -> NDArray[np.bool_]:
        """The labelled rows of a group; the one after the last is everybody."""
        labelled = ~np.isnan(self.y)
        return labelled & (self.code == group) if group < len(self.names) else labelled


def _as_groups(groups: Iterable[Any]) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    if isinstance(groups, str) or not isinstance(groups, Iterable):
        raise InputError(f"groups is {groups!r}, allowed: one group for each row")
    values = groups.tolist() if hasattr(groups, "tolist") else list(groups)
    for i, each in enumerate(values):
        if isinstance(each, (list, np.ndarray)):
            raise InputError(f"groups[{i}] is {each!r}, allowed: one name or number for each row")
        if each is None or str(each) in _MISSING:
            raise InputError(
                f"groups[{i}] is {each!r}: every row needs a group; name the unknown ones, for example 'unknown'"
            )
    text = [str(each) for each in values]
    names = tuple(sorted(set(text)))
    place = {name: k for k, name in enumerate(names)}
    return np.array([place[each] for each in text], dtype=np.int64), names


def _checked(y: ArrayLike, p: ArrayLike, groups: Iterable[Any], weight: ArrayLike | None) -> _Rows:
    labels = as_labels(y, masked=True)
    if labels.ndim != 1:
        raise InputError(f"y has {labels.ndim} dimensions (shape {labels.shape}), allowed: one label at a time")
    null = np.isnan(labels)
    if null.any():  # a score beside a null label is never looked at
        raw = np.array(p, dtype=object)
        if raw.shape == labels.shape:
            raw[null] = 0.0
        p = raw
    scores = as_scores(p)
    code, names = _as_groups(groups)
    same_length(y=labels, p=scores, groups=code)
    weights = np.where(null, 0.0, as_weights(weight, len(labels)))
    return _Rows(labels, scores, weights, code, names)


def subgroup_rates(
    y: ArrayLike,
    p: ArrayLike,
    groups: Iterable[Any],
    *,
    threshold: float | None = None,
    fpr: float = 0.2,
    rule: str = "nearest",
    weight: ArrayLike | None = None,
) -> SubgroupRates:
    """AUROC, TPR, FPR and J = TPR - FPR of every group at one threshold, with the largest gaps between groups.

    AUROC, TPR and FPR are from 0 to 1, J from -1 to 1; higher is better, for FPR lower. `threshold`: chosen on other
    data (best), else the one whose FPR over all rows is `fpr` by `rule` of `threshold_at_fpr`. `groups`: any values,
    compared as text, so 1 and "1" are one group. A row with a null label is left out. NaN with a note in a group
    without positives or negatives.

    >>> y, p = [0, 0, 1, 1, 0, 0, 1, 1], [0.1, 0.6, 0.7, 0.9, 0.2, 0.3, 0.4, 0.8]
    >>> found = subgroup_rates(y, p, list("FFFFMMMM"), threshold=0.5)
    >>> found.rates["F"].tpr, found.rates["M"].tpr, found.gaps["tpr"].lowest
    (1.0, 0.5, 'M')
    """
    return _point(_checked(y, p, groups, weight), threshold, fpr, rule)


def _point(rows: _Rows, threshold: float | None, fpr: float, rule: str) -> SubgroupRates:
    everybody = rows.of(len(rows.names))
    whole = rows.y[everybody], rows.p[everybody], rows.weight[everybody]
    at, source, lost = threshold, "given", None
    if at is None:
        at = threshold_at_fpr(whole[0], whole[1], fpr, whole[2], rule)
        source = f"fpr {fpr:g} of the whole sample, {rule}".replace(" 0.", " .")
        lost = undefined("threshold_at_fpr", whole[0], whole[2])
    found = [_group(rows, rows.of(k), at, lost) for k in range(len(rows.names) + 1)]
    gaps = {name: _gap(name, rows.names, [getattr(each, name) for each in found[:-1]]) for name in NUMBERS}
    by_group = dict(zip(rows.names, found[:-1], strict=True))
    return SubgroupRates(float(at), source, rows.names, by_group, found[-1], gaps)


def _group(rows: _Rows, inside: NDArray[np.bool_], threshold: float, lost: str | None) -> GroupRates:
    y, p, weight = rows.y[inside], rows.p[inside], rows.weight[inside]
    numbers = dict.fromkeys(NUMBERS, float("nan")) | {"auroc": auroc(y, p, weight)}
    if lost is None:
        rates = rates_at(y, p, threshold, weight)
        numbers |= {name: getattr(rates, name) for name in RATES}
    reasons: dict[str, list[str]] = {}
    for name, value in numbers.items():
        if np.isnan(value):
            reasons.setdefault(_reason(undefined(name, y, weight) or lost), []).append(name)
    note = "; ".join(f"{', '.join(names)} undefined: {reason}" for reason, names in reasons.items())
    return GroupRates(
        n=int((weight > 0).sum()), n_positive=int((weight[y == 1] > 0).sum()), **numbers, note=note or None
    )


def _reason(sentence: str | None) -> str:
    return "no threshold" if sentence is None else sentence.partition(": ")[2]


def _gap(name: str, groups: tuple[str, ...], values: list[float]) -> Gap:
    defined = [k for k, value in enumerate(values) if not np.isnan(value)]
    if len(defined) < 2:
        note = f"{name} gap is undefined: {name} is defined in {len(defined)} of {len(groups)} groups, a gap needs two"
        return Gap(float("nan"), None, None, note)
    highest = max(defined, key=lambda k: values[k])
    lowest = min(reversed(defined), key=lambda k: values[k])  # from behind: equal groups still make a pair of two
    return Gap(values[highest] - values[lowest], groups[highest], groups[lowest], None)


@compiled
def _called_block(
    key: Any,
    first: int,
    members: Any,
    edges: Any,
    y: Any,
    p: Any,
    weight: Any,
    unit: Any,
    slot: Any,
    fixed: int,
    fpr: float,
    rule: int,
    out: Any,
) -> None:
    """Sums of every group and replicate: weight of positives, of negatives, of each that is called; rows by score.

    slot[i] is the place of row i in the sums of all groups, one group's four after another's. `fixed` is where the
    called rows begin, or -1 when each replicate finds its own threshold. out is (replicates, 4 * groups), NaN where
    there is no threshold.
    """
    counts = np.empty((members.shape[0], 1), dtype=np.uint8)
    w = np.empty(y.shape[0])
    for r in range(out.shape[0]):
        counts[:] = 0
        draw_counts(key, first + r, members, edges, counts)
        for i in range(y.shape[0]):
            w[i] = weight[i] * counts[unit[i], 0]
        start = fixed if fixed >= 0 else fpr_sorted(y, p, w, fpr, rule)
        out[r] = 0.0 if start >= 0 else np.nan
        own = out[r]
        for i in range(y.shape[0]):
            own[slot[i]] += w[i]
        for i in range(max(start, 0), y.shape[0]):
            own[slot[i] + 2] += w[i]


def bootstrap_subgroups(
    y: ArrayLike,
    p: ArrayLike,
    groups: Iterable[Any],
    *,
    threshold: float | None = None,
    fpr: float = 0.2,
    rule: str = "nearest",
    weight: ArrayLike | None = None,
    draws: Draws,
    workers: int | None = None,
    progress: Callable[[int], None] | None = None,
) -> dict[str, Floats]:
    """Replicates of `subgroup_rates`: "auroc", "tpr", "fpr", "j" of shape (n_resamples, groups + 1), the last for all.

    Without a `threshold` every replicate sets its own, so the overall FPR hardly varies: it was chosen. "auroc_gap" and
    so on, shape (n_resamples,), are differences of the two groups that are highest and lowest in the sample, the same
    two in every replicate: the largest gap of each replicate would be biased upwards, and never negative. NaN where a
    replicate lacks a class.

    >>> y, p = [0, 0, 1, 1, 0, 0, 1, 1], [0.1, 0.6, 0.7, 0.9, 0.2, 0.3, 0.4, 0.8]
    >>> found = bootstrap_subgroups(y, p, list("FFFFMMMM"), draws=draw(y=y, n_resamples=10))
    >>> found["tpr"].shape, found["tpr_gap"].shape
    ((10, 3), (10,))
    """
    rows = _checked(y, p, groups, weight)
    same_length(y=rows.y, draws=draws.unit)
    return _replicates(rows, _point(rows, threshold, fpr, rule), threshold is None, fpr, rule, draws, workers, progress)


def _replicates(
    rows: _Rows,
    point: SubgroupRates,
    anew: bool,
    fpr: float,
    rule: str,
    draws: Draws,
    workers: int | None = None,
    progress: Callable[[int], None] | None = None,
) -> dict[str, Floats]:
    columns = range(len(rows.names) + 1)
    apart = np.stack([np.where(rows.of(k), rows.y, np.nan) for k in columns], axis=1)
    scores = np.repeat(rows.p[:, None], len(columns), axis=1)
    half = _half(progress)
    result = {"auroc": bootstrap("auroc", apart, scores, rows.weight, draws=draws, workers=workers, progress=half)}

    ranked = rank_rows(rows.y, rows.p, rows.weight)
    fixed = -1 if anew else int(np.searchsorted(ranked.p, point.threshold))
    slot = 4 * rows.code[ranked.order] + (ranked.y == 0)
    data = (ranked.y, ranked.p, ranked.weight, draws.unit[ranked.order], slot)
    which = (fixed, float(fpr), FPR_RULES.index(rule) if anew else 0)
    members, edges = draws.plan(True)
    key = stream_key(draws.seed)
    drawn = np.empty((draws.n_resamples, 4 * len(rows.names)))

    def work(start: int, stop: int) -> None:
        _called_block(key, start, members, edges, *data, *which, drawn[start:stop])

    run_in_blocks(work, draws.n_resamples, workers, half)
    each = drawn.reshape(draws.n_resamples, len(rows.names), 4)
    sums = np.concatenate([each, each.sum(axis=1, keepdims=True)], axis=1)
    result |= {name: value_of(name, sums, np.nan) for name in RATES}
    for name, gap in point.gaps.items():
        difference = np.full(draws.n_resamples, np.nan)
        if gap.highest is not None and gap.lowest is not None:
            a, b = rows.names.index(gap.highest), rows.names.index(gap.lowest)
            difference = result[name][:, a] - result[name][:, b]
        result[f"{name}_gap"] = difference
    return result


def _half(progress: Callable[[int], None] | None) -> Callable[[int], None] | None:
    """AUROC and rates are two passes over the replicates; together they report each replicate once."""
    if progress is None:
        return None
    waiting = [0]

    def report(count: int) -> None:
        whole, waiting[0] = divmod(waiting[0] + count, 2)
        if whole:
            progress(whole)

    return report


def measure_subgroups(
    y: ArrayLike,
    p: ArrayLike,
    groups: Iterable[Any],
    *,
    threshold: float | None = None,
    fpr: float = 0.2,
    rule: str = "nearest",
    weight: ArrayLike | None = None,
    clusters: ArrayLike | None = None,
    n_resamples: int = 0,
    seed: int = 0,
    level: float = 0.95,
    progress: Callable[[int], None] | None = None,
) -> dict[str, Any]:
    """`subgroup_rates` as a plain dict, with intervals when `n_resamples` > 0, drawn by patient (`clusters`, if given).

    {"threshold", "threshold_source", "groups": {name: numbers}, "overall": numbers, "gaps": {number: gap}}. Numbers:
    n, n_positive, n_patients, and for each x of auroc, tpr, fpr, j: x, x_ci_low, x_ci_high, x_ci_method; a note only
    where one is NaN. A gap: value, highest, lowest, ci_low, ci_high, p_value, method; a note where it is NaN.

    The pair with the largest gap was picked because it is the largest, so with k groups its interval and p value are
    corrected for the k(k-1)/2 pairs it was picked from (Bonferroni; `method` says so). Without, equal groups would seem
    to differ in 11% of samples with three groups and in 26% with five, 5% being promised. A p value by counting
    replicates cannot fall below 2 x pairs / (n_resamples + 1).

    >>> y, p = [0, 0, 1, 1, 0, 0, 1, 1], [0.1, 0.6, 0.7, 0.9, 0.2, 0.3, 0.4, 0.8]
    >>> measure_subgroups(y, p, list("FFFFMMMM"), threshold=0.5)["gaps"]["tpr"]
    {'value': 0.5, 'highest': 'F', 'lowest': 'M'}
    """
    as_count(n_resamples, "n_resamples", least=0)
    as_fraction(level, "level")
    rows = _checked(y, p, groups, weight)
    draws = draw(clusters, y=rows.y, n_resamples=max(n_resamples, 1), seed=seed)
    point = _point(rows, threshold, fpr, rule)
    drawn = _replicates(rows, point, threshold is None, fpr, rule, draws, progress=progress) if n_resamples else {}
    units = [
        count_units(np.where(rows.of(k) & (rows.weight > 0), rows.y, np.nan), draws.unit, rows.weight)
        for k in range(len(rows.names) + 1)
    ]
    entries = []
    for k, each in enumerate((*point.rates.values(), point.overall)):
        own = {name: replicates[:, k] for name, replicates in drawn.items() if name in NUMBERS}
        entries.append(_entry(each, own, units[k], level))
    of = dict(zip(rows.names, units, strict=False))
    return {
        "threshold": point.threshold,
        "threshold_source": point.threshold_source,
        "groups": dict(zip(rows.names, entries[:-1], strict=True)),
        "overall": entries[-1],
        "gaps": {name: _gap_entry(name, point, drawn.get(f"{name}_gap"), of, level) for name in NUMBERS},
    }


def _entry(found: GroupRates, replicates: dict[str, Floats], units: UnitCount, level: float) -> dict[str, Any]:
    out: dict[str, Any] = {"n": found.n, "n_positive": found.n_positive, "n_patients": units.total}
    for name in NUMBERS:
        value = getattr(found, name)
        out[name] = value
        if name in replicates:
            ends = interval(value, replicates[name], level=level, units=units, metric=name)
            out |= {f"{name}_ci_low": ends.low, f"{name}_ci_high": ends.high, f"{name}_ci_method": ends.method}
    return out | ({"note": found.note} if found.note else {})


def _gap_entry(
    name: str, point: SubgroupRates, replicates: Floats | None, units: dict[str, UnitCount], level: float
) -> dict[str, Any]:
    gap = point.gaps[name]
    out: dict[str, Any] = {"value": gap.value, "highest": gap.highest, "lowest": gap.lowest}
    if replicates is not None:
        few = None
        if gap.highest is not None and gap.lowest is not None:
            few = UnitCount._make(map(min, units[gap.highest], units[gap.lowest]))
        defined = sum(not np.isnan(getattr(group, name)) for group in point.rates.values())
        pairs = max(defined * (defined - 1) // 2, 1)
        each = 1 - (1 - level) / pairs
        ends = difference_interval(gap.value, replicates, level=each, units=few, bounds=_GAP_BOUNDS[name], metric=name)
        method = ends.method if pairs == 1 or np.isnan(ends.low) else f"{ends.method}, Bonferroni over {pairs} pairs"
        p_value = float(np.minimum(1.0, ends.p_value * pairs))
        out |= {"ci_low": ends.low, "ci_high": ends.high, "p_value": p_value, "method": method}
    return out | ({"note": gap.note} if gap.note else {})
