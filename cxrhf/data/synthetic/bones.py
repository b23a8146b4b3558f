"""The build of a frontal chest -> its bones as one layer: ribs, clavicles, scapulae, arms, spine, and the trachea.

Ribs are rings that slope forward: seen from the front each is an ellipse, its upper half the back of the rib, its lower
half the front. So all ribs of a side come from one phase that counts ribs downwards.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cxrhf.data.synthetic.anatomy import Chest
from cxrhf.data.synthetic.canvas import Grid, Layer, Point, Strokes, curve, enlarged, rise
from cxrhf.data.synthetic.physique import LEFT, RIGHT, Physique


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
    seen = rise(chest.across, 0.1, 0.2)
    if breaks:
        back, whole = _broken(chest, back, breaks)
        seen = seen * whole
    backs = _rails(back, 0.34, spacing, grid.pixel, dense) * seen
    fronts = _rails(front, 0.46, spacing, grid.pixel, dense[:8]) * rise(u, 0.38, 0.62)
    # Seen edge-on, the ribs of the flank close to a line.
    flank = np.exp(-(((chest.across - 1.02) / 0.03) ** 2))
    flank *= rise(grid.y, build.apex + 0.05, build.apex + 0.15) * rise(grid.y, 0.85, 0.7)
    return build.bone * (rise(chest.across, 1.07, 1.0) * (0.15 * backs + 0.085 * fronts) + 0.07 * flank)


def _broken(chest: Chest, back: Layer, breaks: list[Break]) -> tuple[Layer, Layer]:
    """The ribs' phase with the outer ends dropped, and what to multiply the bone by: 0 in the gap, more beside it."""
    gap, ends = np.zeros_like(back), np.zeros_like(back)
    for each in breaks:
        along = each.side * chest.grid.x / chest.wall - each.out
        near = ((back - each.rib - 0.5) / 0.55) ** 2
        near = each.step * np.exp(-near * near)
        back = back - 0.5 * near * rise(along, -0.012, 0.012) * rise(along, 0.5, 0.0)
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
    band = rise(q, 1 + soft / 2, 1 - soft / 2) * (0.62 + 0.38 * q * q)
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
        band = rise(q, 1 + soft / 2, 1 - soft / 2) * (0.55 + 0.45 * np.minimum(q * q, 1))
        total += band * rise(s * grid.x, 0, 1e-4) * rise(at, 0.026, 0.036) * rise(out, 0.42, 0.4)
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
    body = rise(np.abs(at), 1.25, 0.8)
    phase = grid.y / pitch
    level = np.abs(phase - np.floor(phase) - 0.5) * 2
    plates = rise(level, 0.45, 0.75) - 1.5 * rise(level, 0.82, 0.95)
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
