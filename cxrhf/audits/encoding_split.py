"""Vectors of frozen networks and who is in the pictures -> what a new linear layer says of sex, race, view and age.

SPLIT (ENCODING). Intervals are of the patients asked about, the layer held fixed: they say how well this layer reads
the characteristic from other patients, not how a layer of other learning patients would have done.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cxrhf.audits.encoding_rows import Context, Output, sample_of
from cxrhf.audits.encoding_sides import Sides, sides_of
from cxrhf.audits.linear_probe import FOLDS, Axes, learn_layer, turn
from cxrhf.audits.material import vectors_by_image
from cxrhf.audits.one_thread import one_thread
from cxrhf.audits.people import TARGETS, People
from cxrhf.audits.sample import Floats
from cxrhf.schema import PredictionArrays

_AT = f"threshold with the largest J in {FOLDS} folds of the training patients, held fixed"


class Network(NamedTuple):
    """A model and its training seed; `shown` is its name in RESULT, with the seed where there are several."""

    model: str
    seed: int | None
    shown: str


def networks_of(table: pa.Table, several: Container[str]) -> list[Network]:
    """Every network of a table by name and seed; `several`: models that are named with their seeds."""
    found = [
        Network(model, seed, f"{model} (seed {seed})" if model in several and seed is not None else model)
        for model, seed in _keys(table)
    ]
    return sorted(found, key=lambda each: (each.model, -1 if each.seed is None else each.seed))


def with_several_seeds(tables: Iterable[pa.Table]) -> set[str]:
    """Models of which some table has several runs."""
    counts = [Counter(model for model, _ in _keys(table)) for table in tables]
    return {model for each in counts for model, runs in each.items() if runs > 1}


def _keys(table: pa.Table) -> list[tuple[str, int | None]]:
    keys = table.select(["model", "seed"]).group_by(["model", "seed"], use_threads=False).aggregate([]).to_pylist()
    return [(key["model"], key["seed"]) for key in keys]


def rows_of(table: pa.Table, network: Network) -> pa.Table:
    """The rows of one network."""
    seed = table["seed"]
    same = pc.is_null(seed) if network.seed is None else pc.fill_null(pc.equal(seed, network.seed), False)
    return table.filter(pc.and_(pc.equal(table["model"], network.model), same))


def split_outputs(
    embeddings: pa.Table, network: Network, people: Sequence[People], context: Context, notes: list[str]
) -> Iterator[Output]:
    """What new layers on one network say of every target, dataset by dataset."""
    ids, vectors = vectors_by_image(rows_of(embeddings, network), network.shown)
    seed = context.settings.seed
    for group in people:
        at = np.flatnonzero(np.isin(group.image_ids, ids))
        if not len(at):
            continue
        place = np.searchsorted(ids, group.image_ids)
        turned: dict[bytes, Axes] = {}
        for target in TARGETS:
            sides = sides_of(group, at, target, seed, notes)
            if sides is None:
                continue
            context.progress(f"{network.shown}: encoding, a new layer for {target.replace('_', ' ')}")
            code = np.searchsorted(sides.classes, group.values[target])
            _, patients = np.unique(group.patients[sides.learn], return_inverse=True)
            with one_thread():
                key = sides.learn.tobytes()  # targets that are known of the same images share their axes
                if key not in turned:
                    turned = {key: turn(vectors[place[sides.learn]])}
                layer = learn_layer(turned[key], code[sides.learn], patients, len(sides.classes), seed)
                probability = layer.probability(vectors[place[sides.ask]])
            data = _said(group, sides, network, target, code[sides.ask], probability)
            learned = f"{len(sides.learn):,} images of {int(patients.max()) + 1:,} patients ({sides.how})"
            yield Output(
                sample_of(context, group.dataset, network.shown, network.model, data),
                target,
                dict(zip(data.findings, layer.thresholds.tolist(), strict=False)),
                "split_",
                f"linear layer, ridge penalty {layer.penalty:g}, fitted on {learned}",
                _AT,
            )


def _said(
    group: People, sides: Sides, network: Network, target: str, code: np.ndarray, probability: Floats
) -> PredictionArrays:
    """The classes as findings; of two classes the first."""
    measured = 1 if len(sides.classes) == 2 else len(sides.classes)
    names, patients = np.unique(group.patients[sides.ask], return_inverse=True)
    return PredictionArrays(
        network.model,
        network.seed,
        tuple(f"{target}={name}" for name in sides.classes[:measured]),
        group.image_ids[sides.ask],
        names,
        patients.astype(np.int64),
        y=(code[:, None] == np.arange(measured)).astype(np.float64),
        p=probability[:, :measured],
        is_probability=np.ones(measured, dtype=bool),
        pretest=None,
        mention=None,
        weight=None,
        age=None,
        groups={},
    )
