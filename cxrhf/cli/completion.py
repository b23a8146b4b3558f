"""`cxrhf completion`: a shell -> the script that completes verbs, flags, recipes and known values in it."""

from __future__ import annotations

import ast
import dataclasses
import importlib
import inspect
import re
import shlex
import typing
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from cxrhf.cli import OPTIONS, VERBS
from cxrhf.errors import CxrhfError
from cxrhf.settings import CompletionConfig

ABOUT = """Print a script that completes cxrhf in your shell: verbs, flags, known values (audits, datasets, findings,
devices), recipes after --config, and files. The script matches this version of cxrhf.

Add the line to your shell's startup file, then open a new shell:
  bash   ~/.bashrc                      eval "$(cxrhf completion bash)"
  zsh    ~/.zshrc                       eval "$(cxrhf completion zsh)"
  fish   ~/.config/fish/config.fish     cxrhf completion fish | source

examples:
  cxrhf completion bash
  cxrhf completion fish | source"""


def main(args: Sequence[str]) -> int:
    """Print the script."""
    from cxrhf.cli.flags import parse

    config = parse(CompletionConfig, args, verb="completion", about=ABOUT)

    print(script(config.shell, commands()), end="")
    return 0


# What can be typed after `cxrhf` -> a script for bash, zsh or fish. Answers need no Python: the script knows all.

_ABOUT = 60  # letters of an explanation


def script(shell: str, known: Sequence[Command]) -> str:
    """The script of a shell."""
    return {"bash": bash, "zsh": zsh, "fish": fish}[shell](known)


def _below(known: Sequence[Command]) -> dict[str, list[Command]]:
    """Verbs with a second word -> their commands."""
    found: dict[str, list[Command]] = {}
    for each in known:
        if len(each.words) > 1:
            found.setdefault(each.words[0], []).append(each)
    return found


def _shorten_about(words: str) -> str:
    """The first sentence, as far as it fits."""
    first = re.split(r"(?<=[.;:]) ", words)[0].rstrip(".;:")
    return first if len(first) <= _ABOUT else first[: _ABOUT - 1].rsplit(" ", 1)[0] + "…"


# ---------------------------------------------------------------- bash

_BASH = r"""# Completion of cxrhf for bash. In ~/.bashrc: eval "$(cxrhf completion bash)"
_cxrhf_flags() {
    case "$1" in
@FLAGS@
    esac
}

# What a flag takes (none, one, many, files), then its known values; a positional argument has the flag ''.
_cxrhf_takes() {
    case "$1" in
@TAKES@
        *) echo one ;;
    esac
}

_cxrhf() {
    local cur="${COMP_WORDS[COMP_CWORD]}" key="${COMP_WORDS[1]}" first=2 at=0 passed=0 flag='' takes='' head='' word
    COMPREPLY=()
    if [ "$COMP_CWORD" -le 1 ]; then
        COMPREPLY=( $(compgen -W "@VERBS@" -- "$cur") )
        return
    fi
    case "$key" in
        help) COMPREPLY=( $(compgen -W "@PLAIN@" -- "$cur") ); return ;;
@BELOW@
    esac
    if [ "$first" -eq 3 ]; then key="$key ${COMP_WORDS[2]}"; fi
    # bash makes three words of --flag=value.
    if [ "$cur" = '=' ]; then cur=''; fi
    case "$cur" in
        -*) COMPREPLY=( $(compgen -W "$(_cxrhf_flags "$key")" -- "$cur") ); return ;;
    esac
    at=$((COMP_CWORD - 1))
    while [ "$at" -ge "$first" ]; do
        word="${COMP_WORDS[at]}"
        case "$word" in
            =) ;;
            -*) flag="$word"; break ;;
            *) passed=$((passed + 1)) ;;
        esac
        at=$((at - 1))
    done
    takes="$(_cxrhf_takes "$key $flag")"
    case "$takes" in
        none*) takes="$(_cxrhf_takes "$key ")" ;;
        one*|files*) if [ -n "$flag" ] && [ "$passed" -gt 0 ]; then takes="$(_cxrhf_takes "$key ")"; fi ;;
    esac
    # Without a known value the shell's own completion of files stands in.
    case "$takes" in
        files\ *) COMPREPLY=( $(compgen -W "${takes#* }" -- "$cur") $(compgen -f -- "$cur") ) ;;
        many\ *)
            case "$cur" in *,*) head="${cur%,*}," ;; esac
            COMPREPLY=( $(compgen -P "$head" -W "${takes#* }" -- "${cur#"$head"}") )
            compopt -o nospace 2>/dev/null ;;
        one\ *) COMPREPLY=( $(compgen -W "${takes#* }" -- "$cur") ) ;;
    esac
}
complete -o bashdefault -o default -F _cxrhf cxrhf
"""


