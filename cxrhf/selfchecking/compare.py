"""D1 read by three models, one of them weaker by a known amount -> paired differences of their AUROC."""

from __future__ import annotations

import numpy as np

from cxrhf.data.planted_context import context, context_truth
from cxrhf.selfchecking.check import Check, Rows, near, seen, unseen, wide
from cxrhf.selfchecking.spread import auroc_parts, error

N = 4000
G, ETA = 0.8, 0.4
SIGNAL = {"first": 1.5, "as good": 1.5, "weaker": 1.1}  # what the picture shows each of them


def check(seed: int = 0) -> list[Check]:
    """The models see the same patients and charts, each with its own noise."""
    import cxrhf

    made = context(N, g=G, eta=ETA, seed=seed)
    rng = np.random.default_rng([seed, 5])
    scores = {
        name: (signal - ETA * made.context) * made.y + G * made.context + rng.standard_normal(N)
        for name, signal in SIGNAL.items()
    }
    table = {
        "image_id": np.tile(np.arange(N), len(scores)),
        "patient_id": np.tile(np.arange(N), len(scores)),
        "model": np.repeat(list(scores), N),
        "label": np.tile(made.y, len(scores)),
        "score": np.concatenate(list(scores.values())),
    }
    audited = cxrhf.audit(table, only="overview,compare", baseline="first", n_resamples=400, seed=seed)
    found = Rows([row for row in audited.results.to_pylist() if row["finding"] != "macro"])
    parts = {name: auroc_parts(made.y, score) for name, score in scores.items()}
    truth = {name: context_truth(g=G, eta=ETA, d0=signal).standard for name, signal in SIGNAL.items()}

    def differ(name: str) -> tuple[float, float]:
        return truth["first"] - truth[name], error(parts["first"] - parts[name])

    weaker, alike = (found("auroc", audit="compare", versus=f"model={name}") for name in ("weaker", "as good"))
    expected, spread = differ("weaker")
    return [
        near("weaker model: difference in AUROC", expected, float(weaker["value"]), spread),
        wide("weaker model: width of its interval (paired)", weaker, spread),
        seen("weaker model: difference exceeds chance", weaker),
        near("equal model: difference in AUROC", 0.0, float(alike["value"]), differ("as good")[1]),
        unseen("equal model: no difference found", alike),
    ]
