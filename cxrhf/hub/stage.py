"""Folder of an `evaluate` module -> a folder that holds a copy of it which needs no cxrhf; also a command.

What the copy holds is said in stage_files.py.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import cxrhf
from cxrhf.errors import CxrhfError, did_you_mean
from cxrhf.hub.stage_files import contents, read_source
from cxrhf.hub.stage_imports import StageError
from cxrhf.tables.folders import replacing

MARKER = ".staged.json"


class StagedCopy(NamedTuple):
    """What `stage` wrote: the folder, its files (the marker not counted), and what of the source was left out."""

    path: Path
    files: tuple[str, ...]
    name: str
    left_out: tuple[str, ...] = ()


def stage(folder: str | Path, out: str | Path, force: bool = False) -> StagedCopy:
    """Write a self-contained copy of the module in `folder` (or of that name) as the folder `out`.

    `out` is made, or replaced when it holds an earlier copy of the same metric: all of it or nothing. When the folder
    has another name than the metric, the script lies there under both, so that evaluate.load(out) finds it. Files
    changed by hand since are an error that names them, unless `force`; files put there by others are always one.
    """
    source, place = find_folder(folder), Path(out).resolve()
    _check_place(place, source, force)
    files = contents(source)
    # evaluate.load(FOLDER) looks for a script called like the folder.
    if place.name.isidentifier() and f"{place.name}.py" not in files:
        files[f"{place.name}.py"] = files[f"{source.name}.py"]
    marker = {
        "name": source.name,
        "version": cxrhf.__version__,
        "sha256": {file: hashlib.sha256(content).hexdigest() for file, content in files.items()},
    }
    with replacing(place, MARKER, "staged copy") as fresh:
        for file, content in {**files, MARKER: json.dumps(marker, indent=2).encode() + b"\n"}.items():
            (fresh / file).write_bytes(content)
    used = {f"{source.name}.py", "app.py", "README.md", "requirements.txt"}
    return StagedCopy(place, tuple(files), source.name, tuple(sorted(_files_in(source) - used)))


def find_folder(folder: str | Path) -> Path:
    """The folder of a module, from its path or its name alone."""
    from cxrhf.paths import metric_path, shipped

    path = Path(folder)
    if len(path.parts) == 1 and (not path.is_dir() or (path / MARKER).exists()):
        return Path(metric_path(path.name))
    path = (path.parent if path.suffix == ".py" else path).resolve()
    if not path.is_dir():
        known = {each.parent.name for each in path.parent.glob("*/*.py") if each.stem == each.parent.name}
        hint = did_you_mean(path.name, known or shipped("metrics"))
        raise StageError(f"there is no folder {path}", next_step=hint)
    if (path / MARKER).exists():
        raise StageError(f"{path} is itself a staged copy", next_step="name the source folder")
    if not (path / f"{path.name}.py").is_file():
        raise StageError(f"{path} is not a module folder: it has no {path.name}.py")
    return path


def _files_in(folder: Path) -> set[str]:
    found = (path for path in folder.rglob("*") if path.is_symlink() or not path.is_dir())
    return {path.relative_to(folder).as_posix() for path in found if "__pycache__" not in path.parts}


def _check_place(out: Path, source: Path, force: bool) -> None:
    """Only a new or empty folder, or an earlier copy that nobody has worked in, may be written over."""
    elsewhere = "choose another folder"
    if out == source or source in out.parents:
        raise StageError(f"{out} is inside the source {source}", next_step=elsewhere)
    if out.exists() and not out.is_dir():
        raise StageError(f"{out} is a file", next_step=elsewhere)
    if not out.exists() or not any(out.iterdir()):
        return
    if not (out / MARKER).is_file():
        raise StageError(f"{out} is not empty and is not a staged copy", next_step=elsewhere)
    try:
        marker = json.loads(read_source(out / MARKER))
        name, written = str(marker["name"]), dict(marker["sha256"])
    except (ValueError, KeyError, TypeError):
        raise StageError(f"{out / MARKER} cannot be read", next_step=elsewhere) from None
    if name != source.name:
        raise StageError(f"{out} holds a copy of {name}, not of {source.name}", next_step=elsewhere)
    if foreign := sorted(_files_in(out) - set(written) - {MARKER}):
        raise StageError(
            f"{out} holds files that are not part of the copy ({', '.join(foreign)})", next_step="move them away"
        )
    edited = [each for each in sorted(_files_in(out) & set(written)) if _sha256(out / each) != written[each]]
    if edited and not force:
        raise StageError(
            f"{out} was edited after it was staged ({', '.join(edited)})",
            next_step="edit the source instead, then stage with --force",
        )


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


# --- command line --------------------------------------------------------------------------------------------------

ABOUT = """\
Write a copy of an evaluate module that loads without cxrhf and returns the same numbers.

In the repository, metrics/<name>/<name>.py imports cxrhf.metrics. Users who load it from the Hub may not have cxrhf, so
the copy includes the files it needs, an app.py, a requirements.txt and the README: the content of a Space.
Edit the repository, not the copy."""

EXAMPLES = """\
examples:
  python -m cxrhf.hub.stage metrics/weighted_auroc staged/weighted_auroc
  python -m cxrhf.hub.stage metrics/cad metrics/wae staged     staged/cad and staged/wae
  python -m cxrhf.hub.stage --all staged                       every module of the repository

then, in Python: evaluate.load("staged/weighted_auroc")"""


def main(argv: Sequence[str] | None = None) -> int:
    """Stage one module as a folder, or several into one; exit code 0 done, 2 refused."""
    from cxrhf.paths import metric_path, shipped

    parser = argparse.ArgumentParser(
        "python -m cxrhf.hub.stage", None, ABOUT, EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", nargs="*", help="folder or name of a module; several go to OUT/<name>")
    parser.add_argument("out", metavar="OUT", help="folder of the copy: a new one, or an earlier copy to update")
    parser.add_argument("--all", action="store_true", help="stage every module of metrics/ to OUT/<name>")
    parser.add_argument("--force", action="store_true", help="overwrite files of the copy that were edited")
    args = parser.parse_args(argv)
    if args.all == bool(args.folder):
        parser.error("pass the folder of a module and OUT, or --all and OUT")
    folders = [metric_path(name) for name in shipped("metrics")] if args.all else args.folder
    # The shell's metrics/* also gives metrics/README.md.
    wanted = [each for each in folders if len(folders) == 1 or Path(each).suffix == ".py" or not Path(each).is_file()]
    several = args.all or len(folders) > 1
    try:
        if not wanted:
            raise StageError("there is no module to stage", next_step="run this in the repository, or name a folder")
        for folder in wanted:
            out = Path(args.out, find_folder(folder).name) if several else args.out
            done = stage(folder, out, args.force)
            print(f'{done.name}: {len(done.files)} files. evaluate.load("{done.path / done.name}.py")')
            if done.left_out:
                print(f"  excluded: {', '.join(done.left_out)}")
    except CxrhfError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
