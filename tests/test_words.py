"""Everything a user reads keeps to the glossary: one term a thing, and no word on its list of words to avoid.

`python -m tests.test_words [FOLDER or FILE ...]` prints what is left to change, with file and line.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
GLOSSARY = ROOT / "docs" / "glossary.md"
TAGLINE = "How much of this AUROC is the picture, and how much is the chart?"
# Words of the synthetic hospital's doctors, phrase lists and lexicons are data, not prose.
DATA = ("cxrhf/twin/", "cxrhf/context/mentions.py", "cxrhf/hub/scan_notes.py")
ROOMS = ("README.md", "CONTRIBUTING.md", "docs", "cxrhf", "metrics", "dataset_scripts", "examples")
_BARE = re.compile(r"(?<![\w.)\]}/'\"*`-])\.\d+\b(?!\.?[a-zA-Z_/])")


def avoided() -> dict[str, str]:
    """The second table of the glossary: word to avoid -> word to write."""
    section = GLOSSARY.read_text().split("## Words to avoid", 1)[1]
    rows = [line.strip("| ").split(" | ") for line in section.splitlines() if line.startswith("| ")][1:]
    return {word.strip(): instead for words, instead in rows for word in words.split(",") if set(word) - set("- ")}


def texts(path: Path) -> Iterator[tuple[int, str]]:
    """Line and text of what a user reads in this file: all of a page or template, the strings of a module."""
    if path.suffix != ".py":
        fenced = False
        for number, line in enumerate(path.read_text().splitlines(), 1):
            fenced ^= line.lstrip().startswith(("```", "~~~"))
            if not fenced:
                yield number, re.sub(r"`[^`]*`|\]\([^)]*\)|<[^>]*>|\{[{%][^}]*[%}]\}", "", line)
        return
    tree = ast.parse(path.read_text())
    holders = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    docstrings = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, holders) and node.body and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        constant = isinstance(node, ast.Constant) and id(node) not in docstrings
        if constant and isinstance(node.value, str) and " " in node.value.strip():
            yield node.lineno, node.value


def files(*within: str) -> list[Path]:
    folders = [
        ROOT / name
        for name in within
        or ("README.md", "CONTRIBUTING.md", "docs", "cxrhf", "metrics", "dataset_scripts", "examples")
    ]
    found = [
        path
        for folder in folders
        for path in ([folder] if folder.is_file() else sorted(folder.rglob("*")))
        if path.suffix in (".md", ".j2", ".py") and path != GLOSSARY
    ]
    return [path for path in found if not path.relative_to(ROOT).as_posix().startswith(DATA)]


def offences(paths: list[Path]) -> Iterator[str]:
    instead = avoided()
    pattern = re.compile(r"\b(" + "|".join(map(re.escape, instead)) + r")\b", re.IGNORECASE)
    for path in paths:
        for line, text in texts(path):
            where = f"{path.relative_to(ROOT)}:{line}"
            for hit in pattern.finditer(text.replace(TAGLINE, "")):
                yield f"{where}: {hit[0]!r}; write {instead[hit[0].lower()]}"
            if path.suffix != ".py":
                yield from (f"{where}: number {hit[0]!r}; write 0{hit[0]}" for hit in _BARE.finditer(text))


@pytest.mark.parametrize(
    "room", ["README.md", "CONTRIBUTING.md", "docs", "cxrhf", "metrics", "dataset_scripts", "examples"]
)
def test_what_users_read_keeps_to_the_glossary(room: str) -> None:
    left = list(offences(files(room)))
    assert not left, "\n".join(left[:40])


def test_the_check_sees_words_and_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    word = next(iter(avoided()))
    page = tmp_path / "page.md"
    page.write_text(f"A line with {word} and AUROC .82.\n")
    monkeypatch.setattr(sys.modules[__name__], "ROOT", tmp_path)
    assert len(list(offences([page]))) == 2


if __name__ == "__main__":
    print("\n".join(offences(files(*sys.argv[1:]))))
