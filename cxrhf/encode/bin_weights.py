"""Files of .bin weights -> their tensors, without running anything that is in them.

A .bin file is a pickle, a format that can hold programs. The paper names three models whose authors published no other
weights, so these files are read, in this way only:

- The files may be twice as large as the model that the config describes (heads and other number types need room), so
  that no file fills the memory. For a zip archive the sizes after unpacking count.
- torch's restricted unpickler (`weights_only=True`) makes tensors and plain containers and refuses all else.
- What comes out must be a flat table of names and dense tensors, none larger than the bytes stored for it.

`load_model` then compares names and shapes with the model. Known gap: the unpickler is as safe as the installed torch.
"""

from __future__ import annotations

import pickle
import zipfile
from pathlib import Path
from typing import Any

from cxrhf.encode.files import Files
from cxrhf.errors import CxrhfError

_ROOM = 64 << 20  # bytes beside twice the model: small models with large heads
_ZIP = b"PK\x03\x04"  # how torch knows its archives; files of torch before 1.6 are bare pickles
_INSTEAD = "convert it to model.safetensors, or use another encoder"


def read_bin(files: Files, model: Any, name: str) -> dict[str, Any]:
    """Names and tensors of all .bin files of a model; a CxrhfError for whatever is not weights of this model's size.

    `model` gives the size: it needs no numbers (device "meta").
    """
    limit = 2 * 4 * sum(each.numel() for each in model.parameters()) + _ROOM
    size = sum(map(_unpacked_size, files.weights))
    if size > limit:
        raise CxrhfError(
            f"encoder {name}: the weights are larger than the model in its config.json",
            got=f"{size:,} bytes",
            allowed=f"up to {limit:,} bytes",
            next_step="download it again, or use another encoder",
        )
    found: dict[str, Any] = {}
    for path in files.weights:
        held = unpickle(path, name)
        if not isinstance(held, dict) or not all(isinstance(key, str) and _is_dense(held[key]) for key in held):
            raise CxrhfError(
                f"encoder {name}: {path.name} holds something other than weights",
                allowed="a flat table of names and tensors",
                next_step=_INSTEAD,
            )
        found |= held
    return found


def unpickle(path: Path, name: str) -> Any:
    """What torch's restricted unpickler makes of a file; a CxrhfError if there is more in it than tensors."""
    import torch

    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError:  # its text recommends to load the file without restrictions
        raise CxrhfError(
            f"encoder {name}: {path.name} is damaged, or holds something other than weights",
            next_step=_INSTEAD,
        ) from None


def _is_dense(value: Any) -> bool:
    """A tensor whose every number is stored: sparse and expanded ones are small in the file and large in memory."""
    import torch

    return (
        isinstance(value, torch.Tensor)
        and value.layout == torch.strided
        and value.device.type == "cpu"
        and value.numel() * value.element_size() <= value.untyped_storage().nbytes()
    )


def _unpacked_size(path: Path) -> int:
    with path.open("rb") as file:
        packed = file.read(len(_ZIP)) == _ZIP
    if not packed:
        return path.stat().st_size
    with zipfile.ZipFile(path) as archive:
        return sum(each.file_size for each in archive.infolist())
