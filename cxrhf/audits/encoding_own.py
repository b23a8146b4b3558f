"""Characteristics table -> what networks that were trained for sex, race, view or age say of them themselves.

The threshold of TPR, FPR and J is the one with the largest J in the validation split; without such a split it is chosen
on the evaluated rows, which is optimistic and said in every row.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cxrhf.audits.encoding_rows import Context, Output, sample_of
from cxrhf.audits.encoding_split import Network, networks_of, rows_of
from cxrhf.audits.rates import OPTIMISTIC
from cxrhf.audits.sample import TUNING, Sample
from cxrhf.metrics.estimates import FEW
from cxrhf.metrics.intervals import count_units
from cxrhf.metrics.operating import youden_threshold
from cxrhf.schema import PredictionArrays, arrays

TEST, FINDINGS = "test", "findings"
_HOW = "the network's own output"


def target_of(name: str) -> str:
    """`race=Black` -> `race`."""
    return name.partition("=")[0]


def trained_for(predictions: pa.Table, characteristics: pa.Table | None) -> dict[str, list[str]]:
    """Model, whatever its seed -> its tasks, by the tables it has rows in."""
    found = {model: [FINDINGS] for model in pc.unique(predictions["model"]).to_pylist()}
    if characteristics is not None:
        pairs = characteristics.select(["model", "finding"]).group_by(["model", "finding"], use_threads=False)
        for row in sorted(pairs.aggregate([]).to_pylist(), key=lambda row: row["finding"]):
            tasks = found.setdefault(row["model"], [])
            if target_of(row["finding"]) not in tasks:
                tasks.append(target_of(row["finding"]))
    return found


def own_outputs(
    characteristics: pa.Table,
    several: Container[str],
    datasets: Mapping[str | None, str | None],
    context: Context,
    notes: list[str],
) -> Iterator[tuple[Network, Output]]:
    """Every network's outputs, target by target, on the split test where there is one.

    `several`: models that are named with their seeds; `datasets`: how those of this table are called in RESULT.
    """
    splits = {each for each in pc.unique(characteristics["split"]).to_pylist() if each}
    tested = len(splits) > 1 and TEST in splits
    tuning = next((each for each in sorted(splits) if each.lower() in TUNING), None) if tested else None
    for dataset in pc.unique(characteristics["dataset"]).to_pylist():
        column = characteristics["dataset"]
        here = characteristics.filter(pc.is_null(column) if dataset is None else pc.equal(column, dataset))
        for network in networks_of(here, several):
            own = rows_of(here, network)
            asked = own.filter(pc.equal(own["split"], TEST)) if tested else own
            held = own.filter(pc.equal(own["split"], tuning)) if tuning else None
            for target, classes in _classes(asked["finding"]).items():
                kept = _enough(arrays(_of(asked, classes)), network.shown, notes)
                if kept:
                    data = arrays(_of(asked, kept))
                    beside = None if held is None else _of(held, kept)
                    sample = sample_of(context, datasets.get(dataset, dataset), network.shown, network.model, data)
                    yield network, _output(sample, target, beside)


def _classes(findings: pa.ChunkedArray) -> dict[str, list[str]]:
    """Target -> its outputs; of two classes the first, the other is its mirror."""
    found: dict[str, list[str]] = {}
    for name in sorted(pc.unique(findings).to_pylist()):
        found.setdefault(target_of(name), []).append(name)
    return {target: names[:1] if len(names) == 2 else names for target, names in found.items()}


def _of(rows: pa.Table, classes: Sequence[str]) -> pa.Table:
    return rows.filter(pc.is_in(rows["finding"], value_set=pa.array(classes)))


def _enough(data: PredictionArrays, who: str, notes: list[str]) -> list[str]:
    """The classes that enough patients have, and enough have not."""
    kept = []
    for k, name in enumerate(data.findings):
        units = count_units(data.y[:, k], data.patients)
        if min(units.positive, units.negative) >= FEW:
            kept.append(name)
        else:
            notes.append(
                f"encoding: {who}: its output for {name} is excluded: only {units.positive:,} patients with and "
                f"{units.negative:,} without it"
            )
    return kept


def _output(sample: Sample, target: str, held: pa.Table | None) -> Output:
    """The outputs with their thresholds: those of the validation split where it has them for all classes."""
    thresholds = {} if held is None or not held.num_rows else _thresholds(arrays(held))
    data = sample.data
    if all(np.isfinite(thresholds.get(name, np.nan)) for name in data.findings):
        at = "threshold with the largest J in the validation split, held fixed"
        return Output(sample, target, thresholds, "", _HOW, at)
    at = "threshold with the largest J on these rows, held fixed"
    return Output(sample, target, _thresholds(data), "", _HOW, at, OPTIMISTIC)


def _thresholds(data: PredictionArrays) -> dict[str, float]:
    found = {}
    for k, name in enumerate(data.findings):
        known = ~np.isnan(data.y[:, k])
        found[name] = youden_threshold(data.y[known, k], data.p[known, k])
    return found
