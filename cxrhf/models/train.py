"""Images and labels -> a network, by Accelerate and timm; it can be stopped at any time and goes on exactly.

    cxrhf train BUILD --config quick
    accelerate launch -m cxrhf.models.train BUILD --config context_densenet

are the same command. One process or several (DDP, FSDP, DeepSpeed by `accelerate config`) see the same batches; losses
are sums over the whole batch divided by its known labels. With networks that use statistics of a batch (BatchNorm) each
process has those of its own share, except on several GPUs, where they are shared (SyncBatchNorm). So one and several
processes differ with BatchNorm on a CPU, and where something is dropped at random (--drop-rate, --drop-path).

Order, augmentation and dropout follow from (seed, epoch or step, image): see seeding.py. What a checkpoint needs beyond
weights is a few numbers, and going on from one gives the same losses to the last bit on the same machine.
"""

from __future__ import annotations

import copy
import math
import sys
from collections.abc import Generator, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from cxrhf.models.backbone import last_layer
from cxrhf.models.data import Augment, Plan, Squares, Step, Targets, Task, n_workers, read_batches, to_pixels
from cxrhf.models.loop import (
    History,
    Loop,
    best_weights,
    planned_steps,
    restore_optimizer,
    resume_checkpoint,
    sharded,
    state_from_checkpoint,
)
from cxrhf.models.processes import same_buffers
from cxrhf.models.seeding import Progress, number
from cxrhf.models.settings import TrainConfig
from cxrhf.models.step import (
    accuracy,
    choose_best_by,
    class_weights,
    count_known_labels,
    learning_rate,
    look_at,
    loss_sums,
    make_optimizer,
    mean_auroc,
    set_rate,
    total_loss,
    validation_loss,
)

GAIN = 1e-4  # share of an accuracy that it must rise by to count, as in torch's ReduceLROnPlateau


@dataclass(frozen=True, slots=True)
class Material:
    """What is learned from: squares and targets of training, and of validation where there is one."""

    ids: list[str]
    squares: Squares
    targets: Targets
    tasks: list[Task]
    validate: tuple[Squares, Targets] | None = None


@dataclass(frozen=True, slots=True)
class Trained:
    """A finished training: the weights that were kept, and how it went."""

    model: torch.nn.Module
    notes: list[str]
    facts: dict[str, Any]


def fit(
    model: torch.nn.Module,
    material: Material,
    config: TrainConfig,
    *,
    seed: int,
    accelerator: Any,
    folder: Path,
    history: Path,
    key: str,
    progress: Progress,
) -> Trained:
    """Train until the end, or from where an earlier call was stopped. `key` tells trainings of other settings apart."""
    plan = Plan(
        material.ids, seed, config.batch_size, config.accumulate, accelerator.num_processes, accelerator.process_index
    )
    steps = planned_steps(plan, config)
    bare = _ready(model, config, accelerator)
    optimizer = make_optimizer(bare.parameters(), config)
    found, notes = resume_checkpoint(folder, key, accelerator)
    state = state_from_checkpoint(found)
    if found is not None:
        bare.load_state_dict(found.tensors["model"])
    spare = copy.deepcopy(bare) if sharded(accelerator) else bare  # for the whole weights, at the end
    _tell_deepspeed(accelerator, config)
    wrapped, optimizer = accelerator.prepare(bare, optimizer)
    bare = wrapped if sharded(accelerator) else bare
    if found is not None:
        restore_optimizer(found, wrapped, optimizer, accelerator, folder)
        progress(f"resuming after step {state.step:,} of {steps:,}")
    weight = None
    if config.class_weights == "balanced":
        weight = torch.from_numpy(class_weights(material.targets, material.tasks)).to(accelerator.device)
    best_by = None if material.validate is None else choose_best_by(config.best_by, material.validate[1])
    alike = "no output has validation labels of both classes"
    if best_by is not None and best_by != config.best_by:
        notes.append(f"{alike}, so the best epoch is chosen by {best_by}")
    plateau_by = best_by
    if material.validate is not None and config.plateau_by is not None:
        plateau_by = choose_best_by(config.plateau_by, material.validate[1])
        if plateau_by != config.plateau_by:
            notes.append(f"{alike}, so the plateau watches {plateau_by}")
    log = History(history, state.history) if accelerator.is_main_process else None
    run = _Loop(
        wrapped=wrapped, bare=bare, optimizer=optimizer, material=material, config=config, plan=plan, steps=steps,
        seed=seed, accelerator=accelerator, folder=folder, key=key, state=state, log=log, weight=weight,
        targets=torch.from_numpy(material.targets), best_by=best_by, plateau_by=plateau_by,
    )  # fmt: skip
    run.go(progress)
    same_buffers(accelerator, bare)
    spare.load_state_dict(best_weights(folder, state) or accelerator.get_state_dict(wrapped))
    facts = {"steps": state.step, "best_step": state.best_step, "epochs": math.ceil(state.step / plan.steps_per_epoch),
             "steps_per_epoch": plan.steps_per_epoch, "best_by": best_by,
             "best": None if state.best is None else abs(state.best),
             "processes": accelerator.num_processes}  # fmt: skip
    return Trained(spare.eval(), notes, facts)


