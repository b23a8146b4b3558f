"""Losses and validations of a training <-> lines of JSON, cut back to a checkpoint when the training goes on from it.

No line says when it was written, so a training that was killed and went on leaves the same bytes as one that was not.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from cxrhf.errors import CxrhfError


class History:
    """Lines are held back until `flush`; `size` is what stands on the disk."""

    def __init__(self, path: Path, size: int = 0) -> None:
        self.path, self.size = path, size
        self.waiting: list[str] = []
        path.parent.mkdir(parents=True, exist_ok=True)
        if size == 0:
            path.write_bytes(b"")
            return
        there = path.stat().st_size if path.is_file() else 0
        if there < size:
            raise CxrhfError(
                f"{path.name} was cut after its checkpoint was saved",
                got=f"{there:,} bytes",
                allowed=f"at least {size:,} bytes",
                next_step="pass --overwrite to start again",
            )
        with path.open("r+b") as file:
            file.truncate(size)

    def add(self, **values: Any) -> None:
        """One line more."""
        self.waiting.append(json.dumps(values, allow_nan=False) + "\n")

    def flush(self) -> int:
        """Write what waits; returns the size of the file."""
        if self.waiting:
            with self.path.open("ab") as file:
                file.write("".join(self.waiting).encode())
            self.waiting = []
        self.size = self.path.stat().st_size
        return self.size


def read_history(path: Path) -> list[dict[str, Any]]:
    """All lines of a training."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
