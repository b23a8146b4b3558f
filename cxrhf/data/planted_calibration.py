"""Parameters of planted truth D5 -> probabilities that are calibrated, or too high by a known step of log odds."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit, roots_jacobi

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