def bash(known: Sequence[Command]) -> str:
    """For bash 3.2 and later."""
    flags, takes = [], []
    for each in known:
        name = " ".join(each.words)
        names = " ".join(word for flag in each.flags for word in flag.names)
        flags.append(f"        {shlex.quote(name)}) echo {shlex.quote(names)} ;;")
        for flag in (*each.flags, each.place):
            if flag.takes != "one" or flag.values:
                keys = "|".join(shlex.quote(f"{name} {word}") for word in flag.names)
                takes.append(f"        {keys}) echo {shlex.quote(' '.join((flag.takes, *flag.values)))} ;;")
    below = [
        f'        {verb}) first=3; if [ "$COMP_CWORD" -eq 2 ]; then '
        f'COMPREPLY=( $(compgen -W "{" ".join(each.words[1] for each in several)} --help" -- "$cur") ); return; fi ;;'
        for verb, several in _below(known).items()
    ]
    parts = {"FLAGS": "\n".join(flags), "TAKES": "\n".join(takes), "BELOW": "\n".join(below),
             "PLAIN": " ".join(VERBS), "VERBS": " ".join((*VERBS, "help", *OPTIONS))}  # fmt: skip
    return re.sub(r"@([A-Z]+)@", lambda found: parts[found[1]], _BASH)


# ---------------------------------------------------------------- zsh

_ZSH = r"""#compdef cxrhf
# Completion of cxrhf for zsh. In ~/.zshrc: eval "$(cxrhf completion zsh)"
_cxrhf() {
    local -a verbs below
    if (( CURRENT == 2 )); then
        verbs=(
@VERBS@
        )
        _describe verb verbs
        return
    fi
    local verb=$words[2]
    shift words
    (( CURRENT-- ))
    case $verb in
@CASES@
    esac
}
(( $+functions[compdef] )) || { autoload -Uz compinit && compinit }
compdef _cxrhf cxrhf
"""


def zsh(known: Sequence[Command]) -> str:
    """With an explanation beside each word."""
    plain = [each for each in known if len(each.words) == 1]
    cases = [f"        {each.words[0]})\n            {_zsh_arguments(each)} ;;" for each in plain]
    for verb, several in _below(known).items():
        names = " ".join(shlex.quote(f"{each.words[1]}:{_shorten_about(each.about)}") for each in several)
        inside = "\n".join(f"                {each.words[1]}) {_zsh_arguments(each)} ;;" for each in several)
        cases.append(
            f"        {verb})\n"
            f"            if (( CURRENT == 2 )); then below=({names}); _describe verb below; return; fi\n"
            f"            verb=$words[2]; shift words; (( CURRENT-- ))\n"
            f"            case $verb in\n{inside}\n            esac ;;"
        )
    verbs = "\n".join(f"            {shlex.quote(f'{verb}:{_shorten_about(about)}')}" for verb, about in VERBS.items())
    return _ZSH.replace("@VERBS@", verbs).replace("@CASES@", "\n".join(cases))


def _zsh_arguments(command: Command) -> str:
    specs = []
    for flag in command.flags:
        about = re.sub(r"([\[\]:\\])", r"\\\1", _shorten_about(flag.about))
        value = "" if flag.takes == "none" else f":{_zsh_words(flag.metavar)}:{_zsh_action(flag)}"
        again = "*" if flag.takes == "many" else ""
        specs += [f"{again}{name}[{about}]{value}" for name in flag.names]
    place = command.place
    if place.takes != "none":
        where = "*" if place.takes == "many" else "1"
        specs.append(f"{where}:{_zsh_words(place.metavar)}:{_zsh_action(place)}")
    return "_arguments " + " ".join(map(shlex.quote, specs))


