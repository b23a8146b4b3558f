"""The same cases, each image three times -> intervals must not shrink: patients are what is resampled."""

from __future__ import annotations

import numpy as np

from cxrhf.data.planted_context import context
from cxrhf.selfchecking.check import Check, Rows, exact, wide
from cxrhf.selfchecking.spread import auroc_error

N, TIMES = 2000, 3


def check(seed: int = 0) -> list[Check]:
    """Copies are no data: the AUROC stays, and so does what is not known of it."""
    import cxrhf

    made = context(N, seed=seed)

    def audited(times: int) -> Rows:
        table = {
            "image_id": np.arange(N * times),
            "patient_id": np.repeat(np.arange(N), times),
            "label": np.repeat(made.y, times),
            "prob": np.repeat(made.prob, times),
        }
        found = cxrhf.audit(table, only="overview", n_resamples=1000, seed=seed)
        return Rows([row for row in found.results.to_pylist() if row["finding"] != "macro"])

    once, copied = audited(1), audited(TIMES)
    spread = auroc_error(made.y, made.score)
    return [
        wide("AUROC, one image per patient: width of interval", once("auroc"), spread),
        exact("AUROC, each image three times", once.value("auroc"), copied.value("auroc")),
        wide("each image three times: width of interval", copied("auroc"), spread),
    ]
