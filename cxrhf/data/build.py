"""Settings -> a folder: image shards, notes, attributes, quarantine, attrition, flow picture, card and build.json.

Nothing in the folder says when or where it was made, so the same settings, sources and code give the same bytes. A
build that was killed goes on: streamed notes and finished shards are taken over, everything else is made again. The
record build.json is written last; a folder without it is not finished.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from cxrhf.config_build import BuildConfig
from cxrhf.data import layout
from cxrhf.data.card import TERMS, card
from cxrhf.data.fingerprint import build_print, code_print, file_print
from cxrhf.data.flow import flow
from cxrhf.data.images import check_packages
from cxrhf.data.labels import label_counts
from cxrhf.data.notes import QUARANTINE
from cxrhf.data.prepare import Prepared, prepare
from cxrhf.data.shards import ROWS_PER_SHARD, ROWS_WITHOUT_PIXELS, ShardPlan, write_shards
from cxrhf.errors import RunError
from cxrhf.schema import ATTRIBUTE, check, image_schema, write_table
from cxrhf.tables.files import write_atomically

WORK, RECORD = ".build", "build.json"
ORDER = ("train", "validate", "test")
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
    if config.dataset == "synthetic" and not config.root:
        config = with_twin(config, folder)
    if not config.root:
        raise RunError("no folder with raw files was given", next_step=f"cxrhf build {config.dataset} --root FOLDER")
    layout.check_roots(config.root)
    _apart(folder, config)
    inputs = [file_print(path) for path in sources(config)]
    fingerprint = build_print(config.content(), inputs, code_print())
    record = _opened(folder, fingerprint, overwrite=config.overwrite)
    if record is not None:
        steps = pl.read_parquet(folder / "attrition.parquet").to_dicts()
        return Built(
            folder, record, _lines(config.dataset, steps), ["this folder is finished; nothing was built again"]
        )
    work = folder / WORK
    prepared = prepare(config, work, folder / "notes", fingerprint)
    quarantine, rows = write_images(config, prepared, folder, fingerprint)
    return _finish(config, prepared, folder, inputs, fingerprint, quarantine, rows)


def sources(config: BuildConfig) -> list[Path]:
    """The files that decide what is built, pictures and reports aside."""
    found = [layout.find(config.root, config.dataset, each.key) for each in layout.LAYOUTS[config.dataset]]
    paths = [path for path in found if path is not None and path.is_file()]
    return [*paths, Path(config.split_file)] if config.split_file else paths


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
    parts = {split: table.filter(pc.equal(table["split"], split)) for split in ORDER}
    rows = ROWS_PER_SHARD if pixels else ROWS_WITHOUT_PIXELS
    return [ShardPlan(split, part, rows) for split, part in parts.items() if part.num_rows]


def write_images(
    config: BuildConfig, prepared: Prepared, folder: Path, fingerprint: str
) -> tuple[pl.DataFrame, dict[str, int]]:
    """Write the shards of every split; what could not be used, and how many rows of each split could."""
    bad, rows = [prepared.quarantine], {}
    for plan in plans(prepared, pixels=not config.no_pixels):
        done = write_shards(
            plan,
            folder / "images",
            build=folder / WORK / "shards",
            fingerprint=fingerprint,
            size=None if config.no_pixels else config.size,
            threads=config.workers,
        )
        rows[plan.split] = sum(each.rows for each in done)
        lost = pl.from_arrow(pa.concat_tables([each.quarantined for each in done]))
        assert isinstance(lost, pl.DataFrame)
        bad.append(lost.rename({"image_id": "id"}))
    return pl.concat([each.select(list(QUARANTINE)) for each in bad]), rows


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
        notes.append(f"{lost:,} pictures are missing or damaged, all named in {folder}/quarantine.parquet")
        notes += [f"{kind}: {path}" for kind, path in bad.select("kind", "path").head(_EXAMPLES).iter_rows()]
    if prepared.quarantine.height:
        notes.append(f"{prepared.quarantine.height:,} notes cannot be used: see {folder}/quarantine.parquet")
    write_table(quarantine.to_arrow(), folder / "quarantine.parquet")
    if prepared.attributes is not None and prepared.attributes.height:
        write_table(
            check(prepared.attributes.to_arrow(), ATTRIBUTE, source="attributes"), folder / "attributes.parquet"
        )
    if prepared.resampled is not None:
        write_table(prepared.resampled.to_arrow(), folder / "resampled.parquet")
    write_table(steps.table(), folder / "attrition.parquet")
    write_table(steps.table(), folder / "attrition.csv")
    _text(folder / "flow.svg", flow(steps.rows, f"{config.dataset}: from the published files to this dataset"))
    record = {
        "format": 1,
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
    counts = label_counts(prepared.images, prepared.findings) if prepared.images.height else None
    _text(folder / "README.md", card(config.dataset, record, steps.rows, counts))
    _text(folder / RECORD, json.dumps(record, indent=2, ensure_ascii=False, default=str) + "\n")
    _tidy(folder)  # after the record: a build killed in between is finished
    return Built(folder, record, steps.lines(), notes)


def with_twin(config: BuildConfig, folder: Path) -> BuildConfig:
    """Make up the raw files below the build's own folder, once, and build from them."""
    from cxrhf.data.synthetic import write

    source = folder / "source"
    said: dict[str, Any] = {
        "n_patients": config.n_patients,
        "seed": config.seed,
        "dirty": config.dirty,
        "pixels": not config.no_pixels,
        "size": min(max(config.size, 64), 256),
    }
    marker = source / "made.json"
    if not marker.is_file() or json.loads(marker.read_text()) != said:
        draft = folder / "source.part"
        for each in (draft, source):
            shutil.rmtree(each, ignore_errors=True)
        write("mimic", draft, **said)
        _text(draft / "made.json", json.dumps(said))
        draft.replace(source)
    return config.with_root(source)


