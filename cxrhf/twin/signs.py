"""A finding and its severity -> the layers of a frontal chest changed as the finding changes them.

Severity 0 leaves every pixel alone and more is always more to see. The side of a sign comes from the patient's stream,
its details from the film's: a nodule stays where it is, a pneumonia may come back elsewhere.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

import numpy as np

from cxrhf.twin.anatomy import (
    LEFT,
    RIGHT,
    Break,
    Chest,
    Grid,
    Layer,
    Layers,
    Physique,
    Point,
    Strokes,
    bend,
    clouds,
    curve,
    disc,
    enlarged,
    grow_vessels,
    smooth_step,
    soft_ellipse,
)

Streams = tuple[np.random.Generator, np.random.Generator]  # of the patient, of the film
Sign = Callable[[Chest, float, Streams], None]
# The order of this table is part of the seeds: add at its end only.
ORDER = (
    "enlarged_cardiomediastinum",
    "cardiomegaly",
    "lung_opacity",
    "lung_lesion",
    "edema",
    "consolidation",
    "pneumonia",
    "atelectasis",
    "pneumothorax",
    "pleural_effusion",
    "pleural_other",
    "fracture",
)


def streams(patient_seed: int, seed: int, finding: str) -> Streams:
    which = 100 + ORDER.index(finding)
    return np.random.default_rng([patient_seed, which]), np.random.default_rng([patient_seed, which, seed])


def side_of(patient_seed: int, finding: str) -> float:
    """The patient's side that a finding takes: -1 right (image left), 1 left."""
    return pick_side(streams(patient_seed, 0, finding)[0])


def pick_side(rng: np.random.Generator) -> float:
    return RIGHT if rng.uniform() < 0.55 else LEFT


def add_signs(chest: Chest, severity: Mapping[str, float], patient_seed: int, seed: int) -> None:
    for finding, sign in SIGNS.items():
        if severity.get(finding, 0.0) > 0:
            sign(chest, severity[finding], streams(patient_seed, seed, finding))


def breaks_of(severity: float, patient_seed: int) -> list[Break]:
    """Up to three neighbouring ribs broken, one after the other as severity grows."""
    if severity <= 0:
        return []
    rng = streams(patient_seed, 0, "fracture")[0]
    side, first = pick_side(rng), int(rng.integers(3, 6))
    out = 0.5 + 0.2 * float(rng.uniform())
    steps = [min(1.0, max(0.0, 2.5 * severity - 0.55 * i)) for i in range(3)]
    return [Break(side, first + i, out + 0.03 * i, step) for i, step in enumerate(steps) if step > 0]


def fade_in(severity: float) -> float:
    """0 to 1 over the first quarter, for signs of a least size: next to no severity is next to nothing to see."""
    return min(1.0, 4 * severity)


def early_rise(severity: float) -> float:
    """0 to 1, faster at first: a little fluid or fog shows, where a heart a little wider is only a wide heart."""
    return float(severity**0.7)


def half_plane(chest: Chest, side: float) -> Layer:
    """1 on a side of the midline: one row."""
    return smooth_step(side * chest.grid.x, -0.002, 0.002)


def _lung_opacity(chest: Chest, severity: float, rngs: Streams) -> None:
    """Patches here and there, both sides, with ragged edges."""
    patient, film = rngs
    ragged = 0.6 * clouds(film, chest.grid, 0.045) + 0.4 * clouds(film, chest.grid, 0.11)
    total = np.zeros_like(chest.full)
    count, size = 6, 0.045 + 0.04 * severity
    # Three a side, in the outer middle of the lungs.
    for i, x, y in zip(range(count), patient.uniform(0.15, 0.26, count), film.uniform(0.3, 0.52, count), strict=True):
        total += soft_ellipse(chest.grid, float((-1) ** i * x), float(y), size, 0.9 * size)
    chest.cover(0.9 * severity * smooth_step(total + 0.35 * ragged * np.minimum(total, 1), 0.2, 0.9))


