"""PREDICTION and EMBEDDING -> RESULT, SLICE: parts of a class in which a model fails, what they are made of (SLICES).

Positives and negatives apart: the error of a slice is then the mean squared error of one class. Half of the patients
are to discover on, half to confirm on. Slices are found on the first half by a method of methods.py, on vectors made
for the finding or on those of the penultimate layer (longer ones reduced by a layer that is fitted there too,
found.py); every number that is reported comes from the second half. What a slice is made of, and whether that is
confirmed: confirm.py. With the recipe `paper` everything is done on all rows, as published: nothing is confirmed then.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from cxrhf.audits.material import confirmation_half
from cxrhf.audits.rows import AuditPart, RowMaker
from cxrhf.audits.sample import Sample
from cxrhf.audits.slices.confirm import (
    Class,
    CollectedSlices,
    Sliced,
    Trait,
    confirm_traits,
    slice_rows,
    split_classes,
    traits,
)
from cxrhf.audits.slices.methods import Seen, assign, discover
from cxrhf.audits.slices.mixture import gap_statistic
from cxrhf.metrics.estimates import FEW


def slices(sample: Sample) -> AuditPart:
    """All slices of one model. The weight column is not used: a row is in a slice or not."""
    out = CollectedSlices()
    if sample.data.weight is not None:
        out.notes.append("slices ignore the weight column: errors and shares are unweighted")
        sample = replace(sample, data=replace(sample.data, weight=None), memory={})
    settings, data, make = sample.settings, sample.data, RowMaker("slices", sample)
    known = traits(sample, out.notes)
    held = None if settings.slice_recipe == "paper" else confirmation_half(data, settings.seed)
    for k, name in enumerate(data.findings):
        layer = sample.beside.layer(name)
        if layer is None:
            continue
        finding = sample.finding(k)
        if not finding.is_probability:
            out.notes.append(f"{name}: no slices, because its scores are not probabilities and have no Brier score")
            continue
        others = [trait for trait in known if trait.attribute != name]
        for group in split_classes(sample, finding, layer, held):
            _slice_class(make, group, others, out, test=held is not None)
    confirm_traits(out, settings.seed, lambda said: sample.progress(f"{sample.model}: {said}"))
    if out.slices:
        out.notes.append(
            "slices by the recipe paper are found and described on the same rows: nothing is confirmed, treat them "
            "as hypotheses"
            if held is None
            else "slices are found on one half of the patients; all results are of the other half"
        )
    return AuditPart(out.rows, out.curves, [f"{sample.model}: {note}" for note in out.notes], (), out.slices)


def _slice_class(make: RowMaker, group: Class, known: Sequence[Trait], out: CollectedSlices, test: bool) -> None:
    """The slices of one class by every method."""
    sample, finding = make.sample, group.finding
    if group.too_few is not None:
        out.notes.append(f"{finding.name}: no slices of its {group.side}s: {group.too_few}")
        return
    _clusters(make, group, out)
    for method in sample.settings.slice_methods:
        text = f"{sample.model}: {finding.name}, {group.side}s: slices by {method}"
        sample.progress(text)

        def told(said: str, text: str = text) -> None:
            sample.progress(f"{text}: {said}")

        start = time.monotonic()
        on = group.found_on
        found = discover(
            method, Seen(group.vectors[on], finding.y[on], finding.p[on]), seed=sample.settings.seed,
            recipe=sample.settings.slice_recipe, progress=told,
        )  # fmt: skip
        seconds = time.monotonic() - start
        weights = found.weights(group.vectors, finding.y, finding.p)
        sliced, small = _name_slices(group, method, assign(weights, found.floor), weights, found.n_slices)
        counts = finding.only(group.shown_on).counts
        left = f"; {small} more have fewer than {FEW} patients in a half and are excluded" if small else ""
        place = f"{method}:{group.side}"
        for metric, value, note in (
            ("n_slices", float(len(sliced.names)), found.about + left), ("seconds", round(seconds, 3), None),
        ):  # fmt: skip
            row = make.row(metric, finding.name, counts, value, slice=place, note=note)
            out.rows.append(row | {"higher_is_better": None})
        if sliced.names:
            slice_rows(make, group, sliced, known, out, test)


def _name_slices(group: Class, method: str, code: np.ndarray, weights: np.ndarray, n_slices: int) -> tuple[Sliced, int]:
    """The slices with enough patients in both halves, the one with most error first; how many are left out."""
    inside = [np.asarray(code == j) for j in range(n_slices)]
    kept = [
        j
        for j in range(n_slices)
        if min(group.patients(half & inside[j]) for half in (group.found_on, group.shown_on)) >= FEW
    ]
    kept.sort(key=lambda j: (-group.error[group.found_on & inside[j]].mean(), j))
    place = np.full(n_slices + 1, -1, dtype=np.int64)  # the last is where -1 points to
    place[kept] = np.arange(len(kept))
    names = tuple(f"{method}:{group.side}:{at + 1}" for at in range(len(kept)))
    own = weights[np.arange(len(code)), np.maximum(code, 0)] if n_slices else np.zeros(len(code))
    return Sliced(method, names, place[code], np.clip(own, 0.0, 1.0)), n_slices - len(kept)


def _clusters(make: RowMaker, group: Class, out: CollectedSlices) -> None:
    """Whether there are clusters at all in the vectors of a class."""
    name, counts = group.finding.name, group.finding.only(group.found_on).counts
    text = f"{make.sample.model}: {name}, {group.side}s"
    found = gap_statistic(
        group.vectors[group.found_on],
        seed=make.sample.settings.seed,
        progress=lambda said: make.sample.progress(f"{text}: {said}"),
    )
    note = "clusters by the gap statistic where slices were found; 1 = none"
    row = make.row("gap_statistic.k", name, counts, float(found.k), slice=group.side, note=note)
    out.rows.append(row | {"higher_is_better": None})
    head = {"model": make.sample.curve_model, "finding": name, "kind": "gap_statistic", "slice": group.side}
    for k, (gap, s) in enumerate(zip(found.gaps.tolist(), found.spread.tolist(), strict=True), start=1):
        out.curves.append(head | {"x": float(k), "y": gap, "low": gap - s, "high": gap + s})
