"""Notes from before the image that tell something, and later ones that tell all -> only the earlier ones may count."""

from __future__ import annotations

import csv

import numpy as np

from cxrhf.selfchecking.check import Check, Rows, exact, learned
from cxrhf.selfchecking.spread import share_error
from cxrhf.tables.temporary import temporary_folder

N = 1500
TOLD, SAID_ANYWAY = 0.7, 0.3  # how often an earlier note names the finding, with and without it
LOST = 0.02  # folds that learn one word a little differently rank a little worse
IMAGE, BEFORE, LATER = "2020-03-02", "2020-02-01 10:00:00", "2020-03-02 23:59:00"


def check(seed: int = 0) -> list[Check]:
    """One word is all that the earlier note tells, so the AUROC of the notes is (.7 + 1 - .3) / 2."""
    import cxrhf

    rng = np.random.default_rng([seed, 9])
    y = (rng.random(N) < 0.4).astype(int)
    named = rng.random(N) < np.where(y == 1, TOLD, SAID_ANYWAY)
    table = {
        "image_id": [f"i{at}" for at in range(N)],
        "patient_id": [f"p{at}" for at in range(N)],
        "study_date": [IMAGE] * N,
        "label": y,
        "prob": rng.random(N),
    }
    with temporary_folder("selfcheck") as folder:
        path = folder / "notes.csv"
        with path.open("w", newline="", encoding="utf-8") as file:
            lines = csv.writer(file)
            lines.writerow(["patient_id", "charttime", "text"])
            for at in range(N):
                lines.writerow([f"p{at}", BEFORE, f"Seen with {'edema' if named[at] else 'a broken toe'}, sent home."])
                lines.writerow([f"p{at}", LATER, "The image shows edema." if y[at] else "The image shows nothing."])
        found = cxrhf.audit(table, notes=str(path), finding="edema", only="context,reweighted", n_resamples=100,
                            seed=seed)  # fmt: skip
    rows = Rows(found.results.to_pylist())
    alone = rows.value("auroc_context", finding="edema", audit="reweighted")
    # Half of each error: the AUROC of one word is the mean of a sensitivity and a specificity.
    error = np.hypot(share_error(TOLD, y.sum()), share_error(SAID_ANYWAY, (1 - y).sum())) / 2
    mentioned = rows("auroc", finding="edema", audit="context", slice="mention=yes")
    return [
        learned("AUROC of prior notes (with later ones: 1)", (TOLD + 1 - SAID_ANYWAY) / 2, alone, float(error), LOST),
        exact("images whose prior note names the finding", int(named.sum()), float(mentioned["n"])),
    ]
