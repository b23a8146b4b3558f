"""Overhead of the evaluate modules: `compute` on 20,770 rows x 13 labels against the bare function, label by label."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

import cxrhf
from benchmarks.rows import Row, row
from cxrhf import metrics as core

ROWS, LABELS, REPEATS = 20_770, 13, 7
TARGET = 3.0


def _data() -> dict[str, Any]:
    rng = np.random.default_rng(0)
    y = (rng.random((ROWS, LABELS)) < 0.15).astype(float)
    q = np.clip(0.15 + 0.1 * y + 0.1 * rng.standard_normal(y.shape), 0.01, 0.99)
    p = 1 / (1 + np.exp(-(1.2 * y + 2 * q - 2 + rng.standard_normal(y.shape))))
    return {"predictions": p, "references": y, "context": q, "groups": rng.choice(["F", "M"], ROWS)}


def _bare(data: dict[str, Any]) -> dict[str, Callable[[int], Any]]:
    """The function behind each module, for one label."""
    y, p, q, groups = (data[key] for key in ("references", "predictions", "context", "groups"))
    return {
        "weighted_auroc": lambda k: core.auroc(y[:, k], p[:, k]),
        "balanced_brier": lambda k: core.balanced_brier(y[:, k], p[:, k]),
        "brier_skill_score": lambda k: core.brier_skill_score(y[:, k], p[:, k]),
        "adaptive_calibration_error": lambda k: core.adaptive_calibration_error(y[:, k], p[:, k]),
        "sensitivity_at_specificity": lambda k: core.sensitivity_at_specificity(y[:, k], p[:, k]),
        "matched_auroc": lambda k: core.matched_auroc(y[:, k], p[:, k], q[:, k]),
        "subgroup_rates": lambda k: core.subgroup_rates(y[:, k], p[:, k], groups),
    }


def _best(*functions: Callable[[], Any]) -> list[float]:
    """The shortest time of each, taken in turns so that a busy machine slows all alike."""
    best = [np.inf] * len(functions)
    for _ in range(REPEATS):
        for i, function in enumerate(functions):
            start = time.perf_counter()
            function()
            best[i] = min(best[i], time.perf_counter() - start)
    return best


def run() -> list[Row]:
    import evaluate

    data = _data()
    rows = []
    for name, bare in _bare(data).items():
        module = evaluate.load(cxrhf.metric_path(name))
        inputs = {key: data[key] for key in module.required}

        def through(module: Any = module, inputs: Any = inputs) -> Any:
            return module.compute(**inputs)

        def directly(bare: Callable[[int], Any] = bare) -> Any:
            return [bare(k) for k in range(LABELS)]

        through(), directly()
        ours, peer = _best(through, directly)
        what, note = f"evaluate module {name}, {ROWS:,} x {LABELS}", "compute() over the bare function for each label"
        rows.append(row(what, ours, peer, note, ratio=ours / peer, target=TARGET, at_most=True))
    return rows
