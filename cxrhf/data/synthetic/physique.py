"""Age, sex, view and chance -> the numbers that a chest is drawn from."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

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