def _lung_lesion(chest: Chest, severity: float, rngs: Streams) -> None:
    """One round mass with a slightly lobed rim."""
    rng, grid = rngs[0], chest.grid
    side = pick_side(rng)
    x, y = side * float(rng.uniform(0.15, 0.2)), float(rng.uniform(0.28, 0.4))
    radius = 0.034 + 0.05 * severity
    dx, dy = grid.x - x, grid.y - y
    angle = np.arctan2(dy, dx)
    a, b = (float(v) for v in rng.uniform(0, 6.3, 2))
    rim = radius * (1 + 0.06 * np.sin(2 * angle + a) + 0.03 * np.sin(5 * angle + b))
    q = np.sqrt(dx * dx + dy * dy) / rim
    ball = smooth_step(q, 1.12, 0.85) * (0.55 + 0.45 * np.sqrt(np.clip(1 - q * q, 0, 1)))
    chest.tissue = chest.tissue + 0.65 * early_rise(severity) * ball * chest.lungs


def _edema(chest: Chest, severity: float, rngs: Streams) -> None:
    """Haze around the hila like wings, thick vessels, short level lines near the ribs."""
    grid, film = chest.grid, rngs[1]
    haze = np.zeros_like(chest.full)
    for hx, hy in chest.hila:
        haze += soft_ellipse(grid, 1.35 * hx, hy + 0.05, 0.1, 0.17, lean=-0.35 * math.copysign(1, hx))
    lumps = 1 + 0.22 * clouds(film, grid, 0.05) + 0.12 * clouds(film, grid, 0.02)
    chest.cover(severity * (0.72 * haze * lumps + 0.14))
    chest.markings = chest.markings * (1 + 1.3 * severity)
    lines = Strokes(grid)
    for side in (RIGHT, LEFT):
        for i in range(9):
            y = chest.build.dome[0] - 0.02 - 0.017 * i + 0.004 * float(film.standard_normal())
            out = float(np.interp(y, grid.y[:, 0], chest.wall[:, 0])) - 0.008
            long = 0.03 + 0.02 * float(film.uniform())
            lines.line([(side * out, y), (side * (out - long), y + 0.003)], 0.003, 0.9)
    chest.tissue = chest.tissue + 0.16 * severity * lines.layer() * chest.lungs


def _consolidation(chest: Chest, severity: float, rngs: Streams) -> None:
    """A lobe turned white up to its fissure, with the bronchi left dark in it."""
    patient, film = rngs
    grid, side = chest.grid, pick_side(patient)
    upper = bool(film.uniform() < 0.75)  # pneumonia has the lower lobe
    fissure = (0.44 if side == RIGHT else 0.47) + 0.01 * float(film.standard_normal())
    slant = fissure - 0.25 * (side * grid.x - 0.15) * (1 if upper else -1)
    edge = 0.006 + grid.pixel
    above = smooth_step(slant - grid.y, -edge, edge)
    y = 0.31 if upper else 0.6
    lobe = (above if upper else 1 - above) * half_plane(chest, side)
    lumps = 0.16 * clouds(film, grid, 0.06) + 0.1 * clouds(film, grid, 0.025)
    reach = 0.1 + 0.035 * severity
    white = lobe * smooth_step(1.6 * soft_ellipse(grid, side * 0.18, y, 1.3 * reach, reach) + lumps, 0.15, 0.85)
    tubes = Strokes(grid)
    hx, hy = chest.hila[0 if side == RIGHT else 1]
    fan = np.array([-0.9, -0.45] if upper else [0.5, 0.95, 1.3])
    for width, path in grow_vessels(film, (hx, hy), fan, side, 0.0085, 4):
        tubes.line(path, width, 0.8)
    chest.cover(0.97 * early_rise(severity) * white * (1 - 0.45 * tubes.layer(0.0015)))


