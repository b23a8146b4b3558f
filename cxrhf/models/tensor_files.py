"""Tensors <-> a safetensors file whose tensors start where torch's own would: at multiples of 64 bytes.

The library's writer starts them anywhere. transformers maps the file into memory and computes from there, and a linear
layer with few outputs then sums in another order than the network that was saved: the last bit of some logits differs.
The format allows spaces after the header but no gaps between tensors. So tensors whose size is a multiple of 64 bytes
come first, then multiples of 32, 16, 8 and so on, largest first: each starts at a multiple of the largest such number
that divides its size, or of more. That is 64 for the weights of the last layer of nearly all networks; biases and
counters are used number by number, and do not care.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from itertools import chain
from pathlib import Path

import torch

from cxrhf.errors import CxrhfError

ALIGNMENT = 64
_NAMES = {
    torch.float64: "F64", torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16",
    torch.int64: "I64", torch.int32: "I32", torch.int16: "I16", torch.int8: "I8", torch.uint8: "U8", torch.bool: "BOOL",
}  # fmt: skip


def write_tensors(path: Path, tensors: Mapping[str, torch.Tensor]) -> str:
    """Write a file; the sha256 of what was written."""
    for name, each in tensors.items():
        if each.dtype not in _NAMES:
            raise CxrhfError(f"dtype of {name}", got=each.dtype, allowed=" or ".join(map(str, _NAMES)))
    order = sorted(tensors, key=lambda name: (-_step(tensors[name]), -tensors[name].nbytes, name))
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}  # transformers asks for it
    at = 0
    for name in order:
        each = tensors[name]
        header[name] = {
            "dtype": _NAMES[each.dtype], "shape": list(each.shape), "data_offsets": [at, at + each.nbytes],
        }  # fmt: skip
        at += each.nbytes
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-(8 + len(text)) % ALIGNMENT)
    digest = hashlib.sha256()
    path.unlink(missing_ok=True)  # a network may still compute from an earlier one
    with path.open("wb") as file:
        for part in chain((len(text).to_bytes(8, "little") + text,), (_bytes(tensors[name]) for name in order)):
            file.write(part)
            digest.update(part)
    return digest.hexdigest()


def read_tensors(path: Path, next_step: str) -> dict[str, torch.Tensor]:
    """The tensors of a file; an error that ends with `next_step` if it is none."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        return load_file(path)
    except (SafetensorError, OSError, ValueError) as error:
        said = str(error).strip().splitlines()
        raise CxrhfError(
            f"{path} cannot be read as safetensors{f' ({said[0]})' if said else ''}", next_step=next_step
        ) from None


def read_shapes(path: Path, next_step: str) -> dict[str, torch.Tensor]:
    """The tensors of a file without their numbers (on the device `meta`): only its header is read."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="pt") as file:
            shapes = {name: file.get_slice(name).get_shape() for name in file.keys()}  # noqa: SIM118
        return {name: torch.empty(shape, device="meta") for name, shape in shapes.items()}
    except (SafetensorError, OSError, ValueError, RuntimeError) as error:
        raise CxrhfError(
            f"{path} cannot be read as safetensors ({' '.join(str(error).split())})", next_step=next_step
        ) from None


def sha256(path: Path) -> str:
    """Of a file's content."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _step(tensor: torch.Tensor) -> int:
    """The largest power of two, 64 at most, that divides the size."""
    return min(ALIGNMENT, tensor.nbytes & -tensor.nbytes) if tensor.nbytes else ALIGNMENT


def _bytes(tensor: torch.Tensor) -> bytes:
    whole = tensor.detach().to("cpu").contiguous().reshape(-1)
    return bytes(whole.view(torch.uint8).numpy().data)
