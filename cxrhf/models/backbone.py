"""Name of a timm network and a seed -> the network, with one new linear layer at its end.

The same seed gives the same weights, whatever else was drawn before, and the same below the last layer for any number
of outputs. The last layer starts the same way in every network, because timm's own starts differ: an EfficientNet with
one output begins uniform between -1 and 1 (logits up to 10), a ViT with a spread of .02. Here: weights normal with a
spread of .01 and no bias. Probabilities then start near one half, and, other than with zeros, the layers below learn
from the first step.

Known gap: networks that end otherwise (distilled ones with two heads, a 1 x 1 convolution as in resnetv2, VOLO) are
refused.
"""

from __future__ import annotations

import math
import re
from typing import Any

import torch
from torch import nn

from cxrhf.errors import ConfigError, did_you_mean
from cxrhf.models.seeding import number, seeded_torch

EXAMPLES = "densenet121, resnet50, resnet34, convnext_tiny, vit_small_patch16_224, tf_efficientnet_lite0"
HEAD_SPREAD = 0.01
_FITS: set[tuple[str, int, int]] = set()  # networks that have been tried: name, channels, size
_UNKNOWN = re.compile(r"unexpected keyword argument '(\w+)'")


def make_model(
    backbone: str,
    n_outputs: int,
    *,
    channels: int = 3,
    seed: int = 0,
    size: int | None = None,
    drop_rate: float = 0,
    drop_path: float = 0,
    checkpointing: bool = False,
    device: str = "cpu",
) -> nn.Module:
    """A network with random weights, in training mode, that reads pictures of `size` (its own size if not given).

    `drop_rate`: dropout before the last layer. `drop_path`: share of residual branches left out while learning.
    `checkpointing`: keep less in memory, compute parts twice. What a network does not have is an error. On the device
    `meta` it has shapes and no numbers, and whether it can read its pictures is not tried.
    """
    check_backbone(backbone)
    if n_outputs < 1 or channels not in (1, 3):
        raise ConfigError(
            "network",
            got=f"{n_outputs} outputs and {channels} channels",
            allowed="at least 1 output and 1 or 3 channels",
        )
    wanted = {"in_chans": channels, "img_size": size, "drop_rate": drop_rate, "drop_path_rate": drop_path}
    with seeded_torch(number(seed, "backbone")), torch.device(device):
        model, taken = _create(backbone, {name: value for name, value in wanted.items() if value is not None})
        _check_taken(backbone, model, wanted, taken)
        last_layer(model)
        new_head(model, n_outputs, seed)
    _remember(model, "timm_args", {name: taken[name] for name in ("in_chans", "img_size") if name in taken})
    if device != "meta":
        _try(model, backbone, channels, size or int(timm_facts(model)["input_size"][-1]))
    if checkpointing:
        network: Any = model
        try:
            network.set_grad_checkpointing(True)
        except (AttributeError, AssertionError, NotImplementedError):
            raise ConfigError(
                f"{backbone} does not support gradient checkpointing",
                next_step="turn checkpointing off and use a smaller batch, or use resnet50 or densenet121",
            ) from None
        _count_once(model)
    return model


def check_backbone(backbone: str, flag: str = "--backbone") -> None:
    """A name that timm knows, with or without the tag of published weights; else an error with the nearest name."""
    import timm
    from timm.models import get_arch_pretrained_cfgs

    arch, _, tag = backbone.partition(".")
    if not timm.is_model(arch) or not re.fullmatch(r"\w+", arch):
        known = timm.list_models()
        raise ConfigError(
            flag,
            got=backbone,
            allowed=f"one of timm's {len(known):,} networks (for example {EXAMPLES})",
            next_step=did_you_mean(arch, known) or "python -c 'import timm; print(timm.list_models())'",
        )
    tags = get_arch_pretrained_cfgs(arch)
    if tag and backbone not in tags:
        raise ConfigError(
            flag,
            got=backbone,
            allowed=f"published weights of {arch} ({', '.join([arch, *sorted(tags)])})",
            next_step=did_you_mean(backbone, tags),
        )