def _pneumonia(chest: Chest, severity: float, rngs: Streams) -> None:
    """A segment of the lower lobe fogged without an edge."""
    patient, film = rngs
    grid, side = chest.grid, pick_side(patient)
    x, y = side * float(film.uniform(0.14, 0.17)), float(film.uniform(0.54, 0.58))
    wedge = soft_ellipse(grid, x, y, 0.1 + 0.04 * severity, 0.085 + 0.04 * severity, lean=0.6 * side)
    wedge = np.maximum(wedge, 0.55 * soft_ellipse(grid, x * 0.72, y - 0.05, 0.05, 0.07, lean=-0.7 * side))
    lumps = 1 + 0.22 * clouds(film, grid, 0.035) + 0.12 * clouds(film, grid, 0.014)
    chest.cover(1.3 * early_rise(severity) * wedge * lumps)


def _atelectasis(chest: Chest, severity: float, rngs: Streams) -> None:
    """Plates across the base; the lost volume (diaphragm, heart) is in the build."""
    patient, film = rngs
    grid, side = chest.grid, pick_side(patient)
    base = chest.build.dome[0 if side == RIGHT else 1]
    plates = Strokes(grid)
    for i in range(3):
        y = base - 0.045 - 0.036 * i - 0.008 * float(film.uniform())
        x, long = side * (0.1 + 0.03 * i), 0.11 + 0.04 * float(film.uniform())
        tilt = float(film.normal(0.0, 0.012))
        path = [(x, y + tilt), (x + side * long / 2, y - 0.004), (x + side * long, y - tilt)]
        plates.line(path, 0.01 + 0.012 * severity, min(1.0, max(0.0, 2.4 * severity - 0.7 * i)))
    chest.tissue = chest.tissue + 0.36 * plates.layer(0.0025) * chest.lungs * chest.free
    veil = smooth_step(grid.y, base - 0.16, base) * smooth_step(chest.across, 1.0, 0.3) * half_plane(chest, side)
    chest.cover(0.5 * severity * veil)


def _pneumothorax(chest: Chest, severity: float, rngs: Streams) -> None:
    """The lung shrinks to its hilum: a fine line, and beyond it blackness without vessels."""
    side, grid = pick_side(rngs[0]), chest.grid
    keep = 1 - 0.1 * fade_in(severity) - 0.34 * severity
    x0, y0 = 0.08, chest.build.dome[0] - 0.05
    wall = np.interp(y0 + (grid.y[:, 0] - y0) / keep, grid.y[:, 0], chest.wall[:, 0]).astype(np.float32)[:, None]
    wall = np.maximum(wall, 0.004)
    out = (x0 + (side * grid.x - x0) / keep) / wall
    edge = 0.012 + 1.5 * grid.pixel
    bare = smooth_step(out, 1 - edge, 1 + edge) * half_plane(chest, side)
    line = np.exp(-(((out - 1) / (0.018 + 2.5 * grid.pixel)) ** 2)) * half_plane(chest, side)
    chest.markings = chest.markings * (1 - bare)
    chest.full = chest.full * (1 - bare)
    chest.depth = chest.depth * (1 + 0.22 * bare) - 0.12 * severity * half_plane(chest, side) * (1 - bare)
    chest.tissue = chest.tissue + fade_in(severity) * (0.07 + 0.04 * severity) * line * chest.lungs * chest.free


