"""The state of a training <-> a folder of safetensors and JSON, there whole or not at all, and known to be intact.

    checkpoints/seed-0/step-00000500/    model.safetensors  optimizer.safetensors  state.json
    checkpoints/seed-0/best-00000400/    model.safetensors  state.json

state.json is written last and holds the hash of every file, so that a damaged checkpoint is noticed and the one before
it is taken instead. Two are kept, and every best one that these two speak of. Nothing is unpickled here; DeepSpeed,
where a launcher chose it, keeps its moments in files of its own kind below deepspeed/.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from cxrhf.errors import CxrhfError
from cxrhf.models.tensor_files import sha256

Tensors = dict[str, torch.Tensor]
STATE, KEPT, FORMAT = "state.json", 2, 1


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
            f"the checkpoint of step {checkpoint.step:,} could not be written ({_said(error)})",
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
            raise DamagedCheckpoint(f"{path.name}: {name} cannot be read ({_said(error)})") from None
    state = {key: value for key, value in about.items() if key not in ("format", "step", "files")}
    return Checkpoint(int(about["step"]), tensors, state)


def read_state(path: Path) -> dict[str, Any]:
    """The numbers of a checkpoint, without its tensors."""
    try:
        about = json.loads((path / STATE).read_text(encoding="utf-8"))
        if not isinstance(about, dict) or about.get("format") != FORMAT or not isinstance(about.get("files"), dict):
            raise ValueError("not a checkpoint of this version")
    except (OSError, ValueError) as error:
        raise DamagedCheckpoint(f"{path.name}: {STATE} cannot be read ({_said(error)})") from None
    return about


def checkpoints(folder: Path, kind: str = "step") -> list[Path]:
    """Those of a kind, the newest first."""
    return sorted((each for each in folder.glob(f"{kind}-*") if each.is_dir()), reverse=True)


def newest(folder: Path) -> tuple[Checkpoint | None, list[str]]:
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


def prune(folder: Path, kept: int = KEPT) -> None:
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


def flat(state: Mapping[Any, Mapping[str, Any]]) -> tuple[Tensors, dict[str, Any]]:
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


def nested(tensors: Tensors, plain: Mapping[str, Any], *, numbered: bool) -> dict[Any, dict[str, Any]]:
    """What `flat` took apart; parameters are numbers or names."""
    out: dict[Any, dict[str, Any]] = {}
    for key, value in {**tensors, **plain}.items():
        parameter, _, name = key.rpartition("/")
        out.setdefault(int(parameter) if numbered else parameter, {})[name] = value
    return out


def _said(error: Exception) -> str:
    return " ".join(str(getattr(error, "strerror", None) or error).split())
