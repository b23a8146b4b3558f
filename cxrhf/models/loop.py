"""Steps of a training, whatever learns -> its history, checkpoints and best weights; stopped at any time, it goes on.

`train` (networks) and `finetune` (adapters) say what a step is, when and on what they validate, and what the weights
are. The order of things is here: losses are looked at now and then, a checkpoint is written after a validation, at the
end of an epoch and every so many steps, and never one with weights that are no numbers.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import signal
import sys
from abc import ABC, abstractmethod
from collections.abc import Generator, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, NoReturn

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from cxrhf.errors import CxrhfError
from cxrhf.models.data import Plan, Step
from cxrhf.models.processes import sum_over_processes
from cxrhf.models.report_settings import FinetuneConfig
from cxrhf.models.saved import sha256
from cxrhf.models.seeding import Meter, Progress
from cxrhf.models.settings import TrainConfig

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
        with catch_stop_signals(alone=self.accelerator.num_processes == 1) as stop, closing(self._batches()) as batches:
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
        values = sum_over_processes(self.accelerator, torch.stack([each for _, _, each in self.losses])).tolist()
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
        moments, plain = optimizer_moments(self.wrapped, self.optimizer, accelerator, self.folder, state.step)
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
            prune_checkpoints(self.folder)
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
def catch_stop_signals(*, alone: bool) -> Iterator[list[int]]:
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


# Losses and validations of a training <-> lines of JSON, cut back to a checkpoint when the training goes on from it.
#
# No line says when it was written, so a training that was killed and went on leaves the same bytes as one that was
# not.


class History:
    """Lines are held back until `flush`; `size` is what stands on the disk."""

    def __init__(self, path: Path, size: int = 0) -> None:
        self.path, self.size = path, size
        self.waiting: list[str] = []
        path.parent.mkdir(parents=True, exist_ok=True)
        if size == 0:
            path.write_bytes(b"")
            return
        there = path.stat().st_size if path.is_file() else 0
        if there < size:
            raise CxrhfError(
                f"{path.name} was cut after its checkpoint was saved",
                got=f"{there:,} bytes",
                allowed=f"at least {size:,} bytes",
                next_step="pass --overwrite to start again",
            )
        with path.open("r+b") as file:
            file.truncate(size)

    def add(self, **values: Any) -> None:
        """One line more."""
        self.waiting.append(json.dumps(values, allow_nan=False) + "\n")

    def flush(self) -> int:
        """Write what waits; returns the size of the file."""
        if self.waiting:
            with self.path.open("ab") as file:
                file.write("".join(self.waiting).encode())
            self.waiting = []
        self.size = self.path.stat().st_size
        return self.size


def read_history(path: Path) -> list[dict[str, Any]]:
    """All lines of a training."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]


# Where a training stands <-> a checkpoint: what to go on from, and what an optimizer remembers.


@dataclass(slots=True)
class State:
    """Where a training stands; everything but weights and moments of the optimizer."""

    step: int = 0
    falls: int = 0  # of the learning rate, on a plateau
    since: int = 0  # validations since the last gain or fall, for the plateau
    plateau: float | None = None  # the best of what the plateau watches; the lower the better
    waited: int = 0  # validations since the last gain, for stopping early
    best: float | None = None  # the lower the better
    best_step: int | None = None
    history: int = 0  # bytes
    scaler: dict[str, Any] = field(default_factory=dict)


_STATE = ("falls", "since", "plateau", "waited", "best", "best_step", "history", "scaler")


def as_values(state: State) -> dict[str, Any]:
    """A state as plain values."""
    return {name: getattr(state, name) for name in _STATE}


def state_from_checkpoint(found: Checkpoint | None) -> State:
    """The state that a checkpoint holds; without one, that of a beginning."""
    if found is None:
        return State()
    return State(step=found.step, **{name: found.state[name] for name in _STATE if name in found.state})


def resume_checkpoint(folder: Path, key: str, accelerator: Any) -> tuple[Checkpoint | None, list[str]]:
    """The checkpoint to go on from, and what is wrong with newer ones."""
    found, damaged = newest_checkpoint(folder)
    if found is not None and found.state.get("key") != key:
        raise CxrhfError(
            f"{folder} holds a training run with other settings", next_step="pass another --out, or --overwrite"
        )
    notes = [f"{each} cxrhf resumed from the checkpoint before it." for each in damaged]
    accelerator.wait_for_everyone()  # nobody tidies up before all have read
    if accelerator.is_main_process:
        remove_drafts(folder)
    if accelerator.is_main_process and found is not None:
        for path in checkpoints(folder):
            if path.name > f"step-{found.step:08d}":
                aside = path.with_name(f"damaged-{path.name}")
                shutil.rmtree(aside, ignore_errors=True)  # of the same step, damaged before
                path.rename(aside)
    return found, notes


