"""Laws of the findings -> what is planted: population values that audits, probes and text models must come close to.

The text AUROC is that of the best reader of the notes, an upper bound: a text model learns the words from its training
patients and comes close to it only with many of them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from scipy.special import ndtr

from cxrhf.twin.laws import (
    CENTRAL_LINE,
    DEVICES_SHOWN,
    ET_TUBE,
    PACEMAKER,
    STERNOTOMY,
    ContextLaw,
    Law,
    ShortcutLaw,
    SliceLaw,
    SubgroupLaw,
)
from cxrhf.twin.models import Planted, planted_findings, write_attributes, write_defects, write_planted
from cxrhf.twin.people import AGE_BANDS, RACES, People
from cxrhf.twin.planted import context_truth
from cxrhf.twin.planted_groups import AGE, PREVALENCE, SHARE, shortcut_truth, subgroups_truth
from cxrhf.twin.scores import brier_truth, by_finding, check_laws, slice_truth
from cxrhf.twin.texts import EDGES, MENTIONED_FROM, SEX_WORDS, text_truth

ROLES = {ContextLaw: "context", ShortcutLaw: "shortcut", SliceLaw: "slice", SubgroupLaw: "subgroup"}
CONTROLLED = ("standard", "att", "ipw", "matched")
NOTES = {
    "text": "auroc is an upper bound: what the best reader of the notes scores. A text model that is trained on them "
    "approaches it with many patients and stays below it with few.",
    "nothing": "no closed form: what the picture shows is the least of many findings. Exact are the prevalence and the "
    "pre-test probability of every image in planted.parquet.",
    "mirrored": "the other side of one finding. Exact are prevalence, standard AUROC and every pre-test probability in "
    "planted.parquet; the values with context controlled have no closed form here.",
    "devices": "1 where any device lies in the picture; no note tells of devices themselves.",
    "part": "a share of another finding's cases, by lot. Exact are prevalence, standard AUROC and every pre-test "
    "probability in planted.parquet; the rest has no closed form.",
}


def truth(findings: Sequence[Law]) -> dict[str, Any]:
    """Everything planted, ready for JSON.

    `findings` -> role, parameters, `image` (what a reader of `s` scores: values of context_truth), `text` (what a
    reader of the notes scores at best); `shortcut`, `slices`, `subgroups` by their one finding; `words` and `devices`.
    """
    check_laws(findings)
    said: dict[str, Any] = {
        "remarks": {"text": NOTES["text"]},
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
            # Precision and recall are those of D2's own embedding, which pictures do not have.
            kept = {name: value for name, value in slice_truth(law).items() if name.startswith("brier")}
            said["slices"] = {
                "finding": law.finding,
                "attributes": ["ecg_wires", "hazy"],
                "only_in": "positives: negatives with these attributes score as all negatives do",
                "share": law.share,
                **kept,
            }
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


def layout_truth(laws: Sequence[Law], planted: Iterable[Planted]) -> dict[str, Any]:
    """The truth of a layout: an entry for every finding that its files name, and nothing about other findings."""
    said = truth(laws)
    said["findings"] = {each.finding: _layout_entry(each, tuple(laws)) for each in planted}
    for name in ("shortcut", "slices", "subgroups"):
        if name in said and said[name]["finding"] not in said["findings"]:
            del said[name]
    return said


def write_known(
    people: People,
    folder: Path,
    names: pl.DataFrame,
    labels: Mapping[str, Any],
    *,
    findings: Sequence[Planted] | None = None,
    defects: Mapping[str, Sequence[str]] | None = None,
) -> None:
    """What lies beside the files of a layout: planted.parquet, attributes.parquet, truth.json; defects.json if any.

    `labels`: what the labels in the files do to the truth. `findings`: those of the layout, the twin's own by default.
    `defects` of a dirty copy: kind -> the ids that have it.
    """
    planted = planted_findings(people) if findings is None else findings
    if defects is not None:
        write_defects(folder, defects)
    write_planted(folder, names, planted)
    write_attributes(people, folder, names)
    _write_truth(people, folder, planted, labels)


def _write_truth(people: People, folder: Path, planted: Iterable[Planted], labels: Mapping[str, Any]) -> None:
    """truth.json: what is planted in a layout's findings, what its labels do to it, and how many of everybody."""
    said = layout_truth(people.laws, planted)
    said["labels"] = dict(labels)
    said["sizes"] = {
        "patients": people.patients.height,
        "imaged_patients": people.images.get_column("patient").n_unique(),
        "admissions": people.admissions.height,
        "notes": int(people.admissions.get_column("noted").sum()),
        "studies": people.studies.height,
        "images": people.images.height,
    }
    (folder / "truth.json").write_text(json.dumps(said, indent=1, allow_nan=False) + "\n", encoding="utf-8")


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


def _layout_entry(each: Planted, laws: tuple[Law, ...]) -> dict[str, Any]:
    """The entry of a layout's finding, which may be one of the twin's, a share of one, none of many, or devices."""
    named = by_finding(laws)
    unknown: dict[str, Any] = dict.fromkeys(CONTROLLED)
    if each.finding == "support_devices":
        law = named[each.finding]
        # Given the label the score is noise, so that the chart has no part in it.
        known = dict.fromkeys(CONTROLLED, float(ndtr(DEVICES_SHOWN / np.sqrt(2))))
        return {"role": "devices", "image": {"prevalence": law.pi, **known}, "text": None, "note": NOTES["devices"]}
    if each.finding == "no_finding":
        image = {"prevalence": float(np.prod([1 - named[name].pi for name in each.of])), **unknown}
        if len(each.of) == 1:
            image["standard"] = auroc_of(named[each.of[0]])
        note = NOTES["mirrored" if len(each.of) == 1 else "nothing"]
        return {"role": "nothing", "none_of": list(each.of), "image": image, "text": None, "note": note}
    law = named[each.of[0]]
    if each.share == 1:
        return ({"same_as": law.finding} if law.finding != each.finding else {}) | _finding(law)
    # Its negatives are those of the whole finding, and the other cases of it, which score as its own.
    others = law.pi * (1 - each.share)
    standard = ((1 - law.pi) * auroc_of(law) + others / 2) / (1 - law.pi + others)
    image = {"prevalence": law.pi * each.share, **unknown, "standard": standard}
    part = {"role": "part", "part_of": law.finding, "share": each.share}
    return {**part, "image": image, "text": None, "note": NOTES["part"]}


def _finding(law: Law) -> dict[str, Any]:
    parameters = {each.name: getattr(law, each.name) for each in fields(law) if each.name not in ("finding", "drains")}
    if isinstance(law, ContextLaw):
        image = asdict(context_truth(pi=law.pi, m=law.m, g=law.g, eta=law.eta, d0=law.d0))
        # The m = 0 strata have no ends; JSON has no NaN.
        image = {
            name: [None if np.isnan(each) else each for each in value] if isinstance(value, tuple) else value
            for name, value in image.items()
        }
        image |= {name: brier_truth(law)[name] for name in ("brier", "brier_skill_score")}  # of a line that rises
    else:
        # Given the label the picture does not know the chart: every way to take the chart out leaves the same AUROC.
        image = {"prevalence": law.pi, **dict.fromkeys(CONTROLLED, auroc_of(law))}
    return {"role": ROLES[type(law)], "parameters": parameters, "image": image, "text": text_truth(law.pi, law.m)}
