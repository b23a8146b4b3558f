"""A network and settings -> its optimizer; a step -> its learning rate."""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch

from cxrhf.config_finetune import FinetuneConfig
from cxrhf.config_train import TrainConfig


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