def _pleural_effusion(chest: Chest, severity: float, rngs: Streams) -> None:
    """Fluid that blunts the angle, then climbs with a meniscus; in bed it also veils the lung from behind."""
    patient, film = rngs
    side, both = pick_side(patient), patient.uniform() < 0.25
    much = early_rise(severity)
    for each, amount in ((side, much), (-side, 0.6 * much * both)):
        if not amount:
            continue
        dome = chest.build.dome[0 if each == RIGHT else 1]
        level = dome + 0.115 - 0.41 * amount + 0.008 * float(film.standard_normal())
        climb = 0.05 + 0.075 * amount
        edge = np.minimum(chest.across, 1) ** 2
        surface = level - climb * edge * edge + 0.3 * climb * smooth_step(chest.across, 0.1, 0.6)
        soft = 0.012 + 0.012 * amount
        fluid = smooth_step(chest.grid.y - surface, -soft, soft) * half_plane(chest, each)
        veil = (
            0.26 * amount * smooth_step(chest.grid.y, 0.2, 0.65) * half_plane(chest, each)
            if chest.build.portable
            else 0.0
        )
        chest.cover(np.maximum(0.97 * fluid, veil))


def _pleural_other(chest: Chest, severity: float, rngs: Streams) -> None:
    """A thickened pleura along the ribs and over the apex, with plaques that hold lime."""
    rng, grid = rngs[0], chest.grid
    side = pick_side(rng)
    ragged = 1 + 0.2 * clouds(rng, grid, 0.08)
    build = chest.build
    thick = (0.05 + 0.12 * severity) * ragged
    rind = smooth_step(chest.across - 1 + thick, -0.02, 0.02)
    cap = smooth_step(build.apex + (0.012 + 0.055 * severity) * ragged - grid.y, -0.006, 0.006)
    chest.cover((0.3 + 0.4 * severity) * fade_in(severity) * np.maximum(rind, cap) * half_plane(chest, side))
    lime = (
        smooth_step(clouds(rng, grid, 0.035), 0.9, 1.5)
        * smooth_step(chest.across, 0.55, 0.85)
        * half_plane(chest, side)
    )
    chest.tissue = chest.tissue + 0.22 * severity * lime * chest.lungs * smooth_step(grid.y, 0.35, 0.5)


# What the heart's outline, the diaphragm and the ribs show is drawn with them: see films.py.
SIGNS: dict[str, Sign] = {
    "lung_opacity": _lung_opacity,
    "lung_lesion": _lung_lesion,
    "edema": _edema,
    "consolidation": _consolidation,
    "pneumonia": _pneumonia,
    "atelectasis": _atelectasis,
    "pneumothorax": _pneumothorax,
    "pleural_effusion": _pleural_effusion,
    "pleural_other": _pleural_other,
}


# The build of a person -> a simplified lateral chest, the patient facing image left.
#
# Both lungs lie over each other here, so a side cannot be told: signs of either side are drawn the same.


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
    cage = smooth_step(x - front, 0, 0.02) * smooth_step(back - x, 0, 0.03)
    lungs = cage * smooth_step(nearer - y, -soft / 2, soft) * smooth_step(y - curve(x, roof), 0, 0.03)
    # Less shoulder and more lung lies on the way further down.
    depth = curve(y, [(0.1, 0.45), (0.25, 0.62), (0.45, 0.9), (0.8, 1.05)], 0.05)
    depth = depth * (0.75 + 0.25 * smooth_step(np.minimum(x - front, back - x), 0.0, 0.1))
    tissue = enlarged(_body(grid.half(), build), grid.size)
    tissue -= 0.2 * cage * smooth_step(y - nearer, 0, soft) * smooth_step(farther - y, 0, soft)
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
    vessels = (0.34 + 2.5 * wide) * strokes.layer(0.009) + 0.45 * soft_ellipse(rough, 0.0, 0.44, 0.035, 0.045)
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
        arm = np.sqrt(np.clip(1 - np.abs(y - 0.14 + lean) / 0.14, 0, 1)) * smooth_step(lean, -0.05, 0.05)
        body = np.maximum(body, 0.75 * arm)
    return body


