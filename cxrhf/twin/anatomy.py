"""The build of a person -> the soft parts of a frontal chest: body, lungs, heart, vessels.

A film is a sum of thicknesses: `tissue` is what the beam would cross without lungs; their air takes away from it.
Everything is drawn upright and straight; films.py turns, shifts and bends the whole at the end.
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
    lungs = smooth_step(1 - across, -0.01, 0.05) * smooth_step(floor - y, -soft / 2, soft)
    # The fourth root: a fraction as a power would take longer than all the rest of this function.
    depth = np.sqrt(np.sqrt(np.clip(1 - across * across, 0, 1)))
    depth = depth * (0.82 + 0.18 * smooth_step(y, build.apex, build.apex + 0.3)) * (1 + 0.06 * build.old)
    free = 1 - _mediastinum(grid, build, patient)
    # Lung behind the dome, seen through the abdomen.
    behind = smooth_step(floor + 0.07 - y, 0, 0.07) * smooth_step(1 - across, 0, 0.2) * smooth_step(y - floor, 0, soft)
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
    inside = smooth_step((x + right) / edge, -1, 1) * smooth_step((left - x) / edge, -1, 1)
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
            breasts += (
                smooth_step(radius, 1.03, 0.95)
                * np.sqrt(np.clip(1.15 - radius * radius, 0, 1))
                * smooth_step(dy, -1.1, 0.6)
            )
    else:
        breasts = 0.35 * smooth_step(np.abs(x), 0.06, 0.2) * smooth_step(y, 0.18, 0.3) * smooth_step(y, 0.46, 0.4)
    return np.maximum(body, arm) + 0.42 * max(build.breast, 0.3 * (1 + stout / 2)) * breasts


def _arm(grid: Grid, build: Physique) -> Layer:
    """What the film catches of the upper arms: hanging beside the trunk in bed, turned away on a standing film."""
    out = 0.455 if build.portable else 0.52
    axis = curve(grid.y, [(0.0, 0.4), (0.2, 0.43), (0.5, out), (1.0, out + 0.06)], 0.05)
    half = 0.055 + 0.012 * build.stout
    d = 1 - np.abs(np.abs(grid.x) - axis) / half
    return 0.5 * np.sqrt(np.clip(d, 0, 1)) * smooth_step(grid.y, build.shoulder, build.shoulder + 0.1)


def _abdomen(grid: Grid, build: Physique, patient: np.random.Generator) -> Layer:
    """Liver and gas, on top of the body's own thickness."""
    x, y, floor = grid.x, grid.y, _diaphragm(grid, build)
    below = smooth_step(y - floor, 0, 0.02) * smooth_step(0.42 - np.abs(x), 0, 0.05)
    liver = 0.12 * smooth_step(-x, -0.06, 0.06) * smooth_step(y - floor, 0, 0.12)
    a = patient.uniform(size=6)
    left = build.dome[1]
    # The stomach's bubble lies close under the left dome, flat below where fluid stands.
    gas = disc(grid, 0.13 + 0.06 * float(a[0]), left + 0.052, 0.045 + 0.03 * float(a[1]), 0.034, 0.3)
    gas *= smooth_step(y, left + 0.075, left + 0.068) * (0.35 + 0.45 * float(a[2]))
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
        drawn += grow_vessels(patient, hilum, fan, s, 0.0085, 5)
    for width, path in sorted(drawn, key=lambda each: each[0]):
        strokes.line(path, width, 0.2 + 60 * width)
    layer = strokes.layer(0.002 + 0.0008 * build.portable)
    for s, (hx, hy) in zip((RIGHT, LEFT), hila, strict=True):
        layer += 0.85 * soft_ellipse(grid, hx - 0.012 * s, hy, 0.02, 0.05, lean=-0.25 * s)
    mottle = clouds(patient, grid, 0.018) + 0.7 * clouds(patient, grid, 0.05)
    return layer + 0.055 * mottle


