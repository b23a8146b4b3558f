"""Images and labels -> a network: one loop on Accelerate and timm that can be stopped at any time and goes on exactly.

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
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from cxrhf.config_train import TrainConfig
from cxrhf.errors import CxrhfError
from cxrhf.models.augment import Augment
from cxrhf.models.backbone import last_layer
from cxrhf.models.checkpoint import Checkpoint, checkpoints, prune, write_checkpoint
from cxrhf.models.forward import look_at
from cxrhf.models.history import History
from cxrhf.models.loader import Plan, Squares, Step, n_workers, read_batches
from cxrhf.models.loss import class_weights, known, loss_sums, total
from cxrhf.models.meter import Meter, Progress
from cxrhf.models.optimize import learning_rate, make_optimizer, set_rate
from cxrhf.models.pictures import numbers_of
from cxrhf.models.processes import flushed, same_buffers
from cxrhf.models.seeding import number
from cxrhf.models.standing import State, best_weights, earlier, moments_of, restore, sharded, stand, standing
from cxrhf.models.stopping import stopping
from cxrhf.models.tasks import Targets, Task
from cxrhf.models.validation import mean_auroc, validation_loss

FLUSH = 20  # steps between two looks at the losses: a look makes a GPU wait


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
    step: int
    best_step: int | None
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
    steps = plan.steps_per_epoch * config.epochs
    steps = steps if config.max_steps is None else min(steps, config.max_steps)
    bare = _ready(model, config, accelerator)
    optimizer = make_optimizer(bare.parameters(), config)
    found, notes = earlier(folder, key, accelerator)
    state = State() if found is None else stand(found)
    if found is not None:
        bare.load_state_dict(found.tensors["model"])
    spare = copy.deepcopy(bare) if sharded(accelerator) else bare  # for the whole weights, at the end
    _tell_deepspeed(accelerator, config)
    wrapped, optimizer = accelerator.prepare(bare, optimizer)
    bare = wrapped if sharded(accelerator) else bare
    if found is not None:
        restore(found, wrapped, optimizer, accelerator, folder)
        progress(f"going on after step {state.step:,} of {steps:,}")
    log = History(history, state.history) if accelerator.is_main_process else None
    run = _Loop(wrapped, bare, optimizer, material, config, plan, steps, seed, accelerator, folder, key, state, log)
    run.go(progress)
    same_buffers(accelerator, bare)
    spare.load_state_dict(best_weights(folder, state) or accelerator.get_state_dict(wrapped))
    facts = {"steps": state.step, "best_step": state.best_step, "epochs": math.ceil(state.step / plan.steps_per_epoch),
             "steps_per_epoch": plan.steps_per_epoch, "best_by": config.best_by if material.validate else None,
             "best": None if state.best is None else abs(state.best),
             "processes": accelerator.num_processes}  # fmt: skip
    return Trained(spare.eval(), state.step, state.best_step, notes + run.notes, facts)


@dataclass(slots=True)
class _Loop:
    wrapped: Any
    bare: torch.nn.Module
    optimizer: Any
    material: Material
    config: TrainConfig
    plan: Plan
    steps: int
    seed: int
    accelerator: Any
    folder: Path
    key: str
    state: State
    log: History | None
    notes: list[str] = field(default_factory=list)
    losses: list[tuple[Step, float, torch.Tensor]] = field(default_factory=list)

    def go(self, progress: Progress) -> None:
        """All steps that are left."""
        config, plan, state = self.config, self.plan, self.state
        if state.step >= self.steps or self._patience_is_over():
            return
        augment = Augment(config.flip, config.rotation, config.translate, config.scale, config.augment_p)
        gpu = self.accelerator.device.type != "cpu"
        workers = n_workers(
            config.workers, self.material.squares, augment, gpu=gpu, processes=self.accelerator.num_processes
        )
        asks = plan.asks(state.step + 1, self.steps, augment)
        batches = read_batches(asks, self.material.squares, augment, workers=workers, pin=gpu)
        weight = None
        if config.class_weights == "balanced":
            weight = torch.from_numpy(class_weights(self.material.targets, self.material.tasks))
            weight = weight.to(self.accelerator.device)
        targets = torch.from_numpy(self.material.targets)
        meter = Meter((self.steps - state.step) * min(config.batch_size, len(plan.ids)), progress)
        with stopping(alone=self.accelerator.num_processes == 1) as stop:
            for step in plan.steps(state.step + 1, self.steps):
                self._learning()
                self._step(step, batches, targets, weight)
                state.step = step.number
                meter.add(len(step.rows), lambda step=step: self._told(step))  # type: ignore[misc]
                last = step.number == self.steps
                ended = step.number % plan.steps_per_epoch == 0
                if last or (ended and (step.epoch + 1) % config.validate_every == 0):
                    self._flush()
                    self._validate(step, progress)
                    self._save()
                    if self._patience_is_over():
                        progress(f"stopped early: no gain in {config.early_stop} validations")
                        break
                elif ended or step.number % config.save_every == 0:
                    self._save()
                elif len(self.losses) >= FLUSH:
                    self._flush()
                if stop:
                    self._save()
                    raise KeyboardInterrupt
        batches.close()  # type: ignore[attr-defined]

    def _learning(self) -> None:
        """A frozen network stays in eval mode, so that its batch statistics stay too."""
        if self.config.freeze:
            self.bare.eval()
        elif not self.bare.training:
            self.wrapped.train()

    def _step(self, step: Step, batches: Iterator[torch.Tensor], targets: torch.Tensor, weight: Any) -> None:
        config, accelerator = self.config, self.accelerator
        counts = known(self.material.targets[step.rows], self.material.tasks)
        rate = learning_rate(config, step.number, self.steps, step.epoch, self.state.falls)
        set_rate(self.optimizer, rate)
        sums = []
        for piece, rows in enumerate(step.mine):
            pixels = numbers_of(next(batches).to(accelerator.device, non_blocking=True), self.material.squares.look)
            target = targets[torch.from_numpy(rows)].to(accelerator.device, non_blocking=True)
            if config.drop_rate or config.drop_path:
                torch.manual_seed(number(self.seed, "drop", step.number, piece, self.plan.process) % 2**63)
            last = piece == len(step.mine) - 1
            with nullcontext() if last else accelerator.no_sync(self.wrapped):
                with accelerator.autocast():
                    logits = self.wrapped(pixels)
                parts = loss_sums(logits, target, self.material.tasks, weight)
                if piece == 0:
                    # Not before the forward pass: new gradients then take the memory of the old ones, which saves 4% of
                    # a step on a CPU.
                    self.optimizer.zero_grad(set_to_none=True)
                # Gradients are averaged over processes; this makes them the gradient of the sum.
                accelerator.backward(total(parts, counts) * accelerator.num_processes)
            sums.append(parts.detach())
        if config.clip is not None:
            accelerator.clip_grad_norm_(self.wrapped.parameters(), config.clip)
        self.optimizer.step()
        self.losses.append((step, rate, total(torch.stack(sums).sum(dim=0), counts)))

    def _told(self, step: Step) -> str:
        loss = float(self.losses[-1][2]) if self.losses else math.nan
        shown = "" if math.isnan(loss) or self.accelerator.num_processes > 1 else f", loss {loss:.4f}"
        epochs = math.ceil(self.steps / self.plan.steps_per_epoch)
        return f"epoch {step.epoch + 1} of {epochs}, step {step.number:,} of {self.steps:,}{shown}"

    def _flush(self) -> None:
        """Losses of the last steps into the history; one that is no number ends the training."""
        flushed(self.accelerator, self.losses, self.log, self._broken)
        self.losses = []

    def _broken(self, step: int) -> None:
        before = [each.name for each in checkpoints(self.folder)]
        intact = f"; {before[0]} is intact" if before else ""
        epoch = (step - 1) // self.plan.steps_per_epoch + 1
        raise CxrhfError(
            f"the loss is no number at step {step:,} (epoch {epoch}), the weights have diverged{intact}",
            next_step="a lower --learning-rate, --clip 1, --warmup 500 or --precision float32; with --overwrite, or "
            "into another --out",
        )

    def _validate(self, step: Step, progress: Progress) -> None:
        if self.material.validate is None:
            return
        squares, target = self.material.validate
        same_buffers(self.accelerator, self.bare)
        n = len(target)
        seen = look_at(self.bare, squares, n, self.accelerator, batch_size=max(self.config.batch_size, 32),
                       workers=self.config.workers, progress=progress, what="validating")  # fmt: skip
        loss = validation_loss(seen.logits, target, self.material.tasks)
        area = mean_auroc(seen.logits, target)
        if not math.isfinite(loss):
            self._broken(step.number)
        if self.log is not None:
            self.log.add(step=step.number, epoch=step.epoch + 1, validate_loss=loss,
                         validate_auroc=None if math.isnan(area) else area)  # fmt: skip
        if self.accelerator.trackers:
            self.accelerator.log({"validate/loss": loss, "validate/auroc": area}, step=step.number)
        value = loss if self.config.best_by == "loss" or math.isnan(area) else -area
        state = self.state
        if state.best is None or value < state.best:
            state.best, state.best_step, state.waited, state.since = value, step.number, 0, 0
            if self.accelerator.is_main_process:
                weights = {"model": dict(self._weights())}
                write_checkpoint(self.folder, "best", Checkpoint(step.number, weights, {"key": self.key}))
            else:
                self._weights()
        else:
            state.waited, state.since = state.waited + 1, state.since + 1
            if self.config.schedule == "plateau" and state.since > self.config.patience:
                state.falls, state.since = state.falls + 1, 0
        shown = f"{area:.3f}" if math.isfinite(area) else "undefined"
        progress(f"epoch {step.epoch + 1}: validation loss {loss:.4f}, mean AUROC {shown}"
                 + (", the best so far" if state.best_step == step.number else ""))  # fmt: skip

    def _patience_is_over(self) -> bool:
        return self.config.early_stop is not None and self.state.waited >= self.config.early_stop

    def _weights(self) -> dict[str, torch.Tensor]:
        found: dict[str, torch.Tensor] = self.accelerator.get_state_dict(self.wrapped)
        return found

    def _save(self) -> None:
        """A checkpoint of this step; never one with weights that are no numbers."""
        self._flush()
        state, accelerator = self.state, self.accelerator
        same_buffers(accelerator, self.bare)
        weights = self._weights()
        moments, plain = moments_of(self.wrapped, self.optimizer, accelerator, self.folder, state.step)
        if accelerator.scaler is not None:
            state.scaler = dict(accelerator.scaler.state_dict())
        if accelerator.is_main_process:
            if not all(bool(torch.isfinite(each).all()) for each in weights.values() if each.is_floating_point()):
                self._broken(state.step)
            assert self.log is not None
            state.history = self.log.flush()
            write_checkpoint(
                self.folder, "step",
                Checkpoint(state.step, {"model": weights, "optimizer": moments},
                           {**standing(state), "optimizer": plain, "key": self.key}),
            )  # fmt: skip
            prune(self.folder)
        accelerator.wait_for_everyone()


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
