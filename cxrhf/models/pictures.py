"""Grey levels of a picture -> the square that a network sees, and squares -> the numbers it computes with.

The first step is done once for a picture, in whole grey levels, so that squares can be kept in a quarter of the memory.
The second is done for a batch, where the network runs.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from cxrhf.config_train import FITS, PIXELS
from cxrhf.errors import ConfigError

SCALES = tuple(each for each in PIXELS if each != "auto")
# Mean and spread of grey levels between 0 and 1, for each colour.
_IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))


@dataclass(frozen=True, slots=True)
class Look:
    """How a network sees a picture. `pixels`: imagenet, unit (0..1), half (-1..1), xrv (-1024..1024)."""

    size: int = 224
    fit: str = "crop"
    pixels: str = "imagenet"
    channels: int = 3

    def __post_init__(self) -> None:
        if self.fit not in FITS or self.pixels not in SCALES or self.channels not in (1, 3):
            raise ConfigError(
                "image settings",
                got=asdict(self),
                allowed=f"fit {' or '.join(FITS)}, pixels {' or '.join(SCALES)}, 1 or 3 channels",
            )

    def mean_std(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """What is taken off and divided by, for grey levels between 0 and 1, one for each channel."""
        if self.pixels == "imagenet":
            mean, std = _IMAGENET
            if self.channels == 1:
                return (sum(mean) / 3,), (sum(std) / 3,)
            return mean, std
        mid, width = {"unit": (0.0, 1.0), "half": (0.5, 0.5), "xrv": (0.5, 1 / 2048)}[self.pixels]
        return (mid,) * self.channels, (width,) * self.channels


def look_facts(look: Look) -> dict[str, Any]:
    """A look as plain values, with mean and spread for those who load the model without us."""
    mean, std = look.mean_std()
    return {**asdict(look), "mean": list(mean), "std": list(std)}


def look_of(facts: dict[str, Any]) -> Look:
    """What `look_facts` wrote."""
    return Look(int(facts["size"]), str(facts["fit"]), str(facts["pixels"]), int(facts["channels"]))


def square(grey: NDArray[np.uint8], look: Look) -> NDArray[np.uint8]:
    """size x size grey levels. `crop`: the shorter side becomes `size`, then the middle of the longer one is cut out.

    In the order and with the rounding of torchvision's Resize and CenterCrop, so that others see what we see.
    """
    from PIL import Image
    from PIL.Image import Resampling

    height, width = grey.shape
    side, short = look.size, min(grey.shape)
    if look.fit == "squash":
        new = side, side
    else:
        new = max(side, int(side * height / short)), max(side, int(side * width / short))
    if (height, width) != new:
        grey = np.asarray(Image.fromarray(grey).resize(new[::-1], Resampling.BILINEAR), dtype=np.uint8)
    top, left = round((new[0] - side) / 2), round((new[1] - side) / 2)
    return grey[top : top + side, left : left + side]


def numbers_of(squares: torch.Tensor, look: Look) -> torch.Tensor:
    """(b, 1, s, s) grey levels -> (b, channels, s, s) float32, where the squares are."""
    mean, std = look.mean_std()
    grey = squares.to(torch.float32)
    if len(set(mean)) == 1 and len(set(std)) == 1:
        # One pass over the pixels, and no copy of the channels.
        scaled = grey.mul_(1 / (255 * std[0])).sub_(mean[0] / std[0])
        return scaled.expand(-1, look.channels, -1, -1)
    middle = torch.tensor(mean, device=grey.device).view(1, -1, 1, 1)
    width = torch.tensor(std, device=grey.device).view(1, -1, 1, 1)
    return (grey / 255 - middle) / width
