"""A network and squares -> its logits and what it hands to its last layer, for every row exactly once.

In eval mode and without augmentation; several processes share the rows and each gets all results. Where the arithmetic
of a batch depends on its size, results may differ in the last bits with the number of processes, never more.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from cxrhf.models.augment import Augment
from cxrhf.models.backbone import last_layer, penultimate
from cxrhf.models.loader import Squares, looking, n_workers, read_batches
from cxrhf.models.meter import Meter, Progress
from cxrhf.models.pictures import numbers_of
from cxrhf.models.processes import gathered

Floats = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Seen:
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
) -> Seen:
    """All n rows. The model is the bare network, not what a launcher wrapped it in; its mode is put back afterwards."""
    processes, process = accelerator.num_processes, accelerator.process_index
    asks = looking(n, batch_size, processes, process)
    gpu = accelerator.device.type != "cpu"
    count = n_workers(workers, squares, Augment(), gpu=gpu, processes=processes)
    meter = Meter(sum(len(ask.rows) for ask in asks), progress or (lambda _: None))
    learning = model.training
    model.eval()
    rows, logits, features = [], [], []
    try:
        for ask, read in zip(asks, read_batches(asks, squares, workers=count, pin=gpu), strict=True):
            pixels = numbers_of(read.to(accelerator.device, non_blocking=True), squares.look)
            with accelerator.autocast():
                vector = penultimate(model, pixels) if vectors else None
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
    return Seen(together(logits, head.out_features), together(features, head.in_features) if vectors else None)
