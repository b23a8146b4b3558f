"""D5, probabilities that are right or too high by a known step -> what the overview says of them."""

from __future__ import annotations

import numpy as np
from scipy.special import expit, logit

from cxrhf.data.planted_calibration import PlantedCalibration, calibrated
from cxrhf.selfchecking.check import Check, Rows, near
from cxrhf.selfchecking.spread import Floats, mean_error

N = 8000
STEP = 0.4
BINS, SIMULATIONS = 10, 200  # of the audit


def check(seed: int = 0) -> list[Check]:
    """Two findings: one model is too sure by .4 of log odds, one is calibrated."""
    import cxrhf

    high, right = calibrated(N, STEP, seed=seed), calibrated(N, seed=seed + 1)
    table = {
        "image_id": np.tile(np.arange(N), 2),
        "patient_id": np.tile(np.arange(N), 2),
        "finding": np.repeat(["edema", "fracture"], N),
        "label": np.r_[high.y, right.y],
        "prob": np.r_[high.prob, right.prob],
    }
    found = Rows(cxrhf.audit(table, only="overview", n_resamples=100, seed=seed).results.to_pylist())
    return [*of_high(found, high), *of_right(found, right)]


def of_high(found: Rows, made: PlantedCalibration) -> list[Check]:
    """Every bin is off in the same direction, so the adaptive calibration error is the mean of p - y."""
    truth, y, p = made.truth, made.y, made.prob
    own = {"finding": "edema"}
    return [
        near("overconfident: adaptive calibration error", truth.adaptive_calibration_error,
             found.value("adaptive_calibration_error", **own), mean_error(p - y)),
        near("overconfident: Brier score", truth.brier, found.value("brier", **own), mean_error((p - y) ** 2)),
        near("overconfident: Brier skill score", truth.brier_skill_score, found.value("brier_skill_score", **own),
             skill_error(made)),
        near("overconfident: calibration in the large", truth.in_the_large,
             found.value("calibration_in_the_large", **own), large_error(p, STEP)),
    ]  # fmt: skip


def of_right(found: Rows, made: PlantedCalibration) -> list[Check]:
    """A calibrated model still has an error: what chance leaves in bins, |normal| in each."""
    p, own = made.prob, {"finding": "fracture"}
    bins = np.array_split(np.sort(p), BINS)
    spread = np.array([np.sqrt((each * (1 - each)).sum()) / len(each) for each in bins])
    chance = spread.mean() * np.sqrt(2 / np.pi)
    varies = np.sqrt((spread**2).sum() * (1 - 2 / np.pi)) / BINS
    return [
        near("calibrated: adaptive calibration error", chance, found.value("adaptive_calibration_error", **own),
             varies),
        near("calibrated: error expected by chance", chance, found.value("expected_ace", **own),
             varies / np.sqrt(SIMULATIONS)),
        near("calibrated: calibration in the large", 0.0, found.value("calibration_in_the_large", **own),
             large_error(p, 0)),
        near("calibrated: slope", 1.0, found.value("calibration_slope", **own), slope_error(p)),
        near("calibrated: Brier skill score", made.truth.brier_skill_score, found.value("brier_skill_score", **own),
             skill_error(made)),
    ]  # fmt: skip


def skill_error(made: PlantedCalibration) -> float:
    """Of 1 - Brier / (share (1 - share)), in which both vary."""
    share, missed = made.truth.prevalence, (made.prob - made.y) ** 2
    varies = share * (1 - share)
    return mean_error(missed / varies - made.truth.brier * (1 - 2 * share) * made.y / varies**2)


def large_error(p: Floats, step: float) -> float:
    """Of the constant that is added to log odds: the information is the sum of the labels' variances."""
    rate = expit(logit(p) - step)
    return float(1 / np.sqrt((rate * (1 - rate)).sum()))


def slope_error(p: Floats) -> float:
    """Of the slope of a logistic regression on the log odds, with a constant beside it."""
    odds, varies = logit(p), p * (1 - p)
    centre = np.average(odds, weights=varies)
    return float(1 / np.sqrt((varies * (odds - centre) ** 2).sum()))