def last_layer(model: nn.Module) -> nn.Linear:
    """The linear layer that gives the outputs."""
    network: Any = model
    found = network.get_classifier() if hasattr(model, "get_classifier") else None
    if not isinstance(found, nn.Linear):
        raise _not_linear(type(model).__name__, f"a {type(found).__name__}" if found is not None else "none")
    return found


def last_layer_name(model: nn.Module) -> str:
    """What the weights of the last layer are called: `fc`, `head.fc`, `classifier`."""
    last = last_layer(model)
    return next(name for name, each in model.named_modules() if each is last)


def new_head(model: nn.Module, n_outputs: int, seed: int) -> None:
    """Replace the last layer by a new one."""
    old = last_layer(model)
    parent, _, leaf = last_layer_name(model).rpartition(".")
    fresh = nn.Linear(old.in_features, n_outputs, bias=old.bias is not None, device="meta", dtype=old.weight.dtype)
    fresh = fresh.to_empty(device="cpu")
    nn.init.normal_(fresh.weight, std=HEAD_SPREAD, generator=_generator(seed, "head"))
    if fresh.bias is not None:
        nn.init.zeros_(fresh.bias)
    holder = model.get_submodule(parent)
    setattr(holder, leaf, fresh.to(old.weight.device))
    for each in (model, holder):
        if hasattr(each, "num_classes"):
            _remember(each, "num_classes", n_outputs)


def penultimate_vectors(model: nn.Module, pixels: torch.Tensor) -> torch.Tensor:
    """(b, d): what goes into the last layer, so that `last_layer(model)(it)` are the outputs, bit for bit.

    Caught at the last layer itself: timm's `forward_head(pre_logits=True)` stops before a last norm in some networks.
    """
    seen: list[torch.Tensor] = []
    handle = last_layer(model).register_forward_pre_hook(lambda _, given: seen.append(given[0]))
    try:
        model(pixels)
    finally:
        handle.remove()
    return seen[-1]


def draw_kaiming(model: nn.Module, seed: int) -> None:
    """Draw all convolutions as He et al. do: normal, variance 2 / inputs of a unit. The rest stays as it is.

    timm's DenseNet starts so already; its ResNet divides by outputs instead.
    """
    for name, each in model.named_modules():
        if isinstance(each, nn.modules.conv._ConvNd):
            spread = math.sqrt(2 / each.weight[0].numel())
            drawn = torch.empty(each.weight.shape).normal_(std=spread, generator=_generator(seed, "kaiming", name))
            with torch.no_grad():
                each.weight.copy_(drawn)
                if each.bias is not None:
                    each.bias.zero_()


def timm_facts(model: nn.Module) -> dict[str, Any]:
    """What timm knows of a network: input_size, mean, std, first_conv, classifier, ..."""
    network: Any = model
    return dict(network.pretrained_cfg)


def timm_args(model: nn.Module) -> dict[str, Any]:
    """Besides name and number of classes: what timm needs to make this network again."""
    return dict(getattr(model, "timm_args", {"in_chans": timm_facts(model)["input_size"][0]}))


def _remember(module: nn.Module, name: str, value: Any) -> None:
    setattr(module, name, value)


def _generator(seed: int, *what: object) -> torch.Generator:
    return torch.Generator().manual_seed(number(seed, *what) % 2**63)


def _create(backbone: str, wanted: dict[str, Any]) -> tuple[nn.Module, dict[str, Any]]:
    """A network with one output, made with those of the settings that it takes; and these settings."""
    import timm

    taken = dict(wanted)
    while True:
        try:
            return timm.create_model(backbone, pretrained=False, num_classes=1, **taken), taken
        except TypeError as error:
            refused = _UNKNOWN.search(str(error))
            if refused is None or refused[1] not in taken:
                raise _refusal_error(backbone, wanted, error) from error
            del taken[refused[1]]
        except (AssertionError, RuntimeError, ValueError) as error:
            raise _refusal_error(backbone, wanted, error) from error


def _refusal_error(backbone: str, wanted: dict[str, Any], error: Exception) -> ConfigError:
    at = f" for images of {wanted['img_size']} x {wanted['img_size']} pixels" if "img_size" in wanted else ""
    return ConfigError(
        f"timm cannot create {backbone}{at} ({_first_line(error)})", next_step="use another --size or --backbone"
    )


