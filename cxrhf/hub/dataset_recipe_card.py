"""A recipe -> its card: what it is, what one needs, the command that builds the same and the one that compares."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path

from cxrhf import __version__
from cxrhf.config_build import BuildConfig
from cxrhf.data.card import attrition_lines, front, loading, published_split, setting_lines
from cxrhf.hub.dataset_files import dataset_info
from cxrhf.hub.dataset_source import IDS, Build

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
