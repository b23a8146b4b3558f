"""The build of a person -> the soft parts of a frontal chest: body, lungs, heart, vessels.

A film is a sum of thicknesses: `tissue` is what the beam would cross without lungs; their air takes away from it.
Everything is drawn upright and straight; exposure.py turns, shifts and bends the whole at the end.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cxrhf.data.synthetic.canvas import (
    Grid,
    Layer,
    Point,
    Strokes,
    clouds,
    curve,
    disc,
    enlarged,
    rise,
    spot,
)
from cxrhf.data.synthetic.physique import LEFT, RIGHT, Physique


@dataclass(slots=True)
class Layers:
    """One film while it is drawn, frontal or lateral. Signs change it in place."""

    grid: Grid
    build: Physique
    tissue: Layer
    lungs: Layer  # 1 where lungs may be, 0 elsewhere, with soft rims
    free: Layer  # part of the depth not taken by heart and mediastinum
    depth: Layer  # how much air the lungs hold along the beam
    full: Layer  # share of the air replaced: 0 clear, 1 white
    markings: Layer  # vessels

    def thickness(self) -> Layer:
        """What the beam crosses, without bones and devices."""
        aired = self.lungs * self.free
        aired *= 1 - self.full
        return self.tissue - aired * (0.72 * self.depth - 0.17 * self.markings)

    def cover(self, share: Layer) -> None:
        """Fill a share of the air with something white."""
        self.full = 1 - (1 - self.full) * (1 - np.clip(share, 0, 1))


@dataclass(slots=True)
class Chest(Layers):
    """A frontal film."""

    wall: Layer  # one column: half width of the lungs' space at each height
    across: Layer  # |x| / wall: 0 at the spine, 1 at the ribs
    floor: Layer  # one row: y of the diaphragm
    hila: tuple[Point, Point]


def make_chest(grid: Grid, build: Physique, patient: np.random.Generator) -> Chest:
    x, y = grid.x, grid.y
    height = build.dome[0] - build.apex
    # The cage: an arch that is widest low down and draws in a little below.
    t = np.clip((build.dome[0] - 0.04 - y) / (height - 0.04), 0, 1)
    wall = build.width * np.sqrt(np.clip(1 - t**2.8, 0.0004, 1)) * (1 - 0.25 * np.clip(y - 0.72, 0, 1))
    across = np.abs(x) / wall
    floor = _diaphragm(grid, build)
    soft = 2 * grid.pixel + 0.003
    lungs = rise(1 - across, -0.01, 0.05) * rise(floor - y, -soft / 2, soft)
    # The fourth root: a fraction as a power would take longer than all the rest of this function.
    depth = np.sqrt(np.sqrt(np.clip(1 - across * across, 0, 1)))
    depth = depth * (0.82 + 0.18 * rise(y, build.apex, build.apex + 0.3)) * (1 + 0.06 * build.old)
    free = 1 - _mediastinum(grid, build, patient)
    # Lung behind the dome, seen through the abdomen.
    behind = rise(floor + 0.07 - y, 0, 0.07) * rise(1 - across, 0, 0.2) * rise(y - floor, 0, soft)
    # The body has no fine edges: half the size is enough for it.
    rough = grid.half()
    tissue = enlarged(_body(rough, build) + _abdomen(rough, build, patient), grid.size)
    tissue -= 0.1 * behind * free
    sink = 0.41 + 0.02 * build.old
    hila = ((-0.088 + build.pull, sink + 0.012), (0.092 + build.pull, sink - 0.012))
    markings = _vessels(grid, build, hila, patient)
    none = np.zeros_like(lungs)
    return Chest(grid, build, tissue, lungs, free, depth, none, markings, wall, across, floor, hila)


def _diaphragm(grid: Grid, build: Physique) -> Layer:
    (right, left), w = build.dome, build.width
    points = [
        (-1.25 * w, right + 0.2),
        (-1.0 * w, right + 0.105),
        (-0.9 * w, right + 0.045),
        (-0.7 * w, right + 0.008),
        (-0.45 * w, right),
        (-0.2 * w, right + 0.018),
        (0.0, right + 0.03),
        (0.25 * w, left + 0.012),
        (0.5 * w, left),
        (0.72 * w, left + 0.01),
        (0.9 * w, left + 0.047),
        (1.0 * w, left + 0.105),
        (1.25 * w, left + 0.2),
    ]
    return curve(grid.x, points, 0.014)


def borders(grid: Grid, build: Physique) -> tuple[Layer, Layer]:
    """Right and left edge of heart and great vessels, as distances from the midline at each height."""
    # The heart hangs on the diaphragm: a high dome lifts and widens it.
    k, up, s = build.heart, build.upper, build.dome[0] - 0.69
    right = [(0.0, 0.075), (0.13, 0.068), (0.2, 0.05 + up), (0.34, 0.052 + up), (0.42, 0.056 + up / 2)]
    right += [(0.48 + s, 0.07 * k), (0.56 + s, 0.086 * k), (0.63 + s, 0.084 * k), (0.71 + s, 0.066 * k), (0.85, 0.05)]
    knob = build.knob
    left = [(0.0, 0.075), (0.13, 0.066), (0.2, 0.046 + up), (0.26, 0.047 + up), (0.285, knob + up)]
    left += [
        (0.325, knob + 0.002 + up),
        (0.355, 0.05 + up),
        (0.39, 0.064 + up),
        (0.43 + s / 2, 0.07 + 0.01 * (k - 1)),
        (0.5 + s, 0.106 * k),
    ]
    left += [(0.57 + s, 0.143 * k), (0.63 + s, 0.165 * k), (0.68 + s, 0.165 * k), (0.72 + s, 0.14 * k), (0.8, 0.07 * k)]
    return curve(grid.y, right, 0.016), curve(grid.y, left, 0.012)


def _mediastinum(grid: Grid, build: Physique, patient: np.random.Generator) -> Layer:
    right, left = borders(grid, build)
    shift = (build.pull + 0.6 * build.turn) * curve(grid.y, [(0.1, 0.3), (0.5, 1), (0.8, 1)], 0.05)
    wobble = curve(grid.y, [(float(at), 0.003 * float(patient.standard_normal())) for at in np.linspace(0, 1, 14)])
    x, fine = grid.x - shift - wobble, 0.005 + 1.2 * grid.pixel + 0.003 * build.portable
    # Above the arch the edges are those of soft parts of the neck: blurred.
    edge = fine + curve(grid.y, [(0.0, 0.02), (0.13, 0.016), (0.24, 0.002), (0.28, 0.0)])
    inside = rise((x + right) / edge, -1, 1) * rise((left - x) / edge, -1, 1)
    middle, half = (left - right) / 2, (left + right) / 2
    thick = np.sqrt(np.clip(1 - ((x - middle) / (half + 0.004)) ** 2, 0, 1))
    # A border in the lung is met at once, the middle takes nearly all of the depth.
    return inside * (0.5 + 0.44 * thick)


def _body(grid: Grid, build: Physique) -> Layer:
    x, y, stout = grid.x, grid.y, build.stout
    top = build.shoulder
    neck = 0.088 - 0.012 * build.female + 0.012 * stout
    outline = [(0.0, -0.5), (neck - 0.006, -0.4), (neck + 0.006, top - 0.07), (neck + 0.05, top - 0.025)]
    outline += [(0.26, top - 0.004), (0.37, top + 0.012), (0.43, top + 0.035), (0.5, top + 0.1)]
    skin = curve(np.abs(x), outline, 0.008)
    side = 0.42 + 0.04 * stout - 0.015 * build.female
    arms = 0.1 * build.portable
    flank = [(0.0, 0.7), (0.2, 0.62), (0.3, 0.5 + arms), (0.36, side + 0.04 + arms), (0.42, side + 0.012 + arms / 3)]
    flank += [(0.55, side), (0.7, side - 0.012 * build.female), (1.0, side + 0.01)]
    edge = curve(y, flank, 0.03)
    from_top, from_side = np.clip((y - skin) / 0.2, 0, 1), np.clip((edge - np.abs(x)) / 0.16, 0, 1)
    thick = np.sqrt(np.sqrt(from_top) * from_side)
    chest = 0.98 + 0.1 * stout + 0.04 * build.portable
    # Shoulders are thinner than the trunk, the belly is thicker.
    level = curve(y, [(0.0, 0.62), (0.12, 0.66), (0.3, 0.92), (0.6, 1.02), (0.8, 1.25), (1.0, 1.4)], 0.04) * chest
    body = thick * level
    arm = _arm(grid, build)
    breasts = np.zeros_like(body)
    if build.breast:
        r = 0.105 + 0.035 * build.breast + 0.02 * stout
        for s in (RIGHT, LEFT):
            dx, dy = (x - s * 0.2) / (1.15 * r), (y - 0.62) / r
            radius = np.sqrt(dx * dx + dy * dy)
            # Full below with a crisp fold, thinning out upwards.
            breasts += rise(radius, 1.03, 0.95) * np.sqrt(np.clip(1.15 - radius * radius, 0, 1)) * rise(dy, -1.1, 0.6)
    else:
        breasts = 0.35 * rise(np.abs(x), 0.06, 0.2) * rise(y, 0.18, 0.3) * rise(y, 0.46, 0.4)
    return np.maximum(body, arm) + 0.42 * max(build.breast, 0.3 * (1 + stout / 2)) * breasts


def _arm(grid: Grid, build: Physique) -> Layer:
    """What the film catches of the upper arms: hanging beside the trunk in bed, turned away on a standing film."""
    out = 0.455 if build.portable else 0.52
    axis = curve(grid.y, [(0.0, 0.4), (0.2, 0.43), (0.5, out), (1.0, out + 0.06)], 0.05)
    half = 0.055 + 0.012 * build.stout
    d = 1 - np.abs(np.abs(grid.x) - axis) / half
    return 0.5 * np.sqrt(np.clip(d, 0, 1)) * rise(grid.y, build.shoulder, build.shoulder + 0.1)


def _abdomen(grid: Grid, build: Physique, patient: np.random.Generator) -> Layer:
    """Liver and gas, on top of the body's own thickness."""
    x, y, floor = grid.x, grid.y, _diaphragm(grid, build)
    below = rise(y - floor, 0, 0.02) * rise(0.42 - np.abs(x), 0, 0.05)
    liver = 0.12 * rise(-x, -0.06, 0.06) * rise(y - floor, 0, 0.12)
    a = patient.uniform(size=6)
    left = build.dome[1]
    # The stomach's bubble lies close under the left dome, flat below where fluid stands.
    gas = disc(grid, 0.13 + 0.06 * float(a[0]), left + 0.052, 0.045 + 0.03 * float(a[1]), 0.034, 0.3)
    gas *= rise(y, left + 0.075, left + 0.068) * (0.35 + 0.45 * float(a[2]))
    for i in range(2):
        at = (-0.1 + 0.28 * float(a[3 + i]), left + 0.17 + 0.06 * float(a[5]) + 0.05 * i)
        gas = np.maximum(gas, 0.3 * disc(grid, *at, 0.035, 0.02, 0.6, lean=float(a[3 + i])))
    return below * (0.04 + liver - 0.6 * gas)