def best_weights(folder: Path, state: State) -> dict[str, torch.Tensor] | None:
    """The weights of the best validation; None without one."""
    if state.best_step is None:
        return None
    path = folder / f"best-{state.best_step:08d}"
    try:
        return dict(read_checkpoint(path).tensors["model"])
    except DamagedCheckpoint as error:
        raise CxrhfError(str(error), next_step="train again with --overwrite or another --out") from None


def sharded(accelerator: Any) -> bool:
    """Whether each process holds only a part of the weights (FSDP)."""
    return str(accelerator.distributed_type).endswith("FSDP")


def _engine(accelerator: Any) -> bool:
    """DeepSpeed keeps its moments in files of its own, a part in each process."""
    return str(accelerator.distributed_type).endswith("DEEPSPEED")


def optimizer_moments(
    model: Any, optimizer: Any, accelerator: Any, folder: Path, step: int
) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    """What the optimizer remembers, whole in the first process; every process must ask."""
    if _engine(accelerator):
        model.save_checkpoint(str(folder / "deepspeed"), tag=f"step-{step:08d}")
        return {}, {}
    if sharded(accelerator):
        from torch.distributed.checkpoint.state_dict import StateDictOptions, get_optimizer_state_dict

        options = StateDictOptions(full_state_dict=True, cpu_offload=True)
        return flatten_state(get_optimizer_state_dict(model, optimizer.optimizer, options=options).get("state", {}))
    return flatten_state(optimizer.state_dict()["state"])


def restore_optimizer(found: Checkpoint, model: Any, optimizer: Any, accelerator: Any, folder: Path) -> None:
    """Moments of the optimizer and the scale of fp16 from a checkpoint."""
    plain = found.state.get("optimizer", {})
    if _engine(accelerator):
        model.load_checkpoint(str(folder / "deepspeed"), tag=f"step-{found.step:08d}")
        return
    state: Any
    if sharded(accelerator):
        from torch.distributed.checkpoint.state_dict import StateDictOptions, set_optimizer_state_dict

        options = StateDictOptions(full_state_dict=True, cpu_offload=True)
        groups = optimizer.optimizer.state_dict()["param_groups"]
        state = nest_state(dict(found.tensors["optimizer"]), plain, numbered=False)
        set_optimizer_state_dict(model, optimizer.optimizer, {"state": state, "param_groups": groups}, options=options)
    else:
        state = nest_state(dict(found.tensors["optimizer"]), plain, numbered=True)
        optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})
    if accelerator.scaler is not None and found.state.get("scaler"):
        accelerator.scaler.load_state_dict(found.state["scaler"])


# The state of a training <-> a folder of safetensors and JSON, there whole or not at all, and known to be intact.
#
#     checkpoints/seed-0/step-00000500/    model.safetensors  optimizer.safetensors  state.json
#     checkpoints/seed-0/best-00000400/    model.safetensors  state.json
#
# state.json is written last and holds the hash of every file, so that a damaged checkpoint is noticed and the one
# before it is taken instead. Two are kept, and every best one that these two speak of. Nothing is unpickled here;
# DeepSpeed, where a launcher chose it, keeps its moments in files of its own kind below deepspeed/.

Tensors = dict[str, torch.Tensor]
STATE, KEPT_CHECKPOINTS, FORMAT = "state.json", 2, 1


