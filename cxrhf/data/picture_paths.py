"""Names of pictures in a table -> where the pictures lie, without a look at every file.

Downloads are unpacked in many places. So a few names spread over the table are looked for in every likely folder, and
the folder that holds one of them is taken for all; or a folder with all pictures in it is listed once.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

import polars as pl

PICTURES = (".png", ".jpg", ".jpeg", ".dcm")
_LOOKS, _MANY = 24, 500
_FOUND = {"stem": pl.String, "found": pl.String}


def folders(roots: Iterable[str | Path], *files: Path | None) -> list[Path]:
    """The roots and the folders of these files, absolute, each once."""
    places = [*(Path(root) for root in roots), *(file.parent for file in files if file is not None)]
    return list(dict.fromkeys(place.resolve() for place in places))


def holding(candidates: Sequence[Path], names: pl.Series, endings: Sequence[str] = ("",)) -> tuple[Path, str] | None:
    """The first folder below which one of the names exists, and the ending that had to be put behind it.

    A few names are tried. Where none is there, as in a copy of a few patients, the folders two levels down are listed
    once and the names that lie in them are tried.
    """
    some = names.drop_nulls()
    few = [*some.head(4), *some.gather_every(max(1, some.len() // _LOOKS))]
    there = [folder for folder in candidates if folder.is_dir()]
    for folder in there:
        if (ending := _ending(folder, few, endings)) is not None:
            return folder, ending
    parts = some.str.extract_groups(r"^(?<outer>[^/]+)/(?<inner>[^/]+)/").struct
    outer, inner = parts.field("outer"), parts.field("inner")
    for folder in there:
        for top in outer.drop_nulls().unique().sort():
            inside = _entries(folder / top)
            listed_here = some.filter((outer == top) & inner.is_in(inside)) if inside else some.clear()
            if (ending := _ending(folder, listed_here.head(_MANY).to_list(), endings)) is not None:
                return folder, ending
    return None


def _ending(folder: Path, names: Sequence[str], endings: Sequence[str]) -> str | None:
    tries = (ending for name in names for ending in endings if (folder / f"{name}{ending}").is_file())
    return next(tries, None)


def _entries(folder: Path) -> list[str]:
    return os.listdir(folder) if folder.is_dir() else []


def below(folder: Path, name: pl.Expr) -> pl.Expr:
    """Names joined to a folder."""
    return pl.concat_str([pl.lit(f"{folder}{os.sep}"), name])


def listed(places: Iterable[Path]) -> pl.DataFrame:
    """Every picture right in these folders: its name without ending, and its path. The first place wins."""
    rows: list[tuple[str, str]] = []
    for place in dict.fromkeys(places):
        try:
            with os.scandir(place) as entries:
                names = sorted((entry.name, entry.path) for entry in entries)
        except (FileNotFoundError, NotADirectoryError):
            continue
        rows += [(Path(name).stem, path) for name, path in names if name.lower().endswith(PICTURES)]
    frame = pl.DataFrame(rows, schema=_FOUND, orient="row")
    return frame.unique("stem", keep="first", maintain_order=True)
