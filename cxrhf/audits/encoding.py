"""EMBEDDING, characteristics and results of `cxrhf probe` -> RESULT: what can be read of a patient (ENCODING).

Three kinds of numbers, and words about them. `split_...`: a new linear layer on frozen vectors, for every network that
has vectors (split.py) or was probed; differences to a reference network are paired. `auroc`, `tpr`, `fpr` and
`j`: what a network that was trained for a characteristic says of it itself. `auroc` versus another
model: multitask less single task. Verdicts say what follows from it and what does not.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cxrhf.audits.material import TARGETS, Material, people_of
from cxrhf.audits.rows import OPTIMISTIC, AuditPart, Row
from cxrhf.audits.sample import TUNING, Progress, Sample, Settings
from cxrhf.audits.split import (
    Context,
    MeasuredOutput,
    Network,
    Output,
    difference_rows,
    measure_output,
    networks_of,
    rows_of,
    sample_of,
    split_outputs,
    with_several_seeds,
)
from cxrhf.metrics.estimates import FEW
from cxrhf.metrics.intervals import count_units
from cxrhf.metrics.operating import youden_threshold
from cxrhf.tables.checks import PredictionArrays, arrays


def encoding(
    material: Material, predictions: pa.Table, config: Settings, workers: int | None, progress: Progress
) -> AuditPart:
    """All networks together."""
    context, notes = Context(config, workers, progress), list[str]()
    tables = [each for each in (predictions, material.characteristics, material.embeddings) if each is not None]
    several = with_several_seeds(tables)
    datasets = pc.unique(predictions["dataset"]).to_pylist()
    split = _split(material, predictions, several, context, notes)
    probed = _probe_rows(material.probes, split, datasets, notes)
    own = _measure_own_outputs(material, datasets, several, context, notes)
    trained = tasks_by_model(predictions, material.characteristics)
    shown = {each.shown: each.model for table in tables for each in networks_of(table, several)}
    shown |= {str(row["model"]): str(row["model"]) for row in material.probes}
    tasks = {name: trained.get(model, []) for name, model in shown.items()}
    rows = [row for each in split for row in each.named()] + _compare_with_reference(split, notes) + probed
    verdicts = verdict_rows(rows, config.seed)
    rows += [row for _, each in own for row in each.named()] + _compare_multitask(own, trained, notes)
    rows += task_rows(tasks, datasets[0] if len(datasets) == 1 else None, config.seed)
    return AuditPart(rows + verdicts, [], notes)


def _split(
    material: Material, predictions: pa.Table, several: Container[str], context: Context, notes: list[str]
) -> list[MeasuredOutput]:
    """New layers on every network with vectors of its penultimate layer."""
    if material.embeddings is None:
        return []
    embeddings = material.embeddings.filter(pc.is_null(material.embeddings["finding"]))
    if not embeddings.num_rows:
        notes.append("encoding: no SPLIT: every embedding is of one finding; none is of the penultimate layer")
        return []
    tables = [table for table in (predictions, material.characteristics, material.images) if table is not None]
    people = people_of(embeddings["image_id"], tables, predictions, notes)
    return [
        measure_output(output)
        for network in networks_of(embeddings, several)
        for output in split_outputs(embeddings, network, people, context, notes)
    ]


def _compare_with_reference(split: Sequence[MeasuredOutput], notes: list[str]) -> list[Row]:
    """Every network less the one called random, else imagenet, else the first."""
    models = list(dict.fromkeys(each.output.sample.model for each in split))
    named = [model for word in ("random", "imagenet") for model in models if is_called(model, word)]
    reference = next(iter([*named, *models]), None)
    first = {
        (each.output.sample.dataset, each.output.target): each
        for each in split
        if each.output.sample.model == reference
    }
    rows: list[Row] = []
    for each in split:
        other = first.get((each.output.sample.dataset, each.output.target))
        if other is not None and other is not each:
            found = difference_rows(each, other, tested=False)
            rows += found.rows
            notes += [f"encoding: SPLIT for {note}" for note in found.notes]
    return rows


def _probe_rows(
    probes: Sequence[Mapping[str, Any]],
    split: Sequence[MeasuredOutput],
    datasets: Sequence[str | None],
    notes: list[str],
) -> list[Row]:
    """Rows of `cxrhf probe`; those of networks that are measured here too are left to what is measured here."""
    here = {(each.output.sample.model, each.output.target) for each in split}
    rows: list[Row] = []
    twice: dict[str, None] = {}
    where = {"dataset": datasets[0]} if len(datasets) == 1 else {}
    for row in probes:
        if (row["model"], target_of(str(row["finding"]))) in here:
            twice[row["model"]] = None
            continue
        rows.append(dict(row) | where | {"audit": "encoding", "metric": f"split_{row['metric']}"})
    if twice:
        notes.append(
            f"encoding: {', '.join(twice)}: SPLIT from cxrhf probe and from embeddings; the page shows the latter"
        )
    return rows


def _measure_own_outputs(
    material: Material, ours: Sequence[str | None], several: Container[str], context: Context, notes: list[str]
) -> list[tuple[Network, MeasuredOutput]]:
    """Networks' own outputs; where predictions and characteristics are of one dataset each, it is the same one."""
    table = material.characteristics
    if table is None or not table.num_rows:
        return []
    theirs = pc.unique(table["dataset"]).to_pylist()
    names = {theirs[0]: ours[0]} if len(theirs) == len(ours) == 1 else {}
    return [(network, measure_output(output)) for network, output in own_outputs(table, several, names, context, notes)]


