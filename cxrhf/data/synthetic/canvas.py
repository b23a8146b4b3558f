"""Curves, spots and strokes in unit coordinates -> soft float32 layers of one size.

x runs from -.5 (image left, the patient's right) to .5, y from 0 (top) to 1: shapes say the same at every size.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

Layer = NDArray[np.floating[Any]]  # float32 at run time
Point = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Grid:
    """Pixel centres: x is one row, y one column, so shapes of one coordinate cost one line of pixels."""

    size: int
    x: Layer
    y: Layer

    @property
    def pixel(self) -> float:
        return 1 / self.size

    def half(self) -> Grid:
        """For what has no fine edges: a quarter of the work."""
        return make_grid(self.size // 2)


@lru_cache(maxsize=8)
def make_grid(size: int) -> Grid:
    at = ((np.arange(size) + 0.5) / size).astype(np.float32)
    x, y = at[None, :] - np.float32(0.5), at[:, None]
    for each in (x, y):
        each.setflags(write=False)
    return Grid(size, x, y)


def rise(value: Layer, low: float, high: float) -> Layer:
    """0 below `low`, 1 above `high`, smooth between; falls when `low` > `high`."""
    # In place: this runs some forty times a film.
    t = value - low
    t *= 1 / (high - low)
    np.clip(t, 0, 1, out=t)
    steep = t * -2
    steep += 3
    steep *= t
    steep *= t
    return steep


def curve(at: Layer, points: Sequence[Point], smooth: float = 0.02) -> Layer:
    """A rounded line through (where, value) points, read at every `at` (one row or one column)."""
    fine = np.linspace(-0.6, 1.1, 341)
    line = np.interp(fine, [p[0] for p in points], [p[1] for p in points])
    line = ndimage.gaussian_filter1d(line, smooth / (fine[1] - fine[0]), mode="nearest")
    return np.interp(at, fine, line).astype(np.float32)


def spot(grid: Grid, x: float, y: float, width: float, height: float, lean: float = 0) -> Layer:
    """A soft ellipse: 1 in the middle, about 1/3 at `width` and `height` from it; `lean` turns it, in radians."""
    dx, dy = grid.x - x, grid.y - y
    if lean:
        c, s = math.cos(lean), math.sin(lean)
        dx, dy = c * dx + s * dy, c * dy - s * dx
        return np.exp(-((dx / width) ** 2) - (dy / height) ** 2)
    return np.exp(-((dx / width) ** 2)) * np.exp(-((dy / height) ** 2))


def disc(grid: Grid, x: float, y: float, width: float, height: float, edge: float, lean: float = 0) -> Layer:
    """An ellipse with a rim: 1 inside, 0 outside, `edge` (a fraction of its radius) wide."""
    dx, dy = grid.x - x, grid.y - y
    if lean:
        c, s = math.cos(lean), math.sin(lean)
        dx, dy = c * dx + s * dy, c * dy - s * dx
    return rise(np.sqrt((dx / width) ** 2 + (dy / height) ** 2), 1 + edge / 2, 1 - edge / 2)


def enlarged(small: Layer, size: int) -> Layer:
    """A layer of another grid, made (size, size)."""
    from PIL import Image

    return np.asarray(Image.fromarray(small).resize((size, size), Image.Resampling.BICUBIC)).copy()


def clouds(rng: np.random.Generator, grid: Grid, scale: float) -> Layer:
    """Smooth noise of mean 0 and spread about 1 whose lumps are `scale` of the picture; alike at every size."""
    cells = max(3, round(1 / scale))
    return enlarged(rng.standard_normal((cells, cells), dtype=np.float32), grid.size) * np.float32(1.4)


class Strokes:
    """Lines, polygons and dots drawn at twice the size, each of a strength 0..1; the last drawn hides the others."""

    def __init__(self, grid: Grid) -> None:
        from PIL import Image, ImageDraw

        self.grid = grid
        self.ink = 1.0  # times every strength
        self.side = 2 * grid.size
        self.image = Image.new("L", (self.side, self.side))
        self.pen = ImageDraw.Draw(self.image)

    def _pixels(self, points: Sequence[Point]) -> list[Point]:
        return [((x + 0.5) * self.side, y * self.side) for x, y in points]

    def _fill(self, strength: float) -> int:
        return max(0, min(255, round(255 * self.ink * strength)))

    def line(self, points: Sequence[Point], width: float, strength: float) -> None:
        wanted = width * self.side
        # What is thinner than a pixel is drawn a pixel wide and fainter.
        strength *= min(1.0, wanted)
        self.pen.line(self._pixels(points), fill=self._fill(strength), width=max(1, round(wanted)), joint="curve")

    def polygon(self, points: Sequence[Point], strength: float) -> None:
        self.pen.polygon(self._pixels(points), fill=self._fill(strength))

    def dot(self, at: Point, radius: float, strength: float) -> None:
        (x, y), r = self._pixels([at])[0], max(0.7, radius * self.side)
        self.pen.ellipse((x - r, y - r, x + r, y + r), fill=self._fill(strength))

    def layer(self, blur: float = 0) -> Layer:
        """The drawing in 0..1; `blur` is in unit coordinates."""
        drawn = np.asarray(self.image.reduce(2), dtype=np.float32) * np.float32(1 / 255)
        return ndimage.gaussian_filter(drawn, blur * self.grid.size, truncate=2.5) if blur else drawn


def bend(points: Sequence[Point], steps: int = 8) -> list[Point]:
    """A smooth path through every point (Catmull-Rom), for wires and tubes."""
    p = np.array([points[0], *points, points[-1]], dtype=float)
    t = np.linspace(0, 1, steps, endpoint=False)[:, None]
    path = [
        0.5 * (2 * b + (c - a) * t + (2 * a - 5 * b + 4 * c - d) * t**2 + (3 * b - a - 3 * c + d) * t**3)
        for a, b, c, d in zip(p[:-3], p[1:-2], p[2:-1], p[3:], strict=True)
    ]
    return [(float(x), float(y)) for x, y in np.concatenate([*path, p[-1:]])]
