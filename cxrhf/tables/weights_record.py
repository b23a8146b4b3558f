"""cxrhf.json beside the weights of a network or adapter -> the first field that is not of the kind that cxrhf writes.

Weights and what lies beside them may come from anybody: whoever reads the record checks it here first.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_NUMBERS = ("steps", "epochs", "best_step", "kept_step")
_KINDS: dict[str, Any] = {
    "format": int, "backbone": str, "outputs": list, "look": dict, "sha256": str, "versions": dict, "name": str,
    "seed": int, "key": str, "tasks": list, "start": str, "trained": dict, "images": int, "dataset": str | None,
    "credentialed": bool | None, "settings": dict, "base": dict, "prompt": str | None, "size": int, "examples": dict,
}  # fmt: skip


def wrong_field(about: Mapping[str, Any]) -> str | None:
    """The name of the first field of another kind, None where all are right; any may be absent.

    >>> wrong_field({"seed": 3, "images": "many"}), wrong_field({"seed": 3})
    ('images', None)
    """
    for name, kind in _KINDS.items():
        if name in about and not _is(about[name], kind):
            return name
    if not all(isinstance(each, str) for each in about.get("outputs", [])):
        return "outputs"
    if not 0 <= about.get("seed", 0) < 2**63:
        return "seed"
    if not isinstance(about.get("settings", {}).get("labels"), str | None):
        return "settings"
    trained = about.get("trained", {})
    if not all(_is(trained[name], int | None) for name in _NUMBERS if name in trained):
        return "trained"
    if not all(isinstance(each, str | None) for name, each in about.get("base", {}).items()):
        return "base"
    return None if all(_is(each, int) for each in about.get("examples", {}).values()) else "examples"


def _is(value: Any, kind: Any) -> bool:
    return isinstance(value, kind) and (not isinstance(value, bool) or (kind is not int and kind != int | None))
