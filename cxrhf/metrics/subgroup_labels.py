"""Labels, scores and groups of one finding or many -> the result of the `evaluate` module `subgroup_rates`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from cxrhf.metrics.labels import Labels, by_label, label_keys, options_by_label
from cxrhf.metrics.subgroup_measured import measure_subgroups
from cxrhf.metrics.subgroups import BY_PREVALENCE, CALIBRATION, NUMBERS


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
