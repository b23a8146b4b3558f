"""What the user gave -> the files to read, names for their models, and seeds where they are runs of one model."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from cxrhf.errors import TableError
from cxrhf.tables.checks import quoted
from cxrhf.tables.places import meant, what_is
from cxrhf.tables.reading import Loaded
from cxrhf.tables.rows import SAME, first_repeated


def listed_sources(source: Any) -> list[Any]:
    """Several paths, one path, or one table; a run folder stands for the predictions in it."""
    if isinstance(source, (str, os.PathLike)):
        return [_run_table(Path(source))]
    if isinstance(source, Sequence) and source and all(isinstance(each, (str, os.PathLike)) for each in source):
        paths = [_run_table(Path(each)) for each in source]
        if len({path.resolve() for path in paths}) < len(paths):
            raise TableError(
                "the same predictions file is given twice",
                got=", ".join(map(str, paths)),
                next_step="pass each file once; several files are read as several models",
            )
        return list(paths)
    if isinstance(source, Sequence) and not source:
        raise TableError("no predictions are given", next_step="pass a file: cxrhf audit predictions.csv")
    return [source]


def predictions_in(run: Path) -> Path | None:
    """The predictions of a run folder; of a network that was trained on the sex or race alone, those of it."""
    there = (run / name for name in ("predictions.parquet", "characteristics.parquet"))
    return next(filter(Path.is_file, there), None)


def _run_table(path: Path) -> Path:
    if path.is_dir() and (found := predictions_in(path)):
        return found
    if path.is_dir():
        raise TableError(
            str(path),
            allowed="a folder with predictions.parquet",
            got=what_is(path),
            next_step=meant(path, "predictions.parquet") or _before(path) or "name a predictions file",
        )
    return path


def _before(folder: Path) -> str | None:
    """What has to be done to a folder before there are predictions in it."""
    typed = shlex.quote(str(folder))
    if (folder / "build.json").is_file():
        return f"train and predict first: cxrhf train {typed} --config quick --out runs/quick, cxrhf predict runs/quick"
    return f"cxrhf predict {typed}" if (folder / "models").is_dir() else None


def model_names(sources: list[Any]) -> list[str]:
    """Names for files that do not name their model: one file "model", several by file, or by folder and file."""
    if len(sources) == 1:
        return ["model"]
    stems = [Path(each).name.split(".")[0] for each in sources]
    if len(set(stems)) < len(stems):
        stems = [f"{Path(each).resolve().parent.name}/{stem}" for each, stem in zip(sources, stems, strict=True)]
    return stems if len(set(stems)) == len(stems) else [f"{stem} ({at + 1})" for at, stem in enumerate(stems)]


def as_runs(parts: Sequence[Loaded], sources: Sequence[Any], model: str | None) -> list[Loaded]:
    """Files that share images under one given model name are its runs (training seeds, splits): a seed for each.

    Files without a shared image stay one table: the parts, splits or datasets of one model. So do files with a seed.
    """
    whole = pa.concat_tables([part.table for part in parts])
    unnamed = model is None or pc.unique(whole["model"]).to_pylist() != [model]
    if unnamed or whole["seed"].null_count < len(whole) or first_repeated([whole[name] for name in SAME]) is None:
        return list(parts)
    seeds, by_name = run_seeds([os.path.abspath(each) for each in sources])
    how = "from the number in its name" if by_name else "from the order of the files"
    at = whole.schema.get_field_index("seed")
    out = []
    for part, seed in zip(parts, seeds, strict=True):
        said = f"shares images with other files of model {quoted(str(model))}: read as its run with seed {seed}, {how}"
        column = pa.repeat(pa.scalar(seed, pa.int64()), part.table.num_rows)
        readings = tuple(replace(each, notes=(*each.notes, said)) for each in part.readings)
        out.append(replace(part, table=part.table.set_column(at, whole.schema.field(at), column), readings=readings))
    return out


def run_seeds(paths: Sequence[str]) -> tuple[list[int], bool]:
    """The one number in which the paths differ, else 0, 1, 2 ...; and whether it was found.

    >>> run_seeds(["runs/seed_3.csv", "runs/seed_14.csv"]), run_seeds(["a.csv", "b.csv"])
    (([3, 14], True), ([0, 1], False))
    """
    pieces = [re.split(r"([0-9]+)", path) for path in paths]
    if len({tuple(each[::2]) for each in pieces}) == 1:
        differing = [at for at in zip(*(each[1::2] for each in pieces), strict=True) if len(set(at)) > 1]
        numbers = [int(each) for each in differing[0]] if len(differing) == 1 else []
        if numbers and len(set(numbers)) == len(paths) and max(numbers) < 2**63:
            return numbers, True
    return list(range(len(paths))), False
