"""run.json of two runs -> settings, versions and inputs that differ."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from cxrhf.report.sections.provenance import mapping

# Where a run lies and when it was made says nothing of its numbers.
_PLACES = ("out", "overwrite", "predictions", "workers")
_FACTS = ("verb", "seed", "commit", "python", "platform")
NONE = "–"


class Setting(NamedTuple):
    """A fact of both runs that differs: its kind (setting, version, input, machine), name and values as text."""

    kind: str
    name: str
    first: str
    second: str


def diff_records(first: Mapping[str, Any], second: Mapping[str, Any]) -> list[Setting]:
    """What was set, installed or read otherwise."""
    found = list[Setting]()
    for kind, field in (("setting", "config"), ("version", "versions")):
        one, two = mapping(first.get(field)), mapping(second.get(field))
        names = [name for name in dict.fromkeys((*one, *two)) if name not in _PLACES and one.get(name) != two.get(name)]
        found += [Setting(kind, name, _plain(one.get(name)), _plain(two.get(name))) for name in names]
    for name in _FACTS:
        if first.get(name) != second.get(name):
            kind = "setting" if name in ("verb", "seed") else "version" if name == "commit" else "machine"
            found.append(Setting(kind, name, _plain(first.get(name)), _plain(second.get(name))))
    if not same_inputs(first, second):
        found.append(Setting("input", "files", _inputs(first), _inputs(second)))
    return list(dict.fromkeys(found))


def same_inputs(first: Mapping[str, Any], second: Mapping[str, Any]) -> bool:
    """Whether both were made from the same files, whatever their names; False where that is not recorded."""
    one, two = (
        sorted(str(each.get("sha256")) for each in record.get("inputs") or [] if isinstance(each, Mapping))
        for record in (first, second)
    )
    return one == two and bool(one)


def _inputs(record: Mapping[str, Any]) -> str:
    names = [
        f"{each.get('name', '')} ({str(each.get('sha256', ''))[:8]})"
        for each in record.get("inputs") or []
        if isinstance(each, Mapping)
    ]
    return ", ".join(names) or "not recorded"


def _plain(value: Any) -> str:
    if value is None or value == []:
        return NONE
    return ", ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)
