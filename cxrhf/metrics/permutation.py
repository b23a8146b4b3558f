"""Labels, scores and a question -> a p value by shuffling what would not matter if the answer were "no".

Patients are shuffled whole. Rows are sorted once; a shuffle only changes which rows count, so the metrics' own
kernels serve here too.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cxrhf.metrics.catalogue import AUROC, SUMS, evaluate_sorted, find_metric
from cxrhf.metrics.checks import InputError, as_clusters, as_count, binary_input, same_length
from cxrhf.metrics.compiled import compiled
from cxrhf.metrics.draws import advanced, mixed, stream_key, stream_start
from cxrhf.metrics.ranking import Ranked, auroc_lanes, rank_rows
from cxrhf.metrics.sums import row_sums, unit_sums, value_of


class PermutationTest(NamedTuple):
    """The observed difference, its two-sided p value, and the null hypothesis."""

    difference: float
    p_value: float
    n_permutations: int
    n_undefined: int
    null: str


@compiled
def _value(code: int, y: Any, p: Any, w: Any, last: Any, place: Any, option: float) -> float:
    if code != AUROC:
        return evaluate_sorted(code, y, p, w, option)
    out = np.empty(1)
    auroc_lanes(
        y == 1,
        np.ones(y.shape[0]),
        last,
        place,
        w.reshape(-1, 1),
        np.empty(1),
        np.empty(1),
        np.empty((2, 1)),
        out,
    )
    return out[0]


@compiled
def _shuffled_sides(state: Any, side: Any, swap: bool) -> Any:
    """Deal each unit's side anew: an independent coin for each (swap), or the same sides in another order."""
    if swap:
        for u in range(side.shape[0]):
            state = advanced(state)
            side[u] = mixed(state) >> np.uint64(63)
        return state
    for u in range(side.shape[0] - 1, 0, -1):
        state = advanced(state)
        other = int(((mixed(state) >> np.uint64(32)) * np.uint64(u + 1)) >> np.uint64(32))
        held = side[u]
        side[u] = side[other]
        side[other] = held
    return state


@compiled
def _kernel_differences(
    key: Any,
    code: int,
    y: Any,
    p: Any,
    weight: Any,
    last: Any,
    unit: Any,
    arm: Any,
    side: Any,
    swap: bool,
    option: float,
    out: Any,
) -> None:
    """out[0] observed, then shuffled differences (side 0 minus side 1). A row is on side arm[i] XOR side[unit[i]]."""
    n = y.shape[0]
    first = np.empty(n)
    second = np.empty(n)
    place = np.arange(n).astype(np.int32)
    dealt = side.copy()
    for r in range(out.shape[0]):
        if r > 0:
            dealt[:] = side
            _shuffled_sides(stream_start(key, r), dealt, swap)
        for i in range(n):
            here = arm[i] ^ dealt[unit[i]]
            first[i] = weight[i] if here == 0 else 0.0
            second[i] = weight[i] if here == 1 else 0.0
        out[r] = _value(code, y, p, first, last, place, option) - _value(code, y, p, second, last, place, option)


@compiled
def _dealt_sums(key: Any, sums: Any, side: Any, swap: bool, out: Any) -> None:
    """The same for sums: sums[arm, unit] are added to side arm XOR side[unit]; out is (shuffles, sides, columns)."""
    dealt = side.copy()
    for r in range(out.shape[0]):
        if r > 0:
            dealt[:] = side
            _shuffled_sides(stream_start(key, r), dealt, swap)
        out[r] = 0.0
        for u in range(dealt.shape[0]):
            for arm in range(2):
                here = arm ^ dealt[u]
                for k in range(sums.shape[2]):
                    out[r, here, k] += sums[arm, u, k]


def _differences(
    metric: str,
    option: float | None,
    ranked: Ranked,
    unit: NDArray[np.int64],
    arm: NDArray[np.int64],
    side: NDArray[np.int64],
    swap: bool,
    n_permutations: int,
    seed: int,
) -> NDArray[np.float64]:
    """The observed difference, then the shuffled ones."""
    entry, key = find_metric(metric), stream_key(seed)
    if entry.matched:
        raise InputError(f"{metric} has no permutation test. Use the bootstrap.")
    value = entry.default if option is None else float(option)
    out = np.empty(n_permutations + 1)
    if entry.code != SUMS:
        rows = (ranked.y, ranked.p, ranked.weight, ranked.last)
        _kernel_differences(key, entry.code, *rows, unit, arm, side, swap, value, out)
        return out
    each = row_sums(metric, ranked.y, ranked.p, ranked.weight, value)
    sums = np.stack([unit_sums(each[arm == a], unit[arm == a], len(side)) for a in (0, 1)])
    dealt = np.empty((n_permutations + 1, 2, each.shape[1]))
    _dealt_sums(key, sums, side, swap, dealt)
    return value_of(metric, dealt[:, 0], value) - value_of(metric, dealt[:, 1], value)


