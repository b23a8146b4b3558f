"""The worked examples of docs/contributing, applied to a copy of the tree and run, whole and with one file missing."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.thinned import thinned

ROOT = Path(__file__).resolve().parents[1]
EXAMPLES = ("finding", "dataset", "metric", "audit")
COPIED = ("cxrhf", "metrics", "dataset_scripts", "tests", "docs", "pyproject.toml", "LICENSE")
_BLOCK = re.compile(
    r"(?:^<summary><code>(?P<new>[\w./]+)</code></summary>\n\n)?"
    r"^(?P<fence>`{3,})(?P<kind>[\w-]+)\n(?P<body>.*?)^(?P=fence)$",
    re.MULTILINE | re.DOTALL,
)


class Change(NamedTuple):
    """What a file looks like before and after; `before` is None where it is new."""

    path: str
    before: str | None
    after: str


def page_of(name: str) -> str:
    return (ROOT / "docs" / "contributing" / f"{name}.md").read_text(encoding="utf-8")


def changes(name: str) -> Iterator[Change]:
    """The files that an example makes and the places that its diffs change, in order."""
    for block in _BLOCK.finditer(page_of(name)):
        if block["new"]:
            yield Change(block["new"], None, block["body"])
        elif block["kind"] == "diff":
            for part in re.split(r"^\+\+\+ ", block["body"], flags=re.MULTILINE)[1:]:
                file, _, hunks = part.partition("\n")
                for hunk in re.split(r"^@@\n", hunks, flags=re.MULTILINE):
                    lines = hunk.splitlines(keepends=True)
                    kept = [[line[1:] or "\n" for line in lines if line[0] in f" \n{sign}"] for sign in "-+"]
                    yield Change(file, *map("".join, kept))


def follow(name: str, tree: Path, without: str = "") -> None:
    """Do what an example says; `without` is the file that is forgotten."""
    for change in changes(name):
        path = tree / change.path
        if change.path == without:
            continue
        if change.before is None:
            assert not path.exists(), f"{change.path} is there already"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(change.after, encoding="utf-8")
        else:
            text = path.read_text(encoding="utf-8")
            assert text.count(change.before) == 1, f"{change.path} has not, or not once:\n{change.before}"
            path.write_text(text.replace(change.before, change.after), encoding="utf-8")


def copy_to(tree: Path) -> Path:
    """The parts of this repository that the examples touch; compiled files with them, which saves a minute."""
    tree.mkdir(exist_ok=True)
    for each in COPIED:
        source = ROOT / each
        if source.is_dir():
            shutil.copytree(source, tree / each, ignore=shutil.ignore_patterns("*.tmp*", "*.pyc.*", ".*"))
        else:
            shutil.copy2(source, tree / each)
    return tree


def run(tree: Path, folder: Path, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
    """Python in a folder, with the copy's sources."""
    settings = {
        "PYTHONPATH": str(tree),
        "HF_HOME": str(tree / ".hf"),
        "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": "1",
        **more,
    }
    return subprocess.run(
        [sys.executable, *words],
        cwd=folder,
        env={**os.environ, **settings},
        text=True,
        capture_output=True,
        check=False,
    )


