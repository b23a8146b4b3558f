"""Settings -> a folder: image shards, notes, attributes, quarantine, attrition, flow picture, card and build.json.

Nothing but the quarantine says when or where it was made, so the same settings, sources and version give the same
bytes. A build that was killed goes on: streamed notes and finished shards are taken over, everything else is made
again. The record build.json is written last; a folder without it is not finished. One process at a time builds into a
folder.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from cxrhf.data import layout
from cxrhf.data.attrition import COUNTS, Steps
from cxrhf.data.card import TERMS, card
from cxrhf.data.fields import label_counts
from cxrhf.data.folder import (
    FIRST,
    RECORD,
    WORK,
    build_print,
    check_not_around_source,
    check_strange,
    discard_build,
    file_print,
    open_build_folder,
    remove,
    remove_build_drafts,
    tidy,
    version_of,
    write_text,
)
from cxrhf.data.images import check_packages
from cxrhf.data.notes import QUARANTINE
from cxrhf.data.prepare import Prepared, prepare
from cxrhf.data.settings import RETIRED, BuildConfig
from cxrhf.data.shards import ROWS_PER_SHARD, ROWS_WITHOUT_PIXELS, ShardPlan, place_shards, write_shards
from cxrhf.data.splits import NAMES
from cxrhf.data.twin import draw_films, with_twin
from cxrhf.errors import CxrhfError, RunError, SourceError
from cxrhf.schema import ATTRIBUTE, image_schema
from cxrhf.tables.checks import check
from cxrhf.tables.files import write_table
from cxrhf.tables.folders import check_writable, one_writer

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
        check_not_around_source(folder, config.root)  # before the folder is held: the lock is a file too
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
    remove_build_drafts(folder)
    if made_up:
        config = with_twin(config, folder)
    inputs = fingerprints(config)
    fingerprint = build_print(config.content(), inputs, version_of(config.dataset))
    record = open_build_folder(
        folder, fingerprint, overwrite=config.overwrite, same=lambda record: _is_same(record, config, inputs)
    )
    if record is not None:
        return _read_finished(folder, record)
    try:
        prepared = prepare(config, folder / WORK, folder / "notes", fingerprint)
        if made_up:
            draw_films(config, prepared.images)
        quarantine, rows = write_images(config, prepared, folder, fingerprint)
    except CxrhfError:
        discard_build(folder)  # nothing was made that could be taken over: other settings may follow
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


def _read_finished(folder: Path, record: dict[str, Any]) -> Built:
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


# The steps of a build -> a flow picture in the manner of CONSORT: who came in, who was left out and why, as SVG.

_WIDTH, _BOX, _SIDE, _LEFT = 880, 390, 350, 40
_LINE, _PAD, _GAP = 17, 9, 30
_MOST = 48  # letters in a line of a side box


def flow(rows: Sequence[Mapping[str, Any]], title: str) -> str:
    """One picture from the rows of the attrition table."""
    sources = [row for row in rows if row["images"] is None]
    chain = [row for row in rows if row["images"] is not None and not row["step"].startswith("split ")]
    parts = [row for row in rows if row["step"].startswith("split ")]
    drawn: list[str] = []
    y = 44.0
    if sources:
        lines = [f"{row['step']}: {_format_counts(row)}" for row in sources]
        height = _box(drawn, _LEFT, y, _WIDTH - 2 * _LEFT, ["Published tables", *lines])
        y += height + _GAP
        if chain or parts:
            _arrow(drawn, _LEFT + _BOX / 2, y - _GAP, y)
    before: Mapping[str, Any] | None = None
    above: float | None = None  # where the box before ended
    for row in chain:
        side = _excluded_lines(before, row)
        if side:
            height = _box(drawn, _WIDTH - _LEFT - _SIDE, y, _SIDE, side, light=True)
            middle = y + height / 2
            drawn.append(f'<path d="M{_LEFT + _BOX / 2} {middle}H{_WIDTH - _LEFT - _SIDE}" class="line"/>')
            y += height + _GAP / 2
        if above is not None:
            _arrow(drawn, _LEFT + _BOX / 2, above, y)
        y += _box(drawn, _LEFT, y, _BOX, [row["step"], *_wrapped(_format_counts(row))])
        above = y
        y += _GAP
        before = row
    if parts and above is not None:
        _arrow(drawn, _LEFT + _BOX / 2, above, y)
    if parts:
        width = (_WIDTH - 2 * _LEFT - 24 * (len(parts) - 1)) / len(parts)
        tallest = 0.0
        for at, row in enumerate(parts):
            lines = [row["step"].removeprefix("split "), *_format_counts(row).split(", ")]
            tallest = max(tallest, _box(drawn, _LEFT + at * (width + 24), y, width, lines))
        y += tallest
    height = y + (24 if parts else 0)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height:.0f}" width="{_WIDTH}" '
        f'height="{height:.0f}" role="img" aria-label="{escape(title)}">'
        "<style>text{font:13px system-ui,sans-serif;fill:#1c2733}.head{font-weight:600}.title{font-size:16px;"
        "font-weight:600}.box{fill:#fff;stroke:#46627f;stroke-width:1.2}.light{fill:#f5f2ec;stroke:#a08b64}"
        ".line{fill:none;stroke:#46627f;stroke-width:1.2}.tip{fill:#46627f}</style>"
        f'<rect width="{_WIDTH}" height="{height:.0f}" fill="#fcfcfa"/>'
        f'<text x="{_LEFT}" y="28" class="title">{escape(title)}</text>{"".join(drawn)}</svg>\n'
    )


def _format_counts(row: Mapping[str, Any]) -> str:
    return ", ".join(
        f"{row[name]:,} {name if row[name] != 1 else _singular(name)}" for name in COUNTS if row[name] is not None
    )


def _singular(name: str) -> str:
    return "study" if name == "studies" else name.removesuffix("s")


def _excluded_lines(before: Mapping[str, Any] | None, row: Mapping[str, Any]) -> list[str]:
    """What a step took away, and what it has to say."""
    lines = []
    if before is not None:
        lost = {name: (before[name] or 0) - (row[name] or 0) for name in ("images", "studies", "patients")}
        gone = [
            f"{n:,} {name if n != 1 else _singular(name)}"
            for name, n in lost.items()
            if n > 0 and row[name] is not None
        ]
        if gone:
            lines = ["Excluded", *_wrapped(", ".join(gone))]
    return [*lines, *_wrapped(row["note"] or "")]


def _wrapped(text: str) -> list[str]:
    """Lines that fit into a box; a number stays with its noun."""
    lines, line = [], ""
    for word in re.sub(r"(?<=\d) (?=[a-z])", "\u00a0", text).split(" "):
        if line and len(line) + 1 + len(word) > _MOST:
            lines.append(line)
            line = ""
        line = f"{line} {word}".strip(" ")
    return [*lines, line] if line else lines


def _box(drawn: list[str], x: float, y: float, width: float, lines: Sequence[str], *, light: bool = False) -> float:
    height = len(lines) * _LINE + 2 * _PAD
    kind = "box light" if light else "box"
    drawn.append(f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height}" rx="5" class="{kind}"/>')
    for at, text in enumerate(lines):
        look = ' class="head"' if at == 0 else ""
        drawn.append(f'<text x="{x + 12:.1f}" y="{y + _PAD + 13 + at * _LINE:.1f}"{look}>{escape(str(text))}</text>')
    return height


def _arrow(drawn: list[str], x: float, top: float, bottom: float) -> None:
    drawn.append(f'<path d="M{x} {top}V{bottom - 6}" class="line"/>')
    drawn.append(f'<path d="M{x - 4} {bottom - 7}L{x + 4} {bottom - 7}L{x} {bottom}Z" class="tip"/>')
