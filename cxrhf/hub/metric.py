"""An `evaluate` module of the repository -> the Space that `evaluate.load("user/name")` reads, needing no cxrhf."""

from __future__ import annotations

import argparse
import ast
import functools
import hashlib
import json
import re
import sys
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import cxrhf
from cxrhf.errors import ConfigError, CxrhfError, did_you_mean
from cxrhf.hub.artefact import Artefact, Piece
from cxrhf.tables.folders import replace_folder


def metric_artefact(name: str, to: str) -> Artefact:
    """The self-contained copy of a module; `to` is the user or organisation that the card's examples name."""
    folder = find_folder(name)
    pieces = tuple(Piece(path, content) for path, content in contents(folder, owner=to).items())
    return Artefact("metric", folder.name, pieces)


def choose_metrics(names: Sequence[str], every: bool) -> list[str]:
    """The modules that are meant, by name or folder; an unknown one is an error that lists the known."""
    from cxrhf.paths import shipped

    known = shipped("metrics")
    if every and names:
        raise ConfigError("metrics", got=f"--all and {', '.join(names)}", allowed="either names or --all")
    if every:
        return list(known)
    if not names:
        raise ConfigError(
            "no metric is named", next_step=f"name one of {', '.join(known)}, or run cxrhf push metric --all --to USER"
        )
    for name in names:
        if "/" not in name and name not in known:
            raise ConfigError("metric", got=name, allowed=", ".join(known), next_step=did_you_mean(name, known))
    return list(dict.fromkeys(names))


# Folder of an `evaluate` module -> a folder that holds a copy of it which needs no cxrhf; also a command.

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
    with replace_folder(place, MARKER, "staged copy") as fresh:
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
  python -m cxrhf.hub.metric metrics/weighted_auroc staged/weighted_auroc
  python -m cxrhf.hub.metric metrics/cad metrics/wae staged     staged/cad and staged/wae
  python -m cxrhf.hub.metric --all staged                       every module of the repository

