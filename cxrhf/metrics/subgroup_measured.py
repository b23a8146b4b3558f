"""Labels, scores, groups and patients -> replicates and intervals of the numbers of groups and of their gaps."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from cxrhf.metrics.calibration import NO_INTERVAL
from cxrhf.metrics.checks import Floats, as_count, as_fraction, same_length
from cxrhf.metrics.draws import Draws, draw
from cxrhf.metrics.grouped import (
    Grouping,
    PrevalenceNumbers,
    drawn_groups,
    drawn_prevalence,
    drawn_starts,
    rank_findings,
)
from cxrhf.metrics.intervals import UnitCount, capped, count_units, difference_interval, interval
from cxrhf.metrics.subgroups import (
    BY_PREVALENCE,
    CALIBRATION,
    NUMBERS,
    PREDICTIVE,
    GroupRates,
    GroupRows,
    SubgroupRates,
    as_rows,
    rates_of,
)

_GAP_BOUNDS = {"auroc": (-1.0, 1.0), "tpr": (-1.0, 1.0), "fpr": (-1.0, 1.0), "j": (-2.0, 2.0)}


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
    """Bootstrap replicates of `subgroup_rates`.

    "auroc", "tpr", "fpr" and "j" have shape (n_resamples, groups + 1), with all rows last. So do "prevalence",
    "average_precision", "precision", "npv" and, for probabilities, "observed_minus_predicted" and
    "expected_calibration_error", from resamples in which the prevalence varies. Without a `threshold`, every replicate
    sets its own, so the overall FPR hardly varies.

    "auroc_gap" and the other gaps have shape (n_resamples,). They are differences between the two groups that are
    highest and lowest in the sample, the same two in every replicate: the largest gap of each replicate would be biased
    upwards and never negative. NaN if a replicate lacks a class.

    >>> y, p = [0, 0, 1, 1, 0, 0, 1, 1], [0.1, 0.6, 0.7, 0.9, 0.2, 0.3, 0.4, 0.8]
    >>> found = bootstrap_subgroups(y, p, list("FFFFMMMM"), draws=draw(y=y, n_resamples=10))
    >>> found["tpr"].shape, found["tpr_gap"].shape
    ((10, 3), (10,))
    """
    rows = as_rows(y, p, groups, weight)
    same_length(y=rows.y, draws=draws.unit)
    point = rates_of(rows, threshold, fpr, rule)
    return _replicates(rows, point, threshold is None, fpr, rule, draws, workers, progress)


def _replicates(
    rows: GroupRows,
    point: SubgroupRates,
    anew: bool,
    fpr: float,
    rule: str,
    draws: Draws,
    workers: int | None = None,
    progress: Callable[[int], None] | None = None,
) -> dict[str, Floats]:
    """`bootstrap_subgroups` of checked rows; the threshold of `point`, or set anew in every replicate."""
    given = None if anew else [point.threshold]
    ranked = rank_findings(
        rows.y[:, None], rows.p[:, None], rows.weight, draws.unit, threshold=given, fpr=fpr, rule=rule
    )
    apart = Grouping(rows.code, len(rows.names))
    together = Grouping(np.zeros(len(rows.y), dtype=np.int64), 1)
    starts = drawn_starts(ranked, draws, workers)
    within = [
        drawn_groups(ranked, apart, starts, draws, workers, progress).original,
        drawn_groups(ranked, together, starts, draws, workers).original,
    ]
    starts, kinds = drawn_starts(ranked, draws, workers, conditional=False), np.array([rows.is_probability])
    across = [drawn_prevalence(ranked, each, starts, kinds, draws, workers) for each in (apart, together)]
    names = [name for name in PrevalenceNumbers._fields if rows.is_probability or name not in CALIBRATION]
    result = {
        name: np.concatenate([getattr(each, name)[:, 0] for each in found], axis=1)
        for found, fields in ((within, NUMBERS), (across, names))
        for name in fields
    }
    for name, gap in point.gaps.items():
        difference = np.full(draws.n_resamples, np.nan)
        if gap.highest is not None and gap.lowest is not None:
            a, b = rows.names.index(gap.highest), rows.names.index(gap.lowest)
            difference = result[name][:, a] - result[name][:, b]
        result[f"{name}_gap"] = difference
    return result


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
    """Compute `subgroup_rates` as a plain dict, with intervals by a patient-level bootstrap if `n_resamples` > 0.

    The keys are "threshold", "threshold_source", "groups" (an entry for each group), "overall" (an entry) and "gaps" (a
    gap for each of auroc, tpr, fpr and j). An entry has n, n_positive and n_patients. For each x of auroc, tpr, fpr, j,
    prevalence, average_precision, precision and npv it has x, x_ci_low, x_ci_high and x_ci_method, and a note if one is
    NaN. If all scores are from 0 to 1, x can also be observed_minus_predicted, and the entry has
    expected_calibration_error, without an interval, and expected_ece. Otherwise the key "note" has the reason. A gap
    has value, highest, lowest, ci_low, ci_high, p_value and method, and a note if it is NaN.

    The pair with the largest gap is selected because it is the largest, so with k groups its interval and p value are
    corrected for the k(k-1)/2 pairs it was selected from (Bonferroni, as stated in `method`). Without the correction,
    equal groups would appear to differ in 11% of samples with three groups and in 26% with five, instead of 5%. A p
    value from replicate counts cannot be smaller than 2 x pairs / (n_resamples + 1).

    >>> y, p = [0, 0, 1, 1, 0, 0, 1, 1], [0.1, 0.6, 0.7, 0.9, 0.2, 0.3, 0.4, 0.8]
    >>> measure_subgroups(y, p, list("FFFFMMMM"), threshold=0.5)["gaps"]["tpr"]
    {'value': 0.5, 'highest': 'F', 'lowest': 'M'}
    """
    as_count(n_resamples, "n_resamples", least=0)
    as_fraction(level, "level")
    rows = as_rows(y, p, groups, weight)
    draws = draw(clusters, y=rows.y, n_resamples=max(n_resamples, 1), seed=seed)
    point = rates_of(rows, threshold, fpr, rule, seed)
    drawn = _replicates(rows, point, threshold is None, fpr, rule, draws, progress=progress) if n_resamples else {}
    units = [
        count_units(np.where(rows.of(k) & (rows.weight > 0), rows.y, np.nan), draws.unit, rows.weight)
        for k in range(len(rows.names) + 1)
    ]
    entries = []
    for k, each in enumerate((*point.rates.values(), point.overall)):
        own = {name: replicates[:, k] for name, replicates in drawn.items() if replicates.ndim == 2}
        entries.append(_entry(each, rows.is_probability, own, units[k], level))
    of = dict(zip(rows.names, units, strict=False))
    out = {
        "threshold": point.threshold,
        "threshold_source": point.threshold_source,
        "groups": dict(zip(rows.names, entries[:-1], strict=True)),
        "overall": entries[-1],
        "gaps": {name: _gap_entry(name, point, drawn.get(f"{name}_gap"), of, level) for name in NUMBERS},
    }
    return out | ({"note": point.note} if point.note else {})


def _entry(
    found: GroupRates, is_probability: bool, replicates: dict[str, Floats], units: UnitCount, level: float
) -> dict[str, Any]:
    out: dict[str, Any] = {"n": found.n, "n_positive": found.n_positive, "n_patients": units.total}
    for name in (*NUMBERS, *BY_PREVALENCE, *(CALIBRATION if is_probability else ())):
        value = getattr(found, name)
        out[name] = value
        if name not in replicates:
            continue
        ends = (np.nan, np.nan, NO_INTERVAL)
        if name != "expected_calibration_error":
            behind = capped(units) if name in PREDICTIVE else units
            ends = interval(value, replicates[name], level=level, units=behind, metric=name)[:3]
        out |= dict(zip((f"{name}_ci_low", f"{name}_ci_high", f"{name}_ci_method"), ends, strict=True))
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