def _compare_multitask(
    own: Sequence[tuple[Network, MeasuredOutput]], trained: Mapping[str, Sequence[str]], notes: list[str]
) -> list[Row]:
    """Networks trained for several things less those trained for one of them, by their own outputs for it."""
    rows: list[Row] = []
    seeds = {network.model: [each.seed for each, _ in own if each.model == network.model] for network, _ in own}
    for network, several in own:
        for other, alone in own:
            output, single = several.output, alone.output
            seed = network.seed if network.seed in seeds[other.model] else seeds[other.model][0]
            alike = (output.sample.dataset, output.target) == (single.sample.dataset, single.target)
            if alike and len(trained[network.model]) > 1 == len(trained[other.model]) and other.seed == seed:
                found = difference_rows(several, alone, tested=True)
                rows += found.rows
                notes += [f"encoding: {note}" for note in found.notes]
    both = [model for model, tasks in trained.items() if len(tasks) > 1 and FINDINGS in tasks]
    if both:
        notes.append(
            f"encoding: {', '.join(both)}: multitask; for its effect on findings see compare, if a network trained for "
            "findings only is among the predictions"
        )
    return rows


# Characteristics table -> what networks that were trained for sex, race, view or age say of them themselves.
#
# The threshold of TPR, FPR and J is the one with the largest J in the validation split; without such a split it is
# chosen on the evaluated rows, which is optimistic and said in every row.

TEST, FINDINGS = "test", "findings"
_HOW = "the network's own output"


def target_of(name: str) -> str:
    """`race=Black` -> `race`."""
    return name.partition("=")[0]


def tasks_by_model(predictions: pa.Table, characteristics: pa.Table | None) -> dict[str, list[str]]:
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
                kept = _classes_with_patients(arrays(_rows_of_classes(asked, classes)), network.shown, notes)
                if kept:
                    data = arrays(_rows_of_classes(asked, kept))
                    beside = None if held is None else _rows_of_classes(held, kept)
                    sample = sample_of(context, datasets.get(dataset, dataset), network.shown, network.model, data)
                    yield network, _output(sample, target, beside)


def _classes(findings: pa.ChunkedArray) -> dict[str, list[str]]:
    """Target -> its outputs; of two classes the first, the other is its mirror."""
    found: dict[str, list[str]] = {}
    for name in sorted(pc.unique(findings).to_pylist()):
        found.setdefault(target_of(name), []).append(name)
    return {target: names[:1] if len(names) == 2 else names for target, names in found.items()}


def _rows_of_classes(rows: pa.Table, classes: Sequence[str]) -> pa.Table:
    return rows.filter(pc.is_in(rows["finding"], value_set=pa.array(classes)))


def _classes_with_patients(data: PredictionArrays, who: str, notes: list[str]) -> list[str]:
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


# SPLIT rows and what each network was trained for -> rows that say it in words: tasks, and a verdict for each target.
#
# What SPLIT can say (ENCODING, its Figure 2): nothing to be read = scenario A, the tasks are unrelated. Something to
# be read = scenario B (the same layer serves both, in directions of their own) or C (what tells the finding also
# tells the characteristic). SPLIT does not tell B from C, however high it is.

# An interval that holds .5 and ends below this leaves nothing worth reading.
LOW = 0.6
# Networks that are named one by one in a verdict.
_NAMED = 4
_B_OR_C = (
    "This is scenario B (present, along a separate direction) or C (used for findings). SPLIT cannot show which, "
    "however high it is."
)
_HINT = "Maps of the embeddings (features) and multitask networks can hint at B or C, but prove neither."
_PICTURES = "By their names, these were never trained on X-rays: it is visible in the images, which does not show use."
_EMPTY: Row = {
    "audit": "encoding", "dataset": None, "model": None, "finding": None, "slice": "all", "versus": None,
    "value": np.nan, "ci_low": None, "ci_high": None, "p_value": None, "n": None, "n_pos": None, "n_patients": None,
    "method": None, "seed": None, "higher_is_better": None, "note": None,
}  # fmt: skip


