"""What can be typed after `cxrhf` -> a script for bash, zsh or fish. Answers need no Python: the script knows all."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence

from cxrhf.cli import OPTIONS, VERBS
from cxrhf.cli.completion_words import Command, Flag

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


def _short(words: str) -> str:
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
        names = " ".join(shlex.quote(f"{each.words[1]}:{_short(each.about)}") for each in several)
        inside = "\n".join(f"                {each.words[1]}) {_zsh_arguments(each)} ;;" for each in several)
        cases.append(
            f"        {verb})\n"
            f"            if (( CURRENT == 2 )); then below=({names}); _describe verb below; return; fi\n"
            f"            verb=$words[2]; shift words; (( CURRENT-- ))\n"
            f"            case $verb in\n{inside}\n            esac ;;"
        )
    verbs = "\n".join(f"            {shlex.quote(f'{verb}:{_short(about)}')}" for verb, about in VERBS.items())
    return _ZSH.replace("@VERBS@", verbs).replace("@CASES@", "\n".join(cases))


def _zsh_arguments(command: Command) -> str:
    specs = []
    for flag in command.flags:
        about = re.sub(r"([\[\]:\\])", r"\\\1", _short(flag.about))
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
    said = _short(about).replace("\\", "\\\\").replace("'", "\\'")
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
