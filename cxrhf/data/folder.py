"""The folder of a build -> whether it may be written to, and what an earlier build left; nothing else is removed.

Whoever calls a function that writes or removes holds the folder (`tables.folders.one_writer`), so a draft that is
found there belongs to nobody. A link is removed as a link: what it points to stays.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from cxrhf.errors import RunError
from cxrhf.tables.checks import quoted
from cxrhf.tables.files import write_atomically

WORK, RECORD = ".build", "build.json"
# What a build makes, or once made (resampled.parquet), and what may lie in its folder before it is begun: what an
# earlier try that failed said.
_BUILD_ENTRIES = (
    "images", "notes", WORK, "quarantine.parquet", "attributes.parquet", "resampled.parquet", "attrition.parquet",
    "attrition.csv", "flow.svg", "README.md", RECORD, "leakage.csv",
)  # fmt: skip
_ALLOWED = {"source", WORK, "leakage.csv", "quarantine.parquet"}
_DRAFT = re.compile(r"\..+\.\d+\.tmp")  # of tables.files.write_atomically


def check_strange(folder: Path, *, overwrite: bool) -> None:
    """Refuse a folder that no build was begun in and that holds other things."""
    record, begun = read_json(folder / RECORD), read_json(folder / WORK / "begun.json")
    there = {each.name for each in folder.iterdir()} if folder.is_dir() else set()
    strange = sorted(there - _ALLOWED - {f".{folder.resolve().name}.lock"})  # the lock of whoever asks
    if (record or begun or {}).get("fingerprint") is not None or not strange:
        return
    if not overwrite:
        raise RunError(f"{folder} is not empty and is not a build", next_step=_next_step(folder))
    if ours := [name for name in strange if name in _BUILD_ENTRIES]:
        raise RunError(
            f"{folder} is not a cxrhf build, but contains {quoted(ours[0])}, which a build would replace",
            next_step="move it away, or choose another --out",
        )


def _next_step(folder: Path) -> str:
    return f"choose another --out, or pass --overwrite to replace the contents of {folder}"


def check_outside_source(folder: Path, roots: Sequence[str], option: str = "--out") -> None:
    """Nothing is written into a folder that is read from."""
    inside = folder.resolve()
    for root in roots:
        source = Path(root).resolve()
        if inside == source or source in inside.parents:
            raise RunError(
                f"{folder} is inside the source folder {root}, and cxrhf writes nothing there",
                next_step=f"choose another {option}",
            )


def check_not_around_source(folder: Path, roots: Sequence[str]) -> None:
    """A build is not written into the folder it is read from, nor around it: replacing a build removes folders."""
    check_outside_source(folder, roots)
    inside = folder.resolve()
    for root in roots:
        source = Path(root).resolve()
        if inside in source.parents and source != inside / "source":
            raise RunError(
                f"the source folder {root} is inside {folder}, where the build would be written",
                next_step="choose another --out",
            )


def open_build_folder(
    folder: Path, fingerprint: str, *, overwrite: bool, same: Callable[[Mapping[str, Any]], bool]
) -> dict[str, Any] | None:
    """The record of a finished build of the `same` things; otherwise a folder ready to be built into, and None."""
    record, begun = read_json(folder / RECORD), read_json(folder / WORK / "begun.json")
    known = (record or begun or {}).get("fingerprint")
    if record is not None and (known == fingerprint or same(record)) and not overwrite:
        tidy(folder)
        return record
    if known is not None and known != fingerprint and not overwrite:
        what = "a finished build" if record is not None else "an unfinished build"
        raise RunError(
            f"{folder} contains {what} with different settings, sources or version", next_step=_next_step(folder)
        )
    if record is not None or known != fingerprint or (begun or {}).get("clearing"):
        clear_build(folder, fingerprint)
    write_text(folder / WORK / "begun.json", json.dumps({"fingerprint": fingerprint}))
    return None


def clear_build(folder: Path, fingerprint: str) -> None:
    """Remove what builds write, and nothing else, before a build with this fingerprint.

    If it is killed in the middle, the folder still says whose it is and what is half removed is no finished build.
    """
    write_text(folder / WORK / "begun.json", json.dumps({"fingerprint": fingerprint, "clearing": True}))
    (folder / RECORD).unlink(missing_ok=True)
    for name in _BUILD_ENTRIES:
        if name != WORK:
            remove(folder / name)
    for path in (folder / WORK).iterdir():
        if path.name != "begun.json":
            remove(path)


def remove(path: Path) -> None:
    """Remove a file, a folder with all it holds, or a link; nothing where it is not there."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def tidy(folder: Path) -> None:
    """Remove what only an unfinished build needs."""
    with contextlib.suppress(OSError):
        remove(folder / WORK)


