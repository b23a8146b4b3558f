"""Files changed since the last commit (or by it, when nothing is) -> the test files to run, one line.

`cxrhf/a/b.py` is tested by `tests/a/test_b.py`, else by the test files that name `cxrhf.a.b`; a change of sources also
asks for the import rules. Nothing to map: a small set that is always quick.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterable
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).resolve().parents[1]
RULES = "tests/test_import_rules.py"
QUICK = ("tests/test_schema.py", "tests/test_findings.py", "tests/test_config.py", RULES)


def git(*words: str) -> list[str]:
    done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False)
    return [line for line in done.stdout.splitlines() if line] if done.returncode == 0 else []


def changed() -> list[str]:
    """Changed and new files; those of the last commit when the working folder is clean."""
    now = [*git("diff", "--name-only", "HEAD"), *git("ls-files", "--others", "--exclude-standard")]
    return now or git("diff", "--name-only", "HEAD~1", "HEAD") or git("show", "--name-only", "--format=", "HEAD")


def files_for(path: str, root: Path) -> list[str]:
    """The tests of one file; of a file that no longer exists, none of its own."""
    file = PurePosixPath(path)
    if file.parts[0] == "tests":
        is_test = file.name.startswith("test_") and file.suffix == ".py" and (root / path).exists()
        return [path] if is_test else []
    if file.parts[0] == "docs":
        return ["tests/test_docs.py"] if (root / "tests/test_docs.py").exists() else []
    if file.suffix != ".py" or file.parts[0] != "cxrhf":
        if file.parts[0] in ("metrics", "dataset_scripts") and (root / f"tests/test_{file.parts[0]}.py").exists():
            return [f"tests/test_{file.parts[0]}.py"]
        return []
    inside = file.parts[1:-1] if file.stem == "__init__" else (*file.parts[1:-1], file.stem)
    named = PurePosixPath("tests", *inside).with_name(f"test_{inside[-1]}.py") if inside else None
    within = PurePosixPath("tests", *inside, f"test_{inside[-1]}.py") if inside else None  # tests/cli/test_cli.py
    found = [str(each) for each in (named, within) if each and (root / each).exists()]
    if not found and inside:
        dotted, parent = ".".join(("cxrhf", *inside)), ".".join(("cxrhf", *inside[:-1]))
        spoken = (dotted, f"from {parent} import {inside[-1]}\n")
        tests = sorted((root / "tests").rglob("test_*.py"))
        texts = {each.relative_to(root).as_posix(): each.read_text(encoding="utf-8") for each in tests}
        found = [each for each, text in texts.items() if any(word in text for word in spoken)]
    return [*found, RULES]


def choose(paths: Iterable[str], root: Path = ROOT) -> list[str]:
    """Test files in a stable order, each once."""
    chosen = dict.fromkeys(test for path in paths for test in files_for(path, root))
    return [test for test in chosen if (root / test).exists()] or [test for test in QUICK if (root / test).exists()]


if __name__ == "__main__":
    print(" ".join(choose(changed())))
