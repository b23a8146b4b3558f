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
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from cxrhf import __version__
from cxrhf.data.attrition import COUNTS
from cxrhf.data.card import attrition_lines, front, loading, published_split, setting_lines
from cxrhf.data.load import build_record
from cxrhf.data.settings import BuildConfig
from cxrhf.errors import CxrhfError, RunError
from cxrhf.hub.artefact import Artefact, Piece
from cxrhf.hub.dataset_tables import IDS, Build, clean_inputs, dataset_info, json_piece, opened
from cxrhf.tables.files import read_object, write_table


def recipe_artefact(build: Build, to: str, work: Path) -> Artefact:
    """Ids and splits as Parquet, the settings with the command that builds the same, counts, and a card."""
    from cxrhf.hub.scan_people import known_of

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


def compare_recipe(recipe: Path, folder: Path) -> Compared:
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
        found = compare_recipe(given.recipe, given.build)
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


# A recipe -> its card: what it is, what one needs, the command that builds the same and the one that compares.

RECIPE = "recipe.json"
_HERE = "recipe"  # the folder that the commands download it to
_ABOUT = (
    "The settings, ids and splits of a dataset built with cxrhf. It contains no images, texts, labels or other patient "
    "data. With access to the source, you can rebuild the same dataset from it."
)


def command(config: BuildConfig) -> str:
    """The `cxrhf build` that makes the same: settings that differ from the dataset's own, as flags.

    >>> command(BuildConfig("chexpert", root=("x",), views="frontal", exclude_devices=True))
    'cxrhf build chexpert --root FOLDER --out data/chexpert --views frontal --exclude-devices'
    """
    usual = BuildConfig(config.dataset).content()
    words = ["cxrhf", "build", config.dataset]
    words += [] if config.dataset == "synthetic" else ["--root", "FOLDER"]
    words += ["--out", f"data/{config.dataset}"]
    for name, value in config.content().items():
        if value != usual[name]:
            words += [f"--{name.replace('_', '-')}", *([] if value is True else [str(value)])]
    words += ["--split-file", f"{_HERE}/split.csv"] if config.split == "file" else []
    return shlex.join(words)


def recipe_card(build: Build, repo: str, files: Mapping[str, Path], chosen: str) -> str:
    """README.md. `files` are the tables of ids by split; `chosen` says what the choice of images gives away."""
    terms = build.terms
    tables = {"ids": {published_split(split): f"ids/{split}.parquet" for split in files}}
    more = dataset_info({"ids": {published_split(split): [path] for split, path in files.items()}})
    lines = front(build.dataset, f"{terms.name} (recipe)", tables, build.ids.num_rows, more)
    lines += [f"# {terms.name}: recipe", "", _ABOUT, ""]
    lines += [f"The list of ids reveals how images were selected: {chosen}.", ""] if chosen else []
    lines += ["## Requirements", ""]
    if build.dataset == "synthetic":
        lines += ["None: the source is synthetic.", ""]
    else:
        access = "with your own access under its terms" if terms.credentialed else "as published"
        lines += [f"{terms.name}, {access}: {terms.link}", "", f"`{RECIPE}` lists its files with size and hash.", ""]
    lines += ["## Rebuild the dataset", "", "```bash", f"pip install cxrhf=={__version__}"]
    lines += [f"hf download {repo} --repo-type dataset --local-dir {_HERE}", command(build.config)]
    lines += [f"python -m cxrhf.hub.dataset_recipe {_HERE} data/{build.dataset}", "```", ""]
    lines += ["The last command checks that your build has the same images in the same splits. If settings, source "
              "files and version match, its build.json has the same fingerprint: "
              f"`{build.record['fingerprint']}`.", ""]  # fmt: skip
    lines += ["## Load the ids", "", "```python", "from datasets import load_dataset", ""]
    lines += [*loading(repo, tables), "```", "", "| split | images |", "|---|---|"]
    lines += [f"| {split} | {count:,} |" for split, count in build.tables.rows()["splits"].items()]
    lines += ["", "Columns: " + ", ".join(f"`{name}`" for name in IDS) + ".", ""]
    lines += ["## Settings", "", *setting_lines(build.config.content()), ""]
    lines += ["## Attrition", "", "Published counts, where available, are in brackets.", ""]
    return "\n".join([*lines, *attrition_lines(build.steps, notes=False), ""])


if __name__ == "__main__":
    sys.exit(main())