def discard_build(folder: Path) -> None:
    """Remove what a build made that cannot be finished; what it has to say (quarantine, leakage.csv) stays."""
    for name in ("images", "notes", WORK):
        with contextlib.suppress(OSError):  # the error that led here is the one to be told
            remove(folder / name)
    with contextlib.suppress(OSError):  # other things in it
        folder.rmdir()


def remove_build_drafts(folder: Path) -> None:
    """Remove the drafts that a killed build left behind: they hold ids, texts and pictures."""
    for draft in [*folder.glob(".*.tmp"), *(folder / WORK).rglob(".*.tmp")]:
        if _DRAFT.fullmatch(draft.name):
            draft.unlink(missing_ok=True)


def read_json(path: Path) -> dict[str, Any] | None:
    """A JSON object, or None where there is none that can be read."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def write_text(path: Path, text: str) -> None:
    """A text file that is there whole or not at all."""
    write_atomically(path, lambda file: file.write(text.encode()))


# Settings, sources and version -> one short text that changes when what would be built changes.
#
# The version is raised by hand, where the same settings and sources would give other rows, texts or pictures: FORMAT
# for every dataset, READERS for one. A change that leaves them alone raises nothing, so that a finished build of
# 377,000 pictures stays finished. `tests/data/test_versions.py` holds a digest of a small build of each dataset and
# fails where rows change and the version does not.
#
# A build.json without a version was made before there were any, with a hash of the code instead: it counts as version
# 1.1 and is accepted as finished where its settings and sources are the same. A build that was begun then and not
# finished is begun anew (--overwrite).

FORMAT = 1
# Dataset -> its number, where that is no longer 1. Of `synthetic` the generator's too; 2: notes with broken lines.
READERS: Mapping[str, int] = {"synthetic": 2}
FIRST = "1.1"  # what a record without a version counts as

_WHOLE = 64 << 20  # smaller files are read whole
_END = 1 << 20  # of larger ones both ends: a gzip file ends with the checksum of all it holds


def version_of(dataset: str) -> str:
    """What decides, besides settings and sources, what a build of this dataset holds."""
    return f"{FORMAT}.{READERS.get(dataset, 1)}"


def file_print(path: Path) -> dict[str, Any]:
    """Name, size and a hash of a file's content."""
    size = path.stat().st_size
    digest = hashlib.sha256()
    with path.open("rb") as file:
        if size <= _WHOLE:
            while block := file.read(_END):
                digest.update(block)
        else:
            digest.update(file.read(_END))
            file.seek(-_END, 2)
            digest.update(file.read(_END))
    return {"name": path.name, "size": size, "sha256": digest.hexdigest()[:32], "whole": size <= _WHOLE}


def build_print(settings: Mapping[str, Any], inputs: Iterable[Mapping[str, Any]], version: str) -> str:
    """The fingerprint of a build."""
    said = json.dumps(
        {"settings": dict(settings), "inputs": list(inputs), "version": version}, sort_keys=True, default=str
    )
    return hashlib.sha256(said.encode()).hexdigest()[:32]
