"""New layers <-> a folder: layers.safetensors, and probe.json that says what they read and how they were learned.

Tensors `sex.weight` and `sex.bias` make a plain linear layer on what the frozen network hands to its last layer
(`penultimate`). Cross-fitted layers are `fold-0.sex.weight`, ...; with a layer of sigmoids before it, that one is
`findings.first.weight`: sigmoid(vectors @ first.weight.T + first.bias) @ weight.T + bias.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from cxrhf.errors import RunError
from cxrhf.models.probe import Layer, Probed
from cxrhf.models.tasks import from_json, to_json
from cxrhf.models.tensor_files import read_tensors, sha256, write_tensors
from cxrhf.tables.files import write_atomically

FORMAT = 1
LAYERS, ABOUT = "layers.safetensors", "probe.json"
_AGAIN = "cxrhf probe BUILD"


def save_probe(folder: Path, probed: Probed, about: Mapping[str, Any]) -> None:
    """Write the layers; those of an earlier probe in the folder are replaced."""
    folder.mkdir(parents=True, exist_ok=True)
    tensors: dict[str, torch.Tensor] = {}
    facts: dict[str, dict[str, Any]] = {}
    for at, layers in enumerate(probed.layers):
        for layer in layers:
            key = _key(at, layer.task.name, len(probed.layers))
            pair = {"weight": layer.weight, "bias": layer.bias}
            if layer.first is not None:
                pair |= {"first.weight": layer.first[0], "first.bias": layer.first[1]}
            tensors |= {f"{key}.{name}": torch.from_numpy(np.ascontiguousarray(each)) for name, each in pair.items()}
            facts[key] = layer.facts
    record = {
        "format": FORMAT, **about, "tasks": to_json(probed.tasks), "parts": len(probed.layers),
        "sha256": write_tensors(folder / LAYERS, tensors), "layers": facts,
    }  # fmt: skip
    text = json.dumps(record, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    write_atomically(folder / ABOUT, lambda file: file.write(text.encode()))


def load_probe(folder: Path) -> tuple[list[dict[str, Layer]], dict[str, Any]]:
    """The layers of each part by task (one part, or one a fold), and what probe.json says."""
    folder = Path(folder)
    try:
        about = json.loads((folder / ABOUT).read_text(encoding="utf-8"))
        tasks, parts, number = from_json(about["tasks"]), int(about["parts"]), about["format"]
    except FileNotFoundError:
        raise RunError(f"{folder} is not a saved probe: it has no {ABOUT}", next_step=_AGAIN) from None
    except (ValueError, KeyError, TypeError) as error:
        raise RunError(f"{folder / ABOUT} is damaged ({error})", next_step=_AGAIN) from None
    if number != FORMAT:
        raise RunError(
            f"{folder} was written by another version of cxrhf", got=f"format {number}", allowed=f"format {FORMAT}"
        )
    if (folder / LAYERS).is_file() and sha256(folder / LAYERS) != about["sha256"]:
        raise RunError(f"{folder / LAYERS} was changed after it was written", next_step=_AGAIN)
    tensors = {name: each.numpy() for name, each in read_tensors(folder / LAYERS, _AGAIN).items()}
    found: list[dict[str, Layer]] = []
    for at in range(parts):
        mine = {}
        for task in tasks:
            key = _key(at, task.name, parts)
            pair = (f"{key}.weight", f"{key}.bias")
            if any(name not in tensors for name in pair):
                raise RunError(f"{folder / LAYERS} lacks {key}", next_step=_AGAIN)
            first = f"{key}.first.weight", f"{key}.first.bias"
            before = (tensors[first[0]], tensors[first[1]]) if first[0] in tensors else None
            mine[task.name] = Layer(task, tensors[pair[0]], tensors[pair[1]], before, about["layers"].get(key, {}))
        found.append(mine)
    return found, about


def _key(part: int, task: str, parts: int) -> str:
    return task if parts == 1 else f"fold-{part}.{task}"