def _apart(folder: Path, config: BuildConfig) -> None:
    """A build may not be written into the folder it is read from."""
    for root in config.root:
        inside, source = folder.resolve(), Path(root).resolve()
        if inside == source or source in inside.parents:
            raise RunError(
                f"{folder} lies in the source folder {root}, which is only read", next_step="choose another --out"
            )


def _opened(folder: Path, fingerprint: str, *, overwrite: bool) -> dict[str, Any] | None:
    """The record of a finished build with this fingerprint; otherwise a folder ready to be built into, and None."""
    other = f"choose another --out, or say --overwrite to replace what is in {folder}"
    if folder.exists() and not folder.is_dir():
        raise RunError(f"{folder} is a file, not a folder", next_step="choose another --out")
    record, begun = _json(folder / RECORD), _json(folder / WORK / "begun.json")
    known = (record or begun or {}).get("fingerprint")
    strange = (
        folder.is_dir()
        and known is None
        and any(each.name not in ("source", "source.part", WORK) for each in folder.iterdir())
    )
    if strange and not overwrite:
        raise RunError(f"{folder} is not empty and holds no build", next_step=other)
    _sweep(folder)
    if record is not None and known == fingerprint:
        _tidy(folder)
        return record
    if known is not None and known != fingerprint and not overwrite:
        what = "a finished build" if record is not None else "a build that was begun"
        raise RunError(f"{folder} holds {what} with other settings, sources or code", next_step=other)
    if known != fingerprint:
        _clear(folder)
    _text(folder / WORK / "begun.json", json.dumps({"fingerprint": fingerprint}))
    return None


def _clear(folder: Path) -> None:
    """Remove what builds write, and nothing else."""
    for name in ("images", "notes", WORK):
        shutil.rmtree(folder / name, ignore_errors=True)
    made = ("quarantine.parquet", "attributes.parquet", "resampled.parquet", "attrition.parquet", "attrition.csv")
    for name in (*made, "flow.svg", "README.md", RECORD, "leakage.csv"):
        (folder / name).unlink(missing_ok=True)


def _tidy(folder: Path) -> None:
    """Remove what only an unfinished build needs."""
    shutil.rmtree(folder / WORK, ignore_errors=True)


def _sweep(folder: Path) -> None:
    """Remove the drafts that a killed build left behind."""
    for place in (folder, folder / "images", folder / WORK):
        for draft in place.glob(".*.tmp"):
            draft.unlink(missing_ok=True)


def _json(path: Path) -> dict[str, Any] | None:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def _text(path: Path, text: str) -> None:
    write_atomically(path, lambda file: file.write(text.encode()))


def _lines(dataset: str, rows: list[dict[str, Any]]) -> list[str]:
    from cxrhf.data.attrition import Steps

    return Steps(dataset, rows).lines()
