"""Where a training stands <-> a checkpoint: what to go on from, and what an optimizer remembers."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from cxrhf.errors import CxrhfError
from cxrhf.models.checkpoint import (
    Checkpoint,
    DamagedCheckpoint,
    checkpoints,
    flat,
    nested,
    newest,
    read_checkpoint,
    remove_drafts,
)


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


def state_of(found: Checkpoint | None) -> State:
    """The state that a checkpoint holds; without one, that of a beginning."""
    if found is None:
        return State()
    return State(step=found.step, **{name: found.state[name] for name in _STATE if name in found.state})


def earlier(folder: Path, key: str, accelerator: Any) -> tuple[Checkpoint | None, list[str]]:
    """The checkpoint to go on from, and what is wrong with newer ones."""
    found, damaged = newest(folder)
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


def moments_of(
    model: Any, optimizer: Any, accelerator: Any, folder: Path, step: int
) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    """What the optimizer remembers, whole in the first process; every process must ask."""
    if _engine(accelerator):
        model.save_checkpoint(str(folder / "deepspeed"), tag=f"step-{step:08d}")
        return {}, {}
    if sharded(accelerator):
        from torch.distributed.checkpoint.state_dict import StateDictOptions, get_optimizer_state_dict

        options = StateDictOptions(full_state_dict=True, cpu_offload=True)
        return flat(get_optimizer_state_dict(model, optimizer.optimizer, options=options).get("state", {}))
    return flat(optimizer.state_dict()["state"])


def restore(found: Checkpoint, model: Any, optimizer: Any, accelerator: Any, folder: Path) -> None:
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
        state = nested(dict(found.tensors["optimizer"]), plain, numbered=False)
        set_optimizer_state_dict(model, optimizer.optimizer, {"state": state, "param_groups": groups}, options=options)
    else:
        state = nested(dict(found.tensors["optimizer"]), plain, numbered=True)
        optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})
    if accelerator.scaler is not None and found.state.get("scaler"):
        accelerator.scaler.load_state_dict(found.state["scaler"])
