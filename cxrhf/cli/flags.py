"""A config dataclass and the words of a command line -> the config.

Flags, types, defaults and help come from the dataclass; tyro does the parsing. `--config` gives other defaults from a
recipe or a YAML file; a flag wins over it.
"""

from __future__ import annotations

import dataclasses
import itertools
import os
import shutil
import textwrap
import typing
from collections.abc import Sequence
from typing import Annotated, Any, TypeVar

from cxrhf.config import check_keys, load_mapping

C = TypeVar("C")
_INVISIBLE = "\N{WORD JOINER}"


def parse(kind: type[C], args: Sequence[str], *, verb: str, about: str) -> C:
    """The config a user asks for; `--help` and wrong flags end in SystemExit, wrong values in a ConfigError."""
    args = [_at_home(word) for word in args]
    recipe = _recipe(args)
    given = check_keys(kind, load_mapping(recipe), source=recipe) if recipe else {}
    import tyro

    # The config itself is made after the parsing: its own checks then speak in our words, not in tyro's box.
    parsed = tyro.cli(_flags(kind, given), prog=f"cxrhf {verb}", description=_wrapped(about), args=list(args))
    return kind(**{each.name: getattr(parsed, each.name) for each in dataclasses.fields(kind)})  # type: ignore[arg-type]


def _wrapped(about: str) -> str:
    """What a verb says of itself, paragraphs as wide as the terminal, indented lines as they are."""
    width = min(120, shutil.get_terminal_size().columns)
    lines: list[str] = []
    for prose, group in itertools.groupby(about.split("\n"), lambda line: line[:1].strip() != ""):
        part = list(group)
        lines += textwrap.wrap(" ".join(part), width, break_on_hyphens=False) if prose else part
    # tyro makes one line of those that begin with a letter, and sets others apart: an invisible sign keeps ours.
    return "\n".join([lines[0], *(line if line[:1] == " " else f"{_INVISIBLE}{line}" for line in lines[1:])])


def _at_home(word: str) -> str:
    """`--out=~/runs` with the home folder in place of ~, which shells leave alone there."""
    flag, equals, value = word.partition("=") if word.startswith("--") else ("", "", word)
    return flag + equals + (os.path.expanduser(value) if value.startswith("~/") else value)


def _recipe(args: Sequence[str]) -> str | None:
    """The value of --config, which must be known before the flags are made: it changes their defaults."""
    before = list(args[: args.index("--")]) if "--" in args else list(args)
    for at, word in enumerate(before):
        if word == "--config" and at + 1 < len(before):
            return before[at + 1]
        if word.startswith("--config="):
            return word.removeprefix("--config=")
    return None


def _flags(kind: type, given: dict[str, Any]) -> Any:
    """The same fields as plain data for tyro, with positions, metavars and help as annotations."""
    from tyro.conf import FlagCreatePairsOff, Positional, arg

    hints = typing.get_type_hints(kind)
    made: list[Any] = []
    for each in sorted(dataclasses.fields(kind), key=lambda field: bool(field.kw_only)):  # own flags come first
        about = each.metadata
        default = given.get(each.name, each.default)
        extra: dict[str, Any] = {}
        if default is None or default == () or isinstance(default, bool) or default is dataclasses.MISSING:
            extra["help_behavior_hint"] = ""  # "(default: None)" helps nobody
        marks: list[Any] = [Positional] if about.get("positional") else []
        marks += [FlagCreatePairsOff] if hints[each.name] is bool else []
        words = {key: about[key] for key in ("metavar", "aliases") if key in about}
        kinds = typing.get_args(hints[each.name])
        if type(None) in kinds and "metavar" not in words:  # "{None}|INT" helps nobody either
            words["metavar"] = next(kind for kind in kinds if kind is not type(None)).__name__.upper()
        marks.append(arg(help=about.get("help"), **words, **extra))
        hint: Any = Annotated[(hints[each.name], *marks)]
        # In a dataclass fields with a default come last; a required one that a recipe fills in is still a position.
        required = default is dataclasses.MISSING
        made.append((each.name, hint) if required else (each.name, hint, dataclasses.field(default=default)))
    more = arg(metavar="YAML", help="A recipe or a YAML file with other defaults; flags win.", help_behavior_hint="")
    made.append(("config", Annotated[str | None, more], dataclasses.field(default=None)))
    return dataclasses.make_dataclass(kind.__name__, sorted(made, key=len), frozen=True)
