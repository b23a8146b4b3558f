"""Labels and pre-test probabilities -> positives paired with negatives of the same context.

The total |difference| is exactly minimal. On a line this needs no assignment solver: walking along the sorted
values, the cost as a function of how many members of the smaller class still wait for a partner is convex, and two
stacks of its slopes are all that must be kept (`choose`). After sorting the time and memory are linear, so the
matching can be redone in every bootstrap replicate.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cxrhf.metrics.checks import (
    Floats,
    InputError,
    as_clusters,
    as_labels,
    as_probabilities,
    as_scores,
    as_weights,
    same_length,
)
from cxrhf.metrics.compiled import compiled
from cxrhf.metrics.ranking import auroc_of, rank_rows

Indices = NDArray[np.int64]
# Distances that differ by less are equal.
TIE = 1e-12


class MatchedPairs(NamedTuple):
    """Row indices; positives[k] is matched with negatives[k]. Ordered by the positive's pre-test probability."""

    positives: Indices
    negatives: Indices


class PairSummary(NamedTuple):
    """Facts about a matched set that its AUROC must be read with."""

    n_pairs: int
    total_difference: float
    mean_difference: float
    largest_difference: float
    same_patient_share: float
    high_pretest_share: float


@compiled
def choose(
    value: Any, positive: Any, positives_ask: bool, penalty: float, left: Any, right: Any, waiting: Any, taken: Any
) -> None:
    """Which points are matched, at minimal total |difference| (+ `penalty` for each one left out), into taken[k].

    `value` ascending; points of the class that asks want a partner, the others are candidates. `left`, `right` and
    `waiting` are work space with one entry for each point.

    f(d) = least cost so far when d members wait for a partner to their right (d < 0: candidates wait). A member
    shifts f by one, a candidate lets d fall by one or not, and a gap g to the next value adds g|d|. All keep f
    convex, so f is its sorted slopes. Only slopes that can still change a decision are kept: below 0 to the right
    of d = 0 (`right`, front = smallest) and above -penalty to its left (`left`, top = largest). Slopes on the left fall
    and those on the right rise along the way, so each is stored relative to the value where the walk stands. Of two
    candidates equally far away, up to rounding (TIE), the lower one is taken.
    """
    n = value.shape[0]
    left_bottom = 0
    left_top = 0  # left[left_bottom:left_top]
    right_front = n
    right_back = n  # right[right_front:right_back]; grows towards the front
    for k in range(n):
        here = value[k]
        while right_back > right_front and right[right_back - 1] + here >= -TIE:
            right_back -= 1
        if right_back == right_front:
            right_back = n
            right_front = n
        while left_bottom < left_top and left[left_bottom] - here <= -penalty:
            left_bottom += 1
        if positive[k] == positives_ask:
            waiting[k] = left_top - left_bottom
            if left_top > left_bottom:
                left_top -= 1
                slope = left[left_top] - here
            else:
                slope = -penalty
            if slope < -TIE:
                right_front -= 1
                right[right_front] = slope - here
        else:
            waiting[k] = right_back - right_front
            if right_back > right_front:
                slope = right[right_front] + here
                right_front += 1
                if slope > -penalty:
                    left[left_top] = slope + here
                    left_top += 1
            else:
                left[left_top] = here
                left_top += 1
    # Backwards from d = 0: each point's own decision, read off the slopes that were kept before it.
    d = 0
    for k in range(n - 1, -1, -1):
        if positive[k] == positives_ask:
            asked = d > -waiting[k]
            taken[k] = asked
            d -= asked
        else:
            given = d < waiting[k]
            taken[k] = given
            d += given


