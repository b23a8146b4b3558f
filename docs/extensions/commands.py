"""Sources of the command line -> every command with its settings, for the page of commands and the tests of the docs.

`{commands}` in a page becomes a section for each command: its help, and its flags as `--help` has them. In blocks of
commands a flag is one word, which a narrow screen does not break.
"""

from __future__ import annotations

import ast
import dataclasses
import importlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import cxrhf


class Command(NamedTuple):
    """`verb` as it is typed ("context fit"), its help, and the dataclass its flags come from."""

    verb: str
    about: str
    config: Any


class Flag(NamedTuple):
    """A flag or a position, what it takes, what it says, and what it is if not given."""

    name: str
    takes: str
    says: str
    default: str
    aliases: tuple[str, ...]


def commands() -> list[Command]:
    """Every `parse(Config, args, verb=..., about=...)` of cxrhf/cli, in the order of `cxrhf --help`."""
    from cxrhf.cli import VERBS

    found = []
    for verb in VERBS:
        module = importlib.import_module(f"cxrhf.cli.{verb}")
        tree = ast.parse(Path(str(module.__file__)).read_text(encoding="utf-8"))
        calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and ast.unparse(node.func) == "parse"]
        for call in calls:
            words = {each.arg: each.value for each in call.keywords}
            about = getattr(module, ast.unparse(words["about"]))
            found.append(Command(ast.literal_eval(words["verb"]), about, getattr(module, ast.unparse(call.args[0]))))
    return found


def flags(config: Any) -> list[Flag]:
    """Positions first, then the dataclass's own flags, then those it shares; `--config` is everywhere."""
    made = []
    own = inspect.get_annotations(config)
    for each in sorted(dataclasses.fields(config), key=lambda field: field.name not in own):
        about = each.metadata
        position = bool(about.get("positional"))
        name = about.get("metavar", each.name.upper()) if position else "--" + each.name.replace("_", "-")
        switch = each.type in (bool, "bool")
        takes = "" if position or switch else str(about.get("metavar", _kind(each.type)))
        made.append(Flag(name, takes, str(about.get("help", "")), _default(each), tuple(about.get("aliases", ()))))
    made.sort(key=lambda flag: flag.name.startswith("-"))
    return [*made, Flag("--config", "YAML", "A recipe or a YAML file with other defaults; flags win.", "", ())]


def pieces(text: str) -> list[tuple[list[str], bool]]:
    """A help text as paragraphs, and as blocks of lines that are indented (True)."""
    made: list[tuple[list[str], bool]] = []
    for part in text.strip("\n").split("\n\n"):
        for at, line in enumerate(part.splitlines()):
            indented = line.startswith("  ")
            if at == 0 or made[-1][1] != indented:
                made.append(([], indented))
            made[-1][0].append(line.removeprefix("  "))
    return made


def _kind(hint: Any) -> str:
    return str(getattr(hint, "__name__", hint)).replace(" | None", "").upper()


def _default(field: dataclasses.Field[Any]) -> str:
    value = field.default
    if value is dataclasses.MISSING or value is None or isinstance(value, bool) or value == ():
        return ""
    return ",".join(value) if isinstance(value, tuple) else str(value)


def setup(app: Any) -> dict[str, bool]:
    """What Sphinx calls; its parts are imported here, so that tests read this file without Sphinx."""
    from docutils import nodes
    from pygments.filter import Filter
    from pygments.lexers import BashLexer
    from pygments.token import Name, Text
    from sphinx.util.docutils import SphinxDirective

    class Flags(Filter):
        """Text of a command -> the same with each flag as a token, whose class site.css knows."""

        def filter(self, lexer: Any, stream: Iterator[tuple[Any, str]]) -> Iterator[tuple[Any, str]]:
            for kind, value in stream:
                parts = re.split(r"(?<!\S)(--?[A-Za-z][\w-]*)", value) if kind is Text else [value]
                yield from ((Name.Attribute if at % 2 else kind, part) for at, part in enumerate(parts) if part)

    class CommandLexer(BashLexer):
        def __init__(self, **options: Any) -> None:
            super().__init__(**options)
            self.add_filter(Flags())

    class Commands(SphinxDirective):
        """`{commands}` in a page."""

        def run(self) -> list[nodes.Node]:
            package = Path(cxrhf.__file__).parent
            for source in (*package.glob("config*.py"), *package.glob("cli/*.py")):
                self.env.note_dependency(str(source))
            return [section(each) for each in commands()]

    def section(command: Command) -> nodes.section:
        title = f"cxrhf {command.verb}"
        made = nodes.section(ids=[nodes.make_id(title)], names=[title])
        made += nodes.title(text=title)
        text, _, examples = command.about.partition("\nexamples:\n")
        for lines, indented in pieces(text):
            if indented:
                made += nodes.literal_block("\n".join(lines), "\n".join(lines), language="text")
            else:
                made += paragraph(" ".join(lines))
        if examples:
            typed = "\n".join(line.removeprefix("  ") for line in examples.strip("\n").splitlines())
            made += nodes.literal_block(typed, typed, language="bash")
        made += listed(flags(command.config))
        return made

    def paragraph(text: str) -> nodes.paragraph:
        """What stands in backticks is code."""
        made = nodes.paragraph()
        for at, part in enumerate(text.split("`")):
            made += nodes.literal(text=part) if at % 2 else nodes.Text(part)
        return made

    def listed(rows: list[Flag]) -> nodes.definition_list:
        """A list of flags: a table of three columns would not fit a phone."""
        items = nodes.definition_list(classes=["flags"])
        for flag in rows:
            term = nodes.term()
            term += nodes.literal(text=" ".join(filter(None, (", ".join((*flag.aliases, flag.name)), flag.takes))))
            says = paragraph(flag.says)
            if flag.default:
                says += nodes.Text(" Default: ")
                says += nodes.literal(text=flag.default)
            items += nodes.definition_list_item("", term, nodes.definition("", says))
        return items

    app.add_directive("commands", Commands)
    app.add_lexer("bash", CommandLexer)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
