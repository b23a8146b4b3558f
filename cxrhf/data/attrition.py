"""Frames after each step of a build -> the attrition table: what is left, and what the published sets have there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import polars as pl
import pyarrow as pa

from cxrhf.data.settings import BuildConfig
from cxrhf.schema import ATTRITION
from cxrhf.tables.checks import table_of

COUNTS = tuple(name for name in ATTRITION.names if f"expected_{name}" in ATTRITION.names)  # images, studies, ...

# Published counts of the releases, whatever the settings: by dataset, step and what is counted.
EXPECTED: Mapping[str, Mapping[str, Mapping[str, int]]] = {
    "mimic_cxr_context": {
        "admissions": {"patients": 223_452},
        "labels": {"patients": 65_379, "studies": 227_827},
        "metadata": {"studies": 227_835},
        "labels with admissions": {"patients": 51_851, "studies": 204_036, "admissions": 219_727},
        "notes": {"patients": 145_914, "admissions": 331_793},
        "sample encoding": {"patients": 43_209, "images": 183_207},
    },
    "chexpert": {"sample encoding": {"patients": 42_884, "images": 127_118}},
    "nih_chestxray14": {"entries": {"images": 112_120, "patients": 30_805}},
    "rexgradient": {"studies": {"images": 273_004, "studies": 160_000, "patients": 109_487}},
    "chexpert_plus": {"table": {"images": 223_462, "patients": 64_725}},
}
# Counts of a paper's own sample, shown where the settings are those of the paper: CONTEXT's joins and Table A.3,
# ENCODING's Table 1. IMBALANCE, SLICES and WORDS print none that a build could be compared with.
PAPERS: Mapping[str, Mapping[str, Mapping[str, Mapping[str, int]]]] = {
    "context": {
        "mimic_cxr_context": {
            "admissions with notes": {"patients": 45_921, "admissions": 162_996},
            "images with a prior note": {"images": 209_300},
            "split train": {"images": 167_291},
            "split validate": {"images": 21_239},
            "split test": {"images": 20_770},
        },
    },
    "encoding": {
        "chexpert": {
            "split train": {"patients": 25_730, "images": 76_205},
            "split validate": {"patients": 4_288, "images": 12_673},
            "split test": {"patients": 12_866, "images": 38_240},
        },
        "mimic_cxr_context": {
            "split train": {"patients": 25_925, "images": 110_280},
            "split validate": {"patients": 4_321, "images": 17_665},
            "split test": {"patients": 12_963, "images": 55_262},
        },
    },
}
_RATIOS = {"context": (0.8, 0.1, 0.1), "encoding": (0.6, 0.1, 0.3)}


def paper_of(config: BuildConfig) -> str:
    """The paper whose sample these settings choose, the split aside: context, encoding, or "" for none of them."""
    if config.images_per_patient != "all" or config.one_per_study or config.exclude_devices:
        return ""
    noted_only = config.configuration == "linked" and not config.keep_without_notes
    if config.sample == "encoding":
        return "" if noted_only else "encoding"
    return "context" if noted_only and config.views == "all" and config.available == "charted" else ""


def has_published_split(config: BuildConfig) -> bool:
    """Whether every image is kept and patients are dealt in the shares of the settings' paper, or by a file."""
    if config.female is not None or config.sample_size is not None:
        return False
    shares = _RATIOS.get(paper_of(config))
    return config.split == "file" or (config.split == "ratio" and config.shares() == shares)


@dataclass(slots=True)
class Steps:
    """The steps of one build, in order. `paper`: whose counts stand beside them (`paper_of`)."""

    dataset: str
    rows: list[dict[str, Any]] = field(default_factory=list)
    paper: str = ""

    def add(
        self, step: str, frame: pl.DataFrame | None = None, *, note: str = "", published: bool = True, **counts: int
    ) -> None:
        """Count a frame's images, studies and patients after a step; other counts are given by name.

        `published=False` where the step's settings are not those that the published counts belong to.
        """
        found: dict[str, int | None] = dict.fromkeys(COUNTS)
        if frame is not None:
            for name, column in (("images", "image_id"), ("studies", "study_id"), ("patients", "patient_id")):
                if column in frame.columns:
                    found[name] = frame.height if name == "images" else frame.get_column(column).n_unique()
        found.update(counts)
        counted = {**EXPECTED.get(self.dataset, {}), **PAPERS.get(self.paper, {}).get(self.dataset, {})}
        public = counted.get(step, {}) if published else {}
        self.rows.append(
            {"step": step, **found, **{f"expected_{name}": public.get(name) for name in COUNTS}, "note": note or None}
        )

    def table(self) -> pa.Table:
        """ATTRITION: one row a step."""
        return table_of(self.rows, ATTRITION, source="attrition")

    def lines(self) -> list[str]:
        """The table as people read it: counts, and the published ones in brackets beside them."""
        used = [name for name in COUNTS if any(row[name] is not None for row in self.rows)]
        cells = [["step", *used, ""]]
        cells += [[row["step"], *(format_count(row, name) for name in used), row["note"] or ""] for row in self.rows]
        widths = [max(len(line[at]) for line in cells) for at in range(len(used) + 1)]
        return [
            "  ".join(
                [line[0].ljust(widths[0]), *(line[at].rjust(widths[at]) for at in range(1, len(used) + 1)), line[-1]]
            ).rstrip()
            for line in cells
        ]


def format_count(row: Mapping[str, Any], name: str) -> str:
    """A count, with the published one in brackets where there is one."""
    here = "" if row[name] is None else f"{row[name]:,}"
    public = row[f"expected_{name}"]
    return here if public is None else f"{here} [{public:,}]"
