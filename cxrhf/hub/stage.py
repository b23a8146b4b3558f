"""Folder of an `evaluate` module -> a copy of it that needs no cxrhf: imports rewritten, the numbers' files beside it.

`evaluate` fetches a module's script and, not looking further, the files that the script itself imports as
`from .x import f` on lines of their own. So every file of cxrhf.metrics that is needed, however far down, is copied
beside the script and imported in it. Nothing else changes but a first line that says where each file comes from.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import json
import re
import sys
import tempfile
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import cxrhf
from cxrhf.errors import CxrhfError, did_you_mean
from cxrhf.hub.stage_imports import (
    PACKAGE,
    StageError,
    imports_of,
    is_ours,
    relative_imports,
    widget_imports,
    with_all_imports,
)

MARKER = ".staged.json"
# Import name -> the distribution that brings it, where they differ.
DISTRIBUTIONS = {"sklearn": "scikit-learn", "yaml": "pyyaml", "PIL": "pillow"}
# A Space installs gradio itself, as `sdk_version` in its README says; a second version in requirements.txt would clash.
GIVEN_BY_THE_SPACE = {"gradio"}


class StagedCopy(NamedTuple):
    """What `stage` wrote: the folder, its files (the marker not counted), and what of the source was left out."""

    path: Path
    files: tuple[str, ...]
    name: str
    left_out: tuple[str, ...] = ()


# --- the files of a copy -------------------------------------------------------------------------------------------


def contents(folder: Path, owner: str | None = None) -> dict[str, bytes]:
    """The files of a self-contained copy: name -> content. Nothing is written.

    `owner`: the user of the Hub it is published by, whom its examples then name.
    """
    name = folder.name
    where = f"metrics/{name}/{name}.py"
    script, first = relative_imports(_read(folder / f"{name}.py"), where)
    siblings = _needed(first)
    # A Space runs app.py in this folder: a file called like a library would be imported in its place.
    for file in {name, "app", "widget", *sys.stdlib_module_names, *_declared()} & set(siblings):
        raise StageError(f"cxrhf/metrics/{file}.py cannot stand beside {name}.py: the name {file!r} is taken")
    made = {f"cxrhf/metrics/{file}.py": text for file, text in siblings.items()}
    made[where] = _examples_alone(with_all_imports(script, siblings, where), name, owner)
    made.update(_app(folder))
    python = {path.rsplit("/", 1)[-1]: f"{_origin(path)}{text}" for path, text in made.items()}
    python["requirements.txt"] = _origin("pyproject.toml") + "".join(f"{line}\n" for line in requirements(python))
    files = {file: text.encode() for file, text in python.items()}
    _check_card(folder)
    files["README.md"] = _examples_alone(_read(folder / "README.md"), name, owner).encode()
    if (licence := _licence()) is not None:
        files["LICENSE"] = licence
    return dict(sorted(files.items()))


def _examples_alone(text: str, name: str, owner: str | None = None) -> str:
    """Examples that load the copy itself: where it is used there is no cxrhf to ask for a path.

    >>> _examples_alone('import cxrhf, evaluate; evaluate.load(cxrhf.metric_path("cad"))', "cad")
    'import evaluate; evaluate.load("cad")'
    """
    text = text.replace(f'cxrhf.metric_path("{name}")', f'"{owner}/{name}"' if owner else f'"{name}"')
    text = re.sub(r"^( *(?:>>> )?import )cxrhf(?:, (?=\w)|\n)", _kept, text, flags=re.MULTILINE)
    if found := re.search(r"^ *>>> .*\bcxrhf\b.*$", text, flags=re.MULTILINE):
        raise StageError(f"an example of {name} needs cxrhf, which whoever loads the copy does not have",
                         got=found[0].strip())  # fmt: skip
    return text


def _kept(found: re.Match[str]) -> str:
    """`import cxrhf, evaluate` keeps the rest, a line of its own goes."""
    return found[1] if found[0].endswith(" ") else ""


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8-sig")


def _origin(path: str) -> str:
    return f"# Generated from cxrhf {cxrhf.__version__}, {path}: edit it there.\n"


def _needed(first: Iterable[str]) -> dict[str, str]:
    """Files of cxrhf.metrics and all that they import there, however far down: name -> text with relative imports."""
    found: dict[str, str] = {}
    waiting = sorted(first)
    while waiting:
        file = waiting.pop()
        if file not in found:
            where = f"cxrhf/metrics/{file}.py"
            found[file], more = relative_imports(_read(PACKAGE / "metrics" / f"{file}.py"), where)
            if "evaluate" in _libraries(found[file]):
                raise StageError(f"{where} imports evaluate, which may then take a class of it for the metric")
            waiting += more
    return found


def _app(folder: Path) -> dict[str, str]:
    """The demonstration page and, when it uses it, the widget shared by all pages."""
    if not (folder / "app.py").is_file():
        raise StageError(f"{folder} has no app.py, which its Space runs")
    app, wants_widget = widget_imports(_read(folder / "app.py"), f"metrics/{folder.name}/app.py")
    made = {f"metrics/{folder.name}/app.py": app}
    if wants_widget:
        if not (PACKAGE / "hub" / "widget.py").is_file():
            raise StageError("app.py uses cxrhf.hub.widget, and there is no cxrhf/hub/widget.py")
        made["cxrhf/hub/widget.py"] = check_widget(_read(PACKAGE / "hub" / "widget.py"))
    return made


def check_widget(source: str, where: str = "cxrhf/hub/widget.py") -> str:
    """The widget's source, unchanged: it goes into Spaces, so it may import nothing of cxrhf."""
    for _, module, place in imports_of(source, where):
        if is_ours(module):
            raise StageError(
                f"{place}: {module} does not exist in a Space", next_step="pass what it needs as arguments"
            )
    return source