@pytest.fixture(scope="module")
def trees(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Example -> a copy in which it has been followed; that of the metric apart, whose kernels are compiled anew."""
    first, second = (copy_to(tmp_path_factory.mktemp("tree")) for _ in range(2))
    made = {name: second if name == "metric" else first for name in EXAMPLES}
    for name, tree in made.items():
        follow(name, tree)
    return made


TRY = """
import doctest, sys
{before}
test = doctest.DocTestParser().get_doctest(open(sys.argv[1]).read(), {{}}, "example", None, 0)
failed, tried = doctest.DocTestRunner().run(test)
sys.exit(not tried or bool(failed))
"""


def names_in(path: Path) -> set[str]:
    """What a file of sources defines or imports at its top, and for a package also the files beside it."""
    found = {each.stem if each.suffix == ".py" else each.name for each in path.parent.iterdir()}
    for part in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(part, ast.FunctionDef | ast.ClassDef):
            found.add(part.name)
        elif isinstance(part, ast.Import | ast.ImportFrom):
            found |= {(each.asname or each.name).partition(".")[0] for each in part.names}
        elif isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store):
            found.add(part.id)
    return found


@pytest.mark.parametrize("name", EXAMPLES)
def test_what_its_files_import_is_there(name: str, trees: dict[str, Path]) -> None:
    """Read, not run: a name that has moved since the guide was written is told within a second."""
    tree = trees[name]
    for path in {change.path for change in changes(name) if change.path.endswith(".py")}:
        for part in ast.walk(ast.parse((tree / path).read_text(encoding="utf-8"))):
            if isinstance(part, ast.ImportFrom) and (part.module or "").startswith(("cxrhf.", "tests.")):
                place = tree.joinpath(*str(part.module).split("."))
                source = place / "__init__.py" if place.is_dir() else place.with_suffix(".py")
                if (place / "__init__.py").is_file() and "__getattr__" in source.read_text(encoding="utf-8"):
                    continue  # gives its names when they are asked for
                missing = {each.name for each in part.names} - names_in(source)
                assert not missing, f"{path} imports {', '.join(missing)} from {part.module}"


@pytest.mark.parametrize("name", thinned(EXAMPLES, ("metric",)))
def test_it_can_be_tried(name: str, trees: dict[str, Path], tmp_path: Path) -> None:
    """The example under "Try it" gives the output that the page shows."""
    tried = [block["body"] for block in _BLOCK.finditer(page_of(name)) if block["body"].startswith(">>> ")]
    (tmp_path / "tried.txt").write_text("\n".join(tried), encoding="utf-8")
    before = (ROOT / "tests" / "without_transformers.py").read_text(encoding="utf-8").split('"""', 2)[2]
    before = before.replace("from __future__ import annotations\n", "")
    # Changed kernels are compiled anew, for half a minute; plain Python does for a handful of rows.
    plain = {"NUMBA_DISABLE_JIT": "1"} if name == "metric" else {}
    done = run(trees[name], tmp_path, "-c", TRY.format(before=before), "tried.txt", **plain)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_house_style(name: str, trees: dict[str, Path]) -> None:
    touched = sorted({change.path for change in changes(name) if change.path.endswith(".py")})
    for words in (("check",), ("format", "--check")):
        done = run(trees[name], trees[name], "-m", "ruff", *words, *touched)
        assert done.returncode == 0, done.stdout + done.stderr


def forgettable() -> Iterator[tuple[str, str, str]]:
    """(example, file, the test that must fail or "") of the lists that end the pages."""
    for name in EXAMPLES:
        listed = page_of(name).split("## If you forget a file", 1)[1]
        for file, fails in re.findall(r"^([\w./]+\.\w+) {2,}(.+)$", listed, flags=re.MULTILINE):
            yield name, file, fails if fails.startswith("tests/") else ""


def test_the_lists_name_every_file_but_those_of_tests() -> None:
    for name in EXAMPLES:
        touched = {change.path for change in changes(name)}
        listed = {file for example, file, _ in forgettable() if example == name}
        assert listed <= touched
        assert not [path for path in touched - listed if not path.startswith("tests/")]


def test_the_guide_links_to_files_that_exist() -> None:
    links = re.findall(r"\]\(([^)#\s]+)\)", (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"))
    assert {f"docs/contributing/{name}.md" for name in EXAMPLES} <= set(links)
    assert not [link for link in links if not (ROOT / link).is_file()]


# The tests of an example's own part: those of other metrics, datasets and audits would say nothing about it.
OWN = {
    "finding": "",
    "dataset": "county or every_dataset or terms_agree",
    "metric": "likelihood_ratio or all_ten or direction",
    "audit": "certainty or audits_are",
}


def outcome(name: str, tree: Path, *tests: str) -> subprocess.CompletedProcess[str]:
    """What the copy's own tests say of an example."""
    return run(tree, tree, "-m", "pytest", "-q", "-x", "-m", "not slow", "-k", OWN[name], *tests)


@pytest.mark.slow
@pytest.mark.parametrize("name", EXAMPLES)
def test_nothing_forgotten(name: str, trees: dict[str, Path]) -> None:
    tree = trees[name]
    named = {test for example, _, test in forgettable() if example == name and test}
    own = {change.path for change in changes(name) if Path(change.path).name.startswith("test_")}
    done = outcome(name, tree, *sorted(named | own), *(["tests/test_doctests.py"] if name == "metric" else []))
    assert done.returncode == 0, done.stdout
    checked = run(tree, tree, "-m", "mypy", *sorted({each.path for each in changes(name) if each.path[:6] == "cxrhf/"}))
    assert checked.returncode == 0, checked.stdout


@pytest.mark.slow
@pytest.mark.parametrize(("name", "file", "test"), [each for each in forgettable() if each[2]])
def test_a_forgotten_file_is_told(name: str, file: str, test: str, tmp_path: Path) -> None:
    tree = copy_to(tmp_path / "tree")
    follow(name, tree, without=file)
    done = outcome(name, tree, test)
    assert done.returncode in (1, 2), done.stdout  # 2: a file of tests cannot even be imported
