"""What is to be seen on a chest film -> the film, as grey pixels made from nothing but numbers.

Nobody's picture: ribs, vessels and tubes are curves, and two seeds their only chance. A film is a sum of thicknesses
(physique.py -> anatomy.py and bones.py, or lateral.py; changed by signs.py; devices.py on top) put through a film's
grey curve (exposure.py). Known gaps: findings do not know of each other (fluid and free air lie over each other without
a level), a lateral film tells no side, and hearts, fissures and vessels are far simpler than people's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from cxrhf.data.synthetic.anatomy import make_chest
from cxrhf.data.synthetic.bones import bones
from cxrhf.data.synthetic.canvas import Layer, make_grid
from cxrhf.data.synthetic.devices import DEVICES, add_devices
from cxrhf.data.synthetic.exposure import Picture, enlarge, expose
from cxrhf.data.synthetic.lateral import lateral_bones, make_profile
from cxrhf.data.synthetic.lateral_signs import add_lateral_signs
from cxrhf.data.synthetic.physique import RIGHT, Physique, make_physique
from cxrhf.data.synthetic.signs import add_signs, breaks_of, side_of
from cxrhf.errors import ConfigError, did_you_mean
from cxrhf.findings import CHEXPERT

__all__ = ["Film", "Picture", "draw", "enlarge"]

LATERAL = ("LATERAL", "LL")
VIEWS = ("PA", "AP", *LATERAL)
SMALLEST, LARGEST = 64, 4096
DRAWN = 512  # the largest size that is drawn; beyond it the picture is enlarged


@dataclass(frozen=True, slots=True)
class Film:
    """What is to be seen on one film.

    `patient_seed` makes the person, `seed` the day: films of one patient look alike. `severity` goes from 0 (nothing to
    see) to 1 (gross) for CheXpert's findings; those left out are 0, and no_finding and support_devices have no sign of
    their own. `drain` lies on the side of the pneumothorax (or of the fluid, where there is more of it). `hazy` makes a
    hard film, flat and grainy; signs keep their severity and lose contrast with all the rest.
    """

    view: str
    sex: str
    age: float
    seed: int
    patient_seed: int
    severity: Mapping[str, float]
    drain: bool = False
    ecg_wires: bool = False
    pacemaker: bool = False
    central_line: bool = False
    et_tube: bool = False
    sternotomy: bool = False
    hazy: bool = False

    def __post_init__(self) -> None:
        if self.view not in VIEWS:
            raise ConfigError("view", got=self.view, allowed=f"one of {', '.join(VIEWS)}")
        if self.sex not in ("F", "M"):
            raise ConfigError("sex", got=self.sex, allowed="F or M")
        if not 0 <= self.age <= 130:
            raise ConfigError("age", got=self.age, allowed="0 to 130 years")
        if self.seed < 0 or self.patient_seed < 0:
            raise ConfigError("seeds", got=f"{self.seed} and {self.patient_seed}", allowed="numbers >= 0")
        for finding, value in self.severity.items():
            if finding not in CHEXPERT:
                hint = did_you_mean(finding, CHEXPERT) or "use a name of cxrhf.findings.CHEXPERT"
                raise ConfigError(f'"{finding}" is not a finding that cxrhf draws', next_step=hint)
            if not 0 <= value <= 1:
                raise ConfigError(f"severity of {finding}", got=value, allowed="0 to 1")


def draw(film: Film, size: int = 256) -> Picture:
    """The film as (size, size) grey bytes. The same film gives the same bytes."""
    if not SMALLEST <= size <= LARGEST:
        raise ConfigError("size of the image", got=size, allowed=f"{SMALLEST} to {LARGEST} pixels per side")
    if size > DRAWN:
        return enlarge(draw(film, DRAWN), size, size, film.seed)
    # Small films are drawn at twice their size: ribs and wires would otherwise break up.
    grid = make_grid(size if size >= 128 else 2 * size)
    patient = np.random.default_rng([film.patient_seed, 1])
    today = np.random.default_rng([film.patient_seed, 2, film.seed])
    severity = {finding: float(value) for finding, value in film.severity.items()}
    build = _build(film, severity, patient, today)
    lateral = film.view in LATERAL
    thick: Layer
    if lateral:
        profile = make_profile(grid, build, patient)
        add_lateral_signs(profile, severity, film.patient_seed, film.seed)
        thick = profile.thickness() + lateral_bones(profile, severity.get("fracture", 0.0), patient)
    else:
        chest = make_chest(grid, build, patient)
        add_signs(chest, severity, film.patient_seed, film.seed)
        breaks = breaks_of(severity.get("fracture", 0.0), film.patient_seed)
        thick = chest.thickness() + bones(chest, breaks, patient)
    worn = [name for name in DEVICES if getattr(film, name)]
    if worn:
        thick = thick + add_devices(grid, worn, lateral, _drained(film), film.patient_seed, film.seed)
    zoom = {"PA": 1.1, "AP": 1.13}.get(film.view, 1.24)
    return expose(thick, grid, size, zoom, film.view == "AP", film.hazy, patient, today)


def _build(
    film: Film, severity: Mapping[str, float], patient: np.random.Generator, today: np.random.Generator
) -> Physique:
    """The patient's build, with the findings that show in outlines: a wide heart, a wide mediastinum, a raised dome."""
    heart, wide = severity.get("cardiomegaly", 0.0), severity.get("enlarged_cardiomediastinum", 0.0)
    # On a lateral film the upper of both domes is drawn, and it is the right one's.
    side = RIGHT if film.view in LATERAL else side_of(film.patient_seed, "atelectasis")
    loss = side * severity.get("atelectasis", 0.0)
    build = make_physique(film.view == "AP", film.sex == "F", float(film.age), patient, today, loss)
    return replace(build, heart=build.heart * (1 + 0.55 * heart) + 0.08 * wide, upper=build.upper + 0.05 * wide)


def _drained(film: Film) -> float:
    fluid, air = (film.severity.get(finding, 0.0) for finding in ("pleural_effusion", "pneumothorax"))
    return side_of(film.patient_seed, "pleural_effusion" if fluid > air else "pneumothorax")
