"""Parameters of planted truth D3 -> scores of races that differ in prevalence and age, with one threshold for all.

Without a `shift` no race is treated worse at the same age and disease: the raw TPR and FPR differ only because the
races differ in age, and an audit that balances prevalence and age must find them equal.

`diseases` has races that differ in ENCODING's three disease groups: for effusion, women have the higher AUROC (.833
against .813; .850 against .830 with the races balanced over effusion alone), and the lower (.809 against .835) in the
paper's population.
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


# Races that differ in their disease groups (No Finding, Pleural Effusion, Other), ages within each, and share of women.
SHARES = np.array([0.6, 0.25, 0.15])
DISEASE = np.array([[0.10, 0.35, 0.55], [0.55, 0.25, 0.20], [0.75, 0.15, 0.10]])
# P(age band | race, disease group): [race][disease group][age band]
AGE_OF_DISEASE = np.array(
    [
        [[0.30, 0.40, 0.30], [0.10, 0.30, 0.60], [0.20, 0.35, 0.45]],
        [[0.40, 0.40, 0.20], [0.20, 0.40, 0.40], [0.25, 0.40, 0.35]],
        [[0.50, 0.35, 0.15], [0.30, 0.40, 0.30], [0.35, 0.40, 0.25]],
    ]
)
WOMEN = np.array([0.30, 0.60, 0.95])
SEXES = ("F", "M")
FINDINGS = ("no_finding", "pleural_effusion")


@dataclass(frozen=True, slots=True)
class PopulationTruth:
    """Population values by group (`sex=F`, `race=0`, ...) at the one threshold with FPR .20 of that population."""

    threshold: float
    auroc: dict[str, float]
    tpr: dict[str, float]
    fpr: dict[str, float]


@dataclass(frozen=True, slots=True)
class PlantedDiseases:
    """One row per patient; labels and scores by finding; `race` and `age` hold 0, 1, 2, `disease` 0, 1, 2 too."""

    y: dict[str, Integers]
    score: dict[str, Floats]
    race: Integers
    age: Integers
    sex: NDArray[np.str_]
    disease: Integers


def diseases(n: int, *, alike: bool = False, seed: int = 0) -> PlantedDiseases:
    """`n` patients whose women and men change places once the races are balanced over the three disease groups.

    Effusion is told from No Finding with ease, from Other with effort, in women with more effort than in men. But women
    are more often of the races in which nearly everybody without effusion has no finding. `alike`: scores depend on
    nothing but the label, and no population may show a gap.
    """
    rng = np.random.default_rng(seed)
    race = rng.choice(3, size=n, p=SHARES)
    disease = (rng.random(n)[:, None] > np.cumsum(DISEASE[race], axis=1)[:, :2]).sum(axis=1)
    age = (rng.random(n)[:, None] > np.cumsum(AGE_OF_DISEASE[race, disease], axis=1)[:, :2]).sum(axis=1)
    sex = (rng.random(n) >= WOMEN[race]).astype(np.int64)
    y = {name: (disease == k).astype(np.int64) for k, name in enumerate(FINDINGS)}
    score = {name: _centres(name, alike)[disease, age, sex] + rng.standard_normal(n) for name in FINDINGS}
    return PlantedDiseases(y, score, race.astype(np.int64), age, np.array(SEXES)[sex], disease)


def _centres(finding: str, alike: bool) -> Floats:
    """Mean score by disease group, age band and sex."""
    own = FINDINGS.index(finding)
    if alike:
        return np.broadcast_to(1.5 * (np.arange(3) == own)[:, None, None], (3, 3, 2))
    by_sex = {"no_finding": ((1.5, 1.5), (-0.6, -0.6), (0, 0)), "pleural_effusion": ((0, 0), (1.7, 1.85), (0.85, 0.85))}
    older = 0.35 if finding == "pleural_effusion" else -0.35
    return np.array(by_sex[finding])[:, None, :] + older * np.arange(3)[None, :, None]


def diseases_truth(finding: str, population: str, *, alike: bool = False, fpr: float = 0.2) -> PopulationTruth:
    """Population values: of everybody as they are (""), with the races balanced over the finding's own label
    ("_balanced_by_race"), or over the three disease groups ("_balanced_by_race_and_disease")."""
    own = FINDINGS.index(finding)
    classes = {"_balanced_by_race": [[own], [k for k in range(3) if k != own]], "": []}
    mass = (SHARES[:, None] * DISEASE)[..., None] * AGE_OF_DISEASE  # race, disease group, age band
    weight = np.ones_like(mass)
    for together in classes.get(population, [[0], [1], [2]]):
        cell = mass[:, together].sum(axis=1)
        weight[:, together] = (cell.sum(axis=0) / len(SHARES) / cell)[:, None, :]
    women = np.stack([WOMEN, 1 - WOMEN], axis=-1)[:, None, None, :]
    joint = (mass * weight)[..., None] * women
    centre = np.broadcast_to(_centres(finding, alike), joint.shape)
    low, high = -10.0, 10.0
    negatives = joint * (np.arange(3) != own)[:, None, None]
    for _ in range(100):
        at = (low + high) / 2
        rate = (negatives * ndtr(centre - at)).sum() / negatives.sum()
        low, high = (at, high) if rate > fpr else (low, at)
    found = PopulationTruth(at, {}, {}, {})
    groups = [(f"sex={name}", np.s_[:, :, :, k]) for k, name in enumerate(SEXES)]
    for name, inside in [*groups, *((f"race={k}", np.s_[k]) for k in range(3))]:
        part = np.zeros_like(joint)
        part[inside] = joint[inside]
        ill, well = part[:, own].ravel() / part[:, own].sum(), (part * (negatives > 0)).ravel()
        well /= well.sum()
        here, there = centre[:, own].ravel(), centre.ravel()
        found.auroc[name] = float(ill @ ndtr((here[:, None] - there) / np.sqrt(2)) @ well)
        found.tpr[name], found.fpr[name] = float(ill @ ndtr(here - at)), float(well @ ndtr(there - at))
    return found
