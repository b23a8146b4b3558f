"""Labels, scores and groups -> metrics of every group at one threshold for all, and the gaps between groups.

The threshold is given (from validation data), or it is the one with an FPR of 0.20 over the whole sample (ENCODING). A
threshold set on the sample is set again in every bootstrap replicate, so the intervals include its uncertainty. A row
is predicted positive if `score >= threshold`.

Groups that differ in age or severity have different rates even if the model treats equal patients equally: a gap is not
yet a bias. Predictive values, average precision and calibration depend on the prevalence in a group (a calibration
error also on its size), so they have no gaps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cxrhf.metrics.calibration import NO_INTERVAL, expected_calibration_error, expected_ece, observed_minus_predicted
from cxrhf.metrics.checks import (
    Floats,
    InputError,
    as_count,
    as_fraction,
    as_labels,
    as_scores,
    as_weights,
    is_missing,
    same_length,
    undefined,
    where_labelled,
)
from cxrhf.metrics.draws import Draws, draw
from cxrhf.metrics.estimates import Labels, by_label, label_keys, options_by_label
from cxrhf.metrics.grouped import (
    Grouping,
    PrevalenceNumbers,
    drawn_groups,
    drawn_prevalence,
    drawn_starts,
    rank_findings,
)
from cxrhf.metrics.intervals import UnitCount, capped, count_units, difference_interval, interval
from cxrhf.metrics.operating import rates_at, threshold_at_fpr
from cxrhf.metrics.ranking import auroc, average_precision
from cxrhf.metrics.sums import sum_metric

RATES = ("tpr", "fpr", "j")
NUMBERS = ("auroc", *RATES)
# What depends on how many of a group are ill: of any scores, and of probabilities.
PREDICTIVE = ("precision", "npv")
BY_PREVALENCE = ("prevalence", "average_precision", *PREDICTIVE)
CALIBRATION = ("observed_minus_predicted", "expected_calibration_error", "expected_ece")
NO_PROBABILITIES = "no calibration: scores below 0 or above 1 are not probabilities"


class GroupRates(NamedTuple):
    """One group: number of rows with weight, positives among them, its metrics, and a note if one of them is NaN.

    The last three metrics require probabilities: mean label minus mean score, the calibration error, and the mean that
    this error would have if the scores were calibrated.
    """

    n: int
    n_positive: int
    auroc: float
    tpr: float
    fpr: float
    j: float
    prevalence: float
    average_precision: float
    precision: float
    npv: float
    observed_minus_predicted: float
    expected_calibration_error: float
    expected_ece: float
    note: str | None


class Gap(NamedTuple):
    """Largest minus smallest value over the groups that define it; NaN with a note if fewer than two do."""

    value: float
    highest: str | None
    lowest: str | None
    note: str | None


class SubgroupRates(NamedTuple):
    """`rates` by group, `gaps` by metric (auroc, tpr, fpr, j). The note is the reason if no group has a calibration."""

    threshold: float
    threshold_source: str
    groups: tuple[str, ...]
    rates: dict[str, GroupRates]
    overall: GroupRates
    gaps: dict[str, Gap]
    note: str | None


class GroupRows(NamedTuple):
    """Checked rows. A null label is NaN in `y` and has weight 0; `code` is the index of a row's group in `names`."""

    y: Floats
    p: Floats
    weight: Floats
    code: NDArray[np.int64]
    names: tuple[str, ...]

    def of(self, group: int) -> NDArray[np.bool_]:
        """The labelled rows of a group; the index after the last one selects all labelled rows."""
        labelled = ~np.isnan(self.y)
        return labelled & (self.code == group) if group < len(self.names) else labelled

    @property
    def is_probability(self) -> bool:
        """Whether all scores of labelled rows are from 0 to 1."""
        return bool(((self.p >= 0) & (self.p <= 1)).all())


def _as_groups(groups: Iterable[Any]) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    if isinstance(groups, str) or not isinstance(groups, Iterable):
        raise InputError(f"groups: expected one group per row, got {groups!r}")
    values = groups.tolist() if hasattr(groups, "tolist") else list(groups)
    for i, each in enumerate(values):
        if isinstance(each, (list, np.ndarray)):
            raise InputError(f"groups[{i}]: expected a name or number, got {each!r}")
        if is_missing(each):
            raise InputError(
                f"groups[{i}]: expected a group in every row, got {each!r}. Name unknown groups, for example 'unknown'."
            )
    text = [str(each) for each in values]
    names = tuple(sorted(set(text)))
    place = {name: k for k, name in enumerate(names)}
    return np.array([place[each] for each in text], dtype=np.int64), names


