"""Steps of a training, whatever learns -> its history, checkpoints and best weights; stopped at any time, it goes on.

`train` (networks) and `finetune` (adapters) say what a step is, when and on what they validate, and what the weights
are. The order of things is here: losses are looked at now and then, a checkpoint is written after a validation, at the
end of an epoch and every so many steps, and never one with weights that are no numbers.
"""

from __future__ import annotations

import math
import signal
import sys
from abc import ABC, abstractmethod
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, NoReturn

import torch

from cxrhf.config_finetune import FinetuneConfig
from cxrhf.config_train import TrainConfig
from cxrhf.errors import CxrhfError
from cxrhf.models.checkpoint import Checkpoint, checkpoints, prune, write_checkpoint
from cxrhf.models.history import History
from cxrhf.models.loader import Plan, Step
from cxrhf.models.meter import Meter, Progress
from cxrhf.models.processes import summed
from cxrhf.models.resume import State, as_values, moments_of

FLUSH = 10  # steps between two looks at the losses: a look makes a GPU wait


def planned_steps(plan: Plan, config: TrainConfig | FinetuneConfig) -> int:
    """All steps of all epochs, or fewer where that was asked for."""
    steps = plan.steps_per_epoch * config.epochs
    return steps if config.max_steps is None else min(steps, config.max_steps)


