"""A config dataclass and the words of a command line -> the config.

Flags, types, defaults and help come from the dataclass; tyro does the parsing. `--config` gives other defaults from a
recipe or a YAML file; a flag wins over it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import io
import itertools
import os
import re
import shutil
import sys
import textwrap
import typing
from collections.abc import Sequence
from typing import Annotated, Any, TextIO, TypeVar

from cxrhf.errors import ConfigError, did_you_mean
from cxrhf.settings import check_keys, load_mapping, to_field_type

C = TypeVar("C")
_INVISIBLE = "\N{WORD JOINER}"
_HELP = ("-h", "--help")


def parse(kind: type[C], args: Sequence[str], *, verb: str, about: str) -> C:
    """The config a user asks for; `--help` ends in SystemExit, wrong flags and wrong values in a ConfigError."""
    args = [_expand_home(word) for word in args]
    if odd := next((word for word in args if any("\ud800" <= each <= "\udfff" for each in word)), None):
        raise ConfigError("an argument is not UTF-8 text", got=odd, next_step="rename the file or folder, or retype it")
    recipe = _recipe(args)
    given = check_keys(kind, load_mapping(recipe), source=recipe) if recipe else {}
    if not any(word in _HELP for word in args):
        _check_flags(kind, given, args, verb)
    import tyro

    # The config itself is made after the parsing: its own checks then speak in our words, not in tyro's box.
    said = io.StringIO()
    try:
        with contextlib.redirect_stdout(_Help(sys.stdout)), contextlib.redirect_stderr(said):
            parsed, rest = tyro.cli(_flags(kind, given), prog=f"cxrhf {verb}", description=_wrapped(about), args=args,
                                    config=(tyro.conf.OmitArgPrefixes,), return_unknown_args=True)  # fmt: skip
    except SystemExit as stop:
        if stop.code in (0, None):
            raise
        raise _refused(kind, given, verb, said.getvalue()) from None
    if rest:
        raise ConfigError(f"cxrhf {verb}: unexpected argument", got=" ".join(rest), next_step=f"cxrhf {verb} --help")
    hints = typing.get_type_hints(kind)
    values, found = {}, _flat(parsed)
    for each in dataclasses.fields(kind):  # type: ignore[arg-type]
        value, flag = found[each.name], _name_of(each)
        values[each.name] = to_field_type(value, hints[each.name], flag) if _is_number(hints[each.name]) else value
        if _is_blank(value):  # `--findings "$UNSET"` would be all findings, `--out ""` the folder one stands in
            raise ConfigError(f"{flag} is empty", next_step="give a value, or omit it")
    try:
        return kind(**values)
    except ConfigError as error:
        error.what = _with_flag(kind, error.what)
        raise


def _with_flag(kind: type, what: str) -> str:
    """A check's words with the flag in place of the field that they begin with: n_resamples -> --n-resamples."""
    names = {each.name: _name_of(each) for each in dataclasses.fields(kind)}
    return re.sub(r"^[a-z_]+(?= |:|$)", lambda word: names.get(word[0], word[0]), what)


def _flat(parsed: Any) -> dict[str, Any]:
    """Field -> value of what tyro parsed, whichever group it stood in."""
    values: dict[str, Any] = {}
    for each in dataclasses.fields(parsed):
        value = getattr(parsed, each.name)
        values |= _flat(value) if dataclasses.is_dataclass(value) else {each.name: value}
    return values


def _name_of(field: dataclasses.Field[Any]) -> str:
    """A field as it is typed: its flag, or the word that the help shows in its place."""
    positional = field.metadata.get("positional")
    return str(field.metadata["metavar"]) if positional else f"--{field.name.replace('_', '-')}"


def _is_blank(value: object) -> bool:
    """Whether a value was given and holds nothing."""
    if isinstance(value, tuple):
        return any(_is_blank(each) for each in value)
    return isinstance(value, str) and not value.replace(",", " ").strip()


def _is_number(hint: Any) -> bool:
    return hint in (int, float) or bool({int, float} & set(typing.get_args(hint)))


def _check_flags(kind: type, given: dict[str, Any], args: Sequence[str], verb: str) -> None:
    """A ConfigError for a flag that the verb does not have, and for one without its value."""
    hints = typing.get_type_hints(kind)
    takes: dict[str, bool] = {"--config": True}
    for each in dataclasses.fields(kind):
        if each.metadata.get("positional"):
            continue
        names, is_switch = [_name_of(each)], hints[each.name] is bool
        if is_switch and each.default is True:  # what is on can only be taken away
            names = [names[0].replace("--", "--no-", 1)]
        if is_switch and _turns(each, given):
            names = [_name_of(each), _name_of(each).replace("--", "--no-", 1)]
        takes |= dict.fromkeys([*names, *each.metadata.get("aliases", ())], not is_switch)
    for at, word in enumerate(args):
        if word == "--":
            return
        if not re.match(r"--|-[A-Za-z]", word):
            continue
        typed_flag, equals, _ = word.partition("=")
        flag = typed_flag.replace("_", "-")
        if flag not in takes:
            raise ConfigError(f"cxrhf {verb} has no flag {typed_flag}", next_step=_nearest(flag, list(takes), verb))
        if not takes[flag]:
            if equals:
                raise ConfigError(f"{flag} takes no value", got=word, next_step=f"{flag} alone, or omit it")
        elif not equals and (at + 1 == len(args) or args[at + 1].partition("=")[0].replace("_", "-") in takes):
            raise ConfigError(f"{flag} needs a value", next_step=f"{flag} VALUE; cxrhf {verb} --help describes it")


def _turns(field: dataclasses.Field[Any], given: dict[str, Any]) -> bool:
    """Whether a recipe sets a switch the other way: then a flag may set it either way."""
    return bool(given.get(field.name, field.default) != field.default)


