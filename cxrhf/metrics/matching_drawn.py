"""Rows by pre-test probability and draws -> the matched set of every replicate, the matching redone in each."""

from __future__ import annotations

from typing import Any

import numpy as np

from cxrhf.metrics.compiled import compiled
from cxrhf.metrics.matching import choose


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
