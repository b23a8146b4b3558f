"""Seeded inputs of every evaluate module, and how results are compared: to the last bit, NaN equal to NaN."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

import cxrhf

TEXTS = ("cad", "wae", "lexical_diversity")
NUMBERS = (
    "adaptive_calibration_error",
    "balanced_brier",
    "brier_skill_score",
    "matched_auroc",
    "sensitivity_at_specificity",
    "subgroup_rates",
    "weighted_auroc",
)
CASES = (*NUMBERS, *TEXTS)
_INPUTS = {
    "matched_auroc": ("context", "clusters"),
    "subgroup_rates": ("groups", "sample_weight", "clusters"),
    "weighted_auroc": ("sample_weight", "context", "clusters"),
}
_WORDS = ("effusion", "clear", "lungs", "heart", "normal", "opacity", "pacemaker", "mastectomy", "spine", "no", "mild")


@cache
def _module(name: str) -> Any:
    import evaluate

    return evaluate.load(cxrhf.metric_path(name))


def loaded(name: str) -> Any:
    """The module, loaded once a process and without rows."""
    module = _module(name)
    module.__dict__["_rows"] = []
    return module


def case(name: str, labels: int = 1, n: int = 180) -> dict[str, Any]:
    """Inputs of a module: patients with several rows, scores with ties, weights; with several labels some missing."""
    rng = np.random.default_rng(7)
    sex = np.where(np.arange(n) // 2 % 2 == 0, "F", "M").astype(object)
    patients = np.array([f"p{i // 2}" for i in range(n)], dtype=object)
    if name in TEXTS:
        rate = np.where((sex == "F")[:, None] & (np.array(_WORDS) == "mastectomy"), 0.6, 0.3)
        written = [" ".join(np.array(_WORDS)[row]) for row in rng.random((n, len(_WORDS))) < rate]
        generated = [" ".join(np.array(_WORDS)[row]) for row in rng.random((n, len(_WORDS))) < 0.35]
        out = {"predictions": generated, "references": written, "groups": sex, "clusters": patients}
        if name == "lexical_diversity":
            del out["groups"]
        return {key: np.array(value, dtype=object) for key, value in out.items()}
    shape = n if labels == 1 else (n, labels)
    y = (rng.random(shape) < 0.35).astype(float)
    q = np.clip(0.3 + 0.2 * y + 0.2 * rng.standard_normal(shape), 0.02, 0.98).round(2)
    p = np.clip(0.2 + 0.3 * y + 0.2 * q + 0.15 * rng.standard_normal(shape), 0, 1).round(2)
    if labels > 1:
        y[3, 1] = y[10, 0] = np.nan
        p[3, 1] = np.nan
    everything = {
        "sample_weight": rng.integers(1, 4, n).astype(float),
        "context": q,
        "groups": sex,
        "clusters": patients,
    }
    extra = _INPUTS.get(name, ("sample_weight", "clusters"))
    return {"predictions": p, "references": y, **{key: everything[key] for key in extra}}


def same(a: Any, b: Any) -> bool:
    """Equal to the last bit, NaN equal to NaN, through dicts and lists."""
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))
    if isinstance(a, (float, np.floating)) and isinstance(b, (float, np.floating)):
        return float(a).hex() == float(b).hex()
    return bool(a == b)


def subprocess_environment(home: Path, *, path: str | None = None) -> dict[str, str]:
    """Offline, with caches of its own; `path` replaces PYTHONPATH."""
    changes = {
        "HF_HOME": str(home / "hf"),
        "HF_HUB_OFFLINE": "1",
        "HF_EVALUATE_OFFLINE": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "TQDM_DISABLE": "1",
    }
    if path is not None:
        changes["PYTHONPATH"] = path
    return os.environ | changes
