"""Settings, sources and version -> one short text that changes when what would be built changes.

The version is raised by hand, where the same settings and sources would give other rows, texts or pictures: FORMAT for
every dataset, READERS for one. A change that leaves them alone raises nothing, so that a finished build of 377,000
pictures stays finished. `tests/data/test_versions.py` holds a digest of a small build of each dataset and fails where
rows change and the version does not.

A build.json without a version was made before there were any, with a hash of the code instead: it counts as version 1.1
and is accepted as finished where its settings and sources are the same. A build that was begun then and not finished is
begun anew (--overwrite).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

FORMAT = 1
# Dataset -> its number, where that is no longer 1. Of `synthetic` the generator's too; 2: notes with broken lines.
READERS: Mapping[str, int] = {"synthetic": 2}
FIRST = "1.1"  # what a record without a version counts as

_WHOLE = 64 << 20  # smaller files are read whole
_END = 1 << 20  # of larger ones both ends: a gzip file ends with the checksum of all it holds


def version_of(dataset: str) -> str:
    """What decides, besides settings and sources, what a build of this dataset holds."""
    return f"{FORMAT}.{READERS.get(dataset, 1)}"


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


def build_print(settings: Mapping[str, Any], inputs: Iterable[Mapping[str, Any]], version: str) -> str:
    """The fingerprint of a build."""
    said = json.dumps(
        {"settings": dict(settings), "inputs": list(inputs), "version": version}, sort_keys=True, default=str
    )
    return hashlib.sha256(said.encode()).hexdigest()[:32]
