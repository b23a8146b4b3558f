"""A predictions file -> its audit: how much of the AUROC comes from the image, the warnings, and the page.

    python examples/audit_predictions.py
    python examples/audit_predictions.py --predictions yours.csv

The file has one row per image: the patient, the label and probability of each finding, and the pre-test probability
(`pretest_<finding>`; without it, pass `pretest="from:age,sex"`). The synthetic file here has a trap: the model detects
cardiomegaly in the image, but pneumothorax only from the context. Both have a fair AUROC.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

import cxrhf


def write_predictions(path: Path, patients: int = 800, seed: int = 0) -> None:
    """Two images a patient, as CSV."""
    rng = np.random.default_rng(seed)
    columns: dict[str, np.ndarray] = {"image_id": np.arange(2 * patients), "patient_id": np.arange(2 * patients) // 2}
    columns["sex"] = rng.choice(["F", "M"], patients).repeat(2)
    for finding, seen in {"cardiomegaly": 1.5, "pneumothorax": 0.0}.items():
        chart = rng.normal(-1, 1, patients).repeat(2)  # log odds before the image
        pretest = 1 / (1 + np.exp(-chart))
        label = (rng.random(2 * patients) < pretest).astype(int)
        logit = chart + seen * (label - 0.5) + rng.normal(0, 0.5, 2 * patients)
        columns |= {finding: label, f"prob_{finding}": 1 / (1 + np.exp(-logit)), f"pretest_{finding}": pretest}
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [",".join(columns), *(",".join(map(str, row)) for row in zip(*columns.values(), strict=True))]
    path.write_text("\n".join(lines), encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--predictions", type=Path, help="your own file (CSV, Parquet or JSON lines)")
    parser.add_argument("--out", type=Path, default=Path("runs/example"), help="folder for the page and the tables")
    given = parser.parse_args()
    file = given.predictions or given.out.with_suffix(".csv")
    if given.predictions is None:
        write_predictions(file)

    found = cxrhf.audit(file, n_resamples=1000)  # intervals draw patients, not images
    print(found)
    print()
    # RESULT rows, one for every number (docs/reference/results.md). A drop is the AUROC minus the AUROC with context
    # held equal (ATT).
    for row in found.results.to_pylist():
        if (row["metric"], row["versus"]) == ("auroc_drop", "auroc_att") and row["finding"] != "macro":
            rest = found.value("auroc_att", finding=row["finding"])
            ends = f"{row['ci_low']:.3f} to {row['ci_high']:.3f}"
            print(
                f"{row['finding']}: {row['value']:.3f} ({ends}) of its AUROC comes from the context; {rest:.3f} remains"
            )
    print("page:", found.save(given.out, overwrite=True))


if __name__ == "__main__":
    main()
