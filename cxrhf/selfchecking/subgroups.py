"""D3, races that differ in prevalence and age -> gaps that balancing takes away, and one that it must not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from scipy.special import expit

from cxrhf.data.planted_subgroups import AGE, PREVALENCE, SHARE, PlantedSubgroups, subgroups
from cxrhf.selfchecking.check import Check, Rows, near, seen, unseen
from cxrhf.selfchecking.spread import Floats, auroc_error, counting, rate_error

N = 30_000
SHIFT = 0.5
FPR = 0.2
THIRD = 2  # the race whose positives score lower
YEARS = np.array([25.0, 45.0, 65.0])  # the planted ages 0, 1, 2, in bins of their own


def check(seed: int = 0) -> list[Check]:
    """Nobody is treated worse; then positives of the third race score lower at the same age and disease."""
    fair, unfair = subgroups(N, seed=seed), subgroups(N, shift=SHIFT, seed=seed + 1)
    equal, worse = audited(fair, seed), audited(unfair, seed)
    own = unfair.race == THIRD
    area = auroc_error(unfair.y[own], unfair.score[own], balancing(unfair)[own])
    return [
        *rates("lower scores", unfair, SHIFT, worse),
        near("lower scores: AUROC, balanced", unfair.truth.balanced_auroc[THIRD],
             worse.value("auroc_balanced", slice=f"race={THIRD}"), area),
        seen("lower scores: gap in TPR, balanced", gap(worse, "tpr_balanced")),
        unseen("lower scores: gap in FPR, balanced", gap(worse, "fpr_balanced")),
        *rates("same scores", fair, 0.0, equal),
        *(unseen(f"same scores: gap in {name}, balanced", gap(equal, f"{name.lower()}_balanced"))
          for name in ("TPR", "FPR", "AUROC")),
    ]  # fmt: skip


def audited(made: PlantedSubgroups, seed: int) -> Rows:
    """RESULT rows of the one finding."""
    import cxrhf

    table = {
        "image_id": np.arange(N),
        "patient_id": made.patient,
        "label": made.y,
        "prob": expit(made.score),
        "race": made.race.astype(str),
        "age": YEARS[made.age],
    }
    found = cxrhf.audit(table, only="subgroups", n_resamples=300, seed=seed)
    return Rows([row for row in found.results.to_pylist() if row["finding"] != "macro"])


def gap(found: Rows, metric: str) -> Mapping[str, Any]:
    """The largest difference between races."""
    races = {f"race={race}" for race in range(3)}
    (row,) = [row for row in found.those(metric=metric) if row["slice"] in races and row["versus"] in races]
    return row


def rates(name: str, made: PlantedSubgroups, shift: float, found: Rows) -> list[Check]:
    """TPR of the third race, as it is and balanced, at the threshold that has the wanted FPR over all."""
    truth, weight, where = made.truth, balancing(made), {"slice": f"race={THIRD}"}
    own, negatives = (made.race == THIRD) & (made.y == 1), made.y == 0
    centre = {True: 1.4 - shift + 0.4 * made.age[own], False: 0.4 * made.age[negatives]}
    at = {positive: np.exp(-((truth.threshold - each) ** 2) / 2).mean() for positive, each in centre.items()}
    slope = float(at[True] / at[False])
    plain, balanced = truth.tpr[THIRD], truth.balanced_tpr[THIRD]
    return [
        near(f"{name}: TPR", plain, found.value("tpr", **where),
             rate_error(plain, own.sum(), FPR, negatives.sum(), slope)),
        near(f"{name}: TPR, balanced", balanced, found.value("tpr_balanced", **where),
             rate_error(balanced, counting(weight[own]), FPR, counting(weight[negatives]), slope)),
    ]  # fmt: skip


def balancing(made: PlantedSubgroups) -> Floats:
    """w = P(d) P(a | d) / P(r, d, a), from the planted shares."""
    joint = np.stack([SHARE * (1 - PREVALENCE), SHARE * PREVALENCE])[:, :, None] * AGE
    return np.asarray((joint.sum(axis=1)[:, None, :] / joint)[made.y, made.race, made.age])