def _vessels(grid: Grid, patient: np.random.Generator) -> Layer:
    strokes = Strokes(grid)
    fan = np.linspace(-2.6, 3.2, 11) + 0.2 * patient.standard_normal(11)
    for width, path in sorted(grow_vessels(patient, (0.0, 0.44), fan, 1.0, 0.008, 4), key=lambda each: each[0]):
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
    blocks = smooth_step(np.abs(at), 1.15, 0.9) * (0.16 * smooth_step(level, 0.92, 0.78) + 0.05 * plates)
    arches = 0.08 * np.exp(-(((x - profile.column - 0.062) / 0.022) ** 2)) * (0.5 + 0.5 * level)
    plate = (
        np.exp(-(((x - profile.front + 0.012) / 0.011) ** 2)) * smooth_step(y, 0.17, 0.25) * smooth_step(y, 0.62, 0.58)
    )
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
            count = count - 0.45 * broken * crack * smooth_step(fall, 0.14, 0.15)
            ribs -= gap
        ribs += smooth_step(np.abs(count - np.floor(count) - 0.5), 0.19, 0.1)
    return (
        ribs
        * smooth_step(x - profile.front, 0.02, 0.12)
        * smooth_step(fall, -0.05, 0.0)
        * smooth_step(y, 0.16, 0.26)
        * smooth_step(y, 0.95, 0.8)
    )


# A finding and its severity -> the layers of a lateral chest changed as the finding changes them.

LateralSign = Callable[[Profile, float, Streams], None]


def add_lateral_signs(profile: Profile, severity: Mapping[str, float], patient_seed: int, seed: int) -> None:
    for finding, sign in LATERAL_SIGNS.items():
        if severity.get(finding, 0.0) > 0:
            sign(profile, severity[finding], streams(patient_seed, seed, finding))


def _fog(x: float, y: float, width: float, height: float, most: float, lump: float) -> LateralSign:
    """A white area of a given place; findings differ in place, size, density and lumps."""

    def sign(profile: Profile, severity: float, rngs: Streams) -> None:
        grid, film = profile.grid, rngs[1]
        at = (x + float(film.normal(0, 0.015)), y + float(film.normal(0, 0.015)))
        grown = 0.8 + 0.35 * severity
        lumps = 1 + lump * clouds(film, grid, 0.04)
        profile.cover(most * severity * soft_ellipse(grid, *at, width * grown, height * grown) * lumps)

    return sign


def _patches(profile: Profile, severity: float, rngs: Streams) -> None:
    for x, y in zip(rngs[0].uniform(-0.18, 0.18, 4), rngs[1].uniform(0.28, 0.68, 4), strict=True):
        profile.cover(0.7 * severity * soft_ellipse(profile.grid, float(x), float(y), 0.06, 0.055))


def _nodule(profile: Profile, severity: float, rngs: Streams) -> None:
    x, y = (float(v) for v in rngs[0].uniform((-0.15, 0.3), (0.15, 0.55)))
    ball = disc(profile.grid, x, y, 0.034 + 0.05 * severity, 0.034 + 0.05 * severity, 0.3)
    profile.tissue = profile.tissue + 0.65 * early_rise(severity) * ball * profile.lungs


def _plates(profile: Profile, severity: float, rngs: Streams) -> None:
    plates = Strokes(profile.grid)
    for i in range(3):
        y = profile.build.dome[0] - 0.09 - 0.04 * i
        path = [(-0.06 + 0.03 * i, y), (0.03 + 0.03 * i, y + 0.01), (0.13, y + 0.03)]
        plates.line(path, 0.01 + 0.012 * severity, min(1.0, max(0.0, 2.4 * severity - 0.7 * i)))
    profile.tissue = profile.tissue + 0.28 * plates.layer(0.0025) * profile.lungs


def _fluid(profile: Profile, severity: float, rngs: Streams) -> None:
    """Fluid fills the deep angle behind first, then climbs along the spine."""
    grid = profile.grid
    level = profile.build.dome[0] + 0.22 - 0.42 * severity
    behind = np.clip((grid.x - profile.front) / (profile.back - profile.front), 0, 1)
    near_spine, near_front = behind * behind, (1 - behind) ** 2
    surface = level - (0.05 + 0.1 * severity) * (near_spine * near_spine + 0.5 * near_front * near_front)
    profile.cover(0.9 * smooth_step(grid.y - surface, -0.02, 0.02))


