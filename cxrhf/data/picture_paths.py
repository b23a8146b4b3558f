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
_LOOKS = 24
_FOUND = {"stem": pl.String, "found": pl.String}


def folders(roots: Iterable[str | Path], *files: Path | None) -> list[Path]:
    """The roots and the folders of these files, absolute, each once."""
    places = [*(Path(root) for root in roots), *(file.parent for file in files if file is not None)]
    return list(dict.fromkeys(place.resolve() for place in places))


def holding(candidates: Sequence[Path], names: pl.Series, endings: Sequence[str] = ("",)) -> tuple[Path, str] | None:
    """The first folder below which one of a few of the names exists, and the ending that had to be put behind it."""
    some = names.drop_nulls()
    step = max(1, some.len() // _LOOKS)
    looked = [*some.head(4), *some.gather_every(step)]
    for folder in candidates:
        if not folder.is_dir():
            continue
        for name in looked:
            for ending in endings:
                if (folder / f"{name}{ending}").is_file():
                    return folder, ending
    return None


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