@dataclass(kw_only=True)
class _Loop(Loop):
    config: TrainConfig
    bare: torch.nn.Module
    material: Material
    seed: int
    targets: torch.Tensor
    weight: torch.Tensor | None
    best_by: str | None
    plateau_by: str | None

    learned = "weights"
    remedy = "use a lower --learning-rate, --clip 1, --warmup 500 or --precision float32"

    def _batches(self) -> Generator[torch.Tensor, None, None]:
        config, squares = self.config, self.material.squares
        augment = Augment(config.flip, config.rotation, config.translate, config.scale, config.augment_p)
        gpu = self.accelerator.device.type != "cpu"
        workers = n_workers(config.workers, squares, augment, gpu=gpu, processes=self.accelerator.num_processes)
        asks = self.plan.asks(self.state.step + 1, self.steps, augment)
        return read_batches(asks, squares, augment, workers=workers, pin=gpu)

    def _learning(self) -> None:
        """A frozen network stays in eval mode, so that its batch statistics stay too."""
        if self.config.freeze:
            self.bare.eval()
        elif not self.bare.training:
            self.wrapped.train()

    def _step(self, step: Step, batches: Iterator[torch.Tensor]) -> None:
        config, accelerator = self.config, self.accelerator
        counts = count_known_labels(self.material.targets[step.rows], self.material.tasks)
        rate = learning_rate(config, step.number, self.steps, step.epoch, self.state.falls)
        set_rate(self.optimizer, rate)
        sums = []
        for piece, rows in enumerate(step.mine):
            pixels = to_pixels(next(batches).to(accelerator.device, non_blocking=True), self.material.squares.look)
            target = self.targets[torch.from_numpy(rows)].to(accelerator.device, non_blocking=True)
            if config.drop_rate or config.drop_path:
                torch.manual_seed(number(self.seed, "drop", step.number, piece, self.plan.process) % 2**63)
            last = piece == len(step.mine) - 1
            with nullcontext() if last else accelerator.no_sync(self.wrapped):
                with accelerator.autocast():
                    logits = self.wrapped(pixels)
                parts = loss_sums(logits, target, self.material.tasks, self.weight)
                if piece == 0:
                    # Not before the forward pass: new gradients then take the memory of the old ones, which saves 4% of
                    # a step on a CPU.
                    self.optimizer.zero_grad(set_to_none=True)
                # Gradients are averaged over processes; this makes them the gradient of the sum.
                accelerator.backward(total_loss(parts, counts) * accelerator.num_processes)
            sums.append(parts.detach())
        if config.clip is not None:
            accelerator.clip_grad_norm_(self.wrapped.parameters(), config.clip)
        self.optimizer.step()
        self.losses.append((step, rate, total_loss(torch.stack(sums).sum(dim=0), counts)))

    def _validates(self, step: Step) -> bool:
        ended = step.number % self.plan.steps_per_epoch == 0
        return step.number == self.steps or (ended and (step.epoch + 1) % self.config.validate_every == 0)

    def _validate(self, step: Step, progress: Progress) -> None:
        if self.material.validate is None:
            return
        squares, target = self.material.validate
        same_buffers(self.accelerator, self.bare)
        seen = look_at(self.bare, squares, len(target), self.accelerator, batch_size=max(self.config.batch_size, 32),
                       workers=self.config.workers, progress=progress, what="validating")  # fmt: skip
        loss = validation_loss(seen.logits, target, self.material.tasks)
        area = mean_auroc(seen.logits, target)
        measured = {"loss": loss, "auroc": area}
        if self.plateau_by == "accuracy":
            measured["accuracy"] = accuracy(seen.logits, target, self.material.tasks)
        self._measured(step, **measured)
        lower = {name: value if name == "loss" else -value for name, value in measured.items()}
        best = self._keep_if_best(step.number, lower[self.best_by or "loss"])
        self.state.waited = 0 if best else self.state.waited + 1
        self._watch_plateau(lower[self.plateau_by or "loss"])
        shown = f"{area:.3f}" if math.isfinite(area) else "undefined"
        right = f", accuracy {measured['accuracy']:.4f}" if "accuracy" in measured else ""
        progress(f"epoch {step.epoch + 1}: validation loss {loss:.4f}, mean AUROC {shown}{right}"
                 + (", the best so far" if best else ""))  # fmt: skip

    def _watch_plateau(self, value: float) -> None:
        """Count validations without gain, and lower the rate after too many. Lower values are better."""
        state = self.state
        least = GAIN if self.plateau_by == "accuracy" else 0.0
        if state.plateau is None or value < state.plateau - least * abs(state.plateau):
            state.plateau, state.since = value, 0
            return
        state.since += 1
        if self.config.schedule == "plateau" and state.since > self.config.patience:
            state.falls, state.since = state.falls + 1, 0

    def _patience_is_over(self) -> bool:
        return self.config.early_stop is not None and self.state.waited >= self.config.early_stop

    def _weights(self) -> dict[str, torch.Tensor]:
        same_buffers(self.accelerator, self.bare)
        found: dict[str, torch.Tensor] = self.accelerator.get_state_dict(self.wrapped)
        return found


def _tell_deepspeed(accelerator: Any, config: TrainConfig) -> None:
    """DeepSpeed wants to know the images of a piece, which it would otherwise read off a loader of accelerate's."""
    plugin = getattr(accelerator.state, "deepspeed_plugin", None)
    if plugin is not None:
        pieces = config.accumulate * accelerator.num_processes
        plugin.deepspeed_config["train_micro_batch_size_per_gpu"] = max(1, config.batch_size // pieces)


def _ready(model: torch.nn.Module, config: TrainConfig, accelerator: Any) -> torch.nn.Module:
    """Frozen where asked for; batch statistics shared between GPUs; colours last, which makes convolutions faster."""
    if config.freeze:
        model.requires_grad_(False)
        last_layer(model).requires_grad_(True)
        model.eval()
    elif accelerator.num_processes > 1 and accelerator.device.type == "cuda":
        from timm.layers import convert_sync_batchnorm

        model = convert_sync_batchnorm(model)
    return model.to(memory_format=torch.channels_last)


if __name__ == "__main__":
    from cxrhf.cli import main

    sys.exit(main(["train", *sys.argv[1:]]))
