"""A finding and its severity -> the layers of a frontal chest changed as the finding changes them.

Severity 0 leaves every pixel alone and more is always more to see. The side of a sign comes from the patient's stream,
its details from the film's: a nodule stays where it is, a pneumonia may come back elsewhere.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np

from cxrhf.data.synthetic.anatomy import Chest, grow
from cxrhf.data.synthetic.bones import Break
from cxrhf.data.synthetic.canvas import Layer, Strokes, clouds, rise, spot
from cxrhf.data.synthetic.physique import LEFT, RIGHT

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


def early(severity: float) -> float:
    """0 to 1, faster at first: a little fluid or fog shows, where a heart a little wider is only a wide heart."""
    return float(severity**0.7)


def half(chest: Chest, side: float) -> Layer:
    """1 on a side of the midline: one row."""
    return rise(side * chest.grid.x, -0.002, 0.002)


def _lung_opacity(chest: Chest, severity: float, rngs: Streams) -> None:
    """Patches here and there, both sides, with ragged edges."""
    patient, film = rngs
    ragged = 0.6 * clouds(film, chest.grid, 0.045) + 0.4 * clouds(film, chest.grid, 0.11)
    total = np.zeros_like(chest.full)
    count, size = 6, 0.045 + 0.04 * severity
    # Three a side, in the outer middle of the lungs.
    for i, x, y in zip(range(count), patient.uniform(0.15, 0.26, count), film.uniform(0.3, 0.52, count), strict=True):
        total += spot(chest.grid, float((-1) ** i * x), float(y), size, 0.9 * size)
    chest.cover(0.9 * severity * rise(total + 0.35 * ragged * np.minimum(total, 1), 0.2, 0.9))


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
    ball = rise(q, 1.12, 0.85) * (0.55 + 0.45 * np.sqrt(np.clip(1 - q * q, 0, 1)))
    chest.tissue = chest.tissue + 0.65 * early(severity) * ball * chest.lungs


def _edema(chest: Chest, severity: float, rngs: Streams) -> None:
    """Haze around the hila like wings, thick vessels, short level lines near the ribs."""
    grid, film = chest.grid, rngs[1]
    haze = np.zeros_like(chest.full)
    for hx, hy in chest.hila:
        haze += spot(grid, 1.35 * hx, hy + 0.05, 0.1, 0.17, lean=-0.35 * math.copysign(1, hx))
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
    above = rise(slant - grid.y, -edge, edge)
    y = 0.31 if upper else 0.6
    lobe = (above if upper else 1 - above) * half(chest, side)
    lumps = 0.16 * clouds(film, grid, 0.06) + 0.1 * clouds(film, grid, 0.025)
    reach = 0.1 + 0.035 * severity
    white = lobe * rise(1.6 * spot(grid, side * 0.18, y, 1.3 * reach, reach) + lumps, 0.15, 0.85)
    tubes = Strokes(grid)
    hx, hy = chest.hila[0 if side == RIGHT else 1]
    fan = np.array([-0.9, -0.45] if upper else [0.5, 0.95, 1.3])
    for width, path in grow(film, (hx, hy), fan, side, 0.0085, 4):
        tubes.line(path, width, 0.8)
    chest.cover(0.97 * early(severity) * white * (1 - 0.45 * tubes.layer(0.0015)))


def _pneumonia(chest: Chest, severity: float, rngs: Streams) -> None:
    """A segment of the lower lobe fogged without an edge."""
    patient, film = rngs
    grid, side = chest.grid, pick_side(patient)
    x, y = side * float(film.uniform(0.14, 0.17)), float(film.uniform(0.54, 0.58))
    wedge = spot(grid, x, y, 0.1 + 0.04 * severity, 0.085 + 0.04 * severity, lean=0.6 * side)
    wedge = np.maximum(wedge, 0.55 * spot(grid, x * 0.72, y - 0.05, 0.05, 0.07, lean=-0.7 * side))
    lumps = 1 + 0.22 * clouds(film, grid, 0.035) + 0.12 * clouds(film, grid, 0.014)
    chest.cover(1.3 * early(severity) * wedge * lumps)


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
    veil = rise(grid.y, base - 0.16, base) * rise(chest.across, 1.0, 0.3) * half(chest, side)
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
    bare = rise(out, 1 - edge, 1 + edge) * half(chest, side)
    line = np.exp(-(((out - 1) / (0.018 + 2.5 * grid.pixel)) ** 2)) * half(chest, side)
    chest.markings = chest.markings * (1 - bare)
    chest.full = chest.full * (1 - bare)
    chest.depth = chest.depth * (1 + 0.22 * bare) - 0.12 * severity * half(chest, side) * (1 - bare)
    chest.tissue = chest.tissue + fade_in(severity) * (0.07 + 0.04 * severity) * line * chest.lungs * chest.free


def _pleural_effusion(chest: Chest, severity: float, rngs: Streams) -> None:
    """Fluid that blunts the angle, then climbs with a meniscus; in bed it also veils the lung from behind."""
    patient, film = rngs
    side, both = pick_side(patient), patient.uniform() < 0.25
    much = early(severity)
    for each, amount in ((side, much), (-side, 0.6 * much * both)):
        if not amount:
            continue
        dome = chest.build.dome[0 if each == RIGHT else 1]
        level = dome + 0.115 - 0.41 * amount + 0.008 * float(film.standard_normal())
        climb = 0.05 + 0.075 * amount
        edge = np.minimum(chest.across, 1) ** 2
        surface = level - climb * edge * edge + 0.3 * climb * rise(chest.across, 0.1, 0.6)
        soft = 0.012 + 0.012 * amount
        fluid = rise(chest.grid.y - surface, -soft, soft) * half(chest, each)
        veil = 0.26 * amount * rise(chest.grid.y, 0.2, 0.65) * half(chest, each) if chest.build.portable else 0.0
        chest.cover(np.maximum(0.97 * fluid, veil))


def _pleural_other(chest: Chest, severity: float, rngs: Streams) -> None:
    """A thickened pleura along the ribs and over the apex, with plaques that hold lime."""
    rng, grid = rngs[0], chest.grid
    side = pick_side(rng)
    ragged = 1 + 0.2 * clouds(rng, grid, 0.08)
    build = chest.build
    thick = (0.05 + 0.12 * severity) * ragged
    rind = rise(chest.across - 1 + thick, -0.02, 0.02)
    cap = rise(build.apex + (0.012 + 0.055 * severity) * ragged - grid.y, -0.006, 0.006)
    chest.cover((0.3 + 0.4 * severity) * fade_in(severity) * np.maximum(rind, cap) * half(chest, side))
    lime = rise(clouds(rng, grid, 0.035), 0.9, 1.5) * rise(chest.across, 0.55, 0.85) * half(chest, side)
    chest.tissue = chest.tissue + 0.22 * severity * lime * chest.lungs * rise(grid.y, 0.35, 0.5)


# What the heart's outline, the diaphragm and the ribs show is drawn with them: see picture.py.
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
