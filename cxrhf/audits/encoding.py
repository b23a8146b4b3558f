"""EMBEDDING, characteristics and results of `cxrhf probe` -> RESULT: what can be read of a patient (ENCODING).

Three kinds of numbers, and words about them. `split_...`: a new linear layer on frozen vectors, for every network that
has vectors (encoding_split.py) or was probed; differences to a reference network are paired. `auroc`, `tpr`, `fpr` and
`j`: what a network that was trained for a characteristic says of it itself (encoding_own.py). `auroc` versus another
model: multitask less single task. Verdicts (encoding_words.py) say what follows from it and what does not.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from cxrhf.audits.encoding_own import FINDINGS, own_outputs, target_of, trained_for
from cxrhf.audits.encoding_rows import Context, Measured, difference_rows, measure
from cxrhf.audits.encoding_split import Network, networks_of, split_outputs, with_several_seeds
from cxrhf.audits.encoding_words import is_called, task_rows, verdict_rows
from cxrhf.audits.material import Material
from cxrhf.audits.people import people_of
from cxrhf.audits.rows import Part, Row
from cxrhf.audits.sample import Progress, Settings


def encoding(
    material: Material, predictions: pa.Table, config: Settings, workers: int | None, progress: Progress
) -> Part:
    """All networks together."""
    context, notes = Context(config, workers, progress), list[str]()
    tables = [each for each in (predictions, material.characteristics, material.embeddings) if each is not None]
    several = with_several_seeds(tables)
    datasets = pc.unique(predictions["dataset"]).to_pylist()
    split = _split(material, predictions, several, context, notes)
    probed = _probed(material.probes, split, datasets, notes)
    own = _own(material, datasets, several, context, notes)
    trained = trained_for(predictions, material.characteristics)
    shown = {each.shown: each.model for table in tables for each in networks_of(table, several)}
    shown |= {str(row["model"]): str(row["model"]) for row in material.probes}
    tasks = {name: trained.get(model, []) for name, model in shown.items()}
    rows = [row for each in split for row in each.named()] + _against_reference(split, notes) + probed
    verdicts = verdict_rows(rows, config.seed)
    rows += [row for _, each in own for row in each.named()] + _multitask(own, trained, notes)
    rows += task_rows(tasks, datasets[0] if len(datasets) == 1 else None, config.seed)
    return Part(rows + verdicts, [], notes)


def _split(
    material: Material, predictions: pa.Table, several: Container[str], context: Context, notes: list[str]
) -> list[Measured]:
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
        measure(output)
        for network in networks_of(embeddings, several)
        for output in split_outputs(embeddings, network, people, context, notes)
    ]


def _against_reference(split: Sequence[Measured], notes: list[str]) -> list[Row]:
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


def _probed(
    probes: Sequence[Mapping[str, Any]], split: Sequence[Measured], datasets: Sequence[str | None], notes: list[str]
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


def _own(
    material: Material, ours: Sequence[str | None], several: Container[str], context: Context, notes: list[str]
) -> list[tuple[Network, Measured]]:
    """Networks' own outputs; where predictions and characteristics are of one dataset each, it is the same one."""
    table = material.characteristics
    if table is None or not table.num_rows:
        return []
    theirs = pc.unique(table["dataset"]).to_pylist()
    names = {theirs[0]: ours[0]} if len(theirs) == len(ours) == 1 else {}
    return [(network, measure(output)) for network, output in own_outputs(table, several, names, context, notes)]


def _multitask(
    own: Sequence[tuple[Network, Measured]], trained: Mapping[str, Sequence[str]], notes: list[str]
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
