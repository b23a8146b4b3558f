"""Parameters -> synthetic data with known answers: the planted truths D1-D5, and a small predictions table.

The front door; each truth has its own file. `context` D1, `slices` and `shortcut` D2, `subgroups` D3 (`diseases`: its
races differ in three disease groups), `words` and `word_reports` D4, `calibrated` D5. Each result carries `truth`, or a
function gives it, computed in closed form or by numeric integration, never by simulation. `demo_predictions` is a
PREDICTION table made of D1 findings.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit, ndtr, ndtri, roots_jacobi

from cxrhf.twin.planted_groups import (
    CHEXPERT_DRAINS,
    PlantedDiseases,
    PlantedShortcut,
    PlantedSlices,
    PlantedSubgroups,
    PlantedWords,
    PopulationTruth,
    ShortcutTruth,
    SlicesTruth,
    SubgroupsTruth,
    WordReports,
    WordsTruth,
    diseases,
    diseases_truth,
    shortcut,
    shortcut_truth,
    slices,
    slices_truth,
    subgroups,
    subgroups_truth,
    word_reports,
    words,
)

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "CHEXPERT_DRAINS",
    "DEMO_FINDINGS",
    "CalibrationTruth",
    "ContextTruth",
    "DemoFinding",
    "PlantedCalibration",
    "PlantedContext",
    "PlantedDiseases",
    "PlantedShortcut",
    "PlantedSlices",
    "PlantedSubgroups",
    "PlantedWords",
    "PopulationTruth",
    "ShortcutTruth",
    "SlicesTruth",
    "SubgroupsTruth",
    "WordReports",
    "WordsTruth",
    "calibrated",
    "calibrated_truth",
    "context",
    "context_truth",
    "demo_predictions",
    "demo_truth",
    "diseases",
    "diseases_truth",
    "shortcut",
    "shortcut_truth",
    "slices",
    "slices_truth",
    "subgroups",
    "subgroups_truth",
    "word_reports",
    "words",
]

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


# Parameters of planted truth D5 -> probabilities that are calibrated, or too high by a known step of log odds.

_ALPHA, _BETA = 0.8, 3.2  # p ~ Beta: mean .2, most mass near 0, as chest findings have


@dataclass(frozen=True, slots=True)
class CalibrationTruth:
    """Population values; `adaptive_calibration_error` is the limit of many rows, whatever the number of bins."""

    prevalence: float
    adaptive_calibration_error: float
    brier: float
    brier_skill_score: float
    brier_positive: float
    brier_negative: float
    balanced_brier: float
    slope: float
    in_the_large: float


@dataclass(frozen=True, slots=True)
class PlantedCalibration:
    """One row per patient."""

    y: NDArray[np.int64]
    prob: NDArray[np.float64]
    truth: CalibrationTruth


def calibrated(n: int, h: float = 0.0, seed: int = 0) -> PlantedCalibration:
    """`n` rows of D5: p ~ Beta(.8, 3.2), P(Y=1 | p) = expit(logit p - h). Calibrated at h = 0, too high above."""
    rng = np.random.default_rng(seed)
    prob = rng.beta(_ALPHA, _BETA, size=n)
    y = (rng.random(n) < expit(logit(prob) - h)).astype(np.int64)
    return PlantedCalibration(y, prob, calibrated_truth(h))


def calibrated_truth(h: float = 0.0) -> CalibrationTruth:
    """Population values of D5 by Gauss-Jacobi integration over p.

    The miscalibration p - P(Y|p) has one sign, so within bins nothing cancels and the adaptive calibration error
    is its mean absolute value for every number of bins.
    """
    nodes, mass = roots_jacobi(400, _BETA - 1, _ALPHA - 1)
    p, mass = (nodes + 1) / 2, mass / mass.sum()
    rate = expit(logit(p) - h)
    prevalence = float(mass @ rate)
    positive = float(mass @ (rate * (1 - p) ** 2)) / prevalence
    negative = float(mass @ ((1 - rate) * p**2)) / (1 - prevalence)
    brier = prevalence * positive + (1 - prevalence) * negative
    return CalibrationTruth(
        prevalence=prevalence,
        adaptive_calibration_error=float(mass @ np.abs(p - rate)),
        brier=brier,
        brier_skill_score=1 - brier / (prevalence * (1 - prevalence)),
        brier_positive=positive,
        brier_negative=negative,
        balanced_brier=positive + negative,
        slope=1.0,
        in_the_large=-h,
    )


# Parameters of planted truth D1 -> labels, scores and pre-test probabilities whose answers are known exactly.
#
# Model: Y ~ Bernoulli(pi); chart context C given Y ~ N(m Y, 1); pre-test probability q = P(Y=1 | C), exact; score S =
# (d0 - eta C) Y + g C + N(0, 1). So `g` is how much of the score is the chart, `eta` how much the picture shows less
# when the chart says more. Every population value below is a closed form or one numeric integral.
#
# Matching has no closed form but a limit: with many rows the minimal total cost pairs the mass both classes share in
# place, and the positives in excess (where q > .5) take the nearest negatives left over, which all lie below. With
# positives in the minority the chosen negatives are distributed like the positives below some t and are *all* the
# negatives above it, t solving P(Y=0, C>t) = P(Y=1, C>t). A finite sample lies a little off that limit, more so with
# few positives, because the tail then holds too few rows to share.

_REACH = 9.0  # standard deviations beyond which a normal density counts as nothing
_NODES, _NODE_WEIGHTS = np.polynomial.legendre.leggauss(200)


@dataclass(frozen=True, slots=True)
class ContextTruth:
    """Population values of D1; tuples are the lowest quarter, the middle half and the highest quarter of q."""

    prevalence: float
    standard: float
    att: float
    ipw: float
    matched: float
    strata: tuple[float, float, float]
    threshold: float
    sensitivity: float
    sensitivity_att: float
    sensitivity_ipw: float
    sensitivity_local: tuple[float, float, float]
    sensitivity_global: tuple[float, float, float]
    specificity_global: tuple[float, float, float]
    brier: float
    brier_skill_score: float
    certain_positives: float  # P(q > .5 | Y = 1): the positives that matching cannot serve well


@dataclass(frozen=True, slots=True)
class PlantedContext:
    """One row per image. `prob` is a rising function of `score`, so every ranking truth holds for it as well."""

    y: Integers
    score: Floats
    prob: Floats
    pretest: Floats
    context: Floats
    patient: Integers
    truth: ContextTruth


def patients_of(n: int, images_per_patient: int | tuple[int, int], rng: np.random.Generator) -> Integers:
    """Patient number of each of `n` rows; a pair (low, high) draws each patient's count of images evenly from it."""
    low, high = (images_per_patient,) * 2 if isinstance(images_per_patient, int) else images_per_patient
    if not 1 <= low <= high:
        raise ValueError(f"images_per_patient is {images_per_patient!r}, allowed: a count >= 1 or (low, high)")
    sizes = rng.integers(low, high + 1, size=n // low + 1)
    return np.repeat(np.arange(len(sizes)), sizes)[:n].astype(np.int64)


def shared_noise(patient: Integers, correlation: float, rng: np.random.Generator) -> Floats:
    """Standard normal noise, correlated between the rows of one patient and independent between patients."""
    of_patient = rng.standard_normal(int(patient.max()) + 1 if len(patient) else 0)[patient]
    return np.sqrt(correlation) * of_patient + np.sqrt(1 - correlation) * rng.standard_normal(len(patient))


def context(
    n: int,
    *,
    pi: float = 0.2,
    m: float = 1.0,
    g: float = 0.8,
    eta: float = 0.4,
    d0: float = 1.5,
    images_per_patient: int | tuple[int, int] = 1,
    correlation: float = 0.5,
    seed: int = 0,
) -> PlantedContext:
    """`n` rows of D1.

    Rows of one patient are alike without moving any truth: the label is a latent normal cut at its 1-pi quantile,
    and that latent, the noise of C and the noise of S are each a Gaussian copula with `correlation` between the
    patient's rows. The three stay independent of each other, so (Y, C, S) of a single row has exactly the law above,
    and AUROC, sensitivity, Brier and the weighted values are functions of that law only. What changes is the spread
    of their estimates, hence the need for patient-level intervals.
    """
    rng = np.random.default_rng(seed)
    patient = patients_of(n, images_per_patient, rng)
    return context_of(patient, rng, pi=pi, m=m, g=g, eta=eta, d0=d0, correlation=correlation)


def context_of(
    patient: Integers,
    rng: np.random.Generator,
    *,
    pi: float,
    m: float,
    g: float,
    eta: float,
    d0: float,
    correlation: float = 0.5,
) -> PlantedContext:
    """D1 for rows whose patients are given, so that several findings can share their images."""
    truth = context_truth(pi=pi, m=m, g=g, eta=eta, d0=d0)
    y = (shared_noise(patient, correlation, rng) > ndtri(1 - pi)).astype(np.int64)
    c = m * y + shared_noise(patient, correlation, rng)
    score = (d0 - eta * c) * y + g * c + shared_noise(patient, correlation, rng)
    slope, intercept = _probability_line(pi, m, g, eta, d0)
    pretest = expit(logit(pi) + m * c - m * m / 2)
    return PlantedContext(y, score, expit(intercept + slope * score), pretest, c, patient, truth)


@lru_cache(maxsize=1024)  # every twin asks for the same dozen findings, and again for each finding's text
def context_truth(
    *, pi: float = 0.2, m: float = 1.0, g: float = 0.8, eta: float = 0.4, d0: float = 1.5
) -> ContextTruth:
    """The population values of D1 for these parameters."""
    if not 0 < pi < 1:
        raise ValueError(f"pi is {pi!r}, allowed: between 0 and 1")
    if m < 0:
        raise ValueError(f"m is {m!r}, allowed: >= 0 (mirror C for the other direction)")
    spread = np.sqrt(2 + g * g + (g - eta) ** 2)

    def separation(i: int, j: int) -> float:
        """AUROC of positives whose context is N(m i, 1) against negatives whose context is N(m j, 1)."""
        return float(ndtr((d0 + (g - eta) * m * i - g * m * j) / spread))

    ipw = (
        pi**2 * separation(1, 1)
        + (1 - pi) ** 2 * separation(0, 0)
        + pi * (1 - pi) * (separation(1, 0) + separation(0, 1))
    )
    mean, sd_pos, sd_neg = d0 + (g - eta) * m, np.sqrt(1 + (g - eta) ** 2), np.sqrt(1 + g * g)
    threshold = float(ndtri(0.95) * sd_neg)
    ipw_threshold = _root(lambda t: pi * ndtr((g * m - t) / sd_neg) + (1 - pi) * ndtr(-t / sd_neg) - 0.05)
    at_ipw = pi * ndtr((mean - ipw_threshold) / sd_pos) + (1 - pi) * ndtr((d0 - ipw_threshold) / sd_pos)
    auroc, local, overall, specificity = _strata(pi, m, g, eta, d0, threshold)
    brier = _brier(pi, m, g, eta, d0)
    return ContextTruth(
        prevalence=pi,
        standard=separation(1, 0),
        att=separation(1, 1),
        ipw=ipw,
        matched=_matched(pi, m, g, eta, d0),
        strata=auroc,
        threshold=threshold,
        sensitivity=float(ndtr((mean - threshold) / sd_pos)),
        sensitivity_att=float(ndtr((mean - g * m - threshold) / sd_pos)),
        sensitivity_ipw=float(at_ipw),
        sensitivity_local=local,
        sensitivity_global=overall,
        specificity_global=specificity,
        brier=brier,
        brier_skill_score=1 - brier / (pi * (1 - pi)),
        certain_positives=float(ndtr((logit(pi) + m * m / 2) / m)) if m > 0 else float(pi > 0.5),
    )


def _density(x: Floats) -> Floats:
    return np.exp(-x * x / 2) / np.sqrt(2 * np.pi)


def _grid(low: float, high: float) -> tuple[Floats, Floats]:
    """Gauss-Legendre points and weights on an interval."""
    return (low + high) / 2 + (high - low) / 2 * _NODES, (high - low) / 2 * _NODE_WEIGHTS


def _root(function: Callable[[float], float], low: float = -40.0, high: float = 40.0) -> float:
    """The crossing of a monotone function by halving, to the last bit."""
    rising = function(high) > function(low)
    for _ in range(200):
        middle = (low + high) / 2
        if (function(middle) > 0) == rising:
            high = middle
        else:
            low = middle
        if (low + high) / 2 == middle:  # neighbours: nothing moves any more
            break
    return (low + high) / 2


def _pairs(c_pos: Floats, mass_pos: Floats, c_neg: Floats, mass_neg: Floats, g: float, eta: float, d0: float) -> float:
    """AUROC between two weighted grids of context; the remaining noise of S is integrated exactly."""
    wins = ndtr((d0 + (g - eta) * c_pos[:, None] - g * c_neg[None, :]) / np.sqrt(2))
    return float(mass_pos @ wins @ mass_neg / (mass_pos.sum() * mass_neg.sum()))


def _matched(pi: float, m: float, g: float, eta: float, d0: float) -> float:
    """AUROC of the optimal 1:1 matched set in the limit of many rows (see the module docstring)."""
    low, high = -_REACH, _REACH + m
    c, width = _grid(low, high)
    if m == 0 or pi == 0.5:  # nothing to match on, or nobody left over: the matched set is the whole sample
        return _pairs(c, width * _density(c - m), c, width * _density(c), g, eta, d0)
    if pi < 0.5:
        # Not a monotone function over the whole line, but it changes sign once: search where the ratio is > 1.
        cut = _root(lambda t: float((1 - pi) * ndtr(-t) - pi * ndtr(m - t)), low, (m * m / 2 - logit(pi)) / m)
        cut = min(cut, high)
        below, above = _grid(low, cut), _grid(cut, high)
        chosen = np.r_[below[0], above[0]]
        mass = np.r_[below[1] * _density(below[0] - m), above[1] * _density(above[0]) * (1 - pi) / pi]
        return _pairs(c, width * _density(c - m), chosen, mass, g, eta, d0)
    cut = _root(lambda t: float(pi * ndtr(t - m) - (1 - pi) * ndtr(t)), (m * m / 2 - logit(pi)) / m, high)
    cut = max(cut, low)
    below, above = _grid(low, cut), _grid(cut, high)
    chosen = np.r_[below[0], above[0]]
    mass = np.r_[below[1] * _density(below[0] - m) * pi / (1 - pi), above[1] * _density(above[0])]
    return _pairs(chosen, mass, c, width * _density(c), g, eta, d0)


_Three = tuple[float, float, float]


def _strata(
    pi: float, m: float, g: float, eta: float, d0: float, threshold: float
) -> tuple[_Three, _Three, _Three, _Three]:
    """AUROC, sensitivity at the stratum's own and at the common threshold, specificity there; by stratum of q."""
    if m == 0:  # q is one number: everybody is in the middle group
        edges = [(-_REACH, _REACH)]
    else:
        cuts = [
            _root(lambda c, share=share: float(pi * ndtr(c - m) + (1 - pi) * ndtr(c) - share))  # type: ignore[misc]
            for share in (0.25, 0.75)
        ]
        edges = [(-_REACH, cuts[0]), (cuts[0], cuts[1]), (cuts[1], _REACH + m)]
    rows = []
    for low, high in edges:
        c, width = _grid(low, high)
        pos, neg = width * _density(c - m), width * _density(c)
        pos, neg = pos / pos.sum(), neg / neg.sum()
        own = _root(lambda t, c=c, neg=neg: float(neg @ ndtr(g * c - t) - 0.05))  # type: ignore[misc]
        centre = d0 + (g - eta) * c
        rows.append(
            (
                _pairs(c, pos, c, neg, g, eta, d0),
                float(pos @ ndtr(centre - own)),
                float(pos @ ndtr(centre - threshold)),
                float(neg @ ndtr(threshold - g * c)),
            )
        )
    if m == 0:
        empty = (np.nan,) * 4
        rows = [empty, rows[0], empty]
    auroc, local, overall, specificity = zip(*rows, strict=True)
    return auroc, local, overall, specificity


def _probability_line(pi: float, m: float, g: float, eta: float, d0: float) -> tuple[float, float]:
    """Slope and intercept of logit(prob) in S: the linear discriminant, near calibrated and rising."""
    gap = d0 + (g - eta) * m
    variance = pi * (1 + (g - eta) ** 2) + (1 - pi) * (1 + g * g)
    return gap / variance, float(logit(pi)) - gap * gap / (2 * variance)


def _brier(pi: float, m: float, g: float, eta: float, d0: float) -> float:
    """Brier score of `prob`."""
    slope, intercept = _probability_line(pi, m, g, eta, d0)
    z, width = _grid(-_REACH, _REACH)
    mass = width * _density(z)
    positives = expit(intercept + slope * (d0 + (g - eta) * m + np.sqrt(1 + (g - eta) ** 2) * z))
    negatives = expit(intercept + slope * np.sqrt(1 + g * g) * z)
    return float(pi * (mass @ (1 - positives) ** 2) + (1 - pi) * (mass @ negatives**2))


# Seed -> a PREDICTION table of six findings whose share of chart context is planted, for the demo and the tests.

_MOST_IMAGES = 8


@dataclass(frozen=True, slots=True)
class DemoFinding:
    """Parameters of D1 for one finding; `masked` is the share of labels hidden at random, which moves no truth."""

    finding: str
    pi: float
    m: float
    g: float
    eta: float
    d0: float
    masked: float = 0.0
    story: str = ""


DEMO_FINDINGS = (
    DemoFinding("pleural_effusion", 0.25, 1.0, 0.8, 0.4, 1.8, story="common, some context"),
    DemoFinding("atelectasis", 0.20, 0.8, 0.5, 0.2, 1.2, story="common, a little context"),
    DemoFinding("edema", 0.12, 1.6, 1.2, 0.0, 0.3, story="mostly context: the chart gives it away"),
    DemoFinding("pneumothorax", 0.06, 0.8, 0.0, 0.0, 1.6, story="no context in the score at all"),
    DemoFinding("consolidation", 0.10, 1.0, 0.6, 0.3, 1.3, masked=0.2, story="a fifth of the labels is masked"),
    DemoFinding("fracture", 0.008, 0.7, 0.4, 0.2, 1.5, story="few positives: intervals are wide"),
)


def demo_truth() -> dict[str, ContextTruth]:
    """finding -> population values that the demo's audits must come close to."""
    return {f.finding: context_truth(pi=f.pi, m=f.m, g=f.g, eta=f.eta, d0=f.d0) for f in DEMO_FINDINGS}


def demo_predictions(n_patients: int = 1500, seed: int = 0) -> pa.Table:
    """`n_patients` patients with 1 to 8 images each, one row per image and finding.

    Age, sex, race and view are drawn without any bearing on label or score: an audit of subgroups must find nothing.
    """
    import pyarrow as pa

    from cxrhf.schema import PREDICTION
    from cxrhf.tables.checks import check

    rng = np.random.default_rng(seed)
    odds = 0.7 ** np.arange(_MOST_IMAGES)
    images = rng.choice(np.arange(1, _MOST_IMAGES + 1), size=n_patients, p=odds / odds.sum())
    patient = np.repeat(np.arange(n_patients), images)
    n = len(patient)
    # Two thirds of the images open a new study; the first image of a patient always does.
    opens = (rng.random(n) < 2 / 3) | np.r_[True, patient[1:] != patient[:-1]]
    study = np.cumsum(opens)
    age = np.clip(np.round(rng.normal(61, 17, size=n_patients)), 18, 95)[patient]
    sex = rng.choice(["F", "M"], size=n_patients)[patient]
    race = rng.choice(["white", "black", "asian"], size=n_patients, p=[0.70, 0.20, 0.10])[patient]
    view = rng.choice(["AP", "PA"], size=n, p=[0.6, 0.4])
    image_id = np.array([f"image{i:06d}" for i in range(n)])
    patient_id = np.array([f"patient{i:05d}" for i in range(n_patients)])[patient]
    study_id = np.array([f"study{i:06d}" for i in study])

    tables = []
    for f in DEMO_FINDINGS:
        rows = context_of(patient, rng, pi=f.pi, m=f.m, g=f.g, eta=f.eta, d0=f.d0)
        hidden = rng.random(n) < f.masked
        mention = rows.context + rng.standard_normal(n) > 1.0
        tables.append(
            pa.table(
                {
                    "image_id": image_id,
                    "study_id": study_id,
                    "patient_id": patient_id,
                    "dataset": np.repeat("demo", n),
                    "split": np.repeat("test", n),
                    "model": np.repeat("demo", n),
                    "seed": np.zeros(n, dtype=np.int64),
                    "finding": np.repeat(f.finding, n),
                    "label": pa.array(rows.y.astype(np.int8), mask=hidden),
                    "prob": rows.prob,
                    "logit": logit(rows.prob),
                    "pretest": rows.pretest,
                    "mention": mention,
                    "weight": np.ones(n),
                    "age": age,
                    "sex": sex,
                    "race": race,
                    "view": view,
                }
            )
        )
    return check(pa.concat_tables(tables).combine_chunks(), PREDICTION, source="demo")