def _libraries(source: str) -> set[str]:
    """Top-level packages that a file imports, anywhere in it."""
    nodes = list(ast.walk(ast.parse(source)))
    modules = [name.name for node in nodes if isinstance(node, ast.Import) for name in node.names]
    modules += [node.module or "" for node in nodes if isinstance(node, ast.ImportFrom) and not node.level]
    return {module.split(".")[0] for module in modules}


def requirements(files: Mapping[str, str]) -> list[str]:
    """What must be installed for some Python files that lie in one folder, with the bounds of this project."""
    local = {Path(file).stem for file in files}
    declared = _declared()
    lines = set()
    for file, text in files.items():
        for library in _libraries(text) - local - GIVEN_BY_THE_SPACE - sys.stdlib_module_names:
            distribution = DISTRIBUTIONS.get(library, library).lower().replace("_", "-")
            if declared and distribution not in declared:
                raise StageError(f"{file} imports {library}, which is not among the dependencies of cxrhf")
            lines.add(declared.get(distribution, distribution))
    return sorted(lines)


def _declared() -> dict[str, str]:
    """Distribution -> requirement, as numpy -> numpy>=2.0: from the sources, else from what is installed."""
    from importlib import metadata

    if checkout := _checkout():
        project = tomllib.loads(_read(checkout / "pyproject.toml"))["project"]
        lines = [*project["dependencies"], *chain.from_iterable(project["optional-dependencies"].values())]
    else:
        try:
            lines = metadata.requires("cxrhf") or []
        except metadata.PackageNotFoundError:  # the bare sources on the path: names without bounds
            lines = []
    declared: dict[str, str] = {}
    for line in lines:
        found = re.match(r"([\w.-]+)(?:\[.*?\])?\s*\(?([<>=!~][^;@)]*)?", line)
        if found and not is_ours(found.group(1)):
            declared.setdefault(
                found.group(1).lower().replace("_", "-"), found.group(1) + (found.group(2) or "").strip()
            )
    return declared


def _checkout() -> Path | None:
    """The folder of the project's sources, or None when cxrhf is installed without them."""
    root = PACKAGE.parent
    is_ours = (root / "pyproject.toml").is_file() and 'name = "cxrhf"' in _read(root / "pyproject.toml")
    return root if is_ours else None


def _licence() -> bytes | None:
    from importlib import metadata

    if checkout := _checkout():
        return (checkout / "LICENSE").read_bytes() if (checkout / "LICENSE").is_file() else None
    try:
        found = [path for path in metadata.files("cxrhf") or [] if path.name == "LICENSE"]
    except metadata.PackageNotFoundError:
        return None
    return found[0].read_binary() if found else None


def _check_card(folder: Path) -> None:
    """A Space is set up by the YAML at the top of its README; without it the page stays empty, unfound."""
    import yaml  # type: ignore[import-untyped]

    path = folder / "README.md"
    if not path.is_file():
        raise StageError(f"{folder} has no README.md, the page of its Space")
    found = re.match(r"---\n(.*?)\n---\s*(?:\n|$)", _read(path), re.DOTALL)
    try:
        card = yaml.safe_load(found.group(1)) if found else {}
    except yaml.YAMLError as error:
        raise StageError(f"{path}: the block at the top is not YAML", got=" ".join(str(error).split())) from None
    card = card if isinstance(card, dict) else {}
    tags = given if isinstance(given := card.get("tags"), list) else []
    lacking = [key for key in ("title", "sdk_version") if not card.get(key)]
    lacking += [
        f"{key}: {value}" for key, value in (("sdk", "gradio"), ("app_file", "app.py")) if card.get(key) != value
    ]
    lacking += [f"tag {tag}" for tag in ("evaluate", "metric") if tag not in tags]
    if lacking:
        raise StageError(f"{path}: the YAML at its top lacks {', '.join(lacking)}")


