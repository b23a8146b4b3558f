"""Vectors of a frozen network and targets -> a new linear layer for each task, and what it says of other patients.

SPLIT of ENCODING: whatever the network does not hand to its last layer, no layer can read; so one new linear layer
measures what is there to be read of sex, race or view. SLICES adds a layer of sigmoids before the last one and learns
both. The network itself is never touched: its vectors are computed once, in eval mode, and the layers learn from them.

Vectors are learned from in units of their spread over the learning images. That changes no layer that can be learned
(a linear layer of scaled numbers is one of the numbers themselves, and is saved as such), only how fast it is found:
Adam makes steps of one size, and vectors of a random, an ImageNet and a trained network differ in size by orders of
magnitude, so that one learning rate would otherwise favour one of them.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import expit, softmax

from cxrhf.config_models import ProbeConfig
from cxrhf.errors import CxrhfError
from cxrhf.models.loss import known, loss_sums, total
from cxrhf.models.meter import Progress
from cxrhf.models.probe_parts import Integers, Part
from cxrhf.models.seeding import drawing, number, numbers
from cxrhf.models.tasks import Targets, Task, columns

Floats = NDArray[np.float32]
PATIENCE = 5  # epochs without gain after which a layer stops
_CONSTANT = 1e-5  # spread over mean below which what a dimension tells is rounding
_AT_ONCE = 8192  # rows


@dataclass(frozen=True, slots=True)
class Layer:
    """What was learned for one task, on raw vectors: a linear layer, or one of sigmoids (`first`) and one on these."""

    task: Task
    weight: Floats
    bias: Floats
    first: tuple[Floats, Floats] | None = None
    facts: dict[str, Any] = field(default_factory=dict)

    def activations(self, vectors: Floats) -> Floats:
        """What the sigmoids say, between 0 and 1."""
        if self.first is None:
            raise CxrhfError("the probe has no sigmoid layer")
        return expit(_linear(vectors, *self.first)).astype(np.float32)

    def logits(self, vectors: Floats) -> Floats:
        """images x outputs."""
        given = vectors if self.first is None else self.activations(vectors)
        return _linear(given, self.weight, self.bias).astype(np.float32)


@dataclass(frozen=True, slots=True)
class Probed:
    """Of every row that was asked about (others hold NaN): logits, the threshold of its layer, the sigmoids if any.

    `layers`: part by part, one a task.
    """

    tasks: tuple[Task, ...]
    logits: Floats
    thresholds: NDArray[np.float64]
    layers: tuple[tuple[Layer, ...], ...]
    activations: Floats | None = None


def probe(
    vectors: Floats,
    ids: Sequence[str],
    goal: Targets,
    tasks: Sequence[Task],
    parts: Sequence[Part],
    config: ProbeConfig,
    *,
    reduce: int | None = None,
    say: Progress = lambda _: None,
) -> Probed:
    """Learn a layer for each part and task, ask it about the part's rows; with `reduce`, so many sigmoids before it.

    The threshold of an output is the one with the largest TPR - FPR among the rows that stopped the layer.
    """
    if not np.isfinite(vectors).all():
        raise CxrhfError(
            "the network returns embeddings that are not finite",
            next_step="use other weights, another --pixels or a smaller --size",
        )
    n, width = len(vectors), goal.shape[1]
    logits = np.full((n, width), np.nan, dtype=np.float32)
    thresholds = np.full((n, width), np.nan)
    inside = None if reduce is None else np.full((n, reduce), np.nan, dtype=np.float32)
    layers = []
    for at, part in enumerate(parts):
        where = f"fold {at + 1} of {len(parts)}, " if len(parts) > 1 else ""
        scale = scale_of(vectors, part.learn)
        mine = []
        for task, place in columns(tasks):
            layer = fit_layer(vectors, ids, goal[:, place], task, part, config, scale=scale, reduce=reduce)
            say(f"{where}{task.name}: best epoch {layer.facts['best_epoch']} of {layer.facts['epochs']}")
            logits[part.asked, place] = layer.logits(vectors[part.asked])
            cut = _thresholds(layer, vectors[part.held], goal[part.held, place])
            layer.facts["thresholds"] = [None if np.isnan(each) else float(each) for each in cut]
            thresholds[part.asked, place] = cut
            if inside is not None:
                inside[part.asked] = layer.activations(vectors[part.asked])
            mine.append(layer)
        layers.append(tuple(mine))
    return Probed(tuple(tasks), logits, thresholds, tuple(layers), inside)


def fit_layer(
    vectors: Floats,
    ids: Sequence[str],
    goal: Targets,
    task: Task,
    part: Part,
    config: ProbeConfig,
    *,
    scale: tuple[NDArray[np.float64], NDArray[np.float64]] | None = None,
    reduce: int | None = None,
) -> Layer:
    """Adam on the learning rows; the weights of the epoch with the lowest loss on the held rows are kept.

    A linear layer starts from zeros. Each epoch shows every row with a known label once, in an order drawn from the
    seed and the image ids.
    """
    middle, inverse = scale if scale is not None else scale_of(vectors, part.learn)
    mean, factor = torch.from_numpy(middle.astype(np.float32)), torch.from_numpy(inverse.astype(np.float32))
    tasks = [task]

    def numbers_of(rows: Integers) -> torch.Tensor:
        return (torch.from_numpy(vectors[rows]) - mean) * factor

    learn, held = (rows[(goal[rows] >= 0).any(axis=1)] for rows in (part.learn, part.held))
    # By a number of the image, so that the order of rows plays no part.
    learn = learn[np.argsort(numbers(config.seed, "probe", task.name, ids=[ids[row] for row in learn]), kind="stable")]
    module = _module(vectors.shape[1], len(task.outputs), reduce, number(config.seed, "probe", task.name, reduce))
    optimizer = torch.optim.Adam(module.parameters(), lr=config.learning_rate)
    best, best_epoch, kept, epoch = float("inf"), 0, copy.deepcopy(module.state_dict()), 0
    for epoch in range(1, config.epochs + 1):
        order = np.random.default_rng(number(config.seed, "probe", task.name, epoch)).permutation(len(learn))
        # Batches of nearly one size: a last one of a few images would be a step as long as the others.
        for rows in np.array_split(learn[order], max(1, round(len(learn) / config.batch_size))):
            target = goal[rows]
            loss = total(loss_sums(module(numbers_of(rows)), torch.from_numpy(target), tasks), known(target, tasks))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        now = _loss(module, numbers_of, goal, tasks, held)
        if now < best or (not len(held) and np.isfinite(now)):  # where nothing says which is best, the last
            best, best_epoch, kept = now, epoch, copy.deepcopy(module.state_dict())
        elif epoch - best_epoch >= PATIENCE:
            break
    if best_epoch == 0:
        raise CxrhfError(
            f"the loss of the probe for {task.name} is not finite", next_step="use a smaller --learning-rate"
        )
    facts = {
        "epochs": epoch, "best_epoch": best_epoch, "loss": best if len(held) else None, "learned_from": len(learn),
        "stopped_by": len(held),
    }  # fmt: skip
    return _plain(task, kept, middle, inverse, facts)


def scale_of(vectors: Floats, rows: Integers) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Mean, and 1 / spread, of each dimension over these rows; 0 where nothing varies, so that it is left out."""
    mean = np.zeros(vectors.shape[1])
    square = np.zeros(vectors.shape[1])
    for start in range(0, len(rows), _AT_ONCE):
        mean += vectors[rows[start : start + _AT_ONCE]].sum(axis=0, dtype=np.float64)
    mean /= max(len(rows), 1)
    for start in range(0, len(rows), _AT_ONCE):
        square += ((vectors[rows[start : start + _AT_ONCE]] - mean) ** 2).sum(axis=0)
    spread = np.sqrt(square / max(len(rows), 1))
    varies = spread > _CONSTANT * np.abs(mean)
    return mean, np.divide(1.0, spread, out=np.zeros_like(spread), where=varies & (spread > 0))