@dataclass(kw_only=True)
class Loop(ABC):
    """A training on its way. `wrapped`: the model as a launcher prepared it; `log` is there in the first process."""

    wrapped: Any
    optimizer: Any
    config: TrainConfig | FinetuneConfig
    plan: Plan
    steps: int
    accelerator: Any
    folder: Path
    key: str
    state: State
    log: History | None
    losses: list[tuple[Step, float, torch.Tensor]] = field(default_factory=list)

    learned: ClassVar[str]  # what diverges when a loss is no number
    remedy: ClassVar[str]

    @abstractmethod
    def _batches(self) -> Generator[Any, None, None]:
        """What is read for the steps that are left, a piece at a time."""

    @abstractmethod
    def _learning(self) -> None:
        """Learning mode, for what learns."""

    @abstractmethod
    def _step(self, step: Step, batches: Iterator[Any]) -> None:
        """Learn from one batch, and add (step, rate, loss) to `losses`."""

    @abstractmethod
    def _validates(self, step: Step) -> bool:
        """Whether a validation follows this step."""

    @abstractmethod
    def _validate(self, step: Step, progress: Progress) -> None:
        """Look at the validation images, and keep the weights if they are the best so far."""

    @abstractmethod
    def _weights(self) -> dict[str, torch.Tensor]:
        """What was learned, whole in the first process; every process must ask."""

    def _patience_is_over(self) -> bool:
        return False

    def go(self, progress: Progress) -> None:
        """All steps that are left."""
        plan, state = self.plan, self.state
        if state.step >= self.steps or self._patience_is_over():
            return
        meter = Meter((self.steps - state.step) * min(self.config.batch_size, len(plan.ids)), progress)
        with stopping(alone=self.accelerator.num_processes == 1) as stop, closing(self._batches()) as batches:
            for step in plan.steps(state.step + 1, self.steps):
                self._learning()
                self._step(step, batches)
                state.step = step.number
                meter.add(len(step.rows), lambda step=step: self._told(step))  # type: ignore[misc]
                if self._validates(step):
                    self._flush()
                    self._validate(step, progress)
                    self._save()
                    if self._patience_is_over():
                        progress(f"stopped early: no improvement in {state.waited} validations")
                        break
                elif step.number % plan.steps_per_epoch == 0 or step.number % self.config.save_every == 0:
                    self._save()
                elif len(self.losses) >= FLUSH:
                    self._flush()
                if stop:
                    self._save()
                    raise KeyboardInterrupt

    def _told(self, step: Step) -> str:
        alone = self.losses and self.accelerator.num_processes == 1  # of several, each knows its share of the loss
        shown = f", loss {float(self.losses[-1][2]):.4f}" if alone else ""
        epochs = math.ceil(self.steps / self.plan.steps_per_epoch)
        return f"epoch {step.epoch + 1} of {epochs}, step {step.number:,} of {self.steps:,}{shown}"

    def _flush(self) -> None:
        """Losses of the last steps into history and trackers; one that is no number ends the training.

        They are brought from the device together: asking for each would stop it at every step.
        """
        if not self.losses:
            return
        values = summed(self.accelerator, torch.stack([each for _, _, each in self.losses])).tolist()
        for (step, rate, _), value in zip(self.losses, values, strict=True):
            if not math.isfinite(value):
                self._broken(step.number)
            if self.log is not None:
                self.log.add(step=step.number, epoch=step.epoch + 1, loss=value, learning_rate=rate)
        if self.accelerator.trackers:
            step, rate, _ = self.losses[-1]
            self.accelerator.log({"train/loss": values[-1], "train/learning_rate": rate}, step=step.number)
        self.losses = []

    def _measured(self, step: Step, **values: float) -> None:
        """A validation into history and trackers."""
        if not math.isfinite(values["loss"]):
            self._broken(step.number)
        if self.log is not None:
            known = {f"validate_{name}": None if math.isnan(each) else each for name, each in values.items()}
            self.log.add(step=step.number, epoch=step.epoch + 1, **known)
        if self.accelerator.trackers:
            self.accelerator.log({f"validate/{name}": each for name, each in values.items()}, step=step.number)

    def _keep_if_best(self, step: int, value: float) -> bool:
        """Set the weights aside if no earlier ones had a lower value."""
        state = self.state
        if state.best is not None and not value < state.best:
            return False
        state.best, state.best_step = value, step
        weights = self._weights()
        if self.accelerator.is_main_process:
            write_checkpoint(self.folder, "best", Checkpoint(step, {"model": weights}, {"key": self.key}))
        return True

    def _save(self) -> None:
        """A checkpoint of this step; never one with weights that are no numbers."""
        self._flush()
        state, accelerator = self.state, self.accelerator
        weights = self._weights()
        moments, plain = moments_of(self.wrapped, self.optimizer, accelerator, self.folder, state.step)
        if accelerator.scaler is not None:
            state.scaler = dict(accelerator.scaler.state_dict())
        if accelerator.is_main_process:
            if not all(bool(torch.isfinite(each).all()) for each in weights.values() if each.is_floating_point()):
                self._broken(state.step)
            assert self.log is not None
            state.history = self.log.flush()
            held = {**as_values(state), "optimizer": plain, "key": self.key}
            write_checkpoint(
                self.folder, "step", Checkpoint(state.step, {"model": weights, "optimizer": moments}, held)
            )
            prune(self.folder)
        accelerator.wait_for_everyone()

    def _broken(self, step: int) -> NoReturn:
        before = [each.name for each in checkpoints(self.folder)]
        intact = f"; {before[0]} is intact" if before else ""
        epoch = (step - 1) // self.plan.steps_per_epoch + 1
        raise CxrhfError(
            f"the loss at step {step:,} (epoch {epoch}) is not finite: the {self.learned} diverged{intact}",
            next_step=f"{self.remedy}, and pass --overwrite or another --out",
        )


@contextmanager
def stopping(*, alone: bool) -> Iterator[list[int]]:
    """Ctrl-C, or a cluster's request to end: the step is finished and saved first; a second Ctrl-C ends at once.

    With several processes the launcher ends all of them, each at its own step: the last checkpoint is what remains.
    """
    asked: list[int] = []
    if not alone:
        yield asked
        return

    def heard(number: int, frame: Any) -> None:
        if asked:
            raise KeyboardInterrupt
        asked.append(number)
        print("\nstopping after this step; press Ctrl-C again to stop immediately", file=sys.stderr)

    before = {}
    try:
        for each in (signal.SIGINT, signal.SIGTERM):
            before[each] = signal.signal(each, heard)
    except ValueError:  # not in the main thread: somebody else decides
        pass
    try:
        yield asked
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
