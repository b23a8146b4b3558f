"""A run folder -> whether a finished demo lies there, made with the same settings, packages and code."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING

from cxrhf.cli.demo_example import NAME as EXAMPLE

if TYPE_CHECKING:
    from cxrhf.config_demo import DemoConfig

KEY = "made_with"  # in run.json; written when everything is there
PAGE = "report.html"


def made_with(config: DemoConfig) -> str:
    """A hash of all that decides what a demo shows: settings, versions of packages, every file of this one."""
    from cxrhf.config import to_mapping
    from cxrhf.run import versions

    package = Path(__file__).resolve().parents[1]
    digest = hashlib.sha256(json.dumps([to_mapping(config), versions()], sort_keys=True, default=str).encode())
    for path in sorted(package.rglob("*")):
        if path.is_file() and "__pycache__" not in path.parts:
            digest.update(path.relative_to(package).as_posix().encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:32]


def is_done(run: Path, stamp: str) -> bool:
    """Nothing is left to do: the last thing that happened to the folder is this demo, and its page is there.

    An audit of the folder, or settings or code of another demo, and the steps are gone through again.
    """
    from cxrhf.run import read_run

    if not all((run / name).is_file() for name in ("run.json", PAGE, EXAMPLE)):
        return False
    record = read_run(run).record
    return record.get("verb") == "demo" and record.get(KEY) == stamp
