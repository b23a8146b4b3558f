"""Settings -> a folder: image shards, notes, attributes, quarantine, attrition, flow picture, card and build.json.

Nothing but the quarantine says when or where it was made, so the same settings, sources and version give the same
bytes. A build that was killed goes on: streamed notes and finished shards are taken over, everything else is made
again. The record build.json is written last; a folder without it is not finished. One process at a time builds into a
folder.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from cxrhf.config_build import RETIRED, BuildConfig
from cxrhf.data import layout
from cxrhf.data.attrition import Steps
from cxrhf.data.card import TERMS, card
from cxrhf.data.fingerprint import FIRST, build_print, file_print, version_of
from cxrhf.data.flow import flow
from cxrhf.data.folder import RECORD, WORK, apart, check_strange, discard, opened, remove, sweep, tidy, write_text
from cxrhf.data.images import check_packages
from cxrhf.data.labels import label_counts
from cxrhf.data.notes import QUARANTINE
from cxrhf.data.prepare import Prepared, prepare
from cxrhf.data.shards import ROWS_PER_SHARD, ROWS_WITHOUT_PIXELS, ShardPlan, place_shards, write_shards
from cxrhf.data.splits import NAMES
from cxrhf.data.twin import draw_films, with_twin
from cxrhf.errors import CxrhfError, RunError, SourceError
from cxrhf.schema import ATTRIBUTE, check, image_schema, write_table
from cxrhf.tables.folders import one_writer
from cxrhf.tables.places import check_writable

_EXAMPLES = 5  # of bad pictures that are printed


@dataclass(frozen=True, slots=True)
class Built:
    """A finished build: its folder, the attrition as lines, and what a user should know."""

    folder: Path
    record: dict[str, Any]
    lines: list[str]
    notes: list[str]


def build(config: BuildConfig) -> Built:
    """Build a dataset into its folder, or go on with a build that was stopped, or say that it is finished."""
    folder = config.folder()
    if not config.no_pixels:
        check_packages()
    check_writable(folder, "build folder")
    if config.root:
        layout.check_roots(config.root)
        apart(folder, config.root)  # before the folder is held: the lock is a file too
    elif config.dataset != "synthetic":
        raise RunError(
            "no folder with the published files is given", next_step=f"cxrhf build {config.dataset} --root FOLDER"
        )
    with one_writer(folder, "build", what="build folder"), layout.one_walk():
        return _built(config, folder)


def _built(config: BuildConfig, folder: Path) -> Built:
    """Build into a folder that this thread holds."""
    made_up = not config.root
    check_strange(folder, overwrite=config.overwrite)  # before minutes are spent on a twin
    sweep(folder)
    if made_up:
        config = with_twin(config, folder)
    inputs = fingerprints(config)
    fingerprint = build_print(config.content(), inputs, version_of(config.dataset))
    record = opened(
        folder, fingerprint, overwrite=config.overwrite, same=lambda record: _is_same(record, config, inputs)
    )
    if record is not None:
        return _as_it_is(folder, record)
    try:
        prepared = prepare(config, folder / WORK, folder / "notes", fingerprint)
        if made_up:
            draw_films(config, prepared.images)
        quarantine, rows = write_images(config, prepared, folder, fingerprint)
    except CxrhfError:
        discard(folder)  # nothing was made that could be taken over: other settings may follow
        raise
    done = _finish(config, prepared, folder, inputs, fingerprint, quarantine, rows)
    done.notes.extend(layout.several(config.root, config.dataset))
    return done


def _is_same(record: Mapping[str, Any], config: BuildConfig, inputs: list[dict[str, Any]]) -> bool:
    """Whether a finished build is what would be built now; settings that it does not know had their default then."""
    usual = BuildConfig(config.dataset).content()
    recorded = {name: value for name, value in dict(record.get("settings") or {}).items() if name not in RETIRED}
    return (
        record.get("version", FIRST) == version_of(config.dataset)
        and usual | recorded == config.content()
        and record.get("inputs") == inputs
    )


def _as_it_is(folder: Path, record: dict[str, Any]) -> Built:
    steps = pl.read_parquet(folder / "attrition.parquet").to_dicts()
    notes = ["this build is already finished; --overwrite builds it again"]
    if record["quarantined"]:
        notes.append(
            f"{record['quarantined']:,} images or notes are in its quarantine; once they are fixed, pass --overwrite"
        )
    return Built(folder, record, Steps(record["dataset"], steps).lines(), notes)


def sources(config: BuildConfig) -> list[Path]:
    """The files that decide what is built, pictures and reports aside."""
    found = [layout.find(config.root, config.dataset, each.key) for each in layout.LAYOUTS[config.dataset]]
    paths = [path for path in found if path is not None and path.is_file()]
    if config.split_file is None:
        return paths
    split_file = Path(config.split_file)
    if not split_file.is_file():
        raise SourceError(f"--split-file: {split_file} is not a file", next_step="check the path")
    return [*paths, split_file]


def fingerprints(config: BuildConfig) -> list[dict[str, Any]]:
    """What is known of the sources: their content, and whether there are reports."""
    known = [file_print(path) for path in sources(config)]
    if config.dataset in ("mimic_cxr_context", "synthetic"):
        from cxrhf.data.mimic import has_reports

        known.append({"name": "reports", "there": has_reports(config)})
    return known


def image_table(prepared: Prepared) -> pa.Table:
    """The rows of all images as IMAGE, checked, with `path` in the place of the picture."""
    table = check(prepared.images.drop("path").to_arrow(), image_schema(prepared.findings), source="images")
    paths = prepared.images.get_column("path").to_arrow().cast(pa.string())
    return table.drop_columns(["image"]).append_column("path", paths)


def plans(prepared: Prepared, *, pixels: bool) -> list[ShardPlan]:
    """What is to be written, a split each."""
    if not prepared.images.height:
        return []
    table = image_table(prepared)
    parts = {split: table.filter(pc.equal(table["split"], split)) for split in NAMES}
    rows = ROWS_PER_SHARD if pixels else ROWS_WITHOUT_PIXELS
    return [ShardPlan(split, part, rows) for split, part in parts.items() if part.num_rows]


def write_images(
    config: BuildConfig, prepared: Prepared, folder: Path, fingerprint: str
) -> tuple[pl.DataFrame, dict[str, int]]:
    """Write the shards of every split; what could not be used, and how many rows of each split could."""
    bad, found = [prepared.quarantine], {}
    for plan in plans(prepared, pixels=not config.no_pixels):
        found[plan.split] = write_shards(
            plan,
            folder / WORK / "images",
            build=folder / WORK / "shards",
            fingerprint=fingerprint,
            size=None if config.no_pixels else config.size,
            threads=config.workers,
        )
        lost = pl.from_arrow(pa.concat_tables([each.quarantined for each in found[plan.split]]))
        assert isinstance(lost, pl.DataFrame)
        bad.append(lost.rename({"image_id": "id"}))
    quarantine = pl.concat([each.select(list(QUARANTINE)) for each in bad])
    rows = {split: sum(each.rows for each in results) for split, results in found.items()}
    if found and not sum(rows.values()):
        write_table(quarantine.to_arrow(), folder / "quarantine.parquet")
        raise SourceError(
            f"{config.dataset}: none of the {prepared.images.height:,} images can be read, for example "
            f"{bad[1].row(0, named=True)['path']} ({bad[1].row(0, named=True)['kind']})",
            next_step=f"build the tables only with --no-pixels, or check the files: cxrhf doctor {config.dataset}",
        )
    remove(folder / "images")  # of an earlier try
    for split, results in found.items():
        place_shards(results, folder / "images", split)
    return quarantine, {split: count for split, count in rows.items() if count}


def _without_notes(steps: Steps) -> list[str]:
    """How many images a build leaves out because they have no prior note: a user of a recipe may not expect it."""
    counted = [row for row in steps.rows if row["images"] is not None]
    return [
        f"{before['images'] - after['images']:,} of {before['images']:,} images have no prior note and are excluded "
        "(--keep-without-notes keeps them)"
        for before, after in itertools.pairwise(counted)
        if after["step"] == "images with a prior note" and after["images"] < before["images"]
    ]


def _finish(
    config: BuildConfig,
    prepared: Prepared,
    folder: Path,
    inputs: list[dict[str, Any]],
    fingerprint: str,
    quarantine: pl.DataFrame,
    rows: dict[str, int],
) -> Built:
    steps, notes = prepared.steps, []
    lost = prepared.images.height - sum(rows.values())
    if lost:
        steps.add("images that could be read", images=sum(rows.values()), note=f"{lost:,} are in the quarantine")
        bad = quarantine.filter(~pl.col("kind").str.starts_with("note"))
        notes.append(f"{lost:,} images are missing or damaged; {folder}/quarantine.parquet lists them")
        notes += [f"{kind}: {path}" for kind, path in bad.select("kind", "path").head(_EXAMPLES).iter_rows()]
    if prepared.quarantine.height:
        notes.append(f"{prepared.quarantine.height:,} notes cannot be used; {folder}/quarantine.parquet lists them")
    notes += _without_notes(steps)
    write_table(quarantine.to_arrow(), folder / "quarantine.parquet")
    if prepared.attributes is not None and prepared.attributes.height:
        write_table(
            check(prepared.attributes.to_arrow(), ATTRIBUTE, source="attributes"), folder / "attributes.parquet"
        )
    write_table(steps.table(), folder / "attrition.parquet")
    write_table(steps.table(), folder / "attrition.csv")
    write_text(folder / "flow.svg", flow(steps.rows, f"{config.dataset}: from the published files to this dataset"))
    record = {
        "format": 1,
        "version": version_of(config.dataset),
        "dataset": config.dataset,
        "labels": config.labels,
        "findings": list(prepared.findings),
        "credentialed": TERMS[config.dataset].credentialed,
        "splits": rows,
        "n_notes": prepared.n_notes,
        "attributes": prepared.attributes.height if prepared.attributes is not None else 0,
        "settings": config.content(),
        "inputs": inputs,
        "checked": prepared.checked,
        "quarantined": quarantine.height,
        "fingerprint": fingerprint,
    }
    kept = prepared.images
    if kept.height:
        kept = kept.filter(~pl.col("image_id").is_in(quarantine.get_column("id").implode()))
    counts = label_counts(kept, prepared.findings) if kept.height else None
    write_text(folder / "README.md", card(config.dataset, record, steps.rows, counts))
    write_text(folder / RECORD, json.dumps(record, indent=2, ensure_ascii=False, default=str) + "\n")
    tidy(folder)  # after the record: a build killed in between is finished
    return Built(folder, record, steps.lines(), notes)
