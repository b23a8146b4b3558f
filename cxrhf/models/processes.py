"""Settings and whatever a launcher started -> an Accelerator; arrays of all processes -> one; and a clean end."""

from __future__ import annotations

import os
import shlex
import shutil
import warnings
from collections.abc import Generator
from contextlib import contextmanager, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import torch
from accelerate import Accelerator
from accelerate.utils import DistributedDataParallelKwargs, ProjectConfiguration
from numpy.typing import NDArray

from cxrhf.encode.processes import leave_at_exit, missing_processes
from cxrhf.errors import ConfigError, CxrhfError, CxrhfWarning

PROJECT = "cxrhf"  # of the trackers; tensorboard's folder in a run has this name


def make_accelerator(
    *, device: str = "auto", precision: str = "float32", tracker: str = "none", folder: Path | None = None
) -> Accelerator:
    """The Accelerator of this process: one, or one of several that accelerate launch or torchrun started."""
    if device == "cuda" and not torch.cuda.is_available():
        raise ConfigError("--device", got="cuda, but torch finds no GPU on this machine", allowed="auto or cpu")
    if device == "mps" and not torch.backends.mps.is_available():
        raise ConfigError("--device", got="mps, but torch finds no Apple GPU on this machine", allowed="auto or cpu")
    cpu = device == "cpu" or not (torch.cuda.is_available() or torch.backends.mps.is_available())
    project = None if folder is None else ProjectConfiguration(project_dir=str(folder), logging_dir=str(folder))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the number of threads that accelerate chooses
        made = Accelerator(
            cpu=cpu,
            mixed_precision=_precision(precision, cpu=cpu),
            log_with=None if tracker == "none" else tracker,
            project_config=project,
            # Statistics of batches are told to the others once, before they are used: see `same_buffers`.
            kwargs_handlers=[DistributedDataParallelKwargs(broadcast_buffers=False)],
        )
    leave_at_exit()
    if missing_processes():
        warnings.warn(
            "accelerate launch started one process instead of several, as it does without GPUs. "
            "To start N processes, run torchrun --nproc_per_node N -m ...",
            CxrhfWarning,
            stacklevel=2,
        )
    return made


def _precision(asked: str, *, cpu: bool) -> str:
    if asked == "auto":
        return "bf16" if not cpu and torch.cuda.is_available() and torch.cuda.is_bf16_supported() else "no"
    if asked == "fp16" and cpu:
        raise ConfigError("--precision", got="fp16, which requires a GPU", allowed="float32, bf16 or auto")
    return "no" if asked == "float32" else asked


@contextmanager
def track_curves(
    accelerator: Accelerator, tracker: str, folder: Path, name: str, config: dict[str, Any]
) -> Generator[None, None, None]:
    """Curves for tensorboard or trackio, below the run folder, while the block lasts; nothing goes online.

    What trackio prints is left out: it names a command that does not find this folder, and says "Uploading" of writing
    to the disk. `how_to_look` is the command that works.
    """
    if tracker == "none" or not accelerator.is_main_process:
        yield
        return
    plain = {key: each for key, each in config.items() if isinstance(each, (bool, int, float, str))}
    kwargs: dict[str, Any] = {}
    if tracker == "trackio":
        os.environ["TRACKIO_DIR"] = str(folder / "trackio")
        os.environ.pop("TRACKIO_SPACE_ID", None)  # would send the curves to the Hub
        kwargs = {"trackio": {"space_id": None, "name": name}}
    with redirect_stdout(StringIO()):
        accelerator.init_trackers(PROJECT, config=plain, init_kwargs=kwargs)
    try:
        yield
    finally:
        with redirect_stdout(StringIO()):
            for each in accelerator.trackers:
                each.finish()
            if tracker == "trackio":
                from trackio import context_vars

                context_vars.current_run.set(None)  # else it finishes the run again at the end of the process
        accelerator.trackers.clear()


def tracker_command(tracker: str, folder: Path) -> str:
    """The command that shows the curves of a run."""
    if tracker == "trackio":
        return f"TRACKIO_DIR={shlex.quote(str(folder / 'trackio'))} trackio show --project {PROJECT}"
    return f"tensorboard --logdir {shlex.quote(str(folder / PROJECT))}"


def clear_curves(folder: Path) -> None:
    """Remove the curves of a run that begins anew."""
    for each in (PROJECT, "trackio"):
        if not (folder / each).is_symlink():
            shutil.rmtree(folder / each, ignore_errors=True)


def same_buffers(accelerator: Accelerator, model: torch.nn.Module) -> None:
    """The first process's batch statistics in every process: each has gathered its own while learning."""
    if accelerator.num_processes > 1:
        for buffer in model.buffers():
            torch.distributed.broadcast(buffer, 0)


def sum_over_processes(accelerator: Accelerator, values: torch.Tensor) -> torch.Tensor:
    """The sum over all processes, in each of them."""
    if accelerator.num_processes == 1:
        return values
    found = values.detach().clone()
    torch.distributed.all_reduce(found)
    return found


def gathered(accelerator: Accelerator, rows: torch.Tensor, values: torch.Tensor, n: int) -> NDArray[np.float32]:
    """Values of the rows that each process looked at -> all n, by row; every row must come exactly once."""
    if accelerator.num_processes > 1:
        longest = accelerator.gather(torch.tensor([len(rows)], device=accelerator.device)).max()
        fill = int(longest) - len(rows)
        rows = torch.cat([rows, rows.new_full((fill,), -1)])
        values = torch.cat([values, values.new_zeros((fill, *values.shape[1:]))])
        rows, values = accelerator.gather(rows), accelerator.gather(values)
        values, rows = values[rows >= 0], rows[rows >= 0]
    order = rows.argsort()
    if rows[order].tolist() != list(range(n)):
        raise CxrhfError(
            "rows were lost or duplicated between processes",
            got=f"{len(rows):,} rows ({len(rows.unique()):,} distinct)",
            allowed=f"{n:,} distinct rows",
            next_step="start all processes with the same command",
        )
    return values[order].float().cpu().numpy()
