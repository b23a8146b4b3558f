"""Pictures of a build -> what a vision-language model looks at: RGB, size x size, the whole film."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cxrhf.errors import TableError
from cxrhf.models.pictures import Look, square

Picture = NDArray[np.uint8] | Any  # grey levels, or an image of Pillow


def rgb(picture: Picture, size: int) -> Any:
    """One picture as Pillow's RGB image; it is squeezed to the square, so that nothing of the film is cut off."""
    from PIL import Image

    grey = np.asarray(picture.convert("L") if isinstance(picture, Image.Image) else picture, dtype=np.uint8)
    if grey.ndim != 2 or not grey.size:
        raise TableError("pixels of an image", got=f"shape {grey.shape}", allowed="rows and columns of grey levels")
    return Image.fromarray(np.ascontiguousarray(square(grey, Look(size, "squash")))).convert("RGB")


def bound_tokens(processor: Any, size: int) -> None:
    """Processors that keep the size of a picture (Qwen's) may make no more tokens of it than size x size pixels need.

    Those that bring every picture to a size of their own are left alone.
    """
    look: Any = getattr(processor, "image_processor", None)
    limits: Any = getattr(look, "size", None)
    if limits is None or getattr(look, "merge_size", None) is None:
        return
    if limits["longest_edge"] and limits["shortest_edge"]:
        most = size * size
        least = min(int(limits["shortest_edge"]), most)
        look.size = type(limits)(shortest_edge=least, longest_edge=most)


def blank(size: int) -> Any:
    """A black picture, to count the tokens of one."""
    return rgb(np.zeros((size, size), dtype=np.uint8), size)


def all_rgb(pictures: Sequence[Picture], size: int) -> list[Any]:
    """Several, in order."""
    return [rgb(each, size) for each in pictures]
