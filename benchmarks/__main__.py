"""All benchmarks -> one table with the ratio of each claim, measured in this run: `make bench`.

Name some to run only those: `python -m benchmarks matching words`.
"""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence

from benchmarks.rows import line

BENCHMARKS = (
    "bootstrap", "engine", "matching", "audits", "words", "modules", "images", "linking", "encoding", "training",
    "slices", "generation", "reports",
)  # fmt: skip
LAST = r"all targets met|\d+ targets missed"


def main() -> None:
    chosen = sys.argv[1:] or list(BENCHMARKS)
    unknown = [name for name in chosen if name not in BENCHMARKS]
    if unknown:
        sys.exit(f"no benchmark {unknown[0]!r}; expected some of: {', '.join(BENCHMARKS)}")
    missed = 0
    for text in _alone(chosen[0]) if len(chosen) == 1 else _apart(chosen):
        missed += "MISSED" in text
        print(text, flush=True)
    print(f"\n{missed} targets missed" if missed else "\nall targets met")


def _alone(name: str) -> Iterator[str]:
    """The rows of one benchmark, measured in this process."""
    yield from map(line, importlib.import_module(f"benchmarks.{name}").run())


def _apart(names: Sequence[str]) -> Iterator[str]:
    """A process each: what one benchmark has loaded would count as memory of those after it."""
    for name in names:
        command = [sys.executable, "-m", "benchmarks", name]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
            assert child.stdout is not None
            yield from (text.rstrip() for text in child.stdout if text.strip() and not re.fullmatch(LAST, text.strip()))
        if child.returncode:
            sys.exit(f"benchmark {name} ended with {child.returncode}. Run it alone: python -m benchmarks {name}")


if __name__ == "__main__":
    main()
