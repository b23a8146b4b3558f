"""MIMIC's notes file -> notes on disk and their index, made once: a later try takes over what is finished."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl

from cxrhf.config_build import BuildConfig
from cxrhf.data.attrition import Steps
from cxrhf.data.folder import remove
from cxrhf.data.notes import stage_notes
from cxrhf.tables.files import write_atomically

if TYPE_CHECKING:
    from cxrhf.data.mimic import Mimic


@dataclass(frozen=True, slots=True)
class Staged:
    """A folder of NOTE files with the index of its notes."""

    folder: Path
    index: pl.DataFrame
    quarantine: pl.DataFrame


def staged_notes(config: BuildConfig, mimic: Mimic, folder: Path, fingerprint: str, steps: Steps) -> Staged:
    """Stream the notes, or take over what a build with the same fingerprint has already streamed."""
    assert mimic.notes is not None
    marker = folder / "finished.json"
    if not _finished(marker, fingerprint):
        remove(folder)
        latest = None
        if config.configuration != "notes":
            latest = mimic.source.images.group_by("patient_id").agg(pl.col("study_time").max().alias("latest"))
        from tqdm import tqdm

        with tqdm(unit=" notes", desc="notes", unit_scale=True, disable=None) as bar:
            found = stage_notes(
                mimic.notes,
                mimic.admissions,
                latest,
                folder,
                stored=config.available == "stored",
                heard=bar.update,
            )
        found.index.write_parquet(folder / "index.parquet")
        found.quarantine.write_parquet(folder / "quarantine.parquet")
        labelled = mimic.source.images.select(pl.col("patient_id").alias("subject_id")).unique()
        joined = found.seen.join(mimic.admissions, on=["subject_id", "hadm_id"], how="semi")
        joined = joined.join(labelled, on="subject_id", how="semi")
        counts = [_counts(found.seen), _counts(joined)]
        text = json.dumps({"fingerprint": fingerprint, "counts": counts})
        write_atomically(marker, lambda file: file.write(text.encode()))
    everybody, labelled_ones = json.loads(marker.read_text())["counts"]
    staged = Staged(folder, pl.read_parquet(folder / "index.parquet"), pl.read_parquet(folder / "quarantine.parquet"))
    bad = staged.quarantine.height
    steps.add("notes", **everybody, note=f"{bad:,} notes cannot be used, see the quarantine" if bad else "")
    if config.configuration != "notes":
        steps.add("admissions with notes", **labelled_ones, note="patients with labels only")
    return staged


def _counts(seen: pl.DataFrame) -> dict[str, int]:
    return {
        "patients": seen.get_column("subject_id").n_unique(),
        "admissions": seen.get_column("hadm_id").n_unique(),
        "notes": int(seen.get_column("notes").sum()),
    }


def _finished(marker: Path, fingerprint: str) -> bool:
    try:
        found = json.loads(marker.read_text())
    except (OSError, ValueError):
        return False
    return bool(found.get("fingerprint") == fingerprint)
