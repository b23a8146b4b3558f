"""Age, sex and seeds -> a simplified lateral chest, the patient facing image left, with its signs.

Both lungs lie over each other here, so a side cannot be told: signs of either side are drawn the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from cxrhf.data.synthetic.anatomy import Build, Layers, grow
from cxrhf.data.synthetic.canvas import (
    Grid,
    Layer,
    Point,
    Strokes,
    bend,
    clouds,
    curve,
    disc,
    enlarged,
    make_grid,
    rise,
    spot,
)
from cxrhf.data.synthetic.signs import Streams, streams


@dataclass(slots=True)
class Profile(Layers):
    """A lateral film."""

    front: Layer  # one column: x of the inner side of the sternum at each height
    back: Layer  # one column: x where the lungs end behind
    floor: Layer  # one row: y of the diaphragm
    column: Layer  # one column: x of the middle of the spine


def make_profile(grid: Grid, build: Build, severity: Mapping[str, float], patient: np.random.Generator) -> Profile:
    x, y, old = grid.x, grid.y, build.old
    barrel = 0.02 * old + 0.02 * build.stout
    front = curve(
        y, [(0.12, -0.08), (0.18, -0.13), (0.3, -0.195 - barrel), (0.5, -0.245 - barrel), (0.75, -0.25)], 0.03
    )
    hunch = 0.035 * old
    column = curve(
        y, [(0.0, 0.06), (0.15, 0.11 + hunch), (0.35, 0.19 + hunch), (0.55, 0.215), (0.8, 0.185), (1.0, 0.13)], 0.05
    )
    back = column + 0.055
    dome = build.dome[0] - 0.03
    lift = 0.05 * severity.get("atelectasis", 0.0)
    floor = curve(
        x,
        [
            (-0.3, dome + 0.07),
            (-0.22, dome + 0.03),
            (-0.08, dome - lift),
            (0.03, dome + 0.02 - lift),
            (0.14, dome + 0.09),
            (0.22, dome + 0.17),
            (0.3, dome + 0.24),
        ],
    )
    soft = 0.005 + 2 * grid.pixel
    top = build.apex + 0.01
    roof = curve(
        x, [(-0.2, top + 0.2), (-0.1, top + 0.03), (0.0, top), (0.12, top + 0.01), (0.2, top + 0.09), (0.3, top + 0.3)]
    )
    lungs = (
        rise(x - front, 0, 0.02) * rise(back - x, 0, 0.03) * rise(floor - y, -soft / 2, soft) * rise(y - roof, 0, 0.03)
    )
    # Less shoulder and more lung lies on the way further down.
    depth = curve(y, [(0.1, 0.45), (0.25, 0.62), (0.45, 0.9), (0.8, 1.05)], 0.05)
    depth = depth * (0.75 + 0.25 * rise(np.minimum(x - front, back - x), 0.0, 0.1))
    free = 1 - _heart(grid, build)
    other = curve(
        x, [(-0.3, dome + 0.11), (-0.08, dome + 0.03), (0.03, dome + 0.055), (0.14, dome + 0.12), (0.26, dome + 0.25)]
    )
    tissue = enlarged(_body(make_grid(grid.size // 2), build), grid.size)
    between = rise(y - floor, 0, soft) * rise(other - y, 0, soft) * rise(back - x, 0, 0.03) * rise(x - front, 0, 0.02)
    gas = 0.22 * disc(grid, -0.06 + 0.05 * float(patient.uniform()), dome + 0.075, 0.05, 0.028, 0.4)
    tissue = tissue - 0.2 * between - gas
    markings = _vessels(grid, patient)
    return Profile(grid, build, tissue, lungs, free, depth, np.zeros_like(lungs), markings, front, back, floor, column)


def _heart(grid: Grid, build: Build) -> Layer:
    """Heart on the diaphragm behind the sternum, great vessels as one arch above it."""
    k, wide = build.heart, build.upper
    x, y = -0.135 + 0.06 * (k - 1), build.dome[0] - 0.1
    long, short = 0.15 * (0.3 + 0.7 * k), 0.112 * (0.3 + 0.7 * k)
    heart = disc(grid, x, y, long, short, 0.35, lean=0.6) * (0.5 + 0.22 * spot(grid, x, y, long, short, lean=0.6))
    strokes = Strokes(grid)
    arch = bend(
        [(-0.075, 0.47), (-0.07, 0.37), (-0.025, 0.315), (0.04, 0.325), (0.075, 0.4), (0.095, 0.55), (0.1, 0.75)]
    )
    strokes.line(arch[:34], 0.05 + 1.6 * wide, 0.7)
    strokes.line(arch[30:], 0.045 + 0.6 * wide, 0.4)
    vessels = (0.34 + 2.5 * wide) * strokes.layer(0.009)
    root = 0.45 * spot(grid, 0.0, 0.44, 0.035, 0.045)
    return np.clip(np.maximum(heart, vessels) + root, 0, 0.92)


def _body(grid: Grid, build: Build) -> Layer:
    x, y, stout = grid.x, grid.y, build.stout
    thin = 0.02 * stout
    chest = [
        (0.0, -0.13),
        (0.1, -0.13),
        (0.18, -0.19),
        (0.3, -0.25 - thin),
        (0.5, -0.3 - thin),
        (0.8, -0.3 - 2 * thin),
        (1.0, -0.29),
    ]
    skin = curve(y, chest, 0.03)
    hump = 0.03 * build.old
    spine = curve(
        y, [(0.0, 0.16), (0.12, 0.24 + hump), (0.35, 0.315 + hump + thin), (0.6, 0.32 + thin), (1.0, 0.26)], 0.04
    )
    inside = np.clip(np.minimum(x - skin, spine - x) / 0.14, 0, 1)
    level = curve(y, [(0.0, 0.85), (0.15, 1.25), (0.3, 1.12), (0.6, 1.08), (0.8, 1.35), (1.0, 1.5)], 0.05)
    body = np.sqrt(inside) * level * (1 + 0.08 * stout)
    # Raised arms cross the upper corners.
    for sign, root in ((-1.0, -0.12), (1.0, 0.16)):
        lean = (x - root) * sign
        body = np.maximum(
            body, 0.7 * np.sqrt(np.clip(1 - np.abs(y - 0.14 + 1.0 * lean) / 0.13, 0, 1)) * rise(lean, -0.05, 0.05)
        )
    if build.breast:
        r = 0.085 + 0.03 * build.breast
        q = np.sqrt(((x + 0.27 + thin) / (1.0 * r)) ** 2 + ((y - 0.55 - 0.15 * (x + 0.27)) / r) ** 2)
        body = body + 0.34 * build.breast * rise(q, 1.04, 0.94) * np.sqrt(np.clip(1.1 - q * q, 0, 1)) * rise(x - skin, 0.07, -0.03)
    return body


def _vessels(grid: Grid, patient: np.random.Generator) -> Layer:
    strokes = Strokes(grid)
    drawn: list[tuple[float, list[Point]]] = []
    for angle in np.linspace(-2.6, 3.2, 11) + 0.2 * patient.standard_normal(11):
        grow(drawn, patient, (0.0, 0.44), float(angle), 1.0, 0.008, 0.055, 4)
    for width, path in sorted(drawn, key=lambda each: each[0]):
        strokes.line(path, width, 0.2 + 55 * width)
    return strokes.layer(0.002) + 0.06 * clouds(patient, grid, 0.02)


def lateral_bones(profile: Profile, broken: float, patient: np.random.Generator) -> Layer:
    grid, build = profile.grid, profile.build
    x, y, pitch = grid.x, grid.y, 0.062
    at = (x - profile.column) / (0.036 + 0.006 * y)
    phase = y / pitch + 0.25 * at + float(patient.uniform())
    level = np.abs(phase - np.floor(phase) - 0.5) * 2
    blocks = rise(np.abs(at), 1.15, 0.9) * (
        0.16 * rise(level, 0.92, 0.78) + 0.05 * np.exp(-(((level - 0.72) / 0.1) ** 2))
    )
    arches = 0.08 * np.exp(-(((x - profile.column - 0.062) / 0.022) ** 2)) * (0.5 + 0.5 * level)
    # Ribs fall forward from the spine; those of both sides cross the lungs.
    fall = profile.column - x
    ribs = np.zeros_like(blocks)
    for slope, start in ((0.62, 0.0), (0.56, 0.45)):
        count = (y - slope * fall - 0.4 * fall * fall) / 0.058 + start
        crack = np.exp(-(((fall - 0.16) / 0.1) ** 2)) * np.exp(-(((count - 6.5) / 1.6) ** 2))
        count = count - 0.45 * broken * crack * rise(fall, 0.14, 0.15)
        q = np.abs(count - np.floor(count) - 0.5) * 2
        ribs += rise(q, 0.36 + 0.02, 0.2) * (1 - broken * crack * np.exp(-(((fall - 0.145) / 0.008) ** 2)))
    ribs *= rise(x - profile.front, 0.02, 0.12) * rise(fall, -0.05, 0.0) * rise(y, 0.16, 0.26) * rise(y, 0.95, 0.8)
    plate = np.exp(-(((x - profile.front + 0.012) / 0.011) ** 2)) * rise(y, 0.2, 0.23) * rise(y, 0.62, 0.58)
    air = Strokes(grid)
    air.line([(0.0, 0.0), (0.012, 0.15), (0.03, 0.38)], 0.034, 0.9)
    air.dot((0.032, 0.41), 0.016, 0.9)
    joint = Strokes(grid)
    for s, px in ((-1.0, -0.04), (1.0, 0.1)):
        joint.line([(px, 0.19), (px + s * 0.09, 0.1), (px + s * 0.2, -0.03)], 0.034, 0.7)
        joint.dot((px, 0.19), 0.036, 0.7)
    bone = 0.72 + 0.28 * build.bone
    return (
        bone * (blocks + arches + 0.2 * joint.layer(0.003) + 0.14 * plate)
        + 0.04 * build.bone * ribs
        - 0.2 * air.layer(0.003)
    )


def add_lateral_signs(profile: Profile, severity: Mapping[str, float], patient_seed: int, seed: int) -> None:
    for finding, sign in SIGNS.items():
        if severity.get(finding, 0.0) > 0:
            sign(profile, severity[finding], streams(patient_seed, seed, finding))


def _fog(
    x: float, y: float, width: float, height: float, most: float, lump: float
) -> Callable[[Profile, float, Streams], None]:
    """A white area of a given place; findings differ in place, size, density and lumps."""

    def sign(profile: Profile, severity: float, rngs: Streams) -> None:
        grid, film = profile.grid, rngs[1]
        at = (x + float(film.normal(0, 0.015)), y + float(film.normal(0, 0.015)))
        grown = 0.8 + 0.35 * severity
        lumps = 1 + lump * clouds(film, grid, 0.04)
        profile.cover(most * severity * spot(grid, *at, width * grown, height * grown) * lumps)

    return sign


def _patches(profile: Profile, severity: float, rngs: Streams) -> None:
    for x, y in zip(rngs[0].uniform(-0.18, 0.18, 4), rngs[1].uniform(0.28, 0.68, 4), strict=True):
        profile.cover(0.55 * severity * spot(profile.grid, float(x), float(y), 0.055, 0.05))


def _nodule(profile: Profile, severity: float, rngs: Streams) -> None:
    x, y = (float(v) for v in rngs[0].uniform((-0.15, 0.3), (0.15, 0.55)))
    ball = disc(profile.grid, x, y, 0.014 + 0.034 * severity, 0.014 + 0.034 * severity, 0.3)
    profile.tissue = profile.tissue + (0.12 + 0.22 * severity) * ball * profile.lungs


def _plates(profile: Profile, severity: float, rngs: Streams) -> None:
    plates = Strokes(profile.grid)
    for i in range(3):
        y = profile.build.dome[0] - 0.09 - 0.04 * i
        path = [(-0.06 + 0.03 * i, y), (0.03 + 0.03 * i, y + 0.01), (0.13, y + 0.03)]
        plates.line(path, 0.008 + 0.007 * severity, min(1.0, max(0.0, 2.4 * severity - 0.7 * i)))
    profile.tissue = profile.tissue + 0.28 * plates.layer(0.0025) * profile.lungs


def _fluid(profile: Profile, severity: float, rngs: Streams) -> None:
    """Fluid fills the deep angle behind first, then climbs along the spine."""
    grid = profile.grid
    level = profile.build.dome[0] + 0.16 - 0.36 * severity
    behind = np.clip((grid.x - profile.front) / (profile.back - profile.front), 0, 1)
    surface = level - (0.05 + 0.1 * severity) * (behind**4 + 0.5 * (1 - behind) ** 6)
    profile.cover(0.9 * rise(grid.y - surface, -0.02, 0.02))


def _free_air(profile: Profile, severity: float, rngs: Streams) -> None:
    """Air gathers behind the sternum and at the top: black, without vessels, with a fine line."""
    grid = profile.grid
    reach = 0.03 + 0.1 * severity
    inner = np.minimum(grid.x - profile.front, 0.8 * (grid.y - profile.build.apex - 0.03) + 0.3 * (grid.x + 0.1))
    bare = rise(inner, reach + 0.004, reach - 0.004) * min(1.0, 6 * severity)
    line = np.exp(-(((inner - reach) / (0.003 + grid.pixel)) ** 2))
    profile.markings = profile.markings * (1 - bare)
    profile.depth = profile.depth * (1 + 0.25 * bare)
    profile.tissue = profile.tissue + 0.1 * min(1.0, 6 * severity) * line * profile.lungs


def _rind(profile: Profile, severity: float, rngs: Streams) -> None:
    ragged = 1 + 0.2 * clouds(rngs[0], profile.grid, 0.08)
    thick = (0.015 + 0.035 * severity) * ragged
    profile.cover((0.3 + 0.4 * severity) * rise(profile.grid.x - profile.back + 0.055 + thick, 0, 0.01))


SIGNS: dict[str, Callable[[Profile, float, Streams], None]] = {
    "lung_opacity": _patches,
    "lung_lesion": _nodule,
    "edema": _fog(0.01, 0.48, 0.16, 0.17, 0.6, 0.2),
    "consolidation": _fog(0.1, 0.64, 0.1, 0.11, 0.97, 0.05),
    "pneumonia": _fog(0.04, 0.58, 0.1, 0.075, 0.8, 0.25),
    "atelectasis": _plates,
    "pneumothorax": _free_air,
    "pleural_effusion": _fluid,
    "pleural_other": _rind,
}