def _free_air(profile: Profile, severity: float, rngs: Streams) -> None:
    """Air gathers behind the sternum and at the top: black, without vessels, with a fine line."""
    grid = profile.grid
    reach = 0.03 + 0.1 * severity
    inner = np.minimum(grid.x - profile.front, 0.8 * (grid.y - profile.build.apex - 0.03) + 0.3 * (grid.x + 0.1))
    bare = smooth_step(inner, reach + 0.004, reach - 0.004) * fade_in(severity)
    line = np.exp(-(((inner - reach) / (0.003 + grid.pixel)) ** 2))
    profile.markings = profile.markings * (1 - bare)
    profile.depth = profile.depth * (1 + 0.25 * bare)
    profile.tissue = profile.tissue + 0.1 * fade_in(severity) * line * profile.lungs


def _rind(profile: Profile, severity: float, rngs: Streams) -> None:
    ragged = 1 + 0.2 * clouds(rngs[0], profile.grid, 0.08)
    thick = (0.015 + 0.035 * severity) * ragged
    profile.cover(
        (0.3 + 0.4 * severity) * fade_in(severity) * smooth_step(profile.grid.x - profile.back + 0.055 + thick, 0, 0.01)
    )


LATERAL_SIGNS: dict[str, LateralSign] = {
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


# The devices of a film -> one dense layer: tubes, wires, electrodes, a pacemaker, wires of a sternotomy.

# The order of this table is part of the seeds: add at its end only.
DEVICES = ("drain", "ecg_wires", "pacemaker", "central_line", "et_tube", "sternotomy")
DENSITY = {"drain": 0.36, "ecg_wires": 0.5, "pacemaker": 1.5, "central_line": 0.34, "et_tube": 0.36, "sternotomy": 0.8}


def add_devices(grid: Grid, worn: Collection[str], lateral: bool, side: float, patient_seed: int, seed: int) -> Layer:
    """`side` is where a drain lies: -1 the patient's right, 1 left. Implants are the same in all films of a patient."""
    strokes = Strokes(grid)
    densest = max(DENSITY.values())
    for which, name in enumerate(DEVICES):
        if name in worn:
            implanted = name in ("pacemaker", "sternotomy")
            rng = np.random.default_rng([patient_seed, 200 + which, 0 if implanted else seed])
            strokes.ink = DENSITY[name] / densest
            (LATERAL if lateral else FRONTAL)[name](strokes, side, rng)
    return densest * strokes.layer(0.0008)


def _tube(strokes: Strokes, path: list[Point], width: float, wall: float = 0.9, inside: float = 0.45) -> None:
    """Two bright walls around a paler channel."""
    strokes.line(path, width, wall)
    strokes.line(path, 0.5 * width, inside)


def _jitter(rng: np.random.Generator, points: list[Point], spread: float) -> list[Point]:
    moved = np.array(points) + rng.normal(0, spread, (len(points), 2))
    return [(float(x), float(y)) for x, y in moved]


def _drain(strokes: Strokes, side: float, rng: np.random.Generator) -> None:
    up = float(rng.uniform(0.19, 0.3))
    points = [(0.5, 0.66), (0.4, 0.6), (0.3, 0.52), (0.23, 0.42), (0.17, 0.3), (0.12, up)]
    path = bend(_jitter(rng, [(side * x, y) for x, y in points], 0.008))
    _tube(strokes, path, 0.0145)
    # The stripe that shows on films, broken once where the last hole is.
    strokes.line(path[:22], 0.004, 1.0)
    strokes.line(path[26:], 0.004, 1.0)


def _ecg_wires(strokes: Strokes, side: float, rng: np.random.Generator) -> None:
    spots = [(-0.27, 0.2), (0.27, 0.19), (-0.25, 0.66), (0.27, 0.64), (0.03, 0.5)]
    count = int(rng.integers(3, 6))
    knot = (float(rng.normal(0.02, 0.04)), float(rng.uniform(0.78, 0.9)))
    for x, y in _jitter(rng, spots, 0.02)[:count]:
        middle = ((x + knot[0]) / 2 + float(rng.normal(0, 0.06)), (y + knot[1]) / 2 + float(rng.normal(0, 0.04)))
        strokes.line(bend([(x, y), middle, knot, (knot[0] + 0.04, 1.05)]), 0.0042, 0.8)
        strokes.dot((x, y), 0.019, 0.4)
        strokes.dot((x, y), 0.009, 1.0)


def _pacemaker(strokes: Strokes, side: float, rng: np.random.Generator) -> None:
    x, y = 0.25 + float(rng.normal(0, 0.012)), 0.245 + float(rng.normal(0, 0.01))
    vein = [(x - 0.03, y - 0.03), (x - 0.07, y - 0.065), (0.1, 0.17), (0.0, 0.21), (-0.045, 0.3)]
    strokes.line(bend([*vein, (-0.055, 0.42), (-0.07, 0.52), (-0.045, 0.56)]), 0.0048, 0.42)
    strokes.line(bend([*vein, (-0.05, 0.44), (-0.03, 0.58), (0.04, 0.645), (0.11, 0.645)]), 0.0048, 0.42)
    strokes.line([(0.085, 0.645), (0.11, 0.645)], 0.009, 0.7)
    strokes.dot((x, y), 0.047, 0.75)
    strokes.polygon([(x - 0.046, y), (x - 0.04, y - 0.05), (x + 0.03, y - 0.052), (x + 0.046, y)], 0.75)
    strokes.dot((x + 0.006, y + 0.01), 0.026, 1.0)
    strokes.line([(x - 0.03, y - 0.035), (x + 0.02, y - 0.037)], 0.012, 0.5)


def _central_line(strokes: Strokes, side: float, rng: np.random.Generator) -> None:
    tip = float(rng.uniform(0.4, 0.46))
    if rng.uniform() < 0.6:
        points = [(-0.12, -0.02), (-0.085, 0.06), (-0.062, 0.16), (-0.048, 0.28), (-0.05, tip)]
    else:
        points = [(-0.3, 0.3), (-0.22, 0.2), (-0.13, 0.165), (-0.06, 0.2), (-0.046, 0.3), (-0.05, tip)]
    strokes.line(bend(_jitter(rng, points, 0.004)), 0.0075, 0.95)


def _et_tube(strokes: Strokes, side: float, rng: np.random.Generator) -> None:
    tip = float(rng.uniform(0.25, 0.31))
    path = bend(_jitter(rng, [(0.012, -0.05), (0.0, 0.08), (-0.004, 0.18), (-0.004, tip)], 0.002))
    _tube(strokes, path, 0.023, 0.75, 0.25)
    strokes.line([(x + 0.006, y) for x, y in path], 0.004, 1.0)


def _sternotomy(strokes: Strokes, side: float, rng: np.random.Generator) -> None:
    for i in range(6):
        x, y = float(rng.normal(0, 0.003)), 0.225 + 0.066 * i + float(rng.normal(0, 0.004))
        w, h, lean = 0.018, 0.011, float(rng.normal(0, 0.004))
        loop = [(x - w, y), (x - w / 2, y - h), (x + w / 2, y - h + lean), (x + w, y), (x + w / 2, y + h + lean)]
        strokes.line(bend([*loop, (x - w / 2, y + h), (x - w, y)]), 0.005, 0.95)
        strokes.line([(x, y + h), (x + 0.006, y + h + 0.012)], 0.005, 0.95)


def _lateral_drain(strokes: Strokes, side: float, rng: np.random.Generator) -> None:
    points = [(-0.45, 0.72), (-0.3, 0.66), (-0.15, 0.56), (-0.03, 0.42), (0.04, 0.3), (0.06, 0.21)]
    path = bend(_jitter(rng, points, 0.01))
    _tube(strokes, path, 0.0145)
    strokes.line(path[:22], 0.004, 1.0)
    strokes.line(path[26:], 0.004, 1.0)


def _lateral_ecg_wires(strokes: Strokes, side: float, rng: np.random.Generator) -> None:
    knot = (float(rng.normal(-0.1, 0.04)), float(rng.uniform(0.82, 0.92)))
    for x, y in _jitter(rng, [(-0.22, 0.27), (-0.27, 0.62), (0.02, 0.68), (0.1, 0.3)], 0.015):
        middle = ((x + knot[0]) / 2 + float(rng.normal(0, 0.05)), (y + knot[1]) / 2)
        strokes.line(bend([(x, y), middle, knot, (knot[0] - 0.04, 1.05)]), 0.0042, 0.8)
        strokes.dot((x, y), 0.015, 0.5)
        strokes.dot((x, y), 0.008, 1.0)


def _lateral_pacemaker(strokes: Strokes, side: float, rng: np.random.Generator) -> None:
    x, y = -0.22 + float(rng.normal(0, 0.008)), 0.27 + float(rng.normal(0, 0.01))
    vein = [(x + 0.01, y - 0.04), (-0.14, 0.18), (-0.04, 0.2), (-0.02, 0.3)]
    strokes.line(bend([*vein, (-0.03, 0.44), (-0.09, 0.5), (-0.12, 0.47)]), 0.0048, 0.42)
    strokes.line(bend([*vein, (-0.02, 0.46), (-0.06, 0.58), (-0.15, 0.645), (-0.2, 0.65)]), 0.0048, 0.42)
    strokes.line([(x + 0.02, y - 0.045), (x - 0.014, y + 0.045)], 0.024, 0.9)


def _lateral_central_line(strokes: Strokes, side: float, rng: np.random.Generator) -> None:
    tip = float(rng.uniform(0.4, 0.46))
    points = [(0.03, -0.02), (-0.02, 0.1), (-0.045, 0.2), (-0.03, 0.32), (-0.03, tip)]
    strokes.line(bend(_jitter(rng, points, 0.004)), 0.0075, 0.95)


def _lateral_et_tube(strokes: Strokes, side: float, rng: np.random.Generator) -> None:
    tip = float(rng.uniform(0.27, 0.33))
    path = bend(_jitter(rng, [(-0.01, -0.05), (0.004, 0.08), (0.016, 0.19), (0.024, tip)], 0.002))
    _tube(strokes, path, 0.023, 0.75, 0.25)
    strokes.line([(x + 0.006, y) for x, y in path], 0.004, 1.0)


def _lateral_sternotomy(strokes: Strokes, side: float, rng: np.random.Generator) -> None:
    for i in range(6):
        y = 0.24 + 0.06 * i + float(rng.normal(0, 0.004))
        x = -0.185 - 0.2 * (y - 0.24)
        loop = [(x - 0.012, y), (x, y - 0.006), (x + 0.014, y + 0.004), (x, y + 0.008), (x - 0.012, y)]
        strokes.line(bend(loop), 0.0045, 0.95)


Drawing = Callable[[Strokes, float, np.random.Generator], None]
FRONTAL: dict[str, Drawing] = {
    "drain": _drain,
    "ecg_wires": _ecg_wires,
    "pacemaker": _pacemaker,
    "central_line": _central_line,
    "et_tube": _et_tube,
    "sternotomy": _sternotomy,
}
LATERAL: dict[str, Drawing] = {
    "drain": _lateral_drain,
    "ecg_wires": _lateral_ecg_wires,
    "pacemaker": _lateral_pacemaker,
    "central_line": _lateral_central_line,
    "et_tube": _lateral_et_tube,
    "sternotomy": _lateral_sternotomy,
}
