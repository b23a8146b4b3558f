"""Rows with a licence each -> the rows that may be published, and how many were left out under which licence.

The COVID-19 collection says a licence for every picture; its table, and so labels and notes, is CC BY-NC-SA 4.0 as its
authors say. A row goes only where its picture's licence lets others pass on a copy that was made smaller: CC BY,
CC BY-SA, CC BY-NC and CC BY-NC-SA of any version, CC0, Apache 2.0. Left out are licences without derivatives (the
stored picture is a resized one), any other wording, and rows that say none. A note goes with the images that list it.
"""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from cxrhf.data.attrition import Steps
from cxrhf.data.shards import write_shard
from cxrhf.data.stored_times import from_stored
from cxrhf.hub.connection import HubError
from cxrhf.hub.dataset_files import Tables
from cxrhf.hub.dataset_source import Build
from cxrhf.schema import write_table

_SHARED = re.compile(
    r"(CC-)?BY(-NC)?(-SA)?(-\d(\.\d)?)?(-(INTERNATIONAL|UNPORTED|IGO))?|CC-?0(-1\.0)?(-UNIVERSAL)?|APACHE(-LICEN[CS]E)?-2(\.0)?"
)
_NONE = "not stated"


def may_be_shared(licence: str | None) -> bool:
    """Whether a licence lets others pass on a smaller copy, with attribution.

    >>> [may_be_shared(each) for each in ("CC BY-NC-SA 4.0", "cc by", "by-nc-sa", "CC0", "CC BY-NC-ND 4.0", "?", None)]
    [True, True, True, True, False, False, False]
    """
    words = re.sub(r"[\s_-]+", "-", (licence or "").strip().upper()).removesuffix("-LICENSE").removesuffix("-LICENCE")
    return bool(_SHARED.fullmatch(words))


def shared_rows(build: Build, work: Path) -> tuple[Build, list[str], list[str]]:
    """The build without the rows that may not be published, paragraphs for the card, and notes for the user."""
    if not build.ids.num_rows:
        return build, [_TABLE], []
    licence = _licences(build)
    images = build.ids["image_id"].to_pylist()
    kept = {image for image in images if may_be_shared(licence.get(image))}
    inside = Counter(licence[image] for image in images if image in kept)
    outside = Counter(licence.get(image) or _NONE for image in images if image not in kept)
    if not kept:
        raise HubError(f"{build.folder}: licences of its {len(images):,} images", got=_counted(outside),
                       allowed="at least one of CC BY, CC BY-SA, CC BY-NC, CC BY-NC-SA, CC0 and Apache 2.0",
                       next_step="publish its recipe: cxrhf push dataset "
                       f"{shlex.quote(str(build.folder))} --recipe --to USER/NAME")  # fmt: skip
    said = [_TABLE, "Images by licence (see the attribute `licence` of each image): " + _counted(inside) + "."]
    if not outside:
        return build, said, []
    left = f"{len(images) - len(kept):,} of {len(images):,} images are excluded because their licence does not allow " \
           f"sharing: {_counted(outside)}"  # fmt: skip
    made = _without(build, kept, work / "shared")
    return replace(made, steps=_steps(made, left)), [*said, f"{left}."], [left]


_TABLE = "Labels, days and notes come from the collection's metadata, released by its authors under CC BY-NC-SA 4.0."


def _licences(build: Build) -> Mapping[str, str]:
    """Image -> its licence, where the table says one."""
    if build.tables.attributes is None:
        return {}
    rows = pq.ParquetFile(build.tables.attributes).read().to_pylist()
    return {row["image_id"]: row["value"] for row in rows if row["name"] == "licence" and row["value"]}


def _counted(licences: Counter[str]) -> str:
    return ", ".join(
        f"{name}: {count:,}" for name, count in sorted(licences.items(), key=lambda each: (-each[1], each))
    )


def _without(build: Build, kept: set[str], work: Path) -> Build:
    """Shards, notes and attributes of the kept images, written anew below `work`."""
    wanted = pa.array(sorted(kept), pa.string())
    images: dict[str, list[Path]] = {}
    linked: set[str] = set()
    for split, files in build.tables.images.items():
        for path in files:
            table = from_stored(pq.ParquetFile(path).read())
            table = table.filter(pc.is_in(table["image_id"], value_set=wanted))
            if not table.num_rows:
                continue
            linked.update(note for notes in table["prior_note_ids"].to_pylist() for note in notes or ())
            rows = table.append_column("path", pa.nulls(table.num_rows, pa.string()))
            about = {"fingerprint": build.record["fingerprint"]}
            images.setdefault(split, []).append(
                write_shard(rows, work / path.name, size=None, metadata=about, threads=1).path
            )
    notes = [_filtered(path, "note_id", linked, work) for path in build.tables.notes]
    attributes = build.tables.attributes
    tables = Tables(
        images,
        [path for path in notes if pq.read_metadata(path).num_rows],
        _filtered(attributes, "image_id", kept, work) if attributes else None,
    )
    ids = build.ids.filter(pc.is_in(build.ids["image_id"], value_set=wanted))
    return replace(build, tables=tables, ids=ids)


def _filtered(path: Path, column: str, kept: set[str], work: Path) -> Path:
    table = pq.ParquetFile(path).read()
    return write_table(
        table.filter(pc.is_in(table[column], value_set=pa.array(sorted(kept), pa.string()))), work / path.name
    )


def _steps(build: Build, left: str) -> list[dict[str, Any]]:
    """The attrition with one more step, and the splits counted after it."""
    steps = Steps(build.dataset, [dict(row) for row in build.steps if not row["step"].startswith("split ")])
    _add(steps, "images whose licence allows sharing", build.ids, left)
    for split in build.tables.images:
        _add(steps, f"split {split}", build.ids.filter(pc.equal(build.ids["split"], split)))
    return steps.rows


def _add(steps: Steps, step: str, ids: pa.Table, note: str = "") -> None:
    studies, patients = (pc.count_distinct(ids[name]).as_py() for name in ("study_id", "patient_id"))
    steps.add(step, note=note, published=False, images=ids.num_rows, studies=studies, patients=patients)
