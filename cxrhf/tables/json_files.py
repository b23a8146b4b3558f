"""A JSON file beside a table -> the object it holds (run.json, build.json, cxrhf.json), or one kind of error."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from cxrhf.errors import CxrhfError, RunError


def read_object(path: Path, *, next_step: str, error: type[CxrhfError] = RunError) -> dict[str, Any]:
    """The object in a JSON file; a file that is absent, damaged, or holds something else is an error of that kind."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(found, dict):
            raise ValueError("not an object")
    except FileNotFoundError:
        raise error(f"{path.parent} has no {path.name}", next_step=next_step) from None
    except (OSError, ValueError) as wrong:
        raise error(f"{path} is damaged ({wrong})", next_step=next_step) from None
    return found
