"""People -> radiology reports in sections that follow labels and devices, with words the sexes share unequally."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping

import numpy as np
import polars as pl
from numpy.typing import NDArray

from cxrhf.data.synthetic.laws import PACEMAKER, STERNOTOMY
from cxrhf.data.synthetic.people import People

# word -> P(a report has it | sex). A patient has it in every report or in none; rates as in D4 where it has the word.
SEX_WORDS: Mapping[str, Mapping[str, float]] = {
    "mastectomy": {"F": 0.06, "M": 0.002},
    "breast": {"F": 0.20, "M": 0.01},
    "scoliosis": {"F": 0.15, "M": 0.088},
    "hyperinflated": {"F": 0.08, "M": 0.15},
    "pacemaker": PACEMAKER,
    "sternotomy": STERNOTOMY,
}
_SAID = {
    "mastectomy": "Clips after mastectomy project over the axilla.",
    "breast": "Breast shadows overlie both bases.",
    "scoliosis": "There is scoliosis of the thoracic spine.",
    "hyperinflated": "The lungs are hyperinflated.",
}
_DEVICES = {
    "drain": "A chest drain is in place.",
    "ecg_wires": "Monitoring leads overlie the chest; the film is hazy.",
    "pacemaker": "A pacemaker projects over the upper chest.",
    "central_line": "A central venous catheter ends in the lower caval vein.",
    "et_tube": "The endotracheal tube ends above the carina.",
    "sternotomy": "Wires of an earlier sternotomy are intact.",
}
# What is said where the finding is there, and what stands for it in the impression.
_POSITIVE = {
    "enlarged_cardiomediastinum": (
        "The mediastinum is widened.",
        "Broad mediastinum as before.",
        "Widened mediastinum",
    ),
    "cardiomegaly": ("There is cardiomegaly.", "The cardiac silhouette is enlarged.", "Cardiomegaly"),
    "lung_opacity": ("A patchy opacity lies in the mid lung.", "Scattered opacities are seen.", "Opacity in the lung"),
    "lung_lesion": ("A rounded nodule lies in the upper lobe.", "There is a new nodule.", "Pulmonary nodule"),
    "edema": ("There is pulmonary edema.", "Vascular congestion with edema is seen.", "Pulmonary edema"),
    "consolidation": ("There is a dense consolidation.", "Consolidation in the lower lobe.", "Consolidation"),
    "pneumonia": ("The appearance is that of pneumonia.", "Pneumonia in the lower lobe.", "Pneumonia"),
    "atelectasis": ("There is basal atelectasis.", "Bands of atelectasis are present.", "Atelectasis"),
    "pneumothorax": ("There is an apical pneumothorax.", "A small pneumothorax is seen.", "Pneumothorax"),
    "pleural_effusion": ("There is a pleural effusion.", "Layering effusion blurs the angle.", "Pleural effusion"),
    "pleural_other": ("There is pleural thickening.", "Pleural thickening at the apex.", "Pleural thickening"),
    "fracture": ("A rib fracture is seen.", "There is a healing rib fracture.", "Rib fracture"),
}
# What is said, and how often, where it is not there.
_NEGATIVE = {
    "cardiomegaly": ("The cardiac silhouette is normal.", 0.6),
    "edema": ("There is no edema.", 0.3),
    "consolidation": ("No focal consolidation.", 0.6),
    "pneumothorax": ("No pneumothorax.", 0.7),
    "pleural_effusion": ("No pleural effusion.", 0.7),
    "fracture": ("No fracture is seen.", 0.1),
}
_REASONS = (
    "cough",
    "fever",
    "shortness of breath",
    "chest pain",
    "a fall",
    "follow up",
    "weakness",
    "preoperative study",
)
_PERSON = {"F": "woman", "M": "man"}


def report_sections(people: People, seed: int = 0) -> pl.DataFrame:
    """study, indication, comparison, findings, impression: one row a study, in the order of `people.studies`."""
    rng = np.random.default_rng([seed, 42])
    first = people.images.with_row_index("row").group_by("study", maintain_order=True).first().sort("study")
    rows, patient = first.get_column("row").to_numpy(), first.get_column("patient").to_numpy()
    sex = people.patients.get_column("sex").to_numpy()
    y = {name: people.y[rows, at] == 1 for at, name in enumerate(people.findings)}

    def said(text: str, hits: NDArray[np.bool_]) -> pl.Series:
        """The sentence where it is said, null elsewhere."""
        return pl.select(pl.when(pl.Series(hits)).then(pl.lit(text))).to_series()

    parts = []
    for name, (usual, other, _) in _POSITIVE.items():
        if name in y:
            coin = rng.random(len(rows))
            parts += [said(usual, y[name] & (coin < 0.6)), said(other, y[name] & (coin >= 0.6))]
    for name, (text, often) in _NEGATIVE.items():
        if name in y:
            parts.append(said(text, ~y[name] & (rng.random(len(rows)) < often)))
    for word, text in _SAID.items():
        chance = np.array([SEX_WORDS[word][each] for each in sex])
        parts.append(said(text, (rng.random(len(sex)) < chance)[patient]))
    parts += [said(text, first.get_column(flag).to_numpy()) for flag, text in _DEVICES.items()]
    parts.append(said("The lungs are clear.", y["no_finding"]))
    short = [said(f"{each[2]}.", y[name]) for name, each in _POSITIVE.items() if name in y]
    short.append(said("No acute cardiopulmonary process.", y["no_finding"]))

    reason = np.array(_REASONS)[rng.integers(0, len(_REASONS), size=len(rows))]
    person = np.array([_PERSON[each] for each in sex])[patient]
    earlier = np.r_[False, patient[1:] == patient[:-1]]
    return pl.DataFrame(
        {
            "study": first.get_column("study"),
            "indication": pl.select(
                pl.format("___ year old {} with {}.", pl.Series(person), pl.Series(reason))
            ).to_series(),
            "comparison": np.where(earlier, "Chest radiograph from ___.", "None."),
            "findings": _sentences(parts),
            "impression": _sentences(short),
        }
    )


def report_text(indication: str, comparison: str, findings: str, impression: str) -> str:
    """A report as MIMIC-CXR stores it: headings in capitals, lines wrapped with a leading space."""
    sections = {"INDICATION": indication, "COMPARISON": comparison, "FINDINGS": findings, "IMPRESSION": impression}
    lines = [" " * 33 + "FINAL REPORT"]
    for heading, text in sections.items():
        lines += [*textwrap.wrap(f"{heading}:  {text}", 78, initial_indent=" ", subsequent_indent=" "), " "]
    return "\n".join(lines) + "\n"


def _sentences(parts: list[pl.Series]) -> pl.Series:
    frame = pl.DataFrame([part.alias(str(at)) for at, part in enumerate(parts)])
    return frame.select(pl.concat_str(pl.all(), separator=" ", ignore_nulls=True)).to_series()