@compiled
def matched_shares(value: Any, positive: Any, count: Any, penalty: float, share: Any) -> None:
    """For rows sorted by (value, class): the share of each row's copies that a minimal matching takes.

    Rows of one class with one value share what their value got, which is the mean over all ways to break the tie.
    The class with fewer copies asks; with equal numbers the positives do.
    """
    n = value.shape[0]
    n_positive = 0
    copies = 0
    for i in range(n):
        copies += count[i]
        if positive[i]:
            n_positive += count[i]
    each, side = np.empty(copies), np.empty(copies, dtype=np.bool_)
    k = 0
    for i in range(n):
        for _ in range(count[i]):
            each[k], side[k] = value[i], positive[i]
            k += 1
    taken, waiting = np.empty(copies, dtype=np.bool_), np.empty(copies, dtype=np.int32)
    choose(each, side, 2 * n_positive <= copies, penalty, np.empty(copies), np.empty(copies), waiting, taken)
    i = 0
    k = 0
    while i < n:
        j = i
        chosen = 0
        there = 0
        while j < n and value[j] == value[i] and positive[j] == positive[i]:
            for _ in range(count[j]):
                chosen += taken[k]
                there += 1
                k += 1
            j += 1
        for m in range(i, j):
            share[m] = chosen / there if there > 0 else 0.0
        i = j


def _sorted_context(y: Floats, q: Floats, ids: NDArray[Any] | None) -> Indices:
    """Order by value, then class, then id: the same whatever the order of the rows."""
    return np.lexsort((y, q) if ids is None else (ids, y, q)).astype(np.int64)


def _context(y: ArrayLike, pretest: ArrayLike, caliper: float | None) -> tuple[Floats, Floats, float]:
    labels = as_labels(y)
    q = as_probabilities(pretest, "pretest")
    same_length(y=labels, pretest=q)
    if caliper is not None and not caliper > 0:
        raise InputError(f"caliper: expected a number above 0 or None for no limit, got {caliper!r}")
    return labels, q, np.inf if caliper is None else float(caliper)


def match_pairs(
    y: ArrayLike,
    pretest: ArrayLike,
    *,
    ids: ArrayLike | None = None,
    caliper: float | None = None,
    clusters: ArrayLike | None = None,
) -> MatchedPairs:
    """Match positives and negatives 1:1 on pre-test probability with the smallest total |difference|.

    Returns min(n_pos, n_neg) pairs. The total difference is the exact minimum (that of
    `scipy.optimize.linear_sum_assignment`), in O(n log n) time and O(n) memory. Only the total is unique. Ties are
    broken by value first, then among rows of a class with equal values by `ids`, so with ids the chosen rows do not
    depend on the order of the input. Without ids, the earlier row is chosen. Positives are paired with negatives in
    the order of their values.

    With `caliper`, each unmatched member adds the caliper to the total that is minimised, so no pair is wider than the
    caliper and the best pairs are kept. With `clusters` (patients), the rows of a pair are from different patients.
    This is solved on the nearest candidates with scipy's sparse assignment and is much slower.

    >>> match_pairs([1, 0, 0, 0], [0.5, 0.1, 0.45, 0.9])
    MatchedPairs(positives=array([0]), negatives=array([2]))
    """
    labels, q, penalty = _context(y, pretest, caliper)
    keys: NDArray[Any] | None = None
    if ids is not None:
        keys = np.unique(np.asarray(ids), return_inverse=True)[1].reshape(-1)
        same_length(y=labels, ids=keys)
    order = _sorted_context(labels, q, keys)
    if clusters is not None:
        patient = as_clusters(clusters)
        same_length(y=labels, clusters=patient)
        return MatchedPairs(*pairs_apart(labels, q, penalty, patient, order))
    positive = labels[order] == 1
    n = len(order)
    taken = np.empty(n, dtype=np.bool_)
    waiting = np.empty(n, dtype=np.int32)
    choose(q[order], positive, 2 * positive.sum() <= n, penalty, np.empty(n), np.empty(n), waiting, taken)
    chosen = _select_earliest(q[order], positive, taken)
    return MatchedPairs(order[chosen & positive], order[chosen & ~positive])


def _select_earliest(
    value: Floats, positive: NDArray[np.bool_], taken: NDArray[np.bool_] | Floats
) -> NDArray[np.bool_]:
    """As many rows of each run of equal (value, class) as the matching took there, the first ones of the run."""
    if len(value) == 0:
        return np.zeros(0, dtype=np.bool_)
    new_run = np.r_[True, (value[1:] != value[:-1]) | (positive[1:] != positive[:-1])]
    run = np.cumsum(new_run) - 1
    place = np.arange(len(value)) - np.flatnonzero(new_run)[run]
    # Shares of a run add up to a whole number, but for rounding.
    return np.asarray(place < np.rint(np.bincount(run, taken))[run], dtype=np.bool_)