def _test(out: NDArray[np.float64], null: str) -> PermutationTest:
    observed, shuffled = float(out[0]), out[1:]
    kept = shuffled[~np.isnan(shuffled)]
    undefined = len(shuffled) - len(kept)
    if np.isnan(observed) or len(kept) == 0:
        return PermutationTest(observed, float("nan"), len(shuffled), undefined, null)
    # Differences that are equal but for rounding count as equal.
    extreme = int((np.abs(kept) >= abs(observed) - 1e-12).sum())
    return PermutationTest(observed, (1 + extreme) / (1 + len(kept)), len(shuffled), undefined, null)


def _units(clusters: ArrayLike | None, n: int) -> NDArray[np.int64]:
    if clusters is None:
        return np.arange(n)
    raw = as_clusters(clusters)
    same_length(y=np.empty(n), clusters=raw)
    return np.unique(raw, return_inverse=True)[1].reshape(-1)


def models_permutation_test(
    y: ArrayLike,
    p: ArrayLike,
    p_other: ArrayLike,
    weight: ArrayLike | None = None,
    *,
    clusters: ArrayLike | None = None,
    metric: str = "auroc",
    option: float | None = None,
    n_permutations: int = 1000,
    seed: int = 0,
) -> PermutationTest:
    """Test whether a metric differs between two models on the same rows by swapping their scores within patients.

    After a swap, ranking metrics compare scores of both models with each other, so each model's scores are first
    replaced by their ranks. Probability metrics use the probabilities.
    """
    from scipy.stats import rankdata

    entry = find_metric(metric)
    labels, scores, weights = binary_input(y, p, weight, probability=entry.probability)
    other = binary_input(y, p_other, weight, probability=entry.probability)[1]
    as_count(n_permutations, "n_permutations")
    if not entry.probability and entry.option != "threshold":
        scores, other = rankdata(scores), rankdata(other)
    unit = _units(clusters, len(labels))
    ranked = rank_rows(np.r_[labels, labels], np.r_[scores, other], np.r_[weights, weights])
    arm = np.repeat(np.array([0, 1], dtype=np.int64), len(labels))[ranked.order]
    side = np.zeros(int(unit.max()) + 1 if len(unit) else 0, dtype=np.int64)
    both = np.r_[unit, unit][ranked.order]
    out = _differences(metric, option, ranked, both, arm, side, True, n_permutations, seed)
    return _test(out, "swapping the two models' scores within a patient changes nothing")


def groups_permutation_test(
    y: ArrayLike,
    p: ArrayLike,
    group: ArrayLike,
    weight: ArrayLike | None = None,
    *,
    clusters: ArrayLike | None = None,
    metric: str = "auroc",
    option: float | None = None,
    n_permutations: int = 1000,
    seed: int = 0,
) -> PermutationTest:
    """Test whether a metric differs between two groups of patients by permuting group membership among patients.

    `group` has two distinct values and one value per patient; the difference is the first (in sorted order) minus the
    second. Permutation removes every difference between the groups, including that in prevalence, so the null
    hypothesis is that the groups are exchangeable.
    """
    labels, scores, weights = binary_input(y, p, weight, probability=find_metric(metric).probability)
    as_count(n_permutations, "n_permutations")
    raw = np.asarray(group)
    same_length(y=labels, group=raw)
    names, side_of_row = np.unique(raw, return_inverse=True)
    if len(names) != 2:
        raise InputError(f"group: expected exactly 2 distinct values, got {len(names)}")
    unit = _units(clusters, len(labels))
    side = np.zeros(int(unit.max()) + 1, dtype=np.int64)
    side[unit] = side_of_row
    mixed_rows = np.flatnonzero(side[unit] != side_of_row)
    if len(mixed_rows):
        raise InputError(f"group[{int(mixed_rows[0])}]: expected one group per patient, got two for a patient")
    ranked = rank_rows(labels, scores, weights)
    arm = np.zeros(len(ranked.y), dtype=np.int64)
    out = _differences(metric, option, ranked, unit[ranked.order], arm, side, False, n_permutations, seed)
    return _test(out, "group membership is exchangeable between patients")