def as_rows(y: ArrayLike, p: ArrayLike, groups: Iterable[Any], weight: ArrayLike | None) -> GroupRows:
    labels = as_labels(y, masked=True)
    if labels.ndim != 1:
        raise InputError(f"y: expected a 1-D array of one label, got shape {labels.shape}")
    null = np.isnan(labels)
    scores = as_scores(where_labelled(p, null, "p"))
    code, names = _as_groups(groups)
    same_length(y=labels, p=scores, groups=code)
    weights = np.where(null, 0.0, as_weights(weight, len(labels)))
    return GroupRows(labels, scores, weights, code, names)


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
    """AUROC, TPR, FPR and J = TPR - FPR of every subgroup at one threshold, with the largest gaps between subgroups.

    AUROC, TPR and FPR are from 0 to 1, J from -1 to 1; higher is better, except for FPR. `threshold` is best chosen on
    other data; if not given, it is the one with an FPR of `fpr` over all rows by `rule` (see `threshold_at_fpr`).
    `groups` are compared as text, so 1 and "1" are one group. Rows with a null label are excluded. NaN with a note if a
    group has no positives or no negatives.

    Also, without gaps: prevalence, average precision, and precision and NPV at the threshold. If all scores are from 0
    to 1, also `observed_minus_predicted`, `expected_calibration_error` and `expected_ece`, the mean of that error if
    the scores were calibrated.

    >>> y, p = [0, 0, 1, 1, 0, 0, 1, 1], [0.1, 0.6, 0.7, 0.9, 0.2, 0.3, 0.4, 0.8]
    >>> found = subgroup_rates(y, p, list("FFFFMMMM"), threshold=0.5)
    >>> found.rates["F"].tpr, found.rates["M"].tpr, found.gaps["tpr"].lowest
    (1.0, 0.5, 'M')
    """
    return rates_of(as_rows(y, p, groups, weight), threshold, fpr, rule)


def rates_of(rows: GroupRows, threshold: float | None, fpr: float, rule: str, seed: int = 0) -> SubgroupRates:
    """`subgroup_rates` of checked rows; `seed` is that of the simulated labels for `expected_ece`."""
    everybody = rows.of(len(rows.names))
    whole = rows.y[everybody], rows.p[everybody], rows.weight[everybody]
    at, source, lost = threshold, "given", None
    if at is None:
        at = threshold_at_fpr(whole[0], whole[1], fpr, whole[2], rule)
        source = f"fpr {fpr:g} of the whole sample, {rule}"
        lost = undefined("threshold_at_fpr", whole[0], whole[2])
    found = [_group(rows, rows.of(k), at, lost, seed) for k in range(len(rows.names) + 1)]
    gaps = {name: _gap(name, rows.names, [getattr(each, name) for each in found[:-1]]) for name in NUMBERS}
    by_group = dict(zip(rows.names, found[:-1], strict=True))
    note = None if rows.is_probability else NO_PROBABILITIES
    return SubgroupRates(float(at), source, rows.names, by_group, found[-1], gaps, note)


def _group(rows: GroupRows, inside: NDArray[np.bool_], threshold: float, lost: str | None, seed: int) -> GroupRates:
    y, p, weight = rows.y[inside], rows.p[inside], rows.weight[inside]
    numbers = dict.fromkeys((*NUMBERS, *BY_PREVALENCE, *CALIBRATION), np.nan)
    numbers |= {"auroc": auroc(y, p, weight), "average_precision": average_precision(y, p, weight)}
    numbers["prevalence"] = sum_metric("prevalence", y, p, weight)
    if lost is None:
        rates = rates_at(y, p, threshold, weight)
        numbers |= {name: getattr(rates, name) for name in (*RATES, *PREDICTIVE)}
    asked = [*NUMBERS, *BY_PREVALENCE]
    if rows.is_probability:
        asked += CALIBRATION
        numbers["observed_minus_predicted"] = observed_minus_predicted(y, p, weight)
        numbers["expected_calibration_error"] = expected_calibration_error(y, p, weight)
        numbers["expected_ece"] = expected_ece(p, weight, seed=seed)
    reasons: dict[str, list[str]] = {}
    for name in asked:
        if np.isnan(numbers[name]):
            reasons.setdefault(_reason(name, undefined(name, y, weight) or lost), []).append(name)
    note = "; ".join(f"{', '.join(names)} undefined: {reason}" for reason, names in reasons.items())
    return GroupRates(
        n=int((weight > 0).sum()), n_positive=int((weight[y == 1] > 0).sum()), **numbers, note=note or None
    )


