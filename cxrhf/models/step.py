"""Logits and targets -> the loss of a batch: for each task the sum over known labels divided by their number, added up.

Sums come from the part of a batch that a process holds; numbers from the whole batch, over all processes and pieces. So
however a batch is cut, the gradient is that of the whole. An unknown label (-1) is in neither, and has no gradient.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from cxrhf.models.backbone import last_layer, penultimate_vectors
from cxrhf.models.data import (
    Augment,
    Squares,
    Targets,
    Task,
    n_workers,
    plan_reading,
    read_batches,
    task_columns,
    to_pixels,
)
from cxrhf.models.processes import gathered
from cxrhf.models.report_settings import FinetuneConfig
from cxrhf.models.seeding import Meter, Progress
from cxrhf.models.settings import TrainConfig

Floats = NDArray[np.float32]


LARGEST = 100.0  # weight of a positive, however rare


def count_known_labels(target: Targets, tasks: Sequence[Task]) -> NDArray[np.int64]:
    """Known labels of each task: single labels of findings, images of a task with classes."""
    return np.array(
        [
            (target[:, at] >= 0).sum() if task.kind == "labels" else (target[:, at.start] >= 0).sum()
            for task, at in task_columns(tasks)
        ],
        dtype=np.int64,
    )


def loss_sums(
    logits: torch.Tensor, target: torch.Tensor, tasks: Sequence[Task], weight: torch.Tensor | None = None
) -> torch.Tensor:
    """The sum of the losses of each task over the labels that are known here.

    `weight` (of `class_weights`) multiplies the loss of a positive label, or of an image of that class.
    """
    logits = logits.float()
    found = []
    for task, at in task_columns(tasks):
        z, y = logits[:, at], target[:, at]
        if task.kind == "labels":
            is_known = y >= 0
            each = torch.nn.functional.binary_cross_entropy_with_logits(
                z, y.clamp(min=0).float(), pos_weight=None if weight is None else weight[at], reduction="none"
            )
            # torch.where, not a product: a logit that is not a number must not spoil labels beside it by 0 * nan.
            found.append(torch.where(is_known, each, 0.0).sum())
        else:
            place = torch.where(y[:, 0] >= 0, y.argmax(dim=1), -100)
            found.append(
                torch.nn.functional.cross_entropy(
                    z, place, weight=None if weight is None else weight[at], ignore_index=-100, reduction="sum"
                )
            )
    return torch.stack(found)


def total_loss(sums: torch.Tensor, counts: NDArray[np.int64]) -> torch.Tensor:
    """The loss of the batch; a task of which nothing is known adds nothing."""
    share = torch.tensor([1 / each if each else 0.0 for each in counts.tolist()], device=sums.device)
    return (sums * share).sum()


def class_weights(target: Targets, tasks: Sequence[Task]) -> NDArray[np.float32]:
    """One weight an output. Findings: negatives / positives; classes: images / (classes x images of the class)."""
    out = np.ones(target.shape[1], dtype=np.float32)
    for task, at in task_columns(tasks):
        positive = (target[:, at] == 1).sum(axis=0)
        negative = (target[:, at] == 0).sum(axis=0)
        if task.kind == "labels":
            weight = negative / np.maximum(positive, 1)
        else:
            weight = positive.sum() / (len(positive) * np.maximum(positive, 1))
        out[at] = np.clip(weight, 1 / LARGEST, LARGEST)
    return out


# A network and settings -> its optimizer; a step -> its learning rate.


def make_optimizer(parameters: Iterable[torch.nn.Parameter], config: TrainConfig) -> torch.optim.Optimizer:
    """Adam, AdamW or SGD with momentum, over the parameters that learn."""
    learning = [each for each in parameters if each.requires_grad]
    rate, decay = config.learning_rate, config.weight_decay
    if config.optimizer == "sgd":
        return torch.optim.SGD(learning, lr=rate, momentum=0.9, weight_decay=decay)
    kind = torch.optim.AdamW if config.optimizer == "adamw" else torch.optim.Adam
    return kind(learning, lr=rate, weight_decay=decay)


def learning_rate(config: TrainConfig | FinetuneConfig, step: int, steps: int, epoch: int, falls: int = 0) -> float:
    """The rate of a step (from 1) of so many, in an epoch (from 0); `falls`: how often a plateau was met.

    >>> cosine = TrainConfig("b", learning_rate=1.0, schedule="cosine", warmup=10)
    >>> [round(learning_rate(cosine, step, 110, 0, 0), 3) for step in (1, 10, 60, 110)]
    [0.1, 1.0, 0.5, 0.0]
    """
    rate = config.learning_rate
    if step <= config.warmup:
        return rate * step / config.warmup
    if config.schedule == "cosine":
        share = (step - config.warmup) / max(steps - config.warmup, 1)
        return rate * (1 + math.cos(math.pi * min(share, 1.0))) / 2
    if not isinstance(config, TrainConfig):
        return rate
    if config.schedule == "step":
        return rate * config.factor ** (epoch // config.step_every)
    if config.schedule == "plateau":
        return rate * config.factor**falls
    return rate


def set_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """For all parameters."""
    for group in optimizer.param_groups:
        group["lr"] = rate


# A network and squares -> its logits and what it hands to its last layer, for every row exactly once.
#
# In eval mode and without augmentation; several processes share the rows and each gets all results. Where the
# arithmetic of a batch depends on its size, results may differ in the last bits with the number of processes, never
# more.


@dataclass(frozen=True, slots=True)
class NetworkOutputs:
    """Row by row: logits, and the vectors of the penultimate layer where they were asked for."""

    logits: Floats
    vectors: Floats | None


@torch.inference_mode()
def look_at(
    model: torch.nn.Module,
    squares: Squares,
    n: int,
    accelerator: Any,
    *,
    batch_size: int,
    workers: int | None = None,
    vectors: bool = False,
    progress: Progress | None = None,
    what: str = "images",
) -> NetworkOutputs:
    """All n rows. The model is the bare network, not what a launcher wrapped it in; its mode is put back afterwards."""
    processes, process = accelerator.num_processes, accelerator.process_index
    asks = plan_reading(n, batch_size, processes, process)
    gpu = accelerator.device.type != "cpu"
    count = n_workers(workers, squares, Augment(), gpu=gpu, processes=processes)
    meter = Meter(sum(len(ask.rows) for ask in asks), progress or (lambda _: None))
    learning = model.training
    model.eval()
    rows, logits, features = [], [], []
    try:
        for ask, read in zip(asks, read_batches(asks, squares, workers=count, pin=gpu), strict=True):
            pixels = to_pixels(read.to(accelerator.device, non_blocking=True), squares.look)
            with accelerator.autocast():
                vector = penultimate_vectors(model, pixels) if vectors else None
                logit = model(pixels) if vector is None else last_layer(model)(vector)
            if not ask.counts:
                continue
            rows.append(torch.from_numpy(ask.rows))
            logits.append(logit)
            if vector is not None:
                features.append(vector)
            meter.add(len(ask.rows), lambda: f"{what}: {meter.done:,} of {meter.total:,}")
    finally:
        model.train(learning)
    there = torch.cat(rows) if rows else torch.empty(0, dtype=torch.int64)
    there = there.to(accelerator.device)

    def together(parts: list[torch.Tensor], width: int) -> Floats:
        mine = torch.cat([each.float() for each in parts]) if parts else torch.empty((0, width), device=there.device)
        return gathered(accelerator, there, mine, n)

    head: Any = last_layer(model)
    return NetworkOutputs(
        together(logits, head.out_features), together(features, head.in_features) if vectors else None
    )


# Logits and targets of images that were not learned from -> loss, accuracy, and mean AUROC where it is defined.


def validation_loss(logits: Any, target: Targets, tasks: list[Task]) -> float:
    """The loss of all these images as one batch, without class weights; NaN where nothing is known."""
    counts = count_known_labels(target, tasks)
    if not counts.any():
        return math.nan
    return float(
        total_loss(loss_sums(torch.from_numpy(np.asarray(logits)).double(), torch.from_numpy(target), tasks), counts)
    )


def accuracy(logits: Any, target: Targets, tasks: list[Task]) -> float:
    """The share of known labels that are right at probability .5, and of images given their class; NaN without any."""
    counts = count_known_labels(target, tasks)
    if not counts.any():
        return math.nan
    seen, right = np.asarray(logits), 0
    for task, at in task_columns(tasks):
        z, y = seen[:, at], target[:, at]
        if task.kind == "labels":
            right += int(((z > 0) == (y == 1))[y >= 0].sum())
        else:
            there = y[:, 0] >= 0
            right += int((z.argmax(axis=1) == y.argmax(axis=1))[there].sum())
    return right / int(counts.sum())


def mean_auroc(logits: Any, target: Targets) -> float:
    """The mean over outputs with both classes; NaN without any."""
    from cxrhf.metrics import auroc

    found = []
    for score, label in zip(np.asarray(logits, dtype=np.float64).T, target.T, strict=True):
        there = label >= 0
        if (label == 1).any() and (label == 0).any() and np.isfinite(score).all():
            found.append(float(auroc(label[there].astype(np.int64), score[there])))
    return float(np.mean(found)) if found else math.nan


def choose_best_by(asked: str, target: Targets) -> str:
    """What epochs can be told apart by: `auroc` needs an output with labels of both classes, else it is `loss`."""
    both = ((target == 1).any(axis=0) & (target == 0).any(axis=0)).any()
    return asked if both or asked != "auroc" else "loss"
