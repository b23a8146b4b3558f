"""Who may import what, read from the sources without running them."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterator, Set
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[1]
FILES = sorted((ROOT / "cxrhf").rglob("*.py"))

# Heavy packages -> the only places under cxrhf/ that may import them.
PLACES = {
    **dict.fromkeys(
        ("torch", "torchvision", "timm", "transformers", "peft", "accelerate", "open_clip"),
        ("cxrhf.models", "cxrhf.encode"),
    ),
    "huggingface_hub": ("cxrhf.hub",),
    "gradio": ("cxrhf.hub.widget",),
    "polars": ("cxrhf.data", "cxrhf.twin"),
    "evaluate": (),
}
# They cost seconds: inside functions only, everywhere.
SLOW = ("scipy.stats", "sklearn", "datasets")
# Classes that inherit from `datasets` and that worker processes import by name; itself imported inside functions only.
BUILDERS = "cxrhf.data.builders"


class May(NamedTuple):
    """What may be imported, rooms or modules of cxrhf: `anywhere`, or only `inside` functions and for type checkers."""

    anywhere: Set[str] = frozenset()
    inside: Set[str] = frozenset()


TABLES = {"schema", "tables", "errors", "findings"}
SETTINGS = {"settings", "context.settings", "data.settings", "hub.settings", "models.settings"}
# A room of cxrhf, or one module of it that may more than its room -> what it may import, besides its own room.
# Data, context and models meet only through tables, and in the modules that join them.
RULES = {
    # What `import cxrhf` and `cxrhf --help` cost: the package and the command line name all else inside functions.
    "": May(inside={"cli", "errors"}),
    "__main__": May({"cli"}),
    "cli": May(
        {"errors", "models.report_settings"} | SETTINGS,
        TABLES | {"audits", "context", "data", "hub", "metrics", "models", "report", "run", "selfchecking", "twin"},
    ),
    "errors": May(),
    "findings": May(),
    "schema": May(),
    "configs": May(),
    "metrics": May(),
    "paths": May({"errors"}),
    "learn": May({"errors", "metrics"}),
    "tables": May(TABLES),
    "run": May({"errors"}, {"schema", "tables"}),
    "settings": May({"errors", "findings"}, {"tables"}),
    "twin": May(TABLES),
    "encode": May({"errors", "tables", "settings"}),
    "data": May(TABLES | {"settings", "metrics"}),
    "data.twin": May(inside={"twin"}),
    "context": May(TABLES | {"settings", "encode.settings", "learn", "metrics"}, {"encode"}),
    "context.tables": May({"audits"}),
    "context.run": May(inside={"audits", "data", "report", "run"}),
    "models": May(TABLES | {"settings", "context.settings", "data.settings", "run", "learn", "metrics", "encode"}),
    # A build and settings -> models and their rows.
    **dict.fromkeys(
        ("models.predict", "models.probe_run", "models.report_data", "models.report_run", "models.train_run"),
        May(inside={"data"}),
    ),
    # `python -m cxrhf.models.train` is `cxrhf train`.
    **dict.fromkeys(("models.train", "models.finetune", "models.generate"), May({"cli.main"})),
    "audits": May(TABLES | {"settings", "run", "metrics"}),
    # From a file or a table to the page: what the command line and notebooks share.
    "audits.run": May(inside={"report"}),
    "audits.sources": May(inside={"context", "data"}),
    "audits.representations": May(inside={"data"}),
    "report": May({"errors", "findings", "run", "tables"}, {"learn", "schema"}),
    "hub": May(TABLES | {"settings", "run", "metrics", "data", "report"}),
    "hub.metric": May(inside={"paths"}),
    "hub.dataset": May(inside={"twin"}),
    # Planted data through the same audits as everybody's.
    "selfchecking": May({"schema", "settings", "tables", "audits", "twin"}, {"run", "metrics", "context", "data"}),
}
# Room -> the room that it imports although that one imports it. RULES names the modules that do. No others are to come.
CYCLES = {
    "models": "cli",  # the three modules that are run as `python -m` call its `main`
    "audits": "context",  # a notebook gives predictions and notes: audits.sources fits the pre-test probabilities
}
METRICS_MAY = {"numpy", "scipy", "sklearn", "numba", "tqdm"}
# Only the standard library at the top.
LIGHT = ("", "__main__", "cli")
# Import name -> the distribution that brings it, where they differ.
DISTRIBUTIONS = {
    "sklearn": "scikit-learn", "PIL": "pillow", "yaml": "pyyaml", "markupsafe": "jinja2",
    "open_clip": "open-clip-torch",
}  # fmt: skip


class Import(NamedTuple):
    """One imported module: `top` when it runs on import, `typing` when only type checkers see it."""

    module: str
    line: int
    top: bool
    typing: bool


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def imports(source: str, module: str, package: bool) -> list[Import]:
    """Every import of a file. `from a import b` gives a, and a.b too, for b may be a module."""

    def walk(node: ast.AST, top: bool, typing: bool) -> Iterator[Import]:
        if isinstance(node, ast.Import):
            for name in node.names:
                yield Import(name.name, node.lineno, top, typing)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                here = module.split(".") if package else module.split(".")[:-1]
                base = ".".join([*here[: len(here) - node.level + 1], *filter(None, [node.module])])
            for name in node.names:
                yield Import(f"{base}.{name.name}", node.lineno, top, typing)
        elif isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            for child in node.body:
                yield from walk(child, top, True)
            for child in node.orelse:
                yield from walk(child, top, typing)
        else:
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
                top = False
            for child in ast.iter_child_nodes(node):
                yield from walk(child, top, typing)

    return list(walk(ast.parse(source), True, False))


def within(module: str, packages: tuple[str, ...] | str) -> bool:
    names = (packages,) if isinstance(packages, str) else packages
    return any(module == name or module.startswith(f"{name}.") for name in names)


@cache
def declared() -> set[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    lines = [*project["dependencies"], *(each for extra in project["optional-dependencies"].values() for each in extra)]
    return {re.split(r"[\s<>=!~\[;]", line)[0].lower().replace("_", "-") for line in lines}


def room_of(module: str) -> str:
    return f"{module}.".split(".")[1]


def is_room(module: str) -> bool:
    """Whether a dotted name of cxrhf lies in a room, and is not a name that the package itself defines."""
    room = room_of(module)
    return (
        within(module, "cxrhf")
        and room != ""
        and any((ROOT / "cxrhf" / f"{room}{end}").exists() for end in (".py", ""))
    )


def broken_rules(source: str, module: str, package: bool = False) -> list[str]:
    """What a file does that it may not, one line each."""
    room = room_of(module)
    known = declared()
    rules = [RULES[key] for key in {room, module.removeprefix("cxrhf.")} if key in RULES]
    anywhere = tuple(f"cxrhf.{name}" for rule in rules for name in rule.anywhere)
    inside = tuple(f"cxrhf.{name}" for rule in rules for name in rule.inside)
    said = []
    for each in imports(source, module, package):
        where, name = f"{module}, line {each.line}: ", each.module
        root = name.split(".")[0]
        on_import = each.top and not each.typing
        for heavy, places in PLACES.items():
            if within(name, heavy) and not (places and within(module, places)):
                said.append(f"{where}{heavy} only in {' and '.join(places) or 'metrics/ and tests'}")
        slow = within(name, SLOW) and not (module == BUILDERS and within(name, "datasets"))
        if on_import and (slow or within(name, BUILDERS)):
            said.append(f"{where}{name} only inside functions")
        if root == "cxrhf":
            if is_room(name) and room_of(name) != room and not within(name, anywhere):
                if not within(name, inside):
                    said.append(f"{where}cxrhf.{room} may not import {name}")
                elif on_import:
                    said.append(f"{where}{name} only inside functions")
        elif root not in sys.stdlib_module_names:
            if room == "metrics" and root not in METRICS_MAY:
                said.append(f"{where}cxrhf.metrics may not import {root}")
            if room in LIGHT and on_import:
                said.append(f"{where}{root} only inside functions")
            if DISTRIBUTIONS.get(root, root).lower().replace("_", "-") not in known:
                said.append(f"{where}{root} is not in pyproject.toml")
    return said


def room_imports() -> dict[str, set[str]]:
    """Each room -> the rooms that any of its modules imports, anywhere."""
    found: dict[str, set[str]] = {}
    for path in FILES:
        module = module_name(path)
        names = (each.module for each in imports(path.read_text(encoding="utf-8"), module, path.name == "__init__.py"))
        found.setdefault(room_of(module), set()).update(room_of(name) for name in names if is_room(name))
    return {room: targets - {room} for room, targets in found.items()}


def test_import_rules() -> None:
    said = [
        line
        for path in FILES
        for line in broken_rules(path.read_text(encoding="utf-8"), module_name(path), path.name == "__init__.py")
    ]
    assert not said, "\n".join(said)


def test_every_room_has_its_rule() -> None:
    modules = {module_name(path).removeprefix("cxrhf").removeprefix(".") for path in FILES}
    rooms = {name.split(".")[0] for name in modules}
    assert rooms <= set(RULES) <= modules


def test_no_cycle_of_rooms_is_new() -> None:
    graph = room_imports()
    acyclic = {room: targets - {CYCLES.get(room)} for room, targets in graph.items()}
    TopologicalSorter(acyclic).prepare()  # raises CycleError, which names the rooms
    # One that is gone goes from the list, too.
    assert all(target in graph[room] and room in graph[target] for room, target in CYCLES.items())


@pytest.mark.parametrize(
    ("module", "source", "said"),
    [
        ("cxrhf.audits.overview", "import torch", "torch only in"),
        ("cxrhf.audits.overview", "def f():\n    import torch.nn", "line 2: torch only in"),
        ("cxrhf.models.train", "import torch", ""),
        ("cxrhf.encode", "from transformers import AutoModel", ""),
        ("cxrhf.report.html", "import evaluate", "evaluate only in metrics/ and tests"),
        ("cxrhf.hub.upload", "import huggingface_hub", ""),
        ("cxrhf.report.html", "def f():\n    from huggingface_hub import HfApi", "huggingface_hub only in"),
        ("cxrhf.data.notes", "import polars as pl", ""),
        ("cxrhf.audits.overview", "import polars", "polars only in"),
        ("cxrhf.metrics.ranking", "from scipy import stats", "scipy.stats only inside functions"),
        ("cxrhf.metrics.ranking", "from scipy.stats import norm", "only inside functions"),
        ("cxrhf.metrics.ranking", "def f():\n    from scipy.stats import norm", ""),
        ("cxrhf.metrics.ranking", "from scipy import special\nimport numba", ""),
        ("cxrhf.metrics.ranking", "class A:\n    import sklearn", "sklearn only inside functions"),
        ("cxrhf.data.load", "import datasets", "datasets only inside functions"),
        ("cxrhf.data.builders", "import datasets", ""),
        ("cxrhf.data.builders", "from cxrhf.data.builders import BUILDERS", "only inside functions"),
        ("cxrhf.data.builders", "def f():\n    from cxrhf.data.builders import BUILDERS", ""),
        ("cxrhf.metrics.ranking", "import pyarrow", "cxrhf.metrics may not import pyarrow"),
        ("cxrhf.metrics.ranking", "from cxrhf.errors import CxrhfError", "cxrhf.metrics may not import cxrhf.errors"),
        ("cxrhf.metrics.ranking", "from .checks import as_labels", ""),
        ("cxrhf.metrics.ranking", "from .. import schema", "may not import cxrhf.schema"),
        ("cxrhf.data.notes", "from cxrhf.audits.plan import run_audits", "cxrhf.data may not import cxrhf.audits.plan"),
        ("cxrhf.audits.overview", "from cxrhf import data", "cxrhf.audits may not import cxrhf.data"),
        ("cxrhf.audits.overview", "from cxrhf.metrics import auroc\nfrom cxrhf.schema import RESULT", ""),
        ("cxrhf.audits.sources", "from cxrhf.data.load import load_images", "load_images only inside functions"),
        ("cxrhf.audits.sources", "def f():\n    from cxrhf.data.load import load_images", ""),
        ("cxrhf.audits.overview", "def f():\n    from cxrhf.data.load import load_images", "audits may not import"),
        ("cxrhf.models.step", "from cxrhf.data.settings import BuildConfig", ""),
        (
            "cxrhf.models.step",
            "def f():\n    from cxrhf.data import build",
            "cxrhf.models may not import cxrhf.data.build",
        ),
        ("cxrhf.models.train", "from cxrhf.cli import main", ""),
        ("cxrhf.models.predict", "from cxrhf.cli import main", "cxrhf.models may not import cxrhf.cli.main"),
        (
            "cxrhf.encode.cache",
            "from cxrhf.context.words import BATCH",
            "cxrhf.encode may not import cxrhf.context.words",
        ),
        ("cxrhf", "from cxrhf.cli import main", "cxrhf.cli.main only inside functions"),
        ("cxrhf", "def f():\n    from cxrhf.tables import files", "may not import cxrhf.tables"),
        ("cxrhf.report.html", "from cxrhf.cli import main", "cxrhf.report may not import cxrhf.cli"),
        ("cxrhf.cli.audit", "from cxrhf.hub.settings import PushModelConfig", ""),
        ("cxrhf.cli.audit", "import tyro", "tyro only inside functions"),
        ("cxrhf.cli.audit", "from cxrhf.schema import RESULT", "cxrhf.schema.RESULT only inside functions"),
        ("cxrhf.cli.audit", "def f():\n    import tyro\n    from cxrhf.schema import RESULT", ""),
        ("cxrhf.cli.audit", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import pyarrow", ""),
        ("cxrhf.audits.overview", "import pandas", "pandas is not in pyproject.toml"),
        ("cxrhf.report.html", "import jinja2, json", ""),
    ],
)
def test_the_test_sees(module: str, source: str, said: str) -> None:
    found = broken_rules(source, module)
    assert any(said in each for each in found) if said else not found, found
