"""A training square -> the same square flipped, turned, shifted or scaled, drawn by (seed, epoch, image) alone.

torchvision's v2 transforms do it. Validation and test never come here: only a plan of training batches has an epoch.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch

from cxrhf.models.seeding import drawing


@dataclass(frozen=True)
class Augment:
    """What may happen to a training picture. `p` is the probability of turn, shift and scale, each on its own."""

    flip: float = 0.0
    rotation: float = 0.0
    translate: float = 0.0
    scale: float = 0.0
    p: float = 1.0

    @property
    def nothing(self) -> bool:
        """Pictures stay as they are."""
        return not self.flip and not (self.p and (self.rotation or self.translate or self.scale))

    @cached_property
    def steps(self) -> Any:
        """The transforms of torchvision, in order."""
        from torchvision.transforms import InterpolationMode, v2

        bilinear = InterpolationMode.BILINEAR
        steps: list[Any] = [v2.RandomHorizontalFlip(self.flip)] if self.flip else []
        shift = (self.translate, self.translate) if self.translate else None
        scale = (1 - self.scale, 1 + self.scale) if self.scale else None
        if self.p == 1 and (self.rotation or shift or scale):
            # One resampling of the picture instead of three.
            steps.append(v2.RandomAffine(self.rotation, translate=shift, scale=scale, interpolation=bilinear))
        elif self.p:
            alone: list[Any] = []
            if self.rotation:
                alone.append(v2.RandomRotation(self.rotation, interpolation=bilinear))
            if shift:
                alone.append(v2.RandomAffine(0, translate=shift, interpolation=bilinear))
            if scale:
                alone.append(v2.RandomAffine(0, scale=scale, interpolation=bilinear))
            steps += [v2.RandomApply([each], self.p) for each in alone]
        return v2.Compose(steps)


def augmented(squares: torch.Tensor, augment: Augment, draws: list[int]) -> torch.Tensor:
    """(b, 1, s, s) grey levels -> the same, each picture by its own number."""
    if augment.nothing:
        return squares
    steps = augment.steps
    out = torch.empty_like(squares)
    for at, draw in enumerate(draws):
        with drawing(draw):
            out[at] = steps(squares[at])
    return out
