"""The build of a person -> a simplified lateral chest, the patient facing image left.

Both lungs lie over each other here, so a side cannot be told: signs of either side are drawn the same.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cxrhf.data.synthetic.anatomy import Layers, grow
from cxrhf.data.synthetic.canvas import Grid, Layer, Strokes, bend, clouds, curve, disc, enlarged, rise, spot
from cxrhf.data.synthetic.physique import Physique


@dataclass(slots=True)
class Profile(Layers):
    """A lateral film."""

    front: Layer  # one column: x of the inner side of the sternum at each height
    back: Layer  # one column: x where the lungs end behind
    column: Layer  # one column: x of the middle of the spine


def make_profile(grid: Grid, build: Physique, patient: np.random.Generator) -> Profile:
    x, y = grid.x, grid.y
    barrel, hunch = 0.02 * build.old + 0.02 * build.stout, 0.035 * build.old
    breastbone = [(0.12, -0.08), (0.18, -0.13), (0.3, -0.195 - barrel), (0.5, -0.245 - barrel), (0.75, -0.25)]
    front = curve(y, breastbone, 0.03)
    spine = [(0.0, 0.06), (0.15, 0.11 + hunch), (0.35, 0.19 + hunch), (0.55, 0.215), (0.8, 0.185), (1.0, 0.13)]
    column = curve(y, spine, 0.05)
    back = column + 0.055
    dome, top, soft = build.dome[0] - 0.03, build.apex + 0.01, 0.005 + 2 * grid.pixel
    nearer, farther = _dome(grid, dome), _dome(grid, dome + 0.035)
    roof = [(-0.2, top + 0.2), (-0.1, top + 0.03), (0.0, top), (0.12, top + 0.01), (0.2, top + 0.09), (0.3, top + 0.3)]
    cage = rise(x - front, 0, 0.02) * rise(back - x, 0, 0.03)
    lungs = cage * rise(nearer - y, -soft / 2, soft) * rise(y - curve(x, roof), 0, 0.03)
    # Less shoulder and more lung lies on the way further down.
    depth = curve(y, [(0.1, 0.45), (0.25, 0.62), (0.45, 0.9), (0.8, 1.05)], 0.05)
    depth = depth * (0.75 + 0.25 * rise(np.minimum(x - front, back - x), 0.0, 0.1))
    tissue = enlarged(_body(grid.half(), build), grid.size)
    tissue -= 0.2 * cage * rise(y - nearer, 0, soft) * rise(farther - y, 0, soft)
    tissue -= 0.22 * disc(grid, -0.06 + 0.05 * float(patient.uniform()), dome + 0.085, 0.05, 0.026, 0.4)
    free, markings = 1 - _heart(grid, build), _vessels(grid, patient)
    return Profile(grid, build, tissue, lungs, free, depth, np.zeros_like(lungs), markings, front, back, column)


def _dome(grid: Grid, top: float) -> Layer:
    """One diaphragm: high in front, deep behind. One row."""
    falls = [(-0.3, 0.07), (-0.22, 0.03), (-0.08, 0.0), (0.03, 0.02), (0.14, 0.09), (0.22, 0.17), (0.3, 0.24)]
    return curve(grid.x, [(x, top + fall) for x, fall in falls])


def _heart(grid: Grid, build: Physique) -> Layer:
    """Heart on the diaphragm behind the sternum, great vessels as one arch above it."""
    k, wide = 0.3 + 0.7 * build.heart, build.upper
    x, y = -0.14 + 0.1 * (k - 1), build.dome[0] - 0.085
    heart = 0.62 * disc(grid, x, y, 0.16 * k, 0.115 * k, 0.45, lean=0.5)
    heart = np.maximum(heart, 0.5 * disc(grid, x + 0.015, y - 0.075 * k, 0.1 * k, 0.085 * k, 0.7, lean=0.3))
    rough = grid.half()
    strokes = Strokes(rough)
    arch = [(-0.075, 0.47), (-0.07, 0.37), (-0.025, 0.315), (0.04, 0.325), (0.075, 0.4), (0.095, 0.55), (0.1, 0.75)]
    path = bend(arch)
    strokes.line(path[:34], 0.05 + 1.6 * wide, 0.7)
    strokes.line(path[30:], 0.045 + 0.6 * wide, 0.4)
    vessels = (0.34 + 2.5 * wide) * strokes.layer(0.009) + 0.45 * spot(rough, 0.0, 0.44, 0.035, 0.045)
    return np.clip(np.maximum(heart, enlarged(vessels, grid.size)), 0, 0.92)


def _body(grid: Grid, build: Physique) -> Layer:
    x, y = grid.x, grid.y
    fat, hump = 0.02 * build.stout, 0.03 * build.old
    chest = [(0.0, -0.13), (0.1, -0.13), (0.18, -0.19), (0.3, -0.25 - fat), (0.5, -0.3 - fat), (1.0, -0.29 - 2 * fat)]
    breast = curve(y, [(0.36, 0.0), (0.46, 0.035), (0.54, 0.07), (0.59, 0.06), (0.64, 0.0)], 0.03)
    skin = curve(y, chest, 0.03) - build.breast * breast
    loin = [(0.0, 0.16), (0.12, 0.24 + hump), (0.35, 0.315 + hump + fat), (0.6, 0.32 + fat), (1.0, 0.26)]
    inside = np.clip(np.minimum(x - skin, curve(y, loin, 0.04) - x) / 0.14, 0, 1)
    level = curve(y, [(0.0, 0.85), (0.15, 1.25), (0.3, 1.12), (0.6, 1.08), (0.8, 1.35), (1.0, 1.5)], 0.05)
    body = np.sqrt(inside) * level * (1 + 0.08 * build.stout)
    # Raised arms cross the upper corners.
    for sign, root in ((-1.0, -0.1), (1.0, 0.14)):
        lean = (x - root) * sign
        arm = np.sqrt(np.clip(1 - np.abs(y - 0.14 + lean) / 0.14, 0, 1)) * rise(lean, -0.05, 0.05)
        body = np.maximum(body, 0.75 * arm)
    return body


def _vessels(grid: Grid, patient: np.random.Generator) -> Layer:
    strokes = Strokes(grid)
    fan = np.linspace(-2.6, 3.2, 11) + 0.2 * patient.standard_normal(11)
    for width, path in sorted(grow(patient, (0.0, 0.44), fan, 1.0, 0.008, 4), key=lambda each: each[0]):
        strokes.line(path, width, 0.2 + 55 * width)
    return strokes.layer(0.002) + 0.06 * clouds(patient, grid, 0.02)


def lateral_bones(profile: Profile, broken: float, patient: np.random.Generator) -> Layer:
    """Spine, ribs, sternum and shoulders, and the dark windpipe. `broken` (0..1) sets ribs apart."""
    grid, build = profile.grid, profile.build
    x, y = grid.x, grid.y
    at = (x - profile.column) / (0.036 + 0.006 * y)
    phase = y / 0.062 + 0.25 * at + float(patient.uniform())
    level = np.abs(phase - np.floor(phase) - 0.5) * 2
    plates = np.exp(-(((level - 0.72) / 0.1) ** 2))
    blocks = rise(np.abs(at), 1.15, 0.9) * (0.16 * rise(level, 0.92, 0.78) + 0.05 * plates)
    arches = 0.08 * np.exp(-(((x - profile.column - 0.062) / 0.022) ** 2)) * (0.5 + 0.5 * level)
    plate = np.exp(-(((x - profile.front + 0.012) / 0.011) ** 2)) * rise(y, 0.17, 0.25) * rise(y, 0.62, 0.58)
    rough = grid.half()
    air, joint = Strokes(rough), Strokes(rough)
    air.line([(0.0, 0.0), (0.012, 0.15), (0.03, 0.38)], 0.034, 0.9)
    air.dot((0.032, 0.41), 0.016, 0.9)
    for sign, px in ((-1.0, -0.04), (1.0, 0.1)):
        joint.line([(px, 0.19), (px + sign * 0.09, 0.1), (px + sign * 0.2, -0.03)], 0.034, 0.7)
        joint.dot((px, 0.19), 0.036, 0.7)
    hard = 0.72 + 0.28 * build.bone
    soft = enlarged(0.2 * hard * joint.layer(0.003) - 0.2 * air.layer(0.003), grid.size)
    return hard * (blocks + arches + 0.14 * plate) + 0.04 * build.bone * _ribs(profile, broken) + soft


def _ribs(profile: Profile, broken: float) -> Layer:
    """Ribs fall forward from the spine; those of both sides cross the lungs."""
    x, y = profile.grid.x, profile.grid.y
    fall = profile.column - x
    ribs = np.zeros_like(fall)
    for slope, start in ((0.62, 0.0), (0.56, 0.45)):
        count = (y - slope * fall - 0.4 * fall * fall) / 0.058 + start
        if broken:
            crack = np.exp(-(((fall - 0.16) / 0.1) ** 2)) * np.exp(-(((count - 6.5) / 1.6) ** 2))
            gap = broken * crack * np.exp(-(((fall - 0.145) / 0.008) ** 2))
            count = count - 0.45 * broken * crack * rise(fall, 0.14, 0.15)
            ribs -= gap
        ribs += rise(np.abs(count - np.floor(count) - 0.5), 0.19, 0.1)
    return (
        ribs * rise(x - profile.front, 0.02, 0.12) * rise(fall, -0.05, 0.0) * rise(y, 0.16, 0.26) * rise(y, 0.95, 0.8)
    )
