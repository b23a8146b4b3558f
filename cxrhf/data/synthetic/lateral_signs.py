"""A finding and its severity -> the layers of a lateral chest changed as the finding changes them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from cxrhf.data.synthetic.canvas import Strokes, clouds, disc, rise, spot
from cxrhf.data.synthetic.lateral import Profile
from cxrhf.data.synthetic.signs import Streams, early, fade_in, streams

LateralSign = Callable[[Profile, float, Streams], None]


def add_lateral_signs(profile: Profile, severity: Mapping[str, float], patient_seed: int, seed: int) -> None:
    for finding, sign in SIGNS.items():
        if severity.get(finding, 0.0) > 0:
            sign(profile, severity[finding], streams(patient_seed, seed, finding))


def _fog(x: float, y: float, width: float, height: float, most: float, lump: float) -> LateralSign:
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
        profile.cover(0.7 * severity * spot(profile.grid, float(x), float(y), 0.06, 0.055))


def _nodule(profile: Profile, severity: float, rngs: Streams) -> None:
    x, y = (float(v) for v in rngs[0].uniform((-0.15, 0.3), (0.15, 0.55)))
    ball = disc(profile.grid, x, y, 0.034 + 0.05 * severity, 0.034 + 0.05 * severity, 0.3)
    profile.tissue = profile.tissue + 0.65 * early(severity) * ball * profile.lungs


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
    profile.cover(0.9 * rise(grid.y - surface, -0.02, 0.02))


def _free_air(profile: Profile, severity: float, rngs: Streams) -> None:
    """Air gathers behind the sternum and at the top: black, without vessels, with a fine line."""
    grid = profile.grid
    reach = 0.03 + 0.1 * severity
    inner = np.minimum(grid.x - profile.front, 0.8 * (grid.y - profile.build.apex - 0.03) + 0.3 * (grid.x + 0.1))
    bare = rise(inner, reach + 0.004, reach - 0.004) * fade_in(severity)
    line = np.exp(-(((inner - reach) / (0.003 + grid.pixel)) ** 2))
    profile.markings = profile.markings * (1 - bare)
    profile.depth = profile.depth * (1 + 0.25 * bare)
    profile.tissue = profile.tissue + 0.1 * fade_in(severity) * line * profile.lungs


def _rind(profile: Profile, severity: float, rngs: Streams) -> None:
    ragged = 1 + 0.2 * clouds(rngs[0], profile.grid, 0.08)
    thick = (0.015 + 0.035 * severity) * ragged
    profile.cover(
        (0.3 + 0.4 * severity) * fade_in(severity) * rise(profile.grid.x - profile.back + 0.055 + thick, 0, 0.01)
    )


SIGNS: dict[str, LateralSign] = {
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
