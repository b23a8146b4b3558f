"""A JSON file beside a table -> the object it holds (run.json, build.json, cxrhf.json), or one kind of error."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cxrhf.errors import CxrhfError, RunError

_DEEPEST = 50  # levels of nesting; ours have six, and code that follows them must not run out of stack


def read_object(path: Path, *, next_step: str, error: type[CxrhfError] = RunError) -> dict[str, Any]:
    """The object in a JSON file; a file that is absent, damaged, or holds something else is an error of that kind.

    NaN and infinities, which JSON does not have, are read as null.
    """
    try:
        text = path.read_text(encoding="utf-8")
        found = json.loads(text, parse_constant=lambda _: None, parse_float=_number)
        if not isinstance(found, dict):
            raise ValueError("not an object")
        if _is_too_deep(found):
            raise ValueError(f"nested more than {_DEEPEST} levels deep")
        if "\\u" in text:  # half of a pair that makes one character cannot be written again
            json.dumps(found, ensure_ascii=False).encode()
    except FileNotFoundError:
        raise error(f"{path.parent} has no {path.name}", next_step=next_step) from None
    except RecursionError:
        raise error(f"{path} is damaged (nested too deeply)", next_step=next_step) from None
    except UnicodeEncodeError:
        raise error(f"{path} is damaged (incomplete character)", next_step=next_step) from None
    except (OSError, ValueError) as wrong:
        raise error(f"{path} is damaged ({wrong})", next_step=next_step) from None
    return found


def _number(digits: str) -> float | None:
    value = float(digits)
    return value if math.isfinite(value) else None


def _is_too_deep(found: Any) -> bool:
    level = [found]
    for _ in range(_DEEPEST):
        inside = [each for box in level for each in (box.values() if isinstance(box, dict) else box)]
        level = [each for each in inside if isinstance(each, (dict, list))]
    return bool(level)


def finite(value: Any) -> Any:
    """The same as JSON can hold it: what is no finite number is null."""
    if isinstance(value, Mapping):
        return {str(key): finite(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