class DamagedCheckpoint(CxrhfError):
    """A checkpoint that cannot be read as it was written."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """What a training needs to go on. `tensors`: file -> its tensors; `state`: numbers and names."""

    step: int
    tensors: Mapping[str, Tensors]
    state: Mapping[str, Any]


def write_checkpoint(folder: Path, kind: str, checkpoint: Checkpoint) -> Path:
    """Write beside the place and rename; a full disk leaves everything that was there before."""
    target = folder / f"{kind}-{checkpoint.step:08d}"
    draft = folder / f".{target.name}.{os.getpid()}.tmp"
    try:
        shutil.rmtree(draft, ignore_errors=True)
        draft.mkdir(parents=True)
        files = {}
        for name, tensors in checkpoint.tensors.items():
            path = draft / f"{name}.safetensors"
            save_file({key: each.detach().cpu().contiguous() for key, each in tensors.items()}, path)
            files[path.name] = sha256(path)
        about = {"format": FORMAT, "step": checkpoint.step, "files": files, **checkpoint.state}
        (draft / STATE).write_text(json.dumps(about, indent=1, allow_nan=False) + "\n", encoding="utf-8")
        if target.exists():  # of a run that was killed after this step; what it holds is the same
            shutil.rmtree(target)
        draft.rename(target)
    except (OSError, SafetensorError) as error:
        raise CxrhfError(
            f"the checkpoint of step {checkpoint.step:,} could not be written ({_error_text(error)})",
            next_step="free space or fix the disk, then run the same command to resume: earlier checkpoints are intact",
        ) from None
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return target


def read_checkpoint(path: Path) -> Checkpoint:
    """What was written, every file checked; else a DamagedCheckpoint."""
    about = read_state(path)
    tensors = {}
    for name, digest in about["files"].items():
        file = path / name
        if not file.is_file():
            raise DamagedCheckpoint(f"{path.name}: {name} is missing")
        if sha256(file) != digest:
            raise DamagedCheckpoint(f"{path.name}: {name} is damaged")
        try:
            tensors[file.stem] = load_file(file)
        except (OSError, SafetensorError, ValueError) as error:
            raise DamagedCheckpoint(f"{path.name}: {name} cannot be read ({_error_text(error)})") from None
    state = {key: value for key, value in about.items() if key not in ("format", "step", "files")}
    return Checkpoint(int(about["step"]), tensors, state)


def read_state(path: Path) -> dict[str, Any]:
    """The numbers of a checkpoint, without its tensors."""
    try:
        about = json.loads((path / STATE).read_text(encoding="utf-8"))
        if not isinstance(about, dict) or about.get("format") != FORMAT or not isinstance(about.get("files"), dict):
            raise ValueError("not a checkpoint of this version")
    except (OSError, ValueError) as error:
        raise DamagedCheckpoint(f"{path.name}: {STATE} cannot be read ({_error_text(error)})") from None
    return about


def checkpoints(folder: Path, kind: str = "step") -> list[Path]:
    """Those of a kind, the newest first."""
    return sorted((each for each in folder.glob(f"{kind}-*") if each.is_dir()), reverse=True)


def newest_checkpoint(folder: Path) -> tuple[Checkpoint | None, list[str]]:
    """The newest intact checkpoint, and what is wrong with newer ones. None where there was never one."""
    said: list[str] = []
    there = checkpoints(folder)
    for path in there:
        try:
            found = read_checkpoint(path)
            best = found.state.get("best_step")
            if best is not None:
                read_checkpoint(folder / f"best-{best:08d}")
            return found, said
        except DamagedCheckpoint as error:
            said.append(str(error))
    if there:
        raise CxrhfError(
            f"every checkpoint in {folder} is damaged ({' '.join(said).removesuffix('.')})",
            next_step="pass --overwrite to start again, or restore the folder from a backup",
        )
    return None, said


def prune_checkpoints(folder: Path, kept: int = KEPT_CHECKPOINTS) -> None:
    """Remove older checkpoints, best ones that no kept checkpoint speaks of, and drafts of killed runs."""
    steps = checkpoints(folder)
    for path in steps[kept:]:
        shutil.rmtree(path, ignore_errors=True)
    needed = set()
    for path in steps[:kept]:
        try:
            needed.add(read_state(path).get("best_step"))
        except DamagedCheckpoint:
            return  # nobody knows what it needs
    for path in checkpoints(folder, "best"):
        if int(path.name.removeprefix("best-")) not in needed:
            shutil.rmtree(path, ignore_errors=True)
    for path in folder.glob("deepspeed/step-*"):
        if path.name not in {each.name for each in steps[:kept]}:
            shutil.rmtree(path, ignore_errors=True)
    remove_drafts(folder)


def remove_drafts(folder: Path) -> None:
    """What killed runs left half written."""
    for draft in folder.glob(".*.tmp"):
        shutil.rmtree(draft, ignore_errors=True)


def flatten_state(state: Mapping[Any, Mapping[str, Any]]) -> tuple[Tensors, dict[str, Any]]:
    """`state` of an optimizer, {parameter: {name: value}} -> tensors by `parameter/name`, and the other values."""
    tensors: Tensors = {}
    plain: dict[str, Any] = {}
    for parameter, values in state.items():
        for name, value in values.items():
            if isinstance(value, torch.Tensor):
                tensors[f"{parameter}/{name}"] = value
            elif value is not None:
                plain[f"{parameter}/{name}"] = value
    return tensors, plain


def nest_state(tensors: Tensors, plain: Mapping[str, Any], *, numbered: bool) -> dict[Any, dict[str, Any]]:
    """What `flat` took apart; parameters are numbers or names."""
    out: dict[Any, dict[str, Any]] = {}
    for key, value in {**tensors, **plain}.items():
        parameter, _, name = key.rpartition("/")
        out.setdefault(int(parameter) if numbered else parameter, {})[name] = value
    return out


def _error_text(error: Exception) -> str:
    return " ".join(str(getattr(error, "strerror", None) or error).split())