def _vessels(grid: Grid, build: Physique, hila: tuple[Point, Point], patient: np.random.Generator) -> Layer:
    """Arteries and veins that fan out from the hila and thin towards the ribs."""
    strokes = Strokes(grid)
    drawn: list[tuple[float, list[Point]]] = []
    for s, hilum in zip((RIGHT, LEFT), hila, strict=True):
        fan = np.linspace(-1.4, 1.5, 8) + 0.2 * patient.standard_normal(8)
        drawn += grow(patient, hilum, fan, s, 0.0085, 5)
    for width, path in sorted(drawn, key=lambda each: each[0]):
        strokes.line(path, width, 0.2 + 60 * width)
    layer = strokes.layer(0.002 + 0.0008 * build.portable)
    for s, (hx, hy) in zip((RIGHT, LEFT), hila, strict=True):
        layer += 0.85 * spot(grid, hx - 0.012 * s, hy, 0.02, 0.05, lean=-0.25 * s)
    mottle = clouds(patient, grid, 0.018) + 0.7 * clouds(patient, grid, 0.05)
    return layer + 0.055 * mottle


def grow(
    rng: np.random.Generator, start: Point, angles: NDArray[np.float64], side: float, width: float, levels: int
) -> list[tuple[float, list[Point]]]:
    """Vessels from one root with their branches, as (width, path). An angle of 0 points to the side, pi/2 down."""
    angle, length = angles, 0.055
    at = np.tile(np.array(start), (len(angles), 1))
    # The lower lobes are larger, and so are their vessels.
    widths = width * (1 + 0.4 * np.sin(angles))
    drawn: list[tuple[float, list[Point]]] = []
    for level in range(levels, 0, -1):
        bends = rng.normal(0, 0.22, (len(angle), 4))
        way = angle[:, None] + np.cumsum(bends[:, :3], axis=1)
        steps = length / 3 * np.stack([side * np.cos(way), np.sin(way)], axis=2)
        paths = np.concatenate([at[:, None], at[:, None] + np.cumsum(steps, axis=1)], axis=1)
        drawn += zip(widths.tolist(), paths.tolist(), strict=True)
        at, angle, fork = paths[:, -1], way[:, -1], 0.32 + 0.3 * np.abs(bends[:, 3])
        if level == 2:
            angle = angle + bends[:, 3]
        else:
            at, angle = np.tile(at, (2, 1)), np.concatenate([angle - fork, angle + fork])
            widths = np.tile(widths, 2)
        widths, length = 0.76 * widths, 0.9 * length
    return drawn
