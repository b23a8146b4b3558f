"""Score columns -> `prob` where they are probabilities, `logit` where they are not.

The decision is made for all scores of one finding and model together: half of a column in `prob` and half in `logit`
would make two rankings of one.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from cxrhf.tables import cells

_NEXT = "give every labelled row a score, or empty its label to exclude it"
Column = tuple[pa.ChunkedArray, cells.Where]


@dataclass(frozen=True, slots=True)
class Scores:
    """Both score columns, and what should be said about them; names are "" where there is one finding."""

    prob: pa.Array
    logit: pa.Array
    low: float
    high: float
    not_probabilities: tuple[str, ...]
    two_valued: tuple[str, ...]


def split_scores(score: Column | None, logit: Column | None, label: pa.Array, by: list[pa.Array] | None) -> Scores:
    """`score` and `logit` are columns of the file, `by` the finding and model of each row (None: one of each)."""
    labelled = label.is_valid().to_numpy(zero_copy_only=False)
    first = score or logit
    assert first is not None
    where = first[1]
    given = None if score is None else _finite(score)
    logits = None if logit is None else _finite(logit)
    missing = labelled.copy()
    for values in (given, logits):
        if values is not None:
            missing &= np.isnan(values)
    if missing.any():
        row = int(np.argmax(missing))
        raise where.error(row, None, "an empty cell or NaN in a row with a label", "a finite number", _NEXT)
    group, names = _groups(by, len(label))
    if given is None:
        assert logits is not None
        given, outside = np.full(len(label), np.nan), np.ones(len(names), dtype=bool)
    else:
        with np.errstate(invalid="ignore"):
            off = (given < 0) | (given > 1)
        if logits is None:
            outside = np.bincount(group[off], minlength=len(names)) > 0
            moved = outside[group]
            logits = np.where(moved, given, np.nan)
            given = np.where(moved, np.nan, given)
        else:
            outside = np.zeros(len(names), dtype=bool)
            cells.bounded(given, where, 0, 1, allowed="a probability from 0 to 1, because the file also has logits")
    used = np.where(np.isnan(given), logits, given)
    known = ~np.isnan(used)
    return Scores(
        pa.array(given, from_pandas=True),
        pa.array(logits, from_pandas=True),
        float(used[known].min()) if known.any() else 0.0,
        float(used[known].max()) if known.any() else 0.0,
        tuple(dict.fromkeys(names[at] for at in np.flatnonzero(outside))),
        tuple(dict.fromkeys(names[at] for at in np.flatnonzero(_few_values(used, group, len(names))))),
    )


def _finite(column: Column) -> np.ndarray:
    values = cells.numbers(*column, allowed="a finite number")
    infinite = np.isinf(values)
    if infinite.any():
        row = int(np.argmax(infinite))
        raise column[1].error(row, None, values[row], "a finite number")
    return values


def _groups(by: list[pa.Array] | None, n: int) -> tuple[np.ndarray, list[str]]:
    """A code per row for its finding and model, and the finding's name of each code."""
    if by is None:
        return np.zeros(n, dtype=np.int64), [""]
    finding, model = (each.dictionary_encode() for each in by)
    width = len(model.dictionary)
    codes = finding.indices.to_numpy().astype(np.int64) * width + model.indices.to_numpy()
    return codes, [name for name in finding.dictionary.to_pylist() for _ in range(width)]


def _few_values(values: np.ndarray, group: np.ndarray, n_groups: int, enough: int = 20) -> np.ndarray:
    """Groups of at least `enough` scores that are all the group's lowest or highest: already thresholded."""
    known = ~np.isnan(values)
    table = pa.table({"group": group[known], "value": values[known]})
    ends = table.group_by("group").aggregate([("value", "min"), ("value", "max"), ("value", "count")])
    low, high, count = np.zeros(n_groups), np.zeros(n_groups), np.zeros(n_groups)
    at = ends["group"].to_numpy()
    low[at], high[at] = ends["value_min"].to_numpy(), ends["value_max"].to_numpy()
    count[at] = ends["value_count"].to_numpy()
    between = known & (values != low[group]) & (values != high[group])
    return (np.bincount(group[between], minlength=n_groups) == 0) & (count >= enough)
