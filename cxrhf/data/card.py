"""A finished build -> its dataset card: what it is, how it was made, what was left out, under which terms it stands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from cxrhf.findings import display_name


@dataclass(frozen=True, slots=True)
class Terms:
    """Under which terms a source stands. `credentialed`: nothing of it may leave the user's machines."""

    name: str
    licence: str
    credentialed: bool
    said: str


_STANFORD = "Stanford University Dataset Research Use Agreement: do not share this folder."
_PHYSIONET = (
    "PhysioNet Credentialed Health Data License: do not share or push this folder, do not send its notes to a remote "
    "service."
)
_ROWS = "A licence a row (attribute `licence`): CC BY, CC BY-NC-SA and others. Respect each before you share."
TERMS: Mapping[str, Terms] = {
    "mimic_cxr_context": Terms("MIMIC-CXR with prior notes", "other", True, _PHYSIONET),
    "chexpert": Terms("CheXpert", "other", True, _STANFORD),
    "chexpert_plus": Terms("CheXpert Plus", "other", True, _STANFORD),
    "rexgradient": Terms("ReXGradient-160K", "other", True, "Data use agreement: do not share this folder."),
    "nih_chestxray14": Terms(
        "NIH ChestX-ray14", "other", False, "NIH Clinical Center: free use with attribution (Wang et al. 2017)."
    ),
    "covid_chestxray": Terms("COVID-19 image data collection", "other", False, _ROWS),
    "synthetic": Terms("Synthetic twin", "apache-2.0", False, "Made up: nobody is in it."),
}


def card(
    dataset: str, record: Mapping[str, Any], steps: Sequence[Mapping[str, Any]], labels: pl.DataFrame | None
) -> str:
    """README.md of a build. It holds counts only: no id, no text and no path of the source."""
    terms = TERMS[dataset]
    settings = record["settings"]
    lines = ["---", f"pretty_name: {terms.name}", f"license: {terms.licence}", *_front(record), "---", ""]
    lines += [f"# {terms.name}", "", f"Built by cxrhf from the published files. {terms.said}", ""]
    if terms.credentialed:
        lines += ["**Credentialed data. `cxrhf push` refuses this folder.**", ""]
    lines += ["## Load", "", "```python", "from datasets import load_dataset", ""]
    if record["splits"]:
        some = ", ".join(f'"{name}": "images/{name}-*.parquet"' for name in record["splits"])
        lines += [f'images = load_dataset("parquet", data_files={{{some}}})']
    if record["n_notes"]:
        lines += ['notes = load_dataset("parquet", data_files="notes/notes-*.parquet")']
    lines += ["```", ""]
    lines += _labels(labels, settings)
    lines += ["## How it was made", "", *_settings(settings), ""]
    lines += ["## Attrition", "", "Published counts stand in brackets where there are any. Picture: `flow.svg`.", ""]
    lines += _attrition(steps)
    if record["checked"]:
        said = ", ".join(f"{n:,} {what}" for what, n in record["checked"].items())
        lines += ["", f"Leakage: checked {said}; every linked note is strictly before its image, no patient is in two "
                  "splits, no linked note holds the image's own report."]  # fmt: skip
    lines += ["", f"Fingerprint of settings, sources and code: `{record['fingerprint']}`.", ""]
    return "\n".join(lines)


def _front(record: Mapping[str, Any]) -> list[str]:
    lines = ["task_categories:", "- image-classification", "tags:", "- chest-x-ray", "- cxrhf", "configs:"]
    if record["splits"]:
        lines += ["- config_name: images", "  default: true", "  data_files:"]
        for name in record["splits"]:
            lines += [f"  - split: {name}", f"    path: images/{name}-*.parquet"]
    if record["n_notes"]:
        lines += ["- config_name: notes", "  data_files:", "  - split: train", "    path: notes/notes-*.parquet"]
    if record["attributes"]:
        lines += ["- config_name: attributes", "  data_files:", "  - split: train", "    path: attributes.parquet"]
    return lines


def _labels(labels: pl.DataFrame | None, settings: Mapping[str, Any]) -> list[str]:
    if labels is None or not labels.height:
        return []
    lines = ["## Labels", "", "Raw labels are stored: 1, 0, -1 (uncertain), null (blank). Recorded policy: "
             f"`{settings['labels']}`, applied by `cxrhf.data.load.load_images`.", ""]  # fmt: skip
    lines += ["| finding | positive | negative | uncertain | blank |", "|---|---|---|---|---|"]
    for row in labels.iter_rows(named=True):
        counts = " | ".join(f"{row[name]:,}" for name in ("positive", "negative", "uncertain", "blank"))
        lines.append(f"| {display_name(row['finding'])} | {counts} |")
    return [*lines, ""]


def _settings(settings: Mapping[str, Any]) -> list[str]:
    return [f"- {name}: {value}" for name, value in settings.items() if value not in (None, False, ())]


def _attrition(steps: Sequence[Mapping[str, Any]]) -> list[str]:
    from cxrhf.data.attrition import COUNTS, shown

    used = [name for name in COUNTS if any(row[name] is not None for row in steps)]
    lines = ["| step | " + " | ".join(used) + " | note |", "|---" * (len(used) + 2) + "|"]
    for row in steps:
        counts = " | ".join(shown(row, name) for name in used)
        lines.append(f"| {row['step']} | {counts} | {row['note'] or ''} |")
    return lines
