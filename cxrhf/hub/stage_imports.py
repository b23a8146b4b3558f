"""Source of a module -> the same with imports that need no cxrhf, and the files it then needs beside it.

Statements are found by parsing and replaced where they stand, so that comments and lines stay. What `evaluate` sees of
a script is not what Python sees: `seen_by_evaluate` reads as it does.
"""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import cxrhf
from cxrhf.errors import CxrhfError, did_you_mean

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
