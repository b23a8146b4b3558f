"""Settings, sources and code -> one short text that changes when what would be built changes."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

_WHOLE = 64 << 20  # smaller files are read whole
_END = 1 << 20  # of larger ones both ends: a gzip file ends with the checksum of all it holds


def file_print(path: Path) -> dict[str, Any]:
    """Name, size and a hash of a file's content."""
    size = path.stat().st_size
    digest = hashlib.sha256()
    with path.open("rb") as file:
        if size <= _WHOLE:
            while block := file.read(_END):
                digest.update(block)
        else:
            digest.update(file.read(_END))
            file.seek(-_END, 2)
            digest.update(file.read(_END))
    return {"name": path.name, "size": size, "sha256": digest.hexdigest()[:32], "whole": size <= _WHOLE}


@lru_cache(maxsize=8)
def code_print(*more: Path) -> str:
    """A hash of the sources that decide what a build holds: cxrhf.data, the tables, and any files named."""
    package = Path(__file__).resolve().parents[1]
    shared = ("schema.py", "tables/checks.py", "findings.py", "config_build.py")
    files = [*sorted((package / "data").rglob("*.py")), *(package / name for name in shared), *more]
    digest = hashlib.sha256()
    for path in files:
        digest.update(path.name.encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()[:32]


def build_print(settings: Mapping[str, Any], inputs: Iterable[Mapping[str, Any]], code: str) -> str:
    """The fingerprint of a build."""
    said = json.dumps({"settings": dict(settings), "inputs": list(inputs), "code": code}, sort_keys=True, default=str)
    return hashlib.sha256(said.encode()).hexdigest()[:32]
