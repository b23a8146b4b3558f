"""The files of a made-up hospital -> linked dataset -> what its notes tell of one finding, beside what was planted."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from cxrhf.selfchecking.check import Check, exact, learned
from cxrhf.selfchecking.spread import auroc_parts, error
from cxrhf.tables.temporary import temporary_folder

PATIENTS = 800
FINDING = "edema"
# A model that is fitted to some hundred patients knows less than the law that made their notes.
LOST = 0.05


def check(seed: int = 0) -> list[Check]:
    """MIMIC's layout without pictures: build, fit words of prior notes by patient, compare on all patients."""
    import pyarrow.compute as pc

    from cxrhf.config_build import BuildConfig
    from cxrhf.data.build import build
    from cxrhf.data.load import load_images
    from cxrhf.data.synthetic import write
    from cxrhf.metrics import auroc
    from cxrhf.pretesting import fit_context

    with temporary_folder("selfcheck") as folder:
        write("mimic", folder / "raw", n_patients=PATIENTS, seed=seed, pixels=False, reports=False)
        built = build(BuildConfig("mimic_cxr_context", root=(str(folder / "raw"),), out=str(folder / "built"),
                                  no_pixels=True))  # fmt: skip
        run = fit_context(folder / "built", out=folder / "run", features=["words"], findings=[FINDING], n_resamples=50,
                          workers=1, seed=seed)  # fmt: skip
        truth = json.loads((folder / "raw" / "truth.json").read_text(encoding="utf-8"))["findings"][FINDING]["text"]
        images = load_images(Path(built.folder), columns=["image_id", "patient_id", "split"])
        rows = run.predictions.filter(pc.is_valid(run.predictions["label"]))
    y, p = rows["label"].to_numpy().astype(np.int64), rows["prob"].to_numpy()
    patients = np.unique(rows["patient_id"].to_pylist(), return_inverse=True)[1]
    area, spread = auroc(y, p), error(auroc_parts(y, p), patients)
    in_two = images.group_by("patient_id").aggregate([("split", "count_distinct")])["split_count_distinct"]
    return [
        exact("patients in more than one split", 0, float(pc.sum(pc.greater(in_two, 1)).as_py())),
        learned("AUROC of prior notes", truth["auroc"], area, spread, LOST),
    ]
