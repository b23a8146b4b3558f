"""Verbs and their config dataclasses -> what can be typed after `cxrhf`: verbs, flags, and the values that are known.

Nothing is listed twice: which config a verb reads stands in its own call of `parse`, flags are the config's fields, and
allowed values come from the config's own check, which names them when it refuses a word.
"""

from __future__ import annotations

import ast
import dataclasses
import importlib
import inspect
import re
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from cxrhf.cli import VERBS
from cxrhf.errors import CxrhfError

REFUSED = "zzz"  # a word that no setting takes
FINDINGS = ("findings", "finding")


class Flag(NamedTuple):
    """A flag or, with the name "", a place: what it takes ("none", "one", "many", "files") and values known of it."""

    names: tuple[str, ...]
    about: str
    metavar: str
    takes: str
    values: tuple[str, ...]


class Command(NamedTuple):
    """A verb, or a verb and its second word."""

    words: tuple[str, ...]
    about: str
    flags: list[Flag]
    place: Flag


def commands() -> list[Command]:
    """Everything that can be run, in the order of the help."""
    found = []
    for verb, about in VERBS.items():
        module = importlib.import_module(f"cxrhf.cli.{verb}")
        below: dict[str, str] = getattr(module, "SUBVERBS", {})
        for words, kind in _configs(module):
            said = below.get(words[1], "") if len(words) > 1 else about
            flags = list(_flags(kind))
            place = next((each for each in flags if each.names == ("",)), Flag(("",), "", "", "none", ()))
            found.append(Command(words, said, [each for each in flags if each is not place], place))
    return found


def _configs(module: Any) -> Iterator[tuple[tuple[str, ...], type]]:
    """`parse(Kind, args, verb="context fit", ...)` in a verb's source -> ("context", "fit") and the class."""
    for node in ast.walk(ast.parse(inspect.getsource(module))):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "parse":
            verb = next(each.value for each in node.keywords if each.arg == "verb")
            kind = node.args[0]
            if isinstance(verb, ast.Constant) and isinstance(kind, ast.Name):
                yield tuple(str(verb.value).split()), getattr(module, kind.id)


def _flags(kind: type) -> Iterator[Flag]:
    hints, known = typing.get_type_hints(kind), allowed_values(kind)
    for each in dataclasses.fields(kind):
        several = typing.get_origin(hints[each.name]) is tuple
        takes = "none" if hints[each.name] is bool else "many" if several else "one"
        about = " ".join(str(each.metadata.get("help", "")).split())
        name = "" if each.metadata.get("positional") else f"--{each.name.replace('_', '-')}"
        name = name.replace("--", "--no-", 1) if each.default is True else name  # what is on can only be taken away
        metavar = str(each.metadata.get("metavar", each.name.upper()))
        names = (name, *each.metadata.get("aliases", ()))
        yield Flag(names, about, metavar, takes, known.get(each.name, ()))
    yield Flag(("--config",), "A recipe or a YAML file with other defaults; flags win.", "YAML", "files", recipes(kind))
    yield Flag(("--help", "-h"), "What the verb does, its flags, examples.", "", "none", ())


def allowed_values(kind: type) -> dict[str, tuple[str, ...]]:
    """Field -> the words that its check allows, where it allows only some."""
    from cxrhf.findings import CHEXPERT, NIH

    hints = typing.get_type_hints(kind)
    fields = [each for each in dataclasses.fields(kind) if _is_text(hints[each.name])]
    # A check is only reached where those before it hold: places and builds must be given, whatever they are.
    given = {each.name: _as(hints[each.name], "x") for each in fields
             if each.metadata.get("positional") or each.metadata.get("metavar") == "BUILD"}  # fmt: skip
    found: dict[str, tuple[str, ...]] = {}
    for each in sorted(fields, key=lambda field: field.name not in given):
        values = _refused(kind, given | {each.name: _as(hints[each.name], REFUSED)})
        if each.name in FINDINGS:
            values = tuple(dict.fromkeys((*CHEXPERT, *NIH)))
        if values:
            found[each.name] = values
        if values and each.name in given:
            given[each.name] = _as(hints[each.name], values[0])
    return found


def _is_text(hint: Any) -> bool:
    return hint is str or str in typing.get_args(hint)


def _as(hint: Any, word: str) -> Any:
    return (word,) if typing.get_origin(hint) is tuple else word


def _refused(kind: type, given: dict[str, Any]) -> tuple[str, ...]:
    """The words that the config's check names when it refuses one; none where it takes any, or explains in prose."""
    try:
        kind(**given)
    except CxrhfError as error:
        words = re.split(", | or ", error.allowed) if error.allowed and error.got == REFUSED else []
        if all(re.fullmatch(r"[\w&.-]+", each) for each in words):
            return tuple(each for each in words if "&" not in each)  # which a shell would take for its own
    return ()


def recipes(kind: type) -> tuple[str, ...]:
    """Recipes whose settings a verb has."""
    from cxrhf import config

    known = {each.name for each in dataclasses.fields(kind)}
    names = sorted(path.stem for path in (Path(config.__file__).parent / "configs").glob("*.yaml"))
    return tuple(name for name in names if {key.replace("-", "_") for key in config.load_mapping(name)} <= known)
