"""Written reports -> how near they are to their references: overall, by group, and gaps between groups."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from cxrhf.audits.groupings import Groups
from cxrhf.audits.reports.pairs import Pair, pairs_of
from cxrhf.audits.reports.report_rows import NAN, Ends, RowMaker
from cxrhf.audits.reports.written import Floats, WordSettings, Written
from cxrhf.audits.rows import Row, beyond_resamples
from cxrhf.metrics.drawn_means import mean_replicates, patients_behind
from cxrhf.metrics.intervals import UnitCount, difference_interval, interval

# Parts of a score whose groups are not compared: its F1 speaks for them.
PARTS = ("_precision", "_recall")
_UNIT = (0.0, 1.0)


class Measured(NamedTuple):
    """Values of each report by metric, and how each was made."""

    values: Mapping[str, Floats]
    methods: Mapping[str, str]
    corpus_bleu: float


def measure(written: Written) -> Measured:
    """Token overlap, and what `cxrhf score` has said of these reports."""
    from cxrhf.metrics.overlap import overlap_scores

    found = overlap_scores(written.reference, written.generated)
    values = {"rouge1": found.rouge1, "rougeL": found.rougeL, "bleu": found.bleu}
    methods = dict.fromkeys(values, "mean over reports, lower-case alphabetic tokens")
    for name, (scores, encoder) in written.scores.items():
        values[name], methods[name] = scores, f"mean over reports, {encoder}"
    return Measured(values, methods, found.corpus_bleu)


def similarity(written: Written, measured: Measured, groups: Sequence[Groups], settings: WordSettings) -> list[Row]:
    """Means of all reports, of each group, and differences between groups."""
    make = RowMaker("reports", written, settings)
    draws = written.draws(settings)
    names = list(measured.values)
    pairs = [pair for each in groups for pair in pairs_of(each)]
    columns, keys = list[Floats](), list[tuple[str, str]]()
    for name in names:
        columns.append(measured.values[name])
        keys.append((name, "all"))
        for pair in () if name.partition(".")[0].endswith(PARTS) else pairs:
            for code, slice in ((0, pair.first), (1, pair.second)):
                if (name, slice) not in keys:
                    columns.append(np.where(pair.code == code, measured.values[name], np.nan))
                    keys.append((name, slice))
    matrix = np.stack(columns, axis=1)
    replicates = mean_replicates(matrix, draws)
    place = {key: at for at, key in enumerate(keys)}
    rows = []
    own = {"all", *(group for pair in pairs for group in pair.own)}
    for (name, slice), at in place.items():
        if slice not in own:
            continue
        rows.append(_mean(make, name, slice, matrix[:, at], replicates[:, at], patients_behind(matrix[:, at], draws),
                          measured.methods[name]))  # fmt: skip
        if slice == "all" and name == "bleu":
            rows.append(make.row("corpus_bleu", measured.corpus_bleu, method="BLEU-4 of the corpus, no smoothing",
                                 higher=True))  # fmt: skip
    for pair in pairs:
        for name in names:
            if (name, pair.first) in place:
                ends = [place[name, pair.first], place[name, pair.second]]
                rows.append(_gap(make, name, pair, matrix[:, ends], replicates[:, ends],
                                 [patients_behind(matrix[:, each], draws) for each in ends],
                                 measured.methods[name]))  # fmt: skip
    return rows


def _mean(
    make: RowMaker, name: str, slice: str, values: Floats, replicates: Floats, units: UnitCount, method: str
) -> Row:
    there = values[~np.isnan(values)]
    sizes: dict[str, Any] = {"n": len(there), "n_patients": units.total}
    if not len(there):
        return make.row(name, NAN, slice=slice, method=method, higher=True, note="undefined: no report has it", **sizes)
    inside = bool(there.min() >= 0 and there.max() <= 1)
    value = float(there.mean())
    found = interval(value, replicates, level=make.settings.level, units=units,
                     bounds=_UNIT if inside else (-np.inf, np.inf))  # fmt: skip
    lost = len(values) - len(there) if slice == "all" else 0
    note = f"{lost} reports have no value" if lost else None
    ends = Ends(found.low, found.high, f"{found.method}, patients resampled")
    return make.row(name, value, ends=ends, slice=slice, method=method, higher=True, note=note, **sizes)


def _gap(
    make: RowMaker, name: str, pair: Pair, values: Floats, replicates: Floats, units: Sequence[UnitCount], method: str
) -> Row:
    if np.isnan(values).all(axis=0).any():
        return make.row(name, NAN, slice=pair.first, versus=pair.second, note="undefined: a group has no such value")
    value = float(np.nanmean(values[:, 0]) - np.nanmean(values[:, 1]))
    few = min(units, key=lambda each: each.effective_total)
    apart = replicates[:, 0] - replicates[:, 1]
    found = difference_interval(value, apart, level=make.settings.level, units=few, bounds=(-np.inf, np.inf))
    ends = Ends(found.low, found.high, f"{found.method}, patients resampled")
    p_value = beyond_resamples(found, value, apart, few)
    return make.row(
        name, value, ends=ends, p_value=p_value, slice=pair.first, versus=pair.second, method=method,
        n=int((~np.isnan(values)).sum()), n_patients=sum(each.total for each in units),
    )  # fmt: skip
