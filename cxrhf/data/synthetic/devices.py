"""The devices of a film -> one dense layer: tubes, wires, electrodes, a pacemaker, wires of a sternotomy."""

from __future__ import annotations

from collections.abc import Callable, Collection

import numpy as np

from cxrhf.data.synthetic.canvas import Grid, Layer, Point, Strokes, bend

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
