"""Laws of the findings -> what is planted: population values that audits, probes and text models must come close to."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import ndtr

from cxrhf.data.planted_context import context_truth
from cxrhf.data.planted_slices import shortcut_truth, slices_truth
from cxrhf.data.planted_subgroups import AGE, PREVALENCE, SHARE, subgroups_truth
from cxrhf.data.synthetic.histories import EDGES, MENTIONED_FROM, text_truth
from cxrhf.data.synthetic.laws import (
    CENTRAL_LINE,
    ET_TUBE,
    PACEMAKER,
    STERNOTOMY,
    ContextLaw,
    Law,
    ShortcutLaw,
    SliceLaw,
    SubgroupLaw,
)
from cxrhf.data.synthetic.people import AGE_BANDS, RACES, People
from cxrhf.data.synthetic.reports import SEX_WORDS

ROLES = {ContextLaw: "context", ShortcutLaw: "shortcut", SliceLaw: "slice", SubgroupLaw: "subgroup"}


def truth(findings: Sequence[Law]) -> dict[str, Any]:
    """Everything planted, ready for JSON.

    `findings` -> role, parameters, `image` (what a reader of `s` scores: values of context_truth), `text` (what a
    reader of the notes scores at best); `shortcut`, `slices`, `subgroups` by their one finding; `words` and `devices`.
    """
    said: dict[str, Any] = {
        "findings": {law.finding: _finding(law) for law in findings},
        "note_levels": {"edges": list(EDGES), "mentioned_from": MENTIONED_FROM},
        "age_bands": [list(band) for band in AGE_BANDS],
        "words": {word: dict(rate) for word, rate in SEX_WORDS.items()},
        "devices": {
            "pacemaker": dict(PACEMAKER),
            "sternotomy": dict(STERNOTOMY),
            "central_line": CENTRAL_LINE,
            "et_tube": ET_TUBE,
        },
    }
    for law in findings:
        if isinstance(law, ShortcutLaw):
            planted = shortcut_truth(effect=law.effect, drains=law.drains)
            said["shortcut"] = {
                "finding": law.finding,
                "attribute": "drain",
                "auroc": dict(planted.auroc),
                "auroc_equalised": planted.auroc_equalised,
                "drain": {f"{sex}{label}": share for (sex, label), share in law.drains.items()},
            }
        elif isinstance(law, SliceLaw):
            slices = asdict(slices_truth(share=law.share, gap=law.gap))
            # Precision and recall are those of D2's own embedding, which the twin does not have.
            kept = {name: value for name, value in slices.items() if name.startswith("brier")}
            said["slices"] = {"finding": law.finding, "attributes": ["ecg_wires", "hazy"], "share": law.share, **kept}
        elif isinstance(law, SubgroupLaw):
            values = asdict(subgroups_truth(shift=law.shift))
            by_race = {
                name: dict(zip(RACES, each.tolist(), strict=True))
                for name, each in values.items()
                if name != "threshold"
            }
            said["subgroups"] = {
                "finding": law.finding,
                "threshold": values["threshold"],
                "share": dict(zip(RACES, SHARE.tolist(), strict=True)),
                "prevalence": dict(zip(RACES, PREVALENCE.tolist(), strict=True)),
                **by_race,
            }
    return said


def write_truth(people: People, folder: Path) -> None:
    """truth.json: what is planted, and how many of everybody there are."""
    said = truth(people.laws)
    said["sizes"] = {
        "patients": people.patients.height,
        "imaged_patients": people.images.get_column("patient").n_unique(),
        "admissions": people.admissions.height,
        "notes": int(people.admissions.get_column("noted").sum()),
        "studies": people.studies.height,
        "images": people.images.height,
    }
    (folder / "truth.json").write_text(json.dumps(said, indent=1) + "\n", encoding="utf-8")


def auroc_of(law: Law) -> float:
    """AUROC of what the picture shows."""
    if isinstance(law, ContextLaw):
        return context_truth(pi=law.pi, m=law.m, g=law.g, eta=law.eta, d0=law.d0).standard
    if isinstance(law, ShortcutLaw):  # the sexes are half and half, so their drains are those of the average
        return shortcut_truth(effect=law.effect, drains=law.drains).auroc_equalised
    if isinstance(law, SliceLaw):
        return float((1 - law.share) * ndtr(3 / np.sqrt(2)) + law.share * ndtr((3 - law.gap) / np.sqrt(2)))
    assert isinstance(law, SubgroupLaw)
    joint = np.stack([SHARE * (1 - PREVALENCE), SHARE * PREVALENCE])[:, :, None] * AGE
    low = np.arange(3) == 2
    centre = (
        0.4 * np.arange(3)
        + np.array([0.0, 1.4])[:, None, None]
        - law.shift * low[:, None] * np.array([0, 1])[:, None, None]
    )
    negative, positive = (joint[label].ravel() / joint[label].sum() for label in (0, 1))
    wins = ndtr((centre[1].ravel()[:, None] - np.broadcast_to(centre[0], (3, 3)).ravel()[None, :]) / np.sqrt(2))
    return float(positive @ wins @ negative)


def _finding(law: Law) -> dict[str, Any]:
    parameters = {each.name: getattr(law, each.name) for each in fields(law) if each.name not in ("finding", "drains")}
    if isinstance(law, ContextLaw):
        image = asdict(context_truth(pi=law.pi, m=law.m, g=law.g, eta=law.eta, d0=law.d0))
        # The m = 0 strata have no ends; JSON has no NaN.
        image = {
            name: [None if np.isnan(each) else each for each in value] if isinstance(value, tuple) else value
            for name, value in image.items()
        }
    else:
        # Given the label the picture does not know the chart: every way to take the chart out leaves the same AUROC.
        image = {"prevalence": law.pi, **dict.fromkeys(("standard", "att", "ipw", "matched"), auroc_of(law))}
    return {"role": ROLES[type(law)], "parameters": parameters, "image": image, "text": text_truth(law.pi, law.m)}
