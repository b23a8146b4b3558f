"""Folder of an `evaluate` module -> the files of a copy that needs no cxrhf: script, metrics, page, requirements.

`evaluate` fetches a module's script and, not looking further, the files that the script itself imports as
`from .x import f` on lines of their own. So every file of cxrhf.metrics that is needed, however far down, is copied
beside the script and imported in it. Nothing else changes but a first line that says where each file comes from.
"""

from __future__ import annotations

import ast
import functools
import re
import sys
import tomllib
from collections.abc import Iterable, Mapping
from itertools import chain
from pathlib import Path

import cxrhf
from cxrhf.hub.stage_imports import (
    PACKAGE,
    StageError,
    is_ours,
    relative_imports,
    widget_files,
    widget_imports,
    with_all_imports,
)

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
    siblings = _needed(first)
    # A Space runs app.py in this folder: a file called like a library would be imported in its place.
    for file in {name, "app", *widget_files(), *sys.stdlib_module_names, *_declared()} & set(siblings):
        raise StageError(f'cxrhf/metrics/{file}.py cannot be staged with {name}.py: the name "{file}" is taken')
    made = {f"cxrhf/metrics/{file}.py": text for file, text in siblings.items()}
    made[where] = _examples_alone(with_all_imports(script, siblings, where), name, owner)
    made.update(_app(folder))
    python = {path.rsplit("/", 1)[-1]: f"{_origin(path)}{text}" for path, text in made.items()}
    python["requirements.txt"] = _origin("pyproject.toml") + "".join(f"{line}\n" for line in requirements(python))
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
    text = re.sub(r"^( *(?:>>> )?import )cxrhf(?:, (?=\w)|\n)", _kept, text, flags=re.MULTILINE)
    if found := re.search(r"^ *>>> .*\bcxrhf\b.*$", text, flags=re.MULTILINE):
        raise StageError(f"an example of {name} requires cxrhf, which the copy must not ({found[0].strip()})")
    return text


def _kept(found: re.Match[str]) -> str:
    """`import cxrhf, evaluate` keeps the rest, a line of its own goes."""
    return found[1] if found[0].endswith(" ") else ""


def read_source(path: Path) -> str:
    """A text file, without the mark that some editors put first."""
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