def pairs_of(y: ArrayLike, pretest: ArrayLike, weight: ArrayLike) -> MatchedPairs:
    """Pairs of `match_pairs` (without ids and clusters) from the shares of `match_weights`, without matching again.

    >>> y, q = [1, 0, 0, 0], [0.5, 0.1, 0.45, 0.9]
    >>> pairs_of(y, q, match_weights(y, q))
    MatchedPairs(positives=array([0]), negatives=array([2]))
    """
    labels, q, _ = _context(y, pretest, None)
    share = as_weights(weight, len(labels))
    there = np.flatnonzero(share > 0)
    order = there[_sorted_context(labels[there], q[there], None)]
    positive = labels[order] == 1
    chosen = _select_earliest(q[order], positive, share[order])
    return MatchedPairs(order[chosen & positive], order[chosen & ~positive])


def match_weights(
    y: ArrayLike, pretest: ArrayLike, caliper: float | None = None, count: ArrayLike | None = None
) -> Floats:
    """Share of each row in the matched set: 1 for the smaller class, selected/available for tied rows of the other.

    This is the exact mean over all ways to break ties between equal values, so it does not depend on row order. (Two
    *different* values at the same distance from a positive are also a tie; the lower one is chosen.) `count` is the
    number of copies of each row in a bootstrap resample; the share is per copy.
    """
    labels, q, penalty = _context(y, pretest, caliper)
    n = len(labels)
    copies = np.ones(n, dtype=np.int64) if count is None else np.asarray(count).astype(np.int64)
    same_length(y=labels, count=copies)
    order = _sorted_context(labels, q, None)
    share = np.zeros(n)
    matched_shares(q[order], labels[order] == 1, copies[order], penalty, share)
    weight = np.empty(n)
    weight[order] = share
    return weight


def matched_auroc(y: ArrayLike, p: ArrayLike, pretest: ArrayLike, caliper: float | None = None) -> float:
    """AUROC of positives and negatives matched 1:1 on pre-test probability; 0 to 1, higher is better.

    Measures how well the model ranks patients with the same context. Tied negatives share their weight. NaN without
    positives or without negatives, or if no pair is within the caliper.

    >>> matched_auroc([1, 1, 0, 0, 0], [0.9, 0.4, 0.5, 0.1, 0.2], [0.7, 0.3, 0.7, 0.3, 0.0])
    0.75
    """
    scores = as_scores(p)
    weight = match_weights(y, pretest, caliper)
    same_length(y=weight, p=scores)
    return auroc_of(rank_rows(as_labels(y), scores, weight))


def pair_summary(
    pairs: MatchedPairs, y: ArrayLike, pretest: ArrayLike, clusters: ArrayLike | None = None
) -> PairSummary:
    """Number of pairs, remaining differences, number of pairs within a patient, and P(q > 0.5 | Y = 1).

    Studies of a patient with the same prior notes have the same pre-test probability, so matching tends to pair them
    with each other, and the matched AUROC then measures ranking within patients. Without `clusters`, the number of
    pairs within a patient is NaN.
    """
    labels, q, _ = _context(y, pretest, None)
    gap = np.abs(q[pairs.positives] - q[pairs.negatives])
    same = np.nan
    if clusters is not None and len(gap):
        patient = as_clusters(clusters)
        same_length(y=labels, clusters=patient)
        same = float((patient[pairs.positives] == patient[pairs.negatives]).mean())
    positive = labels == 1
    return PairSummary(
        len(gap),
        float(gap.sum()),
        float(gap.mean()) if len(gap) else np.nan,
        float(gap.max()) if len(gap) else np.nan,
        same,
        float((q[positive] > 0.5).mean()) if positive.any() else np.nan,
    )


# Labels, pre-test probabilities and patients -> matched pairs in which no patient meets himself.
#
# Forbidding pairs breaks the order along the line that makes matching.py linear, so this option uses scipy's sparse
# assignment: seconds instead of milliseconds at 20,000 rows.