def probabilities(logits: Floats, tasks: Sequence[Task]) -> NDArray[np.float64]:
    """Sigmoids of findings, softmax over the classes of the other tasks."""
    out = np.empty(logits.shape)
    for task, at in columns(tasks):
        z = np.asarray(logits[:, at], dtype=np.float64)
        out[:, at] = expit(z) if task.kind == "labels" else softmax(z, axis=1)
    return out


def _module(d: int, n_outputs: int, reduce: int | None, seed: int) -> torch.nn.Module:
    with drawing(seed):  # torch draws first weights in any case
        last = torch.nn.Linear(d if reduce is None else reduce, n_outputs)
        if reduce is not None:
            return torch.nn.Sequential(torch.nn.Linear(d, reduce), torch.nn.Sigmoid(), last)
    torch.nn.init.zeros_(last.weight)  # the loss has one minimum: no chance is needed
    torch.nn.init.zeros_(last.bias)
    return torch.nn.Sequential(last)


@torch.no_grad()
def _loss(module: torch.nn.Module, numbers_of: Any, goal: Targets, tasks: list[Task], rows: Integers) -> float:
    """Over all rows: the loss of each known label, on average."""
    sums = torch.zeros(len(tasks), dtype=torch.float64)
    for start in range(0, len(rows), _AT_ONCE):
        some = rows[start : start + _AT_ONCE]
        sums += loss_sums(module(numbers_of(some)), torch.from_numpy(goal[some]), tasks)
    return float(total(sums, known(goal[rows], tasks)))


def _plain(
    task: Task,
    state: dict[str, torch.Tensor],
    mean: NDArray[np.float64],
    inverse: NDArray[np.float64],
    facts: dict[str, Any],
) -> Layer:
    """The learned numbers as a layer on raw vectors: mean and spread go into weight and bias."""
    given = {name: each.numpy().astype(np.float64) for name, each in state.items()}
    weight = (given["0.weight"] * inverse).astype(np.float32)
    # From the rounded weights, so that their rounding does not move the logit of the mean vector.
    bias = (given["0.bias"] - weight.astype(np.float64) @ mean).astype(np.float32)
    if "2.weight" not in given:
        return Layer(task, weight, bias, facts=facts)
    last = given["2.weight"].astype(np.float32), given["2.bias"].astype(np.float32)
    return Layer(task, *last, first=(weight, bias), facts=facts)


def _linear(vectors: Floats, weight: Floats, bias: Floats) -> NDArray[np.float64]:
    """In double precision: where a dimension hardly varies, large numbers cancel."""
    out = np.empty((len(vectors), len(weight)))
    turned = weight.T.astype(np.float64)
    for start in range(0, len(vectors), _AT_ONCE):
        out[start : start + _AT_ONCE] = vectors[start : start + _AT_ONCE].astype(np.float64) @ turned
    return out + bias


def _thresholds(layer: Layer, vectors: Floats, goal: Targets) -> NDArray[np.float64]:
    """One an output, NaN where the held rows lack a class."""
    from cxrhf.metrics.operating import youden_threshold

    prob = probabilities(layer.logits(vectors), [layer.task])
    found = np.full(goal.shape[1], np.nan)
    for k, label in enumerate(goal.T):
        there = label >= 0
        if there.any():
            found[k] = youden_threshold(label[there].astype(np.float64), prob[there, k])
    return found