def _nearest(flag: str, flags: Sequence[str], verb: str) -> str:
    """The flag that was probably meant: near in its letters, or --lr for --learning-rate."""
    names = {each.lstrip("-"): each for each in flags}
    short = flag.lstrip("-")
    initials = [each for name, each in names.items() if "".join(word[0] for word in name.split("-")) == short]
    if len(initials) == 1:
        return f"did you mean {initials[0]!r}?"
    close = did_you_mean(short, names)
    if close is None:  # --rank for --lora-rank
        ends = [each for name, each in names.items() if len(short) > 2 and short in name.split("-")]
        return f"did you mean {ends[0]!r}?" if len(ends) == 1 else f"cxrhf {verb} --help"
    return close.replace("'", "'--", 1)


def _refused(kind: type, given: dict[str, Any], verb: str, said: str) -> ConfigError:
    """tyro's refusal in our words: what is left is a place that was not filled."""
    places = [str(each.metadata["metavar"]) for each in dataclasses.fields(kind)
              if each.metadata.get("positional") and each.default is dataclasses.MISSING
              and each.name not in given]  # fmt: skip
    if not places:
        text = "".join(each if each.isascii() else " " for each in said)
        return ConfigError(f"cxrhf {verb}: {' '.join(text.split())}", next_step=f"cxrhf {verb} --help")
    # Flags that the config itself asks for, as --to of push; the first of words that may stand in a place.
    more = [f"{_name_of(each)} {each.metadata['metavar']}" for each in dataclasses.fields(kind)
            if each.metadata.get("required")]  # fmt: skip
    typed_words = " ".join(["cxrhf", verb, *(place.partition("|")[0] for place in places), *more])
    return ConfigError(f"cxrhf {verb}: {' '.join(places)} is missing", next_step=typed_words)


class _Help:
    """Standard output without the invisible signs that keep the lines of a help apart."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        self._stream.write(text.replace(_INVISIBLE, ""))
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def _wrapped(about: str) -> str:
    """What a verb says of itself, paragraphs as wide as the terminal, indented lines as they are."""
    width = min(120, shutil.get_terminal_size().columns)
    lines: list[str] = []
    for prose, group in itertools.groupby(about.split("\n"), lambda line: line[:1].strip() != ""):
        part = list(group)
        lines += textwrap.wrap(" ".join(part), width, break_on_hyphens=False) if prose else part
    # tyro makes one line of those that begin with a letter, and sets others apart: an invisible sign keeps ours.
    return "\n".join([lines[0], *(line if line[:1] == " " else f"{_INVISIBLE}{line}" for line in lines[1:])])


def _expand_home(word: str) -> str:
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
    """The same fields as plain data for tyro, with positions, metavars and help as annotations.

    A field with `group` in its metadata opens a group of flags in the help; the fields behind it belong to it.
    """
    from tyro.conf import arg

    hints = typing.get_type_hints(kind)
    groups: dict[str, list[Any]] = {"": []}
    group = ""
    for each in _in_order(kind):
        group = each.metadata.get("group", group)
        groups.setdefault(group, []).append(_flag(each, hints[each.name], given))
    more = arg(metavar="YAML", help="Recipe or YAML file with other defaults; flags take precedence.",
               help_behavior_hint="")  # fmt: skip
    top = [*groups.pop(""), ("config", Annotated[str | None, more], dataclasses.field(default=None))]
    for at, (title, members) in enumerate(groups.items()):
        part = dataclasses.make_dataclass(f"Group{at}", members, frozen=True)
        top.append((f"group_{at}", Annotated[part, arg(name=title)], dataclasses.field(default_factory=part)))
    return dataclasses.make_dataclass(kind.__name__, sorted(top, key=len), frozen=True)


def _in_order(kind: type) -> list[dataclasses.Field[Any]]:
    """The fields as the help shows them: the class's own before inherited ones."""
    return sorted(dataclasses.fields(kind), key=lambda field: bool(field.kw_only))


def _flag(each: dataclasses.Field[Any], hint: Any, given: dict[str, Any]) -> tuple[Any, ...]:
    """One field for `make_dataclass`."""
    from tyro.conf import FlagCreatePairsOff, Positional, arg

    about = each.metadata
    default = given.get(each.name, each.default)
    extra: dict[str, Any] = {}
    if default is None or default == () or isinstance(default, bool) or default is dataclasses.MISSING:
        extra["help_behavior_hint"] = ""  # "(default: None)" helps nobody
    elif isinstance(default, tuple):
        extra["help_behavior_hint"] = f"(default: {','.join(default)})"  # as it may be typed
    marks: list[Any] = [Positional] if about.get("positional") else []
    marks += [FlagCreatePairsOff] if hint is bool and not _turns(each, given) else []
    words = {key: about[key] for key in ("metavar", "aliases") if key in about}
    kinds = typing.get_args(hint)
    if type(None) in kinds and "metavar" not in words:  # "{None}|INT" helps nobody either
        words["metavar"] = next(kind for kind in kinds if kind is not type(None)).__name__.upper()
    if _is_number(hint):  # read by us, as in a YAML file: one rule, and one sentence for what is no number
        words.setdefault("metavar", "INT" if int in (hint, *kinds) else "FLOAT")
        hint = str | None if type(None) in kinds else str
        default = default if default is None or default is dataclasses.MISSING else str(default)
    marks.append(arg(help=about.get("help"), **words, **extra))
    # In a dataclass fields with a default come last; a required one that a recipe fills in is still a position.
    typed_hint = Annotated[(hint, *marks)]
    if default is dataclasses.MISSING:
        return (each.name, typed_hint)
    return (each.name, typed_hint, dataclasses.field(default=default))