def pairs_apart(
    y: Floats, q: Floats, penalty: float, patient: NDArray[Any], order: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Least-cost pairs of different patients; `order` lists the rows by value, class and id.

    Candidates are the nearest rows of other patients on both sides; their number doubles until the total cost no
    longer falls, so the result is minimal among pairs that near, and in practice over all.
    """
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import min_weight_full_bipartite_matching

    code = np.unique(patient, return_inverse=True)[1].reshape(-1)
    few, many = order[y[order] == 1], order[y[order] == 0]
    swap = len(few) > len(many)
    if swap:
        few, many = many, few
    if len(few) == 0:
        return few, few
    place = np.searchsorted(q[many], q[few])
    reach, best, pairs = 16, np.inf, (few[:0], few[:0])
    while True:
        column = place[:, None] + np.arange(-reach, reach)[None, :]
        row = np.broadcast_to(np.arange(len(few))[:, None], column.shape)
        keep = (column >= 0) & (column < len(many))
        row, column = row[keep], column[keep]
        distance = np.abs(q[few[row]] - q[many[column]])
        keep = (code[few[row]] != code[many[column]]) & (distance <= penalty)
        row, column, distance = row[keep], column[keep], distance[keep]
        # Each member may also stay alone, at the caliper's price, or without one at a price no pair can reach.
        # A constant is added to all costs because a cost of 0 would read as "no edge".
        alone = penalty if np.isfinite(penalty) else float(len(few) + 1)
        members = np.arange(len(few))
        cost = np.r_[distance, np.full(len(few), alone)] + 1.0
        graph = coo_array(
            (cost, (np.r_[row, members], np.r_[column, len(many) + members])), (len(few), len(many) + len(few))
        ).tocsr()
        left, right = min_weight_full_bipartite_matching(graph)
        total = float(np.asarray(graph[left, right]).sum())
        real = right < len(many)
        if total < best - 1e-12:
            best, pairs = total, (few[left[real]], many[right[real]])
        elif reach >= 64 or reach >= len(many):
            break
        if reach >= len(many):
            break
        reach *= 2
    first, second = pairs[::-1] if swap else pairs
    by_value = np.argsort(q[first], kind="stable")
    return first[by_value], second[by_value]


# Rows by pre-test probability and draws -> the matched set of every replicate, the matching redone in each.


def work_space(copies: int) -> tuple[Any, ...]:
    """Memory for the copies of rows that one replicate draws: row, value, class, and what `choose` needs."""
    kinds = (np.int32, np.float64, np.bool_, np.float64, np.float64, np.int32, np.bool_)
    return tuple(np.empty(copies, dtype=kind) for kind in kinds)


@compiled
def matched_lanes(drawn: Any, context: Any, caliper: float, work: Any, kept: Any, out: Any) -> None:
    """Match the drawn rows of one label in every lane; out[place, lane] = copies of the row in the matched set.

    `context` is a `LabelContext`; drawn[lane, u] says how often patient u was drawn. Copies of rows of one class with
    one pre-test probability share what they got. `work` (see `work_space`) and `kept` of (lanes, rows) are memory.
    """
    value, positive, unit, place, tied = context
    row, each, side, left, right, waiting, taken = work
    n, lanes = value.shape[0], drawn.shape[0]
    for lane in range(lanes):
        times, own = drawn[lane], kept[lane]
        copies, n_positive = np.int64(0), np.int64(0)
        for i in range(n):
            own[i] = 0.0
            c = np.int64(times[unit[i]])
            # Most rows are drawn at most twice; two are always written, so that there is little to guess.
            for k in range(copies, copies + 2):
                row[k], each[k], side[k] = i, value[i], positive[i]
            for k in range(copies + 2, copies + c):
                row[k], each[k], side[k] = i, value[i], positive[i]
            copies += c
            n_positive += c * positive[i]
        choose(each[:copies], side[:copies], 2 * n_positive <= copies, caliper, left, right, waiting, taken)
        if not tied:
            for k in range(copies):
                own[place[row[k]]] += taken[k]
            continue
        k = 0
        while k < copies:
            begin, chosen = k, 0
            while k < copies and each[k] == each[begin] and side[k] == side[begin]:
                chosen += taken[k]
                k += 1
            for j in range(begin, k):
                own[place[row[j]]] += chosen / (k - begin)
    for start in range(0, n, 64):
        for lane in range(lanes):
            for i in range(start, min(start + 64, n)):
                out[i, lane] = kept[lane, i]
