"""Studies of one label or many -> the keys of a result: values, means over labels, intervals, reasons."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from cxrhf.metrics.checks import Floats, as_fraction
from cxrhf.metrics.estimates import Study, mean_over
from cxrhf.metrics.intervals import Difference, Interval, UnitCount, difference_interval, interval
from cxrhf.metrics.labels import Labels, by_label, label_keys


def flat(name: str, found: Study, *, level: float = 0.95, label_names: Sequence[str] | None = None) -> dict[str, Any]:
    """Convert a study to a flat dict: `name` and, with replicates, `name`_ci_low, _ci_high and _ci_method.

    With several labels, `name` is their mean and `name`_per_label holds each value (a list, or a dict with
    `label_names`). `name`_note gives the reason if a value is undefined, and is absent otherwise.
    """
    as_fraction(level, "level")
    n_labels = len(found.values)
    if found.single:
        return _entry(name, float(found.values[0]), found, 0, level, found.reasons[0])
    defined = [k for k in range(n_labels) if np.isfinite(found.values[k])]
    names = label_keys(label_names, n_labels)
    out: dict[str, Any] = {name: float(np.mean(found.values[defined])) if defined else float("nan")}
    if found.replicates is not None:
        low = high = float("nan")
        method = "undefined"
        if defined:
            mean = mean_over([found.replicates[:, k] for k in defined], [found.units[k] for k in defined])
            low, high, method = _ends(out[name], mean.replicates, mean.units, found, level)
        out |= {f"{name}_ci_low": low, f"{name}_ci_high": high, f"{name}_ci_method": method}
    each = [_entry("x", float(v), found, k, level, None) for k, v in enumerate(found.values)]
    for key in each[0]:
        out[f"{name}_per_label{key[1:]}"] = by_label([entry[key] for entry in each], label_names)
    if len(defined) < n_labels:
        lacking = "; ".join(f"{names[k]}: {found.reasons[k]}" for k in range(n_labels) if k not in defined)
        out[f"{name}_note"] = f"mean of {len(defined)} of {n_labels} labels; undefined for {lacking}"
    return out


def described(
    name: str, values: Sequence[float], rows: Labels, label_names: Sequence[str] | None = None
) -> dict[str, Any]:
    """A plain description of each label (a threshold, a count): `name`, or `name`_per_label where there are several."""
    if rows.single:
        return {name: values[0]}
    return {f"{name}_per_label": by_label(values, label_names)}


def mean_of(
    name: str, values: Sequence[float], rows: Labels, label_names: Sequence[str] | None = None
) -> dict[str, Any]:
    """A number without replicates: `name`, the mean over labels where it is defined, and `name`_per_label."""
    if rows.single:
        return {name: values[0]}
    known = [value for value in values if np.isfinite(value)]
    mean = float(np.mean(known)) if known else float("nan")
    return {name: mean, f"{name}_per_label": by_label(values, label_names)}


def _entry(name: str, value: float, found: Study, k: int, level: float, reason: str | None) -> dict[str, Any]:
    out: dict[str, Any] = {name: value}
    if found.replicates is not None:
        low, high, method = _ends(value, found.replicates[:, k], found.units[k], found, level)
        out |= {f"{name}_ci_low": low, f"{name}_ci_high": high, f"{name}_ci_method": method}
    if reason:
        out[f"{name}_note"] = f"undefined: {reason}"
    return out


def _ends(value: float, replicates: Floats, units: UnitCount, found: Study, level: float) -> tuple[float, float, str]:
    ends: Interval | Difference
    if found.difference:
        ends = difference_interval(value, replicates, level=level, units=units, metric=found.metric)
    else:
        ends = interval(value, replicates, level=level, units=units, metric=found.metric)
    return float(ends.low), float(ends.high), ends.method
