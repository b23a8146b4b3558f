"""A build -> its recipe: settings, ids and splits, from which others with their own access build the same; and back.

`python -m cxrhf.hub.dataset_recipe RECIPE BUILD` says whether a build holds the recipe's images in the same splits.

Ids without data are what published split files hold, of MIMIC and CheXpert too: they point into files that only people
with their own agreement have. Still it is the user's agreement that decides, and the notes before a push say so.
Nothing else of a patient goes in: no text, pixels, labels, age, sex, race, view or time; of the attrition the counts
alone. What remains is the choice itself: a list of images "without support devices" says so of each of them, and is
told.

Known gap: a split from a file goes as split.csv by image; a CheXpert sample that was taken from the rows of such a file
(`--sample encoding` without the workbook of races) needs the workbook, or the same file again.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from cxrhf import __version__
from cxrhf.config_build import BuildConfig
from cxrhf.data.attrition import COUNTS
from cxrhf.data.load import build_record
from cxrhf.errors import CxrhfError, RunError
from cxrhf.hub.artefact import Artefact, Piece
from cxrhf.hub.dataset_recipe_card import RECIPE, command, recipe_card
from cxrhf.hub.dataset_source import IDS, Build, clean_inputs, json_piece, opened
from cxrhf.schema import write_table
from cxrhf.tables.json_files import read_object


def recipe_artefact(build: Build, to: str, work: Path) -> Artefact:
    """Ids and splits as Parquet, the settings with the command that builds the same, counts, and a card."""
    from cxrhf.hub.scan_known import known_of

    if not build.ids.num_rows:
        raise RunError(f"{build.folder} has no images, so there is no recipe to publish",
                       next_step="share the cxrhf build command instead")  # fmt: skip
    files = _write_ids(build, work / "ids")
    pieces = [
        json_piece(RECIPE, _recipe(build)),
        *(Piece(f"ids/{split}.parquet", path) for split, path in files.items()),
    ]
    counts = pa.Table.from_pylist([{name: row[name] for name in ("step", *COUNTS)} for row in build.steps])
    pieces.append(Piece("attrition.csv", write_table(counts, work / "attrition.csv")))
    if build.config.split == "file":
        pieces.append(Piece("split.csv", write_table(_split_file(build.ids), work / "split.csv")))
    chosen = _chosen_by(build.config)
    text = recipe_card(build, to, files, chosen)
    notes = ["this publishes ids and splits; check that your agreement with the source lets you share ids"]
    notes += [f"the list of ids reveals how images were selected: {chosen}"] if chosen else []
    return Artefact(
        "dataset",
        to.rsplit("/", 1)[-1],
        (Piece("README.md", text.encode()), *pieces),
        may_hold=frozenset({"ids", "rows"}),
        known=known_of([build.folder]),
        notes=tuple(notes),
    )


class Compared(NamedTuple):
    """How a build stands to a recipe, in images."""

    same: int
    missing: int  # in the recipe alone
    more: int  # in the build alone
    moved: int  # in both, but with another split, study or patient


def compare(recipe: Path, folder: Path) -> Compared:
    """The images of a downloaded recipe against those of a build."""
    files = sorted((recipe / "ids").glob("*.parquet"))
    if not (recipe / RECIPE).is_file() or not files:
        raise RunError(f"{recipe} is not a recipe: {RECIPE} or ids/ is missing",
                       next_step=_download(recipe))  # fmt: skip
    listed = _rows(pa.concat_tables([pq.ParquetFile(path).read(columns=list(IDS)) for path in files]))
    built = _rows(opened(folder).ids)
    both = listed.keys() & built.keys()
    same = sum(listed[image] == built[image] for image in both)
    return Compared(same, len(listed) - len(both), len(built) - len(both), len(both) - same)


def _download(recipe: Path) -> str:
    return f"hf download USER/NAME --repo-type dataset --local-dir {recipe}"


def _rows(ids: pa.Table) -> dict[str, tuple[str, ...]]:
    columns = [ids[name].to_pylist() for name in IDS]
    return {row[0]: row[1:] for row in zip(*columns, strict=True)}


def _write_ids(build: Build, folder: Path) -> dict[str, Path]:
    """Split -> a file of ids alone, sorted; equal builds give equal bytes."""
    made = {}
    for split in build.tables.images:
        part = build.ids.filter(pc.equal(build.ids["split"], split)).select(list(IDS)).sort_by("image_id")
        plain = pa.table({name: part[name].combine_chunks().cast(pa.string()) for name in IDS})
        made[split] = write_table(plain, folder / f"{split}.parquet")
    return made


def _split_file(ids: pa.Table) -> pa.Table:
    """What --split-file takes: a split for each image, as the user's own file gave it."""
    return ids.select(["image_id", "split"]).sort_by("image_id").replace_schema_metadata(None)


def _recipe(build: Build) -> dict[str, Any]:
    return {
        "format": 1,
        "cxrhf": __version__,
        "dataset": build.dataset,
        "command": command(build.config),
        "settings": build.config.content(),
        "splits": build.tables.rows()["splits"],
        "sources": clean_inputs(build),
        "fingerprint": build.record["fingerprint"],
    }


def _chosen_by(config: BuildConfig) -> str:
    """Settings that choose images by labels, by who the patients are, or by what else is known of them."""
    found = {
        "with a prior note": config.configuration == "linked" and not config.keep_without_notes,
        "frontal views": config.views == "frontal",
        "without support devices": config.exclude_devices,
        "White, Asian and Black patients with one race each": config.sample == "encoding",
        f"a share of women of {config.female}": config.female is not None,
        f"one image per patient, positive for {config.finding} if any": config.images_per_patient == "positive_first",
        "patients with an annotated image in test": config.withhold_annotated,
    }
    return "; ".join(name for name, there in found.items() if there)


def main(arguments: Sequence[str] | None = None) -> int:
    """0 where the build has the recipe's images in its splits, 1 where it has not, 2 where one cannot tell."""
    about = "Check that a build has the images and splits of a recipe."
    parser = argparse.ArgumentParser(prog="python -m cxrhf.hub.dataset_recipe", description=about)
    parser.add_argument("recipe", type=Path, metavar="RECIPE", help="folder with a downloaded recipe")
    parser.add_argument("build", type=Path, metavar="BUILD", help="folder written by cxrhf build")
    given = parser.parse_args(arguments)
    try:
        found = compare(given.recipe, given.build)
        recipe = read_object(given.recipe / RECIPE, next_step=_download(given.recipe))
        built = build_record(given.build)["settings"]
    except CxrhfError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    if found.same and not (found.missing or found.more or found.moved):
        print(f"identical: {found.same:,} images in the same splits")
        return 0
    print(f"different: {found.same:,} images agree, {found.moved:,} have another split, study or patient, "
          f"{found.missing:,} are only in the recipe, {found.more:,} only in the build")  # fmt: skip
    asked = recipe.get("settings", {})
    if differ := [name for name in {**asked, **built} if asked.get(name) != built.get(name)]:
        print(f"these settings differ: {', '.join(differ)}. The recipe's command: {recipe.get('command')}")
    return 1


if __name__ == "__main__":
    sys.exit(main())
