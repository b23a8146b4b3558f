"""The NIH example file -> the first numbers and the first figure of the README (`make readme`)."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path
from typing import Any

import cxrhf
from cxrhf.auditing import Audit

ROOT = Path(__file__).resolve().parents[1]
PREDICTIONS = ROOT / "examples" / "nih_predictions.csv.gz"
FIGURE = ROOT / "docs" / "waterfall.svg"
README = ROOT / "README.md"
PRETEST = "from:age,sex,view,prior_labels"
_PLACE = re.compile(r"(?<=<!-- made by make readme -->\n).*?(?=\n<!-- end -->)", re.DOTALL)


def audit(**settings: Any) -> Audit:
    return cxrhf.audit(PREDICTIONS, pretest=PRETEST, **settings)


def sentence(audited: Audit) -> str:
    """What the audit found, in the words of the README."""
    whole = [row for row in audited.results.to_pylist() if row["finding"] == "macro" and row["slice"] == "all"]
    mean = {row["metric"]: row["value"] for row in whole if row["versus"] is None}
    n, patients = whole[0]["n"], whole[0]["n_patients"]
    return (
        f"On {n:,} NIH images of {patients:,} patients, a public reproduction of CheXNet reaches a mean AUROC of "
        f"**{mean['auroc']:.3f}**.\nAge, sex, view and the labels of earlier images alone, without the image, reach "
        f"**{mean['auroc_context']:.3f}**.\nWith these held equal between positives and negatives, the model reaches "
        f"**{mean['auroc_att']:.3f}**."
    )


def write() -> None:
    """Audit at the default settings; replace the sentence in the README and the figure."""
    audited = audit()
    with tempfile.TemporaryDirectory() as folder:
        audited.save(folder)
        FIGURE.write_text((Path(folder) / "figures" / "waterfall.svg").read_text())
    README.write_text(_PLACE.sub(sentence(audited), README.read_text()))


if __name__ == "__main__":
    write()