def grow_vessels(
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


# The build of a frontal chest -> its bones as one layer: ribs, clavicles, scapulae, arms, spine, and the trachea.
#
# Ribs are rings that slope forward: seen from the front each is an ellipse, its upper half the back of the rib, its
# lower half the front. So all ribs of a side come from one phase that counts ribs downwards.


@dataclass(frozen=True, slots=True)
class Break:
    """A broken rib: side, which rib, how far out (0 spine .. 1 flank), how far the ends stand apart (0..1)."""

    side: float
    rib: int
    out: float
    step: float


def bones(chest: Chest, breaks: list[Break], patient: np.random.Generator) -> Layer:
    rough = chest.grid.half()
    soft = _shoulders(rough, chest.build, patient) - 0.17 * _windpipe(rough, chest.build)
    return _ribs(chest, breaks, patient) + _collar(chest) + _spine(chest) + enlarged(soft, chest.grid.size)


def _cage(chest: Chest) -> tuple[float, float, float]:
    build = chest.build
    first = build.apex + 0.012
    spacing = (build.dome[0] - build.apex) / 9.3
    return first, spacing, 0.15 - 0.035 * build.old


def _ribs(chest: Chest, breaks: list[Break], patient: np.random.Generator) -> Layer:
    grid, build = chest.grid, chest.build
    first, spacing, slope = _cage(chest)
    u = np.minimum(chest.across, 1)
    back: Layer = (grid.y - first - slope * (1 - np.sqrt(1 - u * u))) * (1 / spacing)
    front = (grid.y - first - slope - 0.2 * (1 - u) * (0.85 + 0.15 * (1 - u))) * (1 / spacing) + np.float32(0.25)
    dense = (0.8 + 0.4 * patient.uniform(size=11)).astype(np.float32)
    seen = smooth_step(chest.across, 0.1, 0.2)
    if breaks:
        back, whole = _break_ribs(chest, back, breaks)
        seen = seen * whole
    backs = _rails(back, 0.34, spacing, grid.pixel, dense) * seen
    fronts = _rails(front, 0.46, spacing, grid.pixel, dense[:8]) * smooth_step(u, 0.38, 0.62)
    # Seen edge-on, the ribs of the flank close to a line.
    flank = np.exp(-(((chest.across - 1.02) / 0.03) ** 2))
    flank *= smooth_step(grid.y, build.apex + 0.05, build.apex + 0.15) * smooth_step(grid.y, 0.85, 0.7)
    return build.bone * (smooth_step(chest.across, 1.07, 1.0) * (0.15 * backs + 0.085 * fronts) + 0.07 * flank)


def _break_ribs(chest: Chest, back: Layer, breaks: list[Break]) -> tuple[Layer, Layer]:
    """The ribs' phase with the outer ends dropped, and what to multiply the bone by: 0 in the gap, more beside it."""
    gap, ends = np.zeros_like(back), np.zeros_like(back)
    for each in breaks:
        along = each.side * chest.grid.x / chest.wall - each.out
        near = ((back - each.rib - 0.5) / 0.55) ** 2
        near = each.step * np.exp(-near * near)
        back = back - 0.5 * near * smooth_step(along, -0.012, 0.012) * smooth_step(along, 0.5, 0.0)
        along = along * along
        gap = np.maximum(gap, near * np.exp(along * (-1 / 0.03**2)))
        ends += near * np.exp(along * (-1 / 0.1**2))
    # Splintered ends and new bone are denser than the rib.
    return back, (1 - gap) * (1 + 1.1 * ends)


def _rails(phase: Layer, thick: float, spacing: float, pixel: float, dense: Layer) -> Layer:
    """A band at every half phase, one for each of `dense`: a pale middle between two bright rims."""
    which = np.floor(phase)
    q = np.abs(phase - which - 0.5) * (2 / thick)
    soft = 0.22 + 2.4 * pixel / (spacing * thick)
    band = smooth_step(q, 1 + soft / 2, 1 - soft / 2) * (0.62 + 0.38 * q * q)
    # Above the first and below the last there are none.
    table = np.concatenate([[0], dense, [0]]).astype(np.float32)
    return band * table[np.clip(which + 1, 0, len(table) - 1).astype(np.intp)]


def _collar(chest: Chest) -> Layer:
    grid, build = chest.grid, chest.build
    lift = -0.022 if build.portable else 0.0
    base = build.shoulder + 0.062 + lift
    out = np.abs(grid.x)
    line = [(0.02, 0.035), (0.05, 0.022), (0.12, 0.004), (0.2, -0.016), (0.28, -0.03), (0.36, -0.034), (0.42, -0.028)]
    total = np.zeros((grid.size, grid.size), np.float32)
    for s in (RIGHT, LEFT):
        # Rotation carries the inner ends of both clavicles to one side.
        at = out - s * build.turn
        half = curve(out, [(0.02, 0.015), (0.1, 0.0105), (0.3, 0.0105), (0.4, 0.013)], 0.02)
        q = np.abs(grid.y - base - curve(at, line)) / half
        soft = 0.25 + 1.6 * grid.pixel / 0.01
        band = smooth_step(q, 1 + soft / 2, 1 - soft / 2) * (0.55 + 0.45 * np.minimum(q * q, 1))
        total += band * smooth_step(s * grid.x, 0, 1e-4) * smooth_step(at, 0.026, 0.036) * smooth_step(out, 0.42, 0.4)
    return 0.22 * (0.7 + 0.3 * build.bone) * total


def _shoulders(grid: Grid, build: Physique, patient: np.random.Generator) -> Layer:
    """Shoulder blades and arm bones: outside the lungs on a standing film, over them in bed. And lime of the aorta."""
    strokes = Strokes(grid)
    inward = 0.225 if build.portable else 0.315
    low = 0.45 + 0.02 * float(patient.standard_normal())
    top = build.shoulder + 0.06
    for s in (RIGHT, LEFT):
        blade: list[Point] = [(inward, top + 0.03), (inward + 0.006, top + 0.13), (inward + 0.035, low)]
        blade += [(inward + 0.06, low - 0.03), (0.375, top + 0.11), (0.395, top + 0.06), (0.36, top + 0.015)]
        blade = [(s * px, py) for px, py in blade]
        strokes.polygon(blade, 0.26)
        strokes.line([*blade[:5]], 0.006, 0.55)
        spine = [(s * (inward + 0.005), top + 0.065), (s * 0.33, top + 0.03), (s * 0.4, top - 0.012)]
        strokes.line(spine, 0.012, 0.5)
        shaft = 0.47 if build.portable else 0.53
        strokes.line([(s * 0.425, top + 0.045), (s * 0.452, top + 0.16), (s * shaft, 0.75)], 0.036, 0.75)
        strokes.line([(s * 0.43, top + 0.09), (s * 0.453, top + 0.18), (s * shaft, 0.75)], 0.018, 0.5)
        strokes.dot((s * 0.418, top + 0.05), 0.04, 0.75)
    lime = max(0.0, build.old - 0.4)
    out = build.knob + build.upper + build.pull + 0.6 * build.turn - 0.005
    strokes.line([(out - 0.03, 0.276), (out - 0.01, 0.283), (out, 0.298), (out - 0.001, 0.322)], 0.006, 1.6 * lime)
    return 0.27 * (0.7 + 0.3 * build.bone) * strokes.layer(0.003)


def _spine(chest: Chest) -> Layer:
    grid, build = chest.grid, chest.build
    pitch = 0.05
    bow = curve(grid.y, [(0.0, 0.0), (0.4, 0.012 * build.turn / 0.02), (1.0, 0.0)], 0.1)
    half = curve(grid.y, [(0.0, 0.03), (0.4, 0.034), (1.0, 0.042)], 0.1)
    at = (grid.x - bow) / half
    body = smooth_step(np.abs(at), 1.25, 0.8)
    phase = grid.y / pitch
    level = np.abs(phase - np.floor(phase) - 0.5) * 2
    plates = smooth_step(level, 0.45, 0.75) - 1.5 * smooth_step(level, 0.82, 0.95)
    rims = np.exp(-(((np.abs(at) - 0.95) / 0.12) ** 2))
    # Spinous processes and pedicles: three bright spots a vertebra.
    knobs = np.exp(-((at / 0.16) ** 2) - ((level - 0.35) / 0.4) ** 2)
    knobs += np.exp(-(((np.abs(at) - 0.58) / 0.16) ** 2) - ((level - 0.1) / 0.3) ** 2)
    density = 0.72 + 0.28 * build.bone
    return density * body * (0.13 + 0.05 * plates + 0.06 * knobs) + density * 0.025 * rims


def _windpipe(grid: Grid, build: Physique) -> Layer:
    """Air of trachea and main bronchi."""
    strokes = Strokes(grid)
    fork = 0.345 + 0.02 * build.old
    lean = -0.006 + 0.3 * build.turn + build.pull
    strokes.line([(lean / 2, 0.0), (lean / 2, 0.2), (lean, fork)], 0.034, 0.95)
    strokes.line([(lean, fork - 0.012), (lean - 0.04, fork + 0.045), (lean - 0.06, fork + 0.075)], 0.02, 0.6)
    strokes.line([(lean, fork - 0.012), (lean + 0.05, fork + 0.042), (lean + 0.075, fork + 0.06)], 0.018, 0.55)
    return strokes.layer(0.003)


# Curves, spots and strokes in unit coordinates -> soft float32 layers of one size.
#
# x runs from -.5 (image left, the patient's right) to .5, y from 0 (top) to 1: shapes say the same at every size.

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


def smooth_step(value: Layer, low: float, high: float) -> Layer:
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


def soft_ellipse(grid: Grid, x: float, y: float, width: float, height: float, lean: float = 0) -> Layer:
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
    return smooth_step(np.sqrt((dx / width) ** 2 + (dy / height) ** 2), 1 + edge / 2, 1 - edge / 2)


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


# Age, sex, view and chance -> the numbers that a chest is drawn from.

RIGHT, LEFT = -1.0, 1.0  # the patient's side, and the sign of x on the film


@dataclass(frozen=True, slots=True)
class Physique:
    """The numbers of one person on one frontal film. Lengths are fractions of the picture's side."""

    portable: bool
    female: bool
    old: float  # 0 to 30 years, 1 from 90
    young: float  # 1 to 18 years, 0 from 40
    stout: float  # about -1 slim .. 1 stout
    width: float  # of the lungs, from the midline to the ribs
    apex: float  # y of the top of the lungs
    dome: tuple[float, float]  # y of the right and left diaphragm
    heart: float  # times its usual width
    upper: float  # added to the half width of the upper mediastinum
    turn: float  # front of the chest against the spine: how far the patient is rotated
    pull: float  # mediastinum drawn to a side (volume loss)
    bone: float  # density of the ribs
    shoulder: float  # y of the shoulders
    breast: float  # 0 none, about 1
    # How far the aortic arch stands out to the left: it unrolls with the years.
    knob: float


def make_physique(
    portable: bool, female: bool, age: float, patient: np.random.Generator, film: np.random.Generator, loss: float
) -> Physique:
    """`loss` is the volume lost on a side, signed: the diaphragm rises there and the heart follows."""
    old, young = min(1.0, max(0.0, (age - 30) / 60)), min(1.0, max(0.0, (40 - age) / 22))
    a, b = patient.standard_normal(10), film.standard_normal(6)
    a, b = np.clip(a, -2, 2), np.clip(b, -2, 2)
    stout = float(0.45 * a[0] + 0.15 - 0.6 * young)
    dome = 0.685 + 0.018 * float(a[1]) + 0.014 * float(b[0]) + 0.02 * old - 0.045 * portable - 0.015 * max(0.0, stout)
    lower = 0.018 + 0.008 * float(a[2])
    return Physique(
        portable=portable,
        female=female,
        old=old,
        young=young,
        stout=stout,
        width=0.312 + 0.012 * float(a[3]) - 0.018 * female - 0.008 * young,
        apex=0.118 + 0.012 * float(a[4]) + 0.012 * old + 0.012 * portable,
        dome=(dome + 0.06 * min(0.0, loss), dome + lower - 0.06 * max(0.0, loss)),
        heart=1 + 0.07 * float(a[5]) + 0.02 * float(b[1]) - 0.07 * female + 0.16 * portable + 0.1 * old - 0.06 * young,
        upper=0.012 * portable + 0.004 * float(a[6]) + 0.004 * old,
        turn=float(b[2]) * (0.018 if portable else 0.006),
        pull=0.03 * loss,
        bone=(1 - 0.42 * old) * (1 + 0.08 * float(a[7])),
        shoulder=0.1 + 0.012 * float(a[8]) - 0.02 * portable,
        breast=(0.75 + 0.25 * float(a[9])) * female * (1 - 0.3 * young),
        knob=0.062 + 0.016 * old - 0.008 * young,
    )