def _zsh_words(words: str) -> str:
    return re.sub(r"[:|\[\]]", " ", words)


def _zsh_action(flag: Flag) -> str:
    if not flag.values:
        return "_files"
    if flag.takes == "many":
        return f"_values -s , value {' '.join(flag.values)}"
    if flag.takes == "files":
        return f"{{ compadd {' '.join(flag.values)}; _files }}"
    return f"({' '.join(flag.values)})"


# ---------------------------------------------------------------- fish

_FISH = """# Completion of cxrhf for fish. In ~/.config/fish/config.fish: cxrhf completion fish | source
function __cxrhf_at
    set -l typed (commandline -opc)
    set -e typed[1]
    string match -q -- "$argv *" "$typed "
end
function __cxrhf_just
    test (count (commandline -opc)) -eq (math (count $argv) + 1); and __cxrhf_at $argv
end
function __cxrhf_first
    test (count (commandline -opc)) -eq 1
end
"""


def fish(known: Sequence[Command]) -> str:
    """With an explanation beside each word."""
    lines = [_fish("__cxrhf_first", f"-f -a {verb}", about) for verb, about in VERBS.items()]
    for verb, several in _below(known).items():
        lines += [_fish(f"__cxrhf_just {verb}", f"-f -a {each.words[1]}", each.about) for each in several]
    for each in known:
        where = f"__cxrhf_at {' '.join(each.words)}"
        for flag in each.flags:
            names = [f"-l {word[2:]}" if word.startswith("--") else f"-s {word[1:]}" for word in flag.names]
            lines.append(_fish(where, " ".join(names) + _fish_value(flag), flag.about))
        if each.place.values:
            lines.append(_fish(where, f"-f -a {shlex.quote(' '.join(each.place.values))}", each.place.about))
    return _FISH + "\n".join(lines) + "\n"


def _fish(where: str, what: str, about: str) -> str:
    said = _shorten_about(about).replace("\\", "\\\\").replace("'", "\\'")
    return f"complete -c cxrhf -n '{where}' {what} -d '{said}'"


def _fish_value(flag: Flag) -> str:
    words = " ".join(flag.values)
    if flag.takes == "none":
        return ""
    if not words:
        return " -r"
    if flag.takes == "many":
        return f""" -x -a "(__fish_complete_list , 'string split \\" \\" \\"{words}\\"')\""""
    return f" {'-r' if flag.takes == 'files' else '-x'} -a '{words}'"


# Verbs and their config dataclasses -> what can be typed after `cxrhf`: verbs, flags, and the values that are known.
#
# Nothing is listed twice: which config a verb reads stands in its own call of `parse`, flags are the config's fields,
# and allowed values come from the config's own check, which names them when it refuses a word.

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
    given = {each.name: _as_field_value(hints[each.name], "x") for each in fields
             if each.metadata.get("positional") or each.metadata.get("metavar") == "BUILD"}  # fmt: skip
    found: dict[str, tuple[str, ...]] = {}
    for each in sorted(fields, key=lambda field: field.name not in given):
        values = _refused(kind, given | {each.name: _as_field_value(hints[each.name], REFUSED)})
        if each.name in FINDINGS:
            values = tuple(dict.fromkeys((*CHEXPERT, *NIH)))
        if values:
            found[each.name] = values
        if values and each.name in given:
            given[each.name] = _as_field_value(hints[each.name], values[0])
    return found


def _is_text(hint: Any) -> bool:
    return hint is str or str in typing.get_args(hint)


def _as_field_value(hint: Any, word: str) -> Any:
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
    from cxrhf import settings as config

    known = {each.name for each in dataclasses.fields(kind)}
    names = sorted(path.stem for path in (Path(config.__file__).parent / "configs").glob("*.yaml"))
    return tuple(name for name in names if {key.replace("-", "_") for key in config.load_mapping(name)} <= known)
