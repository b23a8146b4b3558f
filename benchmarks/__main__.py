"""All benchmarks -> one table with the ratio of each claim, measured in this run: `make bench`.

Name some to run only those: `python -m benchmarks matching words`.
"""

from __future__ import annotations

import importlib
import sys

from benchmarks.rows import line

BENCHMARKS = (
    "bootstrap", "engine", "matching", "audits", "words", "modules", "images", "linking", "encoding", "training",
    "slices", "generation", "reports",
)  # fmt: skip


def main() -> None:
    chosen = sys.argv[1:] or list(BENCHMARKS)
    unknown = [name for name in chosen if name not in BENCHMARKS]
    if unknown:
        sys.exit(f"no benchmark {unknown[0]!r}; there are: {', '.join(BENCHMARKS)}")
    missed = 0
    for name in chosen:
        for row in importlib.import_module(f"benchmarks.{name}").run():
            text = line(row)
            missed += "MISSED" in text
            print(text, flush=True)
    print(f"\n{missed} targets missed" if missed else "\nall targets met")


if __name__ == "__main__":
    main()