# --- the folder ----------------------------------------------------------------------------------------------------


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
    try:
        _replace(place, {**files, MARKER: json.dumps(marker, indent=2).encode() + b"\n"})
    except OSError as error:
        raise StageError(f"{place} cannot be written", got=error.strerror or error) from error
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
        raise StageError(f"{path} is a staged copy itself", next_step="give the folder that it was made from")
    if not (path / f"{path.name}.py").is_file():
        raise StageError(f"{path} is not the folder of a module: it has no {path.name}.py")
    return path


def _files_in(folder: Path) -> set[str]:
    found = (path for path in folder.rglob("*") if path.is_symlink() or not path.is_dir())
    return {path.relative_to(folder).as_posix() for path in found if "__pycache__" not in path.parts}


def _check_place(out: Path, source: Path, force: bool) -> None:
    """Only a new or empty folder, or an earlier copy that nobody has worked in, may be written over."""
    elsewhere = "choose another folder"
    if out == source or source in out.parents:
        raise StageError(f"{out} lies inside the source {source}", next_step=elsewhere)
    if out.exists() and not out.is_dir():
        raise StageError(f"{out} is a file", next_step=elsewhere)
    if not out.exists() or not any(out.iterdir()):
        return
    if not (out / MARKER).is_file():
        raise StageError(f"{out} is not empty and holds no staged copy", next_step=elsewhere)
    try:
        marker = json.loads(_read(out / MARKER))
        name, written = str(marker["name"]), dict(marker["sha256"])
    except (ValueError, KeyError, TypeError):
        raise StageError(f"{out / MARKER} cannot be read", next_step=elsewhere) from None
    if name != source.name:
        raise StageError(f"{out} holds a copy of {name}, not of {source.name}", next_step=elsewhere)
    if foreign := sorted(_files_in(out) - set(written) - {MARKER}):
        raise StageError(
            f"{out} holds files that are not of the copy", got=", ".join(foreign), next_step="move them away"
        )
    edited = [each for each in sorted(_files_in(out) & set(written)) if _sha256(out / each) != written[each]]
    if edited and not force:
        raise StageError(
            f"{out} was edited by hand since it was staged",
            got=", ".join(edited),
            next_step="make the change in the source, then stage with --force",
        )


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _replace(out: Path, files: Mapping[str, bytes]) -> None:
    """Write a folder beside its place, then move it there, so that no half-written copy is ever seen."""
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{out.name}-", dir=out.parent) as work:
        new, old = Path(work, "new"), Path(work, "old")
        new.mkdir()
        for file, content in files.items():
            (new / file).write_bytes(content)
        if out.exists():
            out.rename(old)
        try:
            new.rename(out)
        except OSError:
            if old.exists():
                old.rename(out)
            raise


# --- command line --------------------------------------------------------------------------------------------------

ABOUT = """\
Write a copy of an evaluate module that loads where cxrhf is not installed, and gives the same numbers.

In the repository metrics/<name>/<name>.py imports cxrhf.metrics. People who load it from the Hub do not have cxrhf, so
the copy carries the files it needs beside it, an app.py, a requirements.txt and the README: the content of a Space.
Edit the repository, never the copy."""

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
    parser.add_argument("folder", nargs="*", help="folder of a module, or its name; several go into OUT/<name> each")
    parser.add_argument("out", metavar="OUT", help="where the copy goes: a new folder, or an earlier copy to renew")
    parser.add_argument("--all", action="store_true", help="every module of metrics/, into OUT/<name>")
    parser.add_argument("--force", action="store_true", help="write over files of the copy that were edited by hand")
    args = parser.parse_args(argv)
    if args.all == bool(args.folder):
        parser.error("give the folder of a module and OUT, or --all and OUT")
    folders = [metric_path(name) for name in shipped("metrics")] if args.all else args.folder
    # The shell's metrics/* also gives metrics/README.md.
    wanted = [each for each in folders if len(folders) == 1 or Path(each).suffix == ".py" or not Path(each).is_file()]
    several = args.all or len(folders) > 1
    try:
        if not wanted:
            raise StageError("there is no module to stage", next_step="run it in the repository, or name a folder")
        for folder in wanted:
            out = Path(args.out, find_folder(folder).name) if several else args.out
            done = stage(folder, out, args.force)
            print(f'{done.name}: {len(done.files)} files. evaluate.load("{done.path / done.name}.py")')
            if done.left_out:
                print(f"  left out: {', '.join(done.left_out)}")
    except CxrhfError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
