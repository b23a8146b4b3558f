"""Sorted rows and draws -> metrics of a block of replicates: the compiled inside of the bootstrap.

Rows of all labels stand one after another, each label sorted by score; rows[l]:rows[l + 1] are label l's. Row i
belongs to patient unit[i] and counts weight[i] times as often as that patient was drawn.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from cxrhf.metrics.catalogue import IN_THE_LARGE, INTERCEPT, SLOPE, evaluate_sorted
from cxrhf.metrics.compiled import compiled
from cxrhf.metrics.draws import LANES, draw_counts
from cxrhf.metrics.matching import matched_shares
from cxrhf.metrics.ranking import auroc_lanes
from cxrhf.metrics.reliability import line_from, log_odds
from cxrhf.metrics.sums import add_up


@compiled
def auroc_block(
    key: Any,
    first: int,
    members: Any,
    edges: Any,
    rows: Any,
    positive: Any,
    weight: Any,
    last: Any,
    unit: Any,
    out: Any,
) -> None:
    """AUROC of every label for out.shape[0] replicates, LANES at a time; out is (replicates, labels)."""
    lanes = LANES
    counts = np.empty((members.shape[0], lanes), dtype=np.uint8)
    below, area, result = np.empty(lanes), np.empty(lanes), np.empty(lanes)
    tied = np.empty((2, lanes))
    for start in range(0, out.shape[0], lanes):
        counts[:] = 0
        draw_counts(key, first + start, members, edges, counts)
        for label in range(rows.shape[0] - 1):
            a, b = rows[label], rows[label + 1]
            auroc_lanes(positive[a:b], weight[a:b], last[a:b], unit[a:b], counts, below, area, tied, result)
            for lane in range(min(lanes, out.shape[0] - start)):
                out[start + lane, label] = result[lane]


@compiled
def metric_block(
    key: Any,
    first: int,
    members: Any,
    edges: Any,
    rows: Any,
    y: Any,
    p: Any,
    weight: Any,
    unit: Any,
    codes: Any,
    options: Any,
    out: Any,
) -> None:
    """Several metrics of every label, replicate after replicate; out is (replicates, labels, metrics).

    The calibration line starts from that of the whole sample, a few steps from any replicate's, and is fitted once
    for its slope and its intercept.
    """
    counts = np.empty((members.shape[0], 1), dtype=np.uint8)
    w = np.empty(y.shape[0])
    n_labels = rows.shape[0] - 1
    lines = np.empty((n_labels, 3))
    odds = np.empty(y.shape[0] if np.any((codes >= SLOPE) & (codes <= IN_THE_LARGE)) else 0)
    if odds.shape[0] > 0:
        log_odds(p, odds)
        for label in range(n_labels):
            a, b = rows[label], rows[label + 1]
            lines[label, 0], lines[label, 1] = line_from(y[a:b], odds[a:b], weight[a:b], True, 0.0, 1.0)
            lines[label, 2] = line_from(y[a:b], odds[a:b], weight[a:b], False, 0.0, 1.0)[0]
            if np.isnan(lines[label, 0]):
                lines[label, 0], lines[label, 1] = 0.0, 1.0
            if np.isnan(lines[label, 2]):
                lines[label, 2] = 0.0
    for r in range(out.shape[0]):
        counts[:] = 0
        draw_counts(key, first + r, members, edges, counts)
        for i in range(y.shape[0]):
            w[i] = weight[i] * counts[unit[i], 0]
        for label in range(n_labels):
            a, b = rows[label], rows[label + 1]
            line = (np.nan, np.nan)
            fitted = False
            for m in range(codes.shape[0]):
                if codes[m] in (SLOPE, INTERCEPT):
                    if not fitted:
                        line = line_from(y[a:b], odds[a:b], w[a:b], True, lines[label, 0], lines[label, 1])
                        fitted = True
                    out[r, label, m] = line[1] if codes[m] == SLOPE else line[0]
                elif codes[m] == IN_THE_LARGE:
                    out[r, label, m] = line_from(y[a:b], odds[a:b], w[a:b], False, lines[label, 2], 1.0)[0]
                else:
                    out[r, label, m] = evaluate_sorted(codes[m], y[a:b], p[a:b], w[a:b], options[m])


@compiled
def matched_block(
    key: Any,
    first: int,
    members: Any,
    edges: Any,
    rows: Any,
    positive: Any,
    last: Any,
    unit: Any,
    by_context: Any,
    pretest: Any,
    caliper: float,
    out: Any,
) -> None:
    """Matched AUROC of every label, the matching redone in each replicate.

    Rows are sorted by score; `by_context` lists the same rows of a label sorted by (pre-test probability, class).
    """
    counts = np.empty((members.shape[0], 1), dtype=np.uint8)
    longest = 0
    for label in range(rows.shape[0] - 1):
        longest = max(longest, rows[label + 1] - rows[label])
    count = np.empty(longest, dtype=np.int64)
    share = np.empty(longest)
    side = np.empty(longest, dtype=np.bool_)
    taken = np.empty((longest, 1))
    ones = np.ones(longest)
    place = np.arange(longest).astype(np.int32)
    below, area, result = np.empty(1), np.empty(1), np.empty(1)
    tied = np.empty((2, 1))
    work = np.empty((3, 2 * longest + 1))
    for r in range(out.shape[0]):
        counts[:] = 0
        draw_counts(key, first + r, members, edges, counts)
        for label in range(rows.shape[0] - 1):
            a, b = rows[label], rows[label + 1]
            copies = 0
            for i in range(b - a):
                j = by_context[a + i]
                count[i] = counts[unit[j], 0]
                side[i] = positive[j]
                copies += count[i]
            if copies + 1 > work.shape[1]:
                work = np.empty((3, 2 * copies + 1))
            matched_shares(pretest[a:b], side[: b - a], count[: b - a], caliper, share[: b - a], work)
            for i in range(b - a):
                taken[by_context[a + i] - a, 0] = share[i] * count[i]
            auroc_lanes(
                positive[a:b], ones[: b - a], last[a:b], place[: b - a], taken[: b - a], below, area, tied, result
            )
            out[r, label] = result[0]


@compiled
def sum_block(key: Any, first: int, members: Any, edges: Any, sums: Any, out: Any) -> None:
    """The sums of every replicate from those of the patients; out is (replicates, columns)."""
    counts = np.empty((members.shape[0], 1), dtype=np.uint8)
    for r in range(out.shape[0]):
        counts[:] = 0
        draw_counts(key, first + r, members, edges, counts)
        add_up(sums, counts[:, 0], out[r])
