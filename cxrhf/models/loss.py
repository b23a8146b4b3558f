"""Logits and targets -> the loss of a batch: for each task the sum over known labels divided by their number, added up.

Sums come from the part of a batch that a process holds; numbers from the whole batch, over all processes and pieces. So
however a batch is cut, the gradient is that of the whole. An unknown label (-1) is in neither, and has no gradient.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from cxrhf.models.tasks import Targets, Task, columns

LARGEST = 100.0  # weight of a positive, however rare


def known(target: Targets, tasks: Sequence[Task]) -> NDArray[np.int64]:
    """Known labels of each task: single labels of findings, images of a task with classes."""
    return np.array(
        [
            (target[:, at] >= 0).sum() if task.kind == "labels" else (target[:, at.start] >= 0).sum()
            for task, at in columns(tasks)
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
    for task, at in columns(tasks):
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


def total(sums: torch.Tensor, counts: NDArray[np.int64]) -> torch.Tensor:
    """The loss of the batch; a task of which nothing is known adds nothing."""
    share = torch.tensor([1 / each if each else 0.0 for each in counts.tolist()], device=sums.device)
    return (sums * share).sum()


def class_weights(target: Targets, tasks: Sequence[Task]) -> NDArray[np.float32]:
    """One weight an output. Findings: negatives / positives; classes: images / (classes x images of the class)."""
    out = np.ones(target.shape[1], dtype=np.float32)
    for task, at in columns(tasks):
        positive = (target[:, at] == 1).sum(axis=0)
        negative = (target[:, at] == 0).sum(axis=0)
        if task.kind == "labels":
            weight = negative / np.maximum(positive, 1)
        else:
            weight = positive.sum() / (len(positive) * np.maximum(positive, 1))
        out[at] = np.clip(weight, 1 / LARGEST, LARGEST)
    return out