then, in Python: evaluate.load("staged/weighted_auroc")"""


def main(argv: Sequence[str] | None = None) -> int:
    """Stage one module as a folder, or several into one; exit code 0 done, 2 refused."""
    from cxrhf.paths import metric_path, shipped

    parser = argparse.ArgumentParser(
        "python -m cxrhf.hub.metric", None, ABOUT, EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter
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


# Folder of an `evaluate` module -> the files of a copy that needs no cxrhf: script, metrics, page, requirements.
#
# `evaluate` fetches a module's script and, not looking further, the files that the script itself imports as `from .x
# import f` on lines of their own. So every file of cxrhf.metrics that is needed, however far down, is copied beside
# the script and imported in it. Nothing else changes but a first line that says where each file comes from.

# Import name -> the distribution that brings it, where they differ.
DISTRIBUTIONS = {"sklearn": "scikit-learn", "yaml": "pyyaml", "PIL": "pillow"}
# A Space installs gradio itself, as `sdk_version` in its README says; a second version in requirements.txt would clash.
GIVEN_BY_THE_SPACE = {"gradio"}


def contents(folder: Path, owner: str | None = None) -> dict[str, bytes]:
    """The files of a self-contained copy: name -> content. Nothing is written.

    `owner`: the user of the Hub it is published by, whom its examples then name.
    """
    name = folder.name
    where = f"metrics/{name}/{name}.py"
    script, first = relative_imports(read_source(folder / f"{name}.py"), where)
    siblings = _collect_metric_files(first)
    # A Space runs app.py in this folder: a file called like a library would be imported in its place.
    for file in {name, "app", *widget_files(), *sys.stdlib_module_names, *_declared()} & set(siblings):
        raise StageError(f'cxrhf/metrics/{file}.py cannot be staged with {name}.py: the name "{file}" is taken')
    made = {f"cxrhf/metrics/{file}.py": text for file, text in siblings.items()}
    made[where] = _examples_alone(with_all_imports(script, siblings, where), name, owner)
    made.update(_app(folder))
    python = {path.rsplit("/", 1)[-1]: f"{_origin_line(path)}{text}" for path, text in made.items()}
    python["requirements.txt"] = _origin_line("pyproject.toml") + "".join(f"{line}\n" for line in requirements(python))
    files = {file: text.encode() for file, text in python.items()}
    _check_card(folder)
    files["README.md"] = _examples_alone(read_source(folder / "README.md"), name, owner).encode()
    if (licence := _licence()) is not None:
        files["LICENSE"] = licence
    return dict(sorted(files.items()))


def _examples_alone(text: str, name: str, owner: str | None = None) -> str:
    """Examples that load the copy itself: where it is used there is no cxrhf to ask for a path.

    >>> _examples_alone('import cxrhf, evaluate; evaluate.load(cxrhf.metric_path("cad"))', "cad")
    'import evaluate; evaluate.load("cad")'
    """
    text = text.replace(f'cxrhf.metric_path("{name}")', f'"{owner}/{name}"' if owner else f'"{name}"')
    text = re.sub(r"^( *(?:>>> )?import )cxrhf(?:, (?=\w)|\n)", _drop_cxrhf_import, text, flags=re.MULTILINE)
    if found := re.search(r"^ *>>> .*\bcxrhf\b.*$", text, flags=re.MULTILINE):
        raise StageError(f"an example of {name} requires cxrhf, which the copy must not ({found[0].strip()})")
    return text


def _drop_cxrhf_import(found: re.Match[str]) -> str:
    """`import cxrhf, evaluate` keeps the rest, a line of its own goes."""
    return found[1] if found[0].endswith(" ") else ""


def read_source(path: Path) -> str:
    """A text file, without the mark that some editors put first."""
    return path.read_text(encoding="utf-8-sig")


def _origin_line(path: str) -> str:
    return f"# Generated from cxrhf {cxrhf.__version__}, {path}: edit it there.\n"


def _collect_metric_files(first: Iterable[str]) -> dict[str, str]:
    """Files of cxrhf.metrics and all that they import there, however far down: name -> text with relative imports."""
    found: dict[str, str] = {}
    waiting = sorted(first)
    while waiting:
        file = waiting.pop()
        if file not in found:
            found[file], more = _metric_file(file)
            waiting += more
    return found


@functools.cache  # ten modules share most of them
def _metric_file(file: str) -> tuple[str, frozenset[str]]:
    """A file of cxrhf.metrics with relative imports, and the files that it names."""
    where = f"cxrhf/metrics/{file}.py"
    text, needed = relative_imports(read_source(PACKAGE / "metrics" / f"{file}.py"), where)
    if "evaluate" in _libraries(text):
        raise StageError(f"{where} imports evaluate, which may then mistake a class of evaluate for the metric")
    return text, frozenset(needed)


def _app(folder: Path) -> dict[str, str]:
    """The demonstration page and the files of the shared widget that it uses, however far down."""
    if not (folder / "app.py").is_file():
        raise StageError(f"{folder} has no app.py for its Space to run")
    where = f"metrics/{folder.name}/app.py"
    app, waiting = widget_imports(read_source(folder / "app.py"), where)
    made = {where: app}
    while waiting:
        file = f"cxrhf/hub/{waiting.pop()}.py"
        if file not in made:
            made[file], more = widget_imports(read_source(PACKAGE.parent / file), file)
            waiting |= more
    return made


@functools.lru_cache(500)
def _libraries(source: str) -> frozenset[str]:
    """Top-level packages that a file imports, anywhere in it."""
    nodes = list(ast.walk(ast.parse(source)))
    modules = [name.name for node in nodes if isinstance(node, ast.Import) for name in node.names]
    modules += [node.module or "" for node in nodes if isinstance(node, ast.ImportFrom) and not node.level]
    return frozenset(module.split(".")[0] for module in modules)


def requirements(files: Mapping[str, str]) -> list[str]:
    """What must be installed for some Python files that lie in one folder, with the bounds of this project."""
    local = {Path(file).stem for file in files}
    declared = _declared()
    lines = set()
    for file, text in files.items():
        for library in _libraries(text) - local - GIVEN_BY_THE_SPACE - sys.stdlib_module_names:
            distribution = DISTRIBUTIONS.get(library, library).lower().replace("_", "-")
            if declared and distribution not in declared:
                raise StageError(f"{file} imports {library}, which is not a dependency of cxrhf")
            lines.add(declared.get(distribution, distribution))
    return sorted(lines)


@functools.cache
def _declared() -> Mapping[str, str]:
    """Distribution -> requirement, as numpy -> numpy>=2.0: from the sources, else from what is installed."""
    from importlib import metadata

    if checkout := _checkout():
        project = tomllib.loads(read_source(checkout / "pyproject.toml"))["project"]
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
    project = root / "pyproject.toml"
    return root if project.is_file() and 'name = "cxrhf"' in read_source(project) else None


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
        raise StageError(f"{folder} has no README.md for the page of its Space")
    found = re.match(r"---\n(.*?)\n---\s*(?:\n|$)", read_source(path), re.DOTALL)
    try:
        card = yaml.safe_load(found.group(1)) if found else {}
    except yaml.YAMLError as error:
        raise StageError(f"{path}: the front matter is not valid YAML ({' '.join(str(error).split())})") from None
    card = card if isinstance(card, dict) else {}
    tags = given if isinstance(given := card.get("tags"), list) else []
    lacking = [key for key in ("title", "sdk_version") if not card.get(key)]
    lacking += [
        f"{key}: {value}" for key, value in (("sdk", "gradio"), ("app_file", "app.py")) if card.get(key) != value
    ]
    lacking += [f"tag {tag}" for tag in ("evaluate", "metric") if tag not in tags]
    if lacking:
        raise StageError(f"{path}: the front matter lacks {', '.join(lacking)}")


# Source of a module -> the same with imports that need no cxrhf, and the files it then needs beside it.
#
# Statements are found by parsing and replaced where they stand, so that comments and lines stay. What `evaluate` sees
# of a script is not what Python sees: `seen_by_evaluate` reads as it does.

PACKAGE = Path(cxrhf.__file__).parent
WHY_IMPORTED = (
    "# evaluate downloads only the files that this script imports; the files above require those below.",
    "# ruff: noqa: F401, I001, RUF100",
)


class StageError(CxrhfError, ValueError):
    """A module cannot be staged as it stands, or the place for its copy is taken."""


class _Edit(NamedTuple):
    node: ast.ImportFrom
    new: str


@functools.lru_cache(100)  # the same files go beside every module
def _parse(source: str, where: str) -> ast.Module:
    try:
        return ast.parse(source)
    except SyntaxError as error:
        raise StageError(f"{where}, line {error.lineno}: not valid Python ({error.msg})") from None


def is_ours(module: str) -> bool:
    return module == "cxrhf" or module.startswith("cxrhf.")


def imports_of(source: str, where: str) -> Iterator[tuple[ast.Import | ast.ImportFrom, str, str]]:
    """Every import, also inside functions: (statement, module, where it stands); refused if it cannot be followed."""
    for node in ast.walk(_parse(source, where)):
        place = f"{where}, line {getattr(node, 'lineno', 0)}"
        if isinstance(node, ast.Import):
            for name in node.names:
                if is_ours(name.name):
                    raise StageError(
                        f"{place}: `import {name.name}` cannot be staged",
                        next_step=f"write `from {name.name} import <name>`",
                    )
                yield node, name.name, place
        elif isinstance(node, ast.ImportFrom):
            if node.level:
                raise StageError(f"{place}: a relative import cannot be staged", next_step="write the module in full")
            yield node, node.module or "", place
        elif isinstance(node, ast.Call):
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if called in ("import_module", "__import__"):
                raise StageError(f"{place}: {called}() cannot be staged", next_step="use an import statement")


def _edited(source: str, edits: Iterable[_Edit]) -> str:
    """Source with some import statements replaced in their places, all else as it was."""
    raw = source.encode()
    starts = [0]
    for line in raw.split(b"\n"):
        starts.append(starts[-1] + len(line) + 1)
    for node, new in sorted(edits, key=lambda edit: -starts[edit.node.lineno - 1] - edit.node.col_offset):
        begin = starts[node.lineno - 1] + node.col_offset
        end = starts[(node.end_lineno or node.lineno) - 1] + (node.end_col_offset or 0)
        raw = raw[:begin] + new.encode() + raw[end:]
    return raw.decode()


def _with_module(source: str, node: ast.ImportFrom, module: str, place: str) -> str:
    """The text of one `from` statement with another module in it; its names, comments and lines stay."""
    lines = [line.encode() for line in source.split("\n")[node.lineno - 1 : node.end_lineno]]
    lines[-1] = lines[-1][: node.end_col_offset]
    text = b"\n".join(lines)[node.col_offset :].decode()
    found = re.match(rf"from\s+{re.escape(node.module or '')}(?=\s+import\b)", text)
    if not found:
        raise StageError(f"{place}: an import in this form cannot be staged ({text})")
    return f"from {module}{text[found.end() :]}"


def relative_imports(source: str, where: str) -> tuple[str, set[str]]:
    """Source with its imports of cxrhf.metrics made relative, and the files of cxrhf.metrics they name.

    >>> relative_imports("from cxrhf.metrics.ranking import auroc as area", "m.py")
    ('from .ranking import auroc as area', {'ranking'})
    """
    known = _metric_files()
    edits: list[_Edit] = []
    needed: set[str] = set()
    for node, module, place in imports_of(source, where):
        if not is_ours(module) or isinstance(node, ast.Import):
            continue
        if any(name.name == "*" for name in node.names):
            raise StageError(f"{place}: `from {module} import *` cannot be staged", next_step="name what is imported")
        if module == "cxrhf.metrics":
            files = _by_file(node.names, place)
            before = source.split("\n")[node.lineno - 1].encode()[: node.col_offset].decode()
            between = "; " if before.strip() else f"\n{before}"
            edits.append(_Edit(node, between.join(f"from .{file} import {', '.join(files[file])}" for file in files)))
            needed.update(files)
        elif (file := module.removeprefix("cxrhf.metrics.")) in known:
            edits.append(_Edit(node, _with_module(source, node, f".{file}", place)))
            needed.add(file)
        else:
            absent = f"there is no cxrhf/metrics/{file}.py"
            raise StageError(
                f"{place}: {absent if module.startswith('cxrhf.metrics.') else f'{module} cannot be staged'}",
                allowed="a file of cxrhf.metrics",
                next_step=did_you_mean(file, known),
            )
    return _edited(source, edits), needed


def _metric_files() -> set[str]:
    return {path.stem for path in (PACKAGE / "metrics").glob("*.py")} - {"__init__"}


def _by_file(names: Iterable[ast.alias], place: str) -> dict[str, list[str]]:
    """Names imported from the package cxrhf.metrics, by the file that each stands in."""
    from cxrhf.metrics import _WHERE

    files: dict[str, list[str]] = {}
    for each in names:
        if each.name not in _WHERE:
            what = "a file, not a name in a file" if each.name in _metric_files() else "not a name in cxrhf.metrics"
            hint = "write `from cxrhf.metrics.<file> import <name>`"
            raise StageError(
                f'{place}: "{each.name}" is {what}',
                next_step=hint if what.startswith("a file") else did_you_mean(each.name, _WHERE) or hint,
            )
        files.setdefault(_WHERE[each.name], []).append(each.name + (f" as {each.asname}" if each.asname else ""))
    return dict(sorted(files.items()))


def widget_imports(source: str, where: str) -> tuple[str, set[str]]:
    """Source of an app with `from cxrhf.hub.widget import a` made `from widget import a`, and the files it names.

    >>> widget_imports("from cxrhf.hub.widget import launch", "app.py")
    ('from widget import launch', {'widget'})
    """
    edits: list[_Edit] = []
    needed: set[str] = set()
    for node, module, place in imports_of(source, where):
        file = module.removeprefix("cxrhf.hub.")
        if isinstance(node, ast.ImportFrom) and module.startswith("cxrhf.hub.") and file in widget_files():
            edits.append(_Edit(node, _with_module(source, node, file, place)))
            needed.add(file)
        elif is_ours(module):
            raise StageError(f"{place}: {module} is not available in a Space", allowed="cxrhf.hub.widget")
    return _edited(source, edits), needed


def widget_files() -> set[str]:
    """The files of the page that all metrics share."""
    return {path.stem for path in (PACKAGE / "hub").glob("widget*.py")}


def seen_by_evaluate(script: str, where: str) -> set[str]:
    """The files beside a script that `evaluate` would fetch with it.

    It reads line by line, not as Python does: an import counts at the very beginning of a line, outside triple double
    quotes as they are counted, and what stands after a # is taken for an address.
    """
    seen, quoted = set(), False
    for number, line in enumerate(script.split("\n"), 1):
        if line.count('"""') == 1:
            quoted = not quoted
        found = None if quoted else re.match(r"from\s+\.([^\s.]+)\S*\s+import\s+[^#]*(#?)", line)
        if found and found.group(2):
            raise StageError(
                f"{where}, line {number}: evaluate reads a comment after an import as an address",
                next_step="put the comment on the line above, in the source",
            )
        if found:
            seen.add(found.group(1))
    return seen