def is_called(model: str, word: str) -> bool:
    """Whether a word stands in a model's name.

    >>> is_called("densenet-random", "random"), is_called("randomised", "random")
    (True, False)
    """
    return re.search(rf"(?<![a-z]){word}(?![a-z])", model.lower()) is not None


def is_never_trained_on_xrays(model: str) -> bool:
    """Whether, by its name, a network never learned from X-rays."""
    return is_called(model, "random") or is_called(model, "imagenet")


def task_rows(tasks: Mapping[str, Sequence[str]], dataset: str | None, seed: int) -> list[Row]:
    """One row a network: what it was trained for."""
    rows = []
    for model, own in tasks.items():
        kind = "multitask: " if len(own) > 1 else "single task: "
        note = kind + ", ".join(own) if own else "frozen: embeddings only"
        rows.append(
            _EMPTY | {
                "metric": "tasks", "dataset": dataset, "model": model, "value": float(len(own)), "seed": seed,
                "method": "by the tables it has rows in", "note": note,
            }
        )  # fmt: skip
    return rows


def verdict_rows(rows: Sequence[Row], seed: int) -> list[Row]:
    """One row for each dataset and target with a SPLIT."""
    found = []
    for dataset in dict.fromkeys(row["dataset"] for row in rows):
        for target in TARGETS:
            values = _values([row for row in rows if row["dataset"] == dataset], target)
            if values:
                best, note = _verdict(target, values)
                found.append(
                    best | {
                        "metric": "verdict", "model": None, "finding": target, "ci_low": None, "ci_high": None,
                        "method": "what SPLIT can and cannot show", "seed": seed, "note": note,
                    }
                )  # fmt: skip
    return found


def _values(rows: Sequence[Row], target: str) -> list[Row]:
    """One AUROC a network: the mean over classes, else the only class."""
    found: dict[Any, Row] = {}
    for row in rows:
        whole = row["finding"] == target
        if row["metric"] != "split_auroc" or row["versus"] or not np.isfinite(_low(row)):
            continue
        if whole or (str(row["finding"]).startswith(f"{target}=") and row["model"] not in found):
            found[row["model"]] = row
    return list(found.values())


def _verdict(target: str, values: Sequence[Row]) -> tuple[Row, str]:
    """The row a verdict rests on, and its words."""
    what = target.replace("_", " ")
    untaught = [row for row in values if is_never_trained_on_xrays(row["model"])]
    taught = [row for row in values if not is_never_trained_on_xrays(row["model"])]
    asked = taught or untaught
    read = [row for row in asked if _low(row) > 0.5]
    empty = [row for row in asked if _low(row) <= 0.5 and row["ci_high"] < LOW]
    unclear = [row for row in asked if _low(row) <= 0.5 and row["ci_high"] >= LOW]
    said = []
    if read:
        said.append(f"{what[0].upper()}{what[1:]} can be read from {_networks_text(read)}.")
        said += [_B_OR_C, *_untaught_sentences(untaught, min(map(_low, read))), _HINT] if taught else [_PICTURES]
    if empty:
        said.append(
            f"No linear layer reads {what} from {_networks_text(empty)}. This is scenario A: the embeddings hold no "
            "information on it that a last layer could use. SPLIT can show this."
        )
    if unclear:
        said.append(
            f"No conclusion for {_networks_text(unclear)}: the interval includes 0.5 and values above {LOW}, "
            "so there are too few patients."
        )
    best = max(asked, key=lambda row: float(row["value"]))
    return best, " ".join(said)


def _untaught_sentences(untaught: Sequence[Row], least: float) -> list[str]:
    """What networks that never saw an X-ray reach, where those that did reach `least`."""
    if not untaught:
        return ["Networks never trained on X-rays often reach as much; none is available here for comparison."]
    said = []
    if same := [row for row in untaught if row["ci_high"] >= least]:
        said.append(
            f"{_networks_text(same)} {_reach(same)} about as much without training on X-rays, "
            "so the value does not show use."
        )
    if less := [row for row in untaught if row["ci_high"] < least]:
        said.append(
            f"{_networks_text(less)} {_reach(less)} less: training made it easier to read, which does not prove use."
        )
    return said


def _reach(rows: Sequence[Row]) -> str:
    return "reach" if len(rows) > 1 else "reaches"


def _networks_text(rows: Sequence[Row]) -> str:
    if len(rows) > _NAMED:
        values = [row["value"] for row in rows]
        return f"{len(rows)} networks (AUROC {min(values):.2f} to {max(values):.2f})"
    return ", ".join(
        f"{row['model']} (AUROC {row['value']:.2f}, {row['ci_low']:.2f} to {row['ci_high']:.2f})" for row in rows
    )


def _low(row: Row) -> float:
    return np.nan if row["ci_low"] is None else float(row["ci_low"])
