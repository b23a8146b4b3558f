"""Who may import what, read from the sources without running them."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
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
    "polars": ("cxrhf.data",),
    "evaluate": (),
}
# They cost seconds: inside functions only, everywhere.
SLOW = ("scipy.stats", "sklearn", "datasets")
# Classes that inherit from `datasets` and that worker processes import by name; itself imported inside functions only.
BUILDERS = "cxrhf.data.builders"

TABLES = {"schema", "tables", "errors", "findings"}
CONFIGS = {path.stem for path in (ROOT / "cxrhf").glob("config*.py")}
SHARED = TABLES | CONFIGS | {"run", "terms"}
STAGE = SHARED | {"metrics", "calibrate", "encode"}
# Part of cxrhf -> the parts it may import, besides itself. Data, context and models meet only through tables.
LAYERS = {
    "metrics": set[str](),
    "errors": set[str](),
    "paths": {"errors"},
    "findings": set[str](),
    "schema": TABLES,
    "tables": TABLES,
    "terms": set[str](),
    **dict.fromkeys(CONFIGS, TABLES | CONFIGS),
    "configs": set[str](),
    "run": TABLES,
    "calibrate": SHARED | {"metrics"},
    "encode": SHARED,
    "data": STAGE | {"paths"},
    "context": STAGE,
    "models": STAGE | {"cli"},  # `python -m cxrhf.models.train` is `cxrhf train`
    "audits": SHARED | {"metrics"},
    "report": SHARED | {"metrics", "calibrate"},
    "hub": SHARED | {"metrics", "report", "paths", "data"},
    # From a file or a table to the page: what the command line and notebooks share.
    "auditing": SHARED | {"audits", "auditing_reports", "auditing_sources", "preparing", "report", "representations"},
    # What a notebook gives -> one model's tables, or several models'.
    "auditing_sources": SHARED | {"auditing_reports"},
    "preparing": SHARED | {"audits", "auditing_reports", "context", "data"},
    # Generated reports of files, tables and runs, to be audited.
    "auditing_reports": SHARED | {"audits"},
    # What lies beside the predictions of a run: vectors, attributes, pictures.
    "representations": SHARED | {"audits", "data"},
    "pretest_tables": SHARED | {"metrics", "audits"},
    "pretesting": SHARED
    | {"metrics", "audits", "auditing", "context", "data", "encode", "calibrate", "report", "pretest_tables"},
    # A build and settings -> image models and their rows.
    "imaging": SHARED | {"metrics", "data", "models", "encode"},
    # A build and settings -> models that write reports, their reports, and scores of them.
    "writing": SHARED | {"metrics", "data", "models", "encode", "imaging"},
    # Planted data through the same audits as everybody's.
    "selfchecking": SHARED | {"metrics", "audits", "auditing", "calibrate", "data", "pretesting", "report"},
}
METRICS_MAY = {"numpy", "scipy", "sklearn", "numba", "tqdm"}
# What `import cxrhf` and `cxrhf --help` cost: the package and the command line name everything else inside functions.
LIGHT = {
    "cxrhf": set[str](),
    "cxrhf.__main__": {"cli"},
    "cxrhf.cli": {"cli", "errors", *CONFIGS},
}
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


def imports(source: str, module: str, package: bool) -> Iterator[Import]:
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

    yield from walk(ast.parse(source), True, False)


def within(module: str, packages: tuple[str, ...] | str) -> bool:
    names = (packages,) if isinstance(packages, str) else packages
    return any(module == name or module.startswith(f"{name}.") for name in names)


def declared() -> set[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    lines = [*project["dependencies"], *(each for extra in project["optional-dependencies"].values() for each in extra)]
    return {re.split(r"[\s<>=!~\[;]", line)[0].lower().replace("_", "-") for line in lines}


def broken_rules(source: str, module: str, package: bool = False) -> list[str]:
    """What a file does that it may not, one line each."""
    part = module.split(".")[1] if "." in module else ""
    known = declared()
    said = []
    for each in imports(source, module, package):
        where, name = f"{module}, line {each.line}: ", each.module
        root = name.split(".")[0]
        for heavy, places in PLACES.items():
            if within(name, heavy) and not (places and within(module, places)):
                said.append(f"{where}{heavy} only in {' and '.join(places) or 'metrics/ and tests'}")
        slow = within(name, SLOW) and not (module == BUILDERS and within(name, "datasets"))
        if each.top and not each.typing and (slow or within(name, BUILDERS)):
            said.append(f"{where}{name} only inside functions")
        if root == "cxrhf" and name.count("."):
            target = name.split(".")[1]
            is_part = any((ROOT / "cxrhf" / f"{target}{end}").exists() for end in (".py", ""))
            light = next((LIGHT[key] for key in (module, ".".join(module.split(".")[:2])) if key in LIGHT), None)
            if is_part and light is not None:
                if each.top and not each.typing and target not in light:
                    said.append(f"{where}cxrhf.{target} only inside functions")
            elif is_part and target != part and target not in LAYERS.get(part, set()):
                said.append(f"{where}cxrhf.{part} may not import cxrhf.{target}")
        elif root not in sys.stdlib_module_names and root != "cxrhf":
            if within(module, "cxrhf.metrics") and root not in METRICS_MAY:
                said.append(f"{where}cxrhf.metrics may not import {root}")
            light = next((key for key in LIGHT if module == key or (key == "cxrhf.cli" and within(module, key))), None)
            if light and each.top and not each.typing:
                said.append(f"{where}{root} only inside functions")
            if DISTRIBUTIONS.get(root, root).lower().replace("_", "-") not in known:
                said.append(f"{where}{root} is not in pyproject.toml")
    return said


@pytest.mark.parametrize("path", FILES, ids=[module_name(path) for path in FILES])
def test_import_rules(path: Path) -> None:
    said = broken_rules(path.read_text(encoding="utf-8"), module_name(path), path.name == "__init__.py")
    assert not said, "\n".join(said)


def test_every_part_has_its_rule() -> None:
    parts = {module_name(path).split(".")[1] for path in FILES if "." in module_name(path)}
    assert parts - {"cli", "__main__"} <= set(LAYERS)


@pytest.mark.parametrize(
    ("module", "source", "said"),
    [
        ("cxrhf.audits.overview", "import torch", "torch only in"),
        ("cxrhf.audits.overview", "def f():\n    import torch.nn", "line 2: torch only in"),
        ("cxrhf.models.train", "import torch", ""),
        ("cxrhf.encode", "from transformers import AutoModel", ""),
        ("cxrhf.report.html", "import evaluate", "evaluate only in metrics/ and tests"),
        ("cxrhf.hub.push", "import huggingface_hub", ""),
        ("cxrhf.report.html", "def f():\n    from huggingface_hub import HfApi", "huggingface_hub only in"),
        ("cxrhf.data.notes", "import polars as pl", ""),
        ("cxrhf.audits.overview", "import polars", "polars only in"),
        ("cxrhf.metrics.ranking", "from scipy import stats", "scipy.stats only inside functions"),
        ("cxrhf.metrics.ranking", "from scipy.stats import norm", "only inside functions"),
        ("cxrhf.metrics.ranking", "def f():\n    from scipy.stats import norm", ""),
        ("cxrhf.metrics.ranking", "from scipy import special\nimport numba", ""),
        ("cxrhf.metrics.ranking", "class A:\n    import sklearn", "sklearn only inside functions"),
        ("cxrhf.data.builders", "import datasets", "datasets only inside functions"),
        ("cxrhf.data.builders", "import datasets", ""),
        ("cxrhf.data.builders", "from cxrhf.data.builders import BUILDERS", "only inside functions"),
        ("cxrhf.data.builders", "def f():\n    from cxrhf.data.builders import BUILDERS", ""),
        ("cxrhf.metrics.ranking", "import pyarrow", "cxrhf.metrics may not import pyarrow"),
        ("cxrhf.metrics.ranking", "from cxrhf.errors import CxrhfError", "cxrhf.metrics may not import cxrhf.errors"),
        ("cxrhf.metrics.ranking", "from .checks import as_labels", ""),
        ("cxrhf.metrics.ranking", "from .. import schema", "may not import cxrhf.schema"),
        ("cxrhf.data.notes", "from cxrhf.audits.plan import run_audits", "cxrhf.data may not import cxrhf.audits.plan"),
        ("cxrhf.audits.overview", "from cxrhf import data", "cxrhf.audits.plan may not import cxrhf.data"),
        ("cxrhf.audits.overview", "from cxrhf.metrics import auroc\nfrom cxrhf.schema import RESULT", ""),
        ("cxrhf.report.html", "from cxrhf.cli import main", "cxrhf.report may not import cxrhf.cli"),
        ("cxrhf.cli.audit", "import tyro", "tyro only inside functions"),
        ("cxrhf.cli.audit", "from cxrhf.schema import RESULT", "cxrhf.schema only inside functions"),
        ("cxrhf.cli.audit", "def f():\n    import tyro\n    from cxrhf.schema import RESULT", ""),
        ("cxrhf.cli.audit", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import pyarrow", ""),
        ("cxrhf.audits.overview", "import pandas", "pandas is not in pyproject.toml"),
        ("cxrhf.report.html", "import jinja2, json", ""),
    ],
)
def test_the_test_sees(module: str, source: str, said: str) -> None:
    found = broken_rules(source, module)
    assert any(said in each for each in found) if said else not found, found
