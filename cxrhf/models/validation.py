"""Logits and targets of images that were not learned from -> loss, accuracy, and mean AUROC where it is defined."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch

from cxrhf.models.loss import known, loss_sums, total
from cxrhf.models.tasks import Targets, Task, columns


def validation_loss(logits: Any, target: Targets, tasks: list[Task]) -> float:
    """The loss of all these images as one batch, without class weights; NaN where nothing is known."""
    counts = known(target, tasks)
    if not counts.any():
        return math.nan
    return float(
        total(loss_sums(torch.from_numpy(np.asarray(logits)).double(), torch.from_numpy(target), tasks), counts)
    )


def accuracy(logits: Any, target: Targets, tasks: list[Task]) -> float:
    """The share of known labels that are right at probability .5, and of images given their class; NaN without any."""
    counts = known(target, tasks)
    if not counts.any():
        return math.nan
    seen, right = np.asarray(logits), 0
    for task, at in columns(tasks):
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


def measurable(asked: str, target: Targets) -> str:
    """What epochs can be told apart by: `auroc` needs an output with labels of both classes, else it is `loss`."""
    both = ((target == 1).any(axis=0) & (target == 0).any(axis=0)).any()
    return asked if both or asked != "auroc" else "loss"
