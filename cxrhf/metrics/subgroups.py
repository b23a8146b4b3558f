"""Labels, scores and groups -> metrics of every group at one threshold for all, and the gaps between groups.

The threshold is given (from validation data), or it is the one with an FPR of 0.20 over the whole sample (ENCODING). A
threshold set on the sample is set again in every bootstrap replicate, so the intervals include its uncertainty. A row
is predicted positive if `score >= threshold`.

Groups that differ in age or severity have different rates even if the model treats equal patients equally: a gap is not
yet a bias. Predictive values, average precision and calibration depend on the prevalence in a group (a calibration
error also on its size), so they have no gaps.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cxrhf.metrics.calibration import expected_calibration_error, expected_ece, observed_minus_predicted
from cxrhf.metrics.checks import (
    Floats,
    InputError,
    as_labels,
    as_scores,
    as_weights,
    is_missing,
    same_length,
    undefined,
    where_labelled,
)
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
