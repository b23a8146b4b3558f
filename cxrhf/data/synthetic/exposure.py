"""Thickness of what the beam crosses -> grey pixels: position, grey curve, noise, marker, size."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

from cxrhf.data.synthetic.canvas import Grid, Layer, clouds

Picture = NDArray[np.uint8]


def expose(
    thick: Layer,
    grid: Grid,
    size: int,
    zoom: float,
    portable: bool,
    hazy: bool,
    patient: np.random.Generator,
    film: np.random.Generator,
) -> Picture:
    """The film of `size` pixels a side; `thick` may be drawn at a multiple of it."""
    grey = _curve(_placed(thick, grid, zoom, portable, patient, film), portable, film)
    if grid.size > size:
        step = grid.size // size
        grey = grey.reshape(size, step, size, step).mean(axis=(1, 3))
    if hazy:
        grey = 0.24 + 0.55 * grey
    noise = film.standard_normal((size, size), dtype=np.float32)
    # Thick parts let few rays through, and few rays are grainy.
    grey = grey + noise * ((0.006 + 0.012 * grey) * (1.25 if portable else 1) * (1.5 if hazy else 1))
    _shutters(grey, film)
    _marker(grey, film)
    return np.clip(255 * grey, 0, 255).astype(np.uint8)


def _placed(
    thick: Layer, grid: Grid, zoom: float, portable: bool, patient: np.random.Generator, film: np.random.Generator
) -> Layer:
    """The upright drawing turned, shifted and scaled as the patient stood, and bent: no two people are alike."""
    tilt = math.radians(float(film.normal(0, 2.2 if portable else 0.8)))
    stature = 0.03 * float(np.clip(patient.standard_normal(), -2, 2))
    zoom = zoom + stature + 0.015 * float(film.standard_normal())
    dx, dy = (float(v) for v in film.normal((0, -0.02), 0.01))
    bent_x, bent_y = 0.006 * clouds(patient, grid, 0.25), 0.006 * clouds(patient, grid, 0.25)
    c, s, middle = math.cos(tilt) / zoom, math.sin(tilt) / zoom, grid.y - 0.5
    at_y = (s * grid.x + c * middle + bent_y + (0.5 + dy)) * grid.size - 0.5
    at_x = (c * grid.x - s * middle + bent_x + (0.5 + dx)) * grid.size - 0.5
    return ndimage.map_coordinates(thick, [at_y, at_x], order=1, mode="nearest")


def _curve(thick: Layer, portable: bool, film: np.random.Generator) -> Layer:
    dose, contrast = (float(v) for v in np.exp(film.normal(0, (0.08, 0.1))))
    grey = 1 - np.exp(np.maximum(thick, 0) * (-1.4 * dose))
    # A film's toe and shoulder: the middle greys are spread at the cost of both ends.
    grey = grey + 0.25 * contrast * grey * (1 - grey) * (2 * grey - 1)
    return 0.07 + 0.84 * grey if portable else 0.02 + 0.95 * grey


def _shutters(grey: Layer, film: np.random.Generator) -> None:
    """Edges of the beam: on some films a margin stayed unexposed."""
    n = len(grey)
    widths = film.uniform(0, 0.035, 4) * (film.uniform(size=4) < 0.3)
    top, bottom, left, right = (round(float(w) * n) for w in widths)
    for edge in (grey[:top], grey[n - bottom :], grey[:, :left], grey[:, n - right :]):
        edge[...] = 0.03


def _marker(grey: Layer, film: np.random.Generator) -> None:
    """A lead L at the patient's left shoulder."""
    n = len(grey)
    x, y = (float(v) for v in film.uniform((0.88, 0.05), (0.93, 0.12)))
    bar = max(1, round(0.008 * n))
    left, top, bottom = round(x * n), round(y * n), round((y + 0.045) * n)
    grey[top:bottom, left : left + bar] = 0.97
    grey[bottom - bar : bottom, left : left + round(0.03 * n)] = 0.97


def enlarge(picture: Picture, height: int, width: int, seed: int) -> Picture:
    """The picture at another, larger size, with grain of that size: for files as big as a detector's."""
    from PIL import Image

    large = np.asarray(Image.fromarray(picture).resize((width, height), Image.Resampling.BICUBIC), dtype=np.float32)
    grain = np.random.default_rng([seed, height, width]).standard_normal(large.shape, dtype=np.float32)
    return np.clip(large + 2.5 * grain + 0.5, 0, 255).astype(np.uint8)
