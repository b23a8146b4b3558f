"""Random or ImageNet weights, or a saved network -> a frozen network: in eval mode, nothing in it learns."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from cxrhf.models.backbone import check_backbone, make_model
from cxrhf.models.pictures import Look, look_facts, look_of
from cxrhf.models.saved import load_saved
from cxrhf.models.weights import expected_pixels, load_weights

CHANNELS = 3


@dataclass(frozen=True, slots=True)
class Frozen:
    """A network, how it sees pictures, and where it is from."""

    model: torch.nn.Module
    look: Look
    facts: dict[str, Any]


def new_backbone(weights: str, architecture: str, *, size: int, seed: int) -> Frozen:
    """`imagenet` or `random`. Both are given the pixels that the ImageNet weights know, so only weights differ."""
    check_backbone(architecture, "--architecture")
    look = Look(size, "crop", expected_pixels("imagenet", architecture) or "imagenet", CHANNELS)
    model = make_model(architecture, 1, channels=CHANNELS, seed=seed, size=size)
    said = load_weights(model, weights, backbone=architecture, channels=CHANNELS)
    facts: dict[str, Any] = {"backbone": architecture, "weights": said, "look": look_facts(look)}
    if weights == "random":
        facts["seed"] = seed
    return Frozen(_freeze(model), look, facts)


def saved_backbone(folder: Path) -> Frozen:
    """The network of a saved folder, which sees pictures as it was trained."""
    model, about = load_saved(folder)
    look = look_of(about["look"])
    kept = {name: about[name] for name in ("backbone", "name", "seed", "sha256") if about.get(name) is not None}
    return Frozen(_freeze(model), look, {**kept, "look": look_facts(look)})


def _freeze(model: torch.nn.Module) -> torch.nn.Module:
    return model.requires_grad_(False).eval()
