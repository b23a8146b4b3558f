"""Grey levels to squares, squares to numbers."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from PIL import Image

from cxrhf.errors import ConfigError
from cxrhf.models.data import Look, look_facts, look_from_facts, to_pixels, to_square

GREY = np.random.default_rng(0).integers(0, 256, (60, 40), dtype=np.uint8)


def test_crop_keeps_the_middle() -> None:
    ramp = np.tile(np.arange(100, dtype=np.uint8)[:, None], (1, 50))
    seen = to_square(ramp, Look(50, "crop", "unit", 1))
    np.testing.assert_array_equal(seen, ramp[25:75])
    wide = to_square(ramp.T, Look(25, "crop", "unit", 1))
    twin = Image.fromarray(np.ascontiguousarray(ramp.T)).resize((50, 25), Image.Resampling.BILINEAR)
    np.testing.assert_array_equal(wide, np.asarray(twin)[:, 12:37])


@pytest.mark.parametrize(
    ("height", "width", "size"), [(60, 40, 32), (41, 77, 32), (33, 32, 32), (100, 99, 17), (20, 31, 48)]
)
def test_crop_is_what_torchvision_does(height: int, width: int, size: int) -> None:
    from torchvision.transforms import v2

    grey = np.random.default_rng(0).integers(0, 256, (height, width), dtype=np.uint8)
    theirs = v2.CenterCrop(size)(v2.Resize(size, v2.InterpolationMode.BILINEAR)(Image.fromarray(grey)))
    np.testing.assert_array_equal(to_square(grey, Look(size, "crop", "unit", 1)), np.asarray(theirs))


def test_squash_keeps_everything() -> None:
    twin = Image.fromarray(GREY).resize((32, 32), Image.Resampling.BILINEAR)
    np.testing.assert_array_equal(to_square(GREY, Look(32, "squash", "unit", 1)), np.asarray(twin))
    same = to_square(GREY[:40], Look(40, "crop", "unit", 1))
    np.testing.assert_array_equal(same, GREY[:40])


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize(
    ("pixels", "low", "high"), [("unit", 0, 1), ("half", -1, 1), ("xrv", -1024, 1024), ("imagenet", -2.2, 2.7)]
)
def test_numbers(pixels: str, low: float, high: float, channels: int) -> None:
    look = Look(8, "crop", pixels, channels)
    grey = torch.arange(256, dtype=torch.uint8).view(4, 1, 8, 8)
    got = to_pixels(grey, look)
    assert got.shape == (4, channels, 8, 8)
    assert got.dtype == torch.float32
    mean, std = look.mean_std()
    for channel in range(channels):
        twin = (grey[:, 0].double() / 255 - mean[channel]) / std[channel]
        torch.testing.assert_close(got[:, channel].double(), twin, rtol=1e-5, atol=1e-5 * abs(high))
    assert low - 1e-3 <= float(got.min())
    assert float(got.max()) <= high + 1e-3
    assert grey.flatten().tolist() == list(range(256))  # not changed in place


def test_looks_survive_json() -> None:
    look = Look(96, "squash", "imagenet", 1)
    facts = look_facts(look)
    assert look_from_facts(facts) == look
    assert len(facts["mean"]) == 1
    with pytest.raises(ConfigError):
        Look(pixels="auto")
