"""A seed -> PREDICTION rows of made-up context models, calibrated, and what context.json holds of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from scipy.special import expit

from cxrhf.schema import PREDICTION
from cxrhf.tables.checks import check

# Family -> kind, classifier, parameters, how noisy it reads the chart (SD).
FAMILIES: Mapping[str, tuple[str, str, Mapping[str, Any], float]] = {
    "words": ("words", "LinearSVC", {"C": 0.1}, 0.8),
    "boosted": ("boosted", "XGBoost", {"max_depth": 4, "learning_rate": 0.1}, 1.0),
    "minilm": ("encoder", "LogisticRegression", {"C": 10.0}, 0.6),
}
WORDS = ("bumetanide", "milrinone", "torsemide", "congestion", "stairs", "diastolic", "echocardiogram", "hiking",
         "hydrochlorothiazide", "puffy")  # fmt: skip
FINDINGS = ("edema", "fracture", "lung_lesion")


def scored_rows(
    findings: Sequence[str] = FINDINGS,
    *,
    n_patients: int = 400,
    families: Mapping[str, tuple[str, str, Mapping[str, Any], float]] = FAMILIES,
    chosen: str = "minilm",
    dataset: str = "synthetic",
    strength: float = 1.0,
    seed: int = 0,
) -> pa.Table:
    """Rows of all splits (60, 10 and 30%), for every family and for "context"."""
    random = np.random.default_rng(seed)
    images = np.repeat(np.arange(n_patients), random.integers(1, 4, n_patients))
    split = np.array(["train"] * 6 + ["validate"] + ["test"] * 3)[np.arange(n_patients) % 10][images]
    parts = []
    for finding in findings:
        base = random.uniform(-2.0, -0.5)
        chart = random.standard_normal(n_patients)[images]
        y = random.random(len(images)) < expit(base + strength * chart)
        seen = {}
        for name, (*_, noise) in families.items():
            read = chart + noise * np.random.default_rng([seed, len(seen), 7]).standard_normal(n_patients)[images]
            seen[name] = expit(base + strength * read / (1 + noise**2))
        for name, prob in [("context", seen[chosen]), *seen.items()]:
            parts.append(
                pa.table(
                    {
                        "image_id": [f"i{at:05d}" for at in range(len(images))],
                        "patient_id": [f"p{at:04d}" for at in images],
                        "dataset": [dataset] * len(images),
                        "split": split,
                        "model": [name] * len(images),
                        "seed": np.zeros(len(images), dtype=np.int64),
                        "finding": [finding] * len(images),
                        "label": y.astype(np.int8),
                        "prob": prob,
                        "mention": chart > 0.75,
                    }
                )
            )
    return check(pa.concat_tables(parts), PREDICTION, source="made up")


def made_choices(
    findings: Sequence[str] = FINDINGS,
    *,
    families: Mapping[str, tuple[str, str, Mapping[str, Any], float]] = FAMILIES,
    chosen: str = "minilm",
    unfitted: Mapping[str, str] | None = None,
    seed: int = 0,
) -> dict[str, Any]:
    """What context.json holds for such rows."""
    random = np.random.default_rng(seed)
    found: dict[str, Any] = {}
    for finding in findings:
        described = {}
        for name, (kind, classifier, parameters, _) in families.items():
            cv = float(random.uniform(0.6, 0.7))
            sign = -1.0 if kind == "words" else 1.0
            order = random.permutation(len(WORDS))
            weights = np.sort(random.uniform(0.1, 1.0, len(WORDS)))[::-1]
            features = [
                {"word": WORDS[at], "value": float(weight * (sign if k % 3 == 2 else 1)), "rank": k + 1,
                 "effect": float(weight / 10 * (sign if k % 3 == 2 else 1))}
                for k, (at, weight) in enumerate(zip(order, weights, strict=True))
            ]  # fmt: skip
            described[name] = {
                "kind": kind,
                "classifier": classifier,
                "parameters": dict(parameters),
                "calibration": "isotonic" if kind == "boosted" else "platt",
                "cv_auroc": cv,
                "cv_auroc_sd": 0.012,
                "validation_auroc": cv + (0.05 if name == chosen else 0.0),
                "tried": [{"classifier": classifier, "parameters": dict(parameters), "cv_auroc": cv, "seconds": 0.1,
                           "failed": None}],
                "reasons": [],
                "features": [] if kind == "encoder" else features,
                "signed": None if kind == "encoder" else kind == "words",
            }  # fmt: skip
        found[finding] = {"chosen": chosen, "families": described, "reason": None, "n": 560, "n_pos": 120,
                          "n_patients": 280}  # fmt: skip
    for finding, why in (unfitted or {}).items():
        found[finding] = {"chosen": None, "families": {}, "reason": why, "n": 560, "n_pos": 3, "n_patients": 280}
    return {
        "format": 1,
        "findings": found,
        "without_notes": {"images": 1234, "patients": 310, "how": "exclude"},
        "mention_rule": "words",
        "choose": "validation",
    }