def with_all_imports(script: str, files: Mapping[str, str], where: str) -> str:
    """The script with an import of each needed file that it does not import on a line of its own already."""
    missing = sorted(set(files) - seen_by_evaluate(script, where))
    if missing:
        tree = _parse(script, where)
        last = max(
            (node.end_lineno or 0 for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)), default=0
        )
        names = (getattr(node, field, None) for node in ast.walk(tree) for field in ("id", "name", "arg", "asname"))
        taken = {name for name in names if isinstance(name, str)}
        added = []
        for file in missing:
            name = _a_public_name(files[file], file, taken)
            taken.add(name)
            added.append(f"from .{file} import {name}")
        lines = script.split("\n")
        script = "\n".join([*lines[:last], *WHY_IMPORTED, *added, *lines[last:]])
    if (seen := seen_by_evaluate(script, where)) != set(files):
        raise StageError(
            f"{where}: evaluate would not download exactly the files that the script requires "
            f"(differences: {', '.join(sorted(seen ^ set(files)))})",
            next_step='keep imports at the top, and """ in pairs above them',
        )
    return script


def _a_public_name(source: str, file: str, taken: set[str]) -> str:
    """A name of a file that can be imported into the script without hiding anything there; functions first.

    A class is safe too: files that import evaluate are refused, so none can be taken for the metric itself.
    """
    body = _parse(source, f"{file}.py").body
    names = [node.name for node in body if isinstance(node, ast.FunctionDef)]
    targets = [each for node in body if isinstance(node, ast.Assign) for each in node.targets]
    targets += [node.target for node in body if isinstance(node, ast.AnnAssign)]
    names += [each.id for each in targets if isinstance(each, ast.Name)]
    names += [node.name for node in body if isinstance(node, ast.ClassDef)]
    for name in names:
        if not name.startswith("_") and name not in taken:
            return name
    raise StageError(f"cxrhf/metrics/{file}.py has no public name for the script to import")


if __name__ == "__main__":
    sys.exit(main())