def _check_taken(backbone: str, model: nn.Module, wanted: dict[str, Any], taken: dict[str, Any]) -> None:
    """Settings that would do nothing are errors."""
    if "in_chans" not in taken and wanted["in_chans"] != 3:
        raise ConfigError("--channels", got=wanted["in_chans"], allowed=f"3, as {backbone} requires")
    parts = list(model.modules())
    rate, path = wanted["drop_rate"], wanted["drop_path_rate"]
    drops = any(isinstance(each, nn.Dropout) and each.p == rate for each in parts)
    if rate and not drops and getattr(model, "drop_rate", 0) != rate:
        raise ConfigError(
            "--drop-rate", got=rate, allowed=f"0, because {backbone} has no dropout before its last layer"
        )
    if path and not any("DropPath" in type(each).__name__ for each in parts):
        raise ConfigError("--drop-path", got=path, allowed=f"0, because {backbone} has no residual branches to drop")


def _try(model: nn.Module, backbone: str, channels: int, size: int) -> None:
    """A picture without numbers goes through the network: does its size fit, are the outputs those of the last layer?

    A ViT leaves out what is no whole patch, a DenseNet needs 32 pixels: better said now than in training. Tried once in
    a process: dropout and the number of outputs change no shape below the last layer.
    """
    if (backbone, channels, size) in _FITS:
        return
    patch = getattr(getattr(model, "patch_embed", None), "patch_size", None)
    if isinstance(patch, tuple) and size % max(patch):
        raise ConfigError(
            f"{backbone} would ignore the edges of images of {size} x {size} pixels",
            next_step=f"choose a --size that is a multiple of {max(patch)}",
        )
    made: list[torch.Tensor] = []
    handle = last_layer(model).register_forward_hook(lambda _, __, out: made.append(out))
    learning = model.training
    model.eval()
    try:
        with torch.no_grad():
            try:
                out = _shapes(model, (1, channels, size, size))
            except Exception:  # not every network can run without numbers
                out = model(torch.zeros(1, channels, size, size))
    except Exception as error:  # whatever a network says of a picture that does not fit
        raise ConfigError(
            f"{backbone} cannot read images of {size} x {size} pixels ({_first_line(error)})",
            next_step="choose another --size",
        ) from None
    finally:
        handle.remove()
        model.train(learning)
    if not made or out is not made[-1] or out.ndim != 2:
        raise _not_linear(backbone, "a layer after it")
    _FITS.add((backbone, channels, size))


def _count_once(model: nn.Module) -> None:
    """Batch statistics move once a step: not again where a part is computed anew on the way back.

    Without this, checkpointing would change running means and with them every prediction.
    """
    for each in model.modules():
        if isinstance(each, nn.modules.batchnorm._BatchNorm) and each.track_running_stats:
            each.register_forward_pre_hook(_freeze_statistics)
            each.register_forward_hook(_restore_statistics, always_call=True)  # torch leaves early, by an exception


def _freeze_statistics(norm: Any, _: Any) -> None:
    if norm.training and torch._C._current_graph_task_id() != -1:  # on the way back
        norm.held = norm.momentum, norm.num_batches_tracked.clone()
        norm.momentum = 0.0


def _restore_statistics(norm: Any, _: Any, __: Any) -> None:
    if (held := norm.__dict__.pop("held", None)) is not None:
        norm.momentum = held[0]
        norm.num_batches_tracked.copy_(held[1])


def _shapes(model: nn.Module, shape: tuple[int, ...]) -> Any:
    named = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    empty = {name: each.to("meta") for name, each in named.items()}
    # Without tie_weights: with it, torch puts back the wrong tensors where a network uses a module twice (CoaT).
    return torch.func.functional_call(model, empty, (torch.empty(shape, device="meta"),), tie_weights=False)


def _not_linear(name: str, got: str) -> ConfigError:
    return ConfigError(
        f"{name} does not end with a single linear layer", got=got, next_step=f"use another network, such as {EXAMPLES}"
    )


def _first_line(error: Exception) -> str:
    said = str(error).strip().splitlines()
    return said[0] if said else type(error).__name__
