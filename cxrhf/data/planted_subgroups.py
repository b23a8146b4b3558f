"""Parameters of planted truth D3 -> scores of races that differ in prevalence and age, with one threshold for all.

Without a `shift` no race is treated worse at the same age and disease: the raw TPR and FPR differ only because the
races differ in age, and an audit that balances prevalence and age must find them equal.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

SHARE = np.array([0.78, 0.15, 0.07])
PREVALENCE = np.array([0.41, 0.44, 0.33])
# P(age band | disease, race): [disease][race][age band]
AGE = np.array(
    [
        [[0.20, 0.35, 0.45], [0.25, 0.40, 0.35], [0.40, 0.40, 0.20]],
        [[0.10, 0.30, 0.60], [0.15, 0.35, 0.50], [0.30, 0.40, 0.30]],
    ]
)


@dataclass(frozen=True, slots=True)
class SubgroupsTruth:
    """Population values by race at the threshold with FPR .20; `balanced_*` after balancing prevalence and age."""

    threshold: float
    tpr: Floats
    fpr: Floats
    auroc: Floats
    balanced_tpr: Floats
    balanced_fpr: Floats
    balanced_auroc: Floats


@dataclass(frozen=True, slots=True)
class PlantedSubgroups:
    """One row per patient; `race` and `age` hold 0, 1, 2."""

    y: Integers
    score: Floats
    race: Integers
    age: Integers
    patient: Integers
    truth: SubgroupsTruth


def subgroups(n: int, *, shift: float = 0.0, seed: int = 0) -> PlantedSubgroups:
    """`n` rows of D3: S ~ N(1.4 Y + .4 age, 1), and positives of the third race score `shift` lower."""
    rng = np.random.default_rng(seed)
    race = rng.choice(3, size=n, p=SHARE)
    y = (rng.random(n) < PREVALENCE[race]).astype(np.int64)
    age = (rng.random(n)[:, None] > np.cumsum(AGE[y, race], axis=1)[:, :2]).sum(axis=1)
    score = 1.4 * y + 0.4 * age - shift * ((race == 2) & (y == 1)) + rng.standard_normal(n)
    return PlantedSubgroups(y, score, race.astype(np.int64), age, np.arange(n), subgroups_truth(shift=shift))


def subgroups_truth(*, shift: float = 0.0, fpr: float = 0.2) -> SubgroupsTruth:
    """Population values of D3. Balancing gives each race the population's P(age | disease), so the threshold stays."""
    joint = np.stack([SHARE * (1 - PREVALENCE), SHARE * PREVALENCE])[:, :, None] * AGE
    population = joint.sum(axis=1) / joint.sum(axis=(1, 2))[:, None]
    centre_neg = 0.4 * np.arange(3)
    low, high = -10.0, 10.0
    for _ in range(100):
        threshold = (low + high) / 2
        low, high = (threshold, high) if population[0] @ ndtr(centre_neg - threshold) > fpr else (low, threshold)

    def values(age_pos: Floats, age_neg: Floats, race: int) -> tuple[float, float, float]:
        centre_pos = 1.4 + centre_neg - shift * (race == 2)
        wins = ndtr((centre_pos[:, None] - centre_neg[None, :]) / np.sqrt(2))
        hits, alarms = age_pos @ ndtr(centre_pos - threshold), age_neg @ ndtr(centre_neg - threshold)
        return float(hits), float(alarms), float(age_pos @ wins @ age_neg)

    raw = np.array([values(AGE[1, race], AGE[0, race], race) for race in range(3)])
    balanced = np.array([values(population[1], population[0], race) for race in range(3)])
    return SubgroupsTruth(threshold, *raw.T, *balanced.T)