def _reason(name: str, sentence: str | None) -> str:
    if sentence is None and name in PREDICTIVE:
        return f"no row is predicted {'positive' if name == 'precision' else 'negative'}"
    return "no threshold" if sentence is None else sentence.partition(": ")[2]


def _gap(name: str, groups: tuple[str, ...], values: list[float]) -> Gap:
    defined = [k for k, value in enumerate(values) if not np.isnan(value)]
    if len(defined) < 2:
        note = f"{name} gap is undefined: {name} is defined in {len(defined)} of {len(groups)} groups, two are required"
        return Gap(float("nan"), None, None, note)
    highest = max(defined, key=lambda k: values[k])
    lowest = min(reversed(defined), key=lambda k: values[k])  # from behind: equal groups still make a pair of two
    return Gap(values[highest] - values[lowest], groups[highest], groups[lowest], None)


# Labels, scores and groups of one finding or many -> the result of the `evaluate` module `subgroup_rates`.


def measure_labels(
    rows: Labels,
    groups: Sequence[Any],
    *,
    threshold: float | Sequence[float] | None = None,
    fpr: float = 0.2,
    rule: str = "nearest",
    clusters: ArrayLike | None = None,
    n_resamples: int = 0,
    seed: int = 0,
    level: float = 0.95,
    label_names: Sequence[str] | None = None,
    progress: Callable[[int], Callable[[int], None]] | None = None,
) -> dict[str, Any]:
    """Compute the result of the `evaluate` module `subgroup_rates`: `measure_subgroups` for each label, and the means.

    `threshold` is one for all labels, or a list with one per label. A mean is over the labels where it is defined.
    """
    n_labels = rows.y.shape[1]
    thresholds = options_by_label({"threshold": threshold}, n_labels)
    tick = progress(n_labels * n_resamples) if progress is not None and n_resamples else None
    found = [
        measure_subgroups(
            rows.y[:, k],
            rows.p[:, k],
            groups,
            **thresholds[k],
            fpr=fpr,
            rule=rule,
            weight=rows.weight,
            clusters=clusters,
            n_resamples=n_resamples,
            seed=seed,
            level=level,
            progress=tick,
        )
        for k in range(n_labels)
    ]
    gaps = {name: _mean([each["gaps"][name]["value"] for each in found]) for name in NUMBERS}
    flat_gaps = {f"subgroup_rates_{name}_gap": value for name, value in gaps.items()}
    if rows.single:
        (only,) = found
        keys = ("gaps", "overall", "threshold", "threshold_source", "note")
        named = {f"subgroup_rates_{key}": only[key] for key in keys if key in only}
        return {"subgroup_rates": only["groups"], **flat_gaps, **named}
    # Groups are those of all rows, so every label has every group.
    names = (*NUMBERS, *BY_PREVALENCE, *(CALIBRATION if all("note" not in each for each in found) else ()))
    means = {
        group: {name: _mean([each["groups"][group][name] for each in found]) for name in names}
        for group in found[0]["groups"]
    }
    out: dict[str, Any] = {
        "subgroup_rates": means,
        **flat_gaps,
        "subgroup_rates_per_label": by_label(found, label_names),
    }
    lacking = [
        key
        for key, each in zip(label_keys(label_names, n_labels), found, strict=True)
        if any("note" in entry for entry in each["groups"].values())
    ]
    notes = [f"means exclude what is undefined for a group in {', '.join(lacking)}"] if lacking else []
    notes += sorted({each["note"] for each in found if "note" in each})
    return out | ({"subgroup_rates_note": "; ".join(notes)} if notes else {})


def _mean(values: Sequence[float]) -> float:
    known = [value for value in values if not np.isnan(value)]
    return float(np.mean(known)) if known else float("nan")


# Labels, scores, groups and patients -> replicates and intervals of the numbers of groups and of their gaps.

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
